"""What others on this machine ask the brain: over a Unix socket, for its own user alone.

One request after the other: an object with ``op``, then for a call its streams, then the
answer ``{"ok": true, …}`` or ``{"ok": false, "error", "code", "remedy", "details"}``.
A call with ``feed`` is its connection's last::

    call {target, call: {op, args}, key, by, wait_s, return_s, stream, feed}
         in: D frames of the call's stream, {"end": true}, {"cancel": true}
         out: D frames, then {"ok", "value"}
    cancel {key}                       nodes {}                 status {}
    code {name, address, replace, ttl_s}        token {name, keep, replace, tags}
    revoke {name}  remove {name}  rename {name, to}  rotate {name}
    tags {name, tags}  require {name, require}   stop {if_idle}
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from handoff.errors import BadRequest, NotAllowed
from handoff.nodes.brain.core import Brain
from handoff.nodes.brain.local import Local
from handoff.nodes.brain.requests import number, text, texts

if TYPE_CHECKING:
    from handoff.nodes.brain.main import Serving

__all__ = ["ControlSocket"]

SOCKET = "brain.sock"
#: connections that stay open between requests
RESTING = 64


class ControlSocket:
    """Listens in the brain's folder."""

    def __init__(self, brain: Brain, serving: Serving) -> None:
        self.brain = brain
        self._serving = serving
        self._server: asyncio.Server | None = None
        #: everybody, in the order in which they were last answered
        self._clients: dict[Local, bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._plain: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "cancel": self._cancel,
            "nodes": self._nodes,
            "status": self._status,
            "code": self._code,
            "token": self._token,
            "revoke": self._revoke,
            "remove": self._remove,
            "rename": self._rename,
            "rotate": self._rotate,
            "tags": self._tags,
            "require": self._require,
            "stop": self._stop,
        }

    async def open(self, folder: str) -> None:
        """Make the socket; an old one of a brain that was killed is replaced.

        Raises:
            OSError: the folder can't be written.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(SOCKET, dir_fd=fd)
            # the address is short whatever the folder is called
            place = f"/proc/self/fd/{fd}" if sys.platform == "linux" else folder
            sock.bind(os.path.join(place, SOCKET))
            os.chmod(SOCKET, 0o600, dir_fd=fd)
        finally:
            os.close(fd)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: Local(self), sock=sock)

    async def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
            for client in list(self._clients):
                client.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def opened(self, client: Local) -> None:
        """A client has connected."""
        self._clients[client] = False

    def rests(self, client: Local) -> None:
        """A client has got its answer. The one that rests for longest gives way when there
        are too many; it connects anew if it has more to ask."""
        del self._clients[client]
        self._clients[client] = True
        if len(self._clients) > RESTING:
            rest = [one for one, resting in self._clients.items() if resting]
            if len(rest) > RESTING:
                rest[0].close()

    def asks(self, client: Local) -> None:
        """A client has asked something."""
        self._clients[client] = False

    def closed(self, client: Local) -> None:
        """A client is gone."""
        self._clients.pop(client, None)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something until the socket closes."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request other than a call, without ``ok``. Raises HandoffError."""
        op = request.get("op")
        work = self._plain.get(op) if isinstance(op, str) else None
        if work is None:
            raise BadRequest(f"there is no request '{str(op)[:40]}'", field="op")
        return work(request)

    def _cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"done": self.brain.cancel(text(request, "key"))}

    def _nodes(self, _: dict[str, Any]) -> dict[str, Any]:
        linked = {one.name: asdict(one) for one in self.brain.connected()}
        found = []
        for record in self.brain.store.nodes():
            state = "connected" if record.name in linked else "disconnected"
            if not record.last_ms and record.name not in linked:
                state = "never_seen"
            if record.revoked:
                state = "revoked"
            found.append({**asdict(record), "state": state, "link": linked.get(record.name)})
        return {"nodes": found, "count": len(found)}

    def _status(self, _: dict[str, Any]) -> dict[str, Any]:
        return self._serving.status()

    def _code(self, request: dict[str, Any]) -> dict[str, Any]:
        address = text(request, "address", "") or self._serving.address
        code = self.brain.store.new_code(
            address,
            self.brain.key.public,
            text(request, "name", ""),
            replace=request.get("replace") is True,
            ttl_s=number(request, "ttl_s", 600),
        )
        self.brain.audit.row("pair", node=code.name, status="code", actor=request.get("by"))
        return {
            "code": code.text(),
            "id": code.id,
            "address": address,
            "name": code.name,
            "fingerprint": self.brain.key.fingerprint,
            "ttl_s": number(request, "ttl_s", 600),
        }

    def _token(self, request: dict[str, Any]) -> dict[str, Any]:
        name = text(request, "name")
        token = self.brain.store.add_token(
            name,
            keep=request.get("keep") is True,
            replace=request.get("replace") is True,
            tags=texts(request, "tags"),
        )
        self._end_link(name, "it has another token now")
        self.brain.audit.row("pair", node=name, status="token", actor=request.get("by"))
        return {"token": token, "name": name, "address": self._serving.address}

    def _revoke(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"changed": self.brain.revoke(text(request, "name"))}

    def _remove(self, request: dict[str, Any]) -> dict[str, Any]:
        name = text(request, "name")
        self.brain.revoke(name)
        self.brain.store.remove(name)
        self.brain.audit.row("remove", node=name, status="ok")
        return {}

    def _rename(self, request: dict[str, Any]) -> dict[str, Any]:
        name, to = text(request, "name"), text(request, "to")
        self.brain.rename(name, to)
        return {"name": to, "kind": self.brain.store.node(to).kind}

    def _rotate(self, request: dict[str, Any]) -> dict[str, Any]:
        name = text(request, "name")
        token = self.brain.store.rotate_token(name)
        self._end_link(name, "it has another token now")
        self.brain.audit.row("rotate", node=name, status="ok")
        return {"token": token, "name": name}

    def _end_link(self, name: str, why: str) -> None:
        """What a link was opened with is good no more; what runs there may go on."""
        session = self.brain.sessions.get(name)
        if session is not None:
            session.close("replaced", why)

    def _tags(self, request: dict[str, Any]) -> dict[str, Any]:
        self.brain.store.set_tags(text(request, "name"), texts(request, "tags"))
        return {}

    def _require(self, request: dict[str, Any]) -> dict[str, Any]:
        name, require = text(request, "name"), text(request, "require", "")
        self.brain.store.set_require(name, require)
        session = self.brain.sessions.get(name)
        if session is not None and not session.meets(require):
            self._end_link(name, "a sealed session is required now")
        self.brain.audit.row("require", node=name, target=require, status="ok")
        return {}

    def _stop(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("if_idle") is True and self.brain.asking:
            raise NotAllowed("calls are under way", remedy="wait for them: handoff nodes status")
        self._serving.stop()
        return {}

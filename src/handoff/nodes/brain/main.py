"""The brain's own process: ``python -m handoff.nodes.brain.main FOLDER``.

One for each folder, whoever starts it: it holds a lock, the port for nodes and the socket
for everybody else on this machine. In FOLDER, which only its user can read: ``brain.toml``
(host, port, address, tls, require, chunks), ``key.pem``, ``cert.pem``, ``nodes.sqlite3``,
``calls.sqlite3``, ``audit/``, ``brain.json`` (who holds it), ``brain.sock``, ``brain.log``.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
import tomllib
from dataclasses import dataclass, replace
from typing import Any

from handoff import __version__
from handoff.clock import SystemClock
from handoff.errors import AlreadyRunning, ConfigError, HandoffError, PortInUse
from handoff.link.files import make_folder, write_private
from handoff.link.keys import load_or_make_key
from handoff.link.tls import load_or_make_certificate, server_context
from handoff.link.tokens import NodeStore
from handoff.nodes.audit import Audit
from handoff.nodes.brain.control import ControlSocket
from handoff.nodes.brain.core import Brain
from handoff.nodes.brain.journal import BrainJournal
from handoff.nodes.brain.server import NodePort
from handoff.nodes.descriptors import quiet, raise_limit
from handoff.nodes.heap import keep_freed
from handoff.redaction import Redactor
from handoff.wire.node.options import BrainOptions

__all__ = ["Serving", "Settings", "load_settings", "save_settings", "serve"]

PORT = 7000
#: ports that are tried where none was chosen
PORTS = 64
SETTINGS = "brain.toml"
INFO = "brain.json"
#: seconds between looks at what was kept long enough
CLEAN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """``address``: the URL that nodes dial, "" for one made of host and port. ``tls`` false
    only where something in front of it does that. ``require``: ``""``, ``e2e``, ``e2e2``.
    ``fixed``: the port was chosen, by a person or at the first start; otherwise another one is
    taken, and kept, where it is in use."""

    host: str = "127.0.0.1"
    port: int = PORT
    address: str = ""
    tls: bool = True
    require: str = ""
    chunks: bool = False
    fixed: bool = False


def load_settings(folder: str) -> Settings:
    """``brain.toml``, or what holds without it.

    Raises:
        ConfigError: with the key that is wrong.
    """
    path = os.path.join(folder, SETTINGS)
    try:
        with open(path, "rb") as file:
            value = tomllib.load(file)
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}", remedy=f"edit {path}", path=path) from error
    kinds = {"host": str, "port": int, "address": str, "tls": bool, "require": str, "chunks": bool}
    for key, one in value.items():
        kind = kinds.get(key)
        if kind is None or not isinstance(one, kind) or (kind is int and isinstance(one, bool)):
            known = ", ".join(kinds)
            raise ConfigError(
                f"{path}: {key} is unknown, or of the wrong kind; known: {known}",
                remedy=f"edit {path}",
                path=path,
                key=key,
            )
    # nodes dial an address that was told with its port
    made = Settings(**value, fixed="port" in value or "address" in value)
    if not 0 <= made.port <= 65535 or made.require not in {"", "e2e", "e2e2"}:
        raise ConfigError(f"{path}: port or require is out of range", remedy=f"edit {path}")
    return made


def save_settings(folder: str, settings: Settings) -> None:
    """Write ``brain.toml``. Raises StorageError."""
    lines = []
    settings = replace(settings, fixed=settings.fixed or settings.port != PORT)
    for name in ("host", "port", "address", "tls", "require", "chunks"):
        if name == "port" and not settings.fixed:
            continue
        one = getattr(settings, name)
        shown = json.dumps(one)
        lines.append(f"{name} = {shown}")
    write_private(os.path.join(folder, SETTINGS), ("\n".join(lines) + "\n").encode())


def keep_port(folder: str, port: int) -> None:
    """Note the port in ``brain.toml``, whose other lines stay. Raises StorageError."""
    path = os.path.join(folder, SETTINGS)
    try:
        with open(path, "rb") as file:
            before = file.read()
    except FileNotFoundError:
        before = b""
    end = b"" if not before or before.endswith(b"\n") else b"\n"
    write_private(path, before + end + b"port = %d\n" % port)


class Serving:
    """A brain that serves. ``address``: what nodes dial. spawned: a client has started it, and
    may start it anew."""

    def __init__(self, folder: str, settings: Settings, *, spawned: bool = False) -> None:
        self.folder = folder
        self.settings = settings
        self.spawned = spawned
        self.address = settings.address
        self.listening: tuple[str, int] = ("", 0)
        self._stop = asyncio.Event()
        self._clock = SystemClock()
        self._began = self._clock.now_ms()
        self._brain: Brain | None = None

    def stop(self) -> None:
        """End it."""
        self._stop.set()

    def status(self) -> dict[str, Any]:
        """How it stands."""
        brain = self._brain
        return {
            "pid": os.getpid(),
            "version": __version__,
            "spawned": self.spawned,
            "folder": self.folder,
            "host": self.listening[0],
            "port": self.listening[1],
            "address": self.address,
            "tls": self.settings.tls,
            "require": self.settings.require,
            "fingerprint": brain.key.fingerprint if brain else "",
            "connected": len(brain.sessions) if brain else 0,
            "under_way": len(brain.asking) if brain else 0,
            "waiting": brain.waiting if brain else 0,
            "started_ms": self._began,
        }

    async def run(self, ready: Any = None) -> None:
        """Serve until it is stopped. ready: called with the status once it listens.

        Raises:
            AlreadyRunning: the folder has a brain.
            ConfigError, StorageError: it can't serve.
        """
        make_folder(self.folder)
        with _owned(self.folder) as lock, contextlib.ExitStack() as stack:
            key_path = os.path.join(self.folder, "key.pem")
            key = load_or_make_key(key_path)
            store = NodeStore(os.path.join(self.folder, "nodes.sqlite3"), self._clock)
            stack.callback(store.close)
            journal = BrainJournal(os.path.join(self.folder, "calls.sqlite3"))
            stack.callback(journal.close)
            redactor = Redactor(key.private, mode="standard")
            audit = Audit(os.path.join(self.folder, "audit"), "brain", redactor.redact, self._clock)
            stack.callback(audit.close)
            brain = self._brain = Brain(store, journal, audit, key, self._clock)
            options = BrainOptions(
                key=key.private, require=self.settings.require, chunks=self.settings.chunks
            )
            port = NodePort(brain, options, self._clock, self._context(key, key_path))
            control = ControlSocket(brain, self)
            try:
                self.listening = await self._listen(port)
                self._name_address()
                await control.open(self.folder)
                _tell(lock, self.status())
                if ready is not None:
                    ready(self.status())
                if not load_settings(self.folder).fixed:
                    keep_port(self.folder, self.listening[1])
                await self._until_stopped(journal, audit)
            finally:
                await control.close()
                await port.close()

    async def _listen(self, port: NodePort) -> tuple[str, int]:
        """The port that was chosen, or the first free one from the usual one on, which nodes
        that are paired now will find again.

        Raises:
            PortInUse, ConfigError.
        """
        host, first = self.settings.host, self.settings.port
        if self.settings.fixed or self.settings.address:
            return await port.open(host, first)
        for at in range(first, first + PORTS):
            with contextlib.suppress(PortInUse):
                return await port.open(host, at)
        return await port.open(host, 0)

    def _context(self, key: Any, key_path: str) -> Any:
        if not self.settings.tls:
            return None
        hosts = ["localhost", self.settings.host]
        cert = load_or_make_certificate(
            os.path.join(self.folder, "cert.pem"), key, hosts, self._clock.now_ms()
        )
        return server_context(cert, key_path)

    def _name_address(self) -> None:
        if self.address:
            return
        scheme = "wss" if self.settings.tls else "ws"
        host = self.settings.host
        if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - it is compared, not bound
            import socket

            host = socket.getfqdn() or socket.gethostname()
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{scheme}://{shown}:{self.listening[1]}"

    async def _until_stopped(self, journal: BrainJournal, audit: Audit) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(HandoffError):
                journal.prune(self._clock.now_ms())
                audit.sync()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), CLEAN_S)


@contextlib.contextmanager
def _owned(folder: str) -> Any:
    """The folder's lock, for as long as the block lasts."""
    path = os.path.join(folder, INFO)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            held = os.pread(fd, 4096, 0).decode("utf-8", "replace").strip()
            with contextlib.suppress(ValueError):
                held = str(json.loads(held).get("pid", held))
            raise AlreadyRunning(
                f"a brain serves {folder} already (process {held})",
                remedy="handoff nodes stop",
                pid=held,
            ) from error
        yield fd
    finally:
        os.close(fd)


def _tell(fd: int, status: dict[str, Any]) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, (json.dumps(status) + "\n").encode(), 0)


async def serve(
    folder: str, settings: Settings, ready: Any = None, *, spawned: bool = False
) -> None:
    """Serve until SIGTERM or SIGINT. Raises as :meth:`Serving.run`."""
    keep_freed()
    raise_limit()
    serving = Serving(folder, settings, spawned=spawned)
    loop = asyncio.get_running_loop()
    quiet(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.stop)
    await serving.run(ready)


def main() -> int:
    """Run one brain for others: a line of JSON on standard output says how it began."""
    folder = os.path.abspath(sys.argv[1])
    if os.fork():
        os._exit(0)  # nobody's child, so that nobody has to collect it

    def say(value: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            os.write(1, (json.dumps(value) + "\n").encode())
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        settings = load_settings(folder)
        asyncio.run(serve(folder, settings, lambda status: say({"ready": status}), spawned=True))
    except AlreadyRunning:
        say({"taken": True})
    except HandoffError as error:
        say({"failed": {"error": error.cause, "code": error.code, "remedy": error.remedy}})
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

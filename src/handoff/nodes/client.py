"""Asking the brain of a folder, from any process of its user. Standard library only.

Calls that change something carry a key. A call whose connection breaks is asked again with
the same key, which runs nothing twice; what nobody can know comes back as
``outcome_unknown``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from handoff import __version__
from handoff.errors import (
    Failed,
    HandoffError,
    OutcomeUnknown,
    ProtocolViolation,
    TimedOut,
    Unreachable,
    from_json,
)
from handoff.nodes import starting
from handoff.nodes.brain.framing import HEADER, data_frame, json_frame, length, parse

__all__ = ["BrainClient", "new_key"]

SOCKET = "brain.sock"
INFO = starting.INFO
#: seconds that a brain may take to answer what asks no node, to hear that a call is to end, and
#: to take a connection: it does each at once, unless it hangs
ASK_S = 30.0
CANCEL_S = 5.0
CONNECT_S = 5.0
#: connections that are kept for the next call
RESTING = 4
Pieces = Callable[[str, bytes], None]


def new_key() -> str:
    """A key for one call; keep it to ask again."""
    return f"call-{secrets.token_hex(12)}"


class BrainClient:
    """The brain of a folder.

    argv: how to start one, without the folder; None starts none.
    env: of the process that is started. warn: told in one line when the brain that serves is
    of another version than this program, and can't be started anew for now.
    """

    def __init__(
        self,
        folder: str,
        argv: Sequence[str] | None = (sys.executable, "-m", "handoff.nodes.brain.main"),
        env: Mapping[str, str] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.folder = folder
        self._warn = warn
        self._looked = False
        self._argv = argv
        self._env = env
        #: connections without a request, and the process that may use them
        self._resting: list[socket.socket] = []
        self._pid = os.getpid()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the brain. A later call connects anew."""
        while self._resting:
            with contextlib.suppress(IndexError):
                self._resting.pop().close()

    def running(self) -> bool:
        """Whether a brain answers."""
        try:
            self._connect().close()
        except OSError:
            return False
        return True

    def ask(self, op: str, *, within_s: float = 0, **fields: Any) -> dict[str, Any]:
        """A request without streams; the answer without ``ok``. within_s: how long it is
        waited for, if not the usual time.

        Raises:
            Unreachable: no brain, and none can be started; or it went away before it answered.
            TimedOut: it does not answer; the request may have been done.
            HandoffError: what the brain answered.
        """
        with self._open() as sock:
            limit = within_s or ASK_S
            sock.settimeout(limit)
            try:
                _send(sock, json_frame({"op": op, **fields}))
                answer = _receive(sock)
            except TimeoutError as error:
                raise TimedOut(
                    f"the brain has not answered within {limit:g} s",
                    remedy=f"if it goes on so, end its process, which {self.folder}/{INFO} names",
                ) from error
            except (OSError, EOFError) as error:
                raise Unreachable(
                    "the brain went away before it answered", remedy="look, and ask again"
                ) from error
        return _checked(answer)

    def call(
        self,
        target: str,
        op: str,
        args: Mapping[str, Any],
        *,
        key: str = "",
        by: Mapping[str, str] | None = None,
        wait_s: float = 0,
        return_s: float = 30,
        pieces: Pieces | None = None,
        feed: Iterator[bytes] | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """Ask a node: (True, the result's JSON) or (False, the failure's).

        key: the same when asking again. by: who asks. pieces: told of each stream's bytes.
        feed: the bytes of the stream into the call. Interrupted (Ctrl-C), the call is
        cancelled and its result waited for once more. What ``pieces`` or ``feed`` raises ends
        the call, and is raised.

        Raises:
            Unreachable, HandoffError: the request itself was refused.
        """
        request = {
            "op": "call",
            "target": target,
            "call": {"op": op, "args": dict(args)},
            "key": key,
            "by": dict(by or {}),
            "wait_s": wait_s,
            "return_s": return_s,
            "stream": pieces is not None,
            "feed": feed is not None,
        }
        again = 0
        while True:
            # what can't be begun anew gets a connection of which nobody can be tired
            sock = None if pieces or feed else self._rested()
            try:
                try:
                    sock = sock or self._open()
                except HandoffError as error:
                    if again and op not in _READS:  # it was asked before: it may be done
                        raise _unknown(key, f", and can't be reached: {error.cause}") from error
                    raise
                try:
                    answer = _talk(sock, request, pieces, feed, self._cancel)
                except BaseException:
                    sock.close()
                    raise
                if feed:
                    sock.close()
                else:
                    self._rest(sock)
                return answer
            except _Broken as broken:
                raise broken.error from None
            except (ConnectionError, EOFError) as error:
                # a stream can't be begun anew; without a key the same call is another call
                again += 1
                if again > 3 or (not key and op not in _READS) or pieces or feed:
                    if op in _READS:
                        raise Unreachable(
                            "the brain went away while it answered", remedy="ask again"
                        ) from error
                    raise _unknown(key) from error

    def _cancel(self, key: str) -> None:
        """On a connection of its own: the call's may be full of its input."""
        with contextlib.suppress(OSError, HandoffError, EOFError), self._connect() as sock:
            sock.settimeout(CANCEL_S)
            _send(sock, json_frame({"op": "cancel", "key": key}))
            _receive(sock)

    def start(self) -> None:
        """Start the folder's brain unless one runs.

        Raises:
            LaunchFailed, HandoffError: it can't be started.
        """
        if self.running():
            return
        if self._argv is None:
            raise Unreachable("no brain runs", remedy="handoff nodes serve")
        starting.launch(self._argv, self.folder, self._env, self.running)

    def end(self) -> None:
        """End the brain, and wait until it is gone.

        Raises:
            Failed: it does not end.
        """
        why = starting.end_brain(self.ask, self.folder, idle=False)
        if why:
            raise Failed(f"the brain goes on: {why}", remedy=f"look at {self.folder}/brain.json")

    def _rested(self) -> socket.socket | None:
        """A connection that was used before and that the brain has not closed."""
        while self._resting and self._pid == os.getpid():
            try:
                sock = self._resting.pop()
            except IndexError:  # another thread was faster
                return None
            try:
                sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return sock
            except OSError:
                pass
            sock.close()
        return None

    def _rest(self, sock: socket.socket) -> None:
        if self._pid != os.getpid():  # after a fork: what the parent has is the parent's
            self.close()
            self._pid = os.getpid()
        if len(self._resting) < RESTING:
            self._resting.append(sock)
        else:
            sock.close()

    def _connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                place = f"/proc/self/fd/{fd}" if sys.platform == "linux" else self.folder
                sock.settimeout(CONNECT_S)
                sock.connect(os.path.join(place, SOCKET))
                sock.settimeout(None)
            finally:
                os.close(fd)
        except BaseException:
            sock.close()
            raise
        return sock

    def _open(self) -> socket.socket:
        try:
            sock = self._connect()
            if self._looked or self._current(sock):
                return sock
        except OSError as error:
            if self._argv is None:
                raise Unreachable(
                    f"no brain serves {self.folder}", remedy="handoff nodes serve"
                ) from error
        self.start()
        try:
            return self._connect()
        except OSError as error:
            raise Unreachable(f"the brain went away: {error}", remedy="try again") from error

    def _current(self, sock: socket.socket) -> bool:
        """Whether the brain that answers is to be used. One that an older version of this
        program has started ends first, if nothing is under way."""
        self._looked = True
        version, spawned = starting.said_version(self.folder)
        if version == __version__:
            return True
        why = (
            "it is the newer one" if not starting.newer_than(version) else "it was started by hand"
        )
        if spawned and self._argv is not None and starting.newer_than(version):
            why = starting.end_brain(self.ask, self.folder)
            if not why:
                sock.close()
                return False
        if self._warn is not None:
            self._warn(
                f"the brain is of version {version or 'unknown'}, this program of {__version__}"
                f" ({why}); try: handoff nodes restart"
            )
        return True


_READS = frozenset(
    {
        *("read_output", "job_list", "job_wait", "job_tail", "shell_list", "stat", "list", "glob"),
        *("grep", "read", "transfer_stat", "hash", "tree_manifest", "tree_get", "facts", "policy"),
    }
)


def _unknown(key: str, more: str = "") -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the brain went away before it answered{more}",
        remedy=f"ask again with the same key: {key}" if key else "look before you repeat",
        key=key,
    )


class _Broken(Exception):
    """Whoever takes or gives a call's streams can't go on."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _talk(
    sock: socket.socket,
    request: dict[str, Any],
    pieces: Pieces | None,
    feed: Iterator[bytes] | None,
    cancel: Callable[[str], None],
) -> tuple[bool, dict[str, Any]]:
    """One call on one connection."""
    import threading

    _send(sock, json_frame(request))
    failed: list[Exception] = []
    if feed is not None:
        threading.Thread(target=_feed, args=(sock, feed, failed), daemon=True).start()
    cancelled = False
    came = bytearray()  # an interrupt in the middle of a frame loses none of it
    while True:
        try:
            try:
                frame = _receive(sock, came)
            except (OSError, EOFError):
                if failed:
                    raise _Broken(failed[0]) from None
                raise
            if isinstance(frame, tuple):
                if pieces is not None:
                    _take(pieces, frame, request["key"], cancel)
                continue
        except KeyboardInterrupt:
            if cancelled or not request["key"]:
                raise
            cancelled = True
            cancel(request["key"])
            continue
        if "value" in frame:
            return frame["ok"] is True, frame["value"]
        _checked(frame)
        raise ProtocolViolation("the brain answered something else")


def _take(
    pieces: Pieces, frame: tuple[str, bytes], key: str, cancel: Callable[[str], None]
) -> None:
    try:
        pieces(*frame)
    except Exception as error:  # nobody reads what the call writes any more: it ends
        if key:
            cancel(key)
        raise _Broken(error) from error


def _feed(sock: socket.socket, feed: Iterator[bytes], failed: list[Exception]) -> None:
    """failed: told what the feed raised; the connection is cut then, its call with it."""
    with contextlib.suppress(OSError):
        while True:
            try:
                data = next(feed, None)
            except Exception as error:  # the thread that waits for the answer raises it
                failed.append(error)
                sock.shutdown(socket.SHUT_RDWR)
                return
            if data is None:
                break
            if data:
                _send(sock, data_frame("in", data))
        _send(sock, json_frame({"end": True}))


def _send(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)


def _receive(
    sock: socket.socket, came: bytearray | None = None
) -> dict[str, Any] | tuple[str, bytes]:
    """The next frame. came: what has arrived of it, and after it, kept between calls."""
    came = bytearray() if came is None else came
    size = HEADER
    while True:
        if len(came) >= size:
            size = HEADER + length(bytes(came[:HEADER]))
            if len(came) >= size:
                break
        data = sock.recv(max(1 << 16, min(size - len(came), 1 << 20)))
        if not data:
            raise EOFError("the brain went away")
        came += data
    kind = bytes(came[:1])
    with memoryview(came) as view:
        body = bytes(view[HEADER:size])
    del came[:size]
    return parse(kind, body)


def _checked(answer: dict[str, Any] | tuple[str, bytes]) -> dict[str, Any]:
    if isinstance(answer, tuple):
        raise ProtocolViolation("the brain answered something else")
    if answer.get("ok") is not True:
        raise from_json(answer)
    return {name: value for name, value in answer.items() if name != "ok"}

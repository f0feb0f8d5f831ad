"""What the plugin notes while a session runs: which model it uses, and that it was opened.

Two hooks, both silent towards the session: whatever goes wrong here is logged and nothing
else. Of a request only ids are looked at: session, model, provider, turn. A session that
was opened by an attempt shows itself once, at its first sign of life, with the nonce that
its opener handed down or by its descent from the started process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from typing import Any

from handoff.errors import HandoffError, StorageError, TimedOut
from handoff.sessions.environment import ATTEMPT, NONCE_FD, NONCE_INODE

from . import internals
from .runtime import Runtime

__all__ = ["HOOKS", "Observer"]

log = logging.getLogger("hermes-handoff")
HOOKS = ("on_session_start", "pre_api_request")
#: sessions whose last route is remembered, so that it is not looked up before each call
_REMEMBERED = 256


class Observer:
    """The hooks of one process. They may be called from any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[str, str, str]] = {}
        self._nonce = ""

    def on_session_start(self, **facts: Any) -> None:
        """A new session's first turn begins."""
        session = str(facts.get("session_id") or "")
        with self._lock, _quiet("on_session_start"):
            self._arrive(session)

    def pre_api_request(self, **facts: Any) -> None:
        """A model is about to be called."""
        session = str(facts.get("session_id") or "")
        model, provider = str(facts.get("model") or ""), str(facts.get("provider") or "")
        if not session:
            return
        with self._lock, _quiet("pre_api_request"):
            self._arrive(session)
            address = str(facts.get("base_url") or "")
            self._observe(session, model, provider, address, str(facts.get("turn_id") or ""))

    def _observe(self, session: str, model: str, provider: str, address: str, turn: str) -> None:
        if not model or not provider:
            return
        key, seen = (internals.home(), session), (model, provider, address)
        if self._known.get(key) == seen:
            return
        self._runtime.service().observe(session, model, internals.named(provider, address), turn)
        while len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = seen

    def _arrive(self, session: str) -> None:
        """If this process was started by an attempt: say which session came of it."""
        attempt = os.environ.get(ATTEMPT, "")
        if not attempt or not session:
            return
        self._nonce = self._nonce or _nonce()
        try:
            self._runtime.service().arrived(attempt, session, self._nonce)
        except (StorageError, TimedOut):
            raise  # once more at the next call
        except HandoffError as error:
            log.warning("attempt %s did not take this session: %s", attempt, error.code)
        # What this session starts is not what the attempt opened.
        for name in (ATTEMPT, NONCE_FD, NONCE_INODE):
            os.environ.pop(name, None)


def _nonce() -> str:
    """What the opener left in its pipe; "" if this process did not get that pipe.

    A number alone says nothing, for a process further down may have another file under it:
    the pipe's own identity has to fit too.
    """
    number, mark = os.environ.get(NONCE_FD, ""), os.environ.get(NONCE_INODE, "")
    if not number.isascii() or not number.isdigit():
        return ""
    fd = int(number)
    try:
        found = os.fstat(fd)
        if not stat.S_ISFIFO(found.st_mode) or f"{found.st_dev}:{found.st_ino}" != mark:
            return ""
        os.set_blocking(fd, False)
        text = os.read(fd, 256).decode("ascii", "replace")
        os.close(fd)
    except OSError:
        return ""
    return text


@contextlib.contextmanager
def _quiet(where: str) -> Any:
    """No failure of ours may reach the session: a hook that throws could block its tools."""
    try:
        yield
    except Exception as error:  # the boundary to the host
        code = error.code if isinstance(error, HandoffError) else type(error).__name__
        log.warning("%s: %s", where, code)

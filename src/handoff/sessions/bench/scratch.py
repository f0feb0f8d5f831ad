"""The folders that the suites play in: gone at the end, also at one by a signal, and whatever a
killed run has left is removed by the next one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from types import FrameType

from handoff.sessions import owner

__all__ = ["PREFIX", "cleared", "ended_by_signals", "folder"]

PREFIX = "handoff-bench-"
_NAME = re.compile(rf"{PREFIX}([0-9a-f]{{12}})-(\d+)-(\d+)-")
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def _here() -> str:
    """Which boot, and which namespace of processes: elsewhere a pid says nothing."""
    return hashlib.sha256(owner.boot_id().encode()).hexdigest()[:12]


@contextlib.contextmanager
def folder() -> Iterator[str]:
    """A new folder, removed at the end. Its name says which process it belongs to."""
    me = owner.me()
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{_here()}-{me.pid}-{me.started}-") as made:
        yield made


def cleared() -> list[str]:
    """Remove the folders of this user's runs that were killed; the paths. A folder whose
    process may live, or that names none, stays."""
    place, gone = tempfile.gettempdir(), list[str]()
    for name in os.listdir(place):
        found = _NAME.match(name)
        if found is None or found[1] != _here():
            continue
        path, me = os.path.join(place, name), owner.me()
        with contextlib.suppress(OSError):
            info = os.lstat(path)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
                continue
            whose = owner.Owner(int(found[2]), int(found[3]), me.boot, me.host)
            if owner.alive(whose) is False:
                shutil.rmtree(path)
                gone.append(path)
    return gone


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """While this lasts, SIGTERM and SIGHUP end the run as an error does, so that everything
    is put away. The exit code is the usual one of that signal."""

    def end(number: int, _frame: FrameType | None) -> None:
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)  # what is put away is put away once
        raise SystemExit(128 + number)

    before = {one: signal.signal(one, end) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)

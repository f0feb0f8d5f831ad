"""The files of a keeper: who it is, a folder for each command, and how all of them ended.

To make a folder or a file and to drop it later costs more than all else that is written of a
command, so an empty folder is kept for the next one, and the ends are lines of one file,
a JSON object each. The keeper alone writes; a line of a command whose folder has gone means
nothing. Standard library only.
"""

from __future__ import annotations

import fcntl
import json
import os

from handoff.process import facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["INFO", "NAME", "Ends", "Folders", "claim", "read_ends"]

INFO = "keeper.json"
NAME = "ends.jsonl"
SPARE = ".spare"
#: lines that mean nothing, before the file is written anew without them
STALE = 2000


def read_ends(folder: str) -> dict[str, dict[str, Any]]:
    """The states of those in a keeper's folder that have ended, by their names.

    Raises:
        OSError: they can't be read.
    """
    return {name: state for name, state in _lines(folder) if os.path.isdir(f"{folder}/{name}")}


def _lines(folder: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    found = []
    for line in lines[:-1]:
        try:
            state = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(state, dict) and isinstance(name := state.get("name"), str):
            found.append((name, state))
    return found


class Ends:
    """The writer, in the current folder.

    Raises:
        OSError: the file can't be read or written.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._count = 0
        #: those that have a line
        self.names: set[str] = set()
        self.keep(read_ends(".").values())  # and what was left half goes

    def add(self, state: dict[str, Any]) -> None:
        """Write one down. A disk that is full has no room for it: it is then in the keeper's
        memory alone."""
        try:
            data = json.dumps(state).encode() + b"\n"
            before = os.fstat(self._fd).st_size
            if os.write(self._fd, data) != len(data):
                os.ftruncate(self._fd, before)
                return
        except OSError:
            return
        self.names.add(state["name"])
        self._count += 1

    def stale(self, kept: int) -> bool:
        """Whether most of the lines mean nothing any more. kept: how many do."""
        return self._count > kept + STALE

    def keep(self, states: Iterable[dict[str, Any]]) -> None:
        """Write the file anew with these alone."""
        states = list(states)
        data = b"".join(json.dumps(state).encode() + b"\n" for state in states)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(NAME + ".new", flags | os.O_TRUNC, 0o600)
        try:
            while data:
                data = data[os.write(fd, data) :]
            os.replace(NAME + ".new", NAME)
        except OSError:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._count = fd, len(states)
        self.names = {state["name"] for state in states}


class Folders:
    """The commands' folders, in the current one. Nobody else makes any there."""

    def __init__(self) -> None:
        self._spare = os.path.isdir(SPARE) and not os.listdir(SPARE)

    def make(self, name: str) -> bool:
        """An empty folder, which says that this command starts now, and never again. False:
        there is one of that name. Raises OSError."""
        if os.path.lexists(name):
            return False
        if self._spare:
            self._spare = False
            os.rename(SPARE, name)
        else:
            os.mkdir(name, 0o700)
        return True

    def prepare(self) -> None:
        """Make the next command's, while nobody waits."""
        if not self._spare:
            try:
                os.mkdir(SPARE, 0o700)
            except OSError:  # then the next command says so
                return
            self._spare = True

    def drop(self, name: str) -> None:
        """Take a folder away, with what is in it; somebody may have done it before. Raises
        OSError."""
        try:
            for one in os.listdir(name):
                os.unlink(os.path.join(name, one))
            self.undo(name)
        except FileNotFoundError:
            pass

    def undo(self, name: str) -> None:
        """Take an empty folder away: nothing was started. No descriptor is needed for it, so
        that a start for which none is free leaves no name behind. Raises OSError."""
        if self._spare:
            os.rmdir(name)
        else:
            os.rename(name, SPARE)
            self._spare = True


def claim() -> int | None:
    """Become the folder's keeper. Returns the locked descriptor, None if there is one."""
    fd = os.open(INFO, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    me = facts.fact(os.getpid())
    assert me is not None
    info = {"pid": me.pid, "started": me.started, "boot": facts.boot_id(), "version": 1}
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(info).encode(), 0)
    return fd

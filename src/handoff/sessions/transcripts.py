"""The sessions of Claude Code, Codex and opencode, read only, as those of Hermes are.

Each of them keeps its sessions in files of its own (:mod:`.transcripts_claude`,
:mod:`.transcripts_codex`, :mod:`.transcripts_opencode`); nothing of them is ever written. A
session is found by its exact id or not at all. What a host put into the mouth of the user (its
reminders, the project's rules, summaries) has the role ``system``: it is no word of the
user. A session that is being written meanwhile is read as far as it is whole.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from handoff.errors import NotFound, StorageError
from handoff.sessions.host_store import Message, Opener, Session, SessionStore

__all__ = ["KINDS", "Files", "Found", "Line", "calls_of", "ms", "opener"]

#: the agents whose sessions can be read
KINDS = ("claude", "codex", "opencode")
#: bytes of one session's file, of one line in it
FILE_LIMIT, LINE_LIMIT = 512 * 1024**2, 32 * 1024**2
#: characters of a call's arguments that are kept
ARGUMENTS = 4096
#: files that are looked at by one question
FILES = 20_000
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def opener(kind: str, env: Mapping[str, str]) -> Opener | None:
    """How to look at an agent's sessions as that environment finds them; None for others.

    The opener raises NotFound (it keeps none there) and StorageError (they can't be read).
    """
    if kind not in KINDS:
        return None

    @contextmanager
    def opened() -> Iterator[SessionStore]:
        module = importlib.import_module(f".transcripts_{kind}", __package__)
        with module.opened(env) as store:
            yield store

    return opened


class Line(NamedTuple):
    """One line of a file. ``number``: from 1. ``value``: its object; empty where it can't be
    read, and then ``fault`` says why."""

    number: int
    value: Mapping[str, Any]
    fault: str = ""


class Found(NamedTuple):
    """A session as its file holds it."""

    session: Session
    messages: list[Message]


class Files(ABC):
    """A store that is a file of JSON lines for each session. Files are read once."""

    def __init__(self, what: str, root: str) -> None:
        if not os.path.isdir(root):
            raise NotFound(f"{what} keeps no sessions in {root}", remedy=f"ls {root}", folder=root)
        self._what, self.root = what, root
        self._read: dict[str, Found] = {}

    @abstractmethod
    def every(self) -> Iterator[tuple[str, str]]:
        """(session id, path) of all files."""

    @abstractmethod
    def parse(self, session_id: str, lines: Iterable[Line]) -> Found | None:
        """The session out of its lines; None if it is another one's file."""

    # -- a SessionStore ----------------------------------------------------------------

    def session(self, session_id: str) -> Session | None:
        """A session by its exact id."""
        found = self._found(session_id)
        return found.session if found else None

    def family(self, session_id: str) -> list[str]:
        """The session alone: it keeps all of its messages, also those that were compacted."""
        return [session_id]

    def messages(
        self, sessions: list[str], *, role: str = "", last: int = 0, message_id: str = ""
    ) -> Iterator[Message]:
        """The messages of these sessions in their order. ``last``: only so many."""
        picked = [
            message
            for one in reversed(sessions)
            if (found := self._found(one)) is not None
            for message in found.messages
            if (not role or message.role == role) and message_id in ("", message.id)
        ]
        yield from picked[-last:] if last else picked

    def last_message(self, session_id: str) -> str:
        """The id of its last message, or ""."""
        found = self._found(session_id)
        return found.messages[-1].id if found and found.messages else ""

    def idle_since(self, before: int, limit: int) -> list[Session]:
        """The sessions whose file was last written before that time, youngest first."""
        return self._young(limit, lambda changed, _: 0 < changed < before)

    def started_since(self, since: int, limit: int) -> list[Session]:
        """The sessions that were started at that time or later, youngest first."""
        return self._young(
            limit,
            lambda changed, one: changed >= since and (one is None or one.started >= since),
        )

    def _young(self, limit: int, wanted: Any) -> list[Session]:
        files: list[tuple[int, str]] = []
        for session_id, path in self.every():
            try:
                changed = os.stat(path).st_mtime_ns // 1_000_000
            except FileNotFoundError:
                continue
            if wanted(changed, None):
                files.append((changed, session_id))
        picked: list[Session] = []
        for changed, session_id in sorted(files, reverse=True):
            if len(picked) >= limit:
                break
            one = self.session(session_id)
            if one is not None and wanted(changed, one):
                picked.append(one)
        return picked

    # -- files -------------------------------------------------------------------------

    def _found(self, session_id: str) -> Found | None:
        if session_id not in self._read:
            # An id is a file's name only if it can be nothing else.
            if _ID.match(session_id) is None:
                return None
            paths = [path for one, path in self.every() if one == session_id]
            made = [
                found
                for path in paths
                if (found := self.parse(session_id, self._lines(path))) is not None
            ]
            if len(made) > 1:
                raise StorageError(
                    f"{self._what} has {len(made)} sessions {session_id}",
                    remedy=f"ls {self.root}",
                    paths=paths,
                )
            if not made:
                return None
            self._read[session_id] = made[0]
        return self._read[session_id]

    def _lines(self, path: str) -> Iterator[Line]:
        try:
            with open(path, "rb", opener=_no_link) as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise self._unreadable(path, "it is no plain file")
                if found.st_size > FILE_LIMIT:
                    raise self._unreadable(path, f"it has more than {FILE_LIMIT} bytes")
                number = 0
                while data := file.readline(LINE_LIMIT + 1):
                    number += 1
                    if len(data) > LINE_LIMIT:
                        while data and not data.endswith(b"\n"):
                            data = file.readline(LINE_LIMIT + 1)
                        yield Line(number, {}, f"line {number} has over {LINE_LIMIT} bytes")
                    elif data.strip():
                        yield from _line(number, data)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unreadable(path, error.strerror) from error

    def _unreadable(self, path: str, why: str | None) -> StorageError:
        return StorageError(
            f"the session {path} can't be read: {why}", remedy=f"ls -l {path}", path=path
        )

    def walk(self, top: str, depth: int) -> Iterator[os.DirEntry[str]]:
        """The files below a folder, links not followed, at most :data:`FILES`."""
        seen = 0
        waiting = [(top, depth)]
        while waiting:
            folder, left = waiting.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise self._unreadable(folder, error.strerror) from error
            for entry in entries:
                seen += 1
                if seen > FILES:
                    raise self._unreadable(top, f"there are more than {FILES} files")
                if entry.is_dir(follow_symlinks=False):
                    if left:
                        waiting.append((entry.path, left - 1))
                elif entry.name.endswith(".jsonl"):
                    yield entry


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _line(number: int, data: bytes) -> Iterator[Line]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        if data.endswith(b"\n"):  # else it is just being written
            yield Line(number, {}, f"line {number} is no JSON")
        return
    if isinstance(value, dict):
        yield Line(number, value)
    else:
        yield Line(number, {}, f"line {number} is no object")


def unread(session_id: str, line: Line) -> Message:
    """What stands for a line that could not be read: it is told, and it is nobody's word."""
    return Message(f"line-{line.number}", session_id, "system", f"[not read: {line.fault}]", 0)


def calls_of(calls: Iterable[tuple[str, object]]) -> str:
    """Called tools as a message keeps them: names, and the beginning of the arguments."""
    listed = []
    for name, given in calls:
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        listed.append({"name": name, "arguments": text[:ARGUMENTS]})
    return json.dumps(listed, ensure_ascii=False) if listed else ""


def ms(value: object) -> int:
    """A time in ISO 8601 in milliseconds; 0 for none."""
    if not isinstance(value, str):
        return 0
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return 0
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(int(at.timestamp() * 1000), 0)

"""Which session of Claude Code makes a call.

Claude Code starts a server once and names the session of that moment in its environment;
after ``/clear`` the same server serves another session. With each call it says the id of the
tool use, and by then it has written that tool use to the session's transcript
(``<config>/projects/<folder>/<session>.jsonl``; a subagent's lies in ``<session>/subagents/``).
So the transcript that holds the id tells the session; the environment alone does not.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping

__all__ = ["session_of"]

#: seconds to wait for the transcript; it was there after 0.02 when this was measured
PATIENCE = 2.0
_PAUSE = 0.02
#: seconds: a transcript that has rested longer is not of a session that calls just now
_RECENT = 300.0
#: bytes at a transcript's end that are searched, and how many transcripts are looked at
_TAIL = 4 * 1024 * 1024
_MOST = 50
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}\Z")


def session_of(tool_use: object, started_for: str, env: Mapping[str, str]) -> str:
    """The session that made the call with that tool use; "" if it can't be told.

    ``started_for``: the session in the environment, whose transcript is looked at first.
    """
    if not isinstance(tool_use, str) or not _ID.match(tool_use):
        return ""
    needle = b'"' + tool_use.encode() + b'"'
    until = time.monotonic() + PATIENCE
    while True:
        found = {session for session, path in _recent(env, started_for) if _holds(path, needle)}
        if found:
            return found.pop() if len(found) == 1 else ""
        if time.monotonic() >= until:
            return ""
        time.sleep(_PAUSE)


def _recent(env: Mapping[str, str], first: str) -> Iterator[tuple[str, str]]:
    """The transcripts that were written to lately: (session, path), newest first."""
    home = env.get("CLAUDE_CONFIG_DIR") or os.path.join(env.get("HOME", ""), ".claude")
    if not os.path.isabs(home):  # a project's own files say nothing
        return iter(())
    found: list[tuple[bool, float, str, str]] = []
    for folder in _entries(os.path.join(home, "projects")):
        for entry in _entries(folder.path):
            if entry.name.endswith(".jsonl"):
                _note(found, entry, entry.name.removesuffix(".jsonl"), first)
                continue
            for inner in _entries(os.path.join(entry.path, "subagents")):
                if inner.name.endswith(".jsonl"):
                    _note(found, inner, entry.name, first)
    found.sort(reverse=True)
    return iter([(session, path) for _, _, session, path in found[:_MOST]])


def _note(
    found: list[tuple[bool, float, str, str]], entry: os.DirEntry[str], session: str, first: str
) -> None:
    try:
        written = entry.stat().st_mtime
    except OSError:
        return
    if time.time() - written < _RECENT and _ID.match(session):
        found.append((session == first, written, session, entry.path))


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return list(found)
    except OSError:
        return []


def _holds(path: str, needle: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return needle in file.read(_TAIL)
    except OSError:
        return False

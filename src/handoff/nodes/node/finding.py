"""Finding names and lines below a folder, for a brain.

Patterns of names are matched in time that grows with the name; what an expression takes
for a line nobody can say beforehand, so each search of lines has a process of its own
(:mod:`handoff.nodes.node.searcher`), a time for each file and one for the whole.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from handoff.errors import BadRequest, Failed, HandoffError, LaunchFailed, TimedOut
from handoff.nodes.node import searcher
from handoff.nodes.node.files import Entry, Files
from handoff.nodes.node.globs import path_expression
from handoff.nodes.node.looking import info
from handoff.wire.node.calls import FileInfo, Glob, Grep, Listing, Match, Matches

__all__ = ["Finding"]

#: bytes of a file that grep looks into
GREP_LIMIT = 64 << 20
#: bytes of lines in one answer; what is beyond is ``more``
ANSWER_LIMIT = 1 << 20
#: names that one walk visits
WALK_LIMIT = 500_000
#: seconds that an expression may take over one file, and a search over all
FILE_S = 10.0
SEARCH_S = 120.0
#: searches at once; others wait for their turn
AT_ONCE = 4
#: bytes of memory of a search, whatever its expression
MEMORY = 1 << 30


class Finding:
    """The searches of a node. files: what may be looked at, under its policy."""

    def __init__(self, files: Files, *, file_s: float = FILE_S, search_s: float = SEARCH_S) -> None:
        self._files = files
        self._file_s = file_s
        self._search_s = search_s
        self._threads = concurrent.futures.ThreadPoolExecutor(AT_ONCE, "search")
        self._lock = threading.Lock()
        self._searches: set[_Search] = set()
        self._closed = False

    def close(self) -> None:
        """End every search."""
        with self._lock:
            self._closed = True
            for search in self._searches:
                search.kill()
        self._threads.shutdown(wait=True)

    def glob(self, call: Glob) -> Listing:
        """Names below a folder that fit a pattern."""
        found: list[FileInfo] = []
        for relative, entry in self._walk(call.path, call.pattern):
            if len(found) >= max(1, call.limit):
                return Listing(tuple(found), found[-1].path)
            found.append(info(entry, relative))
        return Listing(tuple(found))

    async def grep(self, call: Grep) -> Matches:
        """Lines below a folder that fit an expression.

        Raises:
            BadRequest: it is no expression, or needs too much memory.
            TimedOut: it took too long over one file, or over all.
            HandoffError: as :class:`Files`.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._grep, call)

    def _grep(self, call: Grep) -> Matches:
        if self._closed:  # it waited for its turn meanwhile
            raise _ended()
        until = time.monotonic() + self._search_s
        search = _Search(self._file_s, int(self._search_s) + 1)
        with self._lock:
            if self._closed:
                search.kill()
            self._searches.add(search)
        try:
            search.compile(call)
            return self._matches(call, search, until)
        finally:
            with self._lock:
                self._searches.discard(search)
            search.close()

    def _matches(self, call: Grep, search: _Search, until: float) -> Matches:
        matches: list[Match] = []
        skipped = size = 0
        limit = max(1, call.limit)
        for relative, entry in self._walk(call.path, call.files, single=True):
            if time.monotonic() > until:
                raise TimedOut(
                    f"the search took more than {self._search_s:g} s",
                    remedy="search fewer files: 'path' and 'files' name them",
                    found=len(matches),
                )
            if entry.type != "file":
                continue
            if entry.size > GREP_LIMIT:
                skipped += 1
                continue
            path = os.path.join(call.path, relative) if relative else call.path
            with contextlib.ExitStack() as stack:
                try:
                    file = stack.enter_context(self._files.reading(path))
                except HandoffError:
                    skipped += 1
                    continue
                told = search.look(file.fd, limit - len(matches), path)
            skipped += told.get("skipped") is True
            for number, line in told.get("hits", ()):
                text = base64.b64decode(line)
                size += len(text)
                if size > ANSWER_LIMIT:
                    return Matches(tuple(matches), more=True, skipped=skipped)
                matches.append(Match(relative or call.path, number, text))
            if told.get("more"):
                return Matches(tuple(matches), more=True, skipped=skipped)
        return Matches(tuple(matches), skipped=skipped)

    def _walk(self, top: str, pattern: str, *, single: bool = False) -> Iterator[tuple[str, Entry]]:
        """Names below a folder that fit, in order; links are not followed.

        single: a file as the top is itself, under the name "".
        """
        start = self._files.stat(top)
        if single and start.type == "file":
            yield "", start
            return
        try:
            exact = re.compile(path_expression(pattern), re.DOTALL)
        except re.error as error:
            raise BadRequest(f"'{pattern}' is no pattern: {error}", field="pattern") from error
        left = [""]
        visited = 0
        while left:
            relative = left.pop()
            try:
                page = self._files.listing(os.path.join(top, relative), WALK_LIMIT)
            except HandoffError:
                if not relative:
                    raise
                continue
            below = []
            for one in page.entries:
                visited += 1
                if visited > WALK_LIMIT:
                    return
                path = f"{relative}/{one.name}" if relative else one.name
                if exact.fullmatch("/" + path):
                    yield path, one
                if one.type == "dir":
                    below.append(path)
            left += reversed(below)


class _Search:
    """The process of one search."""

    def __init__(self, file_s: float, cpu_s: int) -> None:
        self._file_s = file_s
        self._cpu_s = cpu_s
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(pathlib.Path(searcher.__file__))],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            self._sock.close()
            raise LaunchFailed(
                f"the search can't be started: {error}", remedy="hermes-node doctor"
            ) from error
        finally:
            theirs.close()

    def compile(self, call: Grep) -> None:
        """Make the expression. Raises BadRequest, TimedOut."""
        text = os.fsencode(call.pattern)
        pattern = re.escape(text) if call.fixed else text
        self._ask(
            {
                "pattern": base64.b64encode(pattern).decode(),
                "ignore_case": call.ignore_case,
                "cpu_s": self._cpu_s,
                "memory": MEMORY,
            },
            None,
            "itself",
        )

    def look(self, fd: int, room: int, path: str) -> dict[str, Any]:
        """What fits in a file. Raises BadRequest, TimedOut, Failed."""
        return self._ask({"room": room, "bytes": GREP_LIMIT}, fd, path)

    def _ask(self, order: dict[str, Any], fd: int | None, about: str) -> dict[str, Any]:
        self._sock.settimeout(self._file_s)
        line = json.dumps(order).encode() + b"\n"
        until = time.monotonic() + self._file_s
        came = bytearray()
        try:
            if fd is None:
                self._sock.sendall(line)
            else:
                socket.send_fds(self._sock, [line], [fd])
            while not came.endswith(b"\n"):
                self._sock.settimeout(max(0.001, until - time.monotonic()))
                data = self._sock.recv(1 << 16)
                if not data:
                    raise ConnectionError
                came += data
        except TimeoutError as error:
            raise TimedOut(
                f"the expression took more than {self._file_s:g} s over {about}",
                remedy="use a simpler expression (no repeats within repeats), or 'fixed'",
            ) from error
        except OSError as error:
            raise _ended() from error
        told = json.loads(came)
        if "bad" in told:
            raise BadRequest(f"'pattern' is no expression: {told['bad']}", field="pattern")
        return told if isinstance(told, dict) else {}

    def kill(self) -> None:
        """End it, whatever it does."""
        self._child.kill()

    def close(self) -> None:
        """End it, and collect it."""
        self._sock.close()
        self._child.kill()
        self._child.wait()


def _ended() -> Failed:
    return Failed("the search was ended", remedy="ask again")

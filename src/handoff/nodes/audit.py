"""What was done, by whom, and what the policy said: one schema for both ends of a link.

One JSON object a line. Every row holds the hash of the row before it, across files, so that
a change, a gap or an insertion shows; beside the files ``audit.head`` holds the last
number and hash, so that a cut end shows as well. Whoever may write the files and the head
can make up a new chain: it is proof against accident and against others, not against the
machine's owner. Standard library only.

Fields of a row, all but the first five optional: ``n`` (counts from 1, never starts anew),
``at`` (UTC, milliseconds), ``side`` (``brain`` or ``node``), ``event`` (``call``, ``result``,
``pair``, ``revoke``, ``link``, …), ``prev``; ``request_id`` (the call's key, the same on both
sides), ``node``, ``brain``, ``actor``, ``op``, ``target``, ``verdict``, ``rule``, ``status``,
``exit_code``, ``code``, ``duration_ms``, ``bytes``; last ``hash``.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from handoff.clock import iso
from handoff.errors import StorageError, StorageFull
from handoff.nodes.chain import (
    HEAD,
    NAME,
    START,
    Finding,
    Report,
    digest,
    dumps,
    first_line,
    last_line,
    older,
    rows,
    verify,
    whole_end,
)

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["Audit", "Finding", "Report", "rows", "verify"]

#: bytes of one file, and how many are kept
FILE_BYTES = 20 << 20
FILES = 20
#: rows older than this go with their file
KEEP_MS = 365 * 24 * 3600 * 1000
#: characters of one text in a row
TEXT = 2000
#: texts that are remembered with what redaction makes of them, and the longest of them
KNOWN = 256
KNOWN_TEXT = 256
#: a key that this package has made up: it holds no secret
_KEY = re.compile(r"call-[0-9a-f]{24}|old-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Entry(NamedTuple):
    """A row that is to be written. ``at``: milliseconds since 1970."""

    at: int
    event: str
    fields: Mapping[str, Any]


class _Last(NamedTuple):
    """What this process has written last: nothing has changed while the head says the same.
    ``size``: of the file; ``first``: the oldest row that is kept."""

    head: bytes
    number: int
    mark: str
    size: int
    first: int


class Audit:
    """The writer. Several processes may write to one folder.

    redact: what takes secrets out of a text. A row that can't be written raises, so that
    what can't be audited is not done.

    Raises (all methods but ``later``):
        StorageFull, StorageError.
    """

    def __init__(
        self,
        folder: str,
        side: str,
        redact: Callable[[str], str],
        clock: Clock,
        *,
        file_bytes: int = FILE_BYTES,
        files: int = FILES,
        keep_ms: int = KEEP_MS,
    ) -> None:
        self._folder = folder
        self._path = os.path.join(folder, NAME)
        self._side = side
        self._redact = redact
        self._known = functools.lru_cache(KNOWN)(redact)
        self._clock = clock
        self._file_bytes = file_bytes
        self._files = files
        self._keep_ms = keep_ms
        self._waiting: list[_Entry] = []
        self._failed = False
        self._seen: _Last | None = None
        self._fd = -1
        self._ino = -1
        with self._typed():
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._lock = os.open(
                os.path.join(folder, HEAD), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )

    def row(self, event: str, **fields: Any) -> int:
        """Write one row, after those that wait. Texts are redacted and shortened. Returns its
        number."""
        entry = _Entry(self._clock.now_ms(), event, fields)
        number = self._write([*self._waiting, entry])
        self._waiting.clear()
        self._failed = False
        return number

    def later(self, event: str, **fields: Any) -> None:
        """Note a row with this moment's time, for the next :meth:`flush` or :meth:`row`: for
        what changes nothing, and is answered before it is written down."""
        self._waiting.append(_Entry(self._clock.now_ms(), event, fields))

    def flush(self) -> None:
        """Write what waits. What can't be written goes on waiting."""
        if self._waiting:
            self._failed = True
            self._write(self._waiting)
            self._failed = False
            self._waiting.clear()

    def ready(self) -> None:
        """Call this before anything that will be noted by :meth:`later`: it raises as long as
        what was noted before can't be written."""
        if self._failed:
            self.flush()

    def sync(self) -> None:
        """Bring what was written to the disk."""
        with self._typed():
            if self._fd >= 0:
                os.fsync(self._fd)

    def close(self) -> None:
        """Write what waits, and let go of the files. Raises nothing: what can't be written
        then is lost, and it was refused to go on without it."""
        with contextlib.suppress(StorageError, StorageFull):
            self.flush()
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def _write(self, entries: Sequence[_Entry]) -> int:
        """Append rows, all or none. Returns the last one's number."""
        with self._typed():
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                last = self._last()
                number, mark = last.number, last.mark
                lines = []
                for entry in entries:
                    number += 1
                    line, mark = self._line(number, mark, entry)
                    lines.append(line)
                data = "".join(lines).encode()
                first, size = last.first or last.number + 1, last.size
                if size and size + len(data) > self._file_bytes:
                    self._rotate()
                    first, size = 0, 0
                self._append(data, size)
                self._note(number, mark, size + len(data), first)
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        return number

    def _line(self, number: int, prev: str, entry: _Entry) -> tuple[str, str]:
        body = {
            "n": number,
            "at": iso(entry.at),
            "side": self._side,
            "event": entry.event,
            "prev": prev,
        }
        for key, value in entry.fields.items():
            body[key] = self._clean(value)
        text = dumps(body)
        mark = digest(text)
        return f'{text[:-1]},"hash":"{mark}"}}\n', mark

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            if not value.isascii():
                value = value.encode("utf-8", "backslashreplace").decode()
            if len(value) <= KNOWN_TEXT:
                return value if _KEY.fullmatch(value) else self._known(value)
            text = self._redact(value)
            return text if len(text) <= TEXT else text[: TEXT - 1] + "…"
        if isinstance(value, Mapping):
            return {str(key)[:100]: self._clean(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._clean(one) for one in value]
        return value

    def _last(self) -> _Last:
        """The last row. Only where others have written, or a writer was killed, the files say
        which it is; what was left half is taken away."""
        noted = os.pread(self._lock, 200, 0)
        size = self._open()
        seen = self._seen
        if seen is not None and (seen.head, seen.size) == (noted, size):
            return seen
        end = whole_end(self._fd, size)
        if end != size:
            os.ftruncate(self._fd, end)
        number, mark = 0, START
        if end:
            found = json.loads(last_line(self._fd, end))
            number, mark = int(found["n"]), str(found["hash"])
        elif noted.strip():
            head = json.loads(noted.rstrip(b"\0\n "))
            number, mark = int(head["n"]), str(head["hash"])
        return _Last(noted, number, mark, end, self._first() if end else 0)

    def _open(self) -> int:
        """Have the file open that has the name. Returns its size."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            found = None
        if self._fd >= 0 and found is not None and found.st_ino == self._ino:
            return found.st_size
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        found = os.fstat(self._fd)
        self._ino = found.st_ino
        return found.st_size

    def _append(self, data: bytes, before: int) -> None:
        done = os.write(self._fd, data)
        if done != len(data):  # a full disk: a half row is worse than none
            os.ftruncate(self._fd, before)
            raise StorageFull(f"no space left for {self._path}", remedy=f"df -h {self._folder}")

    def _rotate(self) -> None:
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        first = json.loads(first_line(self._path))["n"]
        os.rename(self._path, os.path.join(self._folder, f"audit-{first:012d}.jsonl"))
        old = older(self._folder)
        limit = self._clock.now_ms() - self._keep_ms
        for name in old[: max(0, len(old) - self._files + 1)]:
            os.unlink(os.path.join(self._folder, name))
        for name in older(self._folder):
            full = os.path.join(self._folder, name)
            if os.stat(full).st_mtime_ns // 1_000_000 < limit:
                os.unlink(full)
        self._open()

    def _note(self, number: int, mark: str, size: int, first: int) -> None:
        first = first or self._first()
        text = f'{{"n":{number},"hash":"{mark}","first":{first}}}\n'
        head = text.ljust(160).encode()
        os.pwrite(self._lock, head, 0)
        self._seen = _Last(head, number, mark, size, first)

    def _first(self) -> int:
        """The number of the oldest row that is kept."""
        old = older(self._folder)
        if old:
            return int(old[0][len("audit-") : -len(".jsonl")])
        return int(json.loads(first_line(self._path))["n"])

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        import errno

        try:
            yield
        except OSError as error:
            cls = StorageFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
            raise cls(
                f"the audit can't be written: {error.strerror}",
                remedy=f"df -h -i {self._folder}",
                path=self._folder,
            ) from error
        except (ValueError, KeyError) as error:
            raise StorageError(
                f"the audit in {self._folder} is damaged: {error}",
                remedy="move the folder aside, and look into it",
                path=self._folder,
            ) from error

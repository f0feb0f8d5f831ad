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
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from handoff.errors import StorageError, StorageFull

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
NAME = "audit.jsonl"
HEAD = "audit.head"
START = "0" * 64


class Finding(NamedTuple):
    """``file`` and ``line`` (from 1) of what is wrong, and what."""

    file: str
    line: int
    what: str


class Report(NamedTuple):
    """``rows``: that were looked at; ``first``: the number of the first, more than 1 if older
    files were dropped by age or size; ``findings``: empty if the chain holds."""

    rows: int
    first: int
    findings: list[Finding]


class Audit:
    """The writer. Several processes may write to one folder.

    redact: what takes secrets out of a text. A row that can't be written raises, so that
    what can't be audited is not done.

    Raises (all methods):
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
        self._side = side
        self._redact = redact
        self._clock = clock
        self._file_bytes = file_bytes
        self._files = files
        self._keep_ms = keep_ms
        with self._typed():
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._lock = os.open(
                os.path.join(folder, HEAD), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            self._fd = -1
            self._ino = -1

    def row(self, event: str, **fields: Any) -> int:
        """Write one row. Texts are redacted and shortened. Returns its number."""
        with self._typed():
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                number, prev = self._last()
                body = {
                    "n": number + 1,
                    "at": _stamp(self._clock.now_ms()),
                    "side": self._side,
                    "event": event,
                    "prev": prev,
                    **{key: self._clean(value) for key, value in fields.items()},
                }
                text = _dumps(body)
                mark = _digest(text)
                line = text[:-1] + f',"hash":"{mark}"}}\n'
                self._append(line.encode())
                self._note(number + 1, mark)
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        return number + 1

    def sync(self) -> None:
        """Bring what was written to the disk."""
        with self._typed():
            if self._fd >= 0:
                os.fsync(self._fd)

    def close(self) -> None:
        """Let go of the files."""
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            text = self._redact(value.encode("utf-8", "backslashreplace").decode())
            return text if len(text) <= TEXT else text[: TEXT - 1] + "…"
        if isinstance(value, Mapping):
            return {str(key)[:100]: self._clean(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._clean(one) for one in value]
        return value

    def _last(self) -> tuple[int, str]:
        """The last row's number and hash; what a killed writer left half is taken away."""
        noted = os.pread(self._lock, 200, 0)
        path = os.path.join(self._folder, NAME)
        size = self._open(path)
        end = _whole_end(self._fd, size)
        if end != size:
            os.ftruncate(self._fd, end)
        if end:
            found = json.loads(_last_line(self._fd, end))
            return int(found["n"]), str(found["hash"])
        if noted.strip():
            head = json.loads(noted.rstrip(b"\0\n "))
            return int(head["n"]), str(head["hash"])
        return 0, START

    def _open(self, path: str) -> int:
        if self._fd >= 0:
            try:
                found = os.stat(path)
            except FileNotFoundError:
                found = None
            if found is None or found.st_ino != self._ino:
                os.close(self._fd)
                self._fd = -1
        if self._fd < 0:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._ino = os.fstat(self._fd).st_ino
        return os.fstat(self._fd).st_size

    def _append(self, line: bytes) -> None:
        before = os.fstat(self._fd).st_size
        if before and before + len(line) > self._file_bytes:
            self._rotate()
            before = 0
        done = os.write(self._fd, line)
        if done != len(line):  # a full disk: a half row is worse than none
            os.ftruncate(self._fd, before)
            raise StorageFull(
                f"no space left for {self._folder}/{NAME}", remedy=f"df -h {self._folder}"
            )

    def _rotate(self) -> None:
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        path = os.path.join(self._folder, NAME)
        first = json.loads(_first_line(path))["n"]
        os.rename(path, os.path.join(self._folder, f"audit-{first:012d}.jsonl"))
        old = _older(self._folder)
        limit = self._clock.now_ms() - self._keep_ms
        for name in old[: max(0, len(old) - self._files + 1)]:
            os.unlink(os.path.join(self._folder, name))
        for name in _older(self._folder):
            full = os.path.join(self._folder, name)
            if os.stat(full).st_mtime_ns // 1_000_000 < limit:
                os.unlink(full)
        self._open(path)

    def _note(self, number: int, mark: str) -> None:
        old = _older(self._folder)
        first = int(old[0][len("audit-") : -len(".jsonl")]) if old else self._first(number)
        head = _dumps({"n": number, "hash": mark, "first": first}) + "\n"
        os.pwrite(self._lock, head.ljust(160).encode(), 0)

    def _first(self, number: int) -> int:
        """The number of the first row of the only file."""
        path = os.path.join(self._folder, NAME)
        return int(json.loads(_first_line(path))["n"]) if number > 1 else 1

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


def rows(folder: str) -> Iterator[dict[str, Any]]:
    """Every row, the oldest first; a line that is none is left out.

    Raises:
        StorageError: a file can't be read.
    """
    for _, _, line in _lines(folder):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found


def verify(folder: str) -> Report:
    """Whether the chain holds, from the oldest file that is kept to the head.

    Raises:
        StorageError: a file can't be read.
    """
    findings: list[Finding] = []
    count, first, number = 0, 0, 0
    prev = ""
    for name, at, line in _lines(folder):
        count += 1
        found, why = _row(line)
        if found is None:
            findings.append(Finding(name, at, why))
            prev = ""
            continue
        if first == 0:
            first = found["n"]
            if first == 1 and found["prev"] != START:
                findings.append(Finding(name, at, "the first row does not start the chain"))
        elif prev and found["prev"] != prev:
            findings.append(Finding(name, at, "a row before this one was changed or removed"))
        if number and found["n"] != number + 1:
            findings.append(Finding(name, at, f"row {number + 1} is missing"))
        number, prev = found["n"], found["hash"]
    findings += _head(folder, first, number, prev)
    return Report(count, first, findings)


def _row(line: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        found = json.loads(line)
        mark = found.pop("hash")
        text = _dumps(found)
        whole = text[:-1] + f',"hash":"{mark}"}}'
        if whole.encode() != line or _digest(text) != mark:
            return None, "this row was changed"
        return {**found, "hash": mark, "n": int(found["n"]), "prev": str(found["prev"])}, ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, "this is no row"


def _head(folder: str, first: int, number: int, mark: str) -> list[Finding]:
    try:
        with open(os.path.join(folder, HEAD), "rb") as file:
            head = json.loads(file.read(400).rstrip(b"\0\n ") or b"{}")
        noted, wanted = int(head.get("n", 0)), str(head.get("hash", ""))
        start = int(head.get("first", first))
    except FileNotFoundError:
        return [Finding(HEAD, 0, "the head is missing")] if number else []
    except (ValueError, AttributeError, TypeError):
        return [Finding(HEAD, 1, "the head is damaged")]
    if start != first and first:
        return [Finding(HEAD, 1, f"the rows from {start} to {first - 1} are missing")]
    if noted > number:
        return [Finding(HEAD, 1, f"the rows after {number} are missing, up to {noted}")]
    if noted == number and number and mark and wanted != mark:
        return [Finding(HEAD, 1, "the last row is not the one that was written")]
    return []


def _lines(folder: str) -> Iterator[tuple[str, int, bytes]]:
    for name in [*_older(folder), NAME]:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                for at, line in enumerate(file, 1):
                    if line.endswith(b"\n"):  # what is half is being written
                        yield name, at, line[:-1]
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(
                f"{folder}/{name}: {error.strerror}", remedy=f"ls -l {folder}"
            ) from error


def _older(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(one for one in names if one.startswith("audit-") and one.endswith(".jsonl"))


def _whole_end(fd: int, size: int) -> int:
    """Where the last whole line ends."""
    end = size
    while end:
        start = max(0, end - 65536)
        at = os.pread(fd, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def _last_line(fd: int, end: int) -> bytes:
    """The line that ends at ``end``, without its line end."""
    data, start = b"", end - 1
    while start:
        step = min(65536, start)
        data = os.pread(fd, step, start - step) + data
        start -= step
        at = data.rfind(b"\n")
        if at >= 0:
            return data[at + 1 :]
    return data


def _first_line(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.readline()


def _dumps(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _stamp(ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"

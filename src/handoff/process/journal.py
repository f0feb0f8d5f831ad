"""The journal of one executor run: what it wrote, what it was given, how it ended.

A journal is a row of files ``journal.<start>`` in the run's folder; ``<start>`` is the
logical offset of the file's first byte in twenty digits. Offsets only grow, whatever is
deleted below them. A record is::

    magic b"HR" | kind u8 | 0 | length u32 | at_ms u64 | crc32 u32 | data

big-endian, the checksum over everything before and after it. Records never span files.
The writer is the shim, the only one; readers need nothing from it but the files.

A record that was cut by a crash can only be the last one: a reader stops before it and
says how many bytes it left (:attr:`Reader.torn`).
"""

from __future__ import annotations

import os
from binascii import crc32
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    #: offset, end, kind, at_ms, data
    Raw = tuple[int, int, str, int, bytes]

KINDS = ("started", "stdout", "stderr", "input", "pressure", "exited", "swept")
MAGIC = b"HR"
#: the longest data of one record, in bytes; the shim writes at most 64 KiB
MAX_DATA = 1 << 20
#: a file is closed and a new one begun when it has grown to this many bytes
SEGMENT_BYTES = 8 << 20
#: how much a reader takes from the disk at a time
READ_BYTES = 256 << 10

_HEAD = Struct(">2sBxIQ")
_CRC = Struct(">I")
HEADER_BYTES = _HEAD.size + _CRC.size
_CODES = {kind: number for number, kind in enumerate(KINDS, 1)}


class Damaged(Exception):
    """Bytes below the committed end are no record, or offset is no record's start."""


def encode(kind: str, at_ms: int, data: bytes) -> bytes:
    """One record as bytes. data: at most :data:`MAX_DATA` bytes."""
    if len(data) > MAX_DATA:
        raise ValueError(f"a record holds at most {MAX_DATA} bytes, not {len(data)}")
    head = _HEAD.pack(MAGIC, _CODES[kind], len(data), at_ms)
    crc: bytes = _CRC.pack(crc32(data, crc32(head)))
    return b"".join((head, crc, data))


def decode(buffer: bytes, at: int) -> tuple[int, str, int, bytes] | int:
    """The record at position ``at``: (its size, kind, at_ms, data).

    Returns how many bytes are needed from ``at`` on if the buffer is too short.

    Raises:
        Damaged: no record begins there.
    """
    if len(buffer) - at < HEADER_BYTES:
        if not MAGIC.startswith(buffer[at : at + 2]):
            raise Damaged("no record begins here")
        return HEADER_BYTES
    magic, code, length, at_ms = _HEAD.unpack_from(buffer, at)
    if magic != MAGIC or not 1 <= code <= len(KINDS) or length > MAX_DATA or buffer[at + 3]:
        raise Damaged("no record begins here")
    size = HEADER_BYTES + int(length)
    if len(buffer) - at < size:
        return size
    data = buffer[at + HEADER_BYTES : at + size]
    (crc,) = _CRC.unpack_from(buffer, at + _HEAD.size)
    if crc != crc32(data, crc32(buffer[at : at + _HEAD.size])):
        raise Damaged("the record's checksum is wrong")
    return size, KINDS[code - 1], at_ms, data


def segment_name(start: int) -> str:
    """The file name of the segment that begins at that offset."""
    return f"journal.{start:020d}"


def segments(folder: str) -> list[int]:
    """The start offsets of the files that exist, ascending."""
    found = []
    for name in os.listdir(folder):
        head, _, digits = name.partition(".")
        if head == "journal" and len(digits) == 20 and digits.isdigit():
            found.append(int(digits))
    return sorted(found)


def trim(folder: str, acked: int) -> int:
    """Delete the files that lie wholly below acked; the last file always stays.

    Returns how many were deleted.
    """
    starts = segments(folder)
    count = 0
    for number, start in enumerate(starts[:-1]):
        if starts[number + 1] > acked:
            break
        try:
            os.unlink(os.path.join(folder, segment_name(start)))
        except FileNotFoundError:  # shim and agentd may both trim
            continue
        count += 1
    return count


class Writer:
    """Appends records; keeps in memory what the disk does not take, and tries again.

    Nothing raises for a full or failing disk: :meth:`flush` returns False and
    :attr:`trouble` holds the error. The caller must then stop producing.
    """

    def __init__(self, folder: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._fd = -1
        self._segment_start = 0
        self._starts: list[int] = []
        self._waiting: list[bytes] = []
        self._written_of_first = 0
        #: logical end of all that is wholly on disk
        self.committed = 0
        #: logical end of all that was appended
        self.end = 0
        self.acked = 0
        self.trouble: OSError | None = None

    @property
    def blocked(self) -> bool:
        """Whether appended records still wait for the disk."""
        return bool(self._waiting)

    @property
    def backlog(self) -> int:
        """Bytes that nobody has acknowledged yet."""
        return self.end - self.acked

    def append(self, kind: str, at_ms: int, data: bytes) -> int:
        """Add one record and try to write it. Returns its end offset."""
        record = encode(kind, at_ms, data)
        self._waiting.append(record)
        self.end += len(record)
        self.flush()
        return self.end

    def flush(self) -> bool:
        """Write what waits. Returns whether all of it is on disk."""
        try:
            while self._waiting:
                self._write_first(self._waiting[0])
                self.committed += len(self._waiting.pop(0))
        except OSError as error:  # ENOSPC, EDQUOT, EFBIG, EIO: kept, and tried again
            self.trouble = error
            return False
        self.trouble = None
        return True

    def _write_first(self, record: bytes) -> None:
        if self._fd < 0 or (
            not self._written_of_first
            and self.committed - self._segment_start >= self._segment_bytes
        ):
            self._next_segment()
        view = memoryview(record)
        while self._written_of_first < len(record):
            self._written_of_first += os.write(self._fd, view[self._written_of_first :])
        self._written_of_first = 0

    def _next_segment(self) -> None:
        path = os.path.join(self._folder, segment_name(self.committed))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._segment_start = self.committed
        self._starts.append(self.committed)

    def ack(self, offset: int) -> None:
        """Everything below offset may go. Offsets beyond the end and old ones are ignored."""
        if self.acked < offset <= self.end:
            self.acked = offset
            if len(self._starts) > 1 and self._starts[1] <= offset:
                trim(self._folder, offset)
                while len(self._starts) > 1 and self._starts[1] <= offset:
                    del self._starts[0]

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Reader:
    """Reads records in order from any record's start. Holds one open file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fd = -1
        self._start = 0
        #: bytes of a cut last record, known after a read with ``settled``
        self.torn = 0
        #: bytes between the end of the last file and the offset that was asked for: a
        #: crash of the machine took what somebody had read already
        self.missing = 0

    def read(
        self, offset: int, *, upto: int | None = None, settled: bool = False
    ) -> tuple[list[Raw], int]:
        """What can be read from offset on (about :data:`READ_BYTES`), and the next offset.

        upto: the end that the writer committed; nothing beyond is looked at. settled: no
        writer lives, so what can't be parsed at the end is torn, not unfinished.

        Raises:
            Damaged: offset was trimmed away, is no record's start, or bytes before the
                last file's end are broken.
        """
        found: list[Raw] = []
        if upto is not None and offset >= upto:
            return found, offset
        if self._fd < 0 and not self._open_for(offset, settled):
            return found, offset
        want = READ_BYTES
        while True:
            chunk = os.pread(self._fd, want, offset - self._start)
            if not chunk:
                if not self._follow(offset):
                    return found, offset
                continue
            need = self._parse(chunk, offset, upto, settled, found)
            if found:
                return found, found[-1][1]
            if need <= len(chunk) or len(chunk) < want:
                # a record that is not whole yet, or never will be
                if self._later_segment():
                    raise Damaged(f"the journal is broken at offset {offset}")
                if settled:
                    self._check_boundary(offset)
                    self.torn = os.fstat(self._fd).st_size - (offset - self._start)
                return found, offset
            want = need

    def _parse(
        self, chunk: bytes, offset: int, upto: int | None, settled: bool, found: list[Raw]
    ) -> int:
        """Fill found; returns the bytes needed for the first record that is not whole."""
        at = 0
        while at < len(chunk):
            if upto is not None and offset + at >= upto:
                return 0
            try:
                one = decode(chunk, at)
            except Damaged:
                if found:
                    return 0  # the next read begins there and reports it
                if settled and not self._later_segment():
                    return 0
                raise Damaged(f"the journal is broken at offset {offset + at}") from None
            if isinstance(one, int):
                return one
            size, kind, at_ms, data = one
            found.append((offset + at, offset + at + size, kind, at_ms, data))
            at += size
        return 0

    def _open_for(self, offset: int, settled: bool) -> bool:
        starts = segments(self._folder)
        fitting = [start for start in starts if start <= offset]
        if not fitting:
            if starts:
                raise Damaged(f"offset {offset} was deleted; the journal begins at {starts[0]}")
            return False
        self._start = fitting[-1]
        self._fd = os.open(
            os.path.join(self._folder, segment_name(self._start)), os.O_RDONLY | os.O_CLOEXEC
        )
        self.missing = max(0, offset - self._start - os.fstat(self._fd).st_size)
        if self.missing and not settled:
            raise Damaged(f"offset {offset} lies beyond the journal")
        return True

    def _check_boundary(self, offset: int) -> None:
        """Raise unless a walk from the file's first record comes by at offset."""
        at = self._start
        while at < offset:
            head = os.pread(self._fd, HEADER_BYTES, at - self._start)
            try:
                # a header without its data: the size, or how much is needed, is the same
                size = decode(head, 0)
            except Damaged:
                break
            at += size if isinstance(size, int) else size[0]
        if at != offset:
            raise Damaged(f"the journal is broken: no record begins at offset {offset}")

    def _follow(self, offset: int) -> bool:
        """Go on to the file that begins at offset, if there is one."""
        if offset == self._start:
            return False
        path = os.path.join(self._folder, segment_name(offset))
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if self._later_segment():
                raise Damaged(f"the journal has a gap at offset {offset}") from None
            return False
        os.close(self._fd)
        self._fd, self._start = fd, offset
        return True

    def _later_segment(self) -> bool:
        starts = segments(self._folder)
        return bool(starts) and starts[-1] > self._start

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_all(folder: str, offset: int = 0) -> Iterator[Raw]:
    """Every record from offset on, of a journal that nobody writes any more."""
    reader = Reader(folder)
    try:
        while True:
            batch, offset = reader.read(offset, settled=True)
            if not batch:
                return
            yield from batch
    finally:
        reader.close()

"""A brain's calls about files, carried out on this machine's."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from handoff.errors import (
    BadRequest,
    FileChanged,
    FileInTheWay,
    FileMissing,
    FileTooLarge,
    HandoffError,
    OutcomeUnknown,
)
from handoff.nodes.node import paths
from handoff.nodes.node.calls_journal import CallsJournal
from handoff.nodes.node.files import PIECE, Entry, Files, Reading
from handoff.nodes.node.looking import STEP, Look, info
from handoff.nodes.node.policy import Policy
from handoff.nodes.node.streams import Streams, Withdrawn
from handoff.nodes.node.writing import Order, Writing, forget
from handoff.wire.node.calls import (
    INLINE_LIMIT,
    Delete,
    Done,
    Edit,
    FileInfo,
    Hash,
    Hashes,
    List,
    Listing,
    Mkdir,
    Move,
    Read,
    ReadResult,
    SetMeta,
    Stat,
    TransferInfo,
    TransferStat,
    Write,
    WriteResult,
)

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["FileCalls", "aside"]

P = ParamSpec("P")
T = TypeVar("T")

#: bytes of a file that an edit takes into memory
EDIT_LIMIT = 64 << 20


async def aside(work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Do what may wait for a disk without holding up the rest of the node."""
    return await asyncio.to_thread(work, *args, **more)


class FileCalls:
    """The file calls of a node. Each raises as :class:`~handoff.nodes.node.files.Files`."""

    def __init__(
        self, policy: Callable[[], Policy], home: str, journal: CallsJournal, clock: Clock
    ) -> None:
        self._policy = policy
        self._home = home
        self._files = Files(policy, home)
        self._journal = journal
        self._clock = clock
        self._open: dict[str, Writing] = {}

    def stat(self, call: Stat) -> FileInfo:
        """What a path is."""
        found = self._files.stat(call.path, follow=call.follow)
        digest = ""
        if call.hash and found.type == "file":
            digest = self._files.sha256(call.path)
        return info(found, call.path, digest)

    def list(self, call: List) -> Listing:
        """The names in a folder."""
        page = self._files.listing(call.path, call.limit or 1, call.after)
        entries = [info(one, one.name) for one in page.entries]
        entries += [FileInfo(path=name, kind="unknown", error=why) for name, why in page.unreadable]
        return Listing(tuple(entries), page.next)

    async def read(self, call: Read, streams: Streams) -> ReadResult:
        """A file, or a range of it: in the answer, or as a stream.

        Raises:
            FileTooLarge: more than an answer holds, without a stream.
            FileChanged: it has not the etag that it must have, or was written to meanwhile.
        """
        with self._files.reading(call.path) as file:
            if call.if_match and call.if_match not in {"*", file.entry.etag}:
                raise _changed(call.path, file.entry)
            rest = max(0, file.entry.size - call.offset)
            length = rest if call.length < 0 else call.length
            if not call.stream:
                return await aside(self._piece, call, file, length)
            look = Look()
            at = call.offset
            # a file of /proc and the like has no size: it is read to its end
            end = None if call.length < 0 else call.offset + length
            while end is None or at < end:
                data = await aside(look.next, file, at, STEP if end is None else end - at)
                if not data:
                    break
                await streams.send("data", at, data)
                at += len(data)
            if call.length < 0 and file.changed():
                raise _changed(call.path, file.entry)
            return look.result(call.offset, at, file.entry)

    async def write(self, key: str, call: Write, streams: Streams) -> WriteResult:
        """Write a file, whole or not at all; an upload that is cut can be gone on with."""
        if call.parents:
            await aside(self._make_above, call.path)
        name = call.transfer or key
        if not call.stream:
            return await aside(self._write_whole, name, call)
        writing = await aside(self._writing, name, call)
        if call.offset != writing.have:
            have, digest = writing.have, writing.sha256
            writing.pause()
            raise BadRequest(
                f"the upload stands at {have} bytes, not at {call.offset}",
                field="offset",
                received=have,
                sha256=digest,
            )
        self._open[name] = writing
        self._journal.uploading(name, call.path, self._clock.now_ms())
        try:
            while data := await streams.receive():
                await aside(writing.feed, data, *streams.more())
        except ConnectionError as error:
            if isinstance(error, Withdrawn):
                self._journal.uploaded(name)  # nobody goes on with it
            elif call.transfer and call.mode != "append":
                writing.pause()
                raise
            if not writing.abort():
                raise _half(call.path) from error
            raise
        except BaseException:
            writing.abort()
            raise
        finally:
            self._open.pop(name, None)
        return await aside(self._end, name, writing)

    def _write_whole(self, name: str, call: Write) -> WriteResult:
        writing = self._writing(name, call)
        if writing.have:  # this call's own, from before a crash
            writing.abort()
            writing = self._writing(name, call)
        writing.feed(call.data)
        return self._end(name, writing)

    def transfer(self, call: TransferStat) -> TransferInfo:
        """How far an upload came.

        Raises:
            FileMissing: nothing of it is here.
        """
        running = self._open.get(call.transfer)
        if running is not None:
            return TransferInfo(call.transfer, running.have, running.sha256)
        path = self._journal.upload(call.transfer)
        if path is None:
            raise FileMissing("nothing of that upload is here", remedy="send it from its start")
        writing = Writing(Order(_part_key(call.transfer), path), self._policy(), self._home)
        have, digest = writing.have, writing.sha256
        writing.pause()
        return TransferInfo(call.transfer, have, digest)

    def edit(self, key: str, call: Edit) -> WriteResult:
        """Replace a text of a file by another, byte for byte.

        Raises:
            BadRequest: it does not occur, or not that often.
            FileTooLarge: too large to be taken into memory.
        """
        with self._files.reading(call.path) as file:
            if call.if_match and call.if_match not in {"*", file.entry.etag}:
                raise _changed(call.path, file.entry)
            if file.entry.size > EDIT_LIMIT:
                raise FileTooLarge(
                    f"{call.path} has {file.entry.size} bytes, an edit takes {EDIT_LIMIT}",
                    remedy="run a program on the node that edits it",
                )
            data = b"".join(_pieces(file))
            tag = file.entry.etag
        times = data.count(call.old)
        if times == 0 or (call.count >= 0 and times != call.count):
            raise BadRequest(
                f"the text occurs {times} times in {call.path}, not {call.count}",
                field="old",
                occurs=times,
            )
        order = Order(_part_key(key), call.path, if_match=tag)
        writing = Writing(order, self._policy(), self._home)
        if writing.have:
            writing.abort()
            writing = Writing(order, self._policy(), self._home)
        writing.feed(data.replace(call.old, call.new))
        return self._end(key, writing, replaced=times)

    def make(self, call: Mkdir) -> Done:
        """Make a folder."""
        mode = 0o777 if call.permissions < 0 else call.permissions
        try:
            changed = self._files.make_folder(call.path, mode, parents=call.parents)
        except FileInTheWay:
            if self._files.stat(call.path).type != "dir":
                raise
            changed = False
        if changed and call.permissions >= 0:
            self._files.change(call.path, mode=mode)
        return Done(changed=changed)

    def move(self, call: Move) -> Done:
        """Rename."""
        self._files.move(call.path, call.to, overwrite=call.overwrite)
        return Done()

    def delete(self, call: Delete) -> Done:
        """Remove."""
        try:
            count = self._files.delete(call.path, tree=call.recursive, if_match=call.if_match)
        except FileMissing:
            if not call.missing_ok:
                raise
            return Done(changed=False)
        return Done(count=count)

    def set_meta(self, call: SetMeta) -> Done:
        """Set bits and times."""
        self._files.change(
            call.path,
            None if call.permissions < 0 else call.permissions,
            None if call.mtime_ns < 0 else call.mtime_ns,
        )
        return Done()

    def hash(self, call: Hash) -> Hashes:
        """Digests of a file."""
        whole, blocks = hashlib.sha256(), bytearray()
        with self._files.reading(call.path) as file:
            block, left = hashlib.sha256(), call.block_bytes
            at = 0
            while data := file.piece(at, min(PIECE, left) if left else PIECE):
                whole.update(data)
                at += len(data)
                if call.block_bytes:
                    block.update(data)
                    left -= len(data)
                    if not left:
                        blocks += block.digest()[:16]
                        block, left = hashlib.sha256(), call.block_bytes
            if call.block_bytes and left < call.block_bytes:
                blocks += block.digest()[:16]
            return Hashes(whole.hexdigest(), at, call.block_bytes, bytes(blocks), file.entry.etag)

    def clean(self, before_ms: int) -> int:
        """Remove what is left of uploads that were begun before then. Returns how many."""
        count = 0
        for name, path in self._journal.uploads(before_ms):
            if name not in self._open:
                with contextlib.suppress(HandoffError):
                    count += forget(path, _part_key(name), self._home)
                self._journal.uploaded(name)
        return count

    def _piece(self, call: Read, file: Reading, length: int) -> ReadResult:
        if length > INLINE_LIMIT:
            raise FileTooLarge(
                f"{call.path}: {length} bytes, an answer holds {INLINE_LIMIT}",
                remedy="read a range of it, or as a stream",
                size=file.entry.size,
            )
        parts, at, left = [], call.offset, length if file.entry.size else INLINE_LIMIT
        while left and (data := file.piece(at, left)):
            parts.append(data)
            at, left = at + len(data), left - len(data)
        whole = b"".join(parts)
        look = Look()
        look.feed(whole)
        made = look.result(call.offset, at, file.entry)
        return replace(made, data=whole)

    def _make_above(self, path: str) -> None:
        above = os.path.dirname(paths.locate(path, self._home).real)
        if not os.path.isdir(above):
            self._files.make_folder(above, parents=True)

    def _writing(self, name: str, call: Write) -> Writing:
        order = Order(
            key=_part_key(name),
            path=call.path,
            mode=call.mode,
            if_match=call.if_match,
            perm=None if call.permissions < 0 else call.permissions,
            mtime_ns=None if call.mtime_ns < 0 else call.mtime_ns,
            size=None if call.size < 0 else call.size,
            sha256=call.sha256,
        )
        return Writing(order, self._policy(), self._home)

    def _end(self, name: str, writing: Writing, replaced: int = 0) -> WriteResult:
        made = writing.commit()
        self._journal.uploaded(name)
        return WriteResult(
            bytes_written=made.bytes,
            size=made.file.size,
            etag=made.file.etag,
            sha256=made.sha256,
            created=made.created,
            replaced=replaced,
        )


def _pieces(file: Reading) -> Iterator[bytes]:
    at = 0
    while data := file.piece(at, PIECE):
        yield data
        at += len(data)


def _half(path: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"not all of it had come: a part stands in {path}, with others' bytes behind it",
        remedy="look at the file before you append again",
        path=path,
    )


def _changed(path: str, entry: Entry) -> FileChanged:
    return FileChanged(
        f"{path} is not the file that was seen", remedy="read it again", path=path, etag=entry.etag
    )


def _part_key(name: str) -> str:
    """A call's key or an upload's name as a part of a file's name."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]

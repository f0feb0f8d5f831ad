"""A brain's calls about whole trees, carried out on this machine's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from handoff.nodes.node import paths
from handoff.nodes.node.filecalls import aside
from handoff.nodes.node.files import PIECE
from handoff.nodes.node.policy import Policy
from handoff.nodes.node.streams import Streams
from handoff.nodes.pack import Entry, Packer
from handoff.nodes.trees import Counts, manifest, pack
from handoff.nodes.treewriting import TreeWriter
from handoff.wire.node.calls import Skipped, TreeGet, TreeManifest, TreePut, TreeResult

__all__ = ["TreeCalls"]

#: names that an answer lists as left out; the stream has all of them
SKIPPED = 1000


class TreeCalls:
    """The tree calls of a node. Each raises as :mod:`handoff.nodes.trees`."""

    def __init__(self, policy: Callable[[], Policy], home: str) -> None:
        self._policy = policy
        self._home = home

    async def manifest(self, call: TreeManifest, streams: Streams) -> TreeResult:
        """Describe a tree."""
        top = paths.locate(call.path, self._home).real
        counts = Counts()

        def told() -> Iterator[bytes]:
            for entry in manifest(top, self._may_read, call.exclude, digests=call.hash):
                _count(counts, entry)
                yield Packer.header(entry)
            yield Packer.end()

        await _send(told(), streams)
        return _result(counts)

    async def get(self, call: TreeGet, streams: Streams) -> TreeResult:
        """Send a tree, or those files of it that are asked for."""
        top = paths.locate(call.path, self._home).real
        sent = await _send(pack(top, self._may_read, call.exclude, call.only or None), streams)
        return TreeResult(bytes=sent)

    async def put(self, call: TreePut, streams: Streams) -> TreeResult:
        """Write a tree that is sent."""
        top = paths.locate(call.path, self._home).real
        writer = TreeWriter(top, self._may_write, delete=call.delete, dry_run=call.dry_run)
        try:
            while data := await streams.receive():
                await aside(writer.feed, data, *streams.more())
            return _result(await aside(writer.close))
        finally:
            await asyncio.shield(aside(writer.abort))

    def _may_read(self, real: str) -> None:
        self._policy().require_read(real, real)

    def _may_write(self, real: str) -> None:
        self._policy().require_write(real, real)


def _count(counts: Counts, entry: Entry) -> None:
    if entry.skipped:
        counts.skipped.append((entry.path, entry.skipped, entry.detail))
    elif entry.kind == "dir":
        counts.dirs += 1
    elif entry.kind == "link":
        counts.links += 1
    else:
        counts.files += 1
        counts.bytes += entry.size


def _result(counts: Counts) -> TreeResult:
    return TreeResult(
        counts.files,
        counts.dirs,
        counts.links,
        counts.bytes,
        counts.deleted,
        counts.unchanged,
        tuple(Skipped(*one) for one in counts.skipped[:SKIPPED]),
    )


async def _send(pieces: Iterator[bytes], streams: Streams) -> int:
    """Send what is told, in pieces of a good size. Returns how many bytes."""
    sent = 0
    while data := await aside(_gather, pieces):
        await streams.send("data", sent, data)
        sent += len(data)
    return sent


def _gather(pieces: Iterator[bytes]) -> bytes:
    found, size = [], 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size >= PIECE:
            break
    return b"".join(found)

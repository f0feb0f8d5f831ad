"""A brain's calls about whole trees, carried out on this machine's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

from handoff.nodes.node import paths
from handoff.nodes.node.filecalls import aside
from handoff.nodes.node.policy import Policy
from handoff.nodes.node.streams import Streams
from handoff.nodes.pack import Entry, Packer, gathered
from handoff.nodes.trees import Counts, manifest, pack
from handoff.nodes.treewriting import TreeWriter
from handoff.wire.node.calls import Skipped, TreeGet, TreeManifest, TreePut, TreeResult

__all__ = ["TreeCalls"]

#: names that an answer lists as left out; the stream has all of them
SKIPPED = 1000
#: names of a folder for which it is found out once where the policy's folders lead
RULED = 64


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
            for entry in manifest(top, _Reads(self._policy), call.exclude, digests=call.hash):
                _count(counts, entry)
                yield Packer.header(entry)
            yield Packer.end()

        await _send(told(), streams)
        return _result(counts)

    async def get(self, call: TreeGet, streams: Streams) -> TreeResult:
        """Send a tree, or those files of it that are asked for."""
        top = paths.locate(call.path, self._home).real
        sent = await _send(
            pack(top, _Reads(self._policy), call.exclude, call.only or None), streams
        )
        return TreeResult(bytes=sent)

    async def put(self, call: TreePut, streams: Streams) -> TreeResult:
        """Write a tree that is sent."""
        top = paths.locate(call.path, self._home).real
        writer = TreeWriter(top, _Writes(self._policy), delete=call.delete, dry_run=call.dry_run)
        try:
            while data := await streams.receive():
                await aside(writer.feed, data, *streams.more())
            return _result(await aside(writer.close))
        finally:
            await asyncio.shield(aside(writer.abort))


class _Reads:
    """Raises for what may not be read. Where a policy's folders lead is found out for
    :data:`RULED` names of a folder at once; the policy itself is looked at for each."""

    def __init__(self, policy: Callable[[], Policy]) -> None:
        self._policy = policy
        self._ruled: tuple[Policy, str] | None = None
        self._left = 0
        self._names: Callable[[str], bool] = _no

    def __call__(self, real: str) -> None:
        folder, name = os.path.split(real)
        policy = self._policy()
        if self._ruled is None or self._ruled != (policy, folder) or not self._left:
            self._ruled, self._left = (policy, folder), RULED
            self._names = self._in(policy, folder)
        self._left -= 1
        if not self._names(name):
            self._require(policy, real)

    def _in(self, policy: Policy, folder: str) -> Callable[[str], bool]:
        return policy.readable_in(folder)

    def _require(self, policy: Policy, real: str) -> None:
        policy.require_read(real, real)


class _Writes(_Reads):
    """The same of what may not be written."""

    def _in(self, policy: Policy, folder: str) -> Callable[[str], bool]:
        return policy.writable_in(folder)

    def _require(self, policy: Policy, real: str) -> None:
        policy.require_write(real, real)


def _no(_: str) -> bool:
    return False


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
    told = gathered(pieces)
    while data := await aside(next, told, b""):
        await streams.send("data", sent, data)
        sent += len(data)
    return sent

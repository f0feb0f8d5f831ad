"""One file to or from a node, going on where it was after a cut."""

from __future__ import annotations

import hashlib
import os
import stat

from handoff.cli import nodes_place as place
from handoff.errors import FileMissing, HandoffError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any

    from handoff.cli.context import Context
    from handoff.nodes.client import BrainClient

CHUNK = 1 << 18
#: bytes that a killed copy must have left for them to be compared with the file, and of a block
WORTH = 4 << 20
#: blocks of a file that are compared at most
BLOCKS = 4096
#: how often a transfer is taken up again after its link was lost, and seconds between
TRIES = 20
#: permission bits that a copy takes over: none that let others act as its owner
BITS = 0o777
#: seconds that a node that went away is waited for
BACK_S = 60.0


def put_file(brain: BrainClient, args: Namespace, context: Context) -> int:
    """Copy a file to a node."""
    from handoff.nodes.client import new_key

    try:
        fd = os.open(args.source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise FileMissing(f"{args.source} does not exist", remedy="name a file here") from error
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise UsageError(f"{args.source} is no plain file", remedy="name a file or a folder")
    digest = hashlib.sha256()
    while data := os.read(fd, 1 << 20):
        digest.update(data)
    target = args.target
    if target.endswith("/"):
        target += os.path.basename(args.source)
    name = new_key()
    given = {
        "path": place.argument(target),
        "stream": True,
        "size": found.st_size,
        "sha256": digest.hexdigest(),
        "transfer": name,
        "permissions": stat.S_IMODE(found.st_mode),
        "mtime_ns": found.st_mtime_ns,
    }
    if args.dry_run:
        os.close(fd)
        place.tell(context, {"bytes": found.st_size}, f"{found.st_size} bytes would be sent")
        return 0
    bar = place.progress(context, args.source, found.st_size)
    try:
        value = _upload(brain, args.node, given, fd, bar)
    finally:
        bar.end()
        os.close(fd)
    place.tell(context, value, f"{target}: {value.get('size', 0)} bytes")
    return 0


def _upload(
    brain: BrainClient, node: str, given: dict[str, Any], fd: int, bar: place.Progress
) -> dict[str, Any]:
    """Send a file; after a cut, the rest of it."""
    from handoff.nodes.client import new_key

    offset = 0
    for attempt in range(TRIES):

        def feed(at: int = offset) -> Iterator[bytes]:
            while data := os.pread(fd, CHUNK, at):
                yield data
                at += len(data)
                bar.add(len(data))

        call = {**given, "offset": offset}
        try:
            ok, value = brain.call(
                node,
                "write",
                call,
                key=new_key(),
                by=place.by(),
                wait_s=wait(attempt),
                feed=feed(),
            )
        except HandoffError as error:
            ok, value = False, error.to_json()
        if ok:
            return value
        failed = place.failed(value)
        if not cut(failed) or attempt == TRIES - 1:
            raise failed
        offset = _arrived(brain, node, given)
        bar.done = offset
    raise AssertionError


def _arrived(brain: BrainClient, node: str, given: dict[str, Any]) -> int:
    """How much of an upload the node holds; all of it if it was committed."""
    ok, value = brain.call(
        node, "transfer_stat", {"transfer": given["transfer"]}, by=place.by(), wait_s=BACK_S
    )
    if ok:
        return int(value.get("received", 0))
    return 0


def wait(attempt: int) -> float:
    """Seconds that a node is waited for: one that was never there is told of at once."""
    return BACK_S if attempt else 0


def cut(error: HandoffError) -> bool:
    """Whether the link was lost, rather than the call refused."""
    return error.code in {"unreachable", "outcome_unknown"} or (
        error.code == "bad_request" and error.details.get("field") == "offset"
    )


def get_file(brain: BrainClient, args: Namespace, context: Context, told: dict[str, Any]) -> int:
    """Copy a file from a node. told: what it is there."""
    from handoff.nodes.drafts import draft, free
    from handoff.nodes.node import paths

    size = int(told.get("size", 0))
    target = args.target
    if os.path.isdir(target):
        name = args.source.rstrip("/").rpartition("/")[2]
        target = os.path.join(target, name)
    if args.dry_run:
        place.tell(context, {"bytes": size}, f"{size} bytes would come")
        return 0
    bar = place.progress(context, args.source, size)
    real = os.path.realpath(target)
    with paths.typed(target), paths.leaf(real) as (above, name):
        free(above, name)
        fd, part = draft(above, name, target, keep=True)
        try:
            bar.done = _left(brain, args, told, fd)
            _download(brain, args, told, fd, bar)
            os.fchmod(fd, told.get("permissions", 0o644) & BITS)
            os.utime(fd, ns=(told.get("mtime_ns", 0), told.get("mtime_ns", 0)))
            os.fsync(fd)
            os.replace(part, name, src_dir_fd=above, dst_dir_fd=above)
        except BaseException:
            os.unlink(part, dir_fd=above)
            raise
        finally:
            bar.end()
            os.close(fd)
    place.tell(context, {"path": target, "bytes": bar.done}, f"{target}: {bar.done} bytes")
    return 0


def _left(brain: BrainClient, args: Namespace, told: dict[str, Any], fd: int) -> int:
    """How many bytes of a draft that a killed copy left are the file's own; the rest of it is
    cut off, and the next byte goes behind them."""
    from base64 import b64decode

    have = 0
    if os.fstat(fd).st_size >= WORTH:
        block = WORTH
        while block * BLOCKS < told.get("size", 0):
            block *= 2
        given = {"path": place.argument(args.source), "block_bytes": block}
        ok, value = brain.call(args.node, "hash", given, by=place.by())
        if ok and value.get("etag") == told.get("etag"):
            theirs = b64decode(value.get("blocks", ""))
            while _block(fd, have, block) == theirs[have // block * 16 :][:16] != b"":
                have += block
    os.ftruncate(fd, have)
    os.lseek(fd, have, os.SEEK_SET)
    return have


def _block(fd: int, at: int, size: int) -> bytes:
    """What ``Hashes.blocks`` has of a whole block; empty if it is not whole."""
    digest, end = hashlib.sha256(), at + size
    while at < end:
        data = os.pread(fd, min(CHUNK, end - at), at)
        if not data:
            return b""
        digest.update(data)
        at += len(data)
    return digest.digest()[:16]


def _download(
    brain: BrainClient, args: Namespace, told: dict[str, Any], fd: int, bar: place.Progress
) -> None:
    """Read a file; after a cut, the rest of it, if it is still the same."""
    for attempt in range(TRIES):

        def piece(_: str, data: bytes) -> None:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            bar.add(len(data))

        call = {
            "path": place.argument(args.source),
            "offset": bar.done,
            "stream": True,
            "if_match": told.get("etag", ""),
        }
        try:
            ok, value = brain.call(
                args.node, "read", call, by=place.by(), wait_s=wait(attempt), pieces=piece
            )
        except HandoffError as error:
            ok, value = False, error.to_json()
        if ok:
            return
        failed = place.failed(value)
        if not cut(failed) or attempt == TRIES - 1:
            raise failed

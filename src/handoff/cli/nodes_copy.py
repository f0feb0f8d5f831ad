"""``handoff nodes put | get``: files and trees, only what has changed, going on after a cut."""

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
    from handoff.cli.parsing import Parser
    from handoff.nodes.client import BrainClient
    from handoff.nodes.pack import Entry
    from handoff.nodes.trees import Counts

CHUNK = 1 << 18
#: how often a transfer is taken up again after its link was lost, and seconds between
TRIES = 20
#: seconds that a node that went away is waited for
BACK_S = 60.0


def parser(name: str) -> Parser:
    """The verb's own flags."""
    to = name == "put"
    made = place.parser(
        name,
        "Copy a file or a tree "
        + ("to a node" if to else "from a node")
        + ". Of a tree only what has changed goes over, links as links;\n"
        "what can't be copied is named, and the exit code is 1 then.",
        examples="  handoff nodes put lab build/ /srv/app --delete"
        if to
        else "  handoff nodes get lab /var/log/app logs",
    )
    made.add_argument("node", help="the node")
    made.add_argument("source", help="what to copy" if to else "what to copy, on the node")
    made.add_argument("target", help="where to, on the node" if to else "where to")
    made.add_argument("--delete", action="store_true", help="remove what the source has not")
    made.add_argument("--dry-run", action="store_true", help="only say what would be done")
    made.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="names to leave out"
    )
    made.add_argument("--manifest", action="store_true", help="only list the source's names")
    return made


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    brain = place.client(args)
    if name == "put":
        if args.manifest:
            return _listed(_local(os.path.realpath(args.source), args.exclude), context)
        if os.path.isdir(args.source):
            return _put_tree(brain, args, context)
        return _put_file(brain, args, context)
    if args.manifest:
        return _listed(_remote(brain, args.node, args.source, args.exclude), context)
    ok, value = brain.call(args.node, "stat", {"path": place.argument(args.source)}, by=place.by())
    if not ok:
        raise place.failed(value)
    if value.get("kind") == "dir":
        return _get_tree(brain, args, context)
    return _get_file(brain, args, context, value)


def _put_file(brain: BrainClient, args: Namespace, context: Context) -> int:
    from handoff.nodes.client import new_key

    try:
        fd = os.open(args.source, os.O_RDONLY | os.O_CLOEXEC)
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
    transfer = new_key()
    bar = place.progress(context, args.source, found.st_size)
    given = {
        "path": place.argument(target),
        "stream": True,
        "size": found.st_size,
        "sha256": digest.hexdigest(),
        "transfer": transfer,
        "permissions": stat.S_IMODE(found.st_mode),
        "mtime_ns": found.st_mtime_ns,
    }
    if args.dry_run:
        place.tell(context, {"bytes": found.st_size}, f"{found.st_size} bytes would be sent")
        return 0
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
                node, "write", call, key=new_key(), by=place.by(), wait_s=BACK_S, feed=feed()
            )
        except HandoffError as error:
            ok, value = False, error.to_json()
        if ok:
            return value
        failed = place.failed(value)
        if not _cut(failed) or attempt == TRIES - 1:
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


def _cut(error: HandoffError) -> bool:
    """Whether the link was lost, rather than the call refused."""
    return error.code in {"unreachable", "outcome_unknown", "node_offline"} or (
        error.code == "bad_request" and error.details.get("field") == "offset"
    )


def _get_file(brain: BrainClient, args: Namespace, context: Context, told: dict[str, Any]) -> int:
    size = int(told.get("size", 0))
    target = args.target
    if os.path.isdir(target):
        name = args.source.rstrip("/").rpartition("/")[2]
        target = os.path.join(target, name)
    if args.dry_run:
        place.tell(context, {"bytes": size}, f"{size} bytes would come")
        return 0
    bar = place.progress(context, args.source, size)
    part = f"{target}.handoff-part"
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _download(brain, args, told, fd, bar)
        os.fchmod(fd, told.get("permissions", 0o644))
        os.utime(fd, ns=(told.get("mtime_ns", 0), told.get("mtime_ns", 0)))
        os.fsync(fd)
        os.replace(part, target)
    except BaseException:
        os.unlink(part)
        raise
    finally:
        bar.end()
        os.close(fd)
    place.tell(context, {"path": target, "bytes": bar.done}, f"{target}: {bar.done} bytes")
    return 0


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
                args.node, "read", call, by=place.by(), wait_s=BACK_S, pieces=piece
            )
        except HandoffError as error:
            ok, value = False, error.to_json()
        if ok:
            return
        failed = place.failed(value)
        if not _cut(failed) or attempt == TRIES - 1:
            raise failed


def _anything(_: str) -> None:
    """On this machine its user decides."""


def _local(top: str, exclude: list[str]) -> Iterator[Entry]:
    from handoff.nodes.trees import manifest

    return manifest(top, _anything, exclude)


def _remote(brain: BrainClient, node: str, path: str, exclude: list[str]) -> Iterator[Entry]:
    """A tree of a node; empty if there is none.

    Raises:
        HandoffError: it can't be read.
    """
    from handoff.nodes.pack import Unpacker

    unpacker = Unpacker()
    found: list[Entry] = []

    def piece(_: str, data: bytes) -> None:
        found.extend(one for one in unpacker.feed(data) if not isinstance(one, bytes))

    ok, value = brain.call(
        node,
        "tree_manifest",
        {"path": place.argument(path), "exclude": exclude},
        by=place.by(),
        wait_s=BACK_S,
        pieces=piece,
    )
    if not ok:
        raise place.failed(value)
    unpacker.close()
    return iter(one for one in found if not one.end)


def _listed(entries: Iterator[Entry], context: Context) -> int:
    from handoff.cli.terminal import safe_line

    left = 0
    for one in entries:
        left += bool(one.skipped)
        if context.human:
            word = f"left out: {one.skipped}" if one.skipped else f"{one.kind:<5} {one.size}"
            context.show(f"{word}  {safe_line(one.path or '.')}")
        else:
            context.emit(_shown(one))
    return 1 if left else 0


def _shown(one: Entry) -> dict[str, Any]:
    from dataclasses import asdict

    value = {key: item for key, item in asdict(one).items() if item not in ("", 0, False, ())}
    return {**value, "path": place.argument(one.path)}


def _put_tree(brain: BrainClient, args: Namespace, context: Context) -> int:
    from handoff.nodes.client import new_key
    from handoff.nodes.pack import Entry, Packer
    from handoff.nodes.trees import pack

    top = os.path.realpath(args.source)
    here = {one.path: one for one in _local(top, args.exclude)}
    try:
        there = {one.path: one for one in _remote(brain, args.node, args.target, args.exclude)}
    except FileMissing:
        there = {}
    changed = [path for path, one in here.items() if one.kind == "file" and _other(one, there)]
    gone = [path for path in there if path not in here and args.delete]
    bar = place.progress(context, args.source, sum(here[path].size for path in changed))

    def feed() -> Iterator[bytes]:
        for data in pack(top, _anything, args.exclude, only=changed):
            if data == Packer.end():
                break
            yield data
            bar.add(len(data))
        for path in sorted(gone, reverse=True):
            yield Packer.header(Entry(path, gone=True))
        yield Packer.end()

    try:
        ok, value = brain.call(
            args.node,
            "tree_put",
            {
                "path": place.argument(args.target),
                "delete": args.delete,
                "dry_run": args.dry_run,
            },
            key=new_key(),
            by=place.by(),
            feed=feed(),
        )
    finally:
        bar.end()
    if not ok:
        raise place.failed(value)
    value["unchanged"] = sum(one.kind == "file" for one in here.values()) - len(changed)
    return _report(value, context)


def _other(one: Entry, there: dict[str, Entry]) -> bool:
    """Whether a file is not over there as it is here."""
    old = there.get(one.path)
    return old is None or (old.kind, old.size, old.sha256, old.permissions, old.mtime_ns) != (
        one.kind,
        one.size,
        one.sha256,
        one.permissions,
        one.mtime_ns,
    )


def _get_tree(brain: BrainClient, args: Namespace, context: Context) -> int:
    from handoff.nodes.pack import Entry, Packer
    from handoff.nodes.treewriting import TreeWriter

    there = {one.path: one for one in _remote(brain, args.node, args.source, args.exclude)}
    target = os.path.realpath(args.target)
    here = {one.path: one for one in _local(target, args.exclude)} if os.path.isdir(target) else {}
    changed = [path for path, one in there.items() if one.kind == "file" and _other(one, here)]
    bar = place.progress(context, args.source, sum(there[path].size for path in changed))
    writer = TreeWriter(target, _anything, delete=args.delete, dry_run=args.dry_run)
    end = Packer.end()
    held = b""

    def piece(_: str, data: bytes) -> None:
        bar.add(len(data))
        nonlocal held
        held += data
        ready, held = held[: -len(end)], held[-len(end) :]
        writer.feed(ready)

    # an empty list would mean all of them; no name is empty
    only = [place.argument(path) for path in changed] or ["\x01"]
    try:
        ok, value = brain.call(
            args.node,
            "tree_get",
            {"path": place.argument(args.source), "exclude": args.exclude, "only": only},
            by=place.by(),
            pieces=piece,
        )
        if not ok:
            raise place.failed(value)
        for path in sorted((one for one in here if one not in there), reverse=True):
            if args.delete:
                writer.feed(Packer.header(Entry(path, gone=True)))
        writer.feed(held)
        counts = writer.close()
    finally:
        writer.abort()
        bar.end()
    counts.unchanged = sum(one.kind == "file" for one in there.values()) - len(changed)
    return _report(_counted(counts), context)


def _counted(counts: Counts) -> dict[str, Any]:
    return {
        "files": counts.files,
        "dirs": counts.dirs,
        "links": counts.links,
        "bytes": counts.bytes,
        "deleted": counts.deleted,
        "unchanged": counts.unchanged,
        "skipped": [
            {"path": place.argument(path), "code": code, "detail": detail}
            for path, code, detail in counts.skipped
        ],
    }


def _report(value: dict[str, Any], context: Context) -> int:
    from handoff.cli.terminal import safe_line, size

    skipped = value.get("skipped", [])
    if not context.human:
        context.emit(value)
    else:
        context.show(
            f"{value.get('files', 0)} files copied ({size(value.get('bytes', 0))}), "
            f"{value.get('unchanged', 0)} unchanged, {value.get('dirs', 0)} folders, "
            f"{value.get('links', 0)} links, {value.get('deleted', 0)} removed"
        )
        for one in skipped:
            name = place.text_of(one["path"]).decode("utf-8", "surrogateescape")
            context.say(f"left out: {safe_line(name)}: {one.get('detail') or one['code']}")
    return 1 if skipped else 0

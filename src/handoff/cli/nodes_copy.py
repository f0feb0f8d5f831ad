"""``handoff nodes put | get``: files and trees, only what has changed, going on after a cut."""

from __future__ import annotations

import json
import os

from handoff.cli import nodes_place as place
from handoff.cli import nodes_transfer as transfer
from handoff.errors import FileMissing, HandoffError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser
    from handoff.nodes.client import BrainClient
    from handoff.nodes.pack import Entry
    from handoff.nodes.trees import Counts

#: characters of JSON for the names that one call asks for, less than a message takes; where
#: there are more, all files are asked for
NAMES = 900_000


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
            return _again(_put_tree, brain, args, context)
        return transfer.put_file(brain, args, context)
    if args.manifest:
        return _listed(_remote(brain, args.node, args.source, args.exclude), context)
    ok, value = brain.call(args.node, "stat", {"path": place.argument(args.source)}, by=place.by())
    if not ok:
        raise place.failed(value)
    if value.get("kind") == "dir":
        return _again(_get_tree, brain, args, context)
    return transfer.get_file(brain, args, context, value)


def _anything(_: str) -> None:
    """On this machine its user decides."""


def _local(top: str, exclude: list[str]) -> Iterator[Entry]:
    from handoff.nodes.trees import manifest

    return manifest(top, _anything, exclude)


def _remote(
    brain: BrainClient, node: str, path: str, exclude: list[str], attempt: int = 0
) -> Iterator[Entry]:
    """A tree of a node.

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
        wait_s=transfer.wait(attempt),
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
    value = {key: item for key, item in one._asdict().items() if item not in ("", 0, False, ())}
    return {**value, "path": place.argument(one.path)}


def _again(
    once: Callable[[BrainClient, Namespace, Context, int], dict[str, Any]],
    brain: BrainClient,
    args: Namespace,
    context: Context,
) -> int:
    """Copy a tree; after a cut, what is still missing of it."""
    for attempt in range(transfer.TRIES):
        try:
            return _report(once(brain, args, context, attempt), context)
        except HandoffError as error:
            if not transfer.cut(error) or attempt == transfer.TRIES - 1:
                raise
    raise AssertionError


def _put_tree(
    brain: BrainClient, args: Namespace, context: Context, attempt: int
) -> dict[str, Any]:
    from handoff.nodes.client import new_key
    from handoff.nodes.pack import Entry, Packer, gathered
    from handoff.nodes.trees import gone, pack

    top = os.path.realpath(args.source)
    here = {one.path: one for one in _local(top, args.exclude)}
    try:
        found = _remote(brain, args.node, args.target, args.exclude, attempt)
        there = {one.path: one for one in found}
    except FileMissing:
        there = {}
    changed = [path for path, one in here.items() if one.kind == "file" and _other(one, there)]
    removed = gone(here.values(), there.values()) if args.delete else []
    bar = place.progress(context, args.source, sum(here[path].size for path in changed))

    end = Packer.end()

    def feed() -> Iterator[bytes]:
        for data in pack(top, _anything, args.exclude, only=changed):
            if data == end:
                break
            yield data
            bar.add(len(data))
        for path in removed:
            yield Packer.header(Entry(path, gone=True))
        yield end

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
            feed=gathered(feed()),
        )
    finally:
        bar.end()
    if not ok:
        raise place.failed(value)
    value["unchanged"] = sum(one.kind == "file" for one in here.values()) - len(changed)
    return value


def _other(one: Entry, there: dict[str, Entry], bits: int = 0o7777) -> bool:
    """Whether a file is not over there as it is here. bits: those that are taken over."""
    old = there.get(one.path)
    return old is None or (old.kind, old.size, old.sha256, old.permissions, old.mtime_ns) != (
        one.kind,
        one.size,
        one.sha256,
        one.permissions & bits,
        one.mtime_ns,
    )


def _get_tree(
    brain: BrainClient, args: Namespace, context: Context, attempt: int
) -> dict[str, Any]:
    from handoff.nodes.pack import Entry, Packer
    from handoff.nodes.trees import gone
    from handoff.nodes.treewriting import TreeWriter

    found = _remote(brain, args.node, args.source, args.exclude, attempt)
    there = {one.path: one for one in found}
    target = os.path.realpath(args.target)
    here = {one.path: one for one in _local(target, args.exclude)} if os.path.isdir(target) else {}
    changed = [
        path
        for path, one in there.items()
        if one.kind == "file" and _other(one, here, transfer.BITS)
    ]
    files = [path for path, one in there.items() if one.kind == "file"]
    only = [place.argument(path) for path in changed]
    if len(json.dumps(only)) > NAMES:
        changed = files
    bar = place.progress(context, args.source, sum(there[path].size for path in changed))
    writer = TreeWriter(
        target, _anything, delete=args.delete, dry_run=args.dry_run, bits=transfer.BITS
    )
    end = Packer.end()
    held = b""

    def piece(_: str, data: bytes) -> None:
        bar.add(len(data))
        nonlocal held
        held += data
        ready, held = held[: -len(end)], held[-len(end) :]
        writer.feed(ready)

    # an empty list means all of them; no name is that of the one
    only = [] if len(changed) == len(files) else only or ["\x01"]
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
        for path in gone(there.values(), here.values()) if args.delete else ():
            writer.feed(Packer.header(Entry(path, gone=True)))
        writer.feed(held)
        counts = writer.close()
    finally:
        writer.abort()
        bar.end()
    counts.unchanged = len(files) - len(changed)
    return _counted(counts)


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


#: what an answer leaves out where there is none
_NOTHING: dict[str, Any] = {
    "files": 0,
    "dirs": 0,
    "links": 0,
    "bytes": 0,
    "deleted": 0,
    "unchanged": 0,
    "skipped": [],
}


def _report(value: dict[str, Any], context: Context) -> int:
    from handoff.cli.terminal import safe_line, size

    skipped = value.get("skipped", [])
    if not context.human:
        context.emit({**_NOTHING, **value})
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

"""``handoff nodes read | write | ls``: single files of nodes."""

from __future__ import annotations

import os
import sys

from handoff.cli import nodes_place as place
from handoff.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

CHUNK = 1 << 18


_MODE = "handoff nodes write NODE PATH --mode 644"


def _length(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        import argparse

        raise argparse.ArgumentTypeError(f"'{text}' is no number of bytes")
    return int(text)


def parser(name: str) -> Parser:
    """The verb's own flags."""
    about, examples = {
        "read": (
            (
                "A file's bytes on standard output, exactly. --json describes it and gives its bytes\n"
                "as text, or as base64 where they are none."
            ),
            "  handoff nodes read lab /etc/hostname\n  handoff nodes read lab big.log --offset=-4096",
        ),
        "write": (
            "Standard input as a file: whole or not at all.",
            (
                "  handoff nodes write lab /srv/app/x <x\n"
                "  handoff nodes write lab notes.txt --append <more"
            ),
        ),
        "ls": ("A folder's names.", "  handoff nodes ls lab /srv/app"),
    }[name]
    made = place.parser(name, about, examples=examples)
    made.add_argument("node", help="the node")
    made.add_argument("path", help="on the node; ~ is its home")
    if name == "read":
        made.add_argument("--offset", type=int, default=0, help="first byte; below 0 from the end")
        made.add_argument("--length", type=_length, default=-1, help="how many bytes")
    if name == "write":
        made.add_argument("--create", action="store_true", help="fail if it exists")
        made.add_argument("--append", action="store_true", help="add to its end")
        made.add_argument("--if-match", default="", help="etag or SHA-256 that it must have")
        made.add_argument("--mode", default="", help="permission bits, as 644")
        made.add_argument("--parents", action="store_true", help="make the folders above it")
    return made


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    return {"read": _read, "write": _write, "ls": _ls}[name](args, context)


def _read(args: Namespace, context: Context) -> int:
    brain = place.client(args)
    given: dict[str, Any] = {"path": place.argument(args.path), "length": args.length}
    given["offset"] = args.offset
    if args.offset < 0:
        ok, value = brain.call(args.node, "stat", {"path": given["path"]}, by=place.by())
        if not ok:
            raise place.failed(value)
        given["offset"] = max(0, value.get("size", 0) + args.offset)
    if context.json_wanted:
        ok, value = brain.call(args.node, "read", given, by=place.by())
        if not ok:
            raise place.failed(value)
        context.emit(value)
        return 0
    sys.stdout.flush()

    def piece(_: str, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]

    ok, value = brain.call(
        args.node, "read", {**given, "stream": True}, by=place.by(), pieces=piece
    )
    if not ok:
        raise place.failed(value)
    return 0


def _write(args: Namespace, context: Context) -> int:
    from handoff.nodes.client import new_key

    if args.create and args.append:
        raise UsageError("--create and --append exclude each other", remedy="give one")
    mode = "append" if args.append else "create" if args.create else "overwrite"
    given: dict[str, Any] = {"path": place.argument(args.path), "mode": mode, "stream": True}
    if args.if_match:
        given["if_match"] = args.if_match
    if args.parents:
        given["parents"] = True
    if args.mode:
        if not (args.mode.isascii() and args.mode.isdigit() and len(args.mode) <= 4):
            raise UsageError(f"--mode {args.mode}: write it as 644", remedy=_MODE)
        try:
            given["permissions"] = int(args.mode, 8)
        except ValueError as error:
            raise UsageError(f"--mode {args.mode}: write it as 644", remedy=_MODE) from error
    bar = place.progress(context, args.path, 0)

    def feed() -> Iterator[bytes]:
        while data := os.read(0, CHUNK):
            yield data
            bar.add(len(data))

    try:
        ok, value = place.client(args).call(
            args.node, "write", given, key=new_key(), by=place.by(), feed=feed()
        )
    finally:
        bar.end()
    if not ok:
        raise place.failed(value)
    if not context.human:
        context.emit(value)
    return 0


def _ls(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line, size

    brain = place.client(args)
    after: Any = ""
    while True:
        given = {"path": place.argument(args.path), "limit": 5000}
        if after:
            given["after"] = after
        ok, value = brain.call(args.node, "list", given, by=place.by())
        if not ok:
            raise place.failed(value)
        for one in value.get("entries", []):
            if not context.human:
                context.emit(one)
                continue
            name = place.text_of(one["path"]).decode("utf-8", "surrogateescape")
            target = one.get("target")
            arrow = f" -> {safe_line(place.text_of(target).decode(errors='replace'))}"
            arrow = arrow if target else ""
            mark = "/" if one.get("kind") == "dir" else ""
            bits = f"{one.get('permissions', 0):04o}"
            context.show(f"{bits} {size(one.get('size', 0)):>9} {safe_line(name)}{mark}{arrow}")
        after = value.get("after")
        if not after:
            return 0

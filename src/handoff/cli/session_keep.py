"""``handoff session export | import | bind | prune | purge``."""

from __future__ import annotations

from handoff.cli import session_place as place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser


def parser(name: str) -> Parser:
    """The verb's own flags."""
    return {
        "export": _export_flags,
        "import": _import_flags,
        "bind": _bind_flags,
        "prune": _prune_flags,
        "purge": _purge_flags,
    }[name]()


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    return {
        "export": _export,
        "import": _import,
        "bind": _bind,
        "prune": _prune,
        "purge": _purge,
    }[name](args, context)


def _export_flags() -> Parser:
    made = place.parser(
        "export",
        "Write a record into one new file for another machine. Strict redaction runs first;\n"
        "the report says what leaves this machine and what stays.",
        examples="  handoff session export REF\n  handoff session export REF /tmp/record.handoff",
    )
    made.add_argument("ref", help="the record, whole, as it was printed")
    made.add_argument("file", nargs="?", default="", help="the new file (default: ID.handoff here)")
    made.add_argument("--dry-run", action="store_true", help="only the report")
    return made


def _export(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line, size
    from handoff.sessions.service import Caller

    given = {"ref": args.ref}
    if not args.dry_run:
        name = args.file or args.ref.rpartition("/")[2] + ".handoff"
        given["path"] = place.absolute(name)
    reply = place.service(args).call("export", given, Caller("cli"))
    if not context.human:
        context.emit(reply)
        return 0
    report = reply["report"]
    where = safe_line(reply["path"]) or "(not written)"
    context.show(f"{where}  {size(reply['bytes'])}  {reply['ref']}")
    if reply["derived_from"]:
        context.show(f"  strict redaction changed it; the record here is {reply['derived_from']}")
    for kind, number in report["redacted"].items():
        context.show(f"  redacted: {number} × {kind}")
    context.show("  leaves: " + ", ".join(one["name"] for one in report["members"]))
    context.show("  stays:  " + "; ".join(report["stays"]))
    return 0


def _import_flags() -> Parser:
    made = place.parser(
        "import",
        "Take in a file that `export` has written, or what the formats before it hold: a state\n"
        "of version 1 (JSON), a Markdown document, or a folder with document.md and manifest.json\n"
        "of session-handoff. Everything in it is checked first.",
        examples="  handoff session import /tmp/record.handoff\n"
        "  handoff session import old-handoff.md --workspace .",
    )
    made.add_argument("file", help="the file, or the folder")
    made.add_argument(
        "--workspace",
        metavar="DIR",
        default="",
        help="whose project it belongs to (a state or a document of version 1 does not say)",
    )
    return made


def _import(args: Namespace, context: Context) -> int:
    from handoff.sessions.service import Caller

    given = {"path": place.absolute(args.file)}
    if args.workspace:
        given["workspace"] = place.workspace(args)
    reply = place.service(args).call("import", given, Caller("cli"))
    if not context.human:
        context.emit(reply)
        return 0
    context.show(reply["ref"] + ("" if reply["fresh"] else " (it was here already)"))
    for kind, number in reply["redactions"].items():
        context.show(f"  redacted: {number} × {kind}")
    context.show(f"  {reply['note']}")
    return 0


def _bind_flags() -> Parser:
    made = place.parser(
        "bind",
        "Say that a folder belongs to a project, such as one whose records were imported.\n"
        "It is never guessed.",
        examples="  handoff session bind PROJECT --workspace .",
    )
    made.add_argument("project", help="the first part of its refs, after handoff://")
    made.add_argument("--workspace", metavar="DIR", default="", help="the folder")
    made.add_argument("--replace", action="store_true", help="although it belongs to another one")
    return made


def _bind(args: Namespace, context: Context) -> int:
    from handoff.sessions.service import Caller

    place.no_agent()
    given = {"project_id": args.project, "workspace": place.workspace(args)}
    if args.replace:
        given["replace"] = True
    reply = place.service(args).call("bind", given, Caller("cli"))
    if not context.human:
        context.emit(reply)
        return 0
    before = f" (it belonged to {reply['previous']})" if reply["previous"] else ""
    context.show(f"the folder belongs to {reply['project_id']}{before}")
    return 0


def _prune_flags() -> Parser:
    from handoff.cli.parsing import duration

    made = place.parser(
        "prune",
        "Remove records that are older than a time and that no attempt needs. Ids and digests\n"
        "stay, so that a ref still tells what became of it.",
        examples="  handoff session prune --older-than 90d --keep-last 5 --dry-run",
    )
    made.add_argument(
        "--older-than", metavar="TIME", type=duration, required=True, help="such as 90d"
    )
    made.add_argument("--keep-last", metavar="N", type=int, default=0, help="of each project")
    made.add_argument("--dry-run", action="store_true", help="only say which")
    return made


def _prune(args: Namespace, context: Context) -> int:
    from handoff.sessions.service import Caller

    if not args.dry_run:
        place.no_agent()
    given = {
        "older_than": int(args.older_than),
        "keep_last": args.keep_last,
        "dry_run": args.dry_run,
    }
    reply = place.service(args).call("prune", given, Caller("cli"))
    if not context.human:
        context.emit(reply)
        return 0
    word = "would remove" if args.dry_run else "removed"
    for ref in reply["removed"]:
        context.show(f"{word} {ref}")
    for ref in reply["in_use"]:
        context.show(f"kept {ref}: an attempt needs it")
    for ref in reply["damaged"]:
        context.show(f"kept {ref}: damaged; look at it, then: handoff session purge {ref}")
    if not reply["removed"]:
        context.show("nothing to remove")
    return 0


def _purge_flags() -> Parser:
    made = place.parser(
        "purge",
        "Remove one record, damaged or not. Its id and digests stay.",
        examples="  handoff session purge REF",
    )
    made.add_argument("ref", help="the record, whole, as it was printed")
    return made


def _purge(args: Namespace, context: Context) -> int:
    from handoff.sessions.service import Caller

    place.no_agent()
    reply = place.service(args).call("purge", {"ref": args.ref}, Caller("cli"))
    if not context.human:
        context.emit(reply)
        return 0
    context.show(f"removed {reply['ref']}")
    return 0

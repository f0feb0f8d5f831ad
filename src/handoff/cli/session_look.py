"""``handoff session list | search | show | read | log | validate | verify``."""

from __future__ import annotations

from handoff.cli import session_place as place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser


def parser(name: str) -> Parser:
    """The verb's own flags."""
    made: Parser = {
        "list": _list_flags,
        "search": _search_flags,
        "show": _show_flags,
        "read": _read_flags,
        "log": _ref_flags,
        "validate": _ref_flags,
        "verify": _ref_flags,
    }[name](name)
    return made


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    return {
        "list": _list,
        "search": _list,
        "show": _show,
        "read": _read,
        "log": _log,
        "validate": _validate,
        "verify": _verify,
    }[name](args, context)


def _list_flags(_name: str) -> Parser:
    made = place.parser(
        "list",
        "List records, newest first: all of the profile, or of one project.",
        examples="  handoff session list\n  handoff session list --workspace . --limit 5",
    )
    made.add_argument("--source", metavar="ID", default="", help="of this source session only")
    return _paging(made)


def _search_flags(_name: str) -> Parser:
    made = place.parser(
        "search",
        "Find the records whose document or name holds a text, whatever its case.",
        examples="  handoff session search 'public API'",
    )
    made.add_argument("query", help="1 to 512 bytes of text")
    return _paging(made)


def _paging(made: Parser) -> Parser:
    from handoff.cli.parsing import count

    made.add_argument("--workspace", metavar="DIR", default="", help="of this folder's project")
    made.add_argument("--limit", metavar="N", type=count, default=20, help="on a page (20)")
    made.add_argument("--cursor", metavar="WORD", default="", help="of the page before")
    return made


def _list(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line, table
    from handoff.sessions.service import Caller

    folder = place.workspace(args, need=False)
    action = "search" if hasattr(args, "query") else "list"
    given: dict[str, Any] = {"limit": args.limit}
    more = (
        ("query", getattr(args, "query", "")),
        ("session", getattr(args, "source", "")),
        ("workspace", folder),
        ("cursor", args.cursor),
    )
    given |= {key: value for key, value in more if value}
    reply = place.service(args, folder).call(action, given, Caller("cli"))
    if not context.human:
        context.emit(reply)
        return 0
    rows = []
    for one in reply["records"]:
        goal = f"damaged: {one['damaged']}" if one.get("damaged") else one["goal"]
        rows.append([place.when(one["created_at"]), one["ref"], one["host"], safe_line(goal)])
    context.show(table(("MADE", "REF", "FROM", "GOAL"), rows) if rows else "no records")
    for one in reply["records"]:
        for line in one.get("snippets", []):
            context.show(f"  {one['ref'][-8:]}  {safe_line(line)}")
    if reply["cursor"]:
        context.show(f"  {reply['total']} in all; more: --cursor {reply['cursor']}")
    return 0


def _show_flags(_name: str) -> Parser:
    made = place.parser(
        "show",
        "Show one record: its document; with --json its state, manifest and all else.",
        examples="  handoff session show REF\n  handoff session show REF --json",
    )
    made.add_argument("ref", help="the record, whole, as it was printed")
    made.add_argument("--workspace", metavar="DIR", default="", help="compare with this folder")
    made.add_argument(
        "--budget", metavar="BYTES", type=int, default=None, help="shorten the document to this"
    )
    made.add_argument(
        "--state", action="store_true", help="only the state, as `create` takes it (JSON)"
    )
    return made


def _show(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import is_tty, safe
    from handoff.sessions.service import Caller

    folder = place.workspace(args, need=False)
    given: dict[str, Any] = {"ref": args.ref}
    if folder:
        given["workspace"] = folder
    if args.budget is not None:
        given["budget"] = args.budget
    reply = place.service(args, folder).call("show", given, Caller("cli"))
    if args.state or context.json_wanted:
        context.emit(reply["state"] if args.state else reply)
        return 0
    import sys

    text = reply["document"]
    context.show(safe(text) if is_tty(sys.stdout) else text)
    if context.human:
        source = reply["manifest"]["source"]
        context.show(f"{reply['ref']}  {reply['verdict']}")
        context.show(
            f"  made {place.when(reply['manifest']['created_at'])} in session "
            f"{safe(source['session_id'])} of {safe(source['host'])}, profile {source['profile_id']}"
        )
        place.show_findings(context, reply)
    return 0


def _read_flags(_name: str) -> Parser:
    from handoff.cli.parsing import count

    made = place.parser(
        "read",
        "Read a record page by page, with what has changed since. With --attempt-id it counts\n"
        "for that attempt, if this is the session that the attempt has opened.",
        examples="  handoff session read REF --workspace .\n"
        "  handoff session read REF --workspace /srv/app --attempt-id a-0001 --page 2",
        source=True,
    )
    made.add_argument("ref", help="the record, whole, as it was printed")
    made.add_argument("--workspace", metavar="DIR", default="", help="compare with this folder")
    made.add_argument("--attempt-id", metavar="ID", default="", help="the attempt it counts for")
    made.add_argument("--page", metavar="N", type=count, default=1, help="from 1")
    return made


def _read(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import is_tty, safe, shell_quote

    folder = place.workspace(args, need=False)
    given: dict[str, Any] = {"ref": args.ref, "page": args.page}
    if folder:
        given["workspace"] = folder
    if args.attempt_id:
        given["attempt_id"] = args.attempt_id
    reply = place.service(args, folder).call("read", given, _reader(args))
    if context.json_wanted:
        context.emit(reply)
        return 0
    import sys

    terminal = is_tty(sys.stdout)
    context.show(safe(reply["content"]) if terminal else reply["content"])
    context.show(f"page {reply['page']} of {reply['pages']}; digest {reply['document_sha256']}")
    if reply["next_page"]:
        words = ["handoff", "session", "read", args.ref, "--page", str(reply["next_page"])]
        for flag, value in (
            ("--profile", args.profile),
            ("--workspace", folder),
            ("--attempt-id", args.attempt_id),
        ):
            words += [flag, value] if value else []
        context.show("next: " + " ".join(map(shell_quote, words)))
    context.show("constraints: " + (", ".join(reply["constraint_ids"]) or "none"))
    if args.attempt_id:
        context.show("codes to acknowledge: " + (", ".join(reply["required_codes"]) or "none"))
        context.show("counts: yes" if reply["counts"] else f"counts: no, {reply['why_not']}")
    else:
        place.show_findings(context, reply)
    return 0


def _reader(args: Namespace) -> Any:
    """Who reads. An agent that names no session is known by its process, if at all."""
    from handoff.sessions.service import Caller

    caller = place.caller(args)
    return Caller("cli") if caller.session_id == place.UNIDENTIFIED else caller


def _ref_flags(name: str) -> Parser:
    about = {
        "log": "Show a record's ancestors, children, newer records and attempts.",
        "validate": "Check a record's integrity, and list what could be better in it.",
        "verify": "Check one record, or all of them and the opening journal. Exit 1 on a fault.",
    }[name]
    example = "handoff session verify" if name == "verify" else f"handoff session {name} REF"
    made = place.parser(name, about, examples=f"  {example}")
    if name == "verify":
        made.add_argument("ref", nargs="?", default="", help="the record; without: all")
    else:
        made.add_argument("ref", help="the record, whole, as it was printed")
    return made


def _log(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line
    from handoff.sessions.service import Caller

    reply = place.service(args).call("log", {"ref": args.ref}, Caller("cli"))
    if not context.human:
        context.emit(reply)
        return 0
    for one in reversed(reply["ancestors"]):
        known = place.when(one["created_at"]) if one["known"] else "not in this store"
        context.show(f"  {one['ref']}  {known}")
    context.show(f"* {reply['ref']}")
    for ref in reply["children"]:
        context.show(f"  child {ref}")
    for ref in reply["newer"]:
        if ref not in reply["children"]:
            context.show(f"  newer {ref}")
    if reply["attempts_unknown"]:
        context.show(f"  attempts can't be told: {safe_line(reply['attempts_unknown'])}")
    for one in reply["attempts"]:
        context.show(f"  attempt {one['attempt_id']}: {one['state']}, {one['certainty']}")
    for one in reply["deliveries"]:
        context.show(f"  {place.delivery(one)}")
    return 0


def _validate(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line
    from handoff.sessions.service import Caller

    reply = place.service(args).call("validate", {"ref": args.ref}, Caller("cli"))
    if not context.human:
        context.emit(reply)
        return 0 if reply["valid"] else 1
    context.show("whole" if reply["valid"] else "DAMAGED")
    for one in reply["faults"]:
        context.show(f"  {one['code']}: {safe_line(one['message'])}")
    for one in reply["lint"]:
        context.show(f"  {one['code']} {one['pointer']}: {safe_line(one['message'])}")
    return 0 if reply["valid"] else 1


def _verify(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line
    from handoff.sessions.service import Caller

    given = {"ref": args.ref} if args.ref else {}
    service = place.service(args)
    service.progress = place.Progress("verified")
    reply = service.call("verify", given, Caller("cli"))
    if not context.human:
        context.emit(reply)
        return 1 if reply["faults"] else 0
    for one in reply["faults"]:
        context.show(f"{one['ref'] or 'journal'}: {one['code']}: {safe_line(one['message'])}")
    journal = reply["journal"]
    events = f"{journal['events']} events" if journal else "damaged"
    context.show(
        f"records: {reply['records']}, faults: {len(reply['faults'])}; opening journal: {events}"
    )
    return 1 if reply["faults"] else 0

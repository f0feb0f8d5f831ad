"""``handoff session create | evidence | sweep``."""

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
    return {"create": _create_flags, "evidence": _evidence_flags, "sweep": _sweep_flags}[name]()


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    return {"create": _create, "evidence": _evidence, "sweep": _sweep}[name](args, context)


def _create_flags() -> Parser:
    made = place.parser(
        "create",
        "Publish an immutable record from a state (JSON of schema handoff-state/2, or 1).\n"
        "Secrets are taken out first. The same request, or the same content, is the same record.",
        examples="  handoff session create --workspace . state.json\n"
        "  handoff session create --workspace /srv/app --request-id case-0001 - < state.json\n"
        "  handoff session create --dry-run state.json",
        source=True,
    )
    made.add_argument("state", nargs="?", default="-", help="file; `-` reads standard input")
    made.add_argument("--workspace", metavar="DIR", default="", help="the project's folder")
    made.add_argument(
        "--request-id", metavar="ID", default="", help="stable over retries (default: of the state)"
    )
    made.add_argument("--name", default="", help="name for display")
    made.add_argument("--parent", metavar="REF", default="", help="the record that this follows")
    made.add_argument("--attribution", metavar="TOKEN", default="", help="of another writer")
    made.add_argument("--dry-run", action="store_true", help="show it, store nothing")
    made.add_argument("--strict", action="store_true", help="refuse where the lint would warn")
    made.add_argument(
        "--allow-stale",
        action="store_true",
        help="also if the session has done nothing since its own handoff",
    )
    return made


def _create(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import shell_quote
    from handoff.sessions.canonical import MAX_INPUT

    data = place.read_input(args.state, MAX_INPUT)
    folder = place.workspace(args)
    service = place.service(args, folder)
    given: dict[str, Any] = {
        "state": _text(data),
        "workspace": folder,
        "request_id": args.request_id or _request_id(data, folder),
    }
    more = (
        ("name", args.name),
        ("parent_ref", args.parent),
        ("attribution", args.attribution),
        ("dry_run", args.dry_run),
        ("strict", args.strict),
        ("allow_stale", args.allow_stale),
    )
    given |= {key: value for key, value in more if value}
    caller = place.source(args)
    reply = service.call("create", given, caller)
    if caller.session_id == place.UNIDENTIFIED:
        reply["warnings"].append(
            {
                "pointer": "",
                "code": "source",
                "message": f"{caller.host} does not say which of its sessions this is, so that "
                "nothing of the session could be looked at",
            }
        )
    if not context.human:
        context.emit(reply)
        return 0
    _show_created(reply, context)
    if reply["published"]:
        words = ["handoff", "session", "prepare", reply["ref"]]
        words += ["--profile", args.profile] if args.profile else []
        words += ["--workspace", folder] if args.workspace else []
        words += ["--host", "codex"] if service.profile.own and not caller.session_id else []
        context.show("  " + " ".join(map(shell_quote, words)))
    return 0


def _text(data: bytes) -> str:
    """The input as text; what is no UTF-8 is refused by the strict reader with its place."""
    from handoff.errors import InputTooLarge
    from handoff.sessions import canonical

    if len(data) > canonical.MAX_INPUT:
        raise InputTooLarge(
            f"a state is read up to {canonical.MAX_INPUT} bytes",
            remedy="hand over what matters, not the transcript",
            limit=canonical.MAX_INPUT,
        )
    canonical.loads(data)
    return data.decode()


def _request_id(data: bytes, folder: str) -> str:
    """The same input for the same folder is the same intent."""
    import hashlib
    import os

    return "state-" + hashlib.sha256(os.fsencode(folder) + b"\0" + data).hexdigest()[:32]


def _show_created(reply: dict[str, Any], context: Context) -> None:
    from handoff.cli.terminal import safe, safe_line

    if not reply["published"]:
        context.show(safe(reply["document"]))
        context.show("not stored (--dry-run)")
    else:
        again = " (it was there already)" if reply["idempotent"] or reply["deduplicated"] else ""
        context.show(f"{reply['ref']}{again}")
    for kind, number in reply["redactions"].items():
        context.show(f"  redacted: {number} × {kind}")
    for one in (*reply["changes"], *reply["warnings"]):
        context.show(f"  {one['pointer'] or '/'}: {one['code']}: {safe_line(one['message'])}")
    place.show_findings(context, {"dropped": reply["dropped"]})


def _evidence_flags() -> Parser:
    made = place.parser(
        "evidence",
        "Gather what a state can be held against: rules that the user stated, the last\n"
        "messages, git's facts. Redacted and bounded; nothing is stored.",
        examples="  handoff session evidence --workspace . --json",
        source=True,
    )
    made.add_argument("--workspace", metavar="DIR", default="", help="the project's folder")
    made.add_argument(
        "--path", metavar="FILE", action="append", default=[], help="a file to look at, relative"
    )
    return made


def _evidence(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line

    folder = place.workspace(args)
    given = {"workspace": folder, **({"paths": args.path} if args.path else {})}
    reply = place.service(args, folder).call("evidence", given, place.source(args))
    if not context.human:
        context.emit(reply)
        return 0
    context.show(f"session {safe_line(reply['session'])}: {len(reply['messages'])} messages")
    for one in reply["candidates"]:
        context.show(f"  rule? [{safe_line(str(one['id']))}] {safe_line(one['text'])}")
    git = reply["facts"].get("git", {})
    if git:
        changed = git.get("changed_total", "unknown")
        context.show(f"  git: {git['branch']} {git['head'][:10]}, {changed} changed files")
    for note in reply["notes"]:
        context.show(f"  {safe_line(note)}")
    return 0


def _sweep_flags() -> Parser:
    made = place.parser(
        "sweep",
        "Make drafts of sessions that have rested, have changed something, and were never\n"
        "handed off. No model is asked, nothing is opened.",
        examples="  handoff session sweep --host hermes --idle 12h --dry-run",
    )
    from handoff.cli.parsing import duration

    made.add_argument(
        "--idle", metavar="TIME", type=duration, default=6 * 3600.0, help="rested for (6h)"
    )
    made.add_argument("--dry-run", action="store_true", help="only say which")
    return made


def _sweep(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line
    from handoff.sessions.service import Caller

    given = {"idle": int(args.idle), "dry_run": args.dry_run}
    reply = place.service(args, host=args.host).call("sweep", given, Caller("cli", host=args.host))
    if not context.human:
        context.emit(reply)
        return 0
    for one in reply["drafts"]:
        context.show(f"{one.get('ref', 'would be drafted')}  session {safe_line(one['session'])}")
    for one in reply["skipped"]:
        context.show(f"skipped  session {safe_line(one['session'])}: {safe_line(one['why'])}")
    if not reply["drafts"] and not reply["skipped"]:
        context.show("every session that has rested is handed off")
    return 0

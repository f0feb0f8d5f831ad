"""``handoff session status | confirm | recover | abandon``."""

from __future__ import annotations

from handoff.cli import session_place as place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser
    from handoff.sessions.service import Service


def parser(name: str) -> Parser:
    """The verb's own flags."""
    return {
        "status": _status_flags,
        "confirm": _confirm_flags,
        "recover": _recover_flags,
        "abandon": _abandon_flags,
    }[name]()


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    return {
        "status": _status,
        "confirm": _confirm,
        "recover": _recover,
        "abandon": _abandon,
    }[name](args, context)


def _status_flags() -> Parser:
    made = place.parser(
        "status",
        "Show what is known of one attempt, of all attempts of a record, or of all.",
        examples="  handoff session status\n  handoff session status a-0001",
    )
    made.add_argument("what", nargs="?", default="", help="an attempt's id, or a record's ref")
    return made


def _status(args: Namespace, context: Context) -> int:
    from handoff.sessions.service import Caller

    service = place.service(args)
    given: dict[str, Any] = {}
    if args.what.startswith("handoff:"):
        given["ref"] = args.what
    elif args.what:
        given["attempt_id"] = place.attempt(service, args.what)
    reply = service.call("opening_status", given, Caller("cli"))
    if not context.human:
        context.emit(reply)
        return 0
    found = reply.get("attempts", [reply])
    for one in found:
        _show_status(one, context)
    for one in reply.get("deliveries", []):
        context.show(place.delivery(one))
    if not found and not reply.get("deliveries"):
        context.show("no attempts")
    return 0


def _show_status(one: dict[str, Any], context: Context) -> None:
    from handoff.cli.terminal import colour, safe_line

    mark = "" if one["certainty"] == "certain" else "  " + colour("UNCERTAIN", "red", "bold")
    context.show(f"{one['attempt_id']}  {one['state']}{mark}  {one['ref']}")
    context.show(f"  {one['explain']}")
    session = one["destination"]["session_id"]
    if session:
        context.show(f"  session {safe_line(session)}")
    held = one["reservation"]
    if held:
        alive = {True: "lives", False: "is gone", None: "may live"}[held["owner_alive"]]
        context.show(f"  opener {held['owner']['pid']} {alive}, for {held['age_s']:.0f} s")
    for anomaly in one["anomalies"]:
        context.show(f"  odd: {safe_line(str(anomaly.get('what', anomaly)))}")
    if one["allowed_next"]:
        context.show("  next: " + ", ".join(one["allowed_next"]))


def _confirm_flags() -> Parser:
    made = place.parser(
        "confirm",
        "Confirm the new session, as a person at a terminal of their own.",
        examples="  handoff session confirm a-0001",
    )
    made.add_argument("attempt", help="the attempt's id")
    return made


def _confirm(args: Namespace, context: Context) -> int:
    service = place.service(args)
    return _settled(service, "confirm", {"attempt_id": args.attempt}, context)


def _abandon_flags() -> Parser:
    made = place.parser(
        "abandon",
        "Give an attempt up, as a person at a terminal of their own. Nothing is stopped by it.",
        examples="  handoff session abandon a-0001 --reason 'wrong folder'",
    )
    made.add_argument("attempt", help="the attempt's id")
    made.add_argument("--reason", metavar="TEXT", default="given up", help="why")
    made.add_argument(
        "--owner-is-gone", action="store_true", help="its opener was on another machine and is gone"
    )
    return made


def _abandon(args: Namespace, context: Context) -> int:
    given = {"attempt_id": args.attempt, "reason": args.reason}
    if args.owner_is_gone:
        given["owner_is_gone"] = True
    return _settled(place.service(args), "abandon", given, context)


def _settled(service: Service, action: str, given: dict[str, Any], context: Context) -> int:
    """What only a person does."""
    given["attempt_id"] = place.attempt(service, given["attempt_id"])
    service.journal.frozen(given["attempt_id"])  # no such attempt comes before who asks
    reply = service.call(action, given, place.person(service, given["attempt_id"]))
    if not context.human:
        context.emit(reply)
        return 0
    _show_status(reply, context)
    return 0


def _recover_flags() -> Parser:
    made = place.parser(
        "recover",
        "Show all that is known of an attempt, and what can be chosen. Nothing is chosen or\n"
        "started by itself; --adopt and --abandon are a person's, at a terminal of their own.",
        examples="  handoff session recover a-0001\n"
        "  handoff session recover a-0001 --adopt 20260131_120000_ab12cd\n"
        "  handoff session recover a-0001 --abandon 'it never came up'",
    )
    made.add_argument("attempt", help="the attempt's id")
    choice = made.add_mutually_exclusive_group()
    choice.add_argument("--adopt", metavar="SESSION", default="", help="this session came of it")
    choice.add_argument("--abandon", metavar="REASON", default="", help="none came of it")
    choice.add_argument("--show-prompt", action="store_true", help="print the opening prompt")
    made.add_argument(
        "--owner-is-gone", action="store_true", help="its opener was on another machine and is gone"
    )
    return made


def _recover(args: Namespace, context: Context) -> int:
    from handoff.sessions.service import Caller

    service = place.service(args)
    if args.adopt:
        given = {"attempt_id": args.attempt, "session": args.adopt}
        return _settled(service, "adopt", given, context)
    if args.abandon:
        given = {"attempt_id": args.attempt, "reason": args.abandon}
        if args.owner_is_gone:
            given["owner_is_gone"] = True
        return _settled(service, "abandon", given, context)
    attempt = place.attempt(service, args.attempt)
    reply = service.call("recover", {"attempt_id": attempt}, Caller("cli"))
    if args.show_prompt and not context.json_wanted:
        context.show(reply["prompt"])
    elif not context.human:
        context.emit(reply)
    else:
        _show_recovery(reply, context)
    return 0


def _show_recovery(reply: dict[str, Any], context: Context) -> None:
    from handoff.cli.terminal import safe_line

    _show_status(reply["status"], context)
    for one in reply["events"]:
        context.show(f"  {one['seq']:>3} {place.when(one['at'])}  {one['kind']}  {one['actor']}")
    child = reply["child"]
    if child:
        alive = {True: "lives", False: "is gone", None: "may live"}[child["alive"]]
        context.show(f"  program: process {child['pid']} {alive}")
    for one in reply["candidates"]:
        title = safe_line(str(one.get("title") or ""))
        context.show(
            f"  candidate: {one['session_id']}  {place.when(one.get('started', 0))}  "
            f"{one.get('messages', '?')} messages  {title}"
        )
    if reply["candidates_note"]:
        context.show(f"  {safe_line(reply['candidates_note'])}")
    if reply["mend_terminal"]:
        context.show(f"  if its terminal is spoilt: {reply['mend_terminal']}")
    context.show("choices:")
    for text in reply["choices"]:
        context.show(f"  {text}")
    for one in reply["commands"]:
        context.show(f"  {one['command']}")

"""``handoff session prepare | open | status | ack | confirm | recover | abandon``."""

from __future__ import annotations

import sys

from handoff.cli import session_place as place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser
    from handoff.sessions.opening import Outcome, Request
    from handoff.sessions.service import Service


def parser(name: str) -> Parser:
    """The verb's own flags."""
    return {
        "prepare": _prepare_flags,
        "open": _open_flags,
        "status": _status_flags,
        "ack": _ack_flags,
        "confirm": _confirm_flags,
        "recover": _recover_flags,
        "abandon": _abandon_flags,
    }[name]()


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    return {
        "prepare": _prepare,
        "open": _open,
        "status": _status,
        "ack": _ack,
        "confirm": _confirm,
        "recover": _recover,
        "abandon": _abandon,
    }[name](args, context)


def _prepare_flags() -> Parser:
    made = place.parser(
        "prepare",
        "Freeze one attempt to open a new session from a record. Everything that could forbid\n"
        "it is checked; nothing is started. Prints the command that opens it.",
        examples="  handoff session prepare REF --workspace . --host codex\n"
        "  handoff session prepare REF --workspace . -p bob --model M --provider P",
        source=True,
    )
    made.add_argument("ref", help="the record, whole, as it was printed")
    made.add_argument("--workspace", metavar="DIR", default="", help="where it opens")
    made.add_argument("--attempt-id", metavar="ID", default="", help="stable over retries")
    made.add_argument("--model", default="", help="model of the new session; with --provider")
    made.add_argument("--provider", default="", help="named provider; with --model")
    made.add_argument(
        "--surface", choices=("cli", "desktop", "any"), default="", help="where it may be opened"
    )
    made.add_argument("--locale", choices=("en", "it"), default="", help="of the opening prompt")
    made.add_argument("--allow-parallel", action="store_true", help="beside another attempt")
    made.add_argument("--supersedes", metavar="ID", default="", help="an ended attempt")
    return made


def _prepare(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line
    from handoff.clock import SystemClock

    folder = place.workspace(args)
    given: dict[str, Any] = {
        "ref": args.ref,
        "workspace": folder,
        "attempt_id": args.attempt_id or "a-" + SystemClock().new_id()[:13],
    }
    more = (
        ("model", args.model),
        ("provider", args.provider),
        ("surface", args.surface),
        ("host", args.host),
        ("locale", args.locale),
        ("supersedes", args.supersedes),
        ("allow_parallel", args.allow_parallel),
    )
    given |= {key: value for key, value in more if value}
    reply = place.service(args, folder).call("prepare_open", given, _asker(args))
    if not context.human:
        context.emit(reply)
        return 0
    route = reply["route"]
    model = f", model {safe_line(route['model'])}" if route["model"] else ""
    again = "" if reply["created"] else " (it was prepared so before)"
    context.show(f"attempt {reply['attempt_id']} for {reply['host']}{model}{again}")
    for one in reply["findings"]:
        if one["code"] not in {item["code"] for item in reply["discrepancies"]}:
            context.show(f"  {one['severity']:<5} {one['code']}: {safe_line(one['message'])}")
    place.show_findings(context, reply)
    context.show("in a terminal:")
    context.show(f"  {reply['command']}")
    return 0


def _asker(args: Namespace) -> Any:
    """Who asks. ``--host`` names the new session's program here, not the source's."""
    from argparse import Namespace

    return place.caller(Namespace(**{**vars(args), "host": ""}))


def _open_flags() -> Parser:
    made = place.parser(
        "open",
        "Open a prepared attempt in this terminal, once, and wait for the session's end.\n"
        "Exit: 0 the program ended normally, 3 refused, 4 opened already or under way, 5 it may\n"
        "run (recover), 6 the store, 7 nothing was started, 8 declined, 9 no terminal,\n"
        "10 the program ended badly. None of them says that the work went on.",
        examples="  handoff session open REF --workspace . --attempt-id a-0001\n"
        "  handoff session open REF",
    )
    made.add_argument("ref", help="the record, whole, as it was printed")
    made.add_argument("--workspace", metavar="DIR", default="", help="as it was prepared")
    made.add_argument(
        "--attempt-id", metavar="ID", default="", help="default: the one prepared attempt"
    )
    made.add_argument("--model", default="", help="as it was prepared; with --provider")
    made.add_argument("--provider", default="", help="as it was prepared; with --model")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--show-goal", action="store_true", help="show the record's goal as well")
    return made


def _open(args: Namespace, context: Context) -> int:
    from handoff.errors import HandoffError
    from handoff.sessions.opening import Outcome, exit_code

    try:
        service, request = _request(args)
        place.no_agent()
    except HandoffError as error:
        code = exit_code(error)
        return _report(Outcome(code, error=place.clean(error, args).to_json()), context)
    outcome = service.open(request, agree=lambda lines: _agree(lines, service, args))
    if outcome.error:
        told = service.records.guard.value(outcome.error).value
        told["remedy"] = place.remedy(str(told.get("remedy", "")), service.profile.name)
        outcome.error = told
    return _report(outcome, context)


def _request(args: Namespace) -> tuple[Service, Request]:
    """What to open. Without an attempt's id it is the only one that is prepared."""
    from handoff.errors import UsageError
    from handoff.sessions.actions import check
    from handoff.sessions.opening import Request

    check("show", {"ref": args.ref})
    attempt = args.attempt_id
    folder = place.workspace(args, need=False)
    service = place.service(args, folder)
    journal = service.journal
    if not attempt:
        found = [one for one in journal.attempts(args.ref) if _is_open(journal, one)]
        if len(found) != 1:
            service.records.raw(args.ref)
            many = ", ".join(found[:5]) or "none"
            raise UsageError(
                f"which attempt? prepared for this record: {many}",
                remedy=f"handoff session prepare {args.ref}" if not found else "give --attempt-id",
                attempts=found[:20],
            )
        attempt = found[0]
    frozen = journal.frozen(attempt)
    if not folder:
        folder = frozen["workspace_given"]
        service = place.service(args, folder)
    return service, Request(
        args.ref,
        attempt,
        folder,
        service.profile.name,
        args.model,
        args.provider,
        args.yes,
    )


def _is_open(journal: Any, attempt: str) -> bool:
    return bool(journal.history(attempt).state in ("prepared", "reserved"))


def _agree(lines: list[str], service: Service, args: Namespace) -> bool:
    """Show what will happen, and ask. Anything but a yes is a no."""
    from handoff.cli.terminal import safe_line

    if args.show_goal:
        record = service.records.read(args.ref)
        lines = [*lines, f"goal        {record.state['goal']['text']}"]
    for line in lines:
        print(f"  {safe_line(line)}")
    print("Open it? [y/N] ", end="", flush=True)
    answer = sys.stdin.readline()
    return answer.strip().casefold() in ("y", "yes")


def _report(outcome: Outcome, context: Context) -> int:
    """How it ended: one JSON object on standard error, or lines for a person."""
    import json

    from handoff.cli.terminal import safe_line

    told = outcome.to_json()
    if context.json_wanted:
        print(json.dumps(told, ensure_ascii=True), file=sys.stderr, flush=True)
        return outcome.exit
    error = outcome.error
    if error:
        context.say(f"handoff: {error['error']}")
        details = error.get("details")
        findings = details.get("findings", []) if isinstance(details, dict) else []
        for one in findings:
            context.say(f"  {one['severity']:<5} {one['code']}: {safe_line(one['message'])}")
        if error.get("remedy"):
            context.say(f"  try: {error['remedy']}")
    child, status = outcome.child, outcome.status
    if child:
        how = f"signal {child['signal']}" if child["signal"] else f"exit {child['code']}"
        context.say(f"the session's program has ended ({how}); that says nothing of the work")
    if status.get("state"):
        facts = ("requested", "session_identified", "handoff_read", "acknowledged")
        known = ", ".join(name for name in facts if status[name]) or "nothing was started"
        context.say(f"attempt {status['attempt_id']}: {status['state']} ({known})")
        if status["certainty"] == "uncertain":
            context.say(f"  {status['explain']}")
            context.say(f"  handoff session recover {status['attempt_id']}")
    if outcome.exit == 8:
        context.say("declined; nothing was started")
    return outcome.exit


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
    if not found:
        context.show("no attempts")
    return 0


def _show_status(one: dict[str, Any], context: Context) -> None:
    from handoff.cli.terminal import safe_line

    mark = "" if one["certainty"] == "certain" else "  UNCERTAIN"
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


def _ack_flags() -> Parser:
    made = place.parser(
        "ack",
        "Acknowledge, from within the new session, that all of a record was read: echo its\n"
        "digest, the ids of all constraints and the codes of what has changed.",
        examples="  handoff session ack REF --attempt-id a-0001 --digest SHA256 \\\n"
        "    --constraint c1,c2 --code head_moved --first-step 'run the tests'",
        source=True,
    )
    made.add_argument("ref", help="the record, whole, as it was printed")
    made.add_argument("--attempt-id", metavar="ID", required=True, help="the attempt")
    made.add_argument("--digest", metavar="SHA256", required=True, help="as `read` showed it")
    made.add_argument(
        "--constraint", metavar="ID", action="append", default=[], help="ids, also with commas"
    )
    made.add_argument(
        "--code", metavar="CODE", action="append", default=[], help="codes, also with commas"
    )
    made.add_argument("--first-step", metavar="TEXT", required=True, help="the one proposed step")
    made.add_argument("--workspace", metavar="DIR", default="", help="as it was prepared")
    return made


def _ack(args: Namespace, context: Context) -> int:
    folder = place.workspace(args, need=False)
    given = {
        "ref": args.ref,
        "attempt_id": args.attempt_id,
        "digest": args.digest,
        "constraint_ids": _split(args.constraint),
        "discrepancy_codes": _split(args.code),
        "first_step": args.first_step,
        **({"workspace": folder} if folder else {}),
    }
    from handoff.sessions.service import Caller

    caller = place.caller(args)
    who = Caller("cli") if caller.session_id == place.UNIDENTIFIED else caller
    reply = place.service(args, folder).call("ack", given, who)
    if not context.human:
        context.emit(reply)
        return 0
    context.show("acknowledged; now stop and wait for the person")
    return 0


def _split(words: list[str]) -> list[str]:
    return [part.strip() for word in words for part in word.split(",") if part.strip()]


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

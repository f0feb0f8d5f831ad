"""``handoff session prepare | open | ack``."""

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
        "ack": _ack_flags,
    }[name]()


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    return {
        "prepare": _prepare,
        "open": _open,
        "ack": _ack,
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
            context.show(place.finding(one))
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
    from handoff.errors import ProfileMismatch, UnknownAttempt, UsageError
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
    try:
        frozen = journal.frozen(attempt)
    except UnknownAttempt as error:
        other = place.elsewhere(error, service.profile.name)
        if not other:
            raise
        raise ProfileMismatch(
            f"attempt {attempt} belongs to profile '{other}', this is '{service.profile.name}'",
            remedy=f"give --profile {other}",
            profile=other,
        ) from error
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

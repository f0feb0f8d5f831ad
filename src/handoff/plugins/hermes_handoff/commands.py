"""What a person types: ``hermes handoff-open`` and its kin, and ``/hh`` in a chat.

These are for people. A model has no terminal of its own, and where its tools start programs
they carry its session's mark, by which these refuse.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from handoff.errors import ActorRefused, HandoffError

from .runtime import Runtime
from .wording import in_hermes

#: set by Hermes 0.22 at the start of each of its processes, if nothing else is set
_OWN_MARK = ("AI_AGENT", "hermes-agent")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.sessions.opening import Outcome
    from handoff.sessions.service import Service

__all__ = ["COMMANDS", "HELP", "Commands"]

#: what /hh answers. /handoff is the host's own: it moves this very session to another place
HELP = """\
Hand this session over to a new one:
1. Say: "Hand this session over" (skill hermes-handoff:handoff). It gathers evidence, stores a
   record, and prepares one opening. This session stays as it is.
2. Run the command that it shows, in another terminal, with the same HERMES_HOME:
   hermes --profile P handoff-open REF --workspace DIR --attempt-id ID
   It opens one new session, which reads the record, says what has changed, and waits for you.
3. hermes --profile P handoff-status ID     how far it has come
   hermes --profile P handoff-recover ID    what to do if it was cut off
   hermes --profile P handoff-confirm ID    that you have seen the new session go on
   hermes --profile P handoff-abandon ID --reason WHY"""


class Commands:
    """The handlers, by the name of their command."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def handler(self, method: str) -> Callable[[argparse.Namespace], int]:
        """What the host calls. Hermes 0.19 drops what a handler returns: a code that is not 0
        leaves as SystemExit."""
        run: Callable[[argparse.Namespace], int] = getattr(self, method)

        def handle(args: argparse.Namespace) -> int:
            code = run(args)
            if code:
                sys.stdout.flush()
                raise SystemExit(code)
            return code

        return handle

    def slash(self, _text: str = "", **_: Any) -> str:
        """``/hh``: how it is done."""
        return HELP

    def open(self, args: argparse.Namespace) -> int:
        """``handoff-open``: open a prepared attempt here, once."""
        from handoff.sessions.opening import Outcome, Request, exit_code

        profile = None
        try:
            service = self._runtime.service({"workspace": args.workspace})
            profile = service.profile
            _no_agent()
            request = Request(
                ref=args.ref,
                attempt_id=args.attempt_id,
                workspace=args.workspace,
                profile=service.profile.name,
                model=args.model or "",
                provider=args.provider or "",
                yes=args.yes,
            )
            outcome = service.open(request, agree=_agree)
        except HandoffError as error:
            outcome = Outcome(exit_code(error), error=error.to_json())
        if outcome.error and profile:
            outcome.error = in_hermes(outcome.error, profile)
        if args.json:
            print(json.dumps(outcome.to_json()), file=sys.stderr)
        else:
            _tell(outcome)
        return outcome.exit

    def facts(self, args: argparse.Namespace) -> int:
        """``handoff-facts``: what this profile allows, for ``handoff session`` outside of
        Hermes (:data:`handoff.sessions.hosts.FACTS`). Only looks; starts nothing."""
        from handoff.sessions.hosts import FACTS

        try:
            service = self._runtime.service({"workspace": args.workspace or ""})
        except HandoffError as error:
            print(json.dumps({FACTS: 0, "error": error.to_json()}))
            return error.exit_code
        host, errors = service.host, dict[str, str]()

        def ask(what: str, question: Callable[[], Any]) -> Any:
            try:
                return question()
            except HandoffError as error:
                errors[what] = error.cause
            except Exception as error:  # whatever the host's internals throw: not known
                errors[what] = type(error).__name__
            return None

        def tools(surface: str) -> Any:
            return ask(f"tools.{surface}", lambda: sorted(host.tools(surface)))

        named = ask("providers", lambda: [p for p in args.provider if host.provider_named(p)])
        version, verified = ask("version", host.version) or ("", False)
        told = {
            FACTS: 1,
            "profile": service.profile.name,
            "version": version,
            "verified": verified,
            "recipe": host.recipe,
            "tools": {surface: tools(surface) for surface in ("cli", "desktop")},
            "providers": named,
            "errors": errors,
        }
        print(json.dumps(told))
        return 0

    def status(self, args: argparse.Namespace) -> int:
        """``handoff-status``: how far an attempt has come."""
        return self._call("opening_status", {"attempt_id": args.attempt}, args)

    def confirm(self, args: argparse.Namespace) -> int:
        """``handoff-confirm``: a person has seen the new session."""
        return self._call("confirm", {"attempt_id": args.attempt}, args)

    def abandon(self, args: argparse.Namespace) -> int:
        """``handoff-abandon``: a person gives an attempt up."""
        given = {"attempt_id": args.attempt, "reason": args.reason}
        if args.owner_is_gone:
            given["owner_is_gone"] = True
        return self._call("abandon", given, args)

    def recover(self, args: argparse.Namespace) -> int:
        """``handoff-recover``: what is known of an attempt that was cut off, and the choices."""
        if args.adopt:
            return self._call("adopt", {"attempt_id": args.attempt, "session": args.adopt}, args)
        return self._call("recover", {"attempt_id": args.attempt}, args)

    def _call(self, action: str, given: Mapping[str, Any], args: argparse.Namespace) -> int:
        from handoff.sessions import retry
        from handoff.sessions.service import ACTIONS, Caller, reply

        try:
            service = self._runtime.service(given)
            name = ""
            if ACTIONS[action].writes:
                name = _person(service, args.attempt)
            answer = reply(service, action, given, Caller("cli", person=True, name=name))
            answer = in_hermes(answer, service.profile)
        except HandoffError as error:
            answer = retry.to_json(error, action)
        if args.json:
            print(json.dumps(answer))
        elif answer["ok"]:
            print("\n".join(_lines(answer)))
        else:
            _refusal(answer)
        return 0 if answer["ok"] else _code_of(answer)


def _person(service: Service, attempt: str) -> str:
    """The name of the person at this terminal.

    Raises:
        NotATerminal, ActorRefused: this is no person's terminal.
    """
    from handoff.sessions.recover import person
    from handoff.sessions.terminal import Terminal

    return person(service.journal, _before(), Terminal(), attempt).id


def _no_agent() -> None:
    """Refuse within an agent's session: what it starts in a terminal of its own is not what
    a person starts.

    Raises:
        ActorRefused: this is one.
    """
    from handoff.sessions.recover import AGENT_MARKS

    marks = [name for name in AGENT_MARKS if _before().get(name)]
    if marks:
        raise ActorRefused(
            f"this runs inside an agent's session ({', '.join(marks)} is set)",
            remedy="run it yourself in a terminal of your own",
        )


def _before() -> dict[str, str]:
    """The environment that this process was started with: Hermes 0.22 marks its own for what
    it will start, also where a person started it. Where the kernel does not tell, that mark is
    left out; in a session of the host others are there."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [os.fsdecode(one).partition("=") for one in file.read().split(b"\0")]
        return {name: value for name, _, value in pairs}
    except OSError:
        return {name: value for name, value in os.environ.items() if (name, value) != _OWN_MARK}


def _code_of(answer: Mapping[str, Any]) -> int:
    """The exit code of a refusal, as the opener's."""
    from handoff.errors import all_errors
    from handoff.sessions.opening import exit_code

    cls = all_errors().get(str(answer.get("code")))
    return exit_code(cls()) if cls else 1


def _agree(lines: list[str]) -> bool:
    print("\n".join(lines))
    try:
        return input("Open it? [y/N] ").strip().lower() in {"y", "yes"}
    except (EOFError, KeyboardInterrupt):
        print()
        return False


def _tell(outcome: Outcome) -> None:
    """What is known after an opening, for a person."""
    if outcome.error:
        _refusal(outcome.error)
    if not outcome.error and outcome.child is None:
        print("Nothing was opened.")
    if outcome.child is not None:
        code, number = outcome.child["code"], outcome.child["signal"]
        how = f"exit code {code}" if number is None else f"signal {number}"
        print(
            f"The new session's program has ended ({how}). That is no proof that the work went on."
        )
    if outcome.status.get("state"):
        print("\n".join(_lines(outcome.status)))


def _refusal(error: Mapping[str, Any]) -> None:
    message = error.get("message") or error.get("error") or ""
    print(f"handoff: {message} ({error.get('code')})", file=sys.stderr)
    details = error.get("details")
    for found in details.get("findings", []) if isinstance(details, Mapping) else []:
        print(f"  {found['severity']}: {found['code']}: {found['message']}", file=sys.stderr)
    if error.get("remedy"):
        print(f"  {error['remedy']}", file=sys.stderr)


#: facts that an attempt has come to, in their order
_FACTS = ("requested", "session_identified", "handoff_read", "acknowledged", "user_confirmed")


def _lines(answer: Mapping[str, Any]) -> list[str]:
    """An attempt's status, or all that recovery shows, as lines."""
    if answer.get("action") == "recover":
        return _recovery(answer)
    reached = [name for name in _FACTS if answer.get(name)]
    destination = answer.get("destination") or {}
    lines = [
        f"attempt   {answer.get('attempt_id')}",
        f"record    {answer.get('ref')}",
        f"state     {answer.get('state')} ({answer.get('certainty')})",
        f"reached   {', '.join(reached) or 'nothing'}",
    ]
    if destination.get("session_id"):
        lines.append(f"session   {destination['session_id']}")
    lines.append(f"next      {', '.join(answer.get('allowed_next') or []) or 'nothing'}")
    lines.append(str(answer.get("explain") or ""))
    return lines


def _recovery(answer: Mapping[str, Any]) -> list[str]:
    lines = _lines({**answer["status"], "action": "opening_status"})
    lines += ["events"]
    lines += [f"  {one['seq']:>4} {one['kind']} by {one['actor']}" for one in answer["events"]]
    lines += ["sessions that it may have made" if answer["candidates"] else "no session found"]
    for one in answer["candidates"]:
        shown = f"{one['messages']} messages, {one.get('title') or 'no title'}"
        lines.append(f"  {one['session_id']}  {shown}")
    lines += ["choices", *(f"  {one}" for one in answer["choices"])]
    lines += [f"  {one['command']}" for one in answer.get("commands", [])]
    if answer.get("mend_terminal"):
        lines.append(f"if a terminal was left spoilt: {answer['mend_terminal']}")
    return lines


def _open_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", help="the record, handoff://…/…")
    parser.add_argument("--workspace", required=True, metavar="DIR", help="absolute path")
    parser.add_argument("--attempt-id", required=True, metavar="ID", help="as it was prepared")
    parser.add_argument("--model", metavar="M", help="as it was prepared; only with --provider")
    parser.add_argument("--provider", metavar="P", help="as it was prepared; only with --model")
    parser.add_argument("--yes", action="store_true", help="don't ask")
    parser.add_argument("--json", action="store_true", help="the outcome as JSON, on stderr")


def _attempt_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("attempt", metavar="ID", help="the attempt's id")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def _abandon_arguments(parser: argparse.ArgumentParser) -> None:
    _attempt_arguments(parser)
    parser.add_argument("--reason", required=True, metavar="WHY")
    parser.add_argument(
        "--owner-is-gone",
        action="store_true",
        help="your word that its opener, on another machine, has ended",
    )


def _facts_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workspace", metavar="DIR", help="where a session would open")
    parser.add_argument("--provider", metavar="P", action="append", default=[], help="is it one?")


def _recover_arguments(parser: argparse.ArgumentParser) -> None:
    _attempt_arguments(parser)
    parser.add_argument("--adopt", metavar="SESSION", help="the session that it has made")


#: command -> what it does, its arguments, the method of :class:`Commands`
COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], str]] = {
    "handoff-open": ("Open a prepared handoff in this terminal, once", _open_arguments, "open"),
    "handoff-status": ("How far an opening has come", _attempt_arguments, "status"),
    "handoff-confirm": ("Confirm the new session", _attempt_arguments, "confirm"),
    "handoff-abandon": ("Give an opening up", _abandon_arguments, "abandon"),
    "handoff-facts": ("What this profile allows, as JSON", _facts_arguments, "facts"),
    "handoff-recover": ("Look into an opening that was cut off", _recover_arguments, "recover"),
}

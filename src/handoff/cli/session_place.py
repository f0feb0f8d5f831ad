"""What the verbs of ``handoff session`` share: whose store, who calls, how it is told."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS

from handoff.cli.parsing import Parser
from handoff.errors import ActorRefused, HandoffError, UsageError, WorkspaceMissing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import Any

    from handoff.cli.context import Context
    from handoff.sessions.service import Caller, Service

HOSTS = ("hermes", "claude", "codex", "opencode", "other")
#: the source where an agent runs this that does not say which of its sessions it is
UNIDENTIFIED = "unidentified"
#: set by agents that name no session to what they start
_SILENT = (("CLAUDECODE", "claude"), ("OPENCODE", "opencode"), ("AI_AGENT", "other"))


def parser(name: str, about: str, *, examples: str = "", source: bool = False) -> Parser:
    """A verb's parser. ``source``: the verb speaks for a session."""
    made = Parser(f"session {name}", about, examples=examples)
    for action in made._actions:
        if "--agentd" in action.option_strings or "--target" in action.option_strings:
            action.help = SUPPRESS  # sessions are of this machine
    made.add_argument(
        "-p",
        "--profile",
        metavar="NAME",
        default="",
        help="profile of Hermes, or 'handoff' for Handoff's own store",
    )
    made.add_argument(
        "--host",
        metavar="KIND",
        choices=HOSTS,
        default="",
        help="the agent: of the source, or (prepare) of the new session",
    )
    if source:
        made.add_argument(
            "--session",
            metavar="ID",
            default="",
            help="source session, if the surroundings do not name it",
        )
    return made


def workspace(args: Namespace, *, need: bool = True) -> str:
    """The absolute path of ``--workspace``; without one, of the current folder.

    Raises:
        WorkspaceMissing: the current folder is gone, and nothing else was given.
    """
    given = str(getattr(args, "workspace", "") or "")
    if not given and not need:
        return ""
    if os.path.isabs(given):
        return given
    return os.path.join(here(), given) if given not in ("", ".") else here()


def here() -> str:
    """The current folder.

    Raises:
        WorkspaceMissing: it was removed.
    """
    try:
        return os.getcwd()
    except OSError as error:
        raise WorkspaceMissing(
            "the current folder is gone", remedy="cd, or give --workspace with an absolute path"
        ) from error


def absolute(path: str) -> str:
    """A path as an absolute one."""
    path = os.path.expanduser(path)
    return path if os.path.isabs(path) else os.path.join(here(), path)


def service(args: Namespace, place: str = "", host: str | None = None) -> Service:
    """Sessions of the profile that the call means. ``place``: the workspace, if there is
    one; some of Hermes' policies depend on it. ``host``: of the source."""
    from handoff import places
    from handoff.sessions.hosts import adapters
    from handoff.sessions.profile import choose
    from handoff.sessions.service import Service

    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    profile = choose(os.environ, cwd, places.home_dir(), args.profile, args.host)
    kinds = adapters(profile, os.environ, place)
    own = "other" if profile.own else "hermes"
    return Service(profile, kinds(host or own), env=os.environ, hosts=kinds)


def caller(args: Namespace) -> Caller:
    """The session that this call speaks for: the one around it, or the one that was named.

    Raises:
        ActorRefused: another session was named than one around this call.
        UsageError: it is within several, and none was named.
    """
    from handoff.sessions.hosts import surrounding
    from handoff.sessions.service import Caller

    around = surrounding(os.environ)
    named = str(getattr(args, "session", "") or "")
    if named and not around:
        return Caller("cli", named, host=args.host)
    if named:
        around = [one for one in around if one[0] == named]
        if not around:
            raise ActorRefused(
                "this runs inside an agent's session and can't speak for another one",
                remedy="leave --session out, or run it outside of the agent",
            )
    if len(around) > 1:
        raise UsageError(
            "this runs inside sessions of " + " and ".join(kind for _, kind in around),
            remedy="say which with --session ID",
        )
    if around:
        return Caller("cli", around[0][0], host=around[0][1])
    silent = [agent for name, agent in _SILENT if os.environ.get(name)]
    return Caller("cli", UNIDENTIFIED, host=silent[0]) if silent else Caller("cli")


def source(args: Namespace) -> Caller:
    """As :func:`caller`, for a verb whose ``--host`` says which agent's session speaks.

    Raises:
        UsageError: it says so, and no such session is known.
    """
    found = caller(args)
    if args.host not in ("", "hermes", found.host):
        raise UsageError(
            f"--host {args.host} says whose session speaks, but no session of it is known",
            remedy=f"give --session ID --host {args.host}",
        )
    return found


def person(made: Service, attempt_id: str = "") -> Caller:
    """The person at this terminal.

    Raises:
        NotATerminal, ActorRefused: there is none, or this runs inside an agent's session.
    """
    from handoff.sessions import recover
    from handoff.sessions.service import Caller
    from handoff.sessions.terminal import Terminal

    who = recover.person(made.journal, os.environ, Terminal(), attempt_id)
    return Caller("cli", person=True, name=who.id)


def no_agent() -> None:
    """Refuse within an agent's session: to open a session, to bind a folder and to remove
    records is not a model's to do.

    Raises:
        ActorRefused: this is one.
    """
    from handoff.sessions.recover import AGENT_MARKS

    marks = [name for name in AGENT_MARKS if os.environ.get(name)]
    if marks:
        raise ActorRefused(
            f"this runs inside an agent's session ({', '.join(marks)} is set)",
            remedy="run it yourself in a terminal of your own",
        )


def guarded(
    run: Callable[[str, Namespace, Context], int], name: str, args: Namespace, context: Context
) -> int:
    """Run a verb. What it refuses is said without secrets, and with what may be retried."""
    if context.agentd or context.target:
        raise UsageError(
            "sessions are of this machine: --agentd and --target say nothing here",
            remedy=f"handoff session {name} --help",
        )
    try:
        return run(name, args, context)
    except HandoffError as error:
        if error.remedy.startswith("call "):
            error.remedy = f"handoff session {name} --help"
        told = clean(error, args)
        _each(told, context)
        raise told from error


def _each(error: HandoffError, context: Context) -> None:
    """All of several faults, a line each: the error's own line has the first."""
    from handoff.cli.terminal import safe_line

    faults = error.details.get("faults")
    if context.json_wanted or not isinstance(faults, list) or len(faults) < 2:
        return
    for one in faults:
        if isinstance(one, dict):
            where = str(one.get("pointer") or one.get("path") or "/")
            context.say(f"  {safe_line(where)}: {safe_line(str(one.get('message', '')))}")


def clean(error: HandoffError, args: Namespace) -> HandoffError:
    """The same error without secrets of the call in it, with ``retry``, and with a remedy
    that works as printed."""
    from handoff.sessions.guard import RedactorGuard
    from handoff.sessions.retry import retry_of

    name = ""
    try:
        made = service(args)
        guard, name = made.records.guard, made.profile.name
        other = elsewhere(error, name)
        if other:
            error.remedy = f"it is in profile '{other}': give --profile {other}"
    except HandoffError:
        guard = RedactorGuard(b"of a call that has no store")
    told = {"cause": error.cause, "remedy": error.remedy, "details": error.details}
    found = guard.value(told).value
    error.cause, error.details = found["cause"], found["details"]
    error.remedy = remedy(found["remedy"], name, args)
    for one in _findings(error):
        one["remedy"] = remedy(str(one.get("remedy", "")), name, args)
    error.args = (error.cause,)
    error.retry = retry_of(error)  # type: ignore[attr-defined]
    return error


def elsewhere(error: HandoffError, profile: str) -> str:
    """The profile that has the record or the attempt that this call's profile does not know:
    Handoff's own store, or one of Hermes. "" if none of these has it."""
    from handoff import places
    from handoff.errors import UnknownAttempt, UnknownRecord
    from handoff.sessions import profile as profiles

    wanted = error.details.get("ref" if isinstance(error, UnknownRecord) else "attempt_id")
    if not isinstance(error, UnknownRecord | UnknownAttempt) or not isinstance(wanted, str):
        return ""
    found = [profiles.own(places.home_dir())]
    try:
        top = profiles.resolve(os.environ, "").top
        found += [profiles.resolve(os.environ, "", one) for one in profiles.names(top)]
    except HandoffError:
        pass  # there is no Hermes here, or it can't be told
    for one in found:
        if one.name != profile and _knows(one.root, wanted):
            return one.name
    return ""


def _knows(root: str, wanted: str) -> bool:
    from handoff.clock import SystemClock
    from handoff.sessions import manifest, projects
    from handoff.sessions.journal_view import JournalView

    try:
        if wanted.startswith("handoff:"):
            return projects.has(root, manifest.parse_ref(wanted))
        return wanted in JournalView(root, clock=SystemClock(), redact=str).attempts()
    except HandoffError:
        return False


def _findings(error: HandoffError) -> list[dict[str, Any]]:
    found = error.details.get("findings")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def remedy(text: str, profile: str, args: Namespace | None = None) -> str:
    """A remedy of Sessions as a whole command, for the profile of the call, and in place of
    the call that was made (``args``)."""
    import re

    instead = re.match(r"prepare it with --supersedes ([A-Za-z0-9][\w.-]{7,63})", text)
    if instead and args is not None and hasattr(args, "supersedes"):
        return _superseding(instead[1], args, profile)
    found = re.fullmatch(
        r"(?:handoff session )?(recover|status|confirm|abandon) ([A-Za-z0-9][\w.-]{7,63})", text
    )
    if found is None:
        return text
    flag = f"--profile {profile} " if profile else ""
    return f"handoff session {found[1]} {flag}{found[2]}"


def _superseding(old: str, args: Namespace, profile: str) -> str:
    """The call to prepare that was made, but in the place of that attempt."""
    from handoff.cli.terminal import shell_quote

    words = ["handoff", "session", "prepare", args.ref]
    given = (
        ("--profile", profile),
        ("--workspace", args.workspace),
        ("--host", args.host),
        ("--session", args.session),
        ("--attempt-id", args.attempt_id),
        ("--model", args.model),
        ("--provider", args.provider),
        ("--surface", args.surface),
        ("--locale", args.locale),
        ("--supersedes", old),
    )
    words += [word for flag, value in given if value for word in (flag, value)]
    words += ["--allow-parallel"] if args.allow_parallel else []
    return " ".join(map(shell_quote, words))


def attempt(made: Service, given: str) -> str:
    """An attempt's id from the id itself, or from its beginning, four characters or more.

    Raises:
        AmbiguousId: several attempts begin so.
    """
    from handoff.errors import AmbiguousId

    if len(given) < 4:
        return given
    known = made.journal.attempts()
    found = [given] if given in known else [one for one in known if one.startswith(given)]
    if len(found) > 1:
        raise AmbiguousId(
            f"{len(found)} attempts begin with '{given}'",
            remedy="handoff session status",
            candidates=found[:20],
        )
    return found[0] if found else given


class Progress:
    """How far a long look has come, on a terminal's standard error; silent elsewhere."""

    def __init__(self, what: str) -> None:
        from handoff.cli.terminal import is_tty

        self._what, self._on, self._shown = what, is_tty(sys.stderr), False

    def __call__(self, done: int, of: int) -> None:
        """So many of so many."""
        if self._on and of >= 200 and (done % 50 == 0 or done == of):
            end = "\r\x1b[K" if done == of else ""
            print(f"\r{self._what}: {done} of {of}{end}", end="", file=sys.stderr, flush=True)


def read_input(path: str, limit: int) -> bytes:
    """A file's bytes, or standard input's for ``-``; at most ``limit`` and one more.

    Raises:
        UsageError: standard input is a terminal, or the file can't be read.
    """
    if path == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(
                "the state is read from a file, or from standard input by a pipe",
                remedy="handoff session create --help",
            )
        return sys.stdin.buffer.read(limit + 1)
    try:
        with open(path, "rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}", remedy="") from error


def when(milliseconds: int) -> str:
    """A time for people, local."""
    from handoff.cli.terminal import local_time
    from handoff.clock import iso

    return local_time(iso(milliseconds)) if milliseconds else "unknown"


def show_findings(context: Context, reply: dict[str, Any]) -> None:
    """What has changed, and which rules the state lost, for people."""
    from handoff.cli.terminal import safe_line

    for one in reply.get("discrepancies", []):
        context.show(finding(one))
    for text in reply.get("dropped", []):
        text = text["text"] if isinstance(text, dict) else text
        context.show(f"  {marked('lost')} a rule of the user: {safe_line(text)}")


def delivery(one: dict[str, Any]) -> str:
    """Where a record went without an opening, as a line."""
    from handoff.cli.terminal import safe_line

    to, came = one["to"], one["came_of_it"]
    where = f" on {to['target']}" if to.get("target") else ""
    what = f"a task{where}" if to.get("kind") == "task" else f"profile '{to.get('profile', '')}'"
    told = came.get("task") or came.get("ref") or came.get("why") or one["explain"]
    return safe_line(f"given to {what}  {when(one['at'])}  {one['state']}: {told}")


def finding(one: dict[str, Any]) -> str:
    """A finding as a line."""
    from handoff.cli.terminal import safe_line

    return f"  {marked(one['severity'])} {one['code']}: {safe_line(one['message'])}"


def marked(word: str) -> str:
    """A severity in its colour, where there are colours."""
    from handoff.cli.terminal import colour

    name = {"block": "red", "lost": "red", "warn": "yellow"}.get(word)
    return colour(f"{word:<5}", name) if name else f"{word:<5}"

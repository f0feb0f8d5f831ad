"""Open a prepared attempt once, in the terminal at hand.

The order is the guarantee: everything that can refuse comes before the reservation; the
reservation before the intent; the intent, on the disk, before the start. After the intent
nothing here starts anything again, whatever fails.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from handoff.errors import (
    AlreadyReserved,
    AttemptConflict,
    HandoffError,
    LaunchFailed,
    NotAllowed,
    NotATerminal,
    NotFound,
    OpeningUncertain,
    PreflightRefused,
    StorageError,
    TimedOut,
    UsageError,
)
from handoff.sessions import owner
from handoff.sessions.environment import PROFILE, RULES_VERSION, Scrubbed, scrub
from handoff.sessions.journal import Actor, Journal, Reservation
from handoff.sessions.launch import Child, Launch, Shield, executable, names
from handoff.sessions.preflight import TOOL, Finding, Report
from handoff.sessions.prompt import command_of, opening_prompt, prompt_sha256
from handoff.sessions.terminal import MEND, Terminal

__all__ = [
    "EXIT",
    "Host",
    "Opening",
    "Outcome",
    "Request",
    "command",
    "exit_code",
    "frozen_prompt",
    "open_attempt",
    "prompt_of",
    "same_intent",
]

#: what the opener exits with; ``ended_badly``: the child's own code or signal is in the JSON
EXIT = {
    "ended": 0,
    "usage": 2,
    "refused": 3,
    "taken": 4,
    "uncertain": 5,
    "store": 6,
    "not_started": 7,
    "declined": 8,
    "no_terminal": 9,
    "ended_badly": 10,
}
_BY_ERROR: tuple[tuple[type[HandoffError], str], ...] = (
    (NotATerminal, "no_terminal"),
    (OpeningUncertain, "uncertain"),
    (AlreadyReserved, "taken"),
    (UsageError, "usage"),
    (LaunchFailed, "not_started"),
    (StorageError, "store"),
    (TimedOut, "store"),
    (NotAllowed, "refused"),
    (NotFound, "refused"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What the caller says it opens. It has to be what was frozen; model and provider are
    given both, or neither to use the frozen ones. yes: don't ask."""

    ref: str
    attempt_id: str
    workspace: str
    profile: str
    model: str = ""
    provider: str = ""
    yes: bool = False


class Host(Protocol):
    """What the opener needs to know of the host, of the record, and of the person."""

    def recheck(self, frozen: Mapping[str, Any]) -> Report:
        """The preflight once more, as of now, with what drift blocks."""
        ...

    def argv(self, frozen: Mapping[str, Any], prompt: str) -> list[str]:
        """The child's arguments; the first is the absolute program."""
        ...

    def agree(self, summary: list[str]) -> bool:
        """Show the lines and ask the person."""
        ...


@dataclass(slots=True)
class Outcome:
    """How it ended. status: the attempt's, as the journal tells it; child: code and signal."""

    exit: int
    status: dict[str, Any] = field(default_factory=dict)
    child: dict[str, int | None] | None = None
    removed: list[str] = field(default_factory=list)
    kept_unknown: list[str] = field(default_factory=list)
    error: dict[str, object] | None = None
    signals: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "exit_code": self.exit,
            "status": self.status,
            "child": self.child,
            "removed": self.removed,
            "kept_unknown": self.kept_unknown,
            "error": self.error,
            "signals": self.signals,
            "resume_verified": False,
        }


class Started(Protocol):
    """A child under way."""

    @property
    def owner(self) -> owner.Owner | None:
        """Which process it is."""
        ...

    def wait(self) -> tuple[int | None, int | None]:
        """Its exit code, or the signal that ended it."""
        ...


Start = Callable[[Launch, str, str, Shield], Started]


def exit_code(error: BaseException) -> int:
    """What the opener exits with for that error."""
    for cls, name in _BY_ERROR:
        if isinstance(error, cls):
            return EXIT[name]
    return 1


def command(frozen: Mapping[str, Any], program: str) -> tuple[list[str], str]:
    """The command that opens the attempt, as arguments and as text for a shell.

    ``program``: of Hermes, or ``handoff`` for the other hosts.
    """
    if frozen["host"] == "hermes":
        argv = [program, "--profile", frozen["profile"], "handoff-open", frozen["ref"]]
    else:
        argv = [program, "session", "open", "--profile", frozen["profile"], frozen["ref"]]
    argv += ["--workspace", frozen["workspace_given"], "--attempt-id", frozen["attempt_id"]]
    return argv, shlex.join(argv)


def same_intent(asked: Request, frozen: Mapping[str, Any], surface: str) -> None:
    """Check that the caller means what was frozen.

    Raises:
        UsageError: a model without its provider, or the other way round.
        AttemptConflict: it means something else; details name the fields.
    """
    if bool(asked.model) != bool(asked.provider):
        raise UsageError("--model and --provider go together: give both or neither")
    route = frozen["route"]
    pairs = {
        "ref": (asked.ref, {frozen["ref"]}),
        "workspace": (
            asked.workspace,
            {frozen["workspace_given"], frozen["workspace_resolved"]},
        ),
        "profile": (asked.profile, {frozen["profile"]}),
        "model": (asked.model or route["model"], {route["model"]}),
        "provider": (asked.provider or route["provider"], {route["provider"]}),
        "surface": (frozen["surface"], {"any", surface}),
    }
    differing = [name for name, (given, allowed) in pairs.items() if given not in allowed]
    if differing:
        raise AttemptConflict(
            f"attempt {asked.attempt_id} was frozen with another {', '.join(differing)}",
            remedy="open it as it was prepared, or prepare a new attempt",
            fields=differing,
        )


def frozen_prompt(frozen: Mapping[str, Any]) -> str:
    """The opening prompt that was frozen, made again.

    Raises:
        PreflightRefused: this version would say something else.
    """
    text = prompt_of(frozen)
    if prompt_sha256(text) != frozen["prompt_sha256"]:
        raise PreflightRefused(
            "this version would say something else than what was frozen",
            remedy="prepare a new attempt",
        )
    return text


def prompt_of(frozen: Mapping[str, Any]) -> str:
    """The opening prompt of an attempt."""
    return opening_prompt(
        tool=TOOL,
        ref=frozen["ref"],
        workspace=frozen["workspace_given"],
        attempt_id=frozen["attempt_id"],
        document_sha256=frozen["document_sha256"],
        locale=frozen["locale"],
        command=command_of(frozen["host"], frozen["profile"]),
    )


def open_attempt(
    journal: Journal,
    request: Request,
    host: Host,
    env: Mapping[str, str],
    *,
    terminal: Terminal | None = None,
    start: Start = Child.start,
    identity: Callable[[str], owner.Owner] = owner.me,
    reach: Callable[[str], None] = lambda _name: None,
) -> Outcome:
    """Open it, wait for its end, and say what is known.

    Never raises a HandoffError: it is in the outcome, with its exit code. A child that
    ended with 0 is no proof that the work went on.
    """
    opening = Opening(journal, request, host, env, terminal or Terminal(), start, identity, reach)
    try:
        for _step in opening.steps():
            pass
    except HandoffError as error:
        opening.outcome.exit = exit_code(error)
        opening.outcome.error = error.to_json()
    opening.outcome.status = _status(journal, request.attempt_id)
    return opening.outcome


def _status(journal: Journal, attempt_id: str) -> dict[str, Any]:
    try:
        return journal.status(attempt_id)
    except HandoffError as error:
        return {"unknown": error.to_json(), "resume_verified": False}


def _shown(route: Mapping[str, Any]) -> str:
    if not route["model"]:
        return "with the model that it uses by itself"
    return f"model {route['model']} from {route['provider']} ({route['origin']})"


class Opening:
    """One run of the opener, step by step (a test may look, or kill it, between any two)."""

    def __init__(
        self,
        journal: Journal,
        request: Request,
        host: Host,
        env: Mapping[str, str],
        terminal: Terminal,
        start: Start,
        identity: Callable[[str], owner.Owner],
        reach: Callable[[str], None],
    ) -> None:
        self.journal, self.request, self.host = journal, request, host
        self.env, self.terminal, self.start = env, terminal, start
        self.identity, self.reach = identity, reach
        self.outcome = Outcome(EXIT["ended"])
        self.frozen: dict[str, Any] = {}

    def steps(self) -> Iterator[str]:
        """Do it; yields the name of each step that was done."""
        self.frozen = self.journal.frozen(self.request.attempt_id)
        same_intent(self.request, self.frozen, "cli")
        yield "loaded"
        self.terminal.require()
        if threading.current_thread() is not threading.main_thread():
            # signals could end it between the intent and the outcome
            raise UsageError("an attempt is opened from the main thread of a program")
        report = self._recheck()
        yield "checked"
        prompt = frozen_prompt(self.frozen)
        launch, program, scrubbed = self._launch(prompt)
        if not self.request.yes and not self.host.agree(self._summary(report, scrubbed)):
            self.outcome.exit = EXIT["declined"]
            return
        yield "agreed"
        token = self.journal.clock.new_id()
        me = self.identity(hashlib.sha256(token.encode()).hexdigest())
        held = self.journal.reserve(self.request.attempt_id, me, "cli")
        yield "reserved"
        with Shield() as shield:
            yield from self._start_and_wait(held, launch, program, scrubbed, shield)
            self.outcome.signals = shield.received

    def _start_and_wait(
        self,
        held: Reservation,
        launch: Launch,
        program: dict[str, Any],
        scrubbed: Scrubbed,
        shield: Shield,
    ) -> Iterator[str]:
        nonce = self.journal.clock.new_id()
        self._intend(held, nonce, program, scrubbed)
        yield "intended"
        if shield.received:  # told to end before anything was started: then don't start
            self.journal.spawn_failed(held, "ended by a signal before the start")
            raise LaunchFailed("ended by a signal; nothing was started")
        with self.terminal.lend():
            self.reach("opener.before_start")
            try:
                child = self.start(launch, held.attempt_id, nonce, shield)
            except LaunchFailed as error:
                self.journal.spawn_failed(held, str(error))
                raise
            self.reach("opener.started")
            yield "started"
            who = child.owner
            if who is not None:
                self._noted(lambda: self.journal.child_started(held, who))
            yield "waiting"
            code, number = child.wait()
            self.reach("opener.child_ended")
        self.outcome.child = {"code": code, "signal": number}
        self.outcome.exit = EXIT["ended" if code == 0 else "ended_badly"]
        yield "ended"
        self._noted(lambda: self.journal.child_exited(held, code, number))
        yield "recorded"

    def _noted(self, write: Callable[[], object]) -> None:
        """Write what has happened. A journal that can't take it must not end the child or
        leave its terminal spoilt: the state stays as it was, and the error is told."""
        try:
            write()
        except HandoffError as error:
            self.outcome.error = error.to_json()

    def _recheck(self) -> Report:
        place = self.frozen["workspace_resolved"]
        report = self.host.recheck(self.frozen)
        gone = any(f.code == "workspace_missing" for f in report.findings)
        if not os.path.isdir(place) and not gone:
            message = f"{place} is gone"
            remedy = "prepare a new attempt for another folder of the same project"
            report.findings.insert(0, Finding("workspace_missing", "block", message, remedy))
        report.refuse()
        return report

    def _launch(self, prompt: str) -> tuple[Launch, dict[str, Any], Scrubbed]:
        argv = self.host.argv(self.frozen, prompt)
        program = executable(argv[0])
        scrubbed = scrub(self.env)
        self.outcome.removed = [name for name, _ in scrubbed.removed]
        self.outcome.kept_unknown = scrubbed.unknown
        env = {**scrubbed.env, PROFILE: self.frozen["profile"]}
        launch = Launch(tuple(argv), self.frozen["workspace_resolved"], env)
        return launch, program, scrubbed

    def _intend(
        self, held: Reservation, nonce: str, program: dict[str, Any], scrubbed: Scrubbed
    ) -> None:
        """Write the intent down. If that fails, nothing is started, and what can still be
        said is said: not intended after all, or intended and not carried out."""
        me = Actor("opener", str(held.owner.pid))
        try:
            for part in names(scrubbed.removed):
                payload = {"removed": part, "rules": RULES_VERSION}
                self.journal.note(held.attempt_id, "environment", me, payload)
            mark = hashlib.sha256(nonce.encode()).hexdigest()
            self.journal.intend(held, {"program": program, "nonce_sha256": mark})
        except HandoffError as error:
            why = str(error)
            self._noted(lambda: self._take_back(held, why))
            raise

    def _take_back(self, held: Reservation, why: str) -> None:
        if self.journal.history(held.attempt_id).requested:
            self.journal.spawn_failed(held, why)
        else:
            self.journal.release(held, why)

    def _summary(self, report: Report, scrubbed: Scrubbed) -> list[str]:
        """What the person sees before anything happens; nothing of the handoff's text."""
        frozen, route = self.frozen, self.frozen["route"]
        warned = [f for f in report.findings if f.severity != "block"]
        return [
            f"record      {frozen['ref']}",
            f"digest      {frozen['document_sha256']}",
            f"attempt     {frozen['attempt_id']}",
            f"workspace   {frozen['workspace_resolved']}",
            f"profile     {frozen['profile']}",
            f"opens in    {frozen['host']}, {_shown(route)}",
            f"changed     {len(warned)} since it was made: "
            + (", ".join(f.code for f in warned) or "nothing"),
            f"removed     {len(scrubbed.removed)} variables of this environment",
            f"if it is killed: {MEND}",
            "A new session opens here, reads the handoff and waits for you.",
        ]

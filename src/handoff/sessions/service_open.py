"""The actions that open: prepare, opening in a terminal, and opening on the Desktop."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from handoff.crashpoints import reach
from handoff.errors import HandoffError, NotAllowed, SourceUnbound, UsageError
from handoff.sessions import opening, owner
from handoff.sessions.drift import dropped_candidates
from handoff.sessions.host import HostAdapter
from handoff.sessions.journal import Actor, Reservation
from handoff.sessions.launch import RECIPES, child_argv
from handoff.sessions.opening import Outcome, Request, open_attempt
from handoff.sessions.preflight import Intent, Report
from handoff.sessions.recover import user
from handoff.sessions.service import Caller, Service
from handoff.sessions.service_facts import Checked, checks
from handoff.sessions.service_make import TERMINAL, plain_names
from handoff.sessions.service_settle import person_of
from handoff.sessions.terminal import Terminal

__all__ = ["open_here"]

#: what the reply to prepare says of its own meaning
NOTE = (
    "Nothing was started. The attempt does not expire; what has changed meanwhile is told when "
    "it is opened. Opening starts one session that reads the record and waits for a person."
)


# -- before -----------------------------------------------------------------------------------


def prepare_open(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """Freeze one attempt, if nothing stands against it."""
    if not caller.session_id and caller.surface != "cli":
        raise SourceUnbound(
            "the call does not say which session it speaks for",
            remedy="call it as a tool from within the session, or use handoff session prepare",
        )
    plain_names(service, attempt_id=given["attempt_id"])
    kind = given.get("host", "") or _default_host(service, given["ref"], caller)
    host = service.host_of(kind)
    _fits(service, host, given)
    intent = Intent(
        given["attempt_id"],
        given["ref"],
        given["workspace"],
        service.profile.name,
        session=caller.session_id,
        any_source=not caller.session_id or caller.person,
        model=given.get("model", ""),
        provider=given.get("provider", ""),
        surface=given.get("surface", "") or _default_surface(host, caller),
        allow_parallel=given.get("allow_parallel", False),
        supersedes=given.get("supersedes", ""),
        locale=given.get("locale", "en"),
        host=host.kind,
    )
    found = checks(service, intent, host)
    found.report.refuse()
    frozen = found.report.frozen(intent, service.version)
    actor = Actor("source", caller.session_id or TERMINAL)
    if caller.person and not caller.session_id:
        actor = Actor("person", caller.name or user())
    created = service.journal.prepare(frozen, actor)
    frozen = service.journal.frozen(intent.attempt_id)
    return _prepared(service, frozen, created, found)


def _default_surface(host: HostAdapter, caller: Caller) -> str:
    """Who prepares in a terminal opens there; a session of Hermes can't know where."""
    return "any" if host.kind == "hermes" and caller.surface != "cli" else "cli"


def _default_host(service: Service, ref: str, caller: Caller) -> str:
    """Where a session opens if the call does not say: in the host of this service, of the
    session that asks, or of the record.

    Raises:
        UsageError: none of these is a program that could be opened.
    """
    if service.host.kind != "other":
        return service.host.kind
    kind = caller.host or str(service.records.raw(ref)[0]["source"]["host"])
    if kind not in RECIPES:  # of Hermes there are several: it is opened from its own profile
        raise UsageError(
            "the call does not say which program the new session runs in",
            remedy="give --host claude, codex, opencode or hermes",
        )
    return kind


def _fits(service: Service, host: HostAdapter, given: Mapping[str, Any]) -> None:
    """Refuse to open in Hermes from Handoff's own store: the plugin in a profile, which the new
    session reads with, knows that profile's store alone."""
    if host.kind == "hermes" and service.profile.own:
        raise NotAllowed(
            "this record is in Handoff's own store, which is no profile of Hermes",
            remedy=f"handoff session show --profile handoff {given['ref']} --state"
            " | handoff session create --profile default"
            f" --workspace {shlex.quote(given['workspace'])} -",
        )


def _prepared(
    service: Service, frozen: Mapping[str, Any], created: bool, found: Checked
) -> dict[str, Any]:
    program = "hermes" if frozen["host"] == "hermes" else "handoff"
    argv, text = opening.command(frozen, program)
    needed = _needed(service)
    words = [f"{name}={shlex.quote(value)}" for name, value in needed.items()]
    return {
        "attempt_id": frozen["attempt_id"],
        "ref": frozen["ref"],
        "document_sha256": frozen["document_sha256"],
        "profile": frozen["profile"],
        "host": frozen["host"],
        "workspace": frozen["workspace_given"],
        "route": frozen["route"],
        "surface": frozen["surface"],
        "created": created,
        "findings": [one.to_json() for one in found.report.findings],
        "discrepancies": found.discrepancies,
        "verdict": found.verdict,
        "dropped": dropped_candidates(found.record) if found.record else [],
        "command": " ".join([*words, text]),
        "argv": argv,
        "env": needed,
        "prompt_sha256": frozen["prompt_sha256"],
        "note": NOTE,
    }


def _needed(service: Service) -> dict[str, str]:
    """The variables without which another terminal would look elsewhere."""
    home = service.env.get("HOME", "")
    top = service.profile.top
    if service.profile.own:
        return {} if top == os.path.join(home, ".handoff") else {"HANDOFF_HOME": top}
    return {} if top == os.path.realpath(os.path.join(home, ".hermes")) else {"HERMES_HOME": top}


# -- opening in a terminal ----------------------------------------------------------------------


def _intent(frozen: Mapping[str, Any], surface: str) -> Intent:
    """The frozen attempt as an intent to check again."""
    route = frozen["route"]
    return Intent(
        frozen["attempt_id"],
        frozen["ref"],
        frozen["workspace_given"],
        frozen["profile"],
        session=frozen["source_session"],
        any_source=True,  # whose it is was settled when it was prepared
        model=route["model"],
        provider=route["provider"],
        surface=surface,
        allow_parallel=bool(frozen["allow_parallel"]),
        supersedes=frozen["supersedes"],
        locale=frozen["locale"],
        host=frozen["host"],
    )


@dataclasses.dataclass
class _Opener:
    """What the opener asks (:class:`handoff.sessions.opening.Host`)."""

    service: Service
    ask: Callable[[list[str]], bool]

    def recheck(self, frozen: Mapping[str, Any]) -> Report:
        """All checks and drift, as of now."""
        host = self.service.host_of(frozen["host"])
        return checks(self.service, _intent(frozen, "cli"), host).report

    def argv(self, frozen: Mapping[str, Any], prompt: str) -> list[str]:
        """The child's arguments."""
        host = self.service.host_of(frozen["host"])
        return child_argv(host.recipe, host.program(), frozen, prompt)

    def agree(self, summary: list[str]) -> bool:
        """Show the lines and ask."""
        return self.ask(summary)


def open_here(
    service: Service,
    request: Request,
    agree: Callable[[list[str]], bool],
    terminal: Terminal | None,
) -> Outcome:
    """Open the attempt in this terminal, and wait for its end."""
    return open_attempt(
        service.journal,
        request,
        _Opener(service, agree),
        service.env,
        terminal=terminal,
        reach=reach,
    )


# -- opening on the Desktop -----------------------------------------------------------------------


def open_begin(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """Everything up to the intent; after this the page may make one session, once."""
    attempt = given["attempt_id"]
    person_of(service, caller, attempt)
    journal = service.journal
    frozen = journal.frozen(attempt)
    request = Request(
        given["ref"],
        attempt,
        given["workspace"],
        service.profile.name,
        given.get("model", ""),
        given.get("provider", ""),
    )
    opening.same_intent(request, frozen, "desktop")
    host = service.host_of(frozen["host"])
    checks(service, _intent(frozen, "desktop"), host).report.refuse()
    prompt = opening.frozen_prompt(frozen)
    token, nonce = service.clock.new_id(), service.clock.new_id()
    held = journal.reserve(attempt, owner.me(hashlib.sha256(token.encode()).hexdigest()), "desktop")
    mark = hashlib.sha256(nonce.encode()).hexdigest()
    try:
        journal.intend(held, {"surface": "desktop", "nonce_sha256": mark})
    except HandoffError as error:
        if not journal.history(attempt).requested:
            journal.release(held, error.cause)
        raise
    service.held[attempt] = (held, nonce)
    return {
        "attempt_id": attempt,
        "prompt": prompt,
        "workspace": frozen["workspace_resolved"],
        "route": frozen["route"],
        "status": journal.status(attempt),
    }


def _held(service: Service, attempt: str) -> tuple[Reservation, str]:
    found = service.held.get(attempt)
    if found is None:
        raise NotAllowed(
            f"this process did not begin to open {attempt}",
            remedy=f"handoff session recover {attempt}",
            attempt_id=attempt,
        )
    held: tuple[Reservation, str] = found
    return held


def open_created(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """The host has made this session."""
    attempt = given["attempt_id"]
    person_of(service, caller, attempt)
    _reservation, nonce = _held(service, attempt)
    service.journal.session_seen(attempt, given["session"], service.profile.name, nonce=nonce)
    return service.journal.status(attempt)


def open_submitted(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """The opening prompt was submitted; it is never submitted again by itself."""
    attempt = given["attempt_id"]
    who = person_of(service, caller, attempt)
    _held(service, attempt)
    service.journal.note(attempt, "prompt_submitted", who, {})
    return service.journal.status(attempt)


def open_failed(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """The host has proved that it made no session."""
    attempt = given["attempt_id"]
    person_of(service, caller, attempt)
    reservation, _nonce = _held(service, attempt)
    service.journal.spawn_failed(reservation, given["why"])
    del service.held[attempt]
    return service.journal.status(attempt)

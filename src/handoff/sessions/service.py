"""One door to Sessions for every surface: the same actions, arguments, replies and refusals
from Hermes' tool, its Desktop page, an MCP host, and the command line.

A surface builds a :class:`Service` from the profile whose records and journal it uses and
its host, says in a :class:`Caller` who is calling, and passes a call on:
:func:`reply` never raises, :meth:`Service.call` raises typed errors. What a caller *is* comes
from the surface (the host's own session id, a person's terminal), never from an argument: a
model can't choose whom it speaks for, and can't do what is a person's to do.

Replies (each also has ``ok`` and ``action``; times are milliseconds since 1970):

==============  =========================================================================
evidence        ``candidates`` [{id, at, text}], ``messages`` [{id, role, text, cut?, tool?,
                excerpt?}],
                ``facts`` (git, files, rules, window), ``last_message``, ``notes``,
                ``redactions`` {kind: n}, ``writer_instructions`` (how a state looks)
summarize       ``state``, ``attribution``, ``warnings``, ``sent`` {bytes, sha256}, ``notice``
create          ``ref``, ``handoff_id``, ``project_id``, ``state_sha256``,
                ``document_sha256``, ``bytes``, ``redactions``, ``redacted`` [pointer],
                ``warnings`` and ``changes`` [{pointer, code, message}], ``dropped``
                [{id, at, text}] (rules of the user that the state lost), ``writer``,
                ``request_id``, ``created_at``, ``idempotent``, ``deduplicated``,
                ``published``, ``document`` (with dry_run)
prepare_open    ``attempt_id``, ``ref``, ``document_sha256``, ``profile``, ``host``,
                ``workspace``, ``route`` {model, provider, origin}, ``surface``, ``created``
                (false: it was prepared so before), ``findings`` [{code, severity, message,
                remedy}], ``discrepancies`` [{code, severity, message, details?}],
                ``verdict``, ``dropped``, ``command`` (text for a shell), ``argv``, ``env``
                (variables that the shell needs), ``prompt_sha256``, ``note``
opening_status  of an attempt: ``attempt_id``, ``ref``, ``state``, ``requested``,
                ``session_identified``, ``handoff_read``, ``acknowledged``,
                ``user_confirmed``, ``child_exit``, ``resume_verified`` (always false),
                ``certainty``, ``destination``, ``prompt``, ``reservation``, ``anomalies``,
                ``allowed_next``, ``explain``; of a record, or of all: ``ref``, ``attempts``
                [those], ``deliveries`` [{delivery_id, ref, to, state, at, actor, came_of_it,
                explain}]: where it went without an opening
read            ``ref``, ``document_sha256``, ``page``, ``pages``, ``next_page``,
                ``pages_sha256``, ``constraint_ids``, ``discrepancies``, ``verdict``,
                ``dropped``, ``quarantined``, ``content`` (fenced), with an attempt:
                ``counts``, ``why_not``, ``complete?``, ``required_codes``
ack             as opening_status, with ``idempotent``
list, search    ``records`` [{ref, created_at, name, goal, session, host, workspace, origin,
                snippets? (search), damaged?}], ``cursor`` ("" at the end), ``total``
show            ``ref``, ``manifest``, ``state``, ``document``, ``quarantined``, ``suspected``,
                ``dropped``, ``left_out`` (with budget), ``discrepancies``, ``verdict``
validate        ``ref``, ``valid``, ``faults`` [{ref, code, message}], ``lint`` [{pointer,
                code, message}], ``dropped``
log             ``ref``, ``ancestors``, ``children``, ``newer``, ``attempts`` [status],
                ``deliveries``, ``attempts_unknown`` (why these can't be told, or "")
verify          ``faults`` [{ref, code, message}], ``records`` (how many were looked at),
                ``journal`` {events, attempts, deliveries, head}
confirm, adopt, abandon, open_created, open_submitted, open_failed
                as opening_status
open_begin      ``attempt_id``, ``prompt`` (to submit, as it is), ``workspace``, ``route``,
                ``status``
recover         ``attempt_id``, ``status``, ``events``, ``candidates``, ``child``,
                ``choices``, ``commands`` [{choice, command}], ``mend_terminal``, ``prompt``
bind            ``project_id``, ``previous`` ("" for none), ``workspace``
export          ``ref``, ``derived_from``, ``report``, ``path`` ("" if none was written),
                ``bytes``
import          ``ref``, ``fresh``, ``project_id``, ``source``, ``workspace``, ``note``,
                ``derived_from`` (a bundle's own reference), ``redactions`` {kind: n}
prune           ``removed``, ``in_use``, ``damaged`` [ref]; ``dry_run``
purge           ``ref``, ``purged``
sweep           ``drafts`` [{session, ref?}], ``skipped`` [{session, why}]; ``dry_run``
==============  =========================================================================

A refusal is ``{"ok": false, "action", "code", "message", "retry", "remedy", "details"}``;
``retry`` is ``never``, ``same_id`` or ``after_inspection`` (:mod:`handoff.sessions.retry`).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from handoff.clock import SystemClock
from handoff.crashpoints import reach
from handoff.errors import ActorRefused, HandoffError
from handoff.sessions import retry
from handoff.sessions.actions import ACTIONS, MODEL_ACTIONS, TOOL, TOOL_SCHEMA, check
from handoff.sessions.host import HostAdapter
from handoff.sessions.profile import Profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.clock import Clock
    from handoff.sessions.journal import Actor, Journal
    from handoff.sessions.opening import Outcome, Request
    from handoff.sessions.records import Records
    from handoff.sessions.terminal import Terminal

__all__ = [
    "ACTIONS",
    "MODEL_ACTIONS",
    "SURFACES",
    "TOOL",
    "TOOL_SCHEMA",
    "Caller",
    "Service",
    "reply",
]

SURFACES = ("cli", "hermes", "desktop", "mcp")
#: action -> module of :mod:`handoff.sessions` with a function of that name
_BODIES = {
    "service_make": ("evidence", "summarize", "create", "sweep"),
    "service_open": (
        "prepare_open",
        "open_begin",
        "open_created",
        "open_submitted",
        "open_failed",
    ),
    "service_settle": ("opening_status", "confirm", "recover", "adopt", "abandon"),
    "service_read": ("read", "ack", "list", "search", "show", "validate", "log", "verify"),
    "service_keep": ("bind", "export", "import", "prune", "purge"),
}
#: characters of a ref; one of a bundle of version 1 has more
_REF_LENGTH = 75
_WHERE = {action: module for module, actions in _BODIES.items() for action in actions}


def _allowed(action: str, caller: Caller) -> None:
    who = ACTIONS[action].who
    if who == "model" or caller.person or (who == "keeper" and caller.surface == "cli"):
        return
    raise ActorRefused(
        f"'{action}' is for a person, on a surface that no model can call",
        remedy="ask the person to do it, in a terminal or on the Desktop page",
    )


class Caller(NamedTuple):
    """Who calls, as the surface knows it.

    ``surface``: one of :data:`SURFACES`. ``session_id``: the session that speaks, as the
    host names it; "" if none does, which on ``cli`` means a person or a script outside any
    agent, and elsewhere that it is unknown. ``person``: this is a person on a surface that
    the model can't call. ``platform``: the host's name for where it runs (``cli``, ``tui``,
    ``gateway`` …), or "". ``host``: the kind of host whose session speaks, "" for the
    service's own. ``name``: of the person, for the journal.
    """

    surface: str
    session_id: str = ""
    person: bool = False
    platform: str = ""
    host: str = ""
    name: str = ""


class Service:
    """Sessions of one profile, as one host's surface uses them.

    Args:
        profile: whose records and journal these are.
        host: the host that this runs in or for.
        clock: time and ids.
        env: the environment, for the opener and the commands that are printed.
        hosts: another kind of host, for an attempt that opens there.
        version: of Handoff, as an attempt freezes it.
    """

    def __init__(
        self,
        profile: Profile,
        host: HostAdapter,
        *,
        clock: Clock | None = None,
        env: Mapping[str, str] | None = None,
        hosts: Callable[[str], HostAdapter] | None = None,
        version: str = "",
    ) -> None:
        self.profile = profile
        self.host = host
        self.clock = clock or SystemClock()
        self.env = os.environ if env is None else env
        self._hosts = hosts
        self._version = version
        self._records: Records | None = None
        self._journal: Journal | None = None
        #: told how far a long look has come: (done, of)
        self.progress: Callable[[int, int], None] = lambda _done, _of: None
        #: what this process holds of openings on the Desktop: attempt -> (reservation, nonce)
        self.held: dict[str, Any] = {}

    # -- calls -------------------------------------------------------------------------

    def call(self, action: str, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Do one action; the reply as in the module's table, JSON values only.

        Raises:
            UsageError: no such action; arguments that it does not take (``faults``).
            ActorRefused: it is a person's to do.
            HandoffError: what the action itself refuses.
        """
        given = check(action, arguments)
        _allowed(action, caller)
        for name in ("ref", "parent_ref"):
            if len(given.get(name, "")) > _REF_LENGTH:  # a bundle's, of version 1
                from handoff.sessions.transfer_v1 import mapped

                given[name] = mapped(self.records, given[name], self.profile.name)
        # Relatively: a plugin carries a copy of these modules under a name of its own.
        module = importlib.import_module(f".{_WHERE[action]}", __package__)
        name = {"import": "import_", "list": "list_"}.get(action, action)
        body: Callable[..., dict[str, Any]] = getattr(module, name)
        return {"ok": True, "action": action, **body(self, given, caller)}

    def open(
        self,
        request: Request,
        *,
        agree: Callable[[list[str]], bool],
        terminal: Terminal | None = None,
    ) -> Outcome:
        """Open a prepared attempt in the terminal at hand, once, and wait for its end.

        ``agree`` shows the lines and asks the person. Never raises a HandoffError: it is in
        the outcome, with the opener's exit code.
        """
        from handoff.sessions.service_open import open_here

        return open_here(self, request, agree, terminal)

    def arrived(self, attempt_id: str, session_id: str, nonce: str = "") -> bool:
        """The new session shows itself, by the nonce that it was handed or by descent from
        the process that was started. False: it had done so already.

        Raises:
            SessionMismatch, UnknownAttempt: it is not the one; nothing moves.
        """
        from handoff.sessions import owner

        return self.journal.session_seen(
            attempt_id,
            session_id,
            self.profile.name,
            nonce=nonce,
            chain=owner.chain(),
            boot=owner.boot_id(),
        )

    def observe(self, session_id: str, model: str, provider: str, turn_id: str) -> None:
        """Remember which model a session uses: names only."""
        from handoff.sessions.routes import observe

        observe(self.journal, session_id, model, provider, turn_id)

    # -- parts -------------------------------------------------------------------------

    @property
    def records(self) -> Records:
        """The store of records; looking creates nothing."""
        if self._records is None:
            from handoff.sessions.records import Records

            self._records = Records(self.profile.root, clock=self.clock, reach=reach)
        return self._records

    @property
    def journal(self) -> Journal:
        """The opening journal; looking creates nothing."""
        if self._journal is None:
            from handoff.sessions.journal import Journal

            self._journal = Journal(
                self.profile.root,
                clock=self.clock,
                redact=self._redact,
                reach=reach,
            )
        return self._journal

    def _redact(self, text: str) -> str:
        return self.records.guard.text(text)  # the key exists only once something is stored

    @property
    def version(self) -> str:
        """Of Handoff."""
        if not self._version:
            from handoff import __version__

            self._version = __version__
        return self._version

    def host_of(self, kind: str) -> HostAdapter:
        """That kind of host ("" for the service's own).

        Raises:
            UsageError: there is none here.
        """
        from handoff.errors import UsageError

        if kind in ("", self.host.kind):
            return self.host
        if self._hosts is None:
            raise UsageError(
                f"from here a session is opened in {self.host.kind} only",
                remedy="handoff session prepare --help",
            )
        return self._hosts(kind)

    def person(self, caller: Caller, attempt_id: str = "") -> Actor:
        """The person who calls, as an actor of the journal.

        Raises:
            ActorRefused: it is no person, or calls from within the attempt's own session.
        """
        from handoff.sessions.service_settle import person_of

        return person_of(self, caller, attempt_id)


def reply(
    service: Service, action: str, arguments: Mapping[str, Any], caller: Caller
) -> dict[str, Any]:
    """As :meth:`Service.call`, but a refusal is a reply, too. Never raises.

    What a refusal says went through the redactor, as everything else did.
    """
    try:
        return service.call(action, arguments, caller)
    except HandoffError as error:
        return _guarded(service, retry.to_json(error, str(action)[:64]))
    except Exception as error:  # a fault of ours, or of a host's internals: told, not shown
        return {
            "ok": False,
            "action": str(action)[:64],
            "code": "internal",
            "message": f"an error of Handoff's own ({type(error).__name__}); what was done is unknown",
            "retry": retry.AFTER_INSPECTION,
            "remedy": "handoff session verify",
            "details": {},
        }


def _guarded(service: Service, refusal: dict[str, Any]) -> dict[str, Any]:
    """The refusal without secrets that it may repeat from the call."""
    try:
        guard = service.records.guard
        clean: dict[str, Any] = guard.value(refusal).value
    except Exception:  # without its rules nothing that came in goes out
        shown = refusal["action"] if refusal["action"] in ACTIONS else ""
        told = "refused; the text can't be shown"
        return {**refusal, "action": shown, "message": told, "details": {}}
    known = refusal["action"] in ACTIONS  # what is no action is anybody's text
    action = refusal["action"] if known else clean["action"]
    return {**clean, "code": refusal["code"], "action": action}

"""The actions that make records: evidence, a state by another model, create, sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from handoff.errors import NotAllowed, NotFound, SourceUnbound, StorageError, UsageError
from handoff.sessions import canonical, lint, manifest, private, writer
from handoff.sessions import evidence as gathered
from handoff.sessions import state as states
from handoff.sessions.actions import TOOL
from handoff.sessions.evidence import Bundle
from handoff.sessions.guard import profile_key
from handoff.sessions.host import HostAdapter
from handoff.sessions.host_store import Opener, SessionStore
from handoff.sessions.manifest import Source, Writer
from handoff.sessions.records import Created, Draft
from handoff.sessions.service import Caller, Service
from handoff.sessions.workspace import Binding, bind

__all__ = ["TERMINAL", "create", "evidence", "summarize", "sweep"]

#: the source of what a person makes at a terminal, outside any agent's session
TERMINAL = "terminal"
#: seconds that a session rests before a sweep drafts it
_IDLE = 6 * 3600


class _Origin:
    """Whose session a call speaks for, and how its host's sessions are looked at."""

    def __init__(self, service: Service, caller: Caller) -> None:
        self.session = caller.session_id
        self.host: HostAdapter | None = None
        if self.session:
            self.host = service.host_of(caller.host)
            self.kind = self.host.kind
        elif caller.surface == "cli":
            self.session, self.kind = TERMINAL, TERMINAL
        else:
            raise SourceUnbound(
                "the call does not say which session it speaks for, so there is no source",
                remedy="call it as a tool from within the session",
            )

    def opener(self) -> Opener | None:
        return self.host.sessions() if self.host else None

    def version(self) -> str:
        return self.host.version()[0] if self.host else ""


def _gather(
    service: Service, origin: _Origin, binding: Binding, paths: list[str]
) -> tuple[Bundle, str | Opener]:
    """The evidence, and the store that it is of ("" where the host's can't be looked at)."""
    opener = origin.opener()
    guard = service.records.guard
    if opener is None:
        return gathered.gather(binding, guard, paths=paths), ""
    try:
        got = gathered.gather(
            binding, guard, sessions=opener, session_id=origin.session, paths=paths
        )
    except NotFound as error:
        if origin.kind == "hermes":
            raise
        # The transcripts of the other agents are theirs: they may be kept elsewhere, or not
        # at all. What is missing is said, and no claim gains by it.
        got = gathered.gather(binding, guard, paths=paths)
        note = f"messages are unavailable: {error.cause}"
        kept = tuple(one for one in got.notes if not one.startswith("no session store"))
        return Bundle(got.frozen, [], "", (*kept, note), got.redactions), ""
    return got, opener


def evidence(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """What a state can be held against."""
    origin = _Origin(service, caller)
    binding = bind(given["workspace"])
    got, _ = _gather(service, origin, binding, list(given.get("paths", [])))
    facts = {key: value for key, value in got.frozen.items() if key != "candidates"}
    return {
        "session": origin.session,
        "candidates": got.frozen["candidates"],
        "messages": got.messages,
        "facts": facts,
        "last_message": got.last_message,
        "notes": list(got.notes),
        "redactions": got.redactions,
        "writer_instructions": writer.instructions(),
    }


def summarize(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """A state by another model. Everything that can refuse comes before the call."""
    origin = _Origin(service, caller)
    host = service.host
    writer.require_pair(given["model"], given["provider"])
    writer.require_consent(host.entry_id, host.config(), accept_cost=given["accept_cost"])
    binding = bind(given["workspace"])
    got, _ = _gather(service, origin, binding, [])
    facts = {key: value for key, value in got.frozen.items() if key != "candidates"}
    sent = {"candidates": got.frozen["candidates"], "messages": got.messages, "facts": facts}
    # To another model goes what strict rules leave, as with everything that leaves.
    strict = service.records.guard.strict().value(sent).value
    prepared = writer.prepare(canonical.dumps(strict).decode())
    answer = host.complete(prepared.prompt, given["model"], given["provider"])
    checked = writer.accept(answer)
    guarded = service.records.guard.state(checked.state)
    state = states.check(guarded.value).state
    return {
        "state": state,
        "attribution": writer.attribution(
            state, given["model"], given["provider"], profile_key(service.profile.root)
        ),
        "warnings": [note.to_json() for note in checked.warnings],
        "sent": {"bytes": prepared.bytes, "sha256": prepared.sha256},
        "notice": list(writer.cost_notice(prepared, given["model"], given["provider"])),
    }


def create(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """Publish a record of the state, held against the evidence that there is."""
    origin = _Origin(service, caller)
    plain_names(service, request_id=given["request_id"], name=given.get("name", ""),
                session=origin.session)  # fmt: skip
    checked = _checked(given["state"])
    binding = bind(given["workspace"])
    if not given.get("dry_run"):
        # The key of the marks comes first: the same secret has the same mark everywhere.
        private.make(service.records.root)
    guard = service.records.guard
    binding = replace(binding, label=guard.text(binding.label), branch=guard.text(binding.branch))
    asked = service.records.asked(checked.state, given.get("parent_ref", ""))
    source = Source(service.profile.name, origin.session, "", origin.kind)
    request = Draft(checked.state, given["request_id"], binding, source, asked=asked)
    if not given.get("dry_run"):
        # First of all: whatever has been said or done since is nothing to an answered request.
        before = service.records.again(request)
        if before is not None:
            return _answered(service, before, given, checked)
    got, store = _gather(service, origin, binding, _paths(checked.state))
    opened, unread = _opened(service, origin.session)
    if opened and not given.get("allow_stale"):
        _refuse_stale(opened, origin, store)
    placed: list[dict[str, str]] = []
    state = _lineage(service, checked.state, given.get("parent_ref", ""), opened, placed)
    parent = _parent(service, state)
    state, lowered = gathered.ground(state, store, origin.session, binding, parent)
    lost = _dropped(state, got)
    notes = lint.lint(state, [lint.Candidate(one["text"], f"message {one['id']}") for one in lost])
    if given.get("strict"):
        lint.require_strict(notes)
    made = service.records.create(
        replace(
            request,
            state=state,
            source=replace(source, last_message=got.last_message, host_version=origin.version()),
            evidence=got.frozen,
            writer=_writer(service, given, state, origin, caller),
            name=given.get("name", ""),
            parent_ref=state["lineage"].get("parent_ref", ""),
        ),
        dry_run=given.get("dry_run", False),
    )
    warnings = [
        *(note.to_json() for note in checked.warnings),
        *service.records.guard.value([note.to_json() for note in notes]).value,
        *({"pointer": "", "code": "evidence", "message": note} for note in got.notes),
        *(_unchecked(state) if store == "" else ()),
        *unread,
    ]
    changes = [*(note.to_json() for note in checked.changes), *placed, *lowered]
    return _made(made, given, warnings, changes, lost)


def _answered(
    service: Service, made: Created, given: Mapping[str, Any], checked: states.Checked
) -> dict[str, Any]:
    """The answer to a request that was answered before, from its record."""
    from handoff.sessions.service_again import told

    record = service.records.read(made.ref)
    said = told(record, checked, service.records.guard)
    unseen = _unchecked(record.state) if said.unseen else []
    made = replace(made, redactions=said.redactions, redacted=said.redacted)
    return _made(made, given, [*said.warnings, *unseen], said.changes, said.lost)


def plain_names(service: Service, **names: str) -> None:
    """Refuse ids and names that look like secrets: they are stored and shown as they are.

    Raises:
        UsageError: names which, not what it was.
    """
    text = service.records.guard.text
    bad = [name for name, value in names.items() if value and text(value) != value]
    if bad:
        raise UsageError(
            f"what was given as {' and '.join(bad)} looks like a secret",
            remedy="give another one; it would be stored and shown",
            faults=[
                {"pointer": f"/{name}", "code": "looks_secret", "message": "it looks like a secret"}
                for name in bad
            ],
        )


def _checked(given: Any) -> states.Checked:
    value = canonical.loads(given) if isinstance(given, str) else given
    return states.check(value)


def _unchecked(state: dict[str, Any]) -> list[dict[str, str]]:
    """Claims of having seen something, where nothing of the session could be looked at."""
    return [
        {
            "pointer": f"{pointer}/basis",
            "code": "basis_unchecked",
            "message": f"'{item['basis']}' is the writer's word: no session to hold it against",
        }
        for pointer, item in states.every_item(state)
        if item.get("basis") in ("observed", "verified")
    ]


def _paths(state: Mapping[str, Any]) -> list[str]:
    """The files that the state names, or shows as evidence."""
    from handoff.sessions.drift import evidence_paths

    named = [item["path"] for item in states.items(dict(state), "files")]
    return [*named, *evidence_paths(dict(state))]


def _dropped(state: Mapping[str, Any], got: Bundle) -> list[dict[str, Any]]:
    lost = set(gathered.dropped(state, got.frozen["candidates"]))
    return [one for one in got.frozen["candidates"] if str(one["id"]) in lost]


def _writer(
    service: Service,
    given: Mapping[str, Any],
    state: Mapping[str, Any],
    origin: _Origin,
    caller: Caller,
) -> Writer:
    """Who wrote the state: the session's own model, another one (with its token), a person."""
    if origin.kind == TERMINAL:
        return Writer("person")
    from handoff.sessions.routes import last_route

    token = given.get("attribution") or None
    # The digest is of the redacted state, on both sides.
    clean = states.check(service.records.guard.state(dict(state)).value).state
    try:
        seen = last_route(service.journal, caller.session_id) or {}
    except StorageError:
        seen = {}  # the warnings say that the journal can't be read
    if token is not None:
        made = writer.attribute(clean, token, profile_key(service.profile.root))
        return Writer(made.kind, made.model, made.provider, made.attributed)
    return Writer("chat", str(seen.get("model", "")), str(seen.get("provider", "")), False)


def _opened(service: Service, session_id: str) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The attempts that opened this session, as they were frozen; and a warning where the
    journal can't be read: what the session knows is worth keeping all the same."""
    journal = service.journal
    try:
        found = [
            journal.frozen(attempt)
            for attempt in journal.attempts()
            if journal.history(attempt).session == session_id
        ]
    except StorageError as error:
        message = f"what this session was opened from can't be told: {error.cause}"
        return [], [{"pointer": "/lineage", "code": "journal", "message": message}]
    return found, []


def _lineage(
    service: Service,
    state: dict[str, Any],
    parent: str,
    opened: list[dict[str, Any]],
    changes: list[dict[str, str]],
) -> dict[str, Any]:
    """The state with its place in the chain: what was given, or the record that this session
    was opened from; at least one generation below a parent that is known here."""
    lineage = dict(state["lineage"])
    said = lineage.get("parent_ref", "")
    if parent and said and parent != said:
        raise UsageError("the state names another parent than the call does")
    parent = parent or said or (opened[-1]["ref"] if opened else "")
    if not parent:
        return state
    manifest.parse_ref(parent)
    if not said:
        lineage["parent_ref"] = parent
        message = f"the record that this session goes on from: {parent}"
        changes.append({"pointer": "/lineage", "code": "parent_set", "message": message})
    try:
        depth = service.records.raw(parent)[0]["lineage"]["depth"] + 1
    except NotFound:
        depth = 1  # made elsewhere: how deep it lies can't be told
    if lineage["depth"] < depth:
        lineage["depth"] = depth
        message = f"{depth} generations deep"
        changes.append({"pointer": "/lineage/depth", "code": "depth_set", "message": message})
    return {**state, "lineage": lineage}


def _parent(service: Service, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state of the record that this one goes on from; None if it can't be had here."""
    ref = state["lineage"].get("parent_ref", "")
    try:
        return service.records.read(ref).state if ref else None
    except (NotFound, StorageError):
        return None  # made elsewhere, or damaged, which reading it says


def _refuse_stale(opened: list[dict[str, Any]], origin: _Origin, store: str | Opener) -> None:
    """Refuse if the session was opened by a handoff and has done nothing since: a chain of
    handoffs of handoffs loses a little each time, and adds nothing.

    Raises:
        NotAllowed: so it is.
    """
    if isinstance(store, str):
        return
    with store() as sessions:
        worked = _has_worked(sessions, origin.session)
    if not worked:
        raise NotAllowed(
            "this session has only read a handoff: another one would say the same",
            remedy="work on first, or hand on the record that it has read (allow_stale: true)",
            attempt_id=opened[-1]["attempt_id"],
        )


def _has_worked(sessions: SessionStore, session_id: str) -> bool:
    """Whether it has used another tool than ours."""
    return any(
        message.role == "tool" and message.tool and TOOL not in message.tool
        for message in sessions.messages([session_id])
    )


def _made(
    made: Created,
    given: Mapping[str, Any],
    warnings: list[dict[str, str]],
    changes: list[dict[str, str]],
    lost: list[dict[str, Any]],
) -> dict[str, Any]:
    manifest = made.manifest
    reply = {
        "ref": made.ref,
        "handoff_id": manifest["handoff_id"],
        "project_id": manifest["project_id"],
        "state_sha256": manifest["state_sha256"],
        "document_sha256": manifest["document_sha256"],
        "bytes": dict(manifest["sizes"]),
        "redactions": made.redactions,
        "redacted": list(made.redacted),
        "warnings": warnings,
        "changes": changes,
        "dropped": lost,
        "writer": manifest["writer"],
        "request_id": given["request_id"],
        "created_at": manifest["created_at"],
        "idempotent": made.idempotent,
        "deduplicated": made.deduplicated,
        "published": made.published,
    }
    if not made.published:
        reply["document"] = made.document
    return reply


def _nowhere(kind: str) -> UsageError:
    """Why there are no sessions to sweep, and which call has some."""
    if kind == "hermes":
        return UsageError(
            "Handoff's own store is of no profile of Hermes, whose sessions are kept by profile",
            remedy="handoff session sweep --profile default --host hermes",
        )
    return UsageError(
        "the call does not say whose sessions are meant",
        remedy="give --host hermes, claude, codex or opencode",
    )


def sweep(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """Drafts of sessions that nobody handed off."""
    from handoff.sessions.sweep import sweep as drafts

    host = service.host_of(caller.host)
    opener = host.sessions()
    if opener is None:
        raise _nowhere(host.kind)
    dry_run = bool(given.get("dry_run", False))
    found = drafts(
        service.records,
        service.profile,
        idle_ms=given.get("idle", _IDLE) * 1000,
        dry_run=dry_run,
        sessions=opener,
        host=host.kind,
    )
    return {**found, "dry_run": dry_run}

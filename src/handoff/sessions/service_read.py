"""The actions that look at records, and the acknowledgement of what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from handoff.errors import JournalCorrupt, StorageError
from handoff.sessions import acknowledge as reading
from handoff.sessions import deliveries, drift, lint, owner, projects, serving
from handoff.sessions import state as states
from handoff.sessions.document import labelled
from handoff.sessions.records_view import Page, Record
from handoff.sessions.service import Caller, Service
from handoff.sessions.service_facts import drift_of, host_for
from handoff.sessions.text import visible
from handoff.sessions.workspace import Binding, bind

__all__ = ["ack", "list_", "log", "read", "search", "session_of", "show", "validate", "verify"]


def read(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """One page of a record, with what has changed; for an attempt it is noted."""
    attempt = given.get("attempt_id", "")
    record, found, readable = _readable(service, given, attempt)
    if caller.surface == "mcp" or (caller.surface == "cli" and (attempt or caller.session_id)):
        readable = replace(readable, page_bytes=serving.AGENT_PAGE)
    page = given.get("page", 1)
    if attempt:
        session = session_of(service, caller, attempt)
        try:
            told = reading.read_page(
                service.journal,
                readable,
                page,
                attempt_id=attempt,
                session_id=session,
                profile=service.profile.name,
                chain=owner.chain(),
                boot=owner.boot_id(),
            )
        except JournalCorrupt:
            raise
        except StorageError as error:
            # An agent's sandbox may forbid to write here. What it reads is worth reading;
            # that it has read it can't be noted, so it does not count.
            told = reading.read_page(service.journal, readable, page)
            told |= {"counts": False, "why_not": f"it could not be noted: {error.cause}"}
        told["required_codes"] = reading.required_codes(readable.discrepancies)
    else:
        told = reading.read_page(service.journal, readable, page)
    return {
        **told,
        "verdict": found.verdict,
        "dropped": _dropped(record),
        "quarantined": record.quarantined,
    }


def _readable(
    service: Service, given: Mapping[str, Any], attempt: str
) -> tuple[Record, drift.Drift, reading.Readable]:
    """The record with its drift, as text to be read and acknowledged."""
    workspace, kind = given.get("workspace", ""), ""
    parallel = True
    if attempt:
        frozen = service.journal.frozen(attempt)
        workspace = workspace or frozen["workspace_given"]
        parallel, kind = bool(frozen["allow_parallel"]), frozen["host"]
    record = service.records.read(given["ref"], binding=_binding(workspace))
    host = host_for(service, record, kind)
    found = drift_of(service, record, workspace, host=host, parallel=parallel, but=(attempt,))
    dropped = _dropped(record)
    made, place = record.manifest, record.manifest["workspace"]
    front = serving.front(
        serving.Front(
            record.ref,
            made["state_sha256"],
            made["source"]["session_id"],
            made["source"]["profile_id"],
            place["label"],
            place["branch"],
            place["head"],
            made["created_at"],
            _writer(made["writer"]),
        )
    )
    lines = [f"{one['severity']} {one['code']}: {one['message']}" for one in found.findings]
    if not record.evidence.get("window", {}).get("messages"):
        lines.append(
            "note: no message of the source session was looked at when this was made; what it "
            "calls observed is its writer's word"
        )
    lines += [f"lost: a rule of the user that the state does not hold: {text}" for text in dropped]
    text = front + _with_lost(serving.reading(record.state, lines), dropped)
    ids = tuple(item["id"] for item in states.items(record.state, "constraints"))
    return (
        record,
        found,
        reading.Readable(record.ref, made["document_sha256"], text, ids, found.findings),
    )


#: what stands at the end of a text to be read, behind everything else
_END = "\n## Constraints In Force\n"


def _with_lost(text: str, dropped: list[str]) -> str:
    """The text with the rules that the state lost, whole: the list of what has changed, in
    which they stand too, has a line for each. No text of anybody's can begin a line there."""
    if not dropped:
        return text
    before, end, after = text.rpartition(_END)
    lines = ["", "## Rules Of The User That The State Does Not Hold", ""]
    for one in dropped:
        lines += labelled("- ", visible(one))
    return f"{before}{chr(10).join(lines)}\n{end}{after}"


def _binding(workspace: str) -> Binding | None:
    """The folder, if one was given and is there. One that is gone is drift, no hindrance to
    reading."""
    from handoff.errors import WorkspaceMissing

    try:
        return bind(workspace) if workspace else None
    except WorkspaceMissing:
        return None


def _writer(writer: Mapping[str, Any]) -> str:
    model = f" {writer['model']} at {writer['provider']}" if writer["model"] else ""
    return f"{writer['kind']}{model}{', attributed' if writer['attributed'] else ''}"


def _dropped(record: Record) -> list[str]:
    return drift.dropped_candidates(record)


def session_of(service: Service, caller: Caller, attempt: str) -> str:
    """The session that calls. Where the host names none, a process that descends from the
    one that the attempt started is that session, under the id by which it is known already,
    or else under a name made of that process's identity."""
    if caller.session_id or caller.surface not in ("cli", "mcp"):
        return caller.session_id
    facts = service.journal.history(attempt)
    child = facts.child
    if child is None or child["boot"] != owner.boot_id():
        return ""
    mark = (child["pid"], child["started"])
    if mark not in owner.chain():
        return ""
    return facts.session or f"process-{mark[0]}-{mark[1]}"


def ack(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """Accept what shows that all was read."""
    attempt = given["attempt_id"]
    _record, _found, readable = _readable(service, given, attempt)
    return reading.acknowledge(
        service.journal,
        readable,
        attempt_id=attempt,
        session_id=session_of(service, caller, attempt),
        ref=given["ref"],
        digest=given["digest"],
        constraint_ids=given["constraint_ids"],
        discrepancy_codes=given["discrepancy_codes"],
        first_step=given["first_step"],
    )


# -- lists ----------------------------------------------------------------------------------


def _project(service: Service, given: Mapping[str, Any]) -> str | None:
    """The project to look in; "" for all, None where the folder belongs to none."""
    if not given.get("workspace") or given.get("scope") == "all":
        return ""
    return projects.find(service.records.root, bind(given["workspace"])) or None


def list_(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """Records, newest first."""
    project = _project(service, given)
    if project is None:
        return _listed(Page([], "", 0))
    return _listed(
        service.records.list_page(
            project_id=project,
            session_id=given.get("session", ""),
            limit=given.get("limit", 20),
            cursor=given.get("cursor", ""),
        )
    )


def search(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """Records that hold a text. A secret as the query is searched for as its mark."""
    project = _project(service, given)
    if project is None:
        return _listed(Page([], "", 0))
    return _listed(
        service.records.search(
            service.records.guard.text(given["query"]),
            project_id=project,
            limit=given.get("limit", 20),
            cursor=given.get("cursor", ""),
        )
    )


def _listed(page: Page) -> dict[str, Any]:
    return {
        "records": [_row(item) for item in page.items],
        "cursor": page.cursor,
        "total": page.total,
    }


def _row(item: Mapping[str, Any]) -> dict[str, Any]:
    made = item["manifest"] or {}
    source, place = made.get("source", {}), made.get("workspace", {})
    row = {
        "ref": item["ref"],
        "created_at": made.get("created_at", 0),
        "name": made.get("name", ""),
        "goal": item["goal"],
        "session": source.get("session_id", ""),
        "host": source.get("host", ""),
        "workspace": place.get("label", ""),
        "origin": made.get("origin", ""),
    }
    for key in ("snippets", "damaged"):
        if key in item:
            row[key] = item[key]
    return row


# -- one record -----------------------------------------------------------------------------


def show(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """A record as it is stored (or, where secrets are suspected, the view without them)."""
    return shown(service, given, hosted=True)


def shown(service: Service, given: Mapping[str, Any], *, hosted: bool) -> dict[str, Any]:
    """As :func:`show`. ``hosted``: the host that it was made in counts; for a task it does
    not."""
    workspace = given.get("workspace", "")
    record = service.records.read(given["ref"], binding=_binding(workspace))
    host = host_for(service, record) if hosted else None
    found = drift_of(service, record, workspace, host=host)
    text, left = record.document, []
    if "budget" in given:
        short = serving.shortened(record.state, given["budget"])
        text, left = short.text, [{"path": p, "items": list(names)} for p, names in short.dropped]
    return {
        "ref": record.ref,
        "manifest": record.manifest,
        "state": record.state,
        "document": text,
        "quarantined": record.quarantined,
        "suspected": record.suspected,
        "dropped": _dropped(record),
        "left_out": left,
        "discrepancies": [dict(one) for one in found.findings],
        "verdict": found.verdict,
    }


def validate(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """Integrity of a record, and what could be better in it."""
    ref = given["ref"]
    faults = service.records.verify(ref)
    told: dict[str, Any] = {"ref": ref, "valid": not faults, "faults": faults}
    if any(one["code"] == "ref_not_found" for one in faults):
        service.records.raw(ref)  # raises what it says
    told |= {"lint": [], "dropped": []}
    if not faults:
        record = service.records.read(ref)
        lost = _dropped(record)
        candidates = [lint.Candidate(text, "the source session") for text in lost]
        told["lint"] = [note.to_json() for note in lint.lint(record.state, candidates)]
        told["dropped"] = lost
    return told


def log(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """Where a record stands, and what was opened from it."""
    ref = given["ref"]
    told = service.records.log(ref)
    made = service.records.raw(ref)[0]
    journal = service.journal
    attempts, given_to, why = list[dict[str, Any]](), list[dict[str, Any]](), ""
    try:
        attempts = [journal.status(attempt) for attempt in journal.attempts(ref)]
        given_to = deliveries.listed(journal, ref)
    except StorageError as error:
        why = error.cause
    return {
        **told,
        "newer": service.records.newer(made),
        "attempts": attempts,
        "deliveries": given_to,
        "attempts_unknown": why,
    }


def verify(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """Check one record, or all, and the whole journal."""
    ref = given.get("ref", "")
    refs = [ref] if ref else [str(one) for one in projects.every(service.records.root)]
    faults: list[dict[str, str]] = []
    for number, one in enumerate(refs, 1):
        faults += service.records.verify(one)
        service.progress(number, len(refs))
    if ref and any(one["code"] == "ref_not_found" for one in faults):
        service.records.raw(ref)  # raises what it says
    try:
        journal: dict[str, Any] = service.journal.verify()
    except StorageError as error:
        journal = {}
        faults = [*faults, {"ref": "", "code": error.code, "message": error.cause}]
    return {"faults": faults, "records": len(refs), "journal": journal}

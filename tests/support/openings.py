"""Attempts to open sessions: what they are frozen from, and a host that is no host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handoff.clock import FakeClock
from handoff.sessions.acknowledge import Readable
from handoff.sessions.journal import Actor, Journal
from handoff.sessions.owner import Liveness, Owner
from handoff.sessions.preflight import TOOL, Report
from handoff.sessions.prompt import opening_prompt, prompt_sha256

SOURCE = Actor("source", "s-source")
PERSON = Actor("person", "anna")
REF = "handoff://project-1/recordabcdef"
DOCUMENT = "d" * 64
PROFILE = "bob"


def frozen(
    attempt_id: str = "attempt-0001", workspace: str = "/tmp", **other: Any
) -> dict[str, Any]:
    """A frozen attempt whose prompt fits."""
    ref = other.get("ref", REF)
    text = opening_prompt(
        tool=TOOL,
        ref=ref,
        workspace=workspace,
        attempt_id=attempt_id,
        document_sha256=DOCUMENT,
    )
    return {
        "attempt_id": attempt_id,
        "ref": ref,
        "state_sha256": "a" * 64,
        "document_sha256": DOCUMENT,
        "evidence_sha256": "e" * 64,
        "profile": PROFILE,
        "host": "hermes",
        "workspace_given": workspace,
        "workspace_resolved": workspace,
        "workspace_anchor": "f" * 64,
        "source_session": "s-source",
        "source_last_message": 7,
        "route": {"model": "m-1", "provider": "p-1", "origin": "observed", "observed_at": 1},
        "surface": "any",
        "prompt_sha256": prompt_sha256(text),
        "preflight_sha256": "b" * 64,
        "version": "1",
        "allow_parallel": False,
        "supersedes": "",
        "locale": "en",
        **other,
    }


def same(text: str) -> str:
    """A redactor that finds nothing."""
    return text


def make_journal(
    root: object,
    *,
    clock: Any = None,
    liveness: Liveness = lambda _owner: True,
    reach: Callable[[str], None] = lambda _name: None,
) -> Journal:
    """A journal in that folder, with a clock and a liveness of the test's."""
    return Journal(
        str(root), clock=clock or FakeClock(), redact=same, liveness=liveness, reach=reach
    )


def somebody(pid: int = 4242, token: str = "t") -> Owner:
    """An opener of this boot that no process is."""
    return Owner(pid, 99, "boot-1", "host-1", token)


def record(text: str = "hello\n", **other: Any) -> Readable:
    """A record to read: two constraints, one discrepancy that warns, one that doesn't."""
    values: dict[str, Any] = {
        "ref": REF,
        "document_sha256": DOCUMENT,
        "text": text,
        "constraint_ids": ("c1", "c2"),
        "discrepancies": (
            {"code": "head_moved", "severity": "warn"},
            {"code": "aged", "severity": "note"},
        ),
    }
    return Readable(**{**values, **other})


class QuietHost:
    """A host that finds nothing in the way and asks nobody."""

    def __init__(self, program: str = "/bin/true", *args: str) -> None:
        self.program, self.args, self.asked = program, args, 0
        self.report = Report()
        self.answer = True
        self.summary: list[str] = []

    def recheck(self, _frozen: Mapping[str, Any]) -> Report:
        return self.report

    def argv(self, _frozen: Mapping[str, Any], prompt: str) -> list[str]:
        return [self.program, *self.args, prompt]

    def agree(self, summary: list[str]) -> bool:
        self.asked += 1
        self.summary = summary
        return self.answer


def launched(journal: Journal, attempt_id: str = "attempt-0001", nonce: str = "n-1") -> Any:
    """An attempt prepared, reserved and requested; returns the reservation."""
    import hashlib

    if attempt_id not in journal.attempts():
        journal.prepare(frozen(attempt_id), SOURCE)
    held = journal.reserve(attempt_id, somebody(), "cli")
    mark = hashlib.sha256(nonce.encode()).hexdigest()
    journal.intend(held, {"program": {"path": "/bin/true"}, "nonce_sha256": mark})
    return held

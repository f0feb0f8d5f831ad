"""What suite D plays on: attempts that are frozen from nothing, a host that is no host, a
terminal that is always there. Nothing here is part of the product."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from handoff.clock import FakeClock
from handoff.sessions import journal_file, opening
from handoff.sessions.acknowledge import Readable
from handoff.sessions.journal import Actor, Journal
from handoff.sessions.owner import Liveness, Owner
from handoff.sessions.preflight import TOOL, Report
from handoff.sessions.prompt import opening_prompt, prompt_sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["PERSON", "PROFILE", "REF", "SOURCE", "NoTerminal", "QuietHost", "frozen", "hasty",
           "journal", "record"]  # fmt: skip

SOURCE = Actor("source", "s-source")
PERSON = Actor("person", "bench")
REF = "handoff://project-1/recordabcdef"
DOCUMENT = "d" * 64
PROFILE = "bench"


def frozen(attempt_id: str, place: str) -> dict[str, Any]:
    """An attempt as prepare freezes it."""
    text = opening_prompt(
        tool=TOOL, ref=REF, workspace=place, attempt_id=attempt_id, document_sha256=DOCUMENT
    )
    return {
        "attempt_id": attempt_id,
        "ref": REF,
        "state_sha256": "a" * 64,
        "document_sha256": DOCUMENT,
        "evidence_sha256": "e" * 64,
        "profile": PROFILE,
        "host": "hermes",
        "workspace_given": place,
        "workspace_resolved": place,
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
    }


def journal(
    root: str,
    clock: Clock | None = None,
    liveness: Liveness = lambda _owner: True,
    reach: Callable[[str], None] = lambda _name: None,
) -> Journal:
    """A journal in that folder; who lives is the stage's to say."""
    return Journal(
        root, clock=clock or FakeClock(), redact=lambda text: text, liveness=liveness, reach=reach
    )


def record() -> Readable:
    """A record of two pages with two rules and one discrepancy that has to be echoed."""
    text = "".join(f"line {number} {'x' * 90}\n" for number in range(400))
    return Readable(
        ref=REF,
        document_sha256=DOCUMENT,
        text=text,
        constraint_ids=("c1", "c2"),
        discrepancies=({"code": "head_moved", "severity": "warn"},),
    )


class QuietHost:
    """A host that finds nothing in the way and asks nobody."""

    def __init__(self, program: str = "/bin/true") -> None:
        self.program = program

    def recheck(self, _frozen: Mapping[str, Any]) -> Report:
        """Nothing is found."""
        return Report()

    def argv(self, _frozen: Mapping[str, Any], prompt: str) -> list[str]:
        """The program with the prompt."""
        return [self.program, prompt]

    def agree(self, _summary: list[str]) -> bool:
        """Yes."""
        return True


class NoTerminal:
    """A terminal that is always there."""

    def require(self) -> None:
        """There is one."""

    def lend(self) -> contextlib.AbstractContextManager[None]:
        """To nobody."""
        return contextlib.nullcontext()


class _NoShield:
    """Signals are of a real process; where all play in one, there is none."""

    received: tuple[int, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Program:
    """A new session's program that ends as soon as it is waited for."""

    owner = Owner(7, 7, "b", "h")

    def wait(self) -> tuple[int | None, int | None]:
        """It has ended well."""
        return 0, None


@contextlib.contextmanager
def hasty() -> Iterator[None]:
    """While many schedules play in one process: files need not outlive a power cut, and no
    signal is caught."""
    changed: list[tuple[Any, str, Any]] = [
        (journal_file, "SYNCHRONOUS", "OFF"),
        (journal_file, "_sync_folder", lambda _path: None),
        (opening, "Shield", _NoShield),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changed]
    for owner, name, value in changed:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)

"""The journal against the table: any call by anyone, in any order, alive or dead."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.openings import (
    PERSON,
    PROFILE,
    REF,
    SOURCE,
    frozen,
    make_journal,
    somebody,
)

from handoff import lifecycle
from handoff.errors import HandoffError
from handoff.sessions import journal_file
from handoff.sessions.journal import Reservation

IDS = ["attempt-0001", "attempt-0002", "attempt-0003"]
ATTEMPT = st.sampled_from(IDS)
MARK = {"pages_sha256": "0" * 64, "required": []}
NO_NONCE = "a nonce that is known"


class Opening(RuleBasedStateMachine):
    """Three attempts of one record; whoever reserves may die at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.dead: set[int] = set()
        self.pid = 100
        self.held: dict[str, Reservation] = {}
        self.state: dict[str, str] = {}
        self.journal = make_journal(
            self.folder / "h", liveness=lambda owner: owner.pid not in self.dead
        )

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize()
    def prepare(self) -> None:
        for attempt_id in IDS:
            self.journal.prepare(frozen(attempt_id), SOURCE)
            self.state[attempt_id] = "prepared"

    def move(self, attempt_id: str, event: str, call: Callable[[], object]) -> None:
        """What is refused changes nothing; what is done is a row of the table."""
        before = self.journal.status(attempt_id)["state"]
        try:
            call()
        except HandoffError:
            assert self.journal.status(attempt_id)["state"] == before
            return
        after = self.journal.status(attempt_id)["state"]
        if after != before:
            assert after == lifecycle.advance("attempt", before, event)
        self.state[attempt_id] = after

    @rule(attempt_id=ATTEMPT)
    def reserve(self, attempt_id: str) -> None:
        self.pid += 1
        others = [a for a in IDS if a != attempt_id]
        alive = [
            a
            for a in others
            if self.state[a] in lifecycle.ATTEMPT_LIVE
            and not (self.state[a] == "reserved" and self.held[a].owner.pid in self.dead)
        ]
        try:
            held = self.journal.reserve(attempt_id, somebody(self.pid), "cli")
        except HandoffError:
            reserved = self.state[attempt_id] == "reserved"
            reclaimable = reserved and self.held[attempt_id].owner.pid in self.dead
            assert alive or not (self.state[attempt_id] == "prepared" or reclaimable)
        else:
            assert not alive
            self.held[attempt_id] = held
        for each in IDS:
            self.state[each] = self.journal.status(each)["state"]

    @rule(attempt_id=ATTEMPT)
    def intend(self, attempt_id: str) -> None:
        if attempt_id in self.held:
            import hashlib

            mark = {"nonce_sha256": hashlib.sha256(NO_NONCE.encode()).hexdigest()}
            held = self.held[attempt_id]
            self.move(attempt_id, "launch_intent", lambda: self.journal.intend(held, mark))

    @rule(attempt_id=ATTEMPT, how=st.sampled_from(["release", "spawn_failed", "exit"]))
    def opener_ends(self, attempt_id: str, how: str) -> None:
        if attempt_id not in self.held:
            return
        held, journal = self.held[attempt_id], self.journal
        if how == "release":
            self.move(attempt_id, "reservation_released", lambda: journal.release(held, "x"))
        elif how == "spawn_failed":
            self.move(attempt_id, "spawn_failed", lambda: journal.spawn_failed(held, "x"))
        else:
            self.move(attempt_id, "child_exited", lambda: journal.child_exited(held, 0, None))

    @rule(attempt_id=ATTEMPT)
    def opener_dies(self, attempt_id: str) -> None:
        if attempt_id in self.held:
            self.dead.add(self.held[attempt_id].owner.pid)

    @rule(attempt_id=ATTEMPT, session=st.sampled_from(["s-1", "s-2", "s-source"]))
    def session_shows_itself(self, attempt_id: str, session: str) -> None:
        self.move(
            attempt_id,
            "session_seen",
            lambda: self.journal.session_seen(attempt_id, session, PROFILE, nonce=NO_NONCE),
        )

    @rule(attempt_id=ATTEMPT, session=st.sampled_from(["s-1", "s-2"]), page=st.integers(1, 2))
    def reads(self, attempt_id: str, session: str, page: int) -> None:
        told = {**MARK, "page": page}
        self.move(
            attempt_id,
            "pages_complete",
            lambda: self.journal.page_served(attempt_id, session, told, of=2),
        )

    @rule(attempt_id=ATTEMPT, session=st.sampled_from(["s-1", "s-2"]))
    def acknowledges(self, attempt_id: str, session: str) -> None:
        self.move(
            attempt_id,
            "ack_recorded",
            lambda: self.journal.acknowledged(attempt_id, session, {"first_step": "x"}),
        )

    @rule(attempt_id=ATTEMPT, what=st.sampled_from(["confirm", "adopt", "abandon"]))
    def person_decides(self, attempt_id: str, what: str) -> None:
        journal, lost = self.journal, self.state[attempt_id] == "requested"
        if what == "confirm":
            self.move(attempt_id, "user_confirmed", lambda: journal.confirm(attempt_id, PERSON))
        elif what == "adopt":
            self.move(
                attempt_id, "adopted", lambda: journal.adopt(attempt_id, "s-9", ["s-9"], PERSON)
            )
        else:
            event = "declared_lost" if lost else "abandoned"
            self.move(attempt_id, event, lambda: journal.abandon(attempt_id, "x", PERSON))

    @invariant()
    def one_launch_each_and_one_opening_a_record(self) -> None:
        if not self.state:
            return
        self.journal.verify()
        for attempt_id in IDS:
            facts = self.journal.history(attempt_id)
            assert facts.launches <= 1
            assert self.journal.status(attempt_id)["resume_verified"] is False
            if facts.acknowledged:
                assert facts.handoff_read
            if facts.handoff_read:
                assert facts.session_identified
            assert facts.session != "s-source"
        assert len(self.journal.live(REF)) <= 1


@pytest.fixture(autouse=True, scope="module")
def _no_power_cuts_here() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_file, "SYNCHRONOUS", "OFF")
        patch.setattr(journal_file, "_sync_folder", lambda _path: None)
        yield


TestOpening = Opening.TestCase
TestOpening.settings = settings(max_examples=8, stateful_step_count=25, deadline=None)

"""Two openers, one new session, a source, a person: in any order, cut at any point."""

from __future__ import annotations

import os

import pytest

from handoff.sessions.bench import schedules
from handoff.sessions.bench.stage import frozen, journal
from handoff.sessions.journal import Actor

ALL = os.environ.get("HANDOFF_FAULTS") == "all"
#: 10,000 is what a release is held to (HANDOFF_FAULTS=all); HANDOFF_SEED starts elsewhere
COUNT = int(os.environ.get("HANDOFF_SCHEDULES", "10000" if ALL else "160"))
SEED = int(os.environ.get("HANDOFF_SEED", "0"))


@pytest.mark.slow
@pytest.mark.timeout(60 + COUNT)
@pytest.mark.parametrize("part", [0, 1])
def test_no_schedule_starts_anything_twice(part: int) -> None:
    count = COUNT // 2
    played = schedules.play(count, SEED + part * COUNT)
    assert (played.twice, played.illegal) == (0, 0), played.first
    assert played.launches > count / 4, "the schedules open something"
    assert {"closed", "abandoned", "launch_failed"} <= set(played.ends), played.ends
    reached = set(schedules.POINTS) & set(played.cut)
    assert len(reached) >= min(16, count // 8), played.cut


def test_a_schedule_is_decided_by_its_seed() -> None:
    assert schedules.play(12, 7) == schedules.play(12, 7)
    assert schedules.play(12, 7) != schedules.play(12, 8)


def test_a_second_start_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An opener that starts twice breaks the rule that the suite holds it to."""
    from handoff.sessions.opening import Opening

    real = Opening._start_and_wait

    def twice(self, held, launch, program, scrubbed, shield):  # type: ignore[no-untyped-def]
        yield from real(self, held, launch, program, scrubbed, shield)
        self.start(launch, held.attempt_id, "n", shield)

    monkeypatch.setattr(Opening, "_start_and_wait", twice)
    assert schedules.play(10, 0).twice > 0


def test_a_start_without_an_intent_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from handoff.sessions.opening import Opening

    monkeypatch.setattr(Opening, "_intend", lambda *_: None)
    played = schedules.play(10, 0)
    assert played.twice > 0
    assert "intent" in played.first


def test_the_stage_is_put_back(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from handoff.sessions import journal_file, opening
    from handoff.sessions.launch import Shield

    schedules.play(1, 0)
    assert journal_file.SYNCHRONOUS == "EXTRA"
    assert opening.Shield is Shield
    book = journal(str(tmp_path / "j"))
    book.prepare(frozen("attempt-0001", "/"), Actor("source", "s"))
    assert book.attempts() == ["attempt-0001"]

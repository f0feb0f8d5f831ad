"""One change is one transaction; an earlier run is closed by its own end."""

from __future__ import annotations

from tests.unit.agentd.harness import CLAIM, Box

from handoff.agentd import effects, turns
from handoff.executors.contract import TurnEnded
from handoff.store.records import EffectRow


def states(box: Box) -> list[str]:
    rows = box.store.reader().execute("SELECT state FROM runs ORDER BY created_at, rowid")
    return [row[0] for row in rows.fetchall()]


def test_a_run_that_ends_after_its_successor_began_is_closed(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text=CLAIM))
    box.verify()
    box.step(turns.end_run)
    old = box.core.must_run().id
    box.step(lambda core: turns.continue_(core, "more", "c" * 40, "me"))
    assert states(box) == ["ending", "intended"]
    effect = EffectRow(box.effect("end_run"), "end_run", "{}")
    box.step(lambda core: effects._run_is_gone(core, effect=effect, run_id=old))
    assert states(box) == ["ended", "intended"]


def test_a_failed_step_leaves_nothing(box: Box) -> None:
    before = box.types()

    def fails(core: object) -> None:
        box.core.event("progress", {"text": "x"})
        raise ValueError("no")

    try:
        box.step(fails)
    except ValueError:
        pass
    box.step(lambda core: None)
    assert box.types() == before

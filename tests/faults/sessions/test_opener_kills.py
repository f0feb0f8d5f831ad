"""Openers that are killed, and openers that come in crowds: one start each, whatever happens."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import time
from collections import Counter

import pytest
from tests.support.opener_run import Place, outcome_of, running
from tests.support.waiting import until

A = "attempt-0001"
#: where the first opener is killed -> state, certainty, what the next opener exits with
POINTS = {
    "journal.reserve": ("prepared", "certain", 0),
    "journal.reserved": ("reserved", "certain", 0),
    "journal.launch_intent": ("reserved", "certain", 0),
    "journal.launch_intent.done": ("requested", "uncertain", 5),
    "opener.before_start": ("requested", "uncertain", 5),
    "opener.started": ("requested", "uncertain", 5),
    "journal.child_started": ("requested", "uncertain", 5),
    "journal.child_started.done": ("requested", "uncertain", 5),
    "opener.child_ended": ("requested", "uncertain", 5),
    "journal.exit": ("requested", "uncertain", 5),
    "journal.exited": ("closed", "certain", 4),
}
#: 1000 is what a release is held to (HANDOFF_FAULTS=all)
ALL = os.environ.get("HANDOFF_FAULTS") == "all"
ROUNDS = int(os.environ.get("HANDOFF_ROUNDS", "1000" if ALL else "8"))
CROWD = 100


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_point(tmp_path: pathlib.Path, point: str) -> None:
    place = Place(tmp_path)
    with running(place, A, HANDOFF_CRASH_AT=point) as run:
        assert run.end() == (-signal.SIGKILL, {})
    state, certainty, code = POINTS[point]
    status = place.journal.status(A)
    assert (status["state"], status["certainty"]) == (state, certainty)
    started = len(place.launches())
    again, outcome = outcome_of(place)
    assert again == code, outcome
    assert len(place.launches()) <= 1
    if code == 5:
        assert len(place.launches()) == started, "nothing starts by itself"
        place.prepare("attempt-0002")
        assert outcome_of(place, "attempt-0002")[0] == 5, "nor under another id"
        place.give_up(A)
        assert outcome_of(place, "attempt-0002")[0] == 0
    place.journal.verify()


def test_a_killed_opener_leaves_the_session_it_knew(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path, "dump")
    place.program.write_text(place.program.read_text().replace("exit 0", "read -r x"))
    with running(place) as run:
        until((tmp_path / "fds").exists, "the child is up")
        place.journal.session_seen(A, "s-new", "bob", nonce=(tmp_path / "nonce").read_text())
        run.process.kill()
        run.process.wait()
        status = place.journal.status(A)
    assert (status["state"], status["certainty"]) == ("session_identified", "certain")
    assert status["child_exit"] == "unknown"
    assert outcome_of(place)[0] == 4
    assert len(place.launches()) == 1


@pytest.mark.slow
@pytest.mark.timeout(60 + 3 * ROUNDS)
def test_killed_at_any_moment(tmp_path: pathlib.Path) -> None:
    seed = int(os.environ.get("HANDOFF_SEED", "0")) or random.randrange(1 << 30)
    chance = random.Random(seed)
    behaviours = ["end", "fail", "hang", "wreck-9"]
    ends: Counter[str] = Counter()
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        place = Place(folder, chance.choice(behaviours))
        with running(place) as run:
            if chance.random() < 0.9:  # else somewhere in its start-up
                until(lambda at=place: at.journal.status(A)["state"] != "prepared", within=30)
            time.sleep(chance.uniform(0.0, 0.06))
            run.process.kill()
            run.process.communicate()
        before = len(place.launches())
        status = place.journal.status(A)
        place.behave("end")
        code, outcome = outcome_of(place)
        after = len(place.launches())
        assert after <= 1, f"seed {seed}, round {number}: started {after} times"
        assert code in (0, 4, 5), f"seed {seed}, round {number}: {outcome}"
        assert (code == 0) == (status["state"] in ("prepared", "reserved"))
        assert before == 0 or code != 0, f"seed {seed}, round {number}"
        place.journal.verify()
        ends[status["state"]] += 1
    print(dict(ends))
    assert ROUNDS < 50 or len(ends) > 2, ends


def test_a_hundred_openers_at_once_start_one(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path, "hang")
    with running(place, A, "--crowd", str(CROWD)) as run:
        until((tmp_path / "ready").exists, "one has won", within=30)
        run.type(b"\n")
        _, outcome = run.end()
    assert Counter(outcome["codes"]) == {4: CROWD - 1, 0: 1}
    assert len(place.launches()) == 1
    kinds = Counter(e.kind for e in place.journal.events(A))
    assert kinds["launch_intent"] == 1
    assert kinds["reservation_taken"] == 1

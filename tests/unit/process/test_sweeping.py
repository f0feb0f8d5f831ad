"""What belongs to a run, and above all what does not.

The tests of the first half only look. They come first in the file because a mistake there
would end more than the test.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.runs import ENV, lives
from tests.support.waiting import until

from handoff.process import facts, signalling, sweeping
from handoff.process.sweeping import belonging

NEVER = f"no-such-run-{secrets.token_hex(8)}"
SLEEPER = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)")


@contextmanager
def process(*argv: str, mark: str | None = None, session: bool = False) -> Iterator[facts.Fact]:
    """A child of this test, its fact as it was once it slept."""
    env = ENV if mark is None else {**ENV, "HANDOFF_RUN": mark}
    argv = argv or ("/bin/sleep", "60")
    child = subprocess.Popen(argv, env=env, start_new_session=session, stdin=subprocess.DEVNULL)
    try:
        until(lambda: _has_become(child.pid))
        found = facts.fact(child.pid)
        assert found is not None
        yield found
    finally:
        child.kill()
        child.wait()


def _has_become(pid: int) -> bool:
    """Whether a child is past its exec: until then it shows our own words, or none."""
    for name in ("cmdline", "environ"):
        shown = Path(f"/proc/{pid}/{name}").read_bytes()
        if not shown or shown == Path(f"/proc/self/{name}").read_bytes():
            return False
    return True


def pids(found: list[facts.Fact]) -> set[int]:
    return {one.pid for one in found}


# -- only looking ------------------------------------------------------------------------


def test_an_unknown_run_has_no_processes():
    assert belonging(NEVER) == []


@pytest.mark.parametrize("since", [0, 1, 1 << 62])
@pytest.mark.parametrize(
    "known",
    [
        frozenset(),
        frozenset({(0, 0)}),
        frozenset({(1, 0)}),
        frozenset({(-1, 0), (os.getpid(), 0), (os.getppid(), 0)}),
    ],
)
@pytest.mark.parametrize("session", [None, 2**31 - 1])
def test_defaults_and_nonsense_never_match_anything(known, session, since):
    assert belonging(NEVER, known, session=session, since=since) == []


@pytest.mark.parametrize("session", [0, 1, -1, -5])
def test_a_session_of_half_the_machine_is_refused(session: int):
    with pytest.raises(ValueError, match="session"):
        belonging(NEVER, session=session)


def test_an_empty_run_id_is_refused():
    with pytest.raises(ValueError, match="without an id"):
        belonging("")
    with pytest.raises(ValueError, match="without an id"):
        sweeping.Quarry("", None)


def test_the_first_process_our_ancestors_and_we_never_belong():
    """Not even if a roster names them with their right start stamps, or they are marked."""
    spared = signalling.ancestors()
    assert {1, os.getpid(), os.getppid()} <= spared
    stamps = frozenset((pid, one.started) for pid in spared if (one := facts.fact(pid)) is not None)
    assert stamps
    assert not pids(belonging(NEVER, stamps)) & spared
    for session in {one.session for pid in spared if (one := facts.fact(pid))} - {0, 1}:
        assert not pids(belonging(NEVER, stamps, session=session)) & spared


def test_a_marked_ancestor_is_spared_and_a_marked_sibling_is_not():
    """A process that carries the run's mark looks: it and its parents are not found."""
    mark = f"look-{secrets.token_hex(8)}"
    script = (
        "import os,subprocess,sys\n"
        "from handoff.process import facts\n"
        "from handoff.process.sweeping import belonging\n"
        "other = subprocess.Popen(['/bin/sleep', '60'])\n"
        "try:\n"
        "    while facts.command_of(other.pid) != '/bin/sleep 60': pass\n"
        "    found = {one.pid for one in belonging(sys.argv[1])}\n"
        "    print(found == {other.pid})\n"
        "finally:\n"
        "    other.kill(); other.wait()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, mark],
        env={**ENV, "HANDOFF_RUN": mark, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=15,
        check=False,
    )
    assert done.stdout == b"True\n", done.stderr


def test_only_the_exact_mark_counts():
    run = f"run-{secrets.token_hex(8)}"
    with (
        process(mark=run) as mine,
        process(mark=run + "x"),
        process(mark=run[:-1]),
        process(mark="x" + run),
        process(mark=""),
        process(*SLEEPER, run, f"HANDOFF_RUN={run}"),  # it only names it
    ):
        assert pids(belonging(run)) == {mine.pid}


def test_known_counts_only_with_the_right_stamp():
    with process() as one:
        assert belonging(NEVER, {(one.pid, one.started + 1)}) == []
        assert belonging(NEVER, {(one.pid, 0)}) == []
        assert pids(belonging(NEVER, {(one.pid, one.started)})) == {one.pid}


def test_nothing_older_than_since_belongs():
    with process(mark=NEVER) as one:
        assert belonging(NEVER, since=one.started + 1) == []
        assert pids(belonging(NEVER, since=one.started)) == {one.pid}


def test_a_session_counts_only_where_it_is_asked_for():
    with process(session=True) as one:
        assert one.session == one.pid
        assert belonging(NEVER) == []
        assert pids(belonging(NEVER, session=one.pid)) == {one.pid}


def test_what_descends_from_it_belongs():
    with process("/bin/sh", "-c", "env -i /bin/sleep 60 & wait", mark=NEVER) as shell:
        below = until(lambda: facts.descendants(shell.pid))
        until(lambda: facts.command_of(below[0].pid) == "/bin/sleep 60")
        found = pids(belonging(NEVER))
        assert found == {shell.pid, below[0].pid}
        assert signalling.send_signal(below[0].pid, below[0].started, signal.SIGKILL)


def test_the_dead_do_not_belong():
    with process(mark=NEVER) as one:
        os.kill(one.pid, signal.SIGKILL)
        until(lambda: not facts.living(one.pid, one.started))
        assert facts.fact(one.pid) is not None  # a zombie until it is collected
        assert belonging(NEVER) == []


@pytest.mark.parametrize("number", [0, signal.SIGTERM, signal.SIGKILL])
def test_no_signal_reaches_groups_the_first_process_or_our_own_line(
    monkeypatch: pytest.MonkeyPatch, number: int
):
    def never(*arguments: object) -> None:
        raise AssertionError(f"a signal was sent: {arguments}")

    monkeypatch.setattr(os, "kill", never)
    monkeypatch.setattr(os, "killpg", never)
    monkeypatch.setattr(os, "pidfd_open", never)
    monkeypatch.setattr(signal, "pidfd_send_signal", never)
    one = facts.fact(1)
    stamps = [0, -1, 1, one.started if one else 1]
    for pid, started in itertools.product([0, 1, -1, -2, -(2**31)], stamps):
        assert not signalling.send_signal(pid, started, number)
    for pid in signalling.ancestors():
        mine = facts.fact(pid)
        assert not signalling.send_signal(pid, mine.started if mine else 1, number)


def test_a_signal_needs_the_right_stamp():
    with process() as one:
        assert not signalling.send_signal(one.pid, one.started + 1, signal.SIGKILL)
        assert not signalling.send_signal(one.pid, 0, signal.SIGKILL)
        assert lives(one.pid)
        assert signalling.send_signal(one.pid, one.started, signal.SIGKILL)
        assert until(lambda: not lives(one.pid))
        assert not signalling.send_signal(one.pid, one.started, signal.SIGKILL)


def test_without_pidfds_it_is_the_stamp_alone(monkeypatch: pytest.MonkeyPatch):
    def missing(_pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    with process() as one:
        assert not signalling.send_signal(one.pid, one.started + 1, signal.SIGKILL)
        assert lives(one.pid)
        assert signalling.send_signal(one.pid, one.started, signal.SIGKILL)
        assert until(lambda: not lives(one.pid))


def test_looking_at_a_folder_that_is_no_runs(tmp_path: Path):
    assert sweeping.left_behind(NEVER, tmp_path) == []
    assert sweeping.left_behind(NEVER, tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    "lines", ["", "\n", "1 1\n", "{boot}\n", "{boot}\n0 0\n1 {init}\n", "{boot}\n{me}\n"]
)
def test_looking_with_odd_rosters(tmp_path: Path, lines: str):
    me, init = facts.fact(os.getpid()), facts.fact(1)
    assert me is not None
    text = lines.format(
        boot=facts.boot_id(), init=init.started if init else 0, me=f"{me.pid} {me.started}"
    )
    _shim_file(tmp_path, NEVER)
    (tmp_path / "roster").write_text(text)
    assert sweeping.left_behind(NEVER, tmp_path) == []


def _shim_file(folder: Path, run_id: str, pid: int = 2**22 + 1, started: int = 1) -> None:
    boot = facts.boot_id()
    (folder / "shim.json").write_text(
        f'{{"run_id": "{run_id}", "pid": {pid}, "started": {started}, "boot": "{boot}"}}'
    )


def test_a_roster_of_another_run_or_boot_is_not_believed(tmp_path: Path):
    with process() as one:
        roster = tmp_path / "roster"
        roster.write_text(f"{facts.boot_id()}\n{one.pid} {one.started}\n")
        assert sweeping.left_behind(NEVER, tmp_path) == []
        _shim_file(tmp_path, "another")
        assert sweeping.left_behind(NEVER, tmp_path) == []
        _shim_file(tmp_path, NEVER)
        assert [proc.pid for proc in sweeping.left_behind(NEVER, tmp_path)] == [one.pid]
        roster.write_text(f"another boot\n{one.pid} {one.started}\n")
        assert sweeping.left_behind(NEVER, tmp_path) == []


# -- ending ------------------------------------------------------------------------------


async def test_a_sweep_ends_what_belongs_and_nothing_else(tmp_path: Path):
    run = f"run-{secrets.token_hex(8)}"
    with (
        process(mark=run) as mine,
        process(
            "/bin/sh", "-c", "trap '' TERM; while :; do sleep 60 & wait; done", mark=run
        ) as deaf,
        process(mark=run + "x") as other,
        process() as unmarked,
    ):
        assert await sweeping.sweep(run, tmp_path, grace_s=0.1) == []
        assert not lives(mine.pid) and not lives(deaf.pid)
        assert lives(other.pid) and lives(unmarked.pid)
        assert belonging(run) == []


async def test_a_sweep_of_nothing_ends_nothing(tmp_path: Path):
    before = set(facts.all_pids())
    assert await sweeping.sweep(NEVER, tmp_path / "nowhere", grace_s=0) == []
    assert 1 in before and lives(1) and lives(os.getppid())


async def test_a_shim_file_that_names_the_first_process_or_us_ends_neither(tmp_path: Path):
    me, init = facts.fact(os.getpid()), facts.fact(1)
    assert me is not None and init is not None
    for one in (me, init):
        _shim_file(tmp_path, NEVER, one.pid, one.started)
        assert await sweeping.sweep(NEVER, tmp_path, grace_s=0) == []
    assert lives(1)


async def test_a_shim_of_another_run_is_left_alone(tmp_path: Path):
    with process() as one:
        _shim_file(tmp_path, "another", one.pid, one.started)
        assert await sweeping.sweep(NEVER, tmp_path, grace_s=0) == []
        assert lives(one.pid)
        _shim_file(tmp_path, "another", one.pid, one.started)
        assert await sweeping.sweep("another", tmp_path, grace_s=0) == []
        assert until(lambda: not lives(one.pid))


async def test_terminate_first_then_kill(tmp_path: Path):
    run = f"run-{secrets.token_hex(8)}"
    note = tmp_path / "note"
    script = f"trap 'echo bye > {note}; exit 0' TERM; touch {note}; while :; do sleep 0.01; done"
    with process("/bin/sh", "-c", script, mark=run) as one:
        until(note.exists)
        sweeping_now = asyncio.create_task(sweeping.sweep(run, tmp_path, grace_s=10))
        assert await sweeping_now == []
        assert not lives(one.pid)
    assert note.read_text() == "bye\n"


class Scripted(sweeping.Quarry):
    """Its looks are given; nothing turns up in between."""

    def __init__(self, *looks: list[facts.Fact]) -> None:
        super().__init__(NEVER, None)
        self.looks = list(looks)

    def look(self) -> list[facts.Fact]:
        return self.looks.pop(0)

    def chase(self, number: int) -> bool:
        return False


def test_what_cannot_be_ended_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeping, "_KILL_S", 0.05)
    monkeypatch.setattr(sweeping, "send_signal", lambda *_: False)
    with process() as one:
        left = sweeping.end_all(Scripted(*[[one]] * 50), 0.0)
        assert [proc.pid for proc in left] == [one.pid]


def test_one_look_that_finds_nothing_is_not_believed_once_something_was_found():
    """What forks and ends all the time is between two processes now and then."""
    with process() as first, process() as second, process() as third:
        quarry = Scripted([first], [], [second], [], [], [third], [], [], [])
        assert sweeping.end_all(quarry, 0.0) == []
        assert quarry.looks == []
        for one in (first, second, third):
            until(lambda one=one: not lives(one.pid))  # type: ignore[misc]
    assert sweeping.end_all(Scripted([], [], []), 0.0, sure=3) == []
    assert sweeping.end_all(Scripted([]), 0.0) == []


def test_what_must_happen_before_the_first_kill_happens_once():
    order: list[str] = []

    class Watched(sweeping.Quarry):
        def look(self) -> list[facts.Fact]:
            order.append("look")
            return [deaf] if lives(deaf.pid) else []

    with process("/bin/sh", "-c", "trap '' TERM; exec sleep 60") as deaf:
        until(lambda: facts.command_of(deaf.pid) == "sleep 60")
        quarry = Watched(NEVER, None)
        assert sweeping.end_all(quarry, 0.05, lambda: order.append("shut")) == []
        assert order.count("shut") == 1 and order.index("shut") > 1
        assert sweeping.end_all(quarry, 0.0, lambda: order.append("shut")) == []
        assert order.count("shut") == 1


def test_only_newcomers_with_the_mark_are_chased(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeping, "_CHASE_S", 4.0)
    run = f"run-{secrets.token_hex(8)}"
    quarry = sweeping.Quarry(run, None)

    def killed() -> bool:
        # A child of ours has our environment until it is sleep: one that is seen before
        # that is no newcomer any more, so several are tried.
        made = subprocess.Popen(["/bin/sleep", "60"], env={**ENV, "HANDOFF_RUN": run})
        try:
            return made.wait(0.3) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            return False
        finally:
            made.kill()
            made.wait()

    with process(mark=run) as old, ThreadPoolExecutor(1) as pool:
        chasing = pool.submit(quarry.chase, signal.SIGKILL)
        with process(mark=run + "x") as other, process() as unmarked:
            assert any(killed() for _ in range(10))
            assert chasing.result(10) is True
            assert lives(old.pid) and lives(other.pid) and lives(unmarked.pid)

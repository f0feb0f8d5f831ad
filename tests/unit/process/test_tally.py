from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runs import ENV

from handoff.process import facts
from handoff.process.tally import ROSTER, Tally, read_roster


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def children() -> Iterator[list[int]]:
    made = [
        subprocess.Popen(["/bin/cat"], env=ENV, stdin=subprocess.PIPE, start_new_session=True)
        for _ in range(3)
    ]
    yield [one.pid for one in made]
    for one in made:
        one.kill()
        one.communicate()


def test_it_counts_everything_below_and_writes_it_down(children: list[int]):
    count, pressure, over = Tally(0).look()
    assert count >= 3 and not pressure and not over
    roster = read_roster(".", facts.boot_id())
    assert set(children) <= {pid for pid, _ in roster}
    assert all(facts.living(pid, started) for pid, started in roster)
    assert stat.S_IMODE(os.stat(ROSTER).st_mode) == 0o600
    assert read_roster(".", "another boot") == []


def test_pressure_is_told_on_its_rising_edge(children: list[int], monkeypatch: pytest.MonkeyPatch):
    tally = Tally(10)
    for count, told in ((8, False), (9, True), (9, False), (5, False), (9, True), (10, False)):
        monkeypatch.setattr(
            tally,
            "members",
            lambda count=count: [facts.Fact(n + 2, 1, 1, "S", 9) for n in range(count)],
        )
        assert tally.look() == (count, told, count >= 10)


def test_an_unchanged_roster_is_not_written_again(children: list[int]):
    tally = Tally(0)
    tally.look()
    os.unlink(ROSTER)
    tally.look()
    assert not os.path.exists(ROSTER)


def test_a_disk_that_is_full_does_not_end_it(children: list[int], monkeypatch: pytest.MonkeyPatch):
    tally = Tally(0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: 3)
        tally.look()
    assert not os.path.exists(ROSTER)
    os.unlink(f"{ROSTER}.new")
    os.mkdir(f"{ROSTER}.new")
    tally.look()
    os.rmdir(f"{ROSTER}.new")
    tally.look()
    assert set(children) <= {pid for pid, _ in read_roster(".", facts.boot_id())}


@pytest.mark.parametrize("text", ["", "\n", "boot\n", "boot\nx\n", "boot\n1 2 3\n", "boot\n \n"])
def test_a_cut_roster_names_nobody(text: str):
    Path(ROSTER).write_text(text)
    assert read_roster(".", "boot") == []


def test_no_roster():
    assert read_roster("nowhere", "boot") == []


def test_without_a_subreaper_the_session_and_the_memory_count(
    children: list[int], monkeypatch: pytest.MonkeyPatch
):
    """As on macOS: an orphan is found by its session, or because it was seen before."""
    tally = Tally(0)
    monkeypatch.setattr(facts, "LINUX", False)
    tally.executors = {children[0]}
    monkeypatch.setattr(facts, "descendants", lambda root, *, thorough=False: [])
    monkeypatch.setattr(facts, "fact", _linux_fact)
    monkeypatch.setattr(facts, "all_pids", _linux_pids)
    assert {one.pid for one in tally.members()} == {children[0]}
    tally._roster = frozenset({(children[1], _linux_fact(children[1]).started)})
    assert {one.pid for one in tally.members()} == {children[0], children[1]}
    tally.executors = {0, 1}  # never anybody's executor
    tally._roster = frozenset()
    assert tally.members() == []


def _linux_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _linux_fact(pid: int) -> facts.Fact:
    raw = Path(f"/proc/{pid}/stat").read_bytes() if os.path.exists(f"/proc/{pid}") else b""
    if not raw:
        return None  # type: ignore[return-value]
    fields = raw[raw.rfind(b")") + 2 :].split()
    return facts.Fact(pid, int(fields[1]), int(fields[19]), fields[0].decode(), int(fields[3]))

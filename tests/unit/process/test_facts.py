from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.support.runs import ENV
from tests.support.waiting import until

from handoff.process import facts, signalling


@contextmanager
def child(*argv: str, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(argv, env=ENV, stdin=subprocess.PIPE, **more)  # type: ignore[call-overload]
    try:
        yield made
    finally:
        made.kill()
        made.communicate()


def test_a_fact_agrees_with_another_reader():
    with child("/bin/cat") as made:
        one = facts.fact(made.pid)
        assert one is not None
        other = psutil.Process(made.pid)
        assert one.ppid == other.ppid() == os.getpid()
        assert one.session == os.getsid(made.pid)
        assert facts.living(one.pid, one.started)
        assert not facts.living(one.pid, one.started + 1)
        (age,) = facts.ages([one])
        assert abs(age - (psutil.time.time() - other.create_time())) < 2
        assert one.pid in facts.all_pids()


def test_odd_names_do_not_mislead(tmp_path: Path):
    program = tmp_path / "a) R 1 (b"
    program.write_text("#!/bin/sh\nread x\n")
    program.chmod(0o755)
    with child(str(program)) as made:
        until(lambda: str(program) in facts.command_of(made.pid))
        one = facts.fact(made.pid)
        assert one is not None and one.ppid == os.getpid()


def test_a_zombie_is_a_fact_but_does_not_live():
    with child("/bin/true") as made:
        one = until(lambda: (f := facts.fact(made.pid)) and f.state == "Z" and f)
        assert one and not facts.living(one.pid, one.started)
    assert facts.fact(made.pid) is None


@pytest.mark.parametrize("pid", [0, -1, 2**30])
def test_a_pid_that_is_none(pid: int):
    assert facts.fact(pid) is None
    assert not facts.living(pid, 1)
    assert facts.command_of(pid) == "" and not facts.has_mark(pid, b"A=1")
    assert facts.descendants(2**30) == []


@pytest.mark.parametrize("thorough", [False, True])
def test_descendants_parents_first(thorough: bool):
    with child("/bin/sh", "-c", "sh -c 'sleep 60 & sleep 60; :' ; :") as made:

        def whole() -> list[facts.Fact]:
            found = facts.descendants(made.pid, thorough=thorough)
            return found if len(found) == 3 else []

        found = until(whole)
        assert found[0].ppid == made.pid
        assert {one.ppid for one in found[1:]} == {found[0].pid}
        assert all(facts.in_tree_of(one.pid, made.pid) for one in found)
        assert all(facts.in_tree_of(one.pid, os.getpid()) for one in found)
        assert not facts.in_tree_of(made.pid, found[0].pid)
        assert made.pid in {one.pid for one in facts.descendants(os.getpid(), thorough=thorough)}
        for one in reversed(found):
            signalling.send_signal(one.pid, one.started, signal.SIGKILL)


def test_children_of_every_thread_are_seen():
    script = (
        "import subprocess, threading\n"
        "def make():\n"
        "    made = subprocess.Popen(['/bin/cat'], stdin=subprocess.PIPE)\n"
        "    print(made.pid, flush=True)\n"
        "    made.wait()\n"
        "thread = threading.Thread(target=make, daemon=True); thread.start()\n"
        "input()\n"
    )
    with child(sys.executable, "-c", script, stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        inner = int(made.stdout.readline())
        (one,) = facts.descendants(made.pid)
        assert one.pid == inner
        signalling.send_signal(inner, one.started, signal.SIGKILL)


def test_marks():
    with child("/usr/bin/env", "-i", "A=12", "B=", "/bin/cat") as made:
        until(lambda: facts.command_of(made.pid) == "/bin/cat")
        assert facts.has_mark(made.pid, b"A=12") and facts.has_mark(made.pid, b"B=")
        for other in (b"A=1", b"=12", b"A", b"C=", b"A=12\0B"):
            assert not facts.has_mark(made.pid, other)


def test_commands_are_for_people():
    with child("/bin/sh", "-c", "read x # \n\x1b[31mred\x07" + "ä" * 300) as made:
        shown = until(lambda: (c := facts.command_of(made.pid)).startswith("/bin/sh -c") and c)
        assert len(shown) == facts.COMMAND_SHOWN and shown.isprintable() and "??[31mred?" in shown
    assert facts.command_of(2) in {"[kthreadd]", ""} or facts.command_of(2)


def test_the_boot_does_not_change():
    assert facts.boot_id() == facts.boot_id() != ""

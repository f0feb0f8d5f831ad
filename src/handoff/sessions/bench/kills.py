"""Suite D with real processes: openers that are killed (D2), that have no terminal (D6), and
that come in crowds (D7), each with a program in the place of the host.

The program writes down that it was started, so that starts are counted from outside. Every
process that a round starts has a terminal of its own, and is gone when the round ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from handoff.clock import SystemClock
from handoff.errors import TimedOut
from handoff.sessions.bench import Metric, scratch
from handoff.sessions.bench.chance import Chance
from handoff.sessions.bench.stage import PERSON, SOURCE, frozen
from handoff.sessions.journal import Journal

#: seconds for whatever a round waits for
PATIENCE = 60.0
CROWD = 100
#: where an opener is killed -> state, certainty, what the next opener exits with
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
#: how the program behaves, in words of a shell; "deaf" ignores the signals that ask
BEHAVIOURS = {
    "ends": "exit 0",
    "fails": "exit 3",
    "waits": "read -r answer",
    "deaf": "trap '' TERM HUP; read -r answer",
    "forks": "(read -r answer) & wait",
    "is killed": "kill -9 $$",
}
_A = "attempt-0001"


class Place:
    """A journal with one prepared attempt, a workspace, and the program."""

    def __init__(self, folder: str, behave: str) -> None:
        self.folder = pathlib.Path(folder)
        self.root = str(self.folder / "handoff")
        self.workspace = self.folder / "w"
        self.workspace.mkdir()
        self.program = self.folder / "program"
        self.behave(behave)
        self.journal = Journal(self.root, clock=SystemClock(), redact=lambda text: text)
        self.prepare(_A)

    def behave(self, name: str) -> None:
        """Let the program do that."""
        here = f'HERE={self.folder}\necho $$ >>"$HERE/launches"\n'
        self.program.write_text(f"#!/bin/sh\n{here}{BEHAVIOURS[name]}\n")
        self.program.chmod(0o755)

    def prepare(self, attempt_id: str) -> None:
        """One more attempt of the same record."""
        self.journal.prepare(frozen(attempt_id, str(self.workspace)), SOURCE)

    def launches(self) -> list[int]:
        """The pids of the programs that were started."""
        with contextlib.suppress(FileNotFoundError):
            return [int(pid) for pid in (self.folder / "launches").read_text().split()]
        return []

    def argv(self, attempt_id: str, *more: str) -> list[str]:
        """How an opener is started."""
        module = [sys.executable, "-m", f"{__package__}.opener"]
        return [*module, self.root, attempt_id, str(self.workspace), str(self.program), *more]


@contextlib.contextmanager
def opener(place: Place, attempt_id: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """An opener under a terminal; it, and what it started, are gone afterwards."""
    master, slave = pty.openpty()
    # A file, not a pipe: what was started holds it as long as it lives.
    with open(place.folder / "said", "wb") as said:
        process = subprocess.Popen(
            place.argv(attempt_id, *more),
            stdin=slave,
            stdout=slave,
            stderr=said,
            start_new_session=True,
        )
    os.close(slave)
    drained = False
    try:
        yield process
        drained = True
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)  # hangs up on what reads from the terminal
        if drained:
            _until(lambda: not any(map(_lives, place.launches())), "what was started has ended")


def _until(holds: Callable[[], bool], what: str, limit: float = PATIENCE) -> None:
    end = time.monotonic() + limit
    while not holds():
        if time.monotonic() > end:
            raise TimedOut(f"not within {limit:.0f} s: {what}")
        time.sleep(0.002)


def _lives(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return os.path.isdir("/proc/self") is False and _known(pid)
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _known(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def run(place: Place, attempt_id: str, *more: str) -> tuple[int, dict[str, Any]]:
    """An opener to its end: exit code (negative: the signal), and its outcome or {}."""
    with opener(place, attempt_id, *more) as process:
        process.wait(timeout=PATIENCE)
    lines = (place.folder / "said").read_text(errors="replace").strip().splitlines()
    told = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    if not told and process.returncode >= 0:
        told = {"error": lines[-1:]}
    return process.returncode, told


class Rounds:
    """What the rounds of D2 came to."""

    def __init__(self) -> None:
        self.twice = self.odd = self.done = 0
        self.states: Counter[str] = Counter()
        self.first = ""

    def note(self, number: int, wrong: str, launches: int) -> None:
        """One round's result; ``wrong``: "" if all is as it must be."""
        self.done += 1
        self.twice += launches > 1
        self.odd += bool(wrong)
        if (wrong or launches > 1) and not self.first:
            self.first = f"round {number}: {wrong or 'started twice'}"


def rounds(seed: int, count: int, tick: Callable[[int], None] = lambda _done: None) -> Rounds:
    """Kill openers: every other round at a named point, else at any moment."""
    chance = Chance(seed, "kills")
    points = list(POINTS)
    found = Rounds()
    for number in range(count):
        with scratch.folder() as folder:
            if number % 2 == 0:
                point = points[number // 2 % len(points)]
                ends = ("ends", "fails", "is killed")  # after a start: all but those that stay
                late = point in ("opener.child_ended", "journal.exit", "journal.exited")
                place = Place(folder, chance.pick(ends if late else tuple(BEHAVIOURS)))
                wrong = _at_point(place, point)
            else:
                place = Place(folder, chance.pick(tuple(BEHAVIOURS)))
                wrong = _anywhere(place, chance.below(60))
            found.states[place.journal.status(_A)["state"]] += 1
            found.note(number, wrong, len(place.launches()))
        tick(number + 1)
    return found


def _at_point(place: Place, point: str) -> str:
    """Kill it there; what is wrong with what follows."""
    state, certainty, code = POINTS[point]
    killed, _ = run(place, _A, "--kill", point)
    if killed != -9:
        return f"{point}: it was not killed but ended with {killed}"
    status = place.journal.status(_A)
    if (status["state"], status["certainty"]) != (state, certainty):
        return f"{point}: {status['state']}, {status['certainty']}"
    started = len(place.launches())
    place.behave("ends")
    again, _ = run(place, _A)
    if again != code:
        return f"{point}: the next opener ended with {again}"
    if code == 5:
        if len(place.launches()) != started:
            return f"{point}: it was started by itself"
        place.prepare("attempt-0002")
        if run(place, "attempt-0002")[0] != 5:
            return f"{point}: another attempt could open beside it"
        place.journal.abandon(_A, "looked", PERSON)
    place.journal.verify()
    return ""


def _anywhere(place: Place, wait_ms: int) -> str:
    """Kill it some milliseconds after it took the reservation."""
    with opener(place, _A) as process:
        _until(lambda: _moved(place, process), "the opener has begun")
        time.sleep(wait_ms / 1000)
        process.kill()
        process.wait()
    before = len(place.launches())
    state = place.journal.status(_A)["state"]
    place.behave("ends")
    code, told = run(place, _A)
    if code not in (0, 4, 5):
        return f"{state}: the next opener ended with {code}: {told.get('error')}"
    if (code == 0) != (state in ("prepared", "reserved")):
        return f"{state}: the next opener ended with {code}"
    if before and code == 0:
        return f"{state}: a second one was started"
    place.journal.verify()
    return ""


def _moved(place: Place, process: subprocess.Popen[bytes]) -> bool:
    gone = process.poll() is not None
    return gone or place.journal.status(_A)["state"] != "prepared"


def terminals() -> tuple[int, int]:
    """Standard input and output as terminal, pipe, or closed: an attempt opens with two
    terminals and else is not touched. (as they must, all)."""
    right = 0
    kinds = ("terminal", "pipe", "closed")
    for given in kinds:
        for taken in kinds:
            with scratch.folder() as folder:
                place = Place(folder, "ends")
                code = _with(place, given, taken)
                opens = given == taken == "terminal"
                state = place.journal.status(_A)["state"]
                events = len(place.journal.events(_A))
                if opens:
                    right += code == 0 and state == "closed" and len(place.launches()) == 1
                else:
                    untouched = state == "prepared" and events == 1 and not place.launches()
                    right += code == 9 and untouched
    return right, len(kinds) ** 2


def _with(place: Place, given: str, taken: str) -> int:
    master, slave = pty.openpty()
    closed = ("<&- " if given == "closed" else "") + (">&- " if taken == "closed" else "")
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *place.argv(_A)]
    try:
        done = subprocess.run(
            words if closed else place.argv(_A),
            stdin=slave if given == "terminal" else subprocess.DEVNULL,
            stdout=slave if taken == "terminal" else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(slave)
        os.close(master)
    return done.returncode


def crowd(count: int = CROWD) -> tuple[int, int]:
    """That many openers at once on one attempt: (starts, refusals)."""
    with scratch.folder() as folder:
        place = Place(folder, "ends")
        _code, told = run(place, _A, "--crowd", str(count))
        codes = Counter(told.get("codes", []))
        return len(place.launches()), codes[4]


def metrics(
    seed: int, count: int, tick: Callable[[int], None] = lambda _done: None
) -> list[Metric]:
    """The rows of the suite."""
    found = rounds(seed, count, tick)
    right, all_kinds = terminals()
    starts, refused = crowd()
    return [
        Metric("D2 kills without a second start", count - found.twice, count, 10_000),
        Metric("D2 kills after which all is as it must be", count - found.odd, count, 10_000),
        Metric("D6 terminals, pipes and closed descriptors", right, all_kinds, 10_000),
        Metric("D7 a hundred openers at once: one start", int(starts == 1), 1, 10_000),
        Metric("D7 a hundred openers at once: 99 refused", refused, CROWD - 1, 10_000),
    ]

from __future__ import annotations

import pathlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.openings import PROFILE, REF, SOURCE, QuietHost, frozen, make_journal

from handoff import errors
from handoff.errors import HandoffError, LaunchFailed, StorageError
from handoff.sessions import journal_file
from handoff.sessions.journal import Journal
from handoff.sessions.launch import RECIPES, Shield, child_argv, executable
from handoff.sessions.opening import EXIT, Outcome, Request, command, exit_code, open_attempt
from handoff.sessions.owner import Owner
from handoff.sessions.preflight import Finding

A = "attempt-0001"


class NoTerminal:
    """A terminal that is always there, and remembers what it was for."""

    def __init__(self) -> None:
        self.lent = 0

    def require(self) -> None:
        pass

    def lend(self) -> Any:
        import contextlib

        self.lent += 1
        return contextlib.nullcontext()


class Program:
    """A child with that outcome."""

    owner: Owner | None = Owner(7, 7, "b", "h")

    def __init__(self, code: int | None = 0, number: int | None = None) -> None:
        self.result = (code, number)

    def wait(self) -> tuple[int | None, int | None]:
        return self.result


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> Journal:
    journal = make_journal(tmp_path / "handoff")
    journal.prepare(frozen(workspace=str(tmp_path)), SOURCE)
    return journal


def run(
    journal: Journal,
    host: QuietHost | None = None,
    start: Callable[..., Any] | None = None,
    env: dict[str, str] | None = None,
    **asked: Any,
) -> Outcome:
    workspace = str(pathlib.Path(journal.root).parent)
    values = {"ref": REF, "attempt_id": A, "workspace": workspace, "profile": PROFILE, "yes": True}
    return open_attempt(
        journal,
        Request(**{**values, **asked}),
        host or QuietHost(),
        env or {},
        terminal=NoTerminal(),  # type: ignore[arg-type]
        start=start or (lambda *_: Program()),
    )


def test_it_opens_and_says_no_more_than_is_known(journal: Journal) -> None:
    outcome = run(journal, env={"HERMES_YOLO_MODE": "1", "HERMES_FUTURE": "x", "HOME": "/h"})
    assert outcome.exit == 0
    assert outcome.status["state"] == "closed"
    assert outcome.removed == ["HERMES_YOLO_MODE"]
    assert outcome.kept_unknown == ["HERMES_FUTURE"]
    assert outcome.to_json()["resume_verified"] is False


def test_a_second_time_is_refused(journal: Journal) -> None:
    started: list[object] = []

    def start(*given: object) -> Program:
        started.append(given)
        return Program()

    assert [run(journal, start=start).exit for _ in range(3)] == [0, 4, 4]
    assert len(started) == 1


@pytest.mark.parametrize(
    ("asked", "code", "fields"),
    [
        ({"ref": "handoff://x/y"}, "attempt_conflict", ["ref"]),
        ({"workspace": "/usr"}, "attempt_conflict", ["workspace"]),
        ({"profile": "eve"}, "attempt_conflict", ["profile"]),
        ({"model": "m-9", "provider": "p-1"}, "attempt_conflict", ["model"]),
        ({"model": "m-1"}, "usage", None),
        ({"provider": "p-1"}, "usage", None),
    ],
)
def test_something_else_than_was_frozen(
    journal: Journal, asked: dict[str, str], code: str, fields: list[str] | None
) -> None:
    outcome = run(journal, **asked)
    assert outcome.error is not None
    assert outcome.error["code"] == code
    if fields:
        assert outcome.error["details"] == {"fields": fields}
    assert len(journal.events(A)) == 1


def test_a_desktop_attempt_is_not_opened_here(journal: Journal) -> None:
    workspace = str(pathlib.Path(journal.root).parent)
    journal.prepare(frozen("attempt-0002", workspace, surface="desktop"), SOURCE)
    outcome = run(journal, attempt_id="attempt-0002")
    assert outcome.error is not None
    assert outcome.error["details"] == {"fields": ["surface"]}


def test_the_same_model_may_be_named_again(journal: Journal) -> None:
    assert run(journal, model="m-1", provider="p-1").exit == 0


def test_what_blocks_now_refuses_and_what_warns_is_shown(journal: Journal) -> None:
    host = QuietHost()
    host.report.findings = [Finding("anchor_changed", "block", "another repository")]
    assert run(journal, host).exit == 3
    host.report.findings = [Finding("head_moved", "warn", "HEAD moved")]
    host.answer = False
    outcome = run(journal, host, yes=False)
    assert outcome.exit == 8
    assert any("head_moved" in line for line in host.summary)
    assert len(host.summary) == 10
    assert journal.status(A)["state"] == "prepared"


def test_a_prompt_of_another_version_is_refused(journal: Journal) -> None:
    workspace = str(pathlib.Path(journal.root).parent)
    journal.prepare(frozen("attempt-0002", workspace, prompt_sha256="0" * 64), SOURCE)
    outcome = run(journal, attempt_id="attempt-0002")
    assert (outcome.exit, outcome.status["state"]) == (3, "prepared")


def test_an_intent_that_can_not_be_written_starts_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise StorageError("no space")

    monkeypatch.setattr(journal, "intend", broken)
    outcome = run(journal, start=lambda *_: pytest.fail("started"))
    assert outcome.exit == 6
    assert outcome.status["state"] == "prepared"


def test_an_intent_that_was_written_but_not_confirmed_starts_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    intend = journal.intend

    def written_all_the_same(*given: Any) -> None:
        intend(*given)
        raise StorageError("disk I/O error")

    monkeypatch.setattr(journal, "intend", written_all_the_same)
    outcome = run(journal, start=lambda *_: pytest.fail("started"))
    assert outcome.exit == 6
    assert outcome.status["state"] == "launch_failed"


def test_a_full_disk_after_the_start_neither_ends_nor_hides_it(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> Program:
        monkeypatch.setattr(journal_file, "_connect", _broken)
        return Program(3)

    def _broken(_root: str) -> Any:
        raise OSError(28, "No space left on device")

    outcome = run(journal, start=start)
    assert outcome.exit == 10
    assert outcome.child == {"code": 3, "signal": None}
    assert outcome.error is not None
    assert outcome.error["code"] == "storage_full"
    assert outcome.status["resume_verified"] is False
    monkeypatch.undo()
    assert journal.status(A)["state"] == "requested"


def test_a_start_that_failed_frees_the_record(journal: Journal) -> None:
    def start(*_: object) -> Program:
        raise LaunchFailed("exec format error")

    outcome = run(journal, start=start)
    assert (outcome.exit, outcome.status["state"]) == (7, "launch_failed")
    assert journal.live(REF) == []


def test_an_unnamed_child_is_waited_for_all_the_same(journal: Journal) -> None:
    program = Program(None, 9)
    program.owner = None
    outcome = run(journal, start=lambda *_: program)
    assert (outcome.exit, outcome.status["state"]) == (10, "closed")


def test_a_signal_before_the_start_starts_nothing(journal: Journal) -> None:
    class Told(Shield):
        def __enter__(self) -> Any:
            super().__enter__()
            self.received.append(15)
            return self

    from handoff.sessions import opening

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "Shield", Told)
        outcome = run(journal, start=lambda *_: pytest.fail("started"))
    assert (outcome.exit, outcome.status["state"]) == (7, "launch_failed")


def test_it_is_opened_from_the_main_thread(journal: Journal) -> None:
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(run, journal).result()
    assert (outcome.exit, outcome.status["state"]) == (2, "prepared")


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (errors.UsageError, "usage"),
        (errors.PreflightRefused, "refused"),
        (errors.UnknownAttempt, "refused"),
        (errors.AlreadyReserved, "taken"),
        (errors.OpeningUncertain, "uncertain"),
        (errors.JournalCorrupt, "store"),
        (errors.StorageFull, "store"),
        (errors.TimedOut, "store"),
        (errors.LaunchFailed, "not_started"),
        (errors.NotATerminal, "no_terminal"),
    ],
)
def test_exit_codes(error: type[HandoffError], name: str) -> None:
    assert exit_code(error()) == EXIT[name]


def test_exit_codes_are_ten_different_ones() -> None:
    assert len(set(EXIT.values())) == len(EXIT) == 10


@pytest.mark.parametrize("recipe", RECIPES)
def test_arguments_hold_frozen_names_and_the_prompt_only(recipe: str) -> None:
    attempt = frozen(workspace="/w {x} $(y)")
    argv = child_argv(recipe, "/bin/host", attempt, "The prompt {not} $filled")
    assert argv[0] == "/bin/host"
    assert argv.count("The prompt {not} $filled") == 1
    assert "m-1" in " ".join(argv)
    for word in ("--yolo", "--toolsets", "-t", "-c", "-z", "--dangerously-skip-permissions"):
        assert word not in argv
    without = frozen(route={"model": "", "provider": "", "origin": "observed"})
    assert "-m" not in child_argv(recipe, "/bin/host", without, "P")


def test_hermes_word_for_word() -> None:
    attempt = frozen(workspace="/w")
    assert child_argv("hermes-0.22", "/bin/hermes", attempt, "P") == [
        "/bin/hermes",
        *("-p", "bob", "--in", "/w", "-m", "m-1", "--provider", "p-1"),
        *("chat", "--source", "handoff", "-q", "P"),
    ]


def test_the_command_works_as_printed() -> None:
    argv, text = command(frozen(workspace="/a b/c'd"), "hermes")
    import shlex

    assert shlex.split(text) == argv
    assert argv[:4] == ["hermes", "--profile", PROFILE, "handoff-open"]


@pytest.mark.parametrize("path", ["relative", "/nowhere", "/tmp"])
def test_what_is_no_program(path: str) -> None:
    with pytest.raises(LaunchFailed):
        executable(path)

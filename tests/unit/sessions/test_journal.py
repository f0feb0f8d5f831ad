from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import sqlite3
import stat
import subprocess
import sys
from typing import Any

import pytest
from tests.support.openings import (
    PERSON,
    PROFILE,
    REF,
    SOURCE,
    frozen,
    launched,
    make_journal,
    somebody,
)

from handoff import lifecycle
from handoff.clock import FakeClock
from handoff.errors import (
    ActorRefused,
    AlreadyReserved,
    AttemptConflict,
    BadTransition,
    JournalCorrupt,
    NotAllowed,
    OpeningUncertain,
    SchemaTooNew,
    SessionMismatch,
    StorageError,
    StorageFull,
    UnknownAttempt,
    UsageError,
)
from handoff.sessions import history as past
from handoff.sessions import journal_file
from handoff.sessions.journal import Actor, Journal
from handoff.sessions.owner import Owner, alive, me

A = "attempt-0001"


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> Journal:
    return make_journal(tmp_path / "handoff")


@contextlib.contextmanager
def raw(journal: Journal, *, free: bool = True) -> Any:
    """The database without its guards, as an editor of the file would have it."""
    with contextlib.closing(sqlite3.connect(os.path.join(journal.root, "journal.sqlite3"))) as db:
        if free:
            for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type='trigger'"):
                db.execute(f"DROP TRIGGER {name}")
        yield db
        db.commit()


def dead(_owner: Owner) -> bool:
    return False


# -- prepare -----------------------------------------------------------------------------


def test_a_read_of_a_missing_journal_creates_nothing(journal: Journal) -> None:
    assert journal.attempts() == []
    assert journal.verify()["events"] == 0
    for call in (journal.frozen, journal.events, journal.status):
        with pytest.raises(UnknownAttempt, match=A):
            call(A)
    assert not os.path.exists(journal.root)


def test_the_error_names_the_way_out(journal: Journal) -> None:
    with pytest.raises(UnknownAttempt) as caught:
        journal.frozen(A)
    assert "HERMES_HOME" in caught.value.remedy


def test_prepared_files_are_private(journal: Journal) -> None:
    journal.prepare(frozen(), SOURCE)
    assert stat.S_IMODE(os.stat(journal.root).st_mode) == 0o700
    for name in ("journal.sqlite3", "locks/journal.lock"):
        assert stat.S_IMODE(os.stat(os.path.join(journal.root, name)).st_mode) == 0o600


def test_the_same_intent_again_is_the_same_attempt(journal: Journal) -> None:
    assert journal.prepare(frozen(), SOURCE)
    route = {**frozen()["route"], "observed_at": 9}
    retry = frozen(source_last_message=9, preflight_sha256="c" * 64, route=route)
    assert not journal.prepare(retry, SOURCE)
    assert journal.frozen(A) == frozen()
    assert len(journal.events(A)) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ref", "handoff://project-1/other"),
        ("workspace_given", "/usr"),
        ("profile", "eve"),
        ("surface", "cli"),
        ("route", {"model": "m-2", "provider": "p-1", "origin": "explicit"}),
        ("document_sha256", "0" * 64),
    ],
)
def test_any_change_under_the_same_id_is_a_conflict(
    journal: Journal, field: str, value: object
) -> None:
    journal.prepare(frozen(), SOURCE)
    with pytest.raises(AttemptConflict) as caught:
        journal.prepare({**frozen(), field: value}, SOURCE)
    assert caught.value.details["fields"] == [field]
    assert journal.frozen(A) == frozen()


def test_missing_and_unknown_fields_are_refused(journal: Journal) -> None:
    with pytest.raises(UsageError, match="extra"):
        journal.prepare({**frozen(), "extra": 1}, SOURCE)
    short = frozen()
    del short["ref"]
    with pytest.raises(UsageError, match="ref"):
        journal.prepare(short, SOURCE)
    assert journal.attempts() == []


def test_text_that_is_no_unicode_is_a_usage_error(journal: Journal) -> None:
    with pytest.raises(UsageError, match="UTF-8"):
        journal.prepare({**frozen(), "workspace_given": "/x\udcff"}, SOURCE)


# -- reserve and launch ------------------------------------------------------------------


def test_the_way_of_an_attempt(journal: Journal) -> None:
    held = launched(journal)
    journal.child_started(held, somebody(5000))
    assert journal.session_seen(A, "s-new", PROFILE, nonce="n-1")
    assert not journal.session_seen(A, "s-new", PROFILE, nonce="n-1")
    page = {"page": 1, "pages_sha256": "0" * 64, "required": []}
    assert not journal.page_served(A, "s-new", page, of=2)
    assert journal.status(A)["state"] == "session_identified"
    assert journal.page_served(A, "s-new", {**page, "page": 2}, of=2)
    assert journal.acknowledged(A, "s-new", {"first_step": "x"})
    assert not journal.acknowledged(A, "s-new", {"first_step": "y"})
    journal.confirm(A, PERSON)
    journal.child_exited(held, 0, None)
    status = journal.status(A)
    assert status["state"] == "closed"
    assert status["resume_verified"] is False
    assert status["child_exit"] == {"code": 0, "signal": None}
    assert all(
        status[fact]
        for fact in (
            "requested",
            "session_identified",
            "handoff_read",
            "acknowledged",
            "user_confirmed",
        )
    )
    assert status["reservation"] is None
    assert journal.verify()["attempts"] == 1


def test_a_second_opener_is_told_who_holds_it(journal: Journal) -> None:
    journal.prepare(frozen(), SOURCE)
    journal.reserve(A, somebody(1111), "cli")
    with pytest.raises(AlreadyReserved) as caught:
        journal.reserve(A, somebody(2222), "desktop")
    assert caught.value.details["owner"]["pid"] == 1111  # type: ignore[index]
    assert caught.value.details["allowed_next"] == ["wait"]
    assert "token" not in str(caught.value.to_json())


def test_cli_and_desktop_share_one_reservation_per_record(journal: Journal) -> None:
    launched(journal)
    journal.prepare(frozen("attempt-0002"), SOURCE)
    with pytest.raises(AlreadyReserved):
        journal.reserve("attempt-0002", somebody(2), "desktop")
    journal.prepare(frozen("attempt-0003", allow_parallel=True), SOURCE)
    journal.reserve("attempt-0003", somebody(3), "desktop")
    assert set(journal.live(REF)) == {A, "attempt-0003"}


def test_what_a_dead_opener_never_used_is_taken_back(tmp_path: pathlib.Path) -> None:
    journal = make_journal(tmp_path, liveness=lambda owner: owner.pid != 1111)
    journal.prepare(frozen(), SOURCE)
    journal.reserve(A, somebody(1111), "cli")
    assert journal.status(A)["allowed_next"] == ["open", "abandon"]
    held = journal.reserve(A, somebody(2222), "cli")
    assert [e.kind for e in journal.events(A)][1:] == [
        "reservation_taken",
        "reservation_reclaimed",
        "reservation_taken",
    ]
    journal.intend(held, {"nonce_sha256": ""})


def test_unknown_liveness_counts_as_alive(tmp_path: pathlib.Path) -> None:
    journal = make_journal(tmp_path, liveness=lambda _: None)
    journal.prepare(frozen(), SOURCE)
    journal.reserve(A, somebody(1111), "cli")
    with pytest.raises(AlreadyReserved) as caught:
        journal.reserve(A, somebody(2222), "cli")
    assert caught.value.details["owner_alive"] is None
    with pytest.raises(AlreadyReserved):
        journal.abandon(A, "looks dead", PERSON)
    journal.abandon(A, "I looked at that machine", PERSON, owner_is_gone=True)
    assert journal.status(A)["state"] == "abandoned"


def test_a_requested_attempt_whose_opener_died_is_uncertain(tmp_path: pathlib.Path) -> None:
    journal = make_journal(tmp_path, liveness=dead)
    launched(journal)
    status = journal.status(A)
    assert status["certainty"] == "uncertain"
    assert status["allowed_next"] == ["inspect", "adopt", "abandon"]
    assert status["child_exit"] == "unknown"
    with pytest.raises(OpeningUncertain):
        journal.reserve(A, somebody(7), "cli")
    journal.prepare(frozen("attempt-0002"), SOURCE)
    with pytest.raises(OpeningUncertain):
        journal.reserve("attempt-0002", somebody(7), "cli")
    with pytest.raises(BadTransition):
        journal.prepare(frozen("attempt-0003", supersedes=A), SOURCE)
    assert journal.attempts() == [A, "attempt-0002"], "a refused prepare leaves nothing"


def test_only_the_holder_goes_on(journal: Journal) -> None:
    held = launched(journal)
    other = type(held)(held.attempt_id, "other", held.owner)
    with pytest.raises(AlreadyReserved):
        journal.spawn_failed(other, "x")
    stolen = type(held)(held.attempt_id, held.id, somebody(token="wrong"))
    with pytest.raises(AlreadyReserved):
        journal.child_exited(stolen, 0, None)
    assert journal.status(A)["state"] == "requested"


def test_one_launch_intent_in_all_of_history(journal: Journal) -> None:
    held = launched(journal)
    with pytest.raises(BadTransition):
        journal.intend(held, {})
    journal.spawn_failed(held, "no such file")
    with pytest.raises(AlreadyReserved) as caught:
        journal.reserve(A, somebody(), "cli")
    assert caught.value.details["allowed_next"] == ["prepare_new"]
    with raw(journal, free=False) as db, pytest.raises(sqlite3.IntegrityError):
        db.execute(
            "INSERT INTO events SELECT number+90, attempt_id, seq+90, kind, at, actor, payload,"
            " prev, hash FROM events WHERE kind='launch_intent'"
        )


def test_a_second_intent_is_refused_by_the_file_itself(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = launched(journal)
    monkeypatch.setattr(lifecycle, "advance", lambda *_: "requested")
    with pytest.raises(JournalCorrupt):
        journal.intend(held, {})
    monkeypatch.undo()
    assert journal.history(A).launches == 1
    journal.verify()


def test_rows_can_not_be_changed_or_removed(journal: Journal) -> None:
    launched(journal)
    for table in ("events", "attempts"):
        for sql in (f"UPDATE {table} SET at = 0", f"DELETE FROM {table}"):
            with raw(journal, free=False) as db, pytest.raises(sqlite3.IntegrityError):
                db.execute(sql)


def test_an_attempt_that_supersedes_another(journal: Journal) -> None:
    held = launched(journal)
    journal.spawn_failed(held, "x")
    journal.prepare(frozen("attempt-0002", supersedes=A), SOURCE)
    assert journal.status(A)["state"] == "superseded"
    assert journal.status(A)["allowed_next"] == []
    with pytest.raises(AttemptConflict):
        journal.prepare(frozen("attempt-0003", supersedes=A, ref="handoff://x/y"), SOURCE)


def test_only_the_last_of_a_chain_is_superseded(journal: Journal) -> None:
    """Whoever names one that was superseded before is told which one it is now."""
    journal.prepare(frozen(A), SOURCE)
    journal.abandon(A, "no", PERSON)
    journal.prepare(frozen("attempt-0002", supersedes=A), SOURCE)
    with pytest.raises(BadTransition) as caught:
        journal.prepare(frozen("attempt-0003", supersedes=A), SOURCE)
    assert caught.value.remedy == "status attempt-0002", "it has not ended"
    journal.abandon("attempt-0002", "no", PERSON)
    with pytest.raises(BadTransition) as caught:
        journal.prepare(frozen("attempt-0003", supersedes=A), SOURCE)
    assert caught.value.remedy == "prepare it with --supersedes attempt-0002"
    assert caught.value.details["last"] == "attempt-0002"
    journal.prepare(frozen("attempt-0003", supersedes="attempt-0002"), SOURCE)
    assert [journal.status(one)["state"] for one in journal.attempts()] == [
        "superseded", "superseded", "prepared",
    ]  # fmt: skip
    journal.verify()


def test_what_the_state_does_not_allow_says_where_to_look(journal: Journal) -> None:
    journal.prepare(frozen(A), SOURCE)
    with pytest.raises(BadTransition) as caught:
        journal.confirm(A, PERSON)
    assert caught.value.remedy == f"status {A}"


# -- the new session ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "profile", "nonce", "why"),
    [
        ("s-source", PROFILE, "n-1", "source_session"),
        ("", PROFILE, "n-1", "no_session_id"),
        ("s-new", "eve", "n-1", "other_profile"),
        ("s-new", PROFILE, "guess", "no_proof"),
        ("s-new", PROFILE, "", "no_proof"),
    ],
)
def test_only_the_launched_session_is_identified(
    journal: Journal, session: str, profile: str, nonce: str, why: str
) -> None:
    launched(journal)
    with pytest.raises(SessionMismatch) as caught:
        journal.session_seen(A, session, profile, nonce=nonce)
    assert caught.value.details["why"] == why
    status = journal.status(A)
    assert status["state"] == "requested"
    assert [a["what"] for a in status["anomalies"]] == [why]


def test_a_third_session_is_noted(journal: Journal) -> None:
    launched(journal)
    journal.session_seen(A, "s-new", PROFILE, nonce="n-1")
    with pytest.raises(SessionMismatch):
        journal.session_seen(A, "s-third", PROFILE, nonce="n-1")
    assert journal.status(A)["destination"]["session_id"] == "s-new"


def test_a_session_that_shows_itself_after_it_was_given_up(tmp_path: pathlib.Path) -> None:
    journal = make_journal(tmp_path, liveness=dead)
    launched(journal)
    journal.abandon(A, "nothing there", PERSON)
    with pytest.raises(SessionMismatch) as caught:
        journal.session_seen(A, "s-new", PROFILE, nonce="n-1")
    assert caught.value.details["why"] == "late_session"
    assert journal.status(A)["state"] == "abandoned"


def test_descent_from_the_child_is_proof(journal: Journal) -> None:
    held = launched(journal)
    journal.child_started(held, Owner(77, 5, "boot-1", "host-1"))
    with pytest.raises(SessionMismatch):
        journal.session_seen(A, "s-new", PROFILE, chain=[(77, 6)], boot="boot-1")
    with pytest.raises(SessionMismatch):
        journal.session_seen(A, "s-new", PROFILE, chain=[(77, 5)], boot="boot-2")
    journal.session_seen(A, "s-new", PROFILE, chain=[(90, 1), (77, 5), (1, 1)], boot="boot-1")
    assert journal.history(A).identified_by == "descent"


# -- people ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["source", "opener", "destination", "model", ""])
def test_a_model_can_not_confirm_adopt_or_abandon(tmp_path: pathlib.Path, kind: str) -> None:
    journal = make_journal(tmp_path, liveness=dead)
    launched(journal)
    actor = Actor(kind)
    for call in (
        lambda: journal.confirm(A, actor),
        lambda: journal.adopt(A, "s", ["s"], actor),
        lambda: journal.abandon(A, "x", actor),
    ):
        with pytest.raises(ActorRefused):
            call()
    assert journal.status(A)["state"] == "requested"


@pytest.mark.parametrize("found", [[], ["s-1", "s-2"], ["s-2"]])
def test_adopting_takes_exactly_one_candidate(tmp_path: pathlib.Path, found: list[str]) -> None:
    journal = make_journal(tmp_path, liveness=dead)
    launched(journal)
    with pytest.raises(SessionMismatch):
        journal.adopt(A, "s-1", found, PERSON)
    with pytest.raises(SessionMismatch):
        journal.adopt(A, "s-source", ["s-source"], PERSON)
    journal.adopt(A, "s-1", ["s-1"], PERSON)
    assert journal.status(A)["state"] == "session_identified"


def test_adopting_needs_an_uncertain_attempt(journal: Journal) -> None:
    launched(journal)
    with pytest.raises(NotAllowed):
        journal.adopt(A, "s-1", ["s-1"], PERSON)


def test_a_living_opener_can_not_be_given_up(journal: Journal) -> None:
    launched(journal)
    with pytest.raises(AlreadyReserved):
        journal.abandon(A, "impatient", PERSON)
    with pytest.raises(AlreadyReserved):
        journal.abandon(A, "impatient", PERSON, owner_is_gone=True)


def test_reasons_are_redacted_and_bounded(tmp_path: pathlib.Path) -> None:
    journal = Journal(
        str(tmp_path),
        clock=FakeClock(),
        redact=lambda t: t.replace("hunter2", "[X]"),
        liveness=dead,
    )
    launched(journal)
    with pytest.raises(UsageError):
        journal.abandon(A, "x" * 1025, PERSON)
    journal.abandon(A, "password hunter2", PERSON)
    assert "hunter2" not in pathlib.Path(journal.root, "journal.sqlite3").read_bytes().decode(
        "latin-1"
    )


def test_an_exit_after_giving_up_is_noted(journal: Journal) -> None:
    held = launched(journal)
    journal.session_seen(A, "s-new", PROFILE, nonce="n-1")
    journal.abandon(A, "wrong branch", PERSON)
    journal.child_exited(held, 0, None)
    status = journal.status(A)
    assert status["state"] == "abandoned"
    assert status["anomalies"][0]["what"] == "late_exit"


# -- the chain ---------------------------------------------------------------------------

TAMPERING = [
    "UPDATE events SET at = at + 1 WHERE number = 2",
    "UPDATE events SET actor = 'person:eve' WHERE number = 1",
    "UPDATE events SET kind = 'anomaly' WHERE number = 3",
    "UPDATE events SET payload = '{}' WHERE number = 3",
    "UPDATE events SET payload = '[]' WHERE number = 3",
    "UPDATE events SET payload = 'x' WHERE number = 3",
    "UPDATE events SET prev = hash WHERE number = 2",
    "UPDATE events SET hash = prev WHERE number = 2",
    "DELETE FROM events WHERE number = 3",
    "DELETE FROM events WHERE number = 2",
    "DELETE FROM events WHERE number > 1",
    "DELETE FROM events",
    "UPDATE attempts SET frozen = replace(frozen, 'bob', 'eve')",
    "UPDATE attempts SET ref = 'handoff://other/one'",
    "UPDATE attempts SET digest = 'x'",
    "UPDATE head SET number = 2",
    "UPDATE head SET hash = 'x'",
    "DELETE FROM head",
    "DELETE FROM reservations",
    "UPDATE reservations SET owner = '{}'",
    "UPDATE events SET attempt_id = 'attempt-0002' WHERE number = 3",
    "INSERT INTO attempts SELECT 'attempt-0009', ref, frozen, digest, at FROM attempts",
]


@pytest.mark.parametrize("sql", TAMPERING)
def test_every_edit_is_seen_and_nothing_is_opened(journal: Journal, sql: str) -> None:
    launched(journal)
    assert journal.verify()["events"] == 3
    with raw(journal) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(sql)
    with pytest.raises(JournalCorrupt):
        journal.verify()
    with pytest.raises((JournalCorrupt, AlreadyReserved)):
        journal.reserve(A, somebody(9), "cli")


def test_a_torn_file_is_corrupt_not_empty(journal: Journal) -> None:
    launched(journal)
    path = pathlib.Path(journal.root, "journal.sqlite3")
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * 4096 + content[8192:])
    with pytest.raises(JournalCorrupt):
        journal.reserve(A, somebody(9), "cli")
    path.write_bytes(b"not a database at all" * 400)
    with pytest.raises(JournalCorrupt):
        journal.status(A)


def test_an_empty_file_is_no_journal_yet(journal: Journal) -> None:
    os.makedirs(journal.root)
    pathlib.Path(journal.root, "journal.sqlite3").touch(0o600)
    assert journal.attempts() == []
    with pytest.raises(UnknownAttempt):
        journal.status(A)
    journal.prepare(frozen(), SOURCE)
    assert journal.attempts() == [A]


def test_a_desktop_submit_that_was_lost_is_told(journal: Journal) -> None:
    journal.prepare(frozen(), SOURCE)
    held = journal.reserve(A, somebody(), "desktop")
    assert journal.status(A)["prompt"] == "not_sent"
    journal.intend(held, {"nonce_sha256": ""})
    assert journal.status(A)["prompt"] == "prompt_uncertain"
    journal.note(A, "prompt_submitted", SOURCE, {})
    assert journal.status(A)["prompt"] == "sent"
    with pytest.raises(UsageError):
        journal.note(A, "user_confirmed", SOURCE, {})


def test_some_other_database_is_refused(journal: Journal) -> None:
    os.makedirs(journal.root)
    with contextlib.closing(sqlite3.connect(f"{journal.root}/journal.sqlite3")) as db:
        db.execute("CREATE TABLE x (y)")
        db.commit()
    with pytest.raises(JournalCorrupt):
        journal.prepare(frozen(), SOURCE)


def test_a_newer_format_is_refused(journal: Journal) -> None:
    journal.prepare(frozen(), SOURCE)
    with raw(journal, free=False) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(SchemaTooNew):
        journal.prepare(frozen("attempt-0002"), SOURCE)


def test_a_link_or_another_users_file_is_refused(journal: Journal, tmp_path: pathlib.Path) -> None:
    os.makedirs(journal.root)
    os.symlink(tmp_path / "elsewhere", f"{journal.root}/journal.sqlite3")
    with pytest.raises(StorageError):
        journal.prepare(frozen(), SOURCE)
    assert not (tmp_path / "elsewhere").exists()


def test_histories_that_the_table_forbids_are_corrupt() -> None:
    def event(seq: int, kind: str) -> past.Event:
        payload = {"digest": "", "surface": "cli", "id": "", "nonce_sha256": ""}
        return past.Event(seq, A, seq, kind, 0, "x", payload, "", "")

    with pytest.raises(JournalCorrupt):
        past.fold([event(1, past.FIRST), event(2, "launch_intent")])
    with pytest.raises(JournalCorrupt):
        past.fold([event(2, past.FIRST)])
    with pytest.raises(JournalCorrupt):
        past.fold([event(1, "anomaly")])


# -- the disk, the clock, the kernel -----------------------------------------------------


def test_a_full_disk_changes_nothing(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.prepare(frozen(), SOURCE)
    connect = journal_file._connect

    def full(root: str) -> sqlite3.Connection:
        db = connect(root)
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    monkeypatch.setattr(journal_file, "_connect", full)
    written = 1
    with pytest.raises(StorageFull):
        for number in range(2, 60):
            journal.prepare(frozen(f"attempt-{number:04}"), SOURCE)
            written = number
    monkeypatch.undo()
    assert len(journal.attempts()) == written
    assert journal.verify()["attempts"] == written


FAILING = """
import os, resource, sys
sys.path[:0] = [{src!r}, {root!r}]
from handoff.errors import StorageError
from tests.support.openings import *
journal = make_journal({where!r})
held = journal.reserve("attempt-0001", somebody(), "cli")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    journal.intend(held, {{}})
except StorageError as error:
    print(type(error).__name__)
"""


def test_an_input_output_error_is_typed_and_the_effect_is_not_due(journal: Journal) -> None:
    journal.prepare(frozen(), SOURCE)
    root = pathlib.Path(__file__).resolve().parents[3]
    code = FAILING.format(src=str(root / "src"), root=str(root), where=journal.root)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() in ("StorageError", "StorageFull"), done.stderr
    assert journal.status(A)["state"] == "reserved"
    assert journal.verify()["events"] == 2


def test_a_clock_that_jumps_changes_no_state(tmp_path: pathlib.Path) -> None:
    clock = FakeClock()
    journal = make_journal(tmp_path, clock=clock)
    held = launched(journal)
    clock.set_back(10 * 365 * 86400)
    status = journal.status(A)
    assert status["reservation"]["age_s"] == 0
    assert status["certainty"] == "certain"
    journal.child_exited(held, 0, None)
    clock.advance(20 * 365 * 86400)
    assert journal.status(A)["state"] == "closed"
    assert journal.verify()["events"] == 4


def test_a_reservation_never_expires(tmp_path: pathlib.Path) -> None:
    clock = FakeClock()
    journal = make_journal(tmp_path, clock=clock)
    launched(journal)
    clock.advance(365 * 86400)
    assert journal.status(A)["certainty"] == "certain"
    with pytest.raises(AlreadyReserved):
        journal.reserve(A, somebody(2), "cli")


def test_pid_reuse_is_no_life() -> None:
    here = me()
    assert alive(here) is True
    assert alive(Owner(here.pid, here.started + 1, here.boot, here.host)) is False


def test_other_boots_machines_and_containers() -> None:
    here = me()
    assert alive(Owner(here.pid, here.started, "other pid:[1]", here.host)) is False
    assert alive(Owner(here.pid, here.started, here.boot, "another-machine")) is None
    boot = here.boot.split(" ")[0] + " pid:[1]"
    if " " in here.boot:
        assert alive(Owner(here.pid, here.started, boot, here.host)) is None


def test_a_child_that_was_not_collected_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    owner = me(pid=child.pid)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert alive(owner) is False
    child.wait()
    child.stdout.close()
    assert resource.RLIMIT_FSIZE is not None


def test_an_owner_in_the_journal_has_no_secret(journal: Journal) -> None:
    held = journal.prepare(frozen(), SOURCE) and journal.reserve(A, somebody(token="t0ken"), "cli")
    assert held
    assert "t0ken" not in str([e.payload for e in journal.events(A)])
    assert "t0ken" not in str(journal.status(A))

"""Suite D without processes: failing disks, jumping clocks and used pids (D3), arguments and
environment of the new program (D5), and journals that somebody has edited (D8)."""

# The statements are made of numbers and of nothing that anybody hands in.
# ruff: noqa: S608, ISC004

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from handoff.clock import FakeClock
from handoff.errors import HandoffError, JournalCorrupt, StorageError
from handoff.sessions import launch, owner
from handoff.sessions.bench import Metric, scratch
from handoff.sessions.bench.stage import PERSON, PROFILE, SOURCE, frozen, hasty, journal
from handoff.sessions.environment import scrub
from handoff.sessions.journal import Journal, Reservation
from handoff.sessions.owner import Owner

_A, _B = "attempt-0001", "attempt-0002"
_ME = Owner(4242, 99, "boot-1", "host-1", "t")

# -- D3 ---------------------------------------------------------------------------------------

#: what a step of an opening writes, in order
_STEPS: tuple[tuple[str, Callable[[Journal, Reservation], object]], ...] = (
    ("launch_intent", lambda book, held: book.intend(held, {"nonce_sha256": "0" * 64})),
    ("child_started", lambda book, held: book.child_started(held, Owner(7, 7, "b", "h"))),
    ("session_seen", lambda book, _held: book.session_seen(_A, "s-new", PROFILE, chain=[(7, 7)],
                                                          boot="b")),
    ("child_exited", lambda book, held: book.child_exited(held, 0, None)),
)  # fmt: skip


def _full(_name: str) -> None:
    raise _error("database or disk is full", sqlite3.SQLITE_FULL)


def _broken(_name: str) -> None:
    raise _error("disk I/O error", sqlite3.SQLITE_IOERR)


def _read_only(_name: str) -> None:
    raise _error("attempt to write a readonly database", sqlite3.SQLITE_READONLY)


def _error(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


def _failing_disks() -> tuple[int, int]:
    """Each write of an opening fails once, in each way: a typed error, nothing moved, and
    the same call succeeds once the disk is well."""
    right = total = 0
    for fail in (_full, _broken, _read_only):
        for at in range(len(_STEPS)):
            with _journal() as (root, book):
                held = book.reserve(_A, _ME, "cli")
                for _, step in _STEPS[:at]:
                    step(book, held)
                before = (book.status(_A), len(book.events(_A)))
                total += 1
                failing = journal(root, reach=fail)
                try:
                    _STEPS[at][1](failing, held)
                except StorageError:
                    after = (book.status(_A), len(book.events(_A)))
                    _STEPS[at][1](book, held)
                    book.verify()
                    right += before == after and len(book.events(_A)) == before[1] + 1
    return right, total


@contextlib.contextmanager
def _journal(clock: FakeClock | None = None) -> Iterator[tuple[str, Journal]]:
    """A journal with two prepared attempts, in a folder of its own."""
    with scratch.folder() as folder, hasty():
        root = os.path.join(folder, "handoff")
        book = journal(root, clock)
        book.prepare(frozen(_A, "/"), SOURCE)
        book.prepare(frozen(_B, "/"), SOURCE)
        yield root, book


def _jumping_clocks() -> tuple[int, int]:
    """Years forward and back between any two steps: nothing expires, the chain holds."""
    right = 0
    jumps = (10 * 365 * 86_400.0, -20 * 365 * 86_400.0, -1.0, 1e9)
    for jump in jumps:
        clock = FakeClock()
        with _journal(clock) as (_root, book):

            def turn(clock: FakeClock = clock, jump: float = jump) -> None:
                clock.set_back(-jump) if jump < 0 else clock.advance(jump)

            held = book.reserve(_A, _ME, "cli")
            turn()
            try:
                book.reserve(_A, Owner(1, 1, "b", "h", "u"), "cli")
            except HandoffError as refused:
                kept = refused.code == "already_reserved"
            else:
                kept = False
            for _, step in _STEPS:
                step(book, held)
                turn()
            book.verify()
            right += kept and book.status(_A)["state"] == "closed"
    return right, len(jumps)


def _used_pids() -> tuple[int, int]:
    """Another process under the same pid is another process; what can't be told is alive."""
    me = owner.me("t")
    cases = (
        (me, True),
        (Owner(me.pid, me.started + 1, me.boot, me.host, "t"), False),
        (Owner(me.pid, me.started, "another-boot " + me.boot.split(" ")[-1], me.host, "t"), False),
        (Owner(me.pid, me.started, me.boot, "another-machine", "t"), None),
        (Owner(2**22 + 7, me.started, me.boot, me.host, "t"), False),
    )
    return sum(owner.alive(one) is told for one, told in cases), len(cases)


# -- D5 ---------------------------------------------------------------------------------------

_PROMPT = "the prompt"
_ROUTE = {"model": "m-1", "provider": "p-1"}
#: recipe -> arguments after the program, with a frozen model and without one
ARGV: dict[str, tuple[list[str], list[str]]] = {
    "hermes-0.22": (
        ["-p", "bob", "--in", "/w", "-m", "m-1", "--provider", "p-1", "chat", "--source",
         "handoff", "-q", _PROMPT],
        ["-p", "bob", "--in", "/w", "chat", "--source", "handoff", "-q", _PROMPT],
    ),
    "hermes-0.19": (
        ["-p", "bob", "-m", "m-1", "--provider", "p-1", "chat", "--tui", "--source", "handoff",
         "-q", _PROMPT],
        ["-p", "bob", "chat", "--tui", "--source", "handoff", "-q", _PROMPT],
    ),
    "claude": (["--model", "m-1", _PROMPT], [_PROMPT]),
    "codex": (
        ["--config", "handoff=1", "-C", "/w", "-m", "m-1", _PROMPT],
        ["--config", "handoff=1", "-C", "/w", _PROMPT],
    ),
    "opencode": (["/w", "-m", "p-1/m-1", "--prompt", _PROMPT], ["/w", "--prompt", _PROMPT]),
}  # fmt: skip
#: what a source leaves behind; none of it may reach the new program
LEFT = (
    "HERMES_YOLO_MODE", "HERMES_NONINTERACTIVE", "HERMES_ACP_AUTO_APPROVE", "HERMES_EXEC_ASK",
    "HERMES_ACCEPT_HOOKS", "HERMES_SESSION_ID", "HERMES_SESSION_KEY", "HERMES_PLATFORM",
    "HERMES_KANBAN_TASK", "HERMES_CRON_SESSION", "HERMES_WORKER_ID", "HERMES_SUBAGENT_ID",
    "HERMES_DELEGATION_ID", "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID",
    "AGENT_SESSION_ID", "OPENCODE_PERMISSION", "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR",
    "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE", "GIT_CONFIG_GLOBAL",
    "GIT_CEILING_DIRECTORIES", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "PYTEST_CURRENT_TEST",
    "PYTHONSTARTUP", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "HANDOFF_ATTEMPT", "HANDOFF_NONCE_FD",
)  # fmt: skip
KEPT = (
    "HERMES_HOME", "PATH", "LANG", "LC_ALL", "TERM", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE",
    "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "HOME", "HERMES_SOMETHING_NEW",
)  # fmt: skip


def _goldens() -> list[Metric]:
    right = total = 0
    for recipe in launch.RECIPES:
        for route, wanted in zip(
            (_ROUTE, {"model": "", "provider": ""}), ARGV[recipe], strict=True
        ):
            given: dict[str, Any] = {
                "profile": "bob", "workspace_resolved": "/w", "route": route}  # fmt: skip
            total += 1
            argv = launch.child_argv(recipe, "/bin/program", given, _PROMPT)
            right += argv == ["/bin/program", *wanted]
    env = scrub(dict.fromkeys((*LEFT, *KEPT), "value"))
    gone = {name for name, _ in env.removed}
    return [
        Metric("D5 arguments as they must be", right, total, 10_000),
        Metric("D5 variables of the source that are removed", len(gone & set(LEFT)), len(LEFT),
               10_000),
        Metric("D5 variables that are kept", len(set(env.env) & set(KEPT)), len(KEPT), 10_000),
    ]  # fmt: skip


# -- D8 ---------------------------------------------------------------------------------------


def _told(book: Journal) -> None:
    """A history worth editing: one attempt closed, one given up, one reserved."""
    held = book.reserve(_A, _ME, "cli")
    for _, step in _STEPS:
        step(book, held)
    book.abandon(_B, "not wanted", PERSON)
    book.prepare(frozen("attempt-0003", "/"), SOURCE)
    book.reserve("attempt-0003", _ME, "cli")


def _edits(db: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Ways to edit it, each a list of statements."""
    last = int(db.execute("SELECT max(number) FROM events").fetchone()[0])
    edits: list[tuple[str, ...]] = []
    for number in range(1, last + 1):
        row = f"WHERE number = {number}"
        edits += [
            (f"UPDATE events SET payload = '{{}}' {row}",),
            (f"UPDATE events SET payload = replace(payload, '\"', '\" ') {row}",),
            (f"UPDATE events SET at = at + 1 {row}",),
            (f"UPDATE events SET actor = 'person:mallory' {row}",),
            (f"UPDATE events SET kind = 'anomaly' {row}",),
            (f"UPDATE events SET hash = '{'0' * 64}' {row}",),
            (f"UPDATE events SET prev = '{'1' * 64}' {row}",),
            (f"DELETE FROM events {row}",),
            (f"UPDATE events SET number = {last + 9} {row}",),
        ]
        if number < last:
            edits.append((
                f"UPDATE events SET number = 0 {row}",
                f"UPDATE events SET number = {number} WHERE number = {number + 1}",
                f"UPDATE events SET number = {number + 1} WHERE number = 0",
            ))  # fmt: skip
    edits += [
        ("UPDATE head SET number = number - 1",),
        (f"UPDATE head SET hash = '{'2' * 64}'",),
        ("DELETE FROM head",),
        (f"DELETE FROM attempts WHERE attempt_id = '{_A}'",),
        ("UPDATE attempts SET frozen = replace(frozen, 'm-1', 'm-2')",),
        (f"UPDATE attempts SET digest = '{'3' * 64}'",),
        ("UPDATE attempts SET ref = 'handoff://x/y'",),
        ("DELETE FROM reservations",),
        ("INSERT INTO reservations SELECT 'attempt-0002', 'r', 'handoff://x/y', 0, owner, surface,"
         " at FROM reservations",),
        ("UPDATE reservations SET owner = '{}'",),
        (f"INSERT INTO events SELECT number + 1, attempt_id, seq + 1, kind, at, actor, payload,"
         f" hash, hash FROM events WHERE number = {last}",),
    ]  # fmt: skip
    return edits


def _edited() -> tuple[int, int]:
    """(edits that verify finds, edits)."""
    found = total = 0
    with _journal() as (root, book):
        _told(book)
        book.verify()
        path = os.path.join(root, "journal.sqlite3")
        with contextlib.closing(sqlite3.connect(path)) as db:
            edits = _edits(db)
        copy = os.path.join(root, "edited")
        os.mkdir(copy)
        for statements in edits:
            target = os.path.join(copy, "journal.sqlite3")
            shutil.copyfile(path, target)
            with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as db:
                db.execute("PRAGMA foreign_keys = OFF")
                for trigger in ("events_stay", "events_remain", "attempts_stay", "attempts_remain"):
                    db.execute(f"DROP TRIGGER {trigger}")
                for statement in statements:
                    db.execute(statement)
            total += 1
            try:
                journal(copy).verify()
            except JournalCorrupt:
                found += 1
    return found, total


def metrics() -> list[Metric]:
    """The rows of these suites."""
    return [
        Metric("D3 failing disks: typed, undone, repeatable", *_failing_disks(), 10_000),
        Metric("D3 jumping clocks", *_jumping_clocks(), 10_000),
        Metric("D3 used pids and other machines", *_used_pids(), 10_000),
        *_goldens(),
        Metric("D8 edits of the journal that are found", *_edited(), 10_000),
    ]

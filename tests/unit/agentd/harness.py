"""A core on a real database, with a driver that does what the test says."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import TypeVar

from handoff.agentd import outcome, tickets, turns
from handoff.agentd.core import Core
from handoff.clock import FakeClock
from handoff.errors import NotAllowed
from handoff.executors.contract import (
    Allow,
    Answer,
    AskClosed,
    Command,
    Deny,
    Interrupt,
    Output,
    PermissionAsked,
    Prompt,
    Send,
    Session,
    SessionReady,
    TurnEnded,
)
from handoff.gate.contract import Examined, Verdict
from handoff.store import commit
from handoff.store.commit import Change
from handoff.store.engine import Store
from handoff.store.records import TaskRow, TurnRow

T = TypeVar("T")
CLAIM = '{"branch": "handoff/x", "commit": "%s", "summary": "did it"}' % ("c" * 40)


class PlainDriver:
    """Keeps what is pending, and says what it was told in plain lines."""

    carries_reason = False

    def __init__(self, state: dict[str, object] | None = None) -> None:
        self.state: dict[str, object] = state or {"pending": [], "turn": False}

    @property
    def pending(self) -> list[str]:
        found = self.state["pending"]
        assert isinstance(found, list)
        return found

    def open(self, session: Session) -> list[Output]:
        return [Send(f"open {session.resume}\n".encode())]

    def feed(self, line: bytes) -> list[Output]:
        raise AssertionError("the test speaks for the executor")

    def command(self, command: Command) -> list[Output]:
        match command:
            case Prompt(text=text):
                if self.state["turn"]:
                    raise NotAllowed("a turn runs")
                self.state["turn"] = True
                return [Send(f"prompt {json.dumps(text)}\n".encode())]
            case Allow(id=one) | Deny(id=one) | Answer(id=one):
                if one not in self.pending:
                    raise NotAllowed(f"{one} is not pending")
                self.pending.remove(one)
                return [Send(f"{type(command).__name__} {one}\n".encode())]
            case Interrupt():
                return [Send(b"interrupt\n")]

    def exited(self, code: int | None, stderr_tail: str) -> list[Output]:
        gone: list[Output] = [AskClosed(one, "withdrawn", "ended") for one in self.pending]
        self.pending.clear()
        return gone

    def dump(self) -> bytes:
        return json.dumps(self.state).encode()


class Box:
    """One task: its core, its database, and a crash at any moment by :meth:`reload`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.clock = FakeClock()
        self.store = Store.open(folder / "handoff.db", clock=self.clock)
        self.seqs: list[int] = []
        self.inputs: list[tuple[str, int, bytes, str | None]] = []
        task = TaskRow(
            id=self.clock.new_id(),
            number=0,
            name="t",
            state="pending",
            target="",
            project_id="p",
            project_name="p",
            repo_path=str(folder),
            work_dir=str(folder),
            workspace="{}",
            workspace_kind="managed",
            workspace_state="planned",
            branch="handoff/x",
            base_commit="a" * 40,
            plan_name="plan.md",
            plan_summary="do it",
            executor="plain",
            model="",
            verify="[]",
            created_at=self.clock.now_ms(),
            updated_at=self.clock.now_ms(),
        )
        turn = TurnRow(
            task_id=task.id,
            number=1,
            state="starting",
            actor="coordinator",
            started_at=self.clock.now_ms(),
        )
        change = Change(new_task=True, turns={1: turn}, prompts=[(1, "do it")])
        change.events.append(("dispatched", "coordinator", {}))
        self._apply(task, change)
        self.task_id = task.id
        self.core = self._load()

    def close(self) -> None:
        self.store.close()

    def _load(self) -> Core:
        loaded = self.store.read(lambda conn: commit.load(conn, self.task_id))
        assert loaded is not None
        driver = None
        if loaded.run is not None and loaded.run.state != "ended" and loaded.run.driver:
            driver = PlainDriver(json.loads(loaded.run.driver))
        return Core(loaded, driver, self.clock, self._prompt)

    def _prompt(self, turn: int) -> str:
        return commit.prompt(self.store.reader(), self.task_id, turn)

    def reload(self) -> None:
        """As after kill -9: only what was committed is left."""
        self.core = self._load()

    def _apply(self, task: TaskRow, change: Change) -> commit.Committed:
        made = self.store.write_sync(
            lambda conn: commit.apply(conn, task, change, self.clock.now_ms())
        )
        self.seqs += [int(str(e["seq"])) for e in made.events]
        self.inputs += change.inputs
        return made

    def step(self, fn: Callable[[Core], T]) -> T:
        """One input, committed; nothing of it if it raises."""
        try:
            result = fn(self.core)
        except Exception:
            self.reload()
            raise
        change, self.core.change = self.core.change, Change()
        if not change.empty:
            self.core.effects.extend(self._apply(self.core.task, change).effects)
        return result

    # -- the usual way -------------------------------------------------------------------

    def effect(self, kind: str) -> int:
        found = [e.id for e in self.core.effects if e.kind == kind]
        assert found, f"no effect {kind}: {[e.kind for e in self.core.effects]}"
        return found[0]

    def start(self) -> None:
        """Up to an executor that works on its prompt."""
        self.step(turns.admit)
        self.step(lambda core: turns.prepared(core, self.effect("prepare"), "a" * 40, []))
        self.start_run()

    def start_run(self, context: str = "new") -> None:
        resume = self.core.task.session_id or None
        session = Session(cwd="/", new_id="n", resume=resume)
        self.step(
            lambda core: turns.run_started(
                core, self.effect("start_run"), PlainDriver(), session, {"path": "/bin/plain"}
            )
        )
        ready = SessionReady("s1", context)  # type: ignore[arg-type]
        self.step(lambda core: turns.take(core, [ready]))

    def ask_permission(self, ask_id: str, fingerprint: str = "f", *, allow: bool = False) -> None:
        driver = self.core.driver
        assert isinstance(driver, PlainDriver)
        driver.pending.append(ask_id)
        asked = PermissionAsked(
            id=ask_id, tool="bash", kind="execute", title="run", text="run", raw="{}"
        )
        verdict = Verdict("allow" if allow else "ask", "policy", "because")
        examined = Examined("run it", "run", (), "", (), fingerprint, True, verdict)
        self.step(lambda core: tickets.open_gate(core, asked, examined, None))

    def end_turn(self, ended: TurnEnded) -> None:
        driver = self.core.driver
        if isinstance(driver, PlainDriver):
            driver.state["turn"] = False
            driver.pending.clear()

        def end(core: Core) -> None:
            turns.take(core, [ended])
            core.save_driver()

        self.step(end)

    def verify(self, code: str = "verified", commits: int = 1) -> None:
        found: dict[str, object] = {
            "code": code,
            "why": code,
            "head": "c" * 40,
            "branch": "handoff/x",
            "commits": commits,
            "dirt": {"total": 0},
        }
        effect_id = self.effect("verify")
        self.step(lambda core: outcome.verified(core, effect_id, {"found": found, "verify": []}))

    def deliver_all(self) -> None:
        """The shim has written every input."""

        def sent(core: Core) -> None:
            for _, _, _, ticket_id in self.inputs:
                if ticket_id is not None:
                    tickets.delivered(core, ticket_id)

        self.step(sent)

    def events(self) -> list[tuple[str, dict[str, object]]]:
        rows = self.store.reader().execute("SELECT type, payload FROM events ORDER BY seq")
        return [(kind, json.loads(payload)) for kind, payload in rows.fetchall()]

    def types(self) -> list[str]:
        return [kind for kind, _ in self.events()]

    def ticket(self, ref: str) -> dict[str, object]:
        cursor = self.store.reader().execute("SELECT * FROM tickets WHERE ref = ?", (ref,))
        names = [c[0] for c in cursor.description]
        row = cursor.fetchone()
        assert row is not None, f"no ticket {ref}"
        return dict(zip(names, row, strict=True))

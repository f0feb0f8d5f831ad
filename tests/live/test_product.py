"""The whole product with the real executors: the installed command, a real agentd, real
worktrees, and the stub model where the vendor's would be."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.conftest import installed
from tests.live.harness import BIN
from tests.live.setups import SETUPS
from tests.live.stub_model import StubModel
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import Home
from tests.support.repository import Repository
from tests.support.waiting import until

EXECUTORS = ("claude", "grok", "opencode", "gemini")
#: executors whose turn a denial ends: the reason comes as the next prompt
WITHIN = 120.0
BRANCH = "live/task"
COMMIT = "git add -A && git commit -q -m live && git rev-parse HEAD"
CLAIM = json.dumps({"branch": BRANCH, "commit": "{sha}", "summary": "did it"})


class Product:
    """agentd with one executor as its default."""

    def __init__(self, name: str, agentd: Agentd, repository: Repository, stub: StubModel) -> None:
        self.name = name
        self.agentd = agentd
        self.repository = repository
        self.stub = stub

    def dispatch(self, *script: Any) -> str:
        plan = f"Do what is asked.\n\n@@model {json.dumps(script)}\n"
        task = self.agentd.dispatch(self.repository, plan, "--new-branch", BRANCH)
        assert task["executor"] == self.name
        return str(task["id"])

    def continue_(self, task: str, *script: Any) -> None:
        text = f"Go on.\n\n@@model {json.dumps(script)}\n"
        self.agentd.cli("continue", task, text).ok()

    def ticket(self, task: str, after: str = "") -> dict[str, Any]:
        return self.agentd.ticket(task, after=after, within=WITHIN)

    def rested(self, task: str) -> dict[str, Any]:
        """The event that the running turn ended with."""
        self.agentd.wait_state(task, "waiting_review", within=WITHIN)
        ends = ("completed", "turn_failed")
        return [e for e in self.agentd.events(task) if e["type"] in ends][-1]

    def tell(self, task: str) -> str:
        """What happened, for a failed assertion."""
        events = "\n".join(json.dumps(e)[:400] for e in self.agentd.events(task))
        asked = "\n".join(
            json.dumps({k: v for k, v in r.items() if k not in ("tools", "system")})
            for r in self.stub.requests
        )[-3000:]
        return f"\n{events}\n{asked}\n{self.agentd.log()[-1500:]}"


@pytest.fixture
def product(
    request: pytest.FixtureRequest, isolated_home: Home, git_repo: Repository, stub: StubModel
) -> Iterator[Product]:
    name = request.param
    installed(name)
    env = SETUPS[name](isolated_home, stub.url)
    if name == "claude":
        env["CLAUDE_CODE_MAX_RETRIES"] = "1"
    folder = isolated_home.path / ".handoff" / "data" / "env"
    folder.mkdir(parents=True)
    lines = "".join(f"{key}={value}\n" for key, value in env.items())
    (folder / "live.env").write_text(lines)
    (folder / "live.env").chmod(0o600)
    extra = f"path_dirs: [{BIN}]\nenv:\n  {name}: live.env\n"
    with run_agentd(isolated_home, extra, start=False) as agentd:
        config = agentd.dir / "config.yaml"
        config.write_text(config.read_text().replace("default: fake", f"default: {name}"))
        agentd.start()
        yield Product(name, agentd, git_repo, stub)


each = pytest.mark.parametrize("product", EXECUTORS, indirect=True)


@each
def test_a_task_from_dispatch_to_acceptance(product: Product) -> None:
    task = product.dispatch(
        {"say": "I begin."},
        {"write": {"path": "notes.txt", "content": "one\ntwo\n"}},
        {"run": COMMIT},
        {"say": CLAIM},
    )
    asked = product.ticket(task)
    assert asked["kind"] == "gate"
    assert asked["request"]["command"] == COMMIT, asked["request"]
    product.agentd.reply(task, "--approve").ok()
    end = product.rested(task)
    assert end["type"] == "completed", product.tell(task)
    assert end["payload"]["summary"] == "did it"
    assert end["payload"]["branch"] == BRANCH
    assert end["payload"]["found"]["code"] == "verified"
    diff = product.agentd.cli("diff", task).ok().out
    assert "+two" in diff
    product.agentd.cli("done", task).ok()
    assert product.repository.git("show", f"{BRANCH}:notes.txt") == "one\ntwo"


@each
def test_a_denial_reaches_the_model_with_its_reason(product: Product) -> None:
    task = product.dispatch({"run": "rm -rf build"}, {"say": "I see."})
    product.ticket(task)
    reason = "nothing is deleted here, use attic instead"
    product.agentd.reply(task, "--deny", "--reason", reason).ok()
    until(lambda: product.stub.was_told(reason), "the model was told why", within=WITHIN)
    product.rested(task)
    told = [e for e in product.agentd.events(task) if e["type"] == "ticket_answered"]
    assert told[0]["payload"]["decision"] == "deny"
    product.agentd.cli("stop", task).ok()


@pytest.mark.parametrize("product", ["claude", "grok"], indirect=True)
def test_a_question_is_answered_within_the_turn(product: Product) -> None:
    ask = {"question": "Which driver?", "options": ["pgx", "gorm"]}
    task = product.dispatch({"ask": ask}, {"run": COMMIT}, {"say": CLAIM})
    asked = product.ticket(task)
    assert asked["kind"] == "ask"
    assert "Which driver?" in asked["request"]["question"]
    product.agentd.reply(task, "--answer", "neither, take sqlite").ok()
    product.ticket(task, after=asked["ref"])
    assert product.stub.was_told("neither, take sqlite")
    product.agentd.cli("stop", task).ok()


@each
def test_agentd_is_killed_while_a_permission_waits(product: Product) -> None:
    task = product.dispatch(
        {"write": {"path": "kept.txt", "content": "kept\n"}}, {"run": COMMIT}, {"say": CLAIM}
    )
    before = product.ticket(task)
    calls = product.stub.count(step=1)
    product.agentd.kill()
    product.agentd.start()
    after = product.ticket(task)
    assert after["id"] == before["id"]
    product.agentd.reply(task, "--approve").ok()
    end = product.rested(task)
    assert end["type"] == "completed", product.tell(task)
    assert product.stub.count(step=1) == calls, "the model was asked once"
    tickets = [e for e in product.agentd.events(task) if e["type"] == "permission_request"]
    assert len(tickets) == 1
    product.agentd.cli("done", task).ok()


@each
def test_an_interrupted_turn_is_continued(product: Product) -> None:
    task = product.dispatch({"run": "rm -rf build"}, {"say": "never said"})
    product.ticket(task)
    product.agentd.cli("interrupt", task).ok()
    end = product.rested(task)
    assert end["type"] == "turn_failed", product.tell(task)
    assert product.agentd.tickets(task) == []
    product.continue_(
        task, {"run": COMMIT.replace("commit", "commit --allow-empty")}, {"say": CLAIM}
    )
    product.ticket(task)
    product.agentd.reply(task, "--approve").ok()
    until(
        lambda: [e for e in product.agentd.events(task) if e["type"] == "completed"],
        "the next turn works",
        within=WITHIN,
    )
    product.agentd.cli("done", task).ok()


@pytest.mark.parametrize("product", ["claude", "gemini"], indirect=True)
def test_a_failing_model_fails_the_turn_and_not_the_task(product: Product) -> None:
    task = product.dispatch({"error": 400, "times": -1, "message": "that can't be read"})
    end = product.rested(task)
    assert end["type"] == "turn_failed"
    assert end["payload"]["fault"], product.tell(task)
    product.continue_(
        task, {"run": COMMIT.replace("commit", "commit --allow-empty")}, {"say": CLAIM}
    )
    product.ticket(task)
    product.agentd.reply(task, "--approve").ok()
    until(
        lambda: [e for e in product.agentd.events(task) if e["type"] == "completed"],
        "the next turn works",
        within=WITHIN,
    )
    product.agentd.cli("done", task).ok()


@pytest.mark.parametrize("product", ["claude", "grok", "opencode"], indirect=True)
def test_the_executor_is_killed_and_the_task_goes_on_in_its_session(product: Product) -> None:
    task = product.dispatch({"say": "Remember the word heron."}, {"run": "rm -rf build"})
    product.ticket(task)
    process_of(product, task).kill()
    end = product.rested(task)
    assert end["type"] == "turn_failed", product.tell(task)
    assert product.agentd.tickets(task) == []
    product.continue_(
        task, {"run": COMMIT.replace("commit", "commit --allow-empty")}, {"say": CLAIM}
    )
    product.ticket(task)
    assert product.stub.was_told("Remember the word heron.")
    product.agentd.reply(task, "--approve").ok()
    until(
        lambda: [e for e in product.agentd.events(task) if e["type"] == "completed"],
        "the next turn works",
        within=WITHIN,
    )
    product.agentd.cli("done", task).ok()


def process_of(product: Product, task: str) -> Any:
    """The executor's process: the child of the shim that works in the task's worktree."""
    import psutil

    from tests.support.leftovers import marked

    work_dir = product.agentd.show(task)["task"]["work_dir"]

    def found() -> Any:
        for process in marked(product.agentd.home.mark):
            try:
                parent = process.parent()
                words = parent.cmdline() if parent else []
                if pathlib.Path(process.cwd()) == pathlib.Path(work_dir) and any(
                    word.endswith("shim.py") for word in words
                ):
                    return process
            except psutil.Error:
                continue
        return None

    return until(found, "the executor's process")


@pytest.mark.parametrize("product", ["claude"], indirect=True)
def test_a_session_that_is_gone_is_begun_anew(product: Product) -> None:
    task = product.dispatch({"say": "First."})
    first = product.rested(task)
    process_of(product, task).kill()
    projects = product.agentd.home.path / ".claude" / "projects"
    for session in projects.glob("*/*.jsonl"):
        session.unlink()
    commit = COMMIT.replace("commit", "commit --allow-empty")
    product.continue_(task, {"run": commit}, {"say": CLAIM})

    def next_thing() -> str:
        if product.agentd.tickets(task):
            return "ticket"
        ends = [e for e in product.agentd.events(task) if e["seq"] > first["seq"]]
        return "failed" if any(e["type"] == "turn_failed" for e in ends) else ""

    came = until(next_thing, "the next turn begins or fails", within=WITHIN)
    product.agentd.cli("stop", task).ok()
    assert came == "ticket"

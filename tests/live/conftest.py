"""The installed executors and the stub model, for every live test."""

from __future__ import annotations

import os
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from handoff.executors.registry import Registry
from tests.live.harness import BIN, Run, begin
from tests.live.setups import SETUPS
from tests.live.stub_model import StubModel
from tests.support.home import Home
from tests.support.repository import Repository

if TYPE_CHECKING:
    from tests.live.hermes_place import Place

#: CI says that they have to be there
WANTED = os.environ.get("HANDOFF_LIVE", "") not in ("", "0")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = pathlib.Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.path.name != "test_stub_model.py":
            item.add_marker(pytest.mark.live)
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture
def program(request: pytest.FixtureRequest) -> str:
    """The path of the executor that the test module names in ``PROGRAM``."""
    return installed(request.module.PROGRAM)


def installed(name: str) -> str:
    """The path of an executor in .live; without it the test is skipped, except in CI."""
    path = BIN / name
    if path.exists():
        return str(path)
    if WANTED:
        pytest.fail(f"HANDOFF_LIVE is set and {name} is not in .live: run scripts/live-install")
    pytest.skip(f"{name} is not in .live (scripts/live-install fetches it)")


@pytest.fixture
def stub() -> Iterator[StubModel]:
    with StubModel() as running:
        yield running
        bugs = [request["bug"] for request in running.requests if "bug" in request]
        assert not bugs, bugs[0]


@pytest.fixture(scope="session")
def hermes_plugin(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The plugin for Hermes as a self-contained directory."""
    from tests.live.hermes_host import plugin_dir

    return plugin_dir("hermes_handoff", tmp_path_factory.mktemp("plugin") / "hermes-handoff")


@pytest.fixture(scope="module", params=["0.19", "0.22"])
def place(request: pytest.FixtureRequest, hermes_plugin: pathlib.Path) -> Iterator[Place]:
    """A home of Hermes with a session that was handed off; shared by a module's tests, each
    with attempts of its own."""
    from tests.live.hermes_place import make_place

    with make_place(request.param, hermes_plugin) as found:
        found.hand_off()
        yield found


@pytest.fixture
def worktree(git_repo: Repository) -> pathlib.Path:
    """A repository to work in."""
    return git_repo.path


@pytest.fixture
async def start(
    request: pytest.FixtureRequest,
    program: str,
    stub: StubModel,
    isolated_home: Home,
    worktree: pathlib.Path,
    tmp_path: pathlib.Path,
) -> AsyncIterator[Callable[..., Awaitable[Run]]]:
    """``run = await start()`` starts the module's executor, ready for its first prompt."""
    name = request.module.PROGRAM
    env = SETUPS[name](isolated_home, stub.url)
    executor = Registry().get(name)
    runs: list[Run] = []

    async def begin_one(*, extra: dict[str, str] | None = None, **options: Any) -> Run:
        run = await begin(
            executor,
            program,
            isolated_home,
            worktree,
            tmp_path / f"{request.node.name.removeprefix('test_')}-{len(runs)}",
            env={**env, **(extra or {})},
            **options,
        )
        runs.append(run)
        return run

    yield begin_one
    for run in runs:
        await run.end()

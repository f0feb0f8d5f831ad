"""Fixtures for every test. The classes behind them are in :mod:`tests.support`."""

from __future__ import annotations

import os
import pathlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.console import Cli
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import Home, make_home
from tests.support.repository import Repository, make_repository

# No deadline: a machine under load is not a finding. CI draws the same examples each time,
# so that a red run can be had again.
settings.register_profile(
    "local", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--shuffle SEED``: another order, the same for the same seed."""
    parser.addoption("--shuffle", type=int, default=None, metavar="SEED")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle when asked to."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)


@pytest.fixture(scope="session", autouse=True)
def session_home() -> Iterator[Home]:
    """Nobody's home but a fresh one: no test reads or writes the user's files, git
    settings, agents' logins or Handoff."""
    with make_home() as home, pytest.MonkeyPatch.context() as patch:
        for key in set(os.environ) - set(home.env):
            patch.delenv(key)
        for key, value in home.env.items():
            patch.setenv(key, value)
        yield home


@pytest.fixture
def isolated_home() -> Iterator[Home]:
    """A home for this test alone, not set in this process: pass ``home.env`` on."""
    with make_home() as home:
        yield home


@pytest.fixture
def git_repo(isolated_home: Home) -> Repository:
    """A repository ``calc`` with one commit, in the private home."""
    return make_repository(isolated_home)


@pytest.fixture
def cli(isolated_home: Home, tmp_path: pathlib.Path) -> Cli:
    """``cli("status")`` runs the installed command with the private home."""
    return Cli(isolated_home, tmp_path)


@pytest.fixture
def agentd(isolated_home: Home) -> Iterator[Agentd]:
    """A running daemon in the private home; gone with all its children afterwards."""
    with run_agentd(isolated_home) as running:
        yield running

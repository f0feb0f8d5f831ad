from __future__ import annotations

import sys

import pytest

from handoff.errors import ConfigError
from handoff.executors import catalog
from handoff.executors.catalog import BUILT_IN, definitions, own


def test_every_row_can_be_found_installed_and_is_tested():
    for name, agent in BUILT_IN.items():
        assert name == agent.name
        assert agent.title and agent.programs and agent.tested
        if name != "fake":
            assert agent.install and agent.login
            assert agent.login_files or agent.login_env


def test_agents_that_start_in_a_mode_that_approves_are_put_into_one_that_asks():
    assert BUILT_IN["claude-agent-acp"].mode == "default"
    assert BUILT_IN["codex-acp"].mode == "workspace-write"
    assert BUILT_IN["qwen"].mode == "default"


def test_no_secret_can_stand_in_argv_or_files():
    for agent in BUILT_IN.values():
        text = " ".join(agent.argv + agent.model_argv) + " ".join(agent.files.values())
        assert not any(word in text.lower() for word in ("key", "token", "secret", "password"))


def test_the_fake_runs_with_the_interpreter_that_runs_us():
    assert BUILT_IN["fake"].programs == (sys.executable,)


def test_opencode_asks_for_everything_that_is_not_named():
    rules = catalog.OPENCODE_PERMISSION
    assert next(iter(rules.items())) == ("*", "ask")
    for kind in ("edit", "bash", "webfetch", "external_directory"):
        assert rules[kind] == "ask"


class Settings:
    command = ("my-agent", "--acp")
    env = {"A": "b"}
    model = "m1"


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        {"command": "my-agent --acp", "env": {"A": "b"}, "model": "m1"},
        {"command": ["my-agent", "--acp"], "env": {"A": "b"}, "model": "m1"},
    ],
)
def test_an_agent_of_ones_own(settings):
    agent = own("mine", settings)
    assert (agent.programs, agent.argv) == (("my-agent",), ("--acp",))
    assert (agent.env, agent.default_model, agent.model) == ({"A": "b"}, "m1", "session")
    assert (agent.driver, agent.mode, agent.question_tool) == ("acp", None, True)


def test_an_agent_of_ones_own_says_how_its_model_and_mode_are_set():
    agent = own(
        "mine",
        {"command": "x", "mode": "ask", "model_argv": ["-m", "{model}"], "question": False},
    )
    assert (agent.mode, agent.model, agent.model_argv) == ("ask", "argv", ("-m", "{model}"))
    assert not agent.question_tool
    assert own("mine", {"command": "x", "model_env": "MODEL"}).model == "env"


def test_an_agent_without_a_command_is_refused():
    with pytest.raises(ConfigError, match=r"agents\.mine"):
        definitions({"mine": {"env": {}}})


def test_ones_own_agent_replaces_a_built_in_one():
    agents = definitions({"grok": {"command": "other"}})
    assert agents["grok"].programs == ("other",)
    assert list(agents)[: len(BUILT_IN)] == list(BUILT_IN)

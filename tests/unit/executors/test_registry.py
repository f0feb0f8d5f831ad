from __future__ import annotations

import json
import sys

import pytest

from handoff.errors import ProtocolViolation, UsageError
from handoff.executors.acp import AcpDriver
from handoff.executors.catalog import BUILT_IN
from handoff.executors.contract import LaunchRequest, Session
from handoff.executors.registry import Registry


def request(**more):
    return LaunchRequest(program="/bin/p", cwd="/w", scratch="/s", new_id="n", **more)


@pytest.fixture(autouse=True)
def no_opencode(monkeypatch):
    monkeypatch.delenv("OPENCODE_CONFIG_CONTENT", raising=False)


def test_knows_every_executor_and_says_which_when_asked_for_another():
    registry = Registry({"mine": {"command": "x"}})
    assert registry.names() == [*BUILT_IN, "mine"]
    assert registry.get("mine").programs == ("x",)
    with pytest.raises(UsageError, match="no executor 'nobody'") as raised:
        registry.get("nobody")
    assert "opencode" in str(raised.value)


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "claude"])
def test_a_driver_comes_back_from_its_state(name):
    executor = Registry().get(name)
    driver = executor.driver()
    driver.open(Session("/w", "n"))
    loaded = executor.load_driver(driver.dump())
    assert isinstance(loaded, AcpDriver)
    assert loaded.dump() == driver.dump()
    with pytest.raises(ProtocolViolation):
        executor.load_driver(b"nonsense")


def test_claude_has_a_driver_of_its_own():
    executor = Registry().get("claude")
    assert executor.driver().carries_reason
    assert executor.launch(request()).argv[0] == "/bin/p"


def test_a_launch_names_program_arguments_and_environment():
    launch = Registry().get("gemini").launch(request(model="m1"))
    shut = ("--admin-policy", "/s/gemini-ask.toml")
    assert launch.argv == ("/bin/p", "--acp", *shut, "-m", "m1")
    assert 'decision = "ask_user"' in launch.files["gemini-ask.toml"]
    assert not launch.instructed
    assert Registry().get("gemini").launch(request()).argv == ("/bin/p", "--acp", *shut)


def test_the_fake_keeps_its_sessions_in_the_scratch_folder():
    launch = Registry().get("fake").launch(request())
    assert launch.argv[1:] == ("-I", "-m", "handoff.executors.fake", "--state", "/s")
    assert Registry().get("fake").programs == (sys.executable,)


def test_an_agent_of_ones_own_gets_its_model_and_environment():
    agents = {
        "a": {
            "command": "a run",
            "env": {"HOME_OF": "{scratch}/h"},
            "model_env": "M",
            "model": "x",
        },
        "b": {"command": "b", "model_argv": ["--model={model}"]},
    }
    registry = Registry(agents)
    launch = registry.get("a").launch(request())
    assert (launch.argv, launch.env) == (("/bin/p", "run"), {"HOME_OF": "/s/h", "M": "x"})
    assert registry.get("b").launch(request(model="y")).argv == ("/bin/p", "--model=y")
    assert registry.get("b").launch(request()).argv == ("/bin/p",)


def test_opencode_keeps_the_users_providers_and_loses_their_permissions():
    given = {
        "model": "p/m",
        "provider": {"p": {}},
        "permission": {"bash": "allow"},
        "share": "auto",
    }
    env = {"OPENCODE_CONFIG_CONTENT": json.dumps(given)}
    launch = Registry().get("opencode").launch(request(env=env))
    config = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])
    assert (config["model"], config["provider"]) == ("p/m", {"p": {}})
    assert config["permission"]["bash"] == "ask"
    assert (config["share"], config["autoupdate"]) == ("disabled", False)
    assert json.loads(launch.env["OPENCODE_PERMISSION"]) == config["permission"]
    assert launch.env["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"


def test_no_agent_of_opencode_keeps_permissions_of_its_own():
    given = {"agent": {"build": {"permission": {"bash": "allow"}}, "mine": {"prompt": "p"}}}
    env = {"OPENCODE_CONFIG_CONTENT": json.dumps(given)}
    launch = Registry().get("opencode").launch(request(env=env))
    agents = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])["agent"]
    assert agents["mine"] == {"prompt": "p"}
    for name in ("build", "plan", "general", "explore"):
        assert agents[name]["permission"]["bash"] == "ask"
    assert BUILT_IN["opencode"].mode == "build"


def test_opencodes_configuration_comes_from_agentds_environment_too(monkeypatch):
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", '{"model": "from/env"}')
    launch = Registry().get("opencode").launch(request())
    assert json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])["model"] == "from/env"
    with pytest.raises(UsageError, match="OPENCODE_CONFIG_CONTENT"):
        Registry().get("opencode").launch(request(env={"OPENCODE_CONFIG_CONTENT": "{"}))

"""Hermes' own functions, played: present, missing, throwing, or answering nonsense."""

from __future__ import annotations

import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from handoff.errors import LaunchFailed, NotAllowed
from handoff.plugins.hermes_handoff import internals

TOOL = "hermes_handoff"
TOOLSETS = {
    "terminal": ["bash", "process"],
    "file": ["read_file"],
    "handoff": [TOOL],
    "coding": ["bash"],
}


class Hermes:
    """A host made of modules that a test can change."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.settings: Any = {"model": {"provider": "custom", "base_url": "http://h/v1/"}}
        self.enabled: Any = {"terminal", "file", "handoff"}
        self.selected: dict[str, Any] = {}
        self.asked: list[tuple[str, object]] = []
        self.module("hermes_cli", __version__="0.22.9")
        self.module("hermes_cli.config", load_config=lambda: self.settings)
        self.module("hermes_cli.tools_config", _get_platform_tools=lambda _c, _p: self.enabled)
        self.module("toolsets", resolve_toolset=lambda name: TOOLSETS.get(name, []))
        self.module("agent")
        self.module("agent.coding_context", coding_selection=self.selection)
        self.module(
            "agent.skill_utils", parse_config_string_list=lambda v: v.strip("[]").split(",")
        )
        self.module(
            "hermes_cli.runtime_provider",
            has_named_custom_provider=lambda name: name == "custom:lab",
            canonical_custom_identity=lambda base_url: (
                "custom:lab" if base_url == "http://lab/v1" else None
            ),
        )
        self.module(
            "hermes_cli.auth", is_provider_explicitly_configured=lambda n: n == "openrouter"
        )

    def module(self, name: str, **members: Any) -> None:
        made = types.ModuleType(name)
        for key, value in members.items():
            setattr(made, key, value)
        self.patch.setitem(sys.modules, name, made)

    def lose(self, module: str, name: str) -> None:
        self.patch.delattr(sys.modules[module], name)

    def selection(self, *, platform: str, cwd: object, config: object) -> Any:
        assert config is self.settings
        self.asked.append((platform, cwd))
        return self.selected.get(platform)


@pytest.fixture
def hermes(monkeypatch: pytest.MonkeyPatch) -> Hermes:
    return Hermes(monkeypatch)


def test_what_the_profile_lists_is_allowed(hermes: Hermes) -> None:
    assert internals.allowed_tools("cli", "/w") == {"bash", "process", "read_file", TOOL}
    assert hermes.asked == [("cli", "/w"), ("tui", "/w")]


def test_what_the_profile_leaves_out_is_not(hermes: Hermes) -> None:
    hermes.enabled = {"terminal"}
    assert TOOL not in internals.allowed_tools("cli", "/w")


@pytest.mark.parametrize("platform", ["cli", "tui"])
def test_a_posture_that_the_host_may_take_there_narrows(hermes: Hermes, platform: str) -> None:
    hermes.selected = {platform: ["coding"]}
    assert internals.allowed_tools("cli", "/w") == {"bash"}


@pytest.mark.parametrize("value", [["handoff"], "[handoff]", "handoff"])
def test_what_is_disabled_goes_last(hermes: Hermes, value: object) -> None:
    hermes.settings = {"agent": {"disabled_toolsets": value}}
    assert TOOL not in internals.allowed_tools("cli", "/w")


@pytest.mark.parametrize("value", [None, [], "", {}])
def test_nothing_disabled_needs_no_newer_host(hermes: Hermes, value: object) -> None:
    hermes.lose("agent.skill_utils", "parse_config_string_list")
    hermes.settings = {"agent": {"disabled_toolsets": value}}
    assert TOOL in internals.allowed_tools("cli", "/w")


NEEDED = [
    ("hermes_cli.config", "load_config"),
    ("agent.coding_context", "coding_selection"),
    ("hermes_cli.tools_config", "_get_platform_tools"),
    ("toolsets", "resolve_toolset"),
    ("agent.skill_utils", "parse_config_string_list"),
]


def _refused(call: Callable[[], object]) -> NotAllowed:
    with pytest.raises(NotAllowed) as caught:
        call()
    assert "0.22.9" in str(caught.value)
    assert caught.value.details["host_version"] == "0.22.9"
    assert "0.19.0" in caught.value.remedy
    return caught.value


@pytest.mark.parametrize(("module", "name"), NEEDED)
def test_each_missing_name_refuses_with_the_hosts_version(
    hermes: Hermes, module: str, name: str
) -> None:
    hermes.settings = {"agent": {"disabled_toolsets": "[x]"}}
    hermes.lose(module, name)
    assert name in str(_refused(lambda: internals.allowed_tools("cli", "/w")))


@pytest.mark.parametrize(("module", "name"), NEEDED)
def test_each_missing_module_refuses(hermes: Hermes, module: str, name: str) -> None:
    hermes.settings = {"agent": {"disabled_toolsets": "[x]"}}
    hermes.patch.setitem(sys.modules, module, None)
    assert name in str(_refused(lambda: internals.allowed_tools("cli", "/w")))


@pytest.mark.parametrize(("module", "name"), NEEDED)
@pytest.mark.parametrize("how", ["throws", "number", "strange"])
def test_each_answer_that_is_none_refuses(hermes: Hermes, module: str, name: str, how: str) -> None:
    def instead(*_: object, **__: object) -> object:
        if how == "throws":
            raise SystemError("inner secret")
        return 7 if how == "number" else [7]

    hermes.settings = {"agent": {"disabled_toolsets": "[x]"}}
    hermes.patch.setattr(sys.modules[module], name, instead)
    assert "inner secret" not in str(_refused(lambda: internals.allowed_tools("cli", "/w")))


def test_a_name_that_is_no_function_refuses(hermes: Hermes) -> None:
    hermes.patch.setattr(sys.modules["toolsets"], "resolve_toolset", "x")
    _refused(lambda: internals.allowed_tools("cli", "/w"))


@pytest.mark.parametrize("agent", [["x"], "x", 3])
def test_a_configuration_of_another_shape_refuses(hermes: Hermes, agent: object) -> None:
    hermes.settings = {"agent": agent}
    _refused(lambda: internals.allowed_tools("cli", "/w"))


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [({"isolation": "host"}, True), ({"isolation": " Host"}, True), ({"isolation": "in_process"}, False),
     ({}, False), (None, False), ([], False)],
)  # fmt: skip
def test_whether_plugins_run_in_a_process_of_their_own(
    hermes: Hermes, plugins: object, expected: bool
) -> None:
    hermes.settings = {"plugins": plugins}
    assert internals.isolated() is expected


def test_an_unknown_surface_refuses(hermes: Hermes) -> None:
    _refused(lambda: internals.allowed_tools("telegram", "/w"))


def test_a_host_that_does_not_tell_its_version(hermes: Hermes) -> None:
    hermes.lose("hermes_cli", "__version__")
    assert internals.version() == "unknown"
    hermes.patch.setitem(sys.modules, "hermes_cli", None)
    assert internals.version() == "unknown"
    assert internals.recipe() == "hermes-0.19"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("custom", True),
        ("CUSTOM ", True),
        ("custom:lab", True),
        ("openrouter", True),
        ("anthropic", False),
        ("auto", False),
        ("", False),
        (internals.TEMPORARY, False),
    ],
)
def test_named_providers(hermes: Hermes, name: str, expected: bool) -> None:
    assert internals.provider_named(name) is expected


def test_a_provider_that_can_not_be_looked_up_refuses(hermes: Hermes) -> None:
    hermes.lose("hermes_cli.auth", "is_provider_explicitly_configured")
    _refused(lambda: internals.provider_named("anthropic"))
    assert internals.provider_named("custom")


@pytest.mark.parametrize(
    ("provider", "address", "expected"),
    [
        ("openrouter", "http://x", "openrouter"),
        ("custom", "http://lab/v1", "custom:lab"),
        ("custom", "http://h/v1", "custom"),
        ("custom", "http://elsewhere/v1", internals.TEMPORARY),
        ("custom", "", "custom"),
    ],
)
def test_the_name_of_an_endpoint(
    hermes: Hermes, provider: str, address: str, expected: str
) -> None:
    assert internals.named(provider, address) == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.19.0", "hermes-0.19"),
        ("0.21.5.post2", "hermes-0.19"),
        ("0.22.2.post1", "hermes-0.22"),
        ("0.23", "hermes-0.22"),
        ("1.0.0", "hermes-0.22"),
        ("what", "hermes-0.19"),
    ],
)
def test_the_recipe(hermes: Hermes, version: str, expected: str) -> None:
    hermes.module("hermes_cli", __version__=version)
    assert internals.recipe() == expected


def test_an_older_host_needs_node(
    hermes: Hermes, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    internals.require_opener("hermes-0.22")
    with pytest.raises(LaunchFailed, match=r"only with Node\.js"):
        internals.require_opener("hermes-0.19")
    (tmp_path / "node").write_text("#!/bin/sh\n")
    (tmp_path / "node").chmod(0o755)
    internals.require_opener("hermes-0.19")


def test_the_hosts_command_beside_its_interpreter_or_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchFailed):
        internals.program()
    for folder in (tmp_path, tmp_path / "venv"):
        folder.mkdir(exist_ok=True)
        (folder / "hermes").write_text("#!/bin/sh\n")
        (folder / "hermes").chmod(0o755)
        assert internals.program() == str(folder / "hermes")


def test_without_a_host_the_environment_tells_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hermes_constants", None)
    monkeypatch.setitem(sys.modules, "hermes_cli.profiles", None)
    monkeypatch.setenv("HERMES_HOME", "/some/home")
    assert internals.home() == "/some/home"
    assert internals.active_profile() == ""

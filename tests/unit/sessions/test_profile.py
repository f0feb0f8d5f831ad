from __future__ import annotations

from pathlib import Path

import pytest

from handoff.errors import ProfileMismatch, UsageError
from handoff.sessions.profile import choose, resolve, same


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "x/profiles/bob").mkdir(parents=True)
    (tmp_path / "x/profiles/amy").mkdir()
    (tmp_path / "user/.hermes").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "x/profiles/bob")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "cwd", "flag"),
    [
        ("{home}/x/profiles/bob", "/", ""),
        ("{home}/x/profiles/bob/", "/", ""),
        ("{home}/x/profiles/../profiles/bob", "/", ""),
        ("{home}/link", "/", ""),
        ("x/profiles/bob", "{home}", ""),
        ("./x//profiles/bob/", "{home}", ""),
        ("{home}/x", "/", "bob"),
        ("{home}/x/profiles/amy", "/", "bob"),
        ("~/../x/profiles/bob", "/", ""),
    ],
)
def test_each_way_to_say_bob_is_bob(home: Path, given: str, cwd: str, flag: str) -> None:
    env = {"HOME": str(home / "user"), "HERMES_HOME": given.format(home=home)}
    found = resolve(env, cwd.format(home=home), flag)
    assert found.name == "bob"
    assert found.home == str(home / "x/profiles/bob")
    assert found.top == str(home / "x")
    assert found.root == str(home / "x/profiles/bob/handoff")


def test_a_home_of_its_own_is_default(home: Path) -> None:
    env = {"HOME": str(home / "user"), "HERMES_HOME": str(home / "x")}
    assert resolve(env, "/").name == "default"
    assert resolve(env, "/", reported="custom").name == "default"
    assert resolve({"HOME": str(home / "user")}, "").home == str(home / "user/.hermes")


def test_the_profile_that_the_user_chose_is_not_default(home: Path) -> None:
    (home / "x/active_profile").write_text("bob\n")
    env = {"HOME": str(home / "user"), "HERMES_HOME": str(home / "x")}
    assert resolve(env, "/").name == "bob"
    assert resolve(env, "/", "default").home == str(home / "x")
    (home / "x/active_profile").write_text("../../etc")
    with pytest.raises(UsageError):
        resolve(env, "/")


@pytest.mark.parametrize(
    ("env", "flag", "reported", "error"),
    [
        ({"HERMES_HOME": "{home}/x"}, "nobody", "", ProfileMismatch),
        ({"HERMES_HOME": "{home}/none"}, "", "", ProfileMismatch),
        ({"HERMES_HOME": "{home}/x"}, "", "bob", ProfileMismatch),
        ({"HERMES_HOME": "{home}/x/profiles/bob"}, "", "default", ProfileMismatch),
        ({"HERMES_HOME": "{home}/x"}, "../amy", "", UsageError),
        ({"HERMES_HOME": "x"}, "", "", UsageError),
        ({}, "", "", UsageError),
    ],
)
def test_nothing_is_guessed(
    home: Path, env: dict[str, str], flag: str, reported: str, error: type[Exception]
) -> None:
    given = {name: value.format(home=home) for name, value in env.items()}
    with pytest.raises(error):
        resolve(given, "", flag, reported)


def test_another_profile_is_named_in_the_refusal(home: Path) -> None:
    found = resolve({"HERMES_HOME": str(home / "x")}, "/", "amy")
    with pytest.raises(ProfileMismatch) as refused:
        same(found, "bob")
    assert (refused.value.exit_code, refused.value.details["profile"]) == (3, "bob")


@pytest.mark.parametrize(
    ("env", "name", "host", "wanted"),
    [
        ({}, "", "", "handoff"),
        ({}, "", "codex", "handoff"),
        ({}, "", "hermes", "default"),
        ({}, "default", "", "default"),
        ({"HERMES_HOME": "{home}/x/profiles/bob"}, "", "", "bob"),
        ({"HERMES_HOME": "{home}/x/profiles/bob"}, "handoff", "", "handoff"),
        ({"HERMES_HOME": "{home}/x/profiles/bob"}, "amy", "", "amy"),
        ({"HERMES_HOME": "{home}/x", "HANDOFF_PROFILE": "bob"}, "", "", "bob"),
        ({"HERMES_HOME": "{home}/x", "HANDOFF_PROFILE": "handoff"}, "", "", "handoff"),
        ({"HERMES_HOME": "{home}/x", "HANDOFF_PROFILE": "handoff"}, "amy", "", "amy"),
    ],
)
def test_outside_of_hermes_its_profile_is_named_or_not_used(
    home: Path, env: dict[str, str], name: str, host: str, wanted: str
) -> None:
    env = {key: value.format(home=home) for key, value in env.items()}
    found = choose({"HOME": str(home / "user"), **env}, "", str(home / "own"), name, host)
    assert found.name == wanted
    assert found.own == (wanted == "handoff")
    if found.own:
        assert found.root == str(home / "own/sessions")
        assert found.sessions == ""


def test_a_profile_that_is_not_there_is_no_other_one(home: Path) -> None:
    env = {"HOME": str(home / "user"), "HERMES_HOME": str(home / "x")}
    with pytest.raises(ProfileMismatch):
        choose(env, "/", str(home / "own"), "nobody")

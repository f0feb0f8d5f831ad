"""A policy's folders lead where the system says at this moment."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable

import pytest

from handoff.nodes.node import bases
from handoff.nodes.node.bases import Bases
from handoff.nodes.node.policy import Policy, load


def settled(folder: pathlib.Path) -> None:
    """Until a change of the folder can't be taken for one that was seen."""
    while time.time_ns() - os.stat(folder).st_ctime_ns < 2 * bases.YOUNG_NS:
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders above the test's own are changed by others at any time."""
    above, own = bases._above, str(tmp_path.resolve())
    monkeypatch.setattr(bases, "_above", lambda path: [p for p in above(path) if p.startswith(own)])


def swap_for_link(at: pathlib.Path) -> None:
    at.rename(at.with_name("moved"))
    at.symlink_to(at.with_name("moved"))


def swap_above(at: pathlib.Path) -> None:
    swap_for_link(at.parent)


@pytest.mark.parametrize("how", [swap_for_link, swap_above])
def test_a_folder_that_becomes_a_link_is_followed(
    tmp_path: pathlib.Path, how: Callable[[pathlib.Path], None]
) -> None:
    place = tmp_path.resolve() / "above" / "place"
    place.mkdir(parents=True)
    settled(place.parent)
    settled(tmp_path)
    found = Bases()
    paths = [str(place), "", "/etc"]
    assert found.now(lambda: paths) == {str(place): str(place).casefold(), "/etc": "/etc"}
    assert found.now(lambda: pytest.fail("it was looked at anew")) == found.now(lambda: paths)
    how(place)
    assert found.now(lambda: paths) == {"/etc": "/etc"}


def test_what_comes_into_being_as_a_link_is_followed(tmp_path: pathlib.Path) -> None:
    place = tmp_path.resolve() / "not" / "yet"
    settled(tmp_path)
    found = Bases()
    assert str(place) in found.now(lambda: [str(place)])
    (tmp_path / "real" / "yet").mkdir(parents=True)
    (tmp_path / "not").symlink_to(tmp_path / "real")
    assert not found.now(lambda: [str(place)])


def test_a_change_just_now_is_not_relied_on(tmp_path: pathlib.Path) -> None:
    place = tmp_path.resolve() / "place"
    place.mkdir()
    found = Bases()
    found.now(lambda: [str(place)])
    looked: list[int] = []
    found.now(lambda: looked.append(1) or [str(place)])  # type: ignore[func-returns-value]
    assert looked


def test_a_denied_folder_that_is_swapped_stays_denied(tmp_path: pathlib.Path) -> None:
    root, own = tmp_path.resolve() / "files", tmp_path / "own"
    secret = root / "secret"
    secret.mkdir(parents=True)
    own.mkdir()
    (own / "policy.toml").write_text(f'read = ["{root}"]\ndeny = ["{secret}"]\n')
    os.chmod(own / "policy.toml", 0o600)
    settled(root)
    settled(tmp_path)
    policy: Policy = load(str(own / "policy.toml"), str(tmp_path / "home"), ())
    assert not policy.may_read(str(secret / "key")).allowed
    assert policy.may_read(str(root / "moved" / "key")).allowed
    swap_for_link(secret)
    assert not policy.may_read(str(root / "moved" / "key")).allowed
    secret.unlink()
    (root / "moved").rename(secret)
    assert not policy.may_read(str(secret / "key")).allowed

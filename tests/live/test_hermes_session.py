"""``handoff session`` against real Hermes hosts: asked from outside, opened from outside."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.live.hermes_host import Screen
from tests.live.hermes_place import Place, codes
from tests.support.console import HANDOFF


def env_of(place: Place) -> dict[str, str]:
    """A shell beside the host: its command on PATH, its home named."""
    return {
        **place.host.env,
        "PATH": f"{place.host.env['PATH']}:{os.path.dirname(HANDOFF)}",
        "HERMES_HOME": str(place.host.root),
    }


def session(place: Place, *words: str) -> tuple[int, Any]:
    """One call; its exit code and what it says."""
    done = subprocess.run(
        [HANDOFF, "session", *words, "--json"],
        env=env_of(place),
        cwd=place.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    said = done.stdout if done.returncode == 0 else done.stderr
    assert said.startswith("{"), f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.returncode, json.loads(said)


@contextmanager
def opening(place: Place, attempt: str) -> Iterator[Screen]:
    argv = [HANDOFF, "session", "open", place.ref, "--workspace", place.workspace]
    screen = Screen(
        [*argv, "--attempt-id", attempt, "--yes"], env_of(place), pathlib.Path(place.workspace)
    )
    try:
        yield screen
    finally:
        screen.close()


def prepare(place: Place, attempt: str, *more: str) -> tuple[int, Any]:
    words = ("prepare", place.ref, "--workspace", place.workspace, "--attempt-id", attempt)
    return session(place, *words, "--allow-parallel", *more)


def test_a_terminal_prepares_and_opens_what_the_session_made(place: Place) -> None:
    code, ready = prepare(place, "attempt-outside")
    assert code == 0, ready
    assert ready["route"]["origin"] == "observed"
    assert ready["argv"][:4] == ["hermes", "--profile", "default", "handoff-open"]
    with opening(place, "attempt-outside") as screen:
        place.waits("attempt-outside", screen)
        _code, now = session(place, "status", "attempt-outside")
        assert (now["state"], now["resume_verified"]) == ("acknowledged", False)
        assert place.leave(screen) == 0
    (opened,) = place.mind.openings("attempt-outside")
    assert opened["workspace"] == place.workspace
    assert session(place, "status", "attempt-outside")[1]["state"] == "closed"


def test_hermes_says_from_outside_what_it_says_inside(place: Place) -> None:
    place.host.configure("default", "agent:\n  disabled_toolsets: [handoff]\n")
    try:
        code, told = prepare(place, "attempt-excluded")
        assert (code, codes(told)) == (3, ["tool_not_allowed"])
    finally:
        place.host.configure("default")
    code, told = prepare(place, "attempt-other", "--model", "m", "--provider", "nobody")
    assert (code, codes(told)) == (3, ["provider_not_configured"])


def test_a_profile_without_the_plugin_says_nothing_and_opens_nothing(place: Place) -> None:
    bare = place.host.root / "profiles" / "bare"
    bare.mkdir(parents=True, exist_ok=True)
    state = {"schema": "handoff-state/2", "goal": {"text": "x", "done_when": ["y"]}}
    path = place.host.top / "s.json"
    path.write_text(json.dumps(state))
    code, made = session(place, "create", "-p", "bare", "--workspace", place.workspace, str(path))
    assert code == 0, made
    words = ("prepare", made["ref"], "-p", "bare", "--workspace", place.workspace)
    code, told = session(place, *words, "--model", "m", "--provider", "p")
    assert code == 3
    assert "policy_unknown" in codes(told)

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handoff import crashpoints
from handoff.errors import ConfigError

LOOP = """
from handoff.crashpoints import reach
for i in range(5):
    print(i, flush=True)
    reach("a")
    reach("b")
"""


def run(tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOOP],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **env},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_nothing_happens_without_the_variable(tmp_path):
    done = run(tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, list("01234"))


def test_the_process_is_killed_at_the_first_time(tmp_path):
    done = run(tmp_path, HANDOFF_CRASH_AT="a")
    assert (done.returncode, done.stdout.split()) == (-9, ["0"])


def test_the_process_is_killed_at_the_nth_time(tmp_path):
    done = run(tmp_path, HANDOFF_CRASH_AT="b:3")
    assert (done.returncode, done.stdout.split()) == (-9, ["0", "1", "2"])


def test_a_name_that_is_never_reached_kills_nothing(tmp_path):
    assert run(tmp_path, HANDOFF_CRASH_AT="elsewhere").returncode == 0


def test_the_log_names_every_point_up_to_the_crash(tmp_path):
    log = tmp_path / "points"
    run(tmp_path, HANDOFF_CRASH_AT="b:2", HANDOFF_CRASH_LOG=str(log))
    assert log.read_text().split() == ["a", "b", "a", "b"]


def test_reach_is_empty_when_unset():
    assert crashpoints.reach is crashpoints._nothing


@pytest.mark.parametrize("setting", [":1", "a:x", "a:0", "a:-1", ""])
def test_a_malformed_setting_is_refused(setting):
    with pytest.raises(ConfigError):
        crashpoints.parse(setting)


@pytest.mark.parametrize(("setting", "parsed"), [("a", ("a", 1)), ("a.b:12", ("a.b", 12))])
def test_settings(setting, parsed):
    assert crashpoints.parse(setting) == parsed

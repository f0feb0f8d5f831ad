"""``handoff session verify-release``."""

from __future__ import annotations

import hashlib
import json
import pathlib

import pytest
from tests.unit.cli.calling import Caller

from handoff.sessions.release import Member, make

ARCHIVE, MANIFEST = make("a-plugin", "1.0.0", [Member("plugin.yaml", b"name: a-plugin\n")])
DIGEST = hashlib.sha256(ARCHIVE).hexdigest()


@pytest.fixture
def archive(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HANDOFF_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-plugin-1.0.0.tar.gz").write_bytes(ARCHIVE)
    (tmp_path / "MANIFEST.json").write_bytes(MANIFEST)
    return "a-plugin-1.0.0.tar.gz"


def test_a_program_is_told_what_was_found(call: Caller, archive: str) -> None:
    done = call("session", "verify-release", archive, "--sha256", DIGEST, "--json")
    assert done.code == 0
    assert json.loads(done.out) == {
        "name": "a-plugin",
        "version": "1.0.0",
        "sha256": DIGEST,
        "digest_given": True,
        "members": 1,
        "bytes": 15,
        "path": "",
    }


def test_a_person_is_told_what_the_manifest_can_not_prove(call: Caller, archive: str) -> None:
    done = call("session", "verify-release", archive, tty=True)
    assert done.code == 0
    assert "a-plugin 1.0.0: 1 file," in done.out
    assert "compare the digest" in done.out
    done = call("session", "verify-release", archive, "--sha256", DIGEST, tty=True)
    assert "compare the digest" not in done.out


def test_what_was_checked_is_what_is_written(
    call: Caller, archive: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "plugins").mkdir()
    done = call("session", "verify-release", archive, "--extract", "plugins", "--json")
    assert done.code == 0
    assert json.loads(done.out)["path"] == str(tmp_path / "plugins" / "a-plugin")
    assert (tmp_path / "plugins" / "a-plugin" / "plugin.yaml").read_bytes() == b"name: a-plugin\n"
    again = call("session", "verify-release", archive, "--extract", "plugins", "--json")
    assert again.code == 3
    assert json.loads(again.err)["code"] == "file_exists"


@pytest.mark.parametrize(
    ("words", "code", "exits"),
    [
        (["a-plugin-1.0.0.tar.gz", "--sha256", "0" * 64], "release_refused", 1),
        (["a-plugin-1.0.0.tar.gz", "--sha256", "zz"], "usage", 2),
        (["a-plugin-1.0.0.tar.gz", "--manifest", "none.json"], "not_found", 4),
        (["none.tar.gz"], "not_found", 4),
        (["."], "release_refused", 1),
        ([], "usage", 2),
        (["a-plugin-1.0.0.tar.gz", "--extract", "none"], "storage_failed", 1),
    ],
)
def test_refusals(
    call: Caller, archive: str, tmp_path: pathlib.Path, words: list[str], code: str, exits: int
) -> None:
    done = call("session", "verify-release", *words, "--json")
    assert (done.code, json.loads(done.err)["code"]) == (exits, code)
    assert done.out == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["MANIFEST.json", archive]


def test_a_changed_member_is_named(call: Caller, archive: str, tmp_path: pathlib.Path) -> None:
    changed = json.loads(MANIFEST)
    changed["members"][0]["sha256"] = "0" * 64
    (tmp_path / "MANIFEST.json").write_text(json.dumps(changed))
    done = call("session", "verify-release", archive, "--json")
    told = json.loads(done.err)
    assert told["code"] == "release_refused"
    assert told["details"]["faults"] == [
        {
            "path": "a-plugin/plugin.yaml",
            "code": "digest",
            "message": "its content is not the manifest's",
        }
    ]

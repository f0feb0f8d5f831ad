"""What people type at a node when it is wrong: said in one line, with a way on."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest


def run(
    root: pathlib.Path, *words: str, code: int, data: str = ""
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "handoff.cli.hermes_node", *words],
        env={"HOME": str(root), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        input=data,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe", b"two words", b"a\x1bb"])
def test_a_file_that_holds_no_token(tmp_path: pathlib.Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    words = ("pair", "--server", "wss://b:1", "--name", "n", "--token-file", str(path))
    assert str(path) in run(tmp_path, *words, code=2).stderr
    assert not (tmp_path / ".hermes-node" / "config.toml").exists()
    assert json.loads(run(tmp_path, *words, "--json", code=2).stderr)["remedy"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("sttus",), 2, "'status'"),
        (("logs", "-n", "0"), 2, "-n"),
        (("validate",), 2, "not paired"),
        (("pair", "xyz"), 2, "hn1"),
        (("--config", "/proc/none/config.toml", "lock"), 1, "/proc/none"),
        (("--config", "/dev/null/config.toml", "status"), 1, "/dev/null"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: pathlib.Path, words: tuple[str, ...], code: int, said: str
) -> None:
    assert said in run(tmp_path, *words, code=code).stderr


@pytest.mark.parametrize(
    ("key", "value", "table"),
    [
        ("name", "a/b", "node"),
        ("name", "x" * 65, "node"),
        ("proxy_url", "socks5://h:1", "node"),
        ("proxy_url", "http://h:x", "node"),
        ("backoff_initial", "0s", "node"),
        ("backoff_max", "99999h", "node"),
        ("pinned_cert_sha256", "zz", "server"),
    ],
)
def test_a_configuration_that_would_only_fail_later_is_refused(
    tmp_path: pathlib.Path, key: str, value: str, table: str
) -> None:
    path = tmp_path / "config.toml"
    node = {"server_url": "wss://b:1", "name": "n"}
    rest = {key: value} if table != "node" else {}
    if table == "node":
        node[key] = value
    text = "[node]\n" + "".join(f'{name} = "{one}"\n' for name, one in node.items())
    text += f"[{table}]\n" + "".join(f'{a} = "{b}"\n' for a, b in rest.items()) if rest else ""
    path.write_text(text)
    path.chmod(0o600)
    assert f"{table}.{key}" in run(tmp_path, "--config", str(path), "validate", code=2).stderr
    checks = json.loads(run(tmp_path, "--config", str(path), "doctor", code=1).stdout)["checks"]
    assert [one["ok"] for one in checks] == [False]


def test_every_verb_has_an_example(tmp_path: pathlib.Path) -> None:
    from handoff.cli.hermes_node import VERBS

    for verb in VERBS:
        assert f"hermes-node {verb}" in run(tmp_path, verb, "--help", code=0).stdout


def test_a_proxy_that_is_not_spoken_ends_no_node(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[node]\nserver_url = "wss://brain.invalid:1"\nname = "n"\ntoken = "t"\n')
    path.chmod(0o600)
    child = subprocess.Popen(
        [sys.executable, "-m", "handoff.cli.hermes_node", "--config", str(path), "run"],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ALL_PROXY": "socks5://127.0.0.1:9"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stderr is not None
        assert child.stderr.readline().startswith("n: waiting (")
    finally:
        child.terminate()
        child.communicate(timeout=30)
    assert child.returncode == 0

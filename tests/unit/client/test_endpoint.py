from __future__ import annotations

import json
import os
import pathlib

import pytest

from handoff.client import endpoint
from handoff.client.endpoint import Endpoint, discover, from_target, from_url, split_address
from handoff.errors import ConfigError, NotFound, Unreachable, UsageError

CONFIG = """\
token: "own-token"
targets:
  near: {addr: "127.0.0.1:17777", token: near-token}
  far: {addr: "build.example.invalid:7777", token: far-token, user: ada}
  safe: {addr: "https://build.example.invalid", token: safe-token}
"""


@pytest.fixture
def config(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    path.chmod(0o600)
    return str(path)


def test_discover_reads_agentd_json_and_no_yaml(tmp_path: pathlib.Path) -> None:
    (tmp_path / "agentd.json").write_text(
        json.dumps({"socket": "/run/x", "instance": "i", "pid": 7, "url": "http://127.0.0.1:7777"})
    )
    (tmp_path / "config.yaml").write_text("{broken")
    found = discover(str(tmp_path / "config.yaml"))
    assert (found.socket_path, found.instance, found.pid, found.token) == ("/run/x", "i", 7, "")


@pytest.mark.parametrize("body", [None, "", "[]", "{}", '{"socket": ""}', '{"socket": null}', "{"])
def test_discover_without_a_usable_file_is_unreachable(
    tmp_path: pathlib.Path, body: str | None
) -> None:
    if body is not None:
        (tmp_path / "agentd.json").write_text(body)
    with pytest.raises(Unreachable) as caught:
        discover(str(tmp_path / "config.yaml"))
    assert caught.value.remedy == "handoff agentd --detach"
    assert str(tmp_path / "agentd.json") in caught.value.cause


def test_loopback_url_takes_the_machines_own_token(config: str) -> None:
    found = from_url("http://127.0.0.1:7777", config)
    assert (found.host, found.port, found.token) == ("127.0.0.1", 7777, "own-token")
    assert from_url("http://localhost", config).port == 7777
    assert from_url("http://[::1]:8", config).where() == "http://[::1]:8"


def test_a_url_of_a_target_takes_that_targets_token(config: str) -> None:
    assert from_url("http://127.0.0.1:17777", config).token == "near-token"


@pytest.mark.parametrize(
    "host", ["10.0.0.7", "example.invalid", "127.0.0.1.example.invalid", "[fe80::1]"]
)
def test_cleartext_to_another_machine_is_refused_with_a_tunnel(config: str, host: str) -> None:
    with pytest.raises(UsageError, match="in clear") as caught:
        from_url(f"http://{host}:7777", config)
    assert "ssh -N -L 17777:127.0.0.1:7777" in caught.value.remedy


def test_no_token_is_sent_to_an_unknown_host(config: str) -> None:
    with pytest.raises(UsageError, match="no token is known"):
        from_url("https://elsewhere.example.invalid:7777", config)


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://127.0.0.1", "http://", "http://127.0.0.1:x", "http://h:99999"]
)
def test_what_is_no_url_is_a_usage_error(config: str, url: str) -> None:
    with pytest.raises(UsageError):
        from_url(url, config)


def test_unix_url(config: str) -> None:
    assert from_url("unix:/run/x", config).socket_path == "/run/x"
    assert from_url("unix:///run/x", config).socket_path == "/run/x"


def test_target_by_name(config: str) -> None:
    found = from_target("near", config)
    assert (found.host, found.port, found.token) == ("127.0.0.1", 17777, "near-token")
    far = from_target("safe", config)
    assert (far.tls, far.port, far.token) == (True, 443, "safe-token")
    with pytest.raises(NotFound, match="known: far, near, safe"):
        from_target("moon", config)
    with pytest.raises(UsageError) as caught:
        from_target("far", config)
    assert "ada@build.example.invalid" in caught.value.remedy
    assert "far-token" not in str(caught.value) + caught.value.remedy


def test_target_without_a_config_says_how_to_make_one(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError) as caught:
        from_target("x", str(tmp_path / "config.yaml"))
    assert caught.value.remedy == "handoff init"
    assert not os.listdir(tmp_path), "reading must not create anything"


@pytest.mark.parametrize("token", ["a\r\nX: y", "gehe\u0131m", "a\x00"])
def test_a_token_that_would_break_the_header_is_refused(token: str) -> None:
    with pytest.raises(UsageError) as caught:
        Endpoint(host="127.0.0.1", port=1, token=token)
    assert token not in str(caught.value)


def test_split_address() -> None:
    assert split_address("h:1") == ("h", 1)
    assert split_address("h", 5) == ("h", 5)
    assert split_address("[::1]:2") == ("::1", 2)
    for bad in ("", ":1", "h:", "h:0", "h:65536", "h:٣"):
        with pytest.raises(UsageError):
            split_address(bad) if bad != "h:" else split_address(bad, 0)


def test_pid_alive() -> None:
    assert endpoint.pid_alive(os.getpid())
    assert not endpoint.pid_alive(0)

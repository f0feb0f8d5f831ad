from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handoff.errors import ConfigError, HandoffError
from handoff.link.plugin_import import (
    PluginSettings,
    dotenv_value,
    read_settings,
    read_tokens,
)

KEY = Fernet.generate_key().decode()
DIGEST = hashlib.sha256(b"token").hexdigest()
RECORD = {
    "name": "lab-box",
    "token_hash": DIGEST,
    "created_at": "2026-07-01T10:00:00Z",
    "revoked": False,
    "last_used_at": None,
}


def store(path: Path, document: Any, key: str = KEY) -> str:
    """The plugin's file: one Fernet blob over JSON with indent and sorted keys."""
    body = json.dumps(document, indent=2, sort_keys=True).encode()
    path.write_bytes(Fernet(key.encode()).encrypt(body))
    return str(path)


def test_the_plugins_records_are_read(tmp_path: Path) -> None:
    gone = {**RECORD, "name": "gone", "revoked": True, "last_used_at": "2026-07-02T00:00:00Z"}
    path = store(tmp_path / "tokens.json", {"version": 1, "records": [RECORD, gone]})
    (lab, other), odd = read_tokens(path, KEY + "\n")
    assert odd == []
    assert (lab.name, lab.token_sha256, lab.revoked) == ("lab-box", DIGEST, False)
    assert lab.created_ms == 1_782_900_000_000
    assert lab.last_ms == 0
    assert other.revoked
    assert other.last_ms == 1_782_950_400_000
    assert DIGEST not in repr(lab)


def test_a_wrong_key_says_so_and_shows_nothing(tmp_path: Path) -> None:
    path = store(tmp_path / "tokens.json", {"version": 1, "records": []})
    other = Fernet.generate_key().decode()
    with pytest.raises(ConfigError, match="does not open") as caught:
        read_tokens(path, other)
    assert other not in str(caught.value.to_json())
    with pytest.raises(ConfigError, match="44 characters"):
        read_tokens(path, "short")
    with pytest.raises(ConfigError, match="no token store"):
        read_tokens(str(tmp_path / "missing"), KEY)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"version": 2, "records": []},
        {"version": 1, "records": {}},
    ],
)
def test_other_documents_are_refused(tmp_path: Path, document: Any) -> None:
    path = store(tmp_path / "tokens.json", document)
    with pytest.raises(ConfigError):
        read_tokens(path, KEY)


def test_a_record_that_can_not_be_read_is_named_and_the_others_are(tmp_path: Path) -> None:
    """Nobody can mend one record of an encrypted file. Whether a token was revoked is never
    guessed."""
    records = [
        *(1, {"name": "x"}, {"name": "x", "token_hash": "abc"}, {"name": 3, "token_hash": DIGEST}),
        *({**RECORD, "name": "maybe", "revoked": value} for value in ("true", 1, None)),
        RECORD,
    ]
    path = store(tmp_path / "tokens.json", {"version": 1, "records": records})
    good, odd = read_tokens(path, KEY)
    assert [one.name for one in good] == ["lab-box"]
    assert [one.partition(":")[0].split()[1] for one in odd] == list("1234567")


def test_a_mark_at_the_start_of_a_file_is_no_part_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "hermes-node.yaml"
    path.write_bytes(b"\xef\xbb\xbfhost: 0.0.0.0\r\nport: 7001\r\n")
    assert read_settings(str(path), {}) == PluginSettings(host="0.0.0.0", port=7001)


def test_settings_come_from_environment_then_file_then_defaults(tmp_path: Path) -> None:
    path = tmp_path / "hermes-node.yaml"
    path.write_text(
        "# comment\n---\nhost: 0.0.0.0\nPORT: 7443  # of the proxy\n"
        'token_store_path: "/srv/to kens.json"\nrate_limit_per_node: 0\nmax_retries: \n'
        "colour: blue\n"
    )
    env = {
        "HERMES_NODES_HOST": "127.0.0.2",
        "HERMES_NODES_RATE_LIMIT": "50",
        "HERMES_NODES_RATE_LIMIT_PER_NODE": "70",
        "OTHER": "x",
    }
    found = read_settings(str(path), env)
    assert found.host == "127.0.0.2"
    assert found.port == 7443
    assert found.token_store_path == "/srv/to kens.json"
    assert found.rate_limit_per_node == 50
    assert found.max_retries == 3
    assert len(found.warnings) == 2
    assert "colour" in found.warnings[0]
    assert "HERMES_NODES_RATE_LIMIT" in found.warnings[1]
    assert read_settings(str(tmp_path / "missing"), {}) == PluginSettings()


@pytest.mark.parametrize(
    "text",
    [
        "port: seven\n",
        "port: 70000\n",
        "port: 0\n",
        "handshake_timeout_seconds: -1\n",
        "handshake_timeout_seconds: nan\n",
        "tls_cert_path: /x\n",
        "host:\n  nested: 1\n",
        "host: [a]\n",
        "- host\n",
        "just text\n",
    ],
)
def test_settings_that_can_not_be_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hermes-node.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        read_settings(str(path), {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.binary(max_size=200) | st.text("hostpr:-#'\" \n7", max_size=60).map(str.encode))
def test_any_file_is_settings_or_a_typed_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hermes-node.yaml"
    path.write_bytes(content)
    try:
        read_settings(str(path), {})
    except HandoffError:
        pass


@pytest.mark.parametrize(
    "line",
    [
        "HERMES_NODES_TOKEN_KEY=abc=",
        "export HERMES_NODES_TOKEN_KEY=abc=",
        'HERMES_NODES_TOKEN_KEY="abc="',
        "HERMES_NODES_TOKEN_KEY='abc='  # key",
    ],
)
def test_a_key_in_a_dotenv_file_is_found_however_it_is_written(tmp_path: Path, line: str) -> None:
    path = tmp_path / ".env"
    path.write_text(f"# x\nOTHER=1\n{line}\n")
    assert dotenv_value(str(path), "HERMES_NODES_TOKEN_KEY") == "abc="
    assert dotenv_value(str(path), "MISSING") == ""
    assert dotenv_value(str(tmp_path / "missing"), "X") == ""

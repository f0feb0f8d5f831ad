"""Taking over from the plugin: its token store and its configuration file.

``tokens.json`` is one Fernet blob (AES-128-CBC and HMAC-SHA256) over a JSON document with
the nodes' names and the digests of their tokens; its key stands in an environment variable
or in the host's dotenv file. ``hermes-node.yaml`` is flat: one ``key: value`` a line.
"""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from handoff.errors import ConfigError
from handoff.link.files import read_private
from handoff.link.records import ImportedToken

__all__ = ["PluginSettings", "dotenv_value", "read_settings", "read_tokens"]

#: bytes of a configuration file
LIMIT = 256 * 1024


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """What ``hermes-node.yaml`` and the environment say, with the plugin's defaults.
    ``warnings``: what was not understood, one sentence each."""

    host: str = "127.0.0.1"
    port: int = 7000
    tls_cert_path: str = ""
    tls_key_path: str = ""
    token_store_path: str = "~/.hermes/nodes/tokens.json"  # noqa: S105  # a path
    token_encryption_key_env: str = "HERMES_NODES_TOKEN_KEY"  # noqa: S105  # a name
    audit_log_path: str = "~/.hermes/logs/nodes-audit.log"
    audit_retention_days: int = 365
    handshake_timeout_seconds: float = 10.0
    heartbeat_stale_seconds: int = 60
    heartbeat_sweep_interval_seconds: int = 30
    rate_limit_per_node: int = 100
    max_retries: int = 3
    retry_backoff_seconds: float = 2.0
    warnings: tuple[str, ...] = field(default=())


_KINDS: dict[str, Callable[[str], Any]] = {
    "port": int,
    "audit_retention_days": int,
    "handshake_timeout_seconds": float,
    "heartbeat_stale_seconds": int,
    "heartbeat_sweep_interval_seconds": int,
    "rate_limit_per_node": int,
    "max_retries": int,
    "retry_backoff_seconds": float,
}
_KEYS = frozenset(PluginSettings.__slots__) - {"warnings"}
_ENV = {name: f"HERMES_NODES_{name.upper()}" for name in _KEYS}
_ENV["rate_limit_per_node"] = "HERMES_NODES_RATE_LIMIT"
_POSITIVE = frozenset(_KINDS) - {"rate_limit_per_node", "max_retries"}


def read_settings(path: str, env: Mapping[str, str]) -> PluginSettings:
    """The plugin's settings: the environment before the file, the file before defaults. A
    file that is not there has none.

    Raises:
        ConfigError: a value is of the wrong kind, or the file is not flat ``key: value``.
        StorageError: the file can't be read.
    """
    try:
        text = read_private(path, private=False).decode("utf-8-sig")
    except FileNotFoundError:
        text = ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8", path=path) from error
    if len(text) > LIMIT:
        raise ConfigError(f"{path} has more than {LIMIT} characters", path=path)
    said, warnings = _lines(path, text)
    for name, variable in _ENV.items():
        if variable in env:
            said[name] = (env[variable], variable)
    if "HERMES_NODES_RATE_LIMIT_PER_NODE" in env:
        warnings.append(
            "HERMES_NODES_RATE_LIMIT_PER_NODE is not read: the plugin's name for it is"
            " HERMES_NODES_RATE_LIMIT"
        )
    values = {name: _value(name, value, where) for name, (value, where) in said.items()}
    if bool(values.get("tls_cert_path")) != bool(values.get("tls_key_path")):
        raise ConfigError("tls_cert_path and tls_key_path go together", path=path)
    if not 1 <= values.get("port", 7000) <= 65535:
        raise ConfigError("port must be between 1 and 65535", path=path)
    return PluginSettings(**values, warnings=tuple(warnings))


def _lines(path: str, text: str) -> tuple[dict[str, tuple[str, str]], list[str]]:
    said: dict[str, tuple[str, str]] = {}
    warnings: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#") or bare == "---":
            continue
        key, colon, rest = line.partition(":")
        name = key.strip().strip("'\"").lower()
        if not colon or line[:1].isspace() or bare.startswith("-"):
            raise ConfigError(f"{path}:{number} is not 'key: value'", path=path, line=number)
        if name not in _KEYS:
            warnings.append(f"{path}:{number}: '{name[:64]}' is not a key that is known here")
            continue
        value = _scalar(rest.strip())
        if value.startswith(("[", "{", "|", ">", "&", "*", "!")):
            raise ConfigError(f"{path}:{number}: '{name}' must be one value", path=path)
        if value not in {"", "~", "null"}:
            said[name] = (value, f"{path}:{number}")
    return said, warnings


def _scalar(text: str) -> str:
    if text[:1] in {"'", '"'}:
        quote = text[0]
        end = text.find(quote, 1)
        return text[1:end] if end > 0 else text
    return text.partition(" #")[0].strip()


def _value(name: str, text: str, where: str) -> Any:
    kind = _KINDS.get(name, str)
    try:
        value = kind(text.strip())
    except ValueError:
        raise ConfigError(f"{where}: '{name}' must be a number", key=name) from None
    if name in _POSITIVE and not 0 < value < 2**31:
        raise ConfigError(f"{where}: '{name}' must be above 0", key=name)
    return value


def dotenv_value(path: str, name: str) -> str:
    """A variable of a dotenv file, also written with ``export`` or in quotes; "" if it is
    not there.

    Raises:
        StorageError: the file is there, but can't be read.
    """
    try:
        text = read_private(path, private=False).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    found = ""
    for line in text.splitlines():
        key, equals, rest = line.strip().partition("=")
        if equals and key.removeprefix("export").strip() == name:
            found = _scalar(rest.strip())
    return found


def read_tokens(path: str, key: str) -> tuple[list[ImportedToken], list[str]]:
    """The records of the plugin's ``tokens.json``, and what is wrong with those that can't be
    used, one sentence each: nobody can mend a single one of an encrypted file.

    Args:
        path: the file.
        key: the Fernet key, 44 characters.

    Raises:
        ConfigError: there is no file, the key does not open it, or it holds no records.
        StorageError: it can't be read.
    """
    try:
        blob = read_private(path, private=False)
    except FileNotFoundError:
        raise ConfigError(f"there is no token store {path}", path=path) from None
    try:
        cipher = Fernet(key.strip().encode())
    except ValueError as error:
        raise ConfigError(
            "the key of the token store must be the 44 characters that the plugin wrote",
            remedy="look for HERMES_NODES_TOKEN_KEY in the host's dotenv file",
        ) from error
    try:
        document = json.loads(cipher.decrypt(blob.strip()))
    except InvalidToken as error:
        raise ConfigError(f"the key does not open {path}", path=path) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} holds no JSON document", path=path) from error
    records = document.get("records") if isinstance(document, dict) else None
    if not isinstance(records, list) or document.get("version") != 1:
        raise ConfigError(f"{path} is not a token store of version 1", path=path)
    read = [_token(number, record) for number, record in enumerate(records, 1)]
    good = [one for one in read if isinstance(one, ImportedToken)]
    return good, [one for one in read if isinstance(one, str)]


def _token(number: int, record: Any) -> ImportedToken | str:
    if not isinstance(record, dict):
        return f"record {number} is none"
    name, digest = record.get("name"), record.get("token_hash")
    if not isinstance(name, str) or not isinstance(digest, str):
        return f"record {number} has no name or no digest"
    if len(digest) != 64 or not set(digest.lower()) <= set("0123456789abcdef"):
        return f"record {number}: the digest of {name[:64]!a} is none"
    if not isinstance(record.get("revoked", False), bool):
        return f"record {number}: it can't be told whether {name[:64]!a} was revoked"
    return ImportedToken(
        name=name,
        token_sha256=digest.lower(),
        created_ms=_time_ms(record.get("created_at")),
        last_ms=_time_ms(record.get("last_used_at")),
        revoked=record.get("revoked") is True,
    )


def _time_ms(value: Any) -> int:
    """``YYYY-MM-DDTHH:MM:SSZ`` as milliseconds; 0 for none, which is what unknown is here."""
    if not isinstance(value, str):
        return 0
    try:
        return calendar.timegm(time.strptime(value, "%Y-%m-%dT%H:%M:%SZ")) * 1000
    except ValueError:
        return 0

"""A node's configuration: the Go node's ``config.toml`` as it is, and a few keys of ours.

``[node]`` ``server_url``, ``name``, ``token``, ``allowed_paths``, ``log_path``,
``log_level``, ``proxy_url``, ``backoff_initial``, ``backoff_max``, ``backoff_factor``,
``chunk_size``; ``[server]`` ``ca_cert``, ``pinned_cert_sha256``; ours: ``[brain]``
``key`` (the pinned public key, base64url), ``require`` (``e2e`` or ``e2e2``), and
``[node]`` ``plugin_compat``. Keys that nobody knows are told, not obeyed.
"""

from __future__ import annotations

import os
import re
import tomllib
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from handoff.errors import BadRequest, ConfigError
from handoff.link.files import write_private
from handoff.link.pairing import check_name
from handoff.wire.node.sealing import b64url, from_b64url

__all__ = ["Config", "load", "server_url", "write"]

LIMIT = 256 * 1024
#: seconds
DAY_S = 86400.0
DEFAULT_PATH = "/ws/nodes"
_KNOWN: dict[str, dict[str, type]] = {
    "node": {
        "server_url": str,
        "name": str,
        "token": str,
        "allowed_paths": list,
        "log_path": str,
        "log_level": str,
        "proxy_url": str,
        "backoff_initial": str,
        "backoff_max": str,
        "backoff_factor": float,
        "chunk_size": int,
        "plugin_compat": bool,
    },
    "server": {"ca_cert": str, "pinned_cert_sha256": str},
    "brain": {"key": str, "require": str},
}
_PART = re.compile(r"(\d+(?:\.\d*)?)(ms|us|µs|ns|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class Config:
    """What a node is told. Times in seconds. ``unknown``: keys that have no meaning."""

    folder: str
    server_url: str
    name: str
    token: str = field(default="", repr=False)
    allowed_paths: tuple[str, ...] = ()
    log_path: str = ""
    log_level: str = "info"
    proxy_url: str = ""
    backoff_initial: float = 1.0
    backoff_max: float = 60.0
    backoff_factor: float = 2.0
    ca_cert: str = ""
    pinned_cert_sha256: str = ""
    brain_key: bytes = b""
    require: str = ""
    plugin_compat: bool = False
    unknown: tuple[str, ...] = ()

    @property
    def secure(self) -> bool:
        """Whether the link is encrypted by TLS."""
        return self.server_url.startswith("wss:")


def load(path: str) -> Config:
    """The configuration in a file that only its user may read.

    Raises:
        ConfigError: it is missing, open to others, or not what it should be; the key is named.
    """
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(LIMIT + 1)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path} does not exist: this machine is not paired", remedy="hermes-node pair CODE"
        ) from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", remedy=f"ls -l {path}") from error
    if found.st_mode & 0o077:
        raise ConfigError(f"{path} is open to others", remedy=f"chmod 600 {path}", path=path)
    if len(data) > LIMIT:
        raise ConfigError(f"{path} is larger than {LIMIT} bytes", remedy=f"edit {path}")
    try:
        value = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}", remedy=f"edit {path}", path=path) from error
    return _parse(value, path)


def _parse(value: Mapping[str, Any], path: str) -> Config:
    def wrong(key: str, why: str) -> ConfigError:
        return ConfigError(f"{path}: {key} {why}", remedy=f"edit {path}", path=path, key=key)

    unknown: list[str] = []
    found: dict[str, Any] = {}
    for table, keys in value.items():
        known = _KNOWN.get(table)
        if known is None or not isinstance(keys, Mapping):
            unknown.append(table)
            continue
        for key, one in keys.items():
            kind = known.get(key)
            if kind is None:
                unknown.append(f"{table}.{key}")
                continue
            if kind is float and isinstance(one, int) and not isinstance(one, bool):
                one = float(one)
            if not isinstance(one, kind) or (kind is int and isinstance(one, bool)):
                raise wrong(f"{table}.{key}", f"must be a {_WORDS[kind]}")
            found[f"{table}.{key}"] = one
    for key in ("node.server_url", "node.name"):
        if not found.get(key):
            raise wrong(key, "is missing")
    paths = found.get("node.allowed_paths", [])
    if not all(isinstance(one, str) for one in paths):
        raise wrong("node.allowed_paths", "must be a list of texts")
    key_text = found.get("brain.key", "")
    try:
        brain_key = from_b64url(key_text, 32) if key_text else b""
    except ValueError as error:
        raise wrong("brain.key", f"is no public key: {error}") from error
    require = found.get("brain.require", "")
    if require not in {"", "e2e", "e2e2"}:
        raise wrong("brain.require", "must be e2e or e2e2")
    try:
        url = server_url(found["node.server_url"])
    except ValueError as error:
        raise wrong("node.server_url", str(error)) from error
    times = {}
    for name, default in (("backoff_initial", "1s"), ("backoff_max", "60s")):
        try:
            times[name] = seconds(found.get(f"node.{name}", default))
        except ValueError as error:
            raise wrong(f"node.{name}", str(error)) from error
        if not 0 < times[name] <= DAY_S:
            raise wrong(f"node.{name}", "must be above 0, and no more than a day")
    _check_texts(found, wrong)
    factor = found.get("node.backoff_factor", 2.0)
    if not 1.0 <= factor <= 100.0:
        raise wrong("node.backoff_factor", "must be between 1 and 100")
    folder = os.path.dirname(os.path.abspath(path))
    return Config(
        folder=folder,
        server_url=url,
        name=found["node.name"],
        token=found.get("node.token", ""),
        allowed_paths=tuple(paths),
        log_path=os.path.expanduser(found.get("node.log_path", "")),
        log_level=found.get("node.log_level", "info"),
        proxy_url=found.get("node.proxy_url", ""),
        backoff_factor=factor,
        ca_cert=os.path.expanduser(found.get("server.ca_cert", "")),
        pinned_cert_sha256=found.get("server.pinned_cert_sha256", ""),
        brain_key=brain_key,
        require=require,
        plugin_compat=found.get("node.plugin_compat", False),
        unknown=tuple(unknown),
        **times,
    )


def _check_texts(found: Mapping[str, Any], wrong: Callable[[str, str], ConfigError]) -> None:
    """What would else come to light only when the brain is dialled."""
    try:
        check_name(found["node.name"])
    except BadRequest as error:
        raise wrong("node.name", f"can't be used: {error.cause}") from error
    pin = found.get("server.pinned_cert_sha256", "")
    if pin and not re.fullmatch(r"[0-9A-Fa-f]{64}", pin.replace(":", "").strip()):
        raise wrong("server.pinned_cert_sha256", "must be 64 hexadecimal digits")
    proxy = found.get("node.proxy_url", "")
    try:
        parts = urllib.parse.urlsplit(proxy)
        good = not proxy or (parts.scheme in {"http", "https"} and bool(parts.hostname))
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise wrong("node.proxy_url", "must be http://host:port or https://host:port")


_WORDS = {str: "text", list: "list", int: "whole number", float: "number", bool: "truth value"}


def server_url(text: str) -> str:
    """A brain's address, with the path that it serves nodes under if it has none.

    ``host:port`` alone is what the plugin prints: it is taken as ``wss://``.

    Raises:
        ValueError: it is none.
    """
    text = text.strip()
    if "://" not in text:
        text = f"wss://{text}"
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in {"ws", "wss"} or not parts.hostname:
        raise ValueError("must be ws://host:port or wss://host:port")
    if parts.username is not None:
        raise ValueError("must not hold a user or password")
    _ = parts.port
    path = DEFAULT_PATH if parts.path in {"", "/"} else parts.path
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def seconds(text: str) -> float:
    """A time as Go writes it: ``1s``, ``1m30s``, ``500ms``.

    Raises:
        ValueError: it is none.
    """
    parts = _PART.findall(text)
    if not parts or "".join(a + b for a, b in parts) != text:
        raise ValueError(f"is no time: {text!r}; write 1s, 500ms or 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def write(path: str, config: Config) -> None:
    """Make the file; one that is there is left.

    Raises:
        ConfigError: there is one.
        StorageError: it can't be written.
    """
    if os.path.exists(path):
        raise ConfigError(
            f"{path} exists: this machine is paired already",
            remedy=f"mv {path} {path}.old, or use --config PATH",
            path=path,
        )
    lines = ["[node]", f"server_url = {_quoted(config.server_url)}"]
    lines.append(f"name = {_quoted(config.name)}")
    if config.token:
        lines.append(f"token = {_quoted(config.token)}")
    shown = ", ".join(_quoted(one) for one in config.allowed_paths)
    lines.append(f"allowed_paths = [{shown}]")
    lines += ["plugin_compat = true", ""] if config.plugin_compat else [""]
    if config.ca_cert or config.pinned_cert_sha256:
        lines.append("[server]")
        if config.ca_cert:
            lines.append(f"ca_cert = {_quoted(config.ca_cert)}")
        if config.pinned_cert_sha256:
            lines.append(f"pinned_cert_sha256 = {_quoted(config.pinned_cert_sha256)}")
        lines.append("")
    if config.brain_key:
        lines += ["[brain]", f"key = {_quoted(b64url(config.brain_key))}"]
        if config.require:
            lines.append(f"require = {_quoted(config.require)}")
    write_private(path, ("\n".join(lines).rstrip() + "\n").encode())


def _quoted(text: str) -> str:
    out = "".join(
        f"\\u{ord(sign):04x}" if ord(sign) < 32 or ord(sign) == 127 else sign for sign in text
    )
    return '"' + out.replace("\\", "\\\\").replace('"', '\\"').replace("\\\\u00", "\\u00") + '"'

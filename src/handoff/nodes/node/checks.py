"""What a node needs, looked at one by one."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import urllib.parse
from typing import NamedTuple

from handoff.errors import ConfigError, HandoffError
from handoff.link.keys import load_key
from handoff.link.tls import client_context
from handoff.nodes import audit
from handoff.nodes.node.config import Config, load
from handoff.nodes.node.dialler import pin_of
from handoff.nodes.node.execs import shell
from handoff.nodes.node.main import living, read_status
from handoff.nodes.node.policy import Policy
from handoff.nodes.node.policy import load as load_policy

__all__ = ["Check", "checks", "usable", "warnings"]

#: seconds for the brain's port to answer
REACH_S = 5.0
#: milliseconds between two clocks from which on times in both audits mislead
SKEW_MS = 60_000
#: bytes that should be free for output that is kept
SPACE = 256 << 20


class Check(NamedTuple):
    """One thing: whether it is as it should be, and what was found."""

    name: str
    ok: bool
    detail: str


def checks(path: str, home: str) -> list[Check]:
    """Everything that can be looked at without changing anything."""
    try:
        config = load(path)
    except ConfigError as error:
        return [Check("configuration", False, error.cause)]
    folder = config.folder
    found = [Check("configuration", not config.unknown, path + _unknown(config))]
    found.append(_key(config))
    try:
        policy = load_policy(os.path.join(folder, "policy.toml"), home, config.allowed_paths)
        state = "read-only" if policy.read_only else "on" if policy.enabled else "switched off"
        only = "; run_as covers commands, not files" if policy.run_as else ""
        found.append(Check("policy", policy.enabled, state + only))
    except ConfigError as error:
        found.append(Check("policy", False, f"{error.cause}: everything is refused"))
    found.append(_reach(config))
    found += _link(folder)
    free = shutil.disk_usage(folder).free
    found.append(Check("space", free > SPACE, f"{free >> 20} MiB free"))
    found.append(Check("shell", os.access(shell(), os.X_OK), shell()))
    try:
        report = audit.verify(os.path.join(folder, "audit"))
        wrong = [one.what for one in report.findings[:3]]
        found.append(Check("audit", not wrong, "; ".join(wrong) or f"{report.rows} rows"))
    except HandoffError as error:
        found.append(Check("audit", False, error.cause))
    return found


def _link(folder: str) -> list[Check]:
    try:
        status = read_status(folder)
    except ConfigError:
        return [Check("link", False, "never started")]
    if not living(folder):
        return [Check("link", False, "not running")]
    state, error = str(status.get("state")), str(status.get("last_error") or "")
    found = [Check("link", state == "connected", f"{state}: {error}" if error else state)]
    skew = status.get("clock_skew_ms")
    if isinstance(skew, int):
        far = abs(skew) > SKEW_MS
        way = "ahead of" if skew > 0 else "behind"
        said = f"the brain's is {abs(skew) // 1000} s {way} this one" if far else "as the brain's"
        found.append(Check("clock", not far, said))
    return found


def _unknown(config: Config) -> str:
    return f"; keys without a meaning: {', '.join(config.unknown)}" if config.unknown else ""


def usable(config: Config) -> None:
    """What else would come to light only when the brain is dialled.

    Raises:
        ConfigError: there is no credential, or the authorities' file can't be used.
        StorageError: the key can't be.
    """
    try:
        _context(config)
    except ConfigError as error:
        raise ConfigError(
            f"server.ca_cert: {error.cause}",
            remedy="put the brain's cert.pem there, or take the line out",
            path=config.ca_cert,
        ) from error
    if config.brain_key:
        path = os.path.join(config.folder, "key.pem")
        try:
            load_key(path)
        except FileNotFoundError as error:
            raise ConfigError(
                f"{path} is missing: pair this machine anew", remedy="hermes-node pair CODE"
            ) from error
    elif not config.token:
        raise ConfigError(
            "there is no credential: neither node.token nor brain.key",
            remedy="hermes-node pair CODE",
        )


def warnings(config: Config, policy: Policy) -> list[str]:
    """What is allowed, and perhaps not meant."""
    found = [f"unknown key: {one}" for one in config.unknown]
    found += [
        f"allowed path is no folder: {one}"
        for one in config.allowed_paths
        if not os.path.isdir(os.path.expanduser(one))
    ]
    if not config.secure:
        found.append("the link is not encrypted by TLS: ws:// is for tunnels only")
    if policy.run_as and (policy.read or policy.write):
        found.append(
            f"run_as = {policy.run_as} covers commands only: files are read and written as the"
            " user whom the node runs as"
        )
    return found


def _context(config: Config) -> ssl.SSLContext | None:
    return client_context(pin_of(config), config.ca_cert or None) if config.secure else None


def _key(config: Config) -> Check:
    if not config.brain_key:
        return Check("credential", bool(config.token), "a permanent token (older brain)")
    try:
        key = load_key(os.path.join(config.folder, "key.pem"))
    except (FileNotFoundError, HandoffError) as error:
        return Check("credential", False, str(error))
    return Check("credential", True, f"key {key.fingerprint}")


def _reach(config: Config) -> Check:
    """Whether a server answers there, and, over TLS, is the one that is meant."""
    parts = urllib.parse.urlsplit(config.proxy_url or config.server_url)
    port = parts.port or (443 if parts.scheme in {"wss", "https"} else 80)
    host = parts.hostname or ""
    where = f"the proxy {host}:{port}" if config.proxy_url else config.server_url
    try:
        with socket.create_connection((host, port), REACH_S) as plain:
            context = None if config.proxy_url else _context(config)
            if context is not None:
                context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        why = getattr(error, "verify_message", "") or error
        return Check("brain", False, f"{where}: its certificate is not accepted: {why}")
    except ConfigError as error:
        return Check("brain", False, error.cause)
    except OSError as error:
        return Check("brain", False, f"{where}: {error}")
    return Check("brain", config.secure, where if config.secure else f"{where}, not encrypted")

"""What a node needs, looked at one by one."""

from __future__ import annotations

import os
import shutil
import socket
import urllib.parse
from typing import NamedTuple

from handoff.errors import ConfigError, HandoffError
from handoff.link.keys import load_key
from handoff.nodes import audit
from handoff.nodes.node.config import Config, load
from handoff.nodes.node.execs import shell
from handoff.nodes.node.main import living, read_status
from handoff.nodes.node.policy import load as load_policy

__all__ = ["Check", "checks"]

#: seconds for the brain's port to answer
REACH_S = 5.0
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
        found.append(Check("policy", policy.enabled, state))
    except ConfigError as error:
        found.append(Check("policy", False, f"{error.cause}: everything is refused"))
    found.append(_reach(config))
    try:
        state = str(read_status(folder).get("state")) if living(folder) else "not running"
    except ConfigError:
        state = "never started"
    found.append(Check("link", state == "connected", state))
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


def _unknown(config: Config) -> str:
    return f"; keys without a meaning: {', '.join(config.unknown)}" if config.unknown else ""


def _key(config: Config) -> Check:
    if not config.brain_key:
        return Check("credential", bool(config.token), "a permanent token (older brain)")
    try:
        key = load_key(os.path.join(config.folder, "key.pem"))
    except (FileNotFoundError, HandoffError) as error:
        return Check("credential", False, str(error))
    return Check("credential", True, f"key {key.fingerprint}")


def _reach(config: Config) -> Check:
    parts = urllib.parse.urlsplit(config.server_url)
    port = parts.port or (443 if config.secure else 80)
    try:
        socket.create_connection((parts.hostname or "", port), REACH_S).close()
    except OSError as error:
        return Check("brain", False, f"{config.server_url}: {error}")
    return Check("brain", config.secure, config.server_url if config.secure else "not encrypted")

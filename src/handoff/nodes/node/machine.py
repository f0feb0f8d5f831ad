"""The machine that a node is, and what its configuration says."""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from handoff.errors import ConfigError
from handoff.nodes.node.execs import shell
from handoff.nodes.node.policy import Policy
from handoff.wire.node.calls import Facts, PolicyView

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["FEATURES", "Settings", "facts", "policy_view"]

#: what this node can do beyond the calls themselves
FEATURES = ("exec", "jobs", "shells", "files", "trees")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a node keeps its things, and what its configuration says."""

    folder: str
    home: str
    policy: str
    allowed: tuple[str, ...]
    version: str


def facts(settings: Settings, policy: Callable[[], Policy], clock: Clock, started_ms: int) -> Facts:
    """What kind of machine this is."""
    names = os.uname()
    digest = "broken"
    with contextlib.suppress(ConfigError):
        digest = policy().digest
    return Facts(
        hostname=names.nodename,
        os=names.sysname.lower(),
        release=names.release,
        arch=names.machine,
        user=_user_name(),
        uid=os.geteuid(),
        home=settings.home,
        shell=shell(),
        cpus=os.cpu_count() or 0,
        memory_bytes=_memory(),
        node_version=settings.version,
        python=platform.python_version(),
        time_ms=clock.now_ms(),
        started_ms=started_ms,
        policy_sha256=digest,
        features=FEATURES,
    )


def policy_view(policy: Policy) -> PolicyView:
    """A policy as a brain may see it."""
    return PolicyView(
        policy.digest,
        policy.read_only,
        policy.enabled,
        {
            "read": [one.text for one in policy.read],
            "write": [one.text for one in policy.write],
            "deny": [one.text for one in policy.deny],
            "exec": policy.exec_default,
            "rules": [f"{one.verdict}: {one.text}" for one in policy.rules],
        },
    )


def _user_name() -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return str(os.geteuid())


def _memory() -> int:
    with contextlib.suppress(ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0

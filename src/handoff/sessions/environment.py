"""The environment of the session that is opened: what the source leaves behind is removed.

The rules are data with a version. Only names are ever reported, never values. A name of
the host's that no rule knows stays, and is reported: to drop it would change how the
profile behaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ATTEMPT", "NONCE_FD", "NONCE_INODE", "PROFILE", "RULES_VERSION", "Scrubbed", "scrub"]

RULES_VERSION = 1
#: What the new session finds instead: which attempt it is of, the descriptor to read, and
#: the identity (device:inode) of the pipe behind it: a process further down has not
#: inherited the pipe, and may have something else under that number. And the profile whose
#: records a call of ours from within it looks at.
ATTEMPT = "HANDOFF_ATTEMPT"
NONCE_FD = "HANDOFF_NONCE_FD"
NONCE_INODE = "HANDOFF_NONCE_INODE"
PROFILE = "HANDOFF_PROFILE"

#: reason -> names that are removed
EXACT: dict[str, frozenset[str]] = {
    "lets things run unasked": frozenset(
        {
            "HERMES_YOLO_MODE",
            "HERMES_NONINTERACTIVE",
            "HERMES_ACP_AUTO_APPROVE",
            "HERMES_EXEC_ASK",
            "HERMES_ACCEPT_HOOKS",
            "OPENCODE_PERMISSION",
        }
    ),
    "is the source session's": frozenset(
        {
            "HERMES_PLATFORM",
            "HERMES_AGENT",
            "HERMES_SINGLE_QUERY_SESSION",
            "HERMES_SCRATCH_DIR",
            "AI_AGENT",
            "AGENT_SESSION_ID",
            "CLAUDECODE",
            "CLAUDE_CODE_SESSION_ID",
            "CLAUDE_CODE_ENTRYPOINT",
            "CLAUDE_CODE_SSE_PORT",
            "CODEX_THREAD_ID",
            "OPENCODE",
            ATTEMPT,
            NONCE_FD,
            NONCE_INODE,
            PROFILE,
        }
    ),
    "belongs to a part of the source's work": frozenset({"HERMES_CRON_SESSION"}),
    "points git at another repository": frozenset(
        {
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_COMMON_DIR",
            "GIT_INDEX_FILE",
            "GIT_OBJECT_DIRECTORY",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            "GIT_NAMESPACE",
            "GIT_CEILING_DIRECTORIES",
            "GIT_EXTERNAL_DIFF",
            "GIT_PAGER",
            "GIT_PREFIX",
        }
    ),
    "runs code at the start of a program": frozenset({"PYTHONSTARTUP", "LD_PRELOAD", "LD_AUDIT"}),
}
#: reason -> beginnings of names that are removed
PREFIXES: dict[str, tuple[str, ...]] = {
    "is the source session's": ("HERMES_SESSION_", "HERMES_TUI_", "HERMES_ACP_"),
    "belongs to a part of the source's work": (
        "HERMES_KANBAN_",
        "HERMES_WORKER",
        "HERMES_SUBAGENT_",
        "HERMES_DELEGATION_",
        "HERMES_DELEGATE_",
    ),
    "points git at another repository": ("GIT_CONFIG",),
    "runs code at the start of a program": ("DYLD_",),
    "is a test's": ("PYTEST_",),
}
#: names of the host's that are the profile's own: they stay, and need no mention
KEPT = frozenset({"HERMES_HOME", "HERMES_REAL_HOME", "HERMES_PROFILE", "HERMES_BUNDLED_PLUGINS"})


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """The environment for the child; removed: (name, reason); unknown: names that stay."""

    env: dict[str, str]
    removed: list[tuple[str, str]]
    unknown: list[str]


def scrub(env: Mapping[str, str]) -> Scrubbed:
    """The environment without what the source leaves behind."""
    kept: dict[str, str] = {}
    removed: list[tuple[str, str]] = []
    unknown: list[str] = []
    for name, value in env.items():
        reason = _reason(name)
        if reason:
            removed.append((name, reason))
            continue
        kept[name] = value
        if name.startswith("HERMES_") and name not in KEPT:
            unknown.append(name)
    return Scrubbed(kept, sorted(removed), sorted(unknown))


def _reason(name: str) -> str:
    for reason, names in EXACT.items():
        if name in names:
            return reason
    for reason, beginnings in PREFIXES.items():
        if name.startswith(beginnings):
            return reason
    return ""

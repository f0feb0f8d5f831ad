"""What a repository proposes for the set-up of its worktrees.

A repository's own file is a stranger's word: it is read from the base commit, shown when a
task is dispatched, and never obeyed. Whoever agrees copies it into the configuration.
"""

from __future__ import annotations

from typing import Any

from handoff.config import Config, setup_of, verify_of
from handoff.errors import HandoffError
from handoff.gate.excerpt import excerpt
from handoff.workspace.contract import WorkspacePlan
from handoff.workspace.reading import read_file

#: where a repository may say how its worktrees are set up
PATH = ".handoff/setup.yaml"
#: bytes of it that are read, and characters of a proposal that are shown
READ_LIMIT = 16 * 1024
SHOWN = 300


def notes(plan: WorkspacePlan, config: Config) -> list[str]:
    """Lines for a person about what the repository proposes and the configuration does not
    do; [] if it proposes nothing, or nothing else."""
    if plan.kind != "managed" or not plan.base_commit:
        return []
    try:
        found = read_file(plan.project.root, PATH, commit=plan.base_commit, limit=READ_LIMIT)
    except HandoffError:
        return []  # no such file, or none that can be read: nothing is proposed
    wanted = _parse(found.data)
    if wanted is None:
        return [f"{PATH} in the repository can't be read as a proposal; it was left out"]
    return _differences(wanted, config, plan.project.name)


def _parse(raw: bytes) -> dict[str, Any] | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        value = YAML(typ="safe", pure=True).load(raw.decode())
    except (YAMLError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _differences(wanted: dict[str, Any], config: Config, project: str) -> list[str]:
    setup = setup_of(config, project)
    lines = []
    command = wanted.get("command")
    if isinstance(command, str) and command.strip() and command != setup.command:
        lines.append(_line("set-up command", command, "setup.command", project))
    copies = [c for c in _texts(wanted.get("copy")) if c not in setup.copy]
    if copies:
        lines.append(_line("files to copy", ", ".join(copies), "setup.copy", project))
    checks = [c for c in _texts(wanted.get("verify")) if c not in verify_of(config, project)]
    if checks:
        lines.append(_line("verify commands", "; ".join(checks), "verify", project))
    return lines


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _line(what: str, text: str, key: str, project: str) -> str:
    shown = excerpt(text, SHOWN).text.replace("\n", " ")
    return (
        f"the repository proposes {what}: {shown} (not used; to use it, set "
        f"projects.{project}.{key} in config.yaml)"
    )

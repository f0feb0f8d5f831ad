"""What the parts of agentd share: made once by the composition root, handed to each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handoff.agentd.hub import Hub
from handoff.config import Config
from handoff.executors.registry import Registry
from handoff.store.commit import Change
from handoff.store.engine import Store

if TYPE_CHECKING:
    from handoff.clock import Clock
    from handoff.redaction import Redactor


@dataclass(frozen=True)
class Places:
    """Where agentd keeps things. All below ``data_dir``, all private to its owner."""

    data_dir: Path
    worktrees_dir: Path
    repo_root: Path

    @property
    def database(self) -> Path:
        """The SQLite file that holds all state."""
        return self.data_dir / "handoff.db"

    def run_dir(self, task_id: str, run_id: str) -> Path:
        """The journal and socket of one executor process."""
        return self.data_dir / "tasks" / task_id / "runs" / run_id[:8]

    def scratch(self, task_id: str) -> Path:
        """Files that an executor may read and write: never trusted, never inside a
        worktree."""
        return self.data_dir / "tasks" / task_id / "scratch"

    def task_dir(self, task_id: str) -> Path:
        """All files of a task."""
        return self.data_dir / "tasks" / task_id

    @property
    def env_dir(self) -> Path:
        """The user's environment files."""
        return self.data_dir / "env"


def make_private(path: Path, below: Path) -> Path:
    """Make a folder and all folders between it and ``below``, each for its owner only."""
    for folder in [*reversed(path.relative_to(below).parents), path.relative_to(below)]:
        full = below / folder
        if not full.is_dir():
            full.mkdir(mode=0o700, exist_ok=True)
    return path


@dataclass
class Services:
    """Everything that is there once a daemon."""

    store: Store
    hub: Hub
    clock: Clock
    config: Config
    config_path: str
    places: Places
    executors: Registry
    instance: str
    search_path: str = ""
    redactor: Redactor | None = None
    warnings: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    #: asks the user's shell for its PATH; None where nobody has to
    completing: asyncio.Task[None] | None = None

    @property
    def path_known(self) -> bool:
        """Whether ``search_path`` is complete."""
        return self.completing is None or self.completing.done()

    async def path(self) -> str:
        """The PATH for what is started, once it is complete: a shell may be slow, and has
        its limit."""
        if self.completing is not None:
            await asyncio.shield(self.completing)
        return self.search_path

    def redact_text(self, text: str) -> str:
        """The text without secrets that this daemon knows or recognises."""
        return text if self.redactor is None else self.redactor.redact(text)

    def redact(self, change: Change) -> None:
        """Take secrets out of what others will read: events and frames. Tickets keep
        every byte, because a decision needs what will really run."""
        if self.redactor is None:
            return
        for _, _, payload in change.events:
            _walk(payload, self.redactor.redact)
        for kind, data in change.frames:
            if kind != "prompt":
                _walk(data, self.redactor.redact)


def _walk(value: dict[str, object] | list[object], clean: Callable[[str], str]) -> None:
    pairs: list[tuple[Any, object]]
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, inner in pairs:
        if isinstance(inner, str):
            value[key] = clean(inner)
        elif isinstance(inner, dict | list):
            _walk(inner, clean)

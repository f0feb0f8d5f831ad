"""What the rest of Handoff may rely on about processes. See :mod:`handoff.process.shim`
for the program that holds one, :mod:`handoff.process.supervisor` for agentd's side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, Protocol

import msgspec


class Spec(msgspec.Struct, frozen=True):
    """A process to start under a shim. ``env`` is the whole environment and may hold
    secrets: it goes to the shim through a pipe and never into a file.

    ``max_procs``: more processes than this end the run (0 = no limit). ``umask``: the
    user's own, for the executor's files; None = what the caller's process has.
    ``cgroup``: the run's own cgroup v2 folder; left "" the supervisor makes one where it
    can (:mod:`handoff.process.fence`).
    """

    run_id: str
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    max_procs: int = 0
    grace_s: float = 3.0
    umask: int | None = None
    cgroup: str = ""


class Record(msgspec.Struct, frozen=True):
    """One record of a journal.

    ``offset`` / ``end``: logical byte positions of its first byte and of the byte after
    it; they only grow, whatever rotates. ``kind``: ``started`` (data: pid), ``stdout``,
    ``stderr`` (data: raw bytes, cut anywhere), ``input`` (data: number written),
    ``pressure`` (data: process count), ``exited`` (data: exit code as decimal text,
    negative = signal), ``swept`` (data: how many descendants had to be ended).
    ``at_ms``: the shim's clock.
    """

    offset: int
    end: int
    kind: Literal["started", "stdout", "stderr", "input", "pressure", "exited", "swept"]
    at_ms: int
    data: bytes


class Proc(msgspec.Struct, frozen=True):
    """One process of a task's tree. ``started``: an opaque start stamp of the kernel, so
    that (pid, started) never names two processes. ``command``: for people, shortened."""

    pid: int
    ppid: int
    started: int
    command: str
    age_s: float


class Shim(Protocol):
    """A running (or ended, not yet forgotten) executor process, seen from agentd."""

    run_id: str
    run_dir: Path
    shim_pid: int

    async def send(self, number: int, data: bytes) -> int:
        """Write input ``number`` to the executor unless it was written before.

        Returns the highest number written so far. Numbers start at 1 and have no gaps.

        Raises:
            ExecutorGone: the process has ended or its shim is gone.
            ProtocolViolation: the number leaves a gap.
        """
        ...

    def records(self, offset: int) -> AsyncIterator[Record]:
        """Records from offset on, waiting for more; ends after ``exited``/``swept`` when
        the shim is gone, or when it died without a word (no ``exited`` was seen then)."""
        ...

    async def ack(self, offset: int) -> None:
        """Everything below offset is committed elsewhere: its segments may go."""
        ...

    async def end(self, grace_s: float) -> list[Proc]:
        """TERM, wait, KILL until the tree is empty. Returns what is still alive then."""
        ...

    async def tree(self) -> list[Proc]:
        """The executor and all its descendants, now."""
        ...

    async def alive(self) -> bool:
        """Whether the shim lives."""
        ...

    async def close(self) -> None:
        """Let go of the connection; the shim and its executor live on."""
        ...

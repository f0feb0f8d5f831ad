"""A finished task as a session: its messages, for evidence to read as any host's.

Prompts, answers and the reasons of denials are the coordinator's words; what the executor
claimed at the end of a turn is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from handoff.errors import NotFound
from handoff.sessions.host_store import Message, Opener, Session
from handoff.sessions.task_prompt import own_words
from handoff.sessions.transcripts import ms

__all__ = ["Finished", "TaskSession", "messages", "opener", "prompt"]


@dataclass(frozen=True)
class Finished:
    """A task as the API tells it: the Task, its Turns, its Tickets, the files of its diff."""

    task: Mapping[str, Any]
    turns: Sequence[Mapping[str, Any]]
    tickets: Sequence[Mapping[str, Any]]
    files: Sequence[Mapping[str, Any]]

    @property
    def id(self) -> str:
        """The task's id, which is the source session of its record."""
        return str(self.task["id"])


def prompt(turn: Mapping[str, Any]) -> str:
    """What a turn was given."""
    return str(turn.get("prompt") or "")


def messages(done: Finished) -> list[Message]:
    """What was said, in order: prompts and answers by the coordinator, results by the
    executor."""
    made: list[Message] = []
    for turn in done.turns:
        number = turn.get("number", 0)
        made.append(
            Message(
                f"turn-{number}",
                done.id,
                "user",
                own_words(prompt(turn)),
                ms(turn.get("started_at")),
            )
        )
        for ticket in done.tickets:
            if ticket.get("turn") == number and ticket.get("source") == "coordinator":
                said = ticket.get("reason") or ticket.get("answer") or ""
                at = ms(ticket.get("answered_at"))
                made.append(Message(f"{ticket.get('ref')}", done.id, "user", str(said), at))
        claim = (turn.get("outcome") or {}).get("claim") or {}
        ended = ms(turn.get("ended_at"))
        summary = str(claim.get("summary") or "")
        made.append(Message(f"turn-{number}-end", done.id, "assistant", summary, ended))
    return made


class TaskSession:
    """The task's messages, as evidence reads a session."""

    def __init__(self, done: Finished) -> None:
        self._done, self._all = done, messages(done)

    def session(self, session_id: str) -> Session | None:
        """The task."""
        if session_id != self._done.id:
            return None
        task = self._done.task
        started = ms(task.get("created_at"))
        name = str(task.get("name") or "")
        return Session(session_id, "", str(task.get("model") or ""), "",
                       str(task.get("repo_path") or ""), "", started, 0, len(self._all), name)  # fmt: skip

    def family(self, session_id: str) -> list[str]:
        """The task alone."""
        return [session_id]

    def messages(
        self, sessions: list[str], *, role: str = "", last: int = 0, message_id: str = ""
    ) -> Iterator[Message]:
        """Its messages. ``last``: only so many."""
        picked = [
            one
            for one in self._all
            if one.session_id in sessions and role in ("", one.role) and message_id in ("", one.id)
        ]
        yield from picked[-last:] if last else picked

    def last_message(self, session_id: str) -> str:
        """The id of its last message, or ""."""
        return self._all[-1].id if self._all and session_id == self._done.id else ""

    def idle_since(self, before: int, limit: int) -> list[Session]:
        """None: it is one task."""
        del before, limit
        return []

    def started_since(self, since: int, limit: int) -> list[Session]:
        """None: it is one task."""
        del since, limit
        return []


def opener(done: Finished) -> Opener:
    """How to look at it."""

    @contextmanager
    def opened() -> Iterator[TaskSession]:
        if not done.turns:
            raise NotFound(f"task {done.id} had no turn")
        yield TaskSession(done)

    return opened

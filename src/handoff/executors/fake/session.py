"""A session of the fake executor, kept in a file so that it can be loaded again."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass, field
from typing import Any

from handoff.executors.fake import script
from handoff.executors.fake.script import Step

#: characters of one remembered message; the rest is left out of the history
_REMEMBERED = 4000


@dataclass
class Session:
    """What was said, and what is left to play.

    ``rest``: steps of a turn that ended early (a question, a denial, the process killed);
    the next prompt without a script goes on with them. ``turns``: whole turns that the
    next prompts without a script play.
    """

    session_id: str
    cwd: str
    path: str | None
    history: list[tuple[str, str]] = field(default_factory=list)
    rest: list[Step] = field(default_factory=list)
    turns: list[list[Step]] = field(default_factory=list)
    calls: int = 0
    prompts: int = 0

    @classmethod
    def new(cls, cwd: str, folder: str | None) -> Session:
        """A fresh session, kept below ``folder`` (None: not kept)."""
        session_id = str(uuid.uuid4())
        return cls(session_id, cwd, _path(folder, session_id))

    @classmethod
    def load(cls, session_id: str, cwd: str, folder: str | None) -> Session | None:
        """The session of that id, or None if there is none."""
        path = _path(folder, session_id)
        if path is None:
            return None
        try:
            with open(path, encoding="utf-8") as handle:
                kept = json.load(handle)
        except (OSError, ValueError):
            return None
        return cls(
            session_id,
            cwd,
            path,
            history=[(str(role), str(text)) for role, text in kept["history"]],
            rest=[(str(name), dict(args)) for name, args in kept["rest"]],
            turns=[[(str(n), dict(a)) for n, a in turn] for turn in kept["turns"]],
            calls=int(kept["calls"]),
            prompts=int(kept["prompts"]),
        )

    def save(self) -> None:
        """Write the file, whole or not at all."""
        if self.path is None:
            return
        body: dict[str, Any] = {
            "history": self.history[-200:],
            "rest": self.rest,
            "turns": self.turns,
            "calls": self.calls,
            "prompts": self.prompts,
        }
        fresh = f"{self.path}.{os.getpid()}.new"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as handle:
            json.dump(body, handle)
        os.replace(fresh, self.path)

    def remember(self, role: str, text: str) -> None:
        """Add to the history that ``session/load`` replays."""
        self.history.append((role, text[:_REMEMBERED]))

    def take(self, prompt: str) -> list[Step]:
        """The steps to play for a prompt.

        Raises:
            script.ScriptError: the prompt brings a script that can't be read.
        """
        self.prompts += 1
        self.remember("user", prompt)
        brought = script.find(prompt)
        if brought is not None:
            self.rest, self.turns = [], brought[1:]
            return list(brought[0]) if brought else []
        if self.rest:
            left, self.rest = self.rest, []
            return left
        if self.turns:
            return self.turns.pop(0)
        return list(script.DEFAULT)


def _path(folder: str | None, session_id: str) -> str | None:
    if folder is None or not all(c in "0123456789abcdef-" for c in session_id):
        return None
    return os.path.join(folder, f"fake-session-{session_id}.json")

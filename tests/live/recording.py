"""Writing down what an executor and its driver say to each other.

``HANDOFF_RECORD=FOLDER`` with the live tests makes new transcripts for the replay tests:
one JSON object a line, ``dir`` (send, recv, exit) and ``msg``. Places of the machine are
replaced, and what is long and of no use for a replay is cut.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
from dataclasses import dataclass, field
from typing import Any, TextIO

FOLDER = os.environ.get("HANDOFF_RECORD", "")
#: fields whose value is long and says nothing about the conversation
CUT = frozenset(
    {
        "agents",
        "availableCommands",
        "availableModels",
        "capabilities",
        "commands",
        "configOptions",
        "memory_paths",
        "messaging_socket_path",
        "models",
        "output_file",
        "plugins",
        "skills",
        "slash_commands",
        "system_prompt",
        "terminal_slash_commands",
        "tools",
        "user_output_styles_dir",
    }
)


@dataclass
class Recording:
    """One transcript, or nothing when nobody asked for one."""

    out: TextIO | None = None
    places: dict[str, str] = field(default_factory=dict)

    @classmethod
    def named(cls, name: str, places: dict[str, str]) -> Recording:
        if not FOLDER:
            return cls()
        folder = pathlib.Path(FOLDER)
        folder.mkdir(parents=True, exist_ok=True)
        return cls((folder / f"{name}.jsonl").open("w"), places)

    def add(self, direction: str, line: bytes) -> None:
        if self.out is None:
            return
        text = line.decode("utf-8", "replace")
        for place, name in self.places.items():
            text = text.replace(place, name)
        text = re.sub(r"/tmp/[\w./-]+", "/t", text)
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", text)
        try:
            message: Any = _cut(json.loads(text))
        except ValueError:
            message = text
        self.out.write(json.dumps({"dir": direction, "msg": message}, ensure_ascii=False) + "\n")

    def close(self) -> None:
        if self.out is not None:
            self.out.close()


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _cut(v) for k, v in value.items() if k not in CUT}
    if isinstance(value, list):
        return [_cut(item) for item in value]
    return value

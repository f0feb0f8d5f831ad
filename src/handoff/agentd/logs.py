"""agentd's log: JSON lines, rotated, private."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path

#: bytes of one file, and how many old ones are kept
LOG_BYTES = 8 * 1024 * 1024
LOG_FILES = 3


class Lines(logging.Formatter):
    """One JSON object a line, with a stable ``action`` where the caller gave one.

    Args:
        clean: takes secrets out of a text.
    """

    def __init__(self, clean: Callable[[str], str]) -> None:
        super().__init__()
        self._clean = clean

    def format(self, record: logging.LogRecord) -> str:
        """The record as its line."""
        line: dict[str, object] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": self._clean(record.getMessage()),
        }
        action = getattr(record, "action", None)
        if action:
            line["action"] = action
        if record.exc_info:
            line["traceback"] = self._clean(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


class PrivateFiles(logging.handlers.RotatingFileHandler):
    """Rotating files that only their owner can read, from the first byte on."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")


def set_up(data_dir: Path, level: str, clean: Callable[[str], str]) -> None:
    """Send all logging to ``agentd.log``, and warnings to a terminal if there is one."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    handler = PrivateFiles(
        data_dir / "agentd.log", maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8"
    )
    handler.setFormatter(Lines(clean))
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    if sys.stderr is not None and sys.stderr.isatty():
        plain = logging.StreamHandler()
        plain.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        root.addHandler(plain)
    uvicorn = logging.getLogger("uvicorn")
    uvicorn.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    logging.captureWarnings(capture=True)

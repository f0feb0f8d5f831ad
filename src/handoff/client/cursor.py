"""The last event that was handed out, per agentd and task, in one small file each.

``<home>/cursors/<instance>/<task>`` holds the number in decimal. It is written by a
unique temporary file and a rename, after the event was printed: a crash in between
repeats one event, and never loses one. Where the home can't be written, the folder
``.handoff/cursors`` below the current one is used, with a warning.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: days after which the cursor of a task that nobody waits for is forgotten
KEEP_DAYS = 30


def _name(text: str) -> str:
    """Text as a file name: everything but letters, digits, dot and dash becomes ``_``."""
    kept = "".join(c if (c.isascii() and c.isalnum()) or c in ".-" else "_" for c in text)
    return kept.lstrip(".")[:128] or "_"


class Cursors:
    """The cursors of one agentd.

    Args:
        home: the folder of Handoff's own files.
        instance: agentd's identity, or its address where that is not known.
        warn: takes one line for the user.
    """

    def __init__(self, home: str, instance: str, warn: Callable[[str], None]) -> None:
        self._folders = [
            os.path.join(home, "cursors", _name(instance)),
            os.path.join(os.getcwd(), ".handoff", "cursors", _name(instance)),
        ]
        self._warn = warn
        self._folder = ""

    def _place(self) -> str:
        if not self._folder:
            for number, folder in enumerate(self._folders):
                probe = os.path.join(folder, f".{os.getpid()}.tmp")
                try:
                    os.makedirs(folder, mode=0o700, exist_ok=True)
                    with open(probe, "x", encoding="ascii"):
                        pass
                    os.unlink(probe)
                except OSError as error:
                    self._warn(f"{folder} can't be written: {error.strerror}")
                    continue
                if number:
                    self._warn(f"the place in the event stream is kept in {folder}")
                self._folder = folder
                break
        return self._folder

    def load(self, task: str) -> int:
        """The number of the last event handed out; 0 if there is none."""
        for folder in self._folders:
            path = os.path.join(folder, _name(task))
            try:
                with open(path, "rb") as file:
                    text = file.read(32)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._warn(f"{path} can't be read: {error.strerror}; events are repeated")
                return 0
            if text.isdigit():
                return int(text)
            self._warn(f"{path} holds no number; events are repeated")
            return 0
        return 0

    def save(self, task: str, seq: int) -> None:
        """Remember seq. A failure is a warning: it costs a repeated event, no more."""
        folder = self._place()
        if not folder:
            return
        path = os.path.join(folder, _name(task))
        temp = f"{path}.{os.getpid()}.tmp"
        try:
            with open(temp, "w", encoding="ascii") as file:
                file.write(str(seq))
            os.replace(temp, path)
        except OSError as error:
            self._warn(f"{path} can't be written: {error.strerror}; an event may be repeated")

    def drop(self, task: str) -> None:
        """Forget the task's cursor."""
        for folder in self._folders:
            try:
                os.unlink(os.path.join(folder, _name(task)))
            except OSError:
                continue

    def sweep(self, now: float | None = None) -> None:
        """Remove cursors unused for :data:`KEEP_DAYS` and temporary files of an hour ago."""
        now = time.time() if now is None else now
        for folder in self._folders:
            try:
                entries = list(os.scandir(folder))
            except OSError:
                continue
            for entry in entries:
                limit = 3600 if entry.name.endswith(".tmp") else KEEP_DAYS * 86400
                try:
                    if now - entry.stat().st_mtime > limit:
                        os.unlink(entry.path)
                except OSError:
                    continue

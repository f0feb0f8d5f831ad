"""The most memory that a process has had, of Linux."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from typing import Self


def peak_kib(pid: int) -> int:
    """Its largest resident set since :func:`forget_peak`; 0 if it is gone."""
    with contextlib.suppress(OSError, IndexError):
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(text.split("VmHWM:")[1].split()[0])
    return 0


def resident_kib(pid: int) -> int:
    """Its resident set now."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


def forget_peak(pid: int) -> None:
    """proc(5), ``clear_refs``: the largest is the one of now."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


class Peaks:
    """The largest resident sets of several processes while the context lasts, in KiB: also
    of those that end meanwhile."""

    def __init__(self, pids: dict[str, int]) -> None:
        self.pids = pids
        self.most = dict.fromkeys(pids, 0)
        self._over = threading.Event()

    def look(self) -> None:
        """Read them once."""
        for name, pid in list(self.pids.items()):
            self.most[name] = max(self.most.get(name, 0), peak_kib(pid))

    def _watch(self) -> None:
        while not self._over.is_set():
            self.look()
            time.sleep(0.05)

    def __enter__(self) -> Self:
        for pid in self.pids.values():
            with contextlib.suppress(OSError):
                forget_peak(pid)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        self._over.set()
        self._thread.join(10)

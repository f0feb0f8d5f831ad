"""Finding and ending what a test left running. Only by environment mark, never by name."""

from __future__ import annotations

import os
import signal

import psutil


def marked(mark: str) -> list[psutil.Process]:
    """Processes whose environment holds that entry, this one left out."""
    key, _, value = mark.partition("=")
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(key) == value:
                found.append(process)
        except psutil.Error:
            continue
    return found


def describe(processes: list[psutil.Process]) -> list[str]:
    """One line a process."""
    lines = []
    for process in processes:
        try:
            lines.append(f"{process.pid} {' '.join(process.cmdline())[:160]}")
        except psutil.Error:
            continue
    return lines


def end_marked(mark: str) -> list[str]:
    """SIGKILL all of them, also what they start meanwhile; what was found, described."""
    seen: dict[int, str] = {}
    for _ in range(20):
        processes = marked(mark)
        if not processes:
            break
        for process, line in zip(processes, describe(processes), strict=False):
            seen.setdefault(process.pid, line)
        for process in processes:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue
        psutil.wait_procs(processes, timeout=5)
    return list(seen.values())

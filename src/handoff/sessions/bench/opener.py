"""An opener as a process of its own: ``python -m handoff.sessions.bench.opener ROOT ATTEMPT
WORKSPACE PROGRAM [--kill POINT | --crowd N]``.

``--kill``: it kills itself at that point, by SIGKILL. ``--crowd``: N openers that are let go
at the same moment. The outcome is one line of JSON on standard error.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
import termios

from handoff.clock import SystemClock
from handoff.sessions.bench.stage import PROFILE, REF, QuietHost
from handoff.sessions.journal import Journal
from handoff.sessions.opening import Request, open_attempt


def main(argv: list[str]) -> int:
    """Open the attempt; the opener's exit code."""
    parser = argparse.ArgumentParser(prog="opener")
    for name in ("root", "attempt", "workspace", "program"):
        parser.add_argument(name)
    parser.add_argument("--kill", default="")
    parser.add_argument("--crowd", type=int, default=0)
    asked = parser.parse_args(argv)
    if os.getsid(0) == os.getpid() and os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    return _crowd(asked) if asked.crowd else _one(asked)


def _one(asked: argparse.Namespace) -> int:
    def reach(name: str) -> None:
        if name == asked.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    journal = Journal(asked.root, clock=SystemClock(), redact=lambda text: text, reach=reach)
    request = Request(REF, asked.attempt, asked.workspace, PROFILE, yes=True)
    outcome = open_attempt(journal, request, QuietHost(asked.program), os.environ, reach=reach)
    print(json.dumps(outcome.to_json()), file=sys.stderr)
    return outcome.exit


def _crowd(asked: argparse.Namespace) -> int:
    gate, let_go = os.pipe()
    pids = []
    for _ in range(asked.crowd):
        pid = os.fork()
        if pid == 0:
            os.close(let_go)
            os.read(gate, 1)  # ends when the last writer is gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os._exit(_one(asked))
        pids.append(pid)
    os.close(let_go)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    print(json.dumps({"codes": codes}), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

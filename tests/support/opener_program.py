"""An opener as a process of its own, for tests: ``python opener_program.py ROOT ATTEMPT
WORKSPACE PROGRAM [--ask | --crowd N]``. The outcome is one JSON object on standard error; of
a crowd, the exit codes of N openers that were let go at the same moment."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import sys
import termios

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from handoff import crashpoints  # noqa: E402
from handoff.clock import SystemClock  # noqa: E402
from handoff.sessions.journal import Journal  # noqa: E402
from handoff.sessions.opening import Request, open_attempt  # noqa: E402
from tests.support.openings import PROFILE, REF, QuietHost, same  # noqa: E402


def main() -> int:
    root, attempt, workspace, program = sys.argv[1:5]
    if os.getsid(0) == os.getpid() and os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if "--crowd" in sys.argv:
        return crowd(int(sys.argv[-1]), root, attempt, workspace, program)
    return one(root, attempt, workspace, program)


def one(root: str, attempt: str, workspace: str, program: str) -> int:
    journal = Journal(root, clock=SystemClock(), redact=same, reach=crashpoints.reach)
    host = QuietHost(program)
    host.answer = False
    request = Request(REF, attempt, workspace, PROFILE, yes="--ask" not in sys.argv)
    outcome = open_attempt(journal, request, host, os.environ, reach=crashpoints.reach)
    print(json.dumps({**outcome.to_json(), "summary": host.summary}), file=sys.stderr)
    return outcome.exit


def crowd(count: int, root: str, attempt: str, workspace: str, program: str) -> int:
    gate, let_go = os.pipe()
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(let_go)
            os.read(gate, 1)  # ends when the last writer is gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os._exit(one(root, attempt, workspace, program))
        pids.append(pid)
    os.close(let_go)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    print(json.dumps({"codes": codes}), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

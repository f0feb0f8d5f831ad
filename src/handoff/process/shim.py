"""The shim: ``python -I -S shim.py RUN_DIR``, one for each executor run.

It reads its spec (one JSON line, with the executor's environment) from standard input,
starts the executor, and holds it until nothing of it is left, whatever becomes of agentd.
It says one line on standard output when the executor was started (or could not be), and
nothing more. What it keeps in RUN_DIR, all of it readable by its user alone:

``shim.json``      pid, start stamp, boot and run id; made exactly once, so that a run
                   directory can never hold two executors; locked while the shim lives
``s``              the Unix socket (see :mod:`handoff.process.door`)
``journal.*``      everything that happened (see :mod:`handoff.process.journal`)
``roster``         the pids and start stamps of the executor's tree
``shim.log``       the shim's own standard error: empty, unless the shim itself broke

Requests, one JSON object a line, each with an ``id`` that its reply repeats:
``input {n, text | b64}``, ``ack {offset}``, ``end {grace}``, ``tree``, ``ping``, ``hello``.
Pushed: ``{"hello": …}`` at the start, ``{"end": offset}`` when the journal grew.

It runs on the standard library, outside of any environment: the few modules it needs are
its siblings, found by path.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from handoff.process.door import Door

INFO = "shim.json"
#: exit codes: the spec did not arrive whole; another shim has this run
#: directory; the run directory can't be written (errno on standard output)
NO_SPEC = 2
TAKEN = 3
FAILED = 4


def _find_siblings() -> None:
    """Make ``handoff.process`` importable without running the packages' own code."""
    here = os.path.dirname(os.path.abspath(__file__))
    for name, folder in (("handoff", os.path.dirname(here)), ("handoff.process", here)):
        package = type(sys)(name)
        package.__path__ = [folder]
        sys.modules[name] = package


def read_spec() -> dict[str, Any] | None:
    """The spec from standard input; None if agentd died before it was whole."""
    raw = bytearray()
    while chunk := os.read(0, 1 << 16):
        raw += chunk
    if not raw.endswith(b"\n"):
        return None
    spec = json.loads(raw)
    return spec if isinstance(spec, dict) else None


def claim(run_id: str, cgroup: str, boot: str, started: int) -> int | None:
    """Make ``shim.json``, once and for all. Returns its locked descriptor, None if taken."""
    fresh = f"{INFO}.{os.getpid()}"
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    info = {"run_id": run_id, "pid": os.getpid(), "started": started, "boot": boot}
    os.write(fd, json.dumps({**info, "cgroup": cgroup, "version": 1}).encode())
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        os.link(fresh, INFO)
    except FileExistsError:
        return None
    finally:
        os.unlink(fresh)
    return fd


def say(message: dict[str, Any]) -> None:
    """The one line on standard output, for whoever started us."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except OSError:  # agentd died meanwhile; it will find us by our files
        pass
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _door(make: Callable[[], Door]) -> Door:
    """Open the socket; without one nothing is started and the claim is taken back."""
    try:
        return make()
    except OSError:
        os.unlink(INFO)
        raise


def main() -> int:
    """Run one shim. Returns the exit code."""
    os.closerange(3, 1024)
    os.chdir(sys.argv[1])
    spec = read_spec()
    if spec is None:
        return NO_SPEC
    os.setsid()
    inherited = os.umask(0o077)
    from handoff.process import facts, spawn
    from handoff.process.door import Door
    from handoff.process.holder import Holder

    me = facts.fact(os.getpid())
    assert me is not None
    try:
        cgroup = str(spec.get("cgroup") or "")
        lock = claim(str(spec["run_id"]), cgroup, facts.boot_id(), me.started)
        if lock is None:
            return TAKEN
        holder = Holder(spec, _door(Door))
    except OSError as error:
        say({"failed": error.errno or 0})
        return FAILED
    spawn.become_subreaper("handoff-shim")
    umask = spec["umask"] if spec.get("umask") is not None else inherited
    env = {**spec["env"], "HANDOFF_RUN": spec["run_id"]}
    child = spawn.launch(spec["argv"], spec["cwd"], env, umask, cgroup)
    del spec, env  # secrets: kept no longer than needed
    if isinstance(child, spawn.Child):
        holder.hold(child)
        say({"pid": os.getpid(), "started": me.started, "executor": child.pid})
    else:
        holder.refused(*child)
        say({"pid": os.getpid(), "started": me.started, "executor": 0})
    holder.run()
    return 0


if __name__ == "__main__":
    _find_siblings()
    sys.exit(main())

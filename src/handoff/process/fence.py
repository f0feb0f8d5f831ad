"""A cgroup of its own for each run, where the kernel and the service manager let us.

The shim counts its processes once a second, which a storm of forks outruns. A cgroup v2
with ``pids.max`` doesn't get outrun: at the wall a fork fails. While the tree is ended no
fork is let through at all, so that the kill rounds come to an end.

It takes a folder that may have such groups: agentd's service has one if its unit says
``Delegate=pids`` and ``DelegateSubgroup=agentd``. Anywhere else there is no fence, the
count alone stands, and nothing of the machine's groups is touched. Groups are only ever
limited, never killed as a whole: who is in one is the kernel's word, not proof that it is
ours. Standard library only: the shim uses it too.
"""

from __future__ import annotations

import os
import time

ROOT = "/sys/fs/cgroup"
#: the subgroup that holds agentd itself, beside which the runs' groups may stand
LEAF = "agentd"
_PREFIX = "handoff-run-"
#: ``pids.max`` counts threads, the limit of a run counts processes: an agent on Node.js has
#: 11 to 20 threads, a build tool may have more
_THREADS = 32
_LEAST = 512
#: seconds between tries to remove a group whose last process is just ending
_RETRY_S = 0.01


def enclose(run_id: str, max_procs: int, *, root: str = ROOT) -> str:
    """Make the run's group. Returns its folder, "" where there can be none."""
    base = _base(root)
    if not base or max_procs <= 0:
        return ""
    folder = os.path.join(base, _PREFIX + run_id)
    try:
        os.mkdir(folder, 0o755)
        _write(os.path.join(folder, "pids.max"), str(max(_LEAST, _THREADS * max_procs)))
    except FileExistsError:  # a start that was cut short made it
        return folder
    except OSError:
        release(folder, run_id)
        return ""
    return folder


def _base(root: str) -> str:
    """The folder below which groups with ``pids.max`` can be made, ""  if there is none."""
    try:
        own = _own_group()
        if own is None or not os.path.exists(os.path.join(root, "cgroup.controllers")):
            return ""
        delegated = os.path.basename(own) == LEAF
        # a group with processes in it can't have such subgroups, but for the very root
        folder = root + os.path.dirname(own) if delegated else root
        if not delegated and own != "/":
            return ""
        control = os.path.join(folder, "cgroup.subtree_control")
        if "pids" not in _read(control).split():
            if not delegated or "pids" not in _read(f"{folder}/cgroup.controllers").split():
                return ""
            _write(control, "+pids")
    except OSError:  # not ours to use
        return ""
    return folder if os.access(folder, os.W_OK) else ""


def _own_group() -> str | None:
    """The v2 group that this process is in."""
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return line[3:]
    return None


def is_runs(folder: str, run_id: str) -> bool:
    """Whether folder is the group that was made for that run."""
    return bool(folder and run_id) and os.path.basename(folder) == _PREFIX + run_id


def join(folder: str) -> None:
    """Put this process into the group. Raises OSError."""
    _write(os.path.join(folder, "cgroup.procs"), "0")


def shut(folder: str, run_id: str) -> bool:
    """Let nothing in the run's group fork any more. Returns whether that is so."""
    if not is_runs(folder, run_id):
        return False
    try:
        _write(os.path.join(folder, "pids.max"), "0")
    except OSError:
        return False
    return True


def release(folder: str, run_id: str) -> bool:
    """Remove the run's group once nothing is in it. Returns whether it is gone."""
    if not is_runs(folder, run_id):
        return False
    for _ in range(5):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError:  # its last process is not quite gone, or something lives in it
            time.sleep(_RETRY_S)
        else:
            return True
    return False


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)

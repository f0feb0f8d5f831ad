"""Starting the executor from its shim: fork, prepare, exec, and why it failed.

Standard library only. The caller must be single-threaded, as the shim is: between fork and
exec this is ordinary Python.
"""

from __future__ import annotations

import errno
import os
import signal

from handoff.process.facts import LINUX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple, NoReturn

    class Child(NamedTuple):
        """A started executor: its pid and our ends of its pipes, all non-blocking."""

        pid: int
        stdin: int
        stdout: int
        stderr: int
        control: int = -1

    class Refused(NamedTuple):
        """The executor could not be started. code: 126 or 127, as a shell would say."""

        code: int
        reason: str
else:
    from collections import namedtuple

    Child = namedtuple("Child", "pid stdin stdout stderr control", defaults=(-1,))  # noqa: PYI024
    Refused = namedtuple("Refused", "code reason")  # noqa: PYI024

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
#: Python ignores these two; a program that it starts must not inherit that
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
#: the longest first line the kernel looks at for an interpreter (BINPRM_BUF_SIZE)
_SHEBANG_BYTES = 256


def become_subreaper(name: str) -> bool:
    """Adopt every orphan below this process, and show name in process lists (Linux).

    Returns whether the kernel does it.
    """
    if not LINUX:
        return False
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def launch(
    argv: list[str],
    cwd: str,
    env: dict[str, str],
    umask: int,
    cgroup: str = "",
    identity: tuple[int, int, list[int]] | None = None,
    control: bool = False,
    exact: bool = False,
    program: str = "",
) -> Child | Refused:
    """Start argv in its own session, with three pipes, or with ``control`` a fourth, which
    the child writes to as descriptor 3.

    cgroup: a cgroup v2 folder to join first, or "". identity: the user, group and further
    groups to become; None stays as we are. exact: ``cwd`` is a path without links, and none is
    followed. program: the file to start, "" for what argv names. On Linux the child dies
    with us.
    """
    path = program or find(argv[0], env.get("PATH", ""), cwd)
    if "/" not in path:  # exec would take it for a file in the folder
        return Refused(127, f"there is no program {path}")
    inputs, outputs, errors, status = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    fourth = os.pipe() if control else (-1, -1)
    prctl = _prctl()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        stage = b"setup"
        try:
            os.setsid()
            os.dup2(inputs[0], 0)
            os.dup2(outputs[1], 1)
            os.dup2(errors[1], 2)
            if control:
                if status[1] == 3:
                    status = status[0], os.dup(3)
                os.dup2(fourth[1], 3)
                os.set_inheritable(3, True)
            for number in _RESTORED:
                signal.signal(number, signal.SIG_DFL)
            if identity is not None:
                stage = b"user"
                os.setgroups(identity[2])
                os.setgid(identity[1])
                os.setuid(identity[0])
            if prctl is not None:  # after the change of user, which would undo it
                prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != parent:
                    os._exit(126)
            if cgroup:
                _enclose(cgroup)
            os.umask(umask)
            stage = b"cwd"
            (enter if exact else os.chdir)(cwd)
            stage = b"exec"
            os.execve(path, argv, env)  # noqa: S606 - an argv, never a shell's text
        except BaseException as error:  # nothing may return into the parent's code
            _tell(status[1], stage, error)
    for fd in (inputs[0], outputs[1], errors[1], status[1], *fourth[1:]):
        if fd >= 0:
            os.close(fd)
    failed = b""
    while part := os.read(status[0], 256):
        failed += part
    os.close(status[0])
    if failed:
        os.waitpid(pid, 0)
        for fd in (inputs[1], outputs[0], errors[0], fourth[0]):
            if fd >= 0:
                os.close(fd)
        where, _, why = failed.partition(b" ")
        return explain(where.decode(), int(why), path, cwd)
    for fd in (inputs[1], outputs[0], errors[0], fourth[0]):
        if fd >= 0:
            os.set_blocking(fd, False)
    return Child(pid, inputs[1], outputs[0], errors[0], fourth[0])


def _prctl() -> Any:
    """The system call of Linux, None elsewhere. Looked up once: a look takes a few
    microseconds, but it writes to memory that is shared with each copy of the process until
    then, and to copy that takes longer than all the rest of a start."""
    if LINUX and not _FOUND:
        import ctypes

        found = ctypes.CDLL(None).prctl
        found.argtypes = [ctypes.c_int, *(4 * [ctypes.c_ulong])]
        _FOUND.append(found)
    return _FOUND[0] if _FOUND else None


_FOUND: list[Any] = []


def _tell(fd: int, stage: bytes, error: BaseException) -> NoReturn:
    number = error.errno if isinstance(error, OSError) and error.errno else errno.EINVAL
    try:
        os.write(fd, b"%s %d" % (stage, number))
    finally:
        os._exit(126)


def enter(path: str) -> None:
    """Make a folder the current one, name by name from the root: what was a folder when
    somebody ruled on the path, and is a link by now, is not entered.

    Raises:
        OSError: as the system says; ELOOP or ENOTDIR for a link.
    """
    flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("/", flags)
    try:
        for name in path.split("/"):
            if name:
                below = os.open(name, flags, dir_fd=fd)
                os.close(fd)
                fd = below
        os.fchdir(fd)
    finally:
        os.close(fd)


def _enclose(cgroup: str) -> None:
    """Join the run's group. Where that fails the run has its count alone, and says so."""
    from handoff.process import fence

    try:
        fence.join(cgroup)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        os.write(2, f"[handoff: no cgroup for this run: {cgroup}: {why}]\n".encode())


def find(program: str, path: str, cwd: str) -> str:
    """What exec would take: program itself if it holds a slash, else the first hit in path."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        candidate = os.path.join(cwd, folder or ".", program)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return program


def shebang(path: str) -> list[str]:
    """The interpreter line of a script as the kernel reads it: [interpreter, argument?]."""
    try:
        with open(path, "rb") as file:
            first = file.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return []
    if not first.startswith(b"#!"):
        return []
    return [os.fsdecode(part) for part in first[2:].strip().split(None, 1)]


def explain(stage: str, number: int, path: str, cwd: str) -> Refused:
    """Why a start failed, for a person, with the exit code that a shell would give."""
    why = os.strerror(number)
    if stage == "cwd":
        return Refused(126, f"can't start in the folder {cwd}: {why}")
    if stage != "exec":
        return Refused(126, f"can't prepare the start of {path} ({stage}): {why}")
    if number == errno.ENOENT:
        if not os.path.exists(path):
            return Refused(127, f"there is no program {path}")
        script = shebang(path)
        if script:
            return Refused(127, f"{path} is there, but its interpreter {script[0]} is not")
        return Refused(127, f"{path} is there, but the loader it names is not")
    if number == errno.EACCES:
        if os.path.isdir(path):
            return Refused(126, f"{path} is a folder, not a program")
        script = shebang(path)
        if script and os.access(path, os.X_OK):
            return Refused(126, f"{path}: its interpreter {script[0]} may not be executed")
        return Refused(126, f"{path} may not be executed: {why}")
    if number == errno.ENOEXEC:
        return Refused(126, f"{path} is not a program of this machine (no '#!' line, no binary)")
    return Refused(126, f"can't start {path}: {why}")

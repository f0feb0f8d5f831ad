"""Starting a program from a shim or a keeper: fork, prepare, exec, and why it failed.

Standard library only. The caller must be single-threaded, as those are: between fork and
exec this is ordinary Python.
"""

from __future__ import annotations

import errno
import os
import signal

from handoff.process.facts import LINUX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
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
#: what fails because there is no room for a process, whichever program it would be
_NO_ROOM = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
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
    bound: bool = True,
) -> Child | Refused:
    """Start argv in its own session, with three pipes, or with ``control`` a fourth, which
    the child writes to as descriptor 3.

    cgroup: a cgroup v2 folder to join first, or "". identity: the user, group and further
    groups to become; None stays as we are. exact: ``cwd`` is a path without links, and none is
    followed. program: the file to start, "" for what argv names. bound: on Linux the child
    dies with us; without it a start takes a third of the time, because nothing of us is copied.

    Raises:
        OSError: there is no room for pipes or a process; nothing was started.
    """
    path = program or find(argv[0], env.get("PATH", ""), cwd)
    if "/" not in path:  # exec would take it for a file in the folder
        return Refused(127, f"there is no program {path}")
    pipes = _pipes(4 if control else 3)
    # theirs: what becomes 0, 1, 2 and 3 of the child
    theirs = [pipes[0][0], *(one[1] for one in pipes[1:])]
    ours = [pipes[0][1], *(one[0] for one in pipes[1:])]
    try:
        started: int | tuple[str, int] | None = None
        if LINUX and not bound and identity is None and not cgroup:
            started = _spawned(path, argv, cwd, env, umask, theirs, exact)
        if started is None:
            started = _forked(path, argv, cwd, env, umask, theirs, exact, cgroup, identity)
        if isinstance(started, tuple):
            if started[1] in _NO_ROOM and not bound:
                raise OSError(started[1], os.strerror(started[1]))
            _close(ours)
            return explain(*started, path, cwd)
    except BaseException:
        _close(ours)
        raise
    finally:
        _close(theirs)
    for fd in ours:
        os.set_blocking(fd, False)
    return Child(started, *ours)


def _pipes(count: int) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    try:
        while len(made) < count:
            made.append(os.pipe())
    except OSError:
        for one in made:
            _close(one)
        raise
    return made


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _spawned(
    path: str,
    argv: list[str],
    cwd: str,
    env: dict[str, str],
    umask: int,
    theirs: list[int],
    exact: bool,
) -> int | tuple[str, int] | None:
    """A start that copies nothing of us: the child's pid, or where it failed with which errno;
    None if this system has no such way. posix_spawn knows neither folder nor umask, so they
    are ours for that moment."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    here = os.open(".", flags)
    before = os.umask(umask)
    try:
        try:
            (enter if exact else os.chdir)(cwd)
        except OSError as error:
            return "cwd", error.errno or errno.EINVAL
        return os.posix_spawn(
            path,
            argv,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(theirs)],
            setsid=True,
            setsigdef=_RESTORED,
        )
    except NotImplementedError:  # by the C library that Python was made with
        return None
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        return "exec", error.errno or errno.EINVAL
    except ValueError:  # words that no program can be given
        return "exec", errno.EINVAL
    finally:
        os.umask(before)
        try:
            os.fchdir(here)
        except OSError as error:  # whatever we did next would be done in the wrong place
            raise RuntimeError(f"there is no way back to our folder: {error}") from error
        finally:
            os.close(here)


def _forked(
    path: str,
    argv: list[str],
    cwd: str,
    env: dict[str, str],
    umask: int,
    theirs: list[int],
    exact: bool,
    cgroup: str,
    identity: tuple[int, int, list[int]] | None,
) -> int | tuple[str, int]:
    """A start in a copy of us, which can do anything before it becomes the program: the
    child's pid, or where it failed with which errno."""
    status = os.pipe()
    prctl = _prctl()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        _close(status)
        raise
    if pid == 0:
        stage, tell = b"setup", status[1]
        try:
            os.setsid()
            if tell < len(theirs):
                tell = os.dup(tell)
            for at, fd in enumerate(theirs):
                os.dup2(fd, at)
                os.set_inheritable(at, True)
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
            _tell(tell, stage, error)
    os.close(status[1])
    failed = b""
    while part := os.read(status[0], 256):
        failed += part
    os.close(status[0])
    if not failed:
        return pid
    os.waitpid(pid, 0)
    where, _, why = failed.partition(b" ")
    return where.decode(), int(why)


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

"""One git process: started in a group of its own, read within limits, ended whole.
Standard library only."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from handoff.errors import GitError, GitMissing, NotARepository, TooLarge
from handoff.workspace.explain import explain, timed_out

#: bytes of standard error that are kept, from its end
STDERR_LIMIT = 16 * 1024
#: seconds that a pipe held open by somebody else is waited for after git itself ended
DRAIN_LIMIT = 0.5
#: seconds between SIGTERM (git removes its lock files) and SIGKILL
GRACE = 1.0
#: bytes read at once
CHUNK = 64 * 1024


@dataclass(frozen=True)
class Result:
    """What one call gave. ``out``: standard output as it is; ``err``: the end of standard
    error as text."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """The output as text without its last newline; bytes that are not UTF-8 become
        surrogate escapes, so that ``os.fsencode`` gives them back."""
        return self.out.removesuffix(b"\n").decode("utf-8", "surrogateescape")

    @property
    def records(self) -> list[str]:
        """The NUL-terminated records of a ``-z`` output, as in :attr:`text`."""
        return [r.decode("utf-8", "surrogateescape") for r in self.out.split(b"\0")[:-1]]


def program() -> str:
    """The absolute path of git.

    Raises:
        GitMissing: none on PATH.
    """
    found = shutil.which("git")
    if found is None:
        raise GitMissing(
            "there is no git on PATH",
            remedy="install git 2.38 or newer, or add its folder to PATH",
            path=os.environ.get("PATH", ""),
        )
    return found


def start(
    args: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    *,
    stdin: bytes = b"",
    keep_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start ``git <args>`` in its own session with both outputs piped.

    Raises:
        NotARepository: ``cwd`` does not exist.
        GitError: the folder can't be entered, or an argument holds a NUL.
    """
    if not os.path.isdir(cwd):
        raise NotARepository(
            f"the folder {cwd} does not exist", remedy="give a folder that exists", folder=cwd
        )
    path = program()
    with contextlib.ExitStack() as stack:
        source = subprocess.DEVNULL
        if stdin:
            # A file can't dead-lock, whatever git reads or does not read of it.
            file = stack.enter_context(tempfile.TemporaryFile())
            file.write(stdin)
            file.seek(0)
            source = file.fileno()
        try:
            return subprocess.Popen(
                [path, *args],
                cwd=cwd,
                env=env,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=tuple(keep_fds),
            )
        except (PermissionError, FileNotFoundError) as error:
            raise GitError(
                f"can't run git in {cwd}: {error.strerror}",
                remedy=f"make {cwd} readable for the user that runs agentd",
            ) from error
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            raise TooLarge(f"{len(args)} arguments are too many for git") from error
        except ValueError as error:
            raise GitError(f"git can't take such an argument: {error}") from error


def collect(
    proc: subprocess.Popen[bytes], args: Sequence[str], seconds: float, max_bytes: int
) -> Result:
    """Both streams, once git has ended.

    Raises:
        TimedOut: ``seconds`` passed.
        TooLarge: it wrote more than ``max_bytes``.
    """
    out = bytearray()
    tail = bytearray()
    deadline = time.monotonic() + seconds
    finished = False
    try:
        for data in _chunks(proc, args, tail, seconds, deadline):
            out += data
            if len(out) > max_bytes:
                raise TooLarge(f"git wrote more than {max_bytes} bytes", limit=max_bytes)
        finished = True
    finally:
        code = _finish(proc, killing=not finished)
    return Result(code, bytes(out), tail.decode("utf-8", "replace"))


def chunks(
    proc: subprocess.Popen[bytes],
    args: Sequence[str],
    cwd: str,
    idle_seconds: float,
    ok: Sequence[int],
) -> Generator[bytes, None, None]:
    """Standard output as git writes it, at most :data:`CHUNK` bytes each; closing the
    iterator ends git.

    Raises:
        TimedOut: git was silent for ``idle_seconds``.
        GitError: it ended with a code that is not ``ok``.
    """
    tail = bytearray()
    finished = False
    try:
        yield from _chunks(proc, args, tail, idle_seconds, None)
        finished = True
    finally:
        code = _finish(proc, killing=not finished)
    if code not in ok:
        raise explain(args, cwd, code, tail.decode("utf-8", "replace"))


def _chunks(
    proc: subprocess.Popen[bytes],
    args: Sequence[str],
    tail: bytearray,
    seconds: float,
    deadline: float | None,
) -> Generator[bytes, None, None]:
    """Standard output in chunks until git has ended. Without a deadline, ``seconds``
    counts anew after each chunk, and the consumer's time is its own."""
    assert proc.stdout is not None
    assert proc.stderr is not None
    until = deadline if deadline is not None else time.monotonic() + seconds
    ended_at: float | None = None
    with selectors.DefaultSelector() as selector:
        for pipe in (proc.stdout, proc.stderr):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise timed_out(args, seconds)
            for key, _ in selector.select(min(left, 0.1)):
                data = os.read(key.fd, CHUNK)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fileobj is proc.stderr:
                    tail += data
                    del tail[: max(0, len(tail) - STDERR_LIMIT)]
                else:
                    yield data
                    until = deadline if deadline is not None else time.monotonic() + seconds
            if ended_at is None and _exited(proc):
                ended_at = time.monotonic()
            if ended_at is not None and time.monotonic() - ended_at > DRAIN_LIMIT:
                break  # somebody else holds the pipe
    while not _exited(proc):
        if time.monotonic() > until:
            raise timed_out(args, seconds)
        time.sleep(0.0005)


def _exited(proc: subprocess.Popen[bytes]) -> bool:
    """Whether git itself has ended, without reaping it: its process group stays named."""
    if proc.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return proc.poll() is not None
    try:
        return os.waitid(os.P_PID, proc.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def _finish(proc: subprocess.Popen[bytes], *, killing: bool) -> int:
    """Close the pipes, end what is left of the process group, reap."""
    for pipe in (proc.stdout, proc.stderr):
        if pipe is not None:
            pipe.close()
    if killing and not _exited(proc):
        _signal_group(proc, signal.SIGTERM)
        give_up = time.monotonic() + GRACE
        while time.monotonic() < give_up and not _exited(proc):
            time.sleep(0.005)
    # Git has ended or was told to: whatever it left behind in its group ends now.
    _signal_group(proc, signal.SIGKILL)
    return proc.wait()


def _signal_group(proc: subprocess.Popen[bytes], number: int) -> None:
    if proc.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(proc.pid, number)

"""Commands for nodes of the older kind, written in Go, so that they mean what ours mean.

Such a node feeds every command to one interactive shell: a command that reads its input
swallows the frame behind it, ``exit`` ends the shell for all later calls, variables are
ignored, a folder that is missing is not noticed, and nothing is ended when the time is over.
So a command goes wrapped: in a shell of its own below that one, its input empty, both
streams in one, its folder a condition, its variables set, under ``timeout`` where there is
one; and one newline at the end, which the node needs and which is taken off again.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from handoff.errors import BadRequest, UnsupportedByPeer
from handoff.wire.node.calls import Call, CallFailed, Exec, ExecResult, Output, Result, Write

__all__ = ["LONGEST_MS", "Shim", "as_it_can"]

#: ms after which such a node loses its link during a command: it reads nothing meanwhile
LONGEST_MS = 80_000
#: ms beyond a command's limit that the node itself waits
BEYOND_MS = 5_000
#: exit codes: the folder is missing; ``timeout`` ended it, by TERM or by KILL
_NO_FOLDER, _TIMED_OUT = 213, frozenset({124, 137})


class Shim:
    """One wrapped command. :meth:`piece` and :meth:`result` take what was added off again."""

    def __init__(self, call: Exec, mark: str) -> None:
        self._mark = mark.encode()
        self._cut = call.timeout_ms > LONGEST_MS
        self._limit_ms = min(call.timeout_ms, LONGEST_MS)
        self._cwd = call.cwd
        self._held = b""
        self.call = replace(
            call,
            command=_wrapped(call, mark, self._limit_ms),
            argv=(),
            cwd="",
            env={},
            timeout_ms=self._limit_ms + BEYOND_MS,
        )

    def piece(self, data: bytes) -> bytes:
        """A piece of the output without its last byte, which may be the added one."""
        whole = self._held + data
        self._held = whole[-1:]
        return whole[:-1]

    def rest(self) -> bytes:
        """What was held back and is the command's own."""
        held, self._held = self._held, b""
        return b"" if held == b"\n" else held

    def result(self, result: Result) -> Result:
        """What the answer means."""
        if not isinstance(result, ExecResult):
            return result
        out = _without_newline(result.stdout)
        if result.exit_code == _NO_FOLDER and out.head.strip() == self._mark:
            return CallFailed(
                "file_not_found", f"the folder {self._cwd} does not exist on the node",
                "give another", retry_safe=True,
            )  # fmt: skip
        made = replace(result, stdout=out, stderr=Output())
        if result.exit_code in _TIMED_OUT and result.duration_ms >= self._limit_ms:
            made = replace(
                made, status="timeout", exit_code=None, ended_by="timeout", still_holding=False
            )
        elif result.exit_code is not None and result.exit_code > 128:
            note = "the node can't tell a signal from an exit code above 128"
            made = replace(made, note="; ".join(filter(None, (result.note, note))))
        if self._cut and made.status == "timeout":
            note = f"a node of this kind keeps its link for {LONGEST_MS // 1000} s of a command"
            made = replace(made, note="; ".join(filter(None, (made.note, note))))
        return made


def as_it_can(call: Call, mark: str) -> tuple[Call, Shim | None]:
    """The call for a node of the older kind. ``mark``: a word that no command writes.

    Raises:
        UnsupportedByPeer: it can't be done there.
        BadRequest: a variable's name is none that a shell takes.
    """
    if isinstance(call, Write) and call.stream:
        raise UnsupportedByPeer(
            "a node of the older kind takes no more than 256 KiB of a file at once",
            remedy="write the rest with mode append",
        )
    if isinstance(call, Write) and not call.data and call.mode != "append":
        raise UnsupportedByPeer(
            "a node of the older kind can't write an empty file",
            remedy=f"run there: : > {shlex.quote(call.path)}",
        )
    if not isinstance(call, Exec):
        return call, None
    shim = Shim(call, mark)
    return shim.call, shim


def _wrapped(call: Exec, mark: str, limit_ms: int) -> str:
    command = shlex.join(call.argv) if call.argv else call.command
    parts = []
    if call.cwd:
        parts.append(
            f"cd -- {_folder(call.cwd)} 2>/dev/null || {{ echo {mark}; exit {_NO_FOLDER}; }}"
        )
    for name, value in call.env.items():
        if not (name.isascii() and name.isidentifier()):
            raise BadRequest(f"'{name[:64]}' is no name of a shell variable", field="env")
        parts.append(f"export {name}={shlex.quote(value)}")
    inner = f"bash -c {shlex.quote(command)}"
    limit = f"{limit_ms / 1000:g}"
    parts.append(f"if command -v timeout >/dev/null; then exec timeout -k 2 {limit} {inner}; fi")
    parts.append(f"exec {inner}")
    body = "\n".join(parts)
    return f"( {body}\n) </dev/null 2>&1; __rc=$?; printf '\\n'; ( exit $__rc )"


def _folder(path: str) -> str:
    """A folder for the shell: it expands the tilde that the node does not."""
    if path == "~" or path.startswith("~/"):
        return '"$HOME"' + shlex.quote(path[1:]) if path[1:] else '"$HOME"'
    return shlex.quote(path)


def _without_newline(out: Output) -> Output:
    """The output without the newline at its end; as it is if there is none."""
    if out.tail:
        if not out.tail.endswith(b"\n"):
            return out
        return replace(out, tail=out.tail[:-1], bytes_total=out.bytes_total - 1)
    if out.head.endswith(b"\n"):
        return replace(out, head=out.head[:-1], bytes_total=out.bytes_total - 1)
    if not out.head and out.streamed and out.bytes_total:
        return replace(out, bytes_total=out.bytes_total - 1)
    return out

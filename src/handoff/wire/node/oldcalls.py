"""Our calls in the old vocabulary, both ways.

A brain speaks it to Go nodes, a node to the plugin's server. Only commands, whole files in
and whole files out can be said in it; what can't raises
:class:`~handoff.errors.UnsupportedByPeer`. Nothing that went wrong on the other side
becomes a success here, and the other way round.
"""

from __future__ import annotations

from handoff.errors import BadRequest, UnsupportedByPeer
from handoff.wire.node.calls import (
    Call,
    CallFailed,
    Exec,
    ExecResult,
    Output,
    Read,
    ReadResult,
    Result,
    Write,
    WriteResult,
)
from handoff.wire.node.messages import (
    LEGACY_FILE_LIMIT,
    ErrorMessage,
    Message,
    OldExec,
    OldExecResult,
    OldRead,
    OldReadResult,
    OldWrite,
    OldWriteResult,
)

__all__ = ["CODES", "Chunks", "from_old", "from_old_result", "to_old", "to_old_result"]

#: numbers of the ``error`` message
CODES = {"bad_request": 4000, "internal_error": 5000, "unknown_message": 5001}
#: a Go node's bounds and default of ``timeout_ms``
TIMEOUT_MS, LEAST_MS, MOST_MS = 60_000, 1_000, 600_000
#: bytes of each output stream that a result of the old vocabulary holds
OUTPUT_LIMIT = 10 * 1024 * 1024
#: what a read or write may name as its error; anything else goes as io_error, with its code
_FILE_ERRORS = frozenset({"path_not_allowed", "file_not_found", "file_too_large", "io_error"})
_EXEC_STATUS = frozenset({"ok", "error", "timeout"})


# -- brain: our call to their message, their result to ours ------------------------------


def to_old(call: Call, number: str) -> Message:
    """The message that asks a Go node for the call.

    Raises:
        UnsupportedByPeer: the old vocabulary can't say it.
    """
    _check_utf8(call)
    if isinstance(call, Exec):
        if call.argv or call.job or call.shell or call.stdin != "none":
            raise UnsupportedByPeer(
                "this node takes command lines only: no argument lists, input, jobs or shells"
            )
        timeout = max(LEAST_MS, min(MOST_MS, call.timeout_ms))
        return OldExec(number, call.command, call.cwd, dict(call.env), timeout)
    if isinstance(call, Read):
        return OldRead(number, call.path)
    if isinstance(call, Write) and not call.stream:
        if call.if_match or call.parents or call.permissions != -1 or call.mtime_ns != -1:
            raise UnsupportedByPeer("this node can only write a file's content")
        if len(call.data) > LEGACY_FILE_LIMIT:
            raise UnsupportedByPeer("this node takes files of up to 10 MiB")
        return OldWrite(number, call.path, call.data, call.mode)
    raise UnsupportedByPeer(f"this node can't do '{call.op}'")


def _check_utf8(call: Call) -> None:
    """The old vocabulary has text only: another name than the one meant is never sent."""
    said: list[str] = []
    if isinstance(call, Exec):
        said = [call.command, call.cwd, *call.env, *call.env.values()]
    elif isinstance(call, Read | Write):
        said = [call.path]
    try:
        "".join(said).encode()
    except UnicodeEncodeError:
        raise UnsupportedByPeer("this node takes names and commands in UTF-8 only") from None


def from_old_result(call: Call, message: Message) -> Result:
    """What a Go node's answer means. An answer to another kind of call is a failure."""
    if isinstance(message, ErrorMessage):
        code = message.reason or "internal_error"
        return CallFailed(code, message.detail or f"the node answered {message.code}")
    if isinstance(call, Exec) and isinstance(message, OldExecResult):
        return _exec_result(message)
    if isinstance(call, Read) and isinstance(message, OldReadResult):
        if message.status != "ok":
            return _file_failed(message.error, message.error_detail, message.status)
        return _read_result(call, message)
    if isinstance(call, Write) and isinstance(message, OldWriteResult):
        if message.status != "ok":
            return _file_failed(message.error, message.error_detail, message.status)
        return WriteResult(bytes_written=message.bytes_written)
    return _strange(f"the node answered '{call.op}' with '{message.type}'")


def _strange(cause: str) -> CallFailed:
    return CallFailed("protocol_violation", cause)


def _file_failed(error: str, detail: str, status: str) -> CallFailed:
    if status != "error":
        return _strange(f"the node answered with the status '{status[:32]}'")
    return CallFailed(error or "io_error", detail or error or "the node gave no reason")


def _exec_result(message: OldExecResult) -> Result:
    if message.status not in _EXEC_STATUS:
        return _strange(f"the node answered with the status '{message.status[:32]}'")
    return _ended(
        message.status,
        message.exit_code,
        message.duration_ms,
        _output(message.stdout.encode()),
        _output(message.stderr.encode()),
        truncated=message.truncated,
    )


def _output(data: bytes) -> Output:
    return Output(bytes_total=len(data), head=data)


def _ended(
    status: str, code: int, duration_ms: int, stdout: Output, stderr: Output, *, truncated: bool
) -> ExecResult:
    # -1 is no exit code: the shell was lost, the folder refused, or the time was over.
    exited = code if code >= 0 and status != "timeout" else None
    if status == "ok" and code != 0:
        status = "error"
    notes = []
    if truncated:
        notes.append("the node cut the output and does not say how much is missing")
    if exited is None and status == "error":
        notes.append("the node could not run the command, or lost its shell")
    if status == "timeout":
        notes.append("a Go node does not end what it started: it may still run")
    return ExecResult(
        status=status,
        exit_code=exited,
        stdout=stdout,
        stderr=stderr,
        duration_ms=duration_ms,
        ended_by={"timeout": "timeout", "error": "exit" if exited is not None else "unknown"}.get(
            status, "exit"
        ),
        still_holding=status == "timeout",
        note="; ".join(notes),
    )


def _read_result(call: Read, message: OldReadResult) -> ReadResult:
    whole = message.content_b64
    end = len(whole) if call.length < 0 else call.offset + call.length
    data = whole[call.offset : end]
    return ReadResult(
        data=data,
        offset=call.offset,
        size=len(whole),
        eof=call.offset + len(data) >= len(whole),
        lines=data.count(b"\n"),
        utf8=_is_utf8(data),
    )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class Chunks:
    """``exec_chunk`` messages of one call, put together: the first and last bytes, exact
    counts, one end. What comes after the end, or doubled, is ignored."""

    __slots__ = ("_call", "_head", "_next", "_tail", "ended", "total")

    def __init__(self, call: Exec) -> None:
        self._call = call
        self._head = b""
        self._tail = b""
        self._next = 1
        self.total = 0
        self.ended = False

    def take(self, seq: int, data: bytes) -> bool:
        """Whether the piece is the next one, and was taken."""
        if self.ended or seq != self._next:
            return False
        self._next += 1
        self.total += len(data)
        room = self._call.head_bytes - len(self._head)
        self._head += data[:room]
        rest = data[max(0, room) :]
        if rest and self._call.tail_bytes:
            self._tail = (self._tail + rest)[-self._call.tail_bytes :]
        return True

    def result(
        self, status: str, code: int, duration_ms: int, *, truncated: bool, streamed: bool
    ) -> Result:
        """The result that the last piece stands for."""
        self.ended = True
        if status not in _EXEC_STATUS:
            return _strange(f"the node ended a stream with the status '{status[:32]}'")
        stdout = Output(self.total, self._head, self._tail, streamed=streamed)
        return _ended(status, code, duration_ms, stdout, Output(), truncated=truncated)


# -- node: their message to our call, our result to theirs -------------------------------


def from_old(message: Message) -> Call:
    """The call that an old brain asks for. A read answers with a stream; the link turns it
    into one message.

    Raises:
        BadRequest: something that is needed is missing.
    """
    if isinstance(message, OldExec):
        if not message.command.strip():
            raise BadRequest("'command' is empty", field="command")
        timeout = max(LEAST_MS, min(MOST_MS, message.timeout_ms or TIMEOUT_MS))
        return Exec(
            command=message.command,
            cwd=message.cwd,
            env=message.env,
            timeout_ms=timeout,
            head_bytes=OUTPUT_LIMIT // 2,
            tail_bytes=OUTPUT_LIMIT // 2,
        )
    if isinstance(message, OldRead):
        _need_path(message.path)
        return Read(path=message.path, stream=True)
    if isinstance(message, OldWrite):
        _need_path(message.path)
        if len(message.content_b64) > LEGACY_FILE_LIMIT:
            raise BadRequest("the content has more than 10 MiB", field="content_b64")
        mode = message.mode or "overwrite"
        if mode not in {"create", "overwrite", "append"}:
            raise BadRequest(f"there is no mode '{mode[:32]}'", field="mode")
        return Write(path=message.path, data=message.content_b64, mode=mode)
    raise BadRequest(f"'{message.type}' is no call")


def _need_path(path: str) -> None:
    if not path or "\0" in path:
        raise BadRequest("'path' is empty", field="path")


def to_old_result(
    call: Call, number: str, result: Result, content: bytes, *, plugin: bool
) -> Message:
    """The message that answers an old brain. ``content``: what the read streamed."""
    if isinstance(call, Exec):
        return _old_exec_result(number, result, plugin)
    failed = result if isinstance(result, CallFailed) else None
    error = failed.code if failed else ""
    detail = failed.error if failed else ""
    if failed and error not in _FILE_ERRORS:
        error, detail = "io_error", f"{error}: {detail}"
    status = "error" if failed else "ok"
    if isinstance(call, Read):
        body = b"" if failed else content
        return OldReadResult(number, status, body, len(body), error, detail)
    written = result.bytes_written if isinstance(result, WriteResult) else 0
    return OldWriteResult(number, status, written, error, detail)


def _old_exec_result(number: str, result: Result, plugin: bool) -> Message:
    if isinstance(result, CallFailed):
        said = "\n".join(part for part in (result.error or result.code, result.remedy) if part)
        code = _NOT_RUN
        return OldExecResult(
            number, "error", -1, "", said + "\n", returncode=code if plugin else None
        )
    assert isinstance(result, ExecResult)
    code = result.exit_code if result.exit_code is not None else -1
    if result.signal:
        code = 128 + result.signal
    status = {"ok": "ok", "timeout": "timeout"}.get(result.status, "error")
    stderr = _text(result.stderr)
    if result.status not in _EXEC_STATUS:
        stderr += f"{result.status}\n"
    if result.note:
        stderr += f"{result.note}\n"
    # The plugin's tool shows this number and looks at no status.
    shown = _TIMED_OUT if result.status == "timeout" else (_NOT_RUN if code < 0 else code)
    return OldExecResult(
        number,
        status,
        -1 if status == "timeout" else code,
        _text(result.stdout),
        stderr,
        result.duration_ms,
        result.stdout.cut > 0 or result.stderr.cut > 0,
        shown if plugin else None,
    )


#: what a shell says of a command that could not be run, and ``timeout`` of one it ended
_NOT_RUN, _TIMED_OUT = 126, 124


def _text(output: Output) -> str:
    whole = output.head + output.tail
    if output.cut > 0:
        mark = f"\n[{output.cut} bytes are missing here]\n".encode()
        whole = output.head + mark + output.tail
    return whole.decode("utf-8", "replace")

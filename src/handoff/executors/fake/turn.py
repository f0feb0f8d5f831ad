"""One turn of the fake executor: what every step may use."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from typing import Any

from handoff.executors.fake.peer import Peer, Pending
from handoff.executors.fake.script import Step
from handoff.executors.fake.session import Session

#: bytes of a command's output that are told to the client
_OUTPUT = 64 * 1024
#: characters of one text chunk, so that text streams as a model's does
_CHUNK = 400

OPTIONS = (
    {"optionId": "always", "kind": "allow_always", "name": "Always allow"},
    {"optionId": "go", "kind": "allow_once", "name": "Allow once"},
    {"optionId": "no", "kind": "reject_once", "name": "Reject"},
    {"optionId": "never", "kind": "reject_always", "name": "Always reject"},
)


class EndTurn(Exception):
    """The turn ends here with that stop reason; the remaining steps are kept."""

    def __init__(self, reason: str = "end_turn", *, trailer: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.trailer = trailer


class FailTurn(Exception):
    """The prompt is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Turn:
    """A prompt being played."""

    def __init__(
        self, peer: Peer, session: Session, prompt: str, *, elicits: bool, log: str | None
    ) -> None:
        self.peer = peer
        self.session = session
        self.prompt = prompt
        self.elicits = elicits
        self.cancelled = threading.Event()
        self.left: list[Step] = []
        #: None: the truthful trailer; otherwise the arguments of the ``trailer`` step
        self.trailer: dict[str, Any] | None = None
        #: the ``usage`` of the prompt's answer, if the script gives one
        self.usage: dict[str, int] | None = None
        self.parent: str | None = None
        #: whether the last text left its line unfinished
        self.line_open = False
        #: set by ``hang``: the process reads nothing any more
        self.deaf = threading.Event()
        self._log = log

    # -- telling ---------------------------------------------------------------------

    def update(self, session_update: str, /, **fields: Any) -> None:
        """One ``session/update``."""
        body: dict[str, Any] = {"sessionUpdate": session_update, **fields}
        if self.parent is not None:
            body.setdefault("_meta", {})["claudeCode"] = {"parentToolUseId": self.parent}
        self.peer.notify("session/update", {"sessionId": self.session.session_id, "update": body})

    def say(self, text: str, *, thought: bool = False, chunk: int = _CHUNK) -> None:
        """Text of the model, in chunks."""
        kind = "agent_thought_chunk" if thought else "agent_message_chunk"
        for start in range(0, len(text), chunk):
            self.update(kind, content={"type": "text", "text": text[start : start + chunk]})
        if not thought and text:
            self.line_open = not text.endswith("\n")
            self.session.remember("agent", text)

    def log(self, what: str, **facts: Any) -> None:
        """One JSON line in the log that ``HANDOFF_FAKE_LOG`` names."""
        if self._log is None:
            return
        line = json.dumps({"at": time.time(), "what": what, "pid": os.getpid(), **facts})
        with open(self._log, "a", encoding="utf-8") as handle:
            handle.write(line + "\n")

    # -- tools -----------------------------------------------------------------------

    def call_id(self) -> str:
        """A fresh tool call id."""
        self.session.calls += 1
        return f"call_{self.session.calls}"

    def begin(self, kind: str, title: str, raw: dict[str, Any], **fields: Any) -> str:
        """Announce a tool call; its id."""
        call = self.call_id()
        self.update(
            "tool_call",
            toolCallId=call,
            title=title,
            kind=kind,
            status="pending",
            rawInput=raw,
            **fields,
        )
        return call

    def progress(self, call: str, status: str, output: str | None = None) -> None:
        """A tool call has changed."""
        fields: dict[str, Any] = {}
        if output is not None:
            fields["content"] = [{"type": "content", "content": {"type": "text", "text": output}}]
        self.update("tool_call_update", toolCallId=call, status=status, **fields)

    def ask_permission(
        self,
        call: str,
        kind: str,
        title: str,
        raw: dict[str, Any],
        *,
        content: list[dict[str, Any]] | None = None,
        paths: tuple[str, ...] = (),
        options: Any = None,
    ) -> Pending:
        """Send the request; :meth:`allowed` waits for the answer."""
        offered = [o for o in OPTIONS if options is None or o["kind"] in options]
        tool: dict[str, Any] = {
            "toolCallId": call,
            "title": title,
            "kind": kind,
            "status": "pending",
            "rawInput": raw,
        }
        if content:
            tool["content"] = content
        if paths:
            tool["locations"] = [{"path": path} for path in paths]
        params: dict[str, Any] = {
            "sessionId": self.session.session_id,
            "toolCall": tool,
            "options": offered,
        }
        if self.parent is not None:
            params["_meta"] = {"claudeCode": {"parentToolUseId": self.parent}}
        self.log("permission_asked", call=call, title=title[:200])
        return self.peer.request("session/request_permission", params)

    def allowed(self, pending: Pending, call: str) -> bool:
        """Wait for the answer to a permission.

        Raises:
            EndTurn: the turn was cancelled meanwhile.
        """
        pending.done.wait()
        outcome = pending.result.get("outcome") if isinstance(pending.result, dict) else None
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        kinds = {option["optionId"]: option["kind"] for option in OPTIONS}
        kind = kinds.get(str(chosen), "cancelled")
        self.log("permission_answered", call=call, kind=kind)
        if self.cancelled.is_set() or pending.cancelled:
            self.progress(call, "failed", "cancelled")
            raise EndTurn("cancelled")
        return kind.startswith("allow")

    def denied(self, call: str, args: dict[str, Any]) -> None:
        """A permission was denied: go on, or end the turn as the script wants.

        Raises:
            EndTurn: ``on_deny`` says so.
        """
        self.progress(call, "failed", "The coordinator denied this.")
        how = str(args.get("on_deny", "go_on"))
        if how == "cancelled":
            raise EndTurn("cancelled")
        if how == "end":
            raise EndTurn("end_turn")

    # -- doing -----------------------------------------------------------------------

    def path(self, given: Any) -> str:
        """A path as the executor's tools take it: relative to the working directory."""
        return os.path.join(self.session.cwd, os.path.expanduser(str(given)))

    def execute(self, command: str, *, timeout: float | None = None) -> tuple[int, str]:
        """Run a shell command in the working directory; exit code and output.

        Only the shell itself is waited for: what it leaves behind may hold the output
        open for ever. A cancelled turn ends the command's process group.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=self.session.cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            while True:
                try:
                    child.wait(0.1)
                    break
                except subprocess.TimeoutExpired:
                    late = deadline is not None and time.monotonic() > deadline
                    if self.cancelled.is_set() or late:
                        _kill_group(child)
            size = out.seek(0, os.SEEK_END)
            out.seek(max(0, size - _OUTPUT))
            text = out.read().decode("utf-8", "replace")
        if size > _OUTPUT:
            text = f"[{size - _OUTPUT} bytes left out]\n{text}"
        if self.cancelled.is_set():
            raise EndTurn("cancelled")
        return child.returncode, text

    def git(self, *args: str, check: bool = True, text: str | None = None) -> str:
        """Run git in the working directory; its output without the last newline.

        Raises:
            FailTurn: it failed, and ``check`` is set.
        """
        done = subprocess.run(
            ["git", *args],
            cwd=self.session.cwd,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
        if done.returncode and check:
            raise FailTurn(-32603, f"git {args[0]} failed: {done.stderr.strip()}")
        return done.stdout.rstrip("\n")


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, 9)
    except ProcessLookupError:
        pass
    child.wait()

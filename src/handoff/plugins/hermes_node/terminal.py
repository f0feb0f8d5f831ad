"""The host's own terminal and file tools on a node (Hermes 0.22 and newer).

``terminal.backend: hermes_node`` chooses it, the setting ``terminal_node`` names the node.
It is a real machine, not a container: the host goes on asking before dangerous commands.
"""

from __future__ import annotations

import importlib
import os
import re
import secrets
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from handoff.errors import BadRequest, HandoffError, OutcomeUnknown

from . import results
from .calling import Ask, ask, key_of
from .runtime import Runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.nodes.client import BrainClient

__all__ = ["BACKEND", "NodeEnvironment", "make_provider", "wrapped"]

BACKEND = "hermes_node"
#: what a call that could not be made, or of which nobody knows the end, has for an exit code
NOT_DONE = 255
#: bytes of output that the host's own tools may take in whole
MOST = 64 * 1024 * 1024
#: bytes of each stream where the host wants start and end alone
KEPT = 128 * 1024
INLINE = 256 * 1024
#: why a command was not run in the folder that it was to begin in
_NO_FOLDER = frozenset({"file_not_found", "path_not_allowed", "not_a_regular_file"})
#: s, of a command without a limit of the host's
LIMIT_S = 180
#: lines that a shell has to do itself, since they change what comes after
_OWN = ("cd", "pushd", "popd", "exit", "exec", "export", "set", ".", "source")
#: how the host starts what is to outlive the call that starts it: where it writes, what runs
#: and where its output goes, how its end is told, and where its process id is kept
_OUTLIVES = re.compile(
    r"(mkdir -p .+?) && \( (nohup bash -lc .+) > (\S+) 2>&1; (rc=\$\?; printf .+) \) & "
    r"echo \$! > (\S+) && cat \5",
    re.DOTALL,
)


def make_provider(runtime: Runtime) -> Any:
    """The provider, a subclass of the host's. Raises ImportError if it has none."""
    base = importlib.import_module("agent.terminal_env_provider").TerminalEnvironmentProvider

    def node() -> str:
        return runtime.setting("terminal_node")

    def create(_: Any, *, cwd: str, timeout: int, **kwargs: Any) -> NodeEnvironment:
        return NodeEnvironment(runtime, node(), cwd, timeout, str(kwargs.get("task_id") or ""))

    def health(_: Any) -> tuple[str, str]:
        if not node():
            return "needs_setup", "no setting terminal_node"
        return "ready", node()

    def doctor(_: Any) -> list[tuple[bool, str, str]]:
        return [(bool(node()), "node for the terminal", node() or "set terminal_node")]

    members: dict[str, Any] = {
        "__doc__": "Commands of a profile's built-in tools on one of its nodes.",
        "name": BACKEND,
        "display_name": "Remote node",
        "description": "Run commands on a machine that dials in to this profile.",
        "env_description": "a remote machine (a node of this profile)",
        "is_remote": True,
        "is_container": False,
        "skip_container_guards": False,
        "cache_path_base": None,
        "is_available": lambda _: bool(node()),
        "create_environment": create,
        "probe": health,
        "doctor_checks": doctor,
        "setup_instructions": lambda _: [
            "Pair a machine: hermes node pair NAME",
            "Then set plugins.entries.hermes-node-plugin.settings.terminal_node to NAME.",
        ],
    }
    return type("NodeTerminalProvider", (base,), members)()


class NodeEnvironment:
    """What the host runs commands with. :meth:`execute` never raises: the host would run the
    command again."""

    is_local = False

    def __init__(self, runtime: Runtime, node: str, cwd: str, timeout: int, task: str) -> None:
        self._runtime = runtime
        self._node = node
        self._task = task
        #: a folder of the machine that the host runs on: not one of the node's
        self._foreign = {os.path.abspath(os.path.expanduser(cwd or "~")), _cwd()}
        #: the folder to begin in, also where the one that was kept can't be entered any more
        self._first = self.cwd = runtime.setting("terminal_cwd", "~")
        self.timeout = timeout or LIMIT_S
        self.env: dict[str, str] = {}
        self._lock = threading.Lock()

    def get_temp_dir(self) -> str:
        """Where the host's helpers may put files on the node."""
        return "/tmp"  # noqa: S108 - the node's, and what the host's own answer

    def execute(
        self,
        command: str,
        cwd: str = "",
        *,
        timeout: int | None = None,
        stdin_data: str | None = None,
        bounded_capture: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Run a line: ``output`` (both streams) and ``returncode``."""
        del kwargs
        try:
            return self._execute(command, cwd, timeout, stdin_data, bounded_capture)
        except HandoffError as error:
            return _told(results.refusal(error))
        except Exception as error:  # the host takes an exception for a reason to try again
            return _told({"error": f"{type(error).__name__}", "code": "internal"})

    def cleanup(self) -> None:
        """Nothing is left to end: every command is a process of its own."""

    def _execute(
        self, command: str, cwd: str, timeout: int | None, stdin: str | None, bounded: bool
    ) -> dict[str, Any]:
        if not self._node:
            return _told({"error": "no setting terminal_node names a node", "code": "usage"})
        mark = f"--cwd-{secrets.token_hex(8)}-"
        limit = float(timeout or self.timeout)
        line, marked = wrapped(command, mark)
        args: dict[str, Any] = {
            "command": line,
            "cwd": self._place(cwd),
            "timeout_ms": max(1, round(limit * 1000)),
            "head_bytes": KEPT,
            "tail_bytes": KEPT,
        }
        if self.env:
            args["env"] = {str(name): str(value) for name, value in self.env.items()}
        feed: Iterator[bytes] | None = None
        if stdin is not None:
            args["stdin"], feed = _input(args, stdin)
        if outlives := _OUTLIVES.fullmatch(command):
            return self._start(args, outlives)
        whole = _Whole()
        if not bounded:
            args["stream"] = True
        call = Ask(
            self._node,
            "exec",
            args,
            key=key_of("terminal", self._node, {**args, "mark": mark}, {}),
            by={"surface": "hermes terminal", "task_id": self._task},
            limit_s=limit + 60,
            pieces=None if bounded else whole.add,
            feed=feed,
        )
        ok, value = self._asked(call)
        if not ok:
            return self._refused(results.failure(value, call.key), args["cwd"])
        return self._result(value, whole if not bounded else None, mark if marked else "")

    def _asked(self, call: Ask) -> tuple[bool, dict[str, Any]]:
        """The call's answer, also where the brain ends meanwhile: the next one has it, and the
        node the output."""
        client = self._runtime.client()
        try:
            return ask(client, call)
        except OutcomeUnknown:
            if call.pieces is None or call.feed is not None:
                raise
        again = replace(call, pieces=None, args={**call.args, "stream": False})
        ok, value = ask(client, again)
        for stream in ("stdout", "stderr"):
            self._fill(client, value.get(stream) or {} if ok else {})
        return ok, value

    def _fill(self, client: BrainClient, told: dict[str, Any]) -> None:
        """What the answer has not of a stream, as far as its node keeps it."""
        total = int(told.get("bytes_total", 0))
        held = sum(len(results.bytes_of(told.get(one, ""))) for one in ("head", "tail"))
        if held >= total or not told.get("spill"):
            return
        at, got = 0, bytearray()
        while at < min(total, MOST):
            given = {"spill": told["spill"], "offset": at, "length": INLINE}
            ok, value = client.call(self._node, "read_output", given)
            data = results.bytes_of(value.get("data", "")) if ok else b""
            if not data or int(value.get("offset", 0)) != at:
                break
            got += data
            at += len(data)
        if len(got) > held:
            told["head"], told["tail"] = {"b64": b64encode(got).decode()}, ""

    def _start(self, args: dict[str, Any], parts: re.Match[str]) -> dict[str, Any]:
        """A job of the node instead of a process that would be ended with its call; the host
        looks at the same files."""
        folder, program, log, end, pid = parts.groups()
        command = f"{folder}\necho $$ > {pid}\n{program} > {log} 2>&1\n{end}\n"
        given = {"command": command, "job": True, "timeout_ms": 0}
        kept: dict[str, Any] = {name: args[name] for name in ("cwd", "env") if name in args}
        call = Ask(
            self._node,
            "exec",
            {**given, **kept},
            key=key_of("terminal", self._node, given, {}),
            by={"surface": "hermes terminal", "task_id": self._task},
            limit_s=60,
        )
        ok, value = ask(self._runtime.client(), call)
        if not ok:
            return _told(results.failure(value, call.key))
        return {"output": f"{value.get('pid')}\n", "returncode": 0}

    def _place(self, cwd: str) -> str:
        """The folder on the node. The host's own folder stands for where we are."""
        if not cwd or os.path.abspath(os.path.expanduser(cwd)) in self._foreign:
            return self.cwd
        return cwd

    def _refused(self, failure: dict[str, Any], cwd: str) -> dict[str, Any]:
        """A command that was not run. If that is for the folder that is kept, the next one
        begins where the first did: otherwise none would ever run again."""
        made = _told(failure)
        with self._lock:
            if failure["code"] in _NO_FOLDER and cwd == self.cwd != self._first:
                self.cwd = self._first
                made["output"] += f"\n[{self._node}: the next command starts in {self.cwd}]"
        return made

    def _result(self, value: Mapping[str, Any], whole: _Whole | None, mark: str) -> dict[str, Any]:
        if whole is not None and (value.get("stdout") or {}).get("streamed"):
            out, err = whole.text("stdout"), whole.text("stderr")
        else:
            out = _kept(value.get("stdout") or {})
            err = _kept(value.get("stderr") or {})
        if mark:
            out, found, place = out.rpartition(f"\n{mark}")
            if not found:
                out, place = place, ""
            with self._lock:
                self.cwd = place.strip("\n") or self.cwd
        code = results.returncode(value)
        made: dict[str, Any] = {"output": out + err}
        made["returncode"] = NOT_DONE if code is None else code
        notes = []
        status = value.get("status") or "ok"
        if status not in {"ok", "error"}:
            notes.append(f"[{self._node}: {status}]")
        elif value.get("killed"):
            notes.append(
                f"[{self._node}: {value['killed']} processes that it left running were ended; what"
                " is to go on is started with background]"
            )
        if whole is not None and whole.lost:
            notes.append(f"[{whole.lost} bytes more than {MOST} are left out]")
            made["returncode"] = made["returncode"] or NOT_DONE
        if notes:
            made["output"] += ("\n" if made["output"] else "") + "\n".join(notes)
        if status == "timeout":
            made["hermes_timed_out"] = True
        return made


def wrapped(command: str, mark: str) -> tuple[str, bool]:
    """The line for the node, and whether it ends by telling its folder behind ``mark``.

    A plain program with its arguments goes as it is, so that a policy with a rule for it
    knows it. Anything else runs in one shell that has both streams in one, in their order.
    """
    from handoff.nodes.node.commands import plain

    words = plain(command)
    if words and words[0] not in _OWN:
        return command, False
    line = f'exec 2>&1; trap \'printf "\\n{mark}%s\\n" "$PWD"\' 0\n{command}\n'
    return line, True


class _Whole:
    """Everything that a command writes, up to a limit."""

    def __init__(self) -> None:
        self._parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._size = 0
        self.lost = 0

    def add(self, stream: str, data: bytes) -> None:
        """More of a stream."""
        room = max(0, MOST - self._size)
        self.lost += max(0, len(data) - room)
        self._size += len(data[:room])
        self._parts.setdefault(stream, []).append(bytes(data[:room]))

    def text(self, stream: str) -> str:
        """It as the host wants it."""
        return b"".join(self._parts[stream]).decode("utf-8", "replace")


def _kept(told: Mapping[str, Any]) -> str:
    head, tail = (results.bytes_of(told.get(name, "")) for name in ("head", "tail"))
    cut = int(told.get("bytes_total", 0)) - len(head) - len(tail)
    middle = f"\n[{cut} bytes are left out here]\n" if cut > 0 else ""
    return head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace")


def _input(args: dict[str, Any], text: str) -> tuple[str, Iterator[bytes] | None]:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BadRequest("the input holds half of a character", field="stdin_data") from error
    if len(data) <= INLINE:
        args["stdin_data"] = {"b64": b64encode(data).decode()}
        return "given", None
    return "stream", (data[at : at + INLINE] for at in range(0, len(data), INLINE))


def _told(failure: Mapping[str, Any]) -> dict[str, Any]:
    """A failure where only a text and a number can be said."""
    remedy = f" {failure['remedy']}" if failure.get("remedy") else ""
    return {
        "output": f"[{failure.get('code')}] {failure.get('error')}.{remedy}",
        "returncode": NOT_DONE,
    }


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""

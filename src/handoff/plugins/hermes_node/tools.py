"""The tools: a call of the model's in, one JSON text out, never an exception."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from handoff.errors import BadRequest, HandoffError, Unreachable

from . import results
from .runtime import Runtime

__all__ = ["Tools"]

#: bytes of each stream that node_exec keeps by default, and at most
OUTPUT, MOST_OUTPUT = 64 * 1024, 256 * 1024
#: bytes that node_read gives by default, and at most
PIECE, MOST_READ = 256 * 1024, 10 * 1024 * 1024
#: bytes of content that go in the call itself
INLINE = 256 * 1024
#: ms; seconds beyond a command's own limit for its end to arrive
EXEC_MS, READ_MS, WRITE_MS, WAIT_MS = 60_000, 30_000, 60_000, 30_000
MOST_MS = 24 * 3600 * 1000
BEYOND_S = 60.0
#: failures of the request itself: nothing was asked of a node
_BEFORE = frozenset({"bad_request", "unknown_node", "node_offline"})
_MODE = re.compile(r"(0o?)?[0-7]{1,4}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{7,63}")


class Tools:
    """Called by the host, from any of its threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def handler(self, name: str) -> Callable[..., str]:
        """What the host calls for that tool."""
        work: Callable[[Given], dict[str, Any]] = getattr(self, f"_{name}")

        def handle(args: Any = None, **kwargs: Any) -> str:
            try:
                return results.text(work(Given(args, kwargs, name)))
            except HandoffError as error:
                return results.text(results.refusal(error, retry_safe=error.code in _BEFORE))
            except Exception as error:  # the host wants a text, whatever happens
                return results.text(
                    {
                        "error": f"an error of the plugin's own ({type(error).__name__})",
                        "code": "internal",
                        "retry_safe": False,
                        "remedy": "hermes node doctor",
                    }
                )

        handle.__name__ = name
        return handle

    def _node_exec(self, given: Given) -> dict[str, Any]:
        target, limit = given.target(), given.number("timeout_ms", EXEC_MS, 1, MOST_MS)
        keep = given.number("max_output_bytes", OUTPUT, 1, MOST_OUTPUT)
        background = given.flag("background")
        args: dict[str, Any] = {
            "command": given.text("command"),
            "timeout_ms": limit,
            "head_bytes": (keep + 1) // 2,
            "tail_bytes": keep // 2,
        }
        where: dict[str, Any] = {}
        if given.text("cwd", ""):
            where["cwd"] = given.text("cwd")
        if env := given.env():
            where["env"] = env
        shell = given.text("shell", "")
        args |= {"shell": shell} if shell else where
        feed: Iterator[bytes] | None = None
        stdin = given.text("stdin", "")
        if stdin:
            args["stdin"], feed = _content(args, "stdin_data", _encoded(stdin), "given")
        if background and feed is not None:
            raise BadRequest(
                f"'stdin' of a background command holds at most {INLINE} bytes",
                remedy="write it into a file with node_write, and let the command read that",
                field="stdin",
            )
        _check_shell(given, shell, background or bool(stdin), bool(where))
        if background:
            args |= {"job": True}
            if "timeout_ms" not in given.args:
                args["timeout_ms"] = 0
        key = given.key("exec", target, args)
        more: dict[str, Any] = {}
        if given.flag("open_shell"):
            asked = {"name": shell, **where}
            ok, value = self._ask(given, "shell_open", asked, _opening(key), limit / 1000)
            if not ok:
                return results.failure(value)
            more["shell_opened"] = value.get("opened") is True
        ok, value = self._ask(given, "exec", args, key, limit / 1000 + BEYOND_S, feed=feed)
        if not ok:
            return results.failure(value, key)
        if background:
            return {**_job(value), "key": key}
        return {**results.executed(value, key), **more}

    def _node_read(self, given: Given) -> dict[str, Any]:
        offset = given.number("offset", 0, 0, 1 << 62)
        most = given.number("max_bytes", PIECE, 1, MOST_READ)
        limit = given.number("timeout_ms", READ_MS, 1, MOST_MS)
        raw = given.choice("encoding", ("auto", "base64", "utf-8")) == "base64"
        parts: list[bytes] = []
        args = {"path": given.text("path"), "offset": offset, "length": most, "stream": True}
        for again in (True, False):
            parts.clear()
            try:
                ok, value = self._ask(
                    *(given, "read", args, "", limit / 1000),
                    pieces=lambda _, data: parts.append(bytes(data)),
                )
                break
            except Unreachable:  # the brain ended meanwhile: the next one reads anew
                if not again:
                    raise
        if not ok:
            return results.failure(value)
        data = b"".join(parts) or results.bytes_of(value.get("data", ""))
        size = int(value.get("size", 0))
        more = offset + len(data) < size
        if more and not raw:
            data = _whole(data)
        content, encoding = results.shown(data)
        if raw and encoding == "utf-8":
            from base64 import b64encode

            content, encoding = b64encode(data).decode(), "base64"
        made = {
            "content": content,
            "size_bytes": size,
            "truncated": more,
            "encoding": encoding,
            "offset": offset,
            "etag": value.get("etag", ""),
        }
        return {**made, "next_offset": offset + len(data)} if more else made

    def _node_write(self, given: Given) -> dict[str, Any]:
        target, limit = given.target(), given.number("timeout_ms", WRITE_MS, 1, MOST_MS)
        content = given.text("content", empty=True)
        if given.choice("encoding", ("utf-8", "base64")) == "base64":
            data = _decoded(content)
        else:
            data = _encoded(content)
        args: dict[str, Any] = {
            "path": given.text("path"),
            "mode": given.choice("mode", ("overwrite", "create", "append")),
            "parents": given.flag("parents"),
        }
        if given.text("if_match", ""):
            args["if_match"] = given.text("if_match")
        if permissions := given.text("permissions", ""):
            if not _MODE.fullmatch(permissions):
                raise BadRequest("'permissions' must be octal, as 0644", field="permissions")
            args["permissions"] = int(permissions, 8)
        if len(data) > INLINE:
            args |= {"stream": True, "size": len(data)}
        else:
            args |= {"data": _b64(data), "stream": False}
        key = given.key("write", target, {**args, "content": content})
        feed = _pieces(data) if args["stream"] else None
        ok, value = self._ask(given, "write", args, key, limit / 1000, feed=feed)
        if not ok:
            return results.failure(value, key)
        made = {"bytes_written": value.get("bytes_written", 0)}
        return made | {name: value[name] for name in ("etag", "sha256", "path") if value.get(name)}

    def _node_edit(self, given: Given) -> dict[str, Any]:
        target, limit = given.target(), given.number("timeout_ms", WRITE_MS, 1, MOST_MS)
        args: dict[str, Any] = {
            "path": given.text("path"),
            "old": _b64(_encoded(given.text("old"))),
            "new": _b64(_encoded(given.text("new", empty=True))),
            "count": given.number("count", 1, -1, 1 << 31),
        }
        if given.text("if_match", ""):
            args["if_match"] = given.text("if_match")
        key = given.key("edit", target, args)
        ok, value = self._ask(given, "edit", args, key, limit / 1000)
        return dict(value) if ok else results.failure(value, key)

    def _node_list(self, given: Given) -> dict[str, Any]:
        del given
        listed = self._runtime.client().ask("nodes")["nodes"]
        nodes = [results.node_row(one) for one in listed]
        return {"nodes": nodes, "count": len(nodes)}

    def _node_job(self, given: Given) -> dict[str, Any]:
        action = given.choice("action", ("list", "tail", "wait", "kill", "forget", "output"))
        limit = given.number("timeout_ms", WAIT_MS, 1, MOST_MS)
        most = given.number("max_bytes", OUTPUT, 1, MOST_OUTPUT)
        if action == "list":
            ok, value = self._ask(given, "job_list", {}, "", READ_MS / 1000)
            jobs = [_job(one) for one in value.get("jobs", [])]
            return {"jobs": jobs, "count": len(jobs)} if ok else results.failure(value)
        job = given.text("job")
        if action in {"tail", "output"}:
            name = "job" if action == "tail" else "spill"
            args: dict[str, Any] = {name: job, "length": most}
            args["offset"] = given.number("offset", -most, -(1 << 62), 1 << 62)
            if action == "tail":
                args["stream"] = given.choice("stream", ("stdout", "stderr"))
            op = "job_tail" if action == "tail" else "read_output"
            ok, value = self._ask(given, op, args, "", READ_MS / 1000)
            return _range(value) if ok else results.failure(value)
        args = {"job": job, **({"timeout_ms": limit} if action == "wait" else {})}
        key = "" if action == "wait" else given.key(f"job_{action}", given.target(), args)
        ok, value = self._ask(given, f"job_{action}", args, key, limit / 1000 + BEYOND_S)
        if not ok:
            return results.failure(value, key)
        return {"job": job, "forgotten": True} if action == "forget" else _job(value)

    def _ask(
        self,
        given: Given,
        op: str,
        args: Mapping[str, Any],
        key: str,
        limit_s: float,
        *,
        pieces: Callable[[str, bytes], None] | None = None,
        feed: Iterator[bytes] | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        from .calling import Ask, ask

        call = Ask(
            given.target(),
            op,
            args,
            key=key,
            by=given.by(self._runtime.profile()),
            wait_s=given.number("wait_ms", 0, 0, MOST_MS) / 1000,
            limit_s=limit_s,
            pieces=pieces,
            feed=feed,
            reads=not key,
        )
        return ask(self._runtime.client(), call)


class Given:
    """What the model gave, and what the host knows of the call. Each getter raises
    BadRequest, with the name of what is wrong."""

    def __init__(self, args: Any, known: Mapping[str, Any], tool: str) -> None:
        if not isinstance(args, Mapping):
            raise BadRequest("the arguments must be an object", field="arguments")
        self.args = {str(name): value for name, value in args.items() if value is not None}
        self._known = known
        self._tool = tool

    def target(self) -> str:
        """The node."""
        return self.text("target")

    def text(self, name: str, default: str | None = None, *, empty: bool = False) -> str:
        """A text; without a default it has to be there."""
        found = self.args.get(name, default)
        if not isinstance(found, str):
            raise BadRequest(f"'{name}' must be a text", field=name)
        if not found and default is None and not empty:
            raise BadRequest(f"'{name}' is empty", field=name)
        return found

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number."""
        found = self.args.get(name, default)
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise BadRequest(f"'{name}' must be a number from {least} to {most}", field=name)
        return found

    def flag(self, name: str) -> bool:
        """True or false."""
        found = self.args.get(name, False)
        if not isinstance(found, bool):
            raise BadRequest(f"'{name}' must be true or false", field=name)
        return found

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """One of these; the first if none is given."""
        found = self.args.get(name, allowed[0])
        if found not in allowed:
            raise BadRequest(f"'{name}' must be one of {', '.join(allowed)}", field=name)
        return str(found)

    def env(self) -> dict[str, str]:
        """The variables."""
        found = self.args.get("env", {})
        texts = isinstance(found, Mapping) and all(isinstance(v, str) for v in found.values())
        if not texts:
            raise BadRequest("'env' must be an object of texts", field="env")
        return {str(name): str(value) for name, value in found.items()}

    def key(self, op: str, target: str, args: Mapping[str, Any]) -> str:
        """The call's key: the given one, or one of the host's ids."""
        from .calling import key_of

        if given := self.text("key", ""):
            if not _KEY.fullmatch(given):
                raise BadRequest("'key' must be 8 to 64 letters, digits or . _ : -", field="key")
            return given
        return key_of(op, target, args, self._known)

    def by(self, profile: str) -> dict[str, str]:
        """Who asks, for the audits."""
        made = {"surface": "hermes", "tool": self._tool, "profile": profile}
        for name in ("session_id", "task_id"):
            if isinstance(self._known.get(name), str):
                made[name] = self._known[name]
        # a session's id is of any length somewhere; the audit's is not
        return {name: value[:128] for name, value in made.items() if value}


def _check_shell(given: Given, shell: str, more: bool, where: bool) -> None:
    """What goes with a shell session.

    Raises:
        BadRequest: something that does not.
    """
    opens = given.flag("open_shell")
    if not shell:
        if opens:
            raise BadRequest(
                "'open_shell' needs 'shell', its name", remedy="give both", field="shell"
            )
        return
    if more:
        raise BadRequest(
            "a command in a shell session has no input, and is not in the background",
            remedy="leave shell out, or stdin and background",
            field="shell",
        )
    if where and not opens:
        raise BadRequest(
            "a shell session has its own folder and variables",
            remedy="use cd and export in it, or give them with open_shell",
            field="shell",
        )


def _opening(key: str) -> str:
    """The key of the call that opens a shell session for another call."""
    return f"shell-{sha256(key.encode()).hexdigest()[:40]}"


def _encoded(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        raise BadRequest("the text holds half of a character", field="content") from error


def _decoded(content: str) -> bytes:
    try:
        return b64decode(content, validate=True)
    except ValueError as error:
        raise BadRequest("'content' is not base64", field="content") from error


def _b64(data: bytes) -> Any:
    """Bytes as they travel in a call."""
    from base64 import b64encode

    return {"b64": b64encode(data).decode()}


def _content(
    args: dict[str, Any], name: str, data: bytes, inline: str
) -> tuple[str, Iterator[bytes] | None]:
    """Where a command's input goes: into the call, or, if it is long, into a stream."""
    if len(data) > INLINE:
        return "stream", _pieces(data)
    args[name] = _b64(data)
    return inline, None


def _pieces(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), INLINE):
        yield data[at : at + INLINE]


def _whole(data: bytes) -> bytes:
    """Without the beginning of a character at the end, if the rest is text."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        unfinished = error.start > 0 and error.start >= len(data) - 3
        return data[: error.start] if unfinished and data[error.start] >= 0xC0 else data
    return data


def _range(value: Mapping[str, Any]) -> dict[str, Any]:
    """A piece of kept output."""
    data = results.bytes_of(value.get("data", ""))
    content, encoding = results.shown(data)
    offset = int(value.get("offset", 0))
    return {
        "content": content,
        "encoding": encoding,
        "offset": offset,
        "next_offset": offset + len(data),
        "size_bytes": int(value.get("total", 0)),
        "running": value.get("running") is True,
    }


def _job(value: Mapping[str, Any]) -> dict[str, Any]:
    """A background command."""
    made: dict[str, Any] = {"job": value.get("job", ""), "state": value.get("state", "")}
    made |= {name: value[name] for name in ("command", "pid") if value.get(name)}
    for name in ("stdout_bytes", "stderr_bytes"):
        made[name] = value.get(name, 0)
    if value.get("started_ms"):
        made["started_at"] = results.time_text(int(value["started_ms"]))
    if value.get("result"):
        made |= results.executed(value["result"], str(made["job"]))
    return made

"""The steps of a script that do honest work. See ``mischief`` for the others."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable
from typing import Any

from handoff.executors.fake import script
from handoff.executors.fake.asking import ask
from handoff.executors.fake.peer import Pending
from handoff.executors.fake.turn import EndTurn, FailTurn, Turn

Args = dict[str, Any]


def say(turn: Turn, args: Args) -> None:
    """Say ``text``, in chunks of ``chunk`` characters."""
    turn.say(str(args.get("text", "")), chunk=max(1, int(args.get("chunk", 400))))


def think(turn: Turn, args: Args) -> None:
    """Reason aloud."""
    turn.say(str(args.get("text", "")), thought=True)


def note(turn: Turn, args: Args) -> None:
    """Write the prompt's last line into ``notes.md``."""
    del args
    lines = [line for line in turn.prompt.splitlines() if line.strip()]
    text = f"- {lines[-1] if lines else '(empty prompt)'}\n"
    path = turn.path("notes.md")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as handle:
            text = handle.read() + text
    write(turn, {"path": "notes.md", "text": text})


def write(turn: Turn, args: Args) -> None:
    """Write ``text`` to ``path``; asks first unless ``ask`` is false."""
    path = turn.path(args.get("path"))
    text = str(args.get("text", args.get("content", "")))
    _change(turn, args, path, text, {"file_path": path, "content": text})


def edit(turn: Turn, args: Args) -> None:
    """Replace ``old`` by ``new`` in ``path``, or its whole content by ``text``."""
    path = turn.path(args.get("path"))
    before = _read(path) or ""
    if "text" in args:
        after = str(args["text"])
    else:
        old = str(args.get("old", ""))
        if old not in before:
            raise FailTurn(-32603, f"'{args.get('path')}' does not hold the text to replace")
        after = before.replace(old, str(args.get("new", "")), 1)
    raw = {"file_path": path, "old_string": before, "new_string": after}
    _change(turn, args, path, after, raw)


def delete(turn: Turn, args: Args) -> None:
    """Delete ``path``; asks first unless ``ask`` is false."""
    path = turn.path(args.get("path"))
    call = turn.begin("delete", f"Delete {args.get('path')}", {"path": path})
    if args.get("ask", True):
        pending = turn.ask_permission(
            call, "delete", f"Delete {args.get('path')}", {"path": path}, paths=(path,)
        )
        if not turn.allowed(pending, call):
            turn.denied(call, args)
            return
    try:
        os.unlink(path)
    except OSError as error:
        turn.progress(call, "failed", str(error))
    else:
        turn.progress(call, "completed", f"Deleted {path}")


def run(turn: Turn, args: Args) -> None:
    """Run ``command`` in a shell; asks first unless ``ask`` is false."""
    _run_allowed(turn, args, *_ask_run(turn, args))


def parallel(turn: Turn, args: Args) -> None:
    """Ask for all ``run`` steps of ``steps`` at once, then run those that were allowed."""
    asked = []
    for name, inner in script.steps_from(args.get("steps")):
        if name != "run":
            raise FailTurn(-32602, "'parallel' takes run steps only")
        asked.append((inner, *_ask_run(turn, inner)))
    for inner, call, pending in asked:
        _run_allowed(turn, inner, call, pending)


def commit(turn: Turn, args: Args) -> None:
    """Commit everything; ``path`` is written first (``text``, or a line of its own)."""
    named = args.get("path")
    if named is None and not turn.git("status", "--porcelain"):
        named = f"change-{turn.call_id().removeprefix('call_')}.txt"
    if named is not None:
        path = turn.path(named)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "a" if "text" not in args else "w", encoding="utf-8") as handle:
            handle.write(str(args.get("text", f"a line for prompt {turn.session.prompts}\n")))
    message = str(args.get("message") or f"Change {named or 'what was asked for'}")
    argv = [*identity(turn), "commit", "-q", "-m", message, *args.get("options", [])]
    shown = shlex.join(["git", "add", "-A"]) + " && " + shlex.join(["git", *argv])
    call = turn.begin("execute", shown, {"command": shown})
    if args.get("ask", False):
        pending = turn.ask_permission(call, "execute", shown, {"command": shown})
        if not turn.allowed(pending, call):
            turn.denied(call, args)
            return
    code, output = turn.execute(shown)
    turn.progress(call, "completed" if code == 0 else "failed", output)
    turn.log("commit", head=turn.git("rev-parse", "HEAD", check=False), code=code)


def git(turn: Turn, args: Args) -> None:
    """Run git with ``args`` (a list, or one string); asks only if ``ask`` is true."""
    given = args.get("args", [])
    argv = shlex.split(given) if isinstance(given, str) else [str(part) for part in given]
    command = shlex.join(["git", *argv])
    run(turn, {"ask": False, **args, "command": command})


def trailer(turn: Turn, args: Args) -> None:
    """Decide what the turn's last line claims. See :func:`closing`."""
    turn.trailer = args


def plan(turn: Turn, args: Args) -> None:
    """Show a to-do list: ``steps`` of ``{text, status}``."""
    entries = [
        {
            "content": str(entry.get("text", "")),
            "status": str(entry.get("status", "pending")),
            "priority": "medium",
        }
        for entry in args.get("steps", [])
    ]
    turn.update("plan", entries=entries)


def usage(turn: Turn, args: Args) -> None:
    """Report tokens (``input``, ``output``) and ``cost`` in dollars."""
    used = int(args.get("input", 0)) + int(args.get("output", 0))
    fields: dict[str, Any] = {"used": used, "size": 200_000}
    if "cost" in args:
        fields["cost"] = {"amount": float(args["cost"]), "currency": "USD"}
    turn.update("usage_update", **fields)
    turn.usage = {
        "inputTokens": int(args.get("input", 0)),
        "outputTokens": int(args.get("output", 0)),
        "totalTokens": used,
    }


def subagent(turn: Turn, args: Args) -> None:
    """Play ``steps`` as a sub-agent: their updates name the tool call that began it."""
    call = turn.begin("think", str(args.get("title", "Sub-agent")), {"task": "sub-agent"})
    turn.progress(call, "in_progress")
    turn.parent = call
    try:
        for name, inner in script.steps_from(args.get("steps")):
            play(turn, name, inner)
    finally:
        turn.parent = None
    turn.progress(call, "completed", "The sub-agent is done.")


def sleep(turn: Turn, args: Args) -> None:
    """Do nothing for ``seconds``; a cancelled turn ends it."""
    if turn.cancelled.wait(float(args.get("seconds", 1))):
        raise EndTurn("cancelled")


def wait_file(turn: Turn, args: Args) -> None:
    """Wait until ``path`` exists, at most ``seconds`` (60)."""
    path = turn.path(args.get("path"))
    deadline = time.monotonic() + float(args.get("seconds", 60))
    while not os.path.lexists(path):
        if turn.cancelled.wait(0.02):
            raise EndTurn("cancelled")
        if time.monotonic() > deadline:
            raise FailTurn(-32603, f"'{args.get('path')}' did not appear")


def env(turn: Turn, args: Args) -> None:
    """Say where and as what this process runs; ``names``: variables to show."""
    mask = os.umask(0)
    os.umask(mask)
    facts: dict[str, Any] = {
        "cwd": os.getcwd(),
        "umask": f"{mask:04o}",
        "uid": os.getuid(),
        "pid": os.getpid(),
        "home": os.environ.get("HOME"),
        "proxies": sorted(name for name in os.environ if name.lower().endswith("_proxy")),
    }
    names = args.get("names", [])
    for name in [names] if isinstance(names, str) else names:
        facts[str(name)] = os.environ.get(str(name))
    turn.log("env", **facts)
    turn.say(json.dumps(facts, ensure_ascii=False) + "\n")


def net(turn: Turn, args: Args) -> None:
    """Fetch ``url`` as a program of the user's would, through the proxies of the environment."""
    import urllib.request

    url = str(args.get("url"))
    try:
        with urllib.request.urlopen(url, timeout=float(args.get("seconds", 5))) as reply:  # noqa: S310
            turn.say(f"{url}: {reply.status}, {len(reply.read())} bytes\n")
    except OSError as error:
        turn.say(f"{url}: {error}\n")


def identity(turn: Turn) -> list[str]:
    """Options that give git a committer where the user's settings have none."""
    if turn.git("config", "user.email", check=False):
        return []
    return ["-c", "user.name=Fake Executor", "-c", "user.email=fake@executor.invalid"]


def play(turn: Turn, name: str, args: Args) -> None:
    """Play one step."""
    from handoff.executors.fake import mischief

    step = STEPS.get(name) or mischief.STEPS[name]
    turn.log("step", name=name)
    step(turn, args)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as handle:
            return handle.read()
    except OSError:
        return None


def _change(turn: Turn, args: Args, path: str, text: str, raw: Args) -> None:
    shown = f"{'Write' if 'content' in raw else 'Edit'} {args.get('path')}"
    is_file = os.path.isfile(path)
    diff = [
        {"type": "diff", "path": path, "oldText": _read(path) if is_file else None, "newText": text}
    ]
    call = turn.begin("edit", shown, raw, locations=[{"path": path}], content=diff)
    if args.get("ask", True):
        pending = turn.ask_permission(call, "edit", shown, raw, content=diff, paths=(path,))
        if not turn.allowed(pending, call):
            turn.denied(call, args)
            return
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as handle:
            handle.write(text)
    except OSError as error:
        turn.progress(call, "failed", str(error))
    else:
        turn.progress(call, "completed", f"Wrote {path}")


def _ask_run(turn: Turn, args: Args) -> tuple[str, Pending | None]:
    command = str(args.get("command", "true"))
    raw = {"command": command, "cwd": turn.session.cwd}
    call = turn.begin("execute", command, raw)
    if not args.get("ask", True):
        return call, None
    return call, turn.ask_permission(call, "execute", command, raw, options=args.get("options"))


def _run_allowed(turn: Turn, args: Args, call: str, pending: Pending | None) -> None:
    if pending is not None and not turn.allowed(pending, call):
        turn.denied(call, args)
        return
    turn.progress(call, "in_progress")
    code, output = turn.execute(str(args.get("command", "true")), timeout=args.get("timeout"))
    turn.log("ran", call=call, code=code)
    if code:
        output = f"{output}\nexit code {code}".lstrip("\n")
    turn.progress(call, "completed" if code == 0 else "failed", output or "(no output)")


STEPS: dict[str, Callable[[Turn, Args], None]] = {
    "say": say,
    "think": think,
    "note": note,
    "write": write,
    "edit": edit,
    "delete": delete,
    "run": run,
    "parallel": parallel,
    "commit": commit,
    "git": git,
    "ask": ask,
    "trailer": trailer,
    "plan": plan,
    "usage": usage,
    "subagent": subagent,
    "sleep": sleep,
    "wait_file": wait_file,
    "env": env,
    "net": net,
}

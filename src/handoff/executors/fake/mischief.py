"""The steps of a script in which an executor misbehaves, fails or dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from handoff.executors.fake.turn import EndTurn, FailTurn, Turn

Args = dict[str, Any]

_MIB = 1024 * 1024

#: messages that break the protocol, by name
MALFORMED: dict[str, tuple[bytes, ...]] = {
    "truncated": (b'{"jsonrpc":"2.0","method":"session/upd',),
    "not_object": (b"[1,2,3]", b'"text"', b"42", b"null"),
    "no_method": (b'{"jsonrpc":"2.0","params":{}}',),
    "wrong_types": (
        b'{"jsonrpc":"2.0","method":"session/update","params":{"update":7}}',
        (
            b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"x","update":'
            b'{"sessionUpdate":"tool_call","toolCallId":7,"status":[],"content":"x"}}}'
        ),
        b'{"jsonrpc":"2.0","method":42,"params":[]}',
    ),
    "unknown_update": (
        (
            b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"x","update":'
            b'{"sessionUpdate":"brand_new","value":1}}}'
        ),
    ),
    "unknown_method": (b'{"jsonrpc":"2.0","method":"_vendor/news","params":{}}',),
    "bad_utf8": (b'{"jsonrpc":"2.0","method":"session/update","params":"\xff\xfe"}',),
    "stray_answer": (b'{"jsonrpc":"2.0","id":987654,"result":{}}',),
}


def error(turn: Turn, args: Args) -> None:
    """Answer the prompt with a JSON-RPC error: ``code``, ``message``, ``data``."""
    del turn
    raise FailTurn(
        int(args.get("code", -32603)), str(args.get("message", "Internal error")), args.get("data")
    )


def auth(turn: Turn, args: Args) -> None:
    """Answer the prompt as an agent does that is not logged in."""
    del turn
    raise FailTurn(-32000, str(args.get("message", "Authentication required")))


def stop(turn: Turn, args: Args) -> None:
    """End the turn with stop ``reason``; no claim is made."""
    del turn
    raise EndTurn(str(args.get("reason", "end_turn")))


def big(turn: Turn, args: Args) -> None:
    """Say ``mib`` MiB in one message."""
    size = int(float(args.get("mib", 1)) * _MIB)
    line = "x" * 79 + "\n"
    turn.say((line * (size // len(line) + 1))[:size], chunk=max(size, 1))


def noise(turn: Turn, args: Args) -> None:
    """Print ``lines`` lines that are no JSON."""
    for number in range(int(args.get("lines", 3))):
        turn.peer.raw(f"warning: this line {number + 1} is no message\n".encode())


def raw(turn: Turn, args: Args) -> None:
    """Print ``line`` as it is."""
    turn.peer.raw(str(args.get("line", "")).encode("utf-8", "surrogateescape") + b"\n")


def malformed(turn: Turn, args: Args) -> None:
    """Print messages that break the protocol: ``how`` is one of their names, or ``all``."""
    how = str(args.get("how", "all"))
    for name in MALFORMED if how == "all" else [how]:
        for line in MALFORMED[name]:
            turn.peer.raw(line + b"\n")


def retry(turn: Turn, args: Args) -> None:
    """Report that the model is tried again."""
    turn.peer.notify(
        "_x.ai/session_notification",
        {
            "sessionId": turn.session.session_id,
            "update": {
                "sessionUpdate": "retry_state",
                "type": "retrying",
                "attempt": int(args.get("attempt", 1)),
                "max_retries": int(args.get("limit", 5)),
                "reason": str(args.get("reason", "API error (status 500)")),
            },
        },
    )


def crash(turn: Turn, args: Args) -> None:
    """Die: with exit ``code``, or by ``signal`` (a name, as ``KILL``)."""
    turn.session.save()
    name = args.get("signal")
    if name is not None:
        os.kill(os.getpid(), signal.Signals[f"SIG{str(name).upper().removeprefix('SIG')}"])
        # A signal that this process ignores leaves it alive; the step does not.
        turn.cancelled.wait(1)
    print(str(args.get("stderr", "the fake executor crashes as told")), file=sys.stderr, flush=True)
    os._exit(int(args.get("code", 1)))


def hang(turn: Turn, args: Args) -> None:
    """Never end the turn, whatever the client says; ``deaf``: don't even read."""
    if args.get("deaf"):
        turn.deaf.set()
    threading.Event().wait()


def ignore_term(turn: Turn, args: Args) -> None:
    """Ignore SIGTERM: the main thread has already done it when the prompt came."""
    del turn, args


def leak(turn: Turn, args: Args) -> None:
    """Leave a process behind that sleeps for ``seconds``.

    ``how``: ``nohup`` (ignores SIGHUP), ``setsid`` (own session), ``double`` (own
    session, parent gone, environment emptied), ``loop`` (a shell that ignores SIGTERM and
    starts its sleep again).
    """
    seconds = str(args.get("seconds", 3600))
    how = str(args.get("how", "nohup"))
    commands: dict[str, list[str]] = {
        "nohup": ["nohup", "sleep", seconds],
        "setsid": ["sleep", seconds],
        "double": ["env", "-i", "/bin/sh", "-c", f"cd /; PATH=/bin:/usr/bin sleep {seconds} &"],
        "loop": ["/bin/sh", "-c", f"trap '' TERM HUP INT; while :; do sleep {seconds}; done"],
    }
    child = subprocess.Popen(
        commands[how],
        cwd=turn.session.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=how != "nohup",
    )
    if how == "double":
        child.wait()
    turn.log("leaked", how=how, pid=child.pid)


STEPS: dict[str, Callable[[Turn, Args], None]] = {
    "error": error,
    "auth": auth,
    "stop": stop,
    "big": big,
    "noise": noise,
    "raw": raw,
    "malformed": malformed,
    "retry": retry,
    "crash": crash,
    "hang": hang,
    "ignore_term": ignore_term,
    "leak": leak,
}

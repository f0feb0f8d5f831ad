"""The command ``hermes-node``: the machine's own side of the node protocol.

``pair`` and ``run`` are what it takes; the rest looks at the node, or decides about it. It
reads the Go node's ``config.toml`` as it is.
"""

from __future__ import annotations

import json
import os
import sys

from handoff import __version__
from handoff.cli.hermes_node_parsing import VERBS, help_text, parser
from handoff.cli.terminal import is_tty, safe, safe_line
from handoff.errors import ConfigError, Failed, HandoffError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import Any

__all__ = ["VERBS", "entry", "help_text", "main", "parser"]


def entry() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run one command line and return its exit code."""
    wants_json = "--json" in argv
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        if not argv or argv[0] in {"-h", "--help", "help"}:
            print(help_text())
            return 0
        if argv[0] in {"-V", "--version"}:
            print(f"hermes-node {__version__}")
            return 0
        return _run(argv)
    except SystemExit as ended:  # argparse after --help
        return ended.code if isinstance(ended.code, int) else 2
    except HandoffError as error:
        return _report(error, wants_json=wants_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        failed = Failed(f"{name}{error.strerror or error}", remedy="hermes-node doctor")
        return _report(failed, wants_json=wants_json)
    except KeyboardInterrupt:
        return 130


def _report(error: HandoffError, *, wants_json: bool) -> int:
    if wants_json:
        body = {**error.to_json(), "exit_code": error.exit_code}
        print(json.dumps(body), file=sys.stderr)
    else:
        print(f"hermes-node: {safe(error.cause)}", file=sys.stderr)
        if error.remedy:
            print(f"  try: {safe(error.remedy)}", file=sys.stderr)
    return error.exit_code


def _run(argv: list[str]) -> int:
    args = parser().parse_args(argv)
    verbs: dict[str, Callable[[Namespace], int]] = {
        "pair": _pair,
        "run": _serve,
        "status": _status,
        "stop": _stop,
        "validate": _validate,
        "doctor": _doctor,
        "policy": _policy,
        "asks": _asks,
        "approve": lambda given: _rule(given, "allow"),
        "deny": lambda given: _rule(given, "deny"),
        "lock": _lock,
        "unlock": _unlock,
        "logs": _logs,
        "service": _service,
        "completion": _completion,
    }
    return verbs[args.verb](args)


def config_path(args: Namespace) -> str:
    """The configuration file."""
    given = args.config or os.environ.get("HERMES_NODE_CONFIG", "")
    return os.path.abspath(os.path.expanduser(given or "~/.hermes-node/config.toml"))


def folder(args: Namespace) -> str:
    """The node's folder."""
    return os.path.dirname(config_path(args))


def _tell(args: Namespace, value: Any, text: str) -> None:
    if args.json or not is_tty(sys.stdout):
        print(json.dumps(value))
    else:
        print(safe(text))


def _pair(args: Namespace) -> int:
    import asyncio

    from handoff.clock import SystemClock
    from handoff.link.keys import load_or_make_key
    from handoff.link.pairing import parse_code
    from handoff.nodes.node.config import Config, server_url, write
    from handoff.nodes.node.dialler import pair

    path = config_path(args)
    if os.path.exists(path):
        raise ConfigError(
            f"{path} exists: this machine is paired already",
            remedy=f"mv {path} {path}.old, or give --config",
            path=path,
        )
    if args.server or args.token_file:
        return _pair_old(args, path)
    text = sys.stdin.readline() if args.code in {"", "-"} else args.code
    code = parse_code(text)
    key = load_or_make_key(os.path.join(folder(args), "key.pem"))
    name = asyncio.run(pair(code, key, SystemClock(), args.name))
    config = Config(
        folder(args),
        server_url(code.address),
        name,
        allowed_paths=tuple(os.path.abspath(os.path.expanduser(one)) for one in args.allow),
        brain_key=code.brain_key,
        require="e2e2",
    )
    write(path, config)
    _tell(
        args,
        {"name": name, "config": path, "server_url": config.server_url},
        f"this machine is the node '{name}' of {config.server_url}\n"
        f"  {path}; start it: hermes-node run\n"
        "  it runs any command that this user may run: narrow it with policy.toml beside it",
    )
    return 0


def _token(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(4096).strip()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", remedy="name the token's file") from error
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise ConfigError(f"{path} holds no token", remedy="write the token alone into it")
    return token


def _pair_old(args: Namespace, path: str) -> int:
    from handoff.link.pairing import check_name
    from handoff.link.tls import Pin
    from handoff.nodes.node.config import Config, server_url, write

    if not args.server or not args.token_file or not args.name:
        raise UsageError(
            "an older brain needs --server, --token-file and --name", remedy="hermes-node --help"
        )
    token = _token(args.token_file)
    check_name(args.name)
    if args.pin:
        Pin.of_hex(args.pin)
    try:
        url = server_url(args.server)
    except ValueError as error:
        raise UsageError(f"--server {error}", remedy="give ws://host:port or wss://…") from error
    config = Config(
        folder(args),
        url,
        args.name,
        token=token,
        allowed_paths=tuple(os.path.abspath(os.path.expanduser(one)) for one in args.allow),
        pinned_cert_sha256=args.pin,
        plugin_compat=args.plugin,
    )
    write(path, config)
    _tell(args, {"name": args.name, "config": path}, f"{path} is written: hermes-node run")
    return 0


def _serve(args: Namespace) -> int:
    import asyncio

    from handoff.nodes.node.main import run

    def shown(line: str) -> None:
        print(safe_line(line), file=sys.stderr, flush=True)

    return asyncio.run(run(config_path(args), __version__, shown, take_over=args.take_over))


def _status(args: Namespace) -> int:
    from handoff.nodes.node.main import living, read_status

    status = read_status(folder(args))
    if not living(folder(args)) and status.get("state") != "refused":
        status["state"] = "stopped"
    error = f"\n  last error: {status['last_error']}" if status.get("last_error") else ""
    if status.get("held") and status["state"] in {"refused", "stopped"}:
        error += (
            f"\n  {status['held']} commands went on: `hermes-node run` takes them up,"
            " `hermes-node lock` ends them"
        )
    _tell(
        args,
        status,
        f"{status.get('name', '?')}: {status['state']} to {status.get('server_url', '?')}{error}",
    )
    return 0 if status["state"] == "connected" else 1


def _stop(args: Namespace) -> int:
    from handoff.nodes.node.main import stop

    done = stop(folder(args), keep=args.keep)
    _tell(args, {"stopped": done}, "the node ends" if done else "no node runs")
    return 0


def _validate(args: Namespace) -> int:
    from handoff.nodes.node.checks import usable, warnings
    from handoff.nodes.node.config import load
    from handoff.nodes.node.policy import load as load_policy

    config = load(config_path(args))
    policy = load_policy(os.path.join(folder(args), "policy.toml"), _home(), config.allowed_paths)
    usable(config)
    found = warnings(config, policy)
    _tell(
        args,
        {"ok": True, "warnings": found},
        "\n".join(["the configuration and the policy are valid", *found]),
    )
    return 0


def _home() -> str:
    return os.path.expanduser("~")


def _doctor(args: Namespace) -> int:
    from handoff.nodes.node.checks import checks

    found = checks(config_path(args), _home())
    good = all(one.ok for one in found)
    lines = [f"{'ok  ' if one.ok else 'FAIL'} {one.name}: {one.detail}" for one in found]
    _tell(args, {"ok": good, "checks": [one._asdict() for one in found]}, "\n".join(lines))
    return 0 if good else 1


def _policy(args: Namespace) -> int:
    from handoff.nodes.node.config import load
    from handoff.nodes.node.policy import load as load_policy

    config = load(config_path(args))
    path = os.path.join(folder(args), "policy.toml")
    policy = load_policy(path, _home(), config.allowed_paths)
    value = {
        "file": path if os.path.exists(path) else "",
        "sha256": policy.digest,
        "enabled": policy.enabled,
        "read_only": policy.read_only,
        "read": [one.text for one in policy.read],
        "write": [one.text for one in policy.write],
        "deny": [one.text for one in policy.deny],
        "exec": policy.exec_default,
        "rules": [f"{one.verdict}: {one.text}" for one in policy.rules],
        "run_as": policy.run_as,
    }
    _tell(args, value, "\n".join(f"{key}: {one}" for key, one in value.items()))
    return 0


def _asks(args: Namespace) -> int:
    from handoff.nodes.node.persons import waiting

    found = waiting(folder(args))
    lines = [f"{one['id']}  {one['shown']}" for one in found] or ["nothing waits"]
    _tell(args, {"asks": found}, "\n".join(safe_line(line) for line in lines))
    return 0


def _rule(args: Namespace, verdict: str) -> int:
    from handoff.clock import SystemClock
    from handoff.nodes.node.persons import decide

    ask = decide(folder(args), args.ask, verdict, SystemClock())
    word = "may run once" if verdict == "allow" else "is refused"
    _tell(args, {"ask": ask, "verdict": verdict}, f"{ask} {word}")
    return 0


def _lock(args: Namespace) -> int:
    from handoff.clock import SystemClock
    from handoff.nodes.node.persons import lock

    ended = lock(folder(args), SystemClock())
    text = f"everything is refused; {ended} running commands were ended"
    _tell(args, {"locked": True, "ended": ended}, text)
    return 0


def _unlock(args: Namespace) -> int:
    from handoff.clock import SystemClock
    from handoff.nodes.node.persons import unlock

    unlock(folder(args), SystemClock())
    _tell(args, {"locked": False}, "the policy counts again")
    return 0


def _logs(args: Namespace) -> int:
    from collections import deque

    from handoff.nodes import audit

    where = os.path.join(folder(args), "audit")
    if args.verify:
        report = audit.verify(where)
        found = [one._asdict() for one in report.findings]
        lines = [f"{one.file}:{one.line}: {one.what}" for one in report.findings]
        text = "\n".join(lines) or f"{report.rows} rows, unbroken"
        _tell(args, {"rows": report.rows, "findings": found}, text)
        return 1 if found else 0
    for row in deque(audit.rows(where), maxlen=args.n):
        if args.json or not is_tty(sys.stdout):
            print(json.dumps(row))
        else:
            told = [str(row.get(key, "")) for key in ("op", "target", "verdict", "status", "code")]
            print(safe_line(f"{row['at']} {row['event']:<7} {' '.join(filter(None, told))}"))
    return 0


def _service(args: Namespace) -> int:
    from handoff.nodes.node.service import launchd, systemd

    made = systemd if args.kind == "systemd" else launchd
    sys.stdout.write(made(config_path(args)))
    return 0


def _completion(args: Namespace) -> int:
    from handoff.cli.completion import FOLDER

    with open(os.path.join(FOLDER, f"hermes-node.{args.shell}"), encoding="utf-8") as stream:
        sys.stdout.write(stream.read())
    return 0


if __name__ == "__main__":
    entry()

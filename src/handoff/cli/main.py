"""The command ``handoff``: a static table of commands, and what is common to all.

Only the chosen command's module is imported. The root's help and version come from the
table alone, so they cost no more than starting the interpreter.
"""

from __future__ import annotations

import os
import sys

from handoff.errors import Failed, HandoffError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from handoff.cli.context import Context

#: group -> name -> (module below handoff.cli, one line of help)
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "init": ("init", "write a first configuration"),
        "agentd": ("agentd", "start the daemon that runs executors"),
        "doctor": ("doctor", "check what this machine has and what is missing"),
        "demo": ("demo", "see one task from dispatch to acceptance, in a scratch folder"),
    },
    "Hand over and decide": {
        "dispatch": ("dispatch", "hand a plan to an executor"),
        "wait": ("wait", "wait until you are needed"),
        "reply": ("reply", "approve, deny or answer"),
        "continue": ("continue_", "give further instructions after a turn"),
        "done": ("done", "accept the work"),
        "stop": ("stop", "end a task without accepting it"),
        "interrupt": ("interrupt", "end the running turn, keep the task"),
        "resume": ("resume", "redeliver answers, or settle a lost turn"),
    },
    "Look": {
        "tasks": ("tasks", "list tasks"),
        "show": ("show", "all about one task, ticket or plan"),
        "attach": ("attach", "watch an executor work"),
        "diff": ("diff", "what a task changed"),
        "fetch": ("fetch", "a file from a task's worktree"),
        "run": ("run", "run a command in a task's worktree"),
        "status": ("status", "the daemon and what it is doing"),
    },
    "Sessions": {
        "session": ("session", "hand a session over to a new one, once"),
        "mcp": ("mcp", "the same for any agent that speaks MCP"),
    },
    "Nodes": {
        "nodes": ("nodes", "commands and files on other machines"),
    },
    "Keep house": {
        "project": ("project", "register, list or forget repositories"),
        "footprint": ("footprint", "processes that tasks hold"),
        "reclaim": ("reclaim", "worktrees that can go"),
        "completion": ("completion", "completion for bash, zsh or fish"),
        "version": ("version", "version, Python and platform"),
    },
}
HIDDEN = {"_ids": "ids", "_nodes": "node_names"}
VALUED = ("--agentd", "--target", "--config")


def table() -> dict[str, tuple[str, str]]:
    """Every command that people may use: name -> (module, help)."""
    return {name: row for group in GROUPS.values() for name, row in group.items()}


def parsers(name: str) -> list[tuple[str, Any]]:
    """A command's parser and, of a group of commands, each verb's: (full name, parser)."""
    module = _module(table()[name][0])
    found = [(name, module.parser())]
    for verb in getattr(module, "VERBS", ()):
        found.append((f"{name} {verb}", module.verb([verb])[0].parser()))
    return found


def help_text() -> str:
    """What ``handoff --help`` prints."""
    lines = [
        "Hand implementation plans to AI coding agents and stay in charge of what they do.",
        "",
        "usage: handoff [--agentd URL | --target NAME] [--config PATH] COMMAND ...",
    ]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {name:<11} {about}" for name, (_, about) in commands.items()]
    lines += [
        "",
        "Global flags, before or after the command:",
        "  --agentd URL   another agentd, by URL     --config PATH   configuration file",
        "  --target NAME  another agentd, by name    --json          JSON, also on a terminal",
        "",
        "Environment: HANDOFF_CONFIG, HANDOFF_HOME, NO_COLOR.",
        "Exit: 0 done, 1 failed, 2 usage, 3 not allowed now, 4 not found, 5 unreachable,",
        "124 timed out; `run` exits with the command's own code.",
        "",
        "handoff COMMAND --help tells more.  First time here: handoff demo",
    ]
    return "\n".join(lines)


def _split_globals(argv: list[str]) -> tuple[dict[str, str], bool, list[str]]:
    """Global flags before the command: (values, json, the rest from the command on)."""
    values: dict[str, str] = {}
    json_wanted = False
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        name, given, value = argv[at].partition("=")
        if name == "--json" and not given:
            json_wanted = True
        elif name in VALUED:
            if not given:
                at += 1
                if at >= len(argv):
                    raise UsageError(f"{name} needs a value", remedy="handoff --help")
                value = argv[at]
            values[name.removeprefix("--")] = value
        else:
            break
        at += 1
    return values, json_wanted, argv[at:]


def _module(name: str) -> Any:
    full = f"handoff.cli.{name}"
    __import__(full)
    return sys.modules[full]


def _unknown(name: str) -> UsageError:
    import difflib

    if name.startswith("-"):
        return UsageError(f"unknown flag '{name}'", remedy="handoff --help")
    near = difflib.get_close_matches(name, list(table()), n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    remedy = f"handoff {near[0]} --help" if near else "handoff --help"
    return UsageError(f"there is no command '{name}'{hint}", remedy=remedy)


def _print_root(word: str) -> bool:
    """Answer ``--help``, ``--version`` and ``help``; False if word is none of them."""
    if word in ("-h", "--help", "help"):
        print(help_text())
    elif word in ("-V", "--version"):
        from handoff import __version__

        print(f"handoff {__version__}")
    else:
        return False
    return True


def _dispatch(argv: list[str], found: dict[str, Any]) -> int:
    values, json_wanted, words = _split_globals(argv)
    found["json"] = json_wanted
    if not words:
        print(help_text())
        return 0
    name, *rest = words
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    elif _print_root(name):
        return 0
    if name in HIDDEN:
        return int(_module(HIDDEN[name]).run(rest, values))
    entry = table().get(name)
    if entry is None:
        raise _unknown(name)
    module = _module(entry[0])
    if hasattr(module, "verb"):
        found["json"] = json_wanted or "--json" in rest
        module, rest = module.verb(rest)
        if module is None:
            return 0
    if hasattr(module, "quick") and module.quick(rest):
        return 0
    after: list[str] | None = None
    if getattr(module, "REST", False) and "--" in rest:
        at = rest.index("--")
        rest, after = rest[:at], rest[at + 1 :]
    if hasattr(module, "split"):
        rest, after = module.split(rest, after)
    found["json"] = json_wanted or "--json" in rest
    args = module.parser().parse_args(rest)
    from handoff.cli.context import Context

    context = Context(
        config=getattr(args, "config", values.get("config", "")),
        agentd=getattr(args, "agentd", values.get("agentd", "")),
        target=getattr(args, "target", values.get("target", "")),
        json_wanted=json_wanted or getattr(args, "json", False),
    )
    context.force_human = found["human"]
    found["context"] = context
    context.rest = after
    return int(module.run(args, context))


def _report(error: HandoffError, found: dict[str, Any]) -> int:
    """Print a typed error and return its exit code."""
    if sys.stderr is None:
        return error.exit_code
    context: Context | None = found.get("context")
    remedy = context.adapt(error.remedy) if context else error.remedy
    if found.get("json"):
        import json

        body = {**error.to_json(), "exit_code": error.exit_code}
        if hasattr(error, "retry"):
            body["retry"] = error.retry
        if remedy:
            body["remedy"] = remedy
        print(json.dumps(body), file=sys.stderr, flush=True)
        return error.exit_code
    from handoff.cli import terminal

    tty = terminal.is_tty(sys.stderr)
    head = terminal.colour("handoff:", "red", "bold", stream=sys.stderr) if tty else "handoff:"
    cause = terminal.safe(error.cause) if tty else error.cause
    print(f"{head} {cause}", file=sys.stderr)
    if remedy:
        print(f"  try: {terminal.safe(remedy) if tty else remedy}", file=sys.stderr, flush=True)
    return error.exit_code


def _close_stdout() -> None:
    """Nothing more can be written; Python would try, and complain, at exit."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.close(quiet)


def main(argv: list[str], *, human: bool = False) -> int:
    """Run one command line and return its exit code. Never raises for what can go wrong
    in normal use. ``human``: print for people also where stdout is no terminal."""
    found: dict[str, Any] = {"human": human}
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            code = _dispatch(argv, found)
        except SystemExit as ended:  # argparse after --help
            code = ended.code if isinstance(ended.code, int) else 2
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except HandoffError as error:
        return _report(error, found)
    except BrokenPipeError:
        _close_stdout()  # the reader has left: that is its right
        return 141  # 128 + SIGPIPE, what the shell expects
    except OSError as error:
        # A full disk behind stdout, a folder that went away: the user's to know, in one line.
        _close_stdout()
        place = f"{error.filename}: " if error.filename else ""
        return _report(Failed(f"{place}{error.strerror or error}"), found)
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT


def entry() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()

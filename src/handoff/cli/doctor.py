"""``handoff doctor``: what this machine has, and what is missing."""

from __future__ import annotations

import os
import shutil
import sys
import time

from handoff.errors import ConfigError, HandoffError, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser
    from handoff.config import Config


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    return Parser(
        "doctor",
        "Check git, the configuration, agentd and the executors of this machine. Changes\n"
        "nothing. Exit 1 if something keeps Handoff from working.",
        examples="  handoff doctor",
    )


#: seconds that agentd gets to ask the user's shell for its PATH, just after a start
PATH_S = 5.0

LOGIN = {"yes": "logged in", "no": "not logged in", "unknown": "login unknown"}


class Check:
    """One finding. ``level``: ``ok``, ``note`` or ``bad``; ``remedy`` may be ""."""

    __slots__ = ("level", "name", "remedy", "text")

    def __init__(self, level: str, name: str, text: str, remedy: str = "") -> None:
        self.level = level
        self.name = name
        self.text = text
        self.remedy = remedy

    def as_json(self) -> dict[str, str]:
        """For scripts."""
        return {"level": self.level, "name": self.name, "text": self.text, "remedy": self.remedy}


def check_python() -> Check:
    """The interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("ok", "python", f"{version} at {sys.executable}")


def check_git() -> Check:
    """Git and its version."""
    from handoff.workspace import git

    try:
        git.require_version()
        version = ".".join(map(str, git.version()))
    except HandoffError as error:
        return Check("bad", "git", error.cause, error.remedy)
    return Check("ok", "git", f"{version} at {shutil.which('git')}")


def check_config(context: Context) -> tuple[list[Check], Config | None]:
    """The configuration file."""
    from handoff.config import load

    if not os.path.exists(context.config):
        return [Check("note", "config", f"{context.config} is not there yet", "handoff init")], None
    try:
        config, warnings = load(context.config)
    except ConfigError as error:
        return [Check("bad", "config", error.cause, error.remedy)], None
    found = [Check("ok", "config", context.config)]
    found += [Check("note", "config", str(warning)) for warning in warnings]
    return found, config


def check_agentd(context: Context) -> list[Check]:
    """Whether the daemon answers, and what it warns of."""
    from handoff.client.endpoint import locator
    from handoff.client.http import Client

    try:
        find = locator(config=context.config, url=context.agentd, target=context.target)
        status: dict[str, Any] = Client(find, retry_s=0).get("/api/status", answer_s=5)
    except Unreachable as error:
        return [Check("note", "agentd", error.cause, error.remedy)]
    except HandoffError as error:
        return [Check("bad", "agentd", error.cause, error.remedy)]
    found = [Check("ok", "agentd", f"pid {status.get('pid')} at {status.get('socket')}")]
    return found + [Check("note", "agentd", text) for text in status.get("warnings") or []]


def check_executors(config: Config | None, path: str = "") -> list[Check]:
    """Every executor: where, which version, logged in or not. ``path``: the PATH to look
    in, "" for this shell's own."""
    from handoff.executors import catalog

    found = [one_executor(one, default=default) for one, default in detected(config, path)]
    if config is not None:
        default, known = config.executor.default, catalog.definitions(config.agents)
        if default not in known:
            text = f"there is no such executor (there are: {', '.join(known)})"
            remedy = "set 'executor.default' in config.yaml to one of them"
            found.append(Check("bad", f"{default} (default)", text, remedy))
    return found


def detected(config: Config | None, path: str = "") -> list[tuple[Any, bool]]:
    """(Detection, whether it is the default) of every executor of the catalogue."""
    from handoff.executors import catalog, detect

    default = config.executor.default if config else "opencode"
    own = os.pathsep.join([os.environ.get("PATH", ""), *(config.path_dirs if config else ())])
    path = path or own
    known = catalog.definitions(config.agents if config else {})
    known = {name: row for name, row in known.items() if name != "fake" or default == "fake"}
    found = detect.detect_all(known, path, os.path.expanduser("~"))
    return [(one, one.name == default) for one in found]


def agentd_path(context: Context) -> str:
    """The PATH that executors get from the agentd of this machine, "" if it can't be asked:
    what counts is what it finds, and that is rarely what this shell has."""
    if not context.local:
        return ""
    deadline = time.monotonic() + PATH_S
    while True:
        try:
            status = context.client().get("/api/status", answer_s=5)
        except HandoffError:  # said by check_agentd
            return ""
        if status.get("path") or "path" not in status or time.monotonic() > deadline:
            return str(status.get("path") or "")
        time.sleep(0.1)


def one_executor(found: Any, *, default: bool) -> Check:
    """A detection as a finding; only a missing default is bad."""
    name = f"{found.name} (default)" if default else found.name
    if not found.path:
        return Check("bad" if default else "note", name, "not installed", found.remedy)
    parts = [found.version or "version unknown", LOGIN[found.login], found.path]
    if found.name == "fake":  # it has no account
        parts = ["plays scripts, for trying things out"]
    text = ", ".join(parts)
    if found.problem:
        return Check("bad" if default else "note", name, f"{text}: {found.problem}", found.remedy)
    return Check("ok", name, text)


def run(_args: Namespace, context: Context) -> int:
    """Check everything."""
    from handoff.cli.terminal import colour, safe_line

    checks = [check_python(), check_git()]
    found, config = check_config(context)
    agentd = check_agentd(context)
    checks += [*found, *agentd]
    path = agentd_path(context) if agentd[0].level == "ok" else ""
    executors = check_executors(config, path)
    checks += executors
    bad = any(check.level == "bad" for check in checks)
    if context.json_wanted:
        context.emit({"ok": not bad, "checks": [check.as_json() for check in checks]})
        return int(bad)
    marks = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "bad": ("BAD ", "red")}
    for check in checks:
        mark, tint = marks[check.level]
        print(f"{colour(mark, tint)}  {safe_line(check.name)}: {safe_line(check.text)}")
        if check.remedy:
            print(f"        {safe_line(context.adapt(check.remedy))}")
    if not any(check.level == "ok" for check in executors):
        print("no executor is ready; this needs none:  " + context.command("demo"))
    return int(bad)

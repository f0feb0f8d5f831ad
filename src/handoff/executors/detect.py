"""Whether an executor is on this machine, in which version, and whether it is logged in.

A look only: nothing is written, no network is asked, and a program is started only when
its version can't be read from the package that it belongs to. A login is judged by its
traces (a credentials file, a variable): an expired one looks like a good one, and the first
turn will tell. What can't be known is ``unknown``.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec

from handoff.errors import ExecutorMissing
from handoff.executors.catalog import AgentDefinition
from handoff.process.programs import check_program, find_program

#: seconds that ``--version`` gets: the slowest tested one took 1.4 s on two busy cores
VERSION_S = 10.0
#: a credentials file that was emptied by a logout is not larger, in bytes
EMPTY_CREDENTIALS = 8
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*(?:[-+][0-9A-Za-z.-]+)?")
#: executors that may keep their login where no file shows it
_KEYCHAIN = frozenset({"claude", "claude-agent-acp"})
_CLOUD = (
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
)


#: what a user of Grok writes into ~/.grok/config.toml so that it asks whatever others allow
GROK_ASK = '[permission]\nask = ["Bash", "Edit", "WebFetch", "MCPTool"]'


class Detection(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found of one executor.

    ``path``: absolute path of its program, "" if it is not installed. ``version``: "" if
    it could not be told. ``supported``: whether that version is among those that
    Handoff was tested with; None without a version. ``login``: ``yes``, ``no`` or
    ``unknown``; ``evidence``: the file or variable that says so. ``problem``: why it
    can't be used, or what of the user's settings lets it work past the gate; "" if
    nothing was found. ``remedy``: the command for whatever is missing: it, its
    interpreter or its login.
    """

    name: str
    title: str
    path: str = ""
    version: str = ""
    supported: bool | None = None
    login: Literal["yes", "no", "unknown"] = "unknown"
    evidence: str = ""
    problem: str = ""
    remedy: str = ""


def detect(
    definition: AgentDefinition,
    path: str,
    home: str,
    environ: Mapping[str, str] | None = None,
    *,
    version: bool = True,
) -> Detection:
    """Look for one executor.

    Args:
        definition: its row of the catalogue.
        path: the PATH to look in.
        home: the home folder of whoever will run it.
        environ: its environment, for credentials in variables; None: this process's own.
        version: False leaves the version out, and starts no program.
    """
    found = Detection(definition.name, definition.title)
    try:
        program = _find(definition, path)
    except ExecutorMissing as error:
        problem = "" if "not installed" in error.cause else error.cause
        remedy = definition.install or (
            f"put its full path into agents.{definition.name}.command, or its folder into "
            "path_dirs, in the configuration file, and restart agentd"
        )
        return msgspec.structs.replace(found, problem=problem, remedy=remedy)
    found = msgspec.structs.replace(found, path=program)
    try:
        check_program(program, path)
    except ExecutorMissing as error:
        return msgspec.structs.replace(found, problem=error.cause, remedy=error.remedy)
    login, evidence = logged_in(definition, home, os.environ if environ is None else environ)
    found = msgspec.structs.replace(
        found,
        login=login,
        evidence=evidence,
        remedy=definition.login if login == "no" else "",
        problem=_open_gate(home) if definition.name == "grok" else "",
    )
    if not version:
        return found
    told, problem = version_of(definition, program, path, home)
    return msgspec.structs.replace(
        found,
        version=told,
        supported=told in definition.tested if told else None,
        problem=problem or found.problem,
        remedy=definition.install if problem else found.remedy,
    )


def detect_all(
    definitions: Mapping[str, AgentDefinition],
    path: str,
    home: str,
    environ: Mapping[str, str] | None = None,
) -> list[Detection]:
    """All of them at once, in their order: several may have to be started."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(
            pool.map(lambda entry: detect(entry, path, home, environ), definitions.values())
        )


def _find(definition: AgentDefinition, path: str) -> str:
    """The first of the definition's programs that is there."""
    first: ExecutorMissing | None = None
    for name in definition.programs:
        try:
            return find_program(name, path)
        except ExecutorMissing as error:
            first = first or error
    raise first or ExecutorMissing(f"'{definition.name}' names no program")


# -- login -------------------------------------------------------------------------------


def logged_in(
    definition: AgentDefinition, home: str, environ: Mapping[str, str]
) -> tuple[Literal["yes", "no", "unknown"], str]:
    """(whether there are traces of a login, where they are or were looked for)."""
    for name in definition.login_env:
        if environ.get(name):
            return "yes", name
    unreadable = ""
    for file in definition.login_files:
        place = _in_home(file, home)
        try:
            with open(place, "rb") as credentials:
                if len(credentials.read(64 * 1024).strip()) > EMPTY_CREDENTIALS:
                    return "yes", file
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            unreadable = f"{file}: {error.strerror}"
    if unreadable:
        return "unknown", unreadable
    if not definition.login_files and not definition.login_env:
        return "unknown", ""
    if definition.name in _KEYCHAIN:
        cloud = next((name for name in _CLOUD if environ.get(name)), "")
        if cloud or sys.platform == "darwin":
            return "unknown", cloud or "the keychain"
    return "no", ", ".join((*definition.login_files, *definition.login_env))


def _in_home(file: str, home: str) -> str:
    return os.path.join(home, file[2:]) if file.startswith("~/") else file


# -- the gate ----------------------------------------------------------------------------


def _open_gate(home: str) -> str:
    """What lets Grok work unasked: it obeys Claude Code's allow rules of the user."""
    asks: list[Any] = []
    try:
        with open(os.path.join(home, ".grok", "config.toml"), "rb") as file:
            asks = tomllib.load(file).get("permission", {}).get("ask", [])
    except (OSError, ValueError, AttributeError):
        pass  # no file, or one that Grok can't read either: then nothing is asked for
    if "Bash" in asks or "*" in asks:
        return ""
    for name in ("settings.json", "settings.local.json"):
        try:
            with open(os.path.join(home, ".claude", name), encoding="utf-8") as file:
                allowed = json.load(file)["permissions"]["allow"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        if allowed:
            rules = GROK_ASK.replace("\n", "  ")
            return (
                f"Grok obeys the allow rules of ~/.claude/{name}: what they allow is not asked "
                f"for. Write into ~/.grok/config.toml: {rules}"
            )
    return ""


# -- version -----------------------------------------------------------------------------


def version_of(definition: AgentDefinition, program: str, path: str, home: str) -> tuple[str, str]:
    """(version or "", what is wrong or "")."""
    packaged = _package_version(program)
    if packaged:
        return packaged, ""
    if not definition.version_argv:
        return "", ""
    code, said = _run([program, *definition.version_argv], path, home)
    if code is None:
        return "", f"it did not tell its version within {VERSION_S:g} s"
    told = _VERSION.search(said)
    if code != 0:
        line = said.strip().splitlines()[-1][:200] if said.strip() else "it said nothing"
        return "", f"it does not start (exit code {code}): {line}"
    return (told.group(0) if told else ""), ""


def _package_version(program: str) -> str:
    """The version in the npm package that holds the program, "" if there is none."""
    folder = os.path.dirname(os.path.realpath(program))
    for _ in range(4):
        try:
            with open(os.path.join(folder, "package.json"), encoding="utf-8") as file:
                package = json.load(file)
        except (OSError, ValueError):
            folder = os.path.dirname(folder)
            continue
        if not isinstance(package, dict) or "bin" not in package:
            return ""
        version = package.get("version")
        return version if isinstance(version, str) else ""
    return ""


def _run(argv: list[str], path: str, home: str) -> tuple[int | None, str]:
    """(exit code, what was said); None if it had to be ended. Nothing is left running."""
    env = {"PATH": path, "HOME": home, "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    try:
        child = subprocess.Popen(
            argv,
            cwd="/",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return 127, f"{error.strerror}"
    try:
        said, _ = child.communicate(timeout=VERSION_S)
        return child.returncode, said.decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # all of its group have ended (macOS says it is not permitted)
        child.communicate()

"""The configuration: its keys as data, reading, first writing and careful editing.

The structs below are the only list of keys: their names, types, defaults and texts. The
reader, the warnings, the table in ``docs/configuration.md`` and the first file are all
made from them. A key that is not known is a warning with the nearest known one, because
an older agentd must be able to read a newer file; a value of the wrong type is a
:class:`~handoff.errors.ConfigError` that names file, line and key.
"""

from __future__ import annotations

import os
from typing import Annotated

import msgspec

from handoff import places
from handoff.config_values import (
    COUNT,
    DURATION,
    PATH,
    RATIO,
    REGEX,
    SIZE,
    WORDS,
    ConfigWarning,
    Key,
    KeyDoc,
    describe,
    parse_duration,
)

__all__ = [
    "Config",
    "ConfigWarning",
    "KeyDoc",
    "create_default",
    "default_path",
    "keys",
    "load",
    "parse_duration",
    "update",
]


class Target(msgspec.Struct, frozen=True):
    """Another executor machine."""

    addr: Annotated[str, Key("host:port of its agentd, without a scheme")] = ""
    token: Annotated[str, Key("its token", secret=True)] = ""
    user: Annotated[str, Key("the user there, for messages only")] = ""


class Executor(msgspec.Struct, frozen=True):
    """Which executor takes a task that names none."""

    default: Annotated[str, Key("executor of a task that names none")] = "opencode"
    model: Annotated[str, Key("model of a task that names none; empty = the executor's own")] = ""


class Approver(msgspec.Struct, frozen=True):
    """A cheap model that may rule on what the policy leaves open."""

    executor: Annotated[str, Key("executor that runs the approver; empty = none", idle=True)] = ""
    model: Annotated[str, Key("model of the approver", idle=True)] = ""
    timeout: Annotated[float, Key("how long it may take", DURATION, idle=True)] = 60.0
    blacklist: Annotated[
        tuple[str, ...],
        Key("regular expressions that it never sees: you are asked", REGEX, idle=True),
    ] = ()


class Agent(msgspec.Struct, frozen=True):
    """An agent of your own that speaks the Agent Client Protocol."""

    command: Annotated[
        tuple[str, ...], Key("the program and its arguments, as a list or one line", WORDS)
    ] = ()
    env: Annotated[dict[str, str], Key("added to its environment", secret=True)] = {}
    mode: Annotated[str, Key("session mode in which it asks before it acts")] = ""
    model: Annotated[str, Key("its model where a task names none")] = ""
    model_argv: Annotated[
        tuple[str, ...], Key("arguments that choose a model; `{model}` stands for it", WORDS)
    ] = ()
    model_env: Annotated[str, Key("variable that chooses its model")] = ""
    question: Annotated[bool, Key("whether it can ask questions inside a turn")] = True


class Setup(msgspec.Struct, frozen=True):
    """What makes a fresh worktree ready."""

    command: Annotated[str, Key("shell command run in each new managed worktree")] = ""
    copy: Annotated[
        tuple[str, ...], Key("patterns of ignored files to copy from the project's main worktree")
    ] = ()
    timeout: Annotated[float, Key("time limit of the command", DURATION)] = 600.0


class Project(msgspec.Struct, frozen=True):
    """What differs for one project. What is left empty is as for all."""

    setup: Setup = Setup()
    verify: Annotated[
        tuple[str, ...], Key("shell commands run in its worktrees after each turn")
    ] = ()


class Terminal(msgspec.Struct, frozen=True):
    """Terminal windows."""

    auto: Annotated[bool, Key("open a terminal that follows each new task (macOS)")] = False


class Sync(msgspec.Struct, frozen=True):
    """Bringing results back."""

    auto: Annotated[bool, Key("fetch a remote task's branch when its turn ends", idle=True)] = True


class ProcFence(msgspec.Struct, frozen=True):
    """Room that stays free for you in the process table."""

    disabled: Annotated[bool, Key("no limit on an executor's processes")] = False
    reserve_ratio: Annotated[
        float, Key("share of the limit kept for you, above 0 below 1", RATIO)
    ] = 0.1


class Log(msgspec.Struct, frozen=True):
    """agentd's log."""

    level: Annotated[
        str, Key("how much is logged", choices=("debug", "info", "warning", "error"))
    ] = "info"


class Queue(msgspec.Struct, frozen=True):
    """Tasks that wait for a free place."""

    max_waiting: Annotated[
        int, Key("dispatch is refused beyond this many; 0 = no bound", COUNT)
    ] = 0


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one task; what goes beyond is counted and said."""

    line: Annotated[int, Key("one line of an executor's output", SIZE)] = 32 * 1024 * 1024
    run_output: Annotated[int, Key("output of one set-up or verify command", SIZE)] = (
        64 * 1024 * 1024
    )
    procs: Annotated[
        int,
        Key(
            "processes of one task, beyond which its run is ended; 0 = what the system allows "
            "less proc_fence.reserve_ratio, at most 1200",
            COUNT,
        ),
    ] = 0


class Config(msgspec.Struct, frozen=True):
    """A whole configuration. Times are seconds, sizes bytes, paths absolute.

    ``path`` is the file it came from; it is not a key.
    """

    listen: Annotated[str, Key("address of the loopback listener; `off` = Unix socket only")] = (
        "127.0.0.1:7777"
    )
    token: Annotated[str, Key("credential for the loopback listener", secret=True)] = ""
    datadir: Annotated[str, Key("where tasks live; default: the folder of this file", PATH)] = ""
    repo_root: Annotated[str, Key("where clones go; default: `repos` in datadir", PATH)] = ""
    worktrees_dir: Annotated[
        str, Key("where managed worktrees go; default: `worktrees` in datadir", PATH)
    ] = ""
    path_dirs: Annotated[tuple[str, ...], Key("appended to PATH where they exist", PATH)] = ()
    proxy: Annotated[
        str, Key("proxy of agentd's own `git clone` and `git fetch`", secret=True, idle=True)
    ] = ""
    max_running: Annotated[
        int, Key("tasks that run at once; 0 = by the number of cores", COUNT)
    ] = 0
    stalltimeout: Annotated[
        float, Key("a task silent for so long is reported as stalled", DURATION)
    ] = 7200.0
    stallmodel: Annotated[
        float, Key("the same while only the model is waited for and no tool runs", DURATION)
    ] = 600.0
    verify: Annotated[
        tuple[str, ...], Key("shell commands run in the worktree after each turn")
    ] = ()
    verify_timeout: Annotated[float, Key("time limit of each of them", DURATION)] = 600.0
    executor: Executor = Executor()
    agents: Annotated[dict[str, Agent], Key("agents of your own, by name")] = {}
    env: Annotated[
        dict[str, str], Key("executor name -> a file in `env` in datadir, added to its environment")
    ] = {}
    setup: Setup = Setup()
    projects: Annotated[
        dict[str, Project], Key("settings of one project, by its name in `handoff project ls`")
    ] = {}
    approver: Approver = Approver()
    queue: Queue = Queue()
    limits: Limits = Limits()
    proc_fence: ProcFence = ProcFence()
    targets: Annotated[dict[str, Target], Key("other executor machines, by name")] = {}
    sync: Sync = Sync()
    terminal: Terminal = Terminal()
    log: Log = Log()
    path: str = ""


def setup_of(config: Config, project: str) -> Setup:
    """The set-up of a project's fresh worktrees: its own if it has one, else that of all."""
    own = config.projects.get(project, Project()).setup
    return own if own.command or own.copy else config.setup


def verify_of(config: Config, project: str) -> tuple[str, ...]:
    """The verify commands of a project: its own if it has any, else those of all."""
    return config.projects.get(project, Project()).verify or config.verify


def default_path() -> str:
    """The file used when none is named: ``HANDOFF_CONFIG``, ``HANDOFF_HOME`` or
    ``~/.handoff/config.yaml``."""
    return places.config_path()


def keys() -> list[KeyDoc]:
    """Every key, in the order of the file."""
    return describe(Config)


def load(path: str) -> tuple[Config, list[ConfigWarning]]:
    """The configuration in path, defaults filled in, and what was read over.

    Raises:
        ConfigError: the file is missing, unreadable, not YAML, or a value has the wrong
            type. The text names file, line and key; never a secret.
    """
    from handoff.config_file import read

    path = os.path.abspath(os.path.expanduser(path))
    config: Config
    config, warnings = read(path, Config)
    datadir = os.path.normpath(os.path.join(os.path.dirname(path), config.datadir))
    config = msgspec.structs.replace(
        config,
        path=path,
        datadir=datadir,
        repo_root=os.path.join(datadir, config.repo_root or "repos"),
        worktrees_dir=os.path.join(datadir, config.worktrees_dir or "worktrees"),
    )
    return config, warnings


def create_default(
    path: str, *, executor: str = "opencode", listen: str = "127.0.0.1:7777"
) -> bool:
    """Write a first configuration with a random token, 0600, in a folder of 0700.

    Returns whether it was written: an existing file is never touched, also not when two
    programs do this at once.

    Raises:
        StorageError: the folder can't be made or written.
    """
    from handoff.config_file import create

    return create(path, executor=executor, listen=listen)


def update(path: str, changes: dict[str, object]) -> None:
    """Set dotted keys (``executor.default``) in the file; comments and order stay.

    The result is read back before it replaces the file, so a change that would not load
    is refused and leaves the file as it was.

    Raises:
        ConfigError: the file, or the file after the change, can't be used.
    """
    from handoff.config_file import update as change

    change(path, changes, Config)

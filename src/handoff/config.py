"""The configuration file: its keys as data, reading, first writing and careful editing.

The structs below are the only list of keys: their names, types, defaults and texts. The
reader, the warnings, the table in ``docs/configuration.md`` and the first file are all
made from them.

Reading works on YAML's node graph, not on constructed values, so that every message can
name its line, and so that a token of digits stays text. An unknown key is a warning with
the nearest known one, because an older agentd must be able to read a newer file; a value
of the wrong type is a :class:`~handoff.errors.ConfigError`.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from handoff import places
from handoff.errors import ConfigError, StorageError

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

#: a configuration larger than this is a mistake, not a configuration
MAX_BYTES = 1024 * 1024


class Key(msgspec.Struct, frozen=True):
    """How a field is read (``kind``) and what it means (``text``). ``secret``: its value
    is never shown, not even in an error. ``choices``: the only legal values."""

    text: str
    kind: str = ""
    secret: bool = False
    choices: tuple[str, ...] = ()


class KeyDoc(msgspec.Struct, frozen=True):
    """One key for people: dotted ``name`` (``NAME`` stands for any name), type, default,
    meaning."""

    name: str
    type: str
    default: str
    text: str


class ConfigWarning(msgspec.Struct, frozen=True):
    """Something that was read over. ``line`` counts from 1; 0 = the file as a whole."""

    key: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


_DURATION = "duration"
_SIZE = "size"
_PATH = "path"
_WORDS = "words"
_RATIO = "ratio"
_COUNT = "count"
_REGEX = "regex"


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

    executor: Annotated[str, Key("executor that runs the approver; empty = none")] = ""
    model: Annotated[str, Key("model of the approver")] = ""
    timeout: Annotated[float, Key("how long it may take", _DURATION)] = 60.0
    blacklist: Annotated[
        tuple[str, ...], Key("regular expressions that it never sees: you are asked", _REGEX)
    ] = ()


class Agent(msgspec.Struct, frozen=True):
    """An agent of your own that speaks the Agent Client Protocol."""

    command: Annotated[
        tuple[str, ...], Key("the program and its arguments, as a list or one line", _WORDS)
    ] = ()
    env: Annotated[dict[str, str], Key("added to its environment", secret=True)] = {}
    model: Annotated[str, Key("its model where a task names none")] = ""


class Setup(msgspec.Struct, frozen=True):
    """What makes a fresh worktree ready."""

    command: Annotated[str, Key("shell command run in each new managed worktree")] = ""
    copy: Annotated[
        tuple[str, ...], Key("patterns of ignored files to copy from the project's main worktree")
    ] = ()
    timeout: Annotated[float, Key("time limit of the command", _DURATION)] = 600.0


class Terminal(msgspec.Struct, frozen=True):
    """Terminal windows."""

    auto: Annotated[bool, Key("open a terminal that follows each new task (macOS)")] = False


class Sync(msgspec.Struct, frozen=True):
    """Bringing results back."""

    auto: Annotated[bool, Key("fetch a remote task's branch when its turn ends")] = True


class ProcFence(msgspec.Struct, frozen=True):
    """Room that stays free for you in the process table."""

    disabled: Annotated[bool, Key("no limit on an executor's processes")] = False
    reserve_ratio: Annotated[
        float, Key("share of the limit kept for you, above 0 below 1", _RATIO)
    ] = 0.1


class Log(msgspec.Struct, frozen=True):
    """agentd's log."""

    level: Annotated[
        str, Key("how much is logged", choices=("debug", "info", "warning", "error"))
    ] = "info"


class Queue(msgspec.Struct, frozen=True):
    """Tasks that wait for a free place."""

    max_waiting: Annotated[
        int, Key("dispatch is refused beyond this many; 0 = no bound", _COUNT)
    ] = 0


class Limits(msgspec.Struct, frozen=True):
    """Bounds on what is kept of one task, in bytes; what goes beyond is counted and said."""

    line: Annotated[int, Key("one line of an executor's output", _SIZE)] = 64 * 1024 * 1024
    journal: Annotated[int, Key("output of an executor not yet taken over", _SIZE)] = (
        256 * 1024 * 1024
    )
    frames: Annotated[int, Key("the readable record of a task (attach)", _SIZE)] = 64 * 1024 * 1024
    ticket: Annotated[int, Key("the full text of one ticket", _SIZE)] = 16 * 1024 * 1024
    run_output: Annotated[int, Key("output of one `handoff run`", _SIZE)] = 64 * 1024 * 1024
    procs: Annotated[int, Key("processes of one task; 0 = worked out from the machine", _COUNT)] = 0


class Config(msgspec.Struct, frozen=True):
    """A whole configuration. Times are seconds, sizes bytes, paths absolute.

    ``path`` is the file it came from; it is not a key.
    """

    listen: Annotated[str, Key("address of the loopback listener; `off` = Unix socket only")] = (
        "127.0.0.1:7777"
    )
    token: Annotated[str, Key("credential for the loopback listener", secret=True)] = ""
    datadir: Annotated[str, Key("where tasks live; default: the folder of this file", _PATH)] = ""
    repo_root: Annotated[str, Key("where clones go; default: `repos` in datadir", _PATH)] = ""
    worktrees_dir: Annotated[
        str, Key("where managed worktrees go; default: `worktrees` in datadir", _PATH)
    ] = ""
    path_dirs: Annotated[tuple[str, ...], Key("appended to PATH where they exist", _PATH)] = ()
    proxy: Annotated[
        str, Key("proxy of agentd's own `git clone` and `git fetch`, nothing else", secret=True)
    ] = ""
    max_running: Annotated[
        int, Key("tasks that run at once; 0 = by the number of cores", _COUNT)
    ] = 0
    stalltimeout: Annotated[
        float, Key("a task silent for so long is reported as stalled", _DURATION)
    ] = 7200.0
    verify: Annotated[
        tuple[str, ...], Key("shell commands run in the worktree after each turn")
    ] = ()
    verify_timeout: Annotated[float, Key("time limit of each of them", _DURATION)] = 600.0
    executor: Executor = Executor()
    agents: Annotated[dict[str, Agent], Key("agents of your own, by name")] = {}
    env: Annotated[
        dict[str, str], Key("executor name -> a file in `env` in datadir, added to its environment")
    ] = {}
    setup: Setup = Setup()
    approver: Approver = Approver()
    queue: Queue = Queue()
    limits: Limits = Limits()
    proc_fence: ProcFence = ProcFence()
    targets: Annotated[dict[str, Target], Key("other executor machines, by name")] = {}
    sync: Sync = Sync()
    terminal: Terminal = Terminal()
    log: Log = Log()
    path: str = ""


def default_path() -> str:
    """The file used when none is named: ``HANDOFF_CONFIG``, ``HANDOFF_HOME`` or
    ``~/.handoff/config.yaml``."""
    return places.config_path()


# -- scalars -----------------------------------------------------------------------------

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_BYTES = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30,
}  # fmt: skip
_SIZE_TEXT = re.compile(r"(\d+)\s*([A-Za-z]*)")


def parse_duration(text: str) -> float:
    """Seconds of ``90s``, ``2h``, ``1h30m``, ``250ms`` or ``0``.

    Raises:
        ValueError: it is none of these. A number without a unit is refused: whether it
            means seconds or nanoseconds differs between tools.
    """
    if text == "0":
        return 0.0
    total, at = 0.0, 0
    for part in _DURATION_PART.finditer(text):
        if part.start() != at:
            break
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if at != len(text) or not text:
        raise ValueError(f"'{text}' is not a duration such as 90s, 10m or 2h")
    return total


def _parse_size(text: str) -> int:
    found = _SIZE_TEXT.fullmatch(text)
    unit = _BYTES.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise ValueError("expected a size such as 64MiB")
    return int(found[1]) * unit


def _parse_count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("expected a whole number, 0 or more")
    return int(text)


def _parse_ratio(text: str) -> float:
    value = float(text) if re.fullmatch(r"\d*\.?\d+", text) else -1.0
    if not 0 < value < 1:
        raise ValueError("expected a number above 0 and below 1")
    return value


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _parse_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"expected a regular expression ({error})") from None
    return text


def _positive_duration(text: str) -> float:
    try:
        value = parse_duration(text)
    except ValueError:
        raise ValueError("expected a duration such as 90s, 10m or 2h") from None
    if value <= 0:
        raise ValueError("expected a duration above 0")
    return value


def _parse_path(text: str) -> str:
    return os.path.expanduser(text)


_PARSERS: dict[str, Callable[[str], Any]] = {
    _DURATION: _positive_duration,
    _SIZE: _parse_size,
    _COUNT: _parse_count,
    _RATIO: _parse_ratio,
    _REGEX: _parse_regex,
    _PATH: _parse_path,
    "bool": _parse_bool,
    "": str,
}


# -- the schema, read off the structs ----------------------------------------------------


class _Field(msgspec.Struct, frozen=True):
    name: str
    type: Any
    key: Key
    default: Any


def _fields(cls: type[msgspec.Struct]) -> dict[str, _Field]:
    hints = get_type_hints(cls, include_extras=True)
    found: dict[str, _Field] = {}
    for info in msgspec.structs.fields(cls):
        hint, key = hints[info.name], Key("")
        if get_origin(hint) is Annotated:
            hint, key = get_args(hint)[0], get_args(hint)[1]
        if info.name == "path" and cls is Config:
            continue
        default = info.default
        if default is msgspec.NODEFAULT:
            default = info.default_factory() if callable(info.default_factory) else None
        found[info.name] = _Field(info.name, hint, key, default)
    return found


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _duration_text(seconds: float) -> str:
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def _default_text(field: _Field) -> str:
    value = field.default
    if field.key.kind == _DURATION:
        return _duration_text(value)
    if field.key.kind == _SIZE:
        return f"{value // 2**20}MiB"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(value) + "]"
    if isinstance(value, dict):
        return "{}"
    return str(value) if value != "" else '""'


def _type_text(field: _Field) -> str:
    kind = field.key.kind
    if field.key.choices:
        return " or ".join(field.key.choices)
    if get_origin(field.type) is tuple:
        return "list or line" if kind == _WORDS else "list"
    if get_origin(field.type) is dict:
        return "map"
    return kind or {bool: "true or false", str: "text"}.get(field.type, "number")


def keys() -> list[KeyDoc]:
    """Every key, in the order of the file."""

    def walk(cls: type[msgspec.Struct], prefix: str) -> Iterator[KeyDoc]:
        for field in _fields(cls).values():
            name = prefix + field.name
            inner = get_args(field.type)[1] if get_origin(field.type) is dict else None
            if _is_struct(field.type):
                yield from walk(field.type, name + ".")
            elif inner is not None and _is_struct(inner):
                yield from walk(inner, f"{name}.NAME.")
            else:
                shown = f"{name}.NAME" if inner else name
                yield KeyDoc(shown, _type_text(field), _default_text(field), field.key.text)

    return list(walk(Config, ""))


# -- reading -----------------------------------------------------------------------------


class _Reader:
    """Turns a YAML node graph into structs, collecting warnings."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.warnings: list[ConfigWarning] = []

    def fail(self, node: Any, key: str, text: str) -> ConfigError:
        line = node.start_mark.line + 1
        return ConfigError(
            f"{self.path} line {line}: '{key}': {text}",
            remedy=f"edit line {line} of {self.path}",
            key=key,
            line=line,
        )

    def pairs(self, node: Any, prefix: str) -> list[tuple[str, Any, Any]]:
        """The entries of a mapping as (name, key node, value node); none twice."""
        seen: dict[str, int] = {}
        out: list[tuple[str, Any, Any]] = []
        if node.id != "mapping":
            shown = prefix.rstrip(".") or "the file"
            raise self.fail(node, shown, "expected keys with values (name: value)")
        for key_node, value_node in node.value:
            if key_node.id != "scalar":
                raise self.fail(key_node, prefix.rstrip(".") or "the file", "a key must be text")
            name = str(key_node.value)
            if name in seen:
                raise self.fail(key_node, prefix + name, f"is already on line {seen[name]}")
            seen[name] = key_node.start_mark.line + 1
            out.append((name, key_node, value_node))
        return out

    def struct(self, cls: type[msgspec.Struct], node: Any, prefix: str) -> Any:
        fields = _fields(cls)
        values: dict[str, Any] = {}
        for name, key_node, value_node in self.pairs(node, prefix):
            field = fields.get(name)
            if field is None:
                self.unknown(prefix + name, key_node.start_mark.line + 1)
            elif not _is_null(value_node):
                values[name] = self.value(field, value_node, prefix + name)
        return cls(**values)

    def unknown(self, name: str, line: int) -> None:
        import difflib

        known = [doc.name for doc in keys()]
        known += [part for doc in keys() for part in [doc.name.split(".")[0]] if part not in known]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        self.warnings.append(ConfigWarning(name, line, f"unknown key '{name}' is ignored{hint}"))

    def value(self, field: _Field, node: Any, name: str) -> Any:
        origin = get_origin(field.type)
        if _is_struct(field.type):
            return self.struct(field.type, node, name + ".")
        if origin is dict:
            return self.table(field, node, name)
        if origin is tuple:
            return self.items(field, node, name)
        return self.scalar(field, node, name)

    def table(self, field: _Field, node: Any, name: str) -> dict[str, Any]:
        inner = get_args(field.type)[1]
        entry = _Field("", inner, Key("", secret=field.key.secret), "")
        return {
            key: self.struct(inner, value, f"{name}.{key}.")
            if _is_struct(inner)
            else self.scalar(entry, value, f"{name}.{key}")
            for key, _, value in self.pairs(node, name + ".")
        }

    def items(self, field: _Field, node: Any, name: str) -> tuple[str, ...]:
        if field.key.kind == _WORDS and node.id == "scalar":
            try:
                return tuple(shlex.split(node.value))
            except ValueError as error:
                raise self.fail(node, name, f"expected a command line ({error})") from None
        if node.id != "sequence":
            raise self.fail(node, name, "expected a list")
        one = msgspec.structs.replace(field, type=str)
        if field.key.kind == _WORDS:
            one = msgspec.structs.replace(one, key=Key(""))
        return tuple(self.scalar(one, item, name) for item in node.value)

    def scalar(self, field: _Field, node: Any, name: str) -> Any:
        if node.id != "scalar":
            wanted = _type_text(field)
            raise self.fail(node, name, f"expected {wanted}, not a {node.id}")
        text = str(node.value)
        kind = field.key.kind or ("bool" if field.type is bool else "")
        shown = "" if field.key.secret else f", not '{text[:60]}'"
        if field.key.choices and text not in field.key.choices:
            raise self.fail(node, name, f"expected {_type_text(field)}{shown}")
        try:
            return _PARSERS[kind](text)
        except ValueError as error:
            raise self.fail(node, name, f"{error}{shown}") from None


def _is_null(node: Any) -> bool:
    return bool(node.id == "scalar" and node.tag == "tag:yaml.org,2002:null")


def _compose(path: str, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="rt", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        raise ConfigError(
            f"{path} line {line}: {error.problem or error.context or 'is not YAML'}",
            remedy=f"edit line {line} of {path}",
            line=line,
        ) from None
    except (YAMLError, RecursionError) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{path}: is not YAML: {first}", remedy=f"edit {path}") from None


def _read_text(path: str) -> tuple[str, list[ConfigWarning]]:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration at {path}", remedy="handoff init") from None
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read: {error.strerror}", remedy=f"ls -ld {shlex.quote(path)}"
        ) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES} bytes", remedy=f"edit {path}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"{path} line {line}: is not UTF-8", remedy=f"edit line {line} of {path}", line=line
        ) from None
    warnings: list[ConfigWarning] = []
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        hint = f"{path} can be read by others and holds a token: chmod 600 {shlex.quote(path)}"
        warnings.append(ConfigWarning("", 0, hint))
    return text, warnings


def load(path: str) -> tuple[Config, list[ConfigWarning]]:
    """The configuration in path, defaults filled in, and what was read over.

    Raises:
        ConfigError: the file is missing, unreadable, not YAML, or a value has the wrong
            type. The text names file, line and key; never a secret.
    """
    path = os.path.abspath(os.path.expanduser(path))
    text, warnings = _read_text(path)
    reader = _Reader(path)
    node = _compose(path, text)
    config: Config = Config() if node is None or _is_null(node) else reader.struct(Config, node, "")
    base = os.path.dirname(path)
    datadir = os.path.join(base, config.datadir)
    config = msgspec.structs.replace(
        config,
        path=path,
        datadir=datadir,
        repo_root=os.path.join(datadir, config.repo_root or "repos"),
        worktrees_dir=os.path.join(datadir, config.worktrees_dir or "worktrees"),
    )
    config = msgspec.structs.replace(config, datadir=os.path.normpath(config.datadir))
    return config, warnings + reader.warnings


# -- writing -----------------------------------------------------------------------------

_FIRST_FILE = """\
# Handoff's configuration. Every key is explained in docs/configuration.md;
# a key that is not here has its default. `handoff doctor` checks this file.

# Where agentd listens besides its Unix socket, and the credential for it.
listen: {listen}
token: "{token}"

executor:
  default: {executor}
"""


def first_text(*, token: str, executor: str = "opencode", listen: str = "127.0.0.1:7777") -> str:
    """The text of a new configuration file."""
    quoted = [
        f'"{value}"' if re.search(r"[^\w.:-]", value) else value for value in (listen, executor)
    ]
    return _FIRST_FILE.format(listen=quoted[0], token=token, executor=quoted[1])


def create_default(
    path: str, *, executor: str = "opencode", listen: str = "127.0.0.1:7777"
) -> bool:
    """Write a first configuration with a random token, 0600, in a folder of 0700.

    Returns whether it was written: an existing file is never touched, also not when two
    programs do this at once.

    Raises:
        StorageError: the folder can't be made or written.
    """
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.lexists(path):
        return False
    text = first_text(token=secrets.token_hex(16), executor=executor, listen=listen)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return _write(path, text, replace=False)
    except OSError as error:
        raise StorageError(
            f"{path} can't be written: {error.strerror}",
            remedy="set HANDOFF_HOME to a folder that you may write",
            path=path,
        ) from error


def _write(path: str, text: str, *, replace: bool) -> bool:
    """Put text at path in one step, 0600, on disk before it is visible.

    With ``replace`` False an existing file wins (link(2) fails on it) and the result is
    False."""
    handle, temp = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".config-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(temp, path)
            return True
        try:
            os.link(temp, path)
        except FileExistsError:
            return False
        return True
    finally:
        if os.path.lexists(temp):
            os.unlink(temp)


def update(path: str, changes: dict[str, object]) -> None:
    """Set dotted keys (``executor.default``) in the file; comments and order stay.

    The result is read back before it replaces the file, so a change that would not load
    is refused and leaves the file as it was.

    Raises:
        ConfigError: the file, or the file after the change, can't be used.
    """
    from io import StringIO

    from ruamel.yaml import YAML

    path = os.path.realpath(os.path.expanduser(path))
    text, _ = _read_text(path)
    _compose(path, text)
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    document = yaml.load(text)
    document = {} if document is None else document
    for dotted, value in changes.items():
        place = document
        *folders, name = dotted.split(".")
        for folder in folders:
            if place.get(folder) is None:
                place[folder] = {}
            place = place[folder]
        place[name] = value
    out = StringIO()
    yaml.dump(document, out)
    _Reader(path).struct(Config, _compose(path, out.getvalue()), "")
    _write(path, out.getvalue(), replace=True)

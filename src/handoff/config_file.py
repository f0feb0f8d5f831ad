"""Reading and writing the configuration file for :mod:`handoff.config`.

Reading works on YAML's node graph, not on constructed values, so that every message can
name its line, and so that a token of digits stays text. The YAML library is imported only
when a file is read.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import stat
import tempfile
from collections.abc import Iterable
from typing import Any, get_args, get_origin

import msgspec

from handoff.config_values import (
    PARSERS,
    WORDS,
    ConfigWarning,
    Field,
    Key,
    describe,
    fields,
    is_struct,
    type_text,
)
from handoff.errors import ConfigError, StorageError

#: a configuration larger than this is a mistake, not a configuration
MAX_BYTES = 1024 * 1024


# -- reading -----------------------------------------------------------------------------


class _Reader:
    """Turns a YAML node graph into structs, collecting warnings."""

    def __init__(self, path: str, root: type[msgspec.Struct]) -> None:
        self.path = path
        self.root = root
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
        known = fields(cls)
        values: dict[str, Any] = {}
        for name, key_node, value_node in self.pairs(node, prefix):
            field = known.get(name)
            if field is None:
                self.unknown(prefix, name, key_node.start_mark.line + 1, known)
            elif not _is_null(value_node):
                values[name] = self.value(field, value_node, prefix + name)
                if field.key.idle and values[name] != field.default:
                    self.idle(prefix + name, key_node.start_mark.line + 1)
        return cls(**values)

    def idle(self, name: str, line: int) -> None:
        text = f"key '{name}' has no effect in this version"
        self.warnings.append(ConfigWarning(name, line, text))

    def unknown(self, prefix: str, name: str, line: int, siblings: Iterable[str]) -> None:
        import difflib

        near = difflib.get_close_matches(name, siblings, n=1)
        hint = f"; did you mean '{prefix}{near[0]}'?" if near else ""
        if not near:  # the right name in the wrong place
            places = [doc.name for doc in describe(self.root) if doc.name.split(".")[-1] == name]
            hint = f"; it belongs below '{places[0].rpartition('.')[0]}'" if places else ""
        text = f"unknown key '{prefix}{name}' is ignored{hint}"
        self.warnings.append(ConfigWarning(prefix + name, line, text))

    def value(self, field: Field, node: Any, name: str) -> Any:
        origin = get_origin(field.type)
        if is_struct(field.type):
            return self.struct(field.type, node, name + ".")
        if origin is dict:
            return self.table(field, node, name)
        if origin is tuple:
            return self.items(field, node, name)
        return self.scalar(field, node, name)

    def table(self, field: Field, node: Any, name: str) -> dict[str, Any]:
        inner = get_args(field.type)[1]
        entry = Field("", inner, Key("", secret=field.key.secret), "")
        return {
            key: self.struct(inner, value, f"{name}.{key}.")
            if is_struct(inner)
            else self.scalar(entry, value, f"{name}.{key}")
            for key, _, value in self.pairs(node, name + ".")
        }

    def items(self, field: Field, node: Any, name: str) -> tuple[str, ...]:
        if field.key.kind == WORDS and node.id == "scalar":
            try:
                return tuple(shlex.split(node.value))
            except ValueError as error:
                raise self.fail(node, name, f"expected a command line ({error})") from None
        if node.id != "sequence":
            raise self.fail(node, name, "expected a list")
        one = msgspec.structs.replace(field, type=str)
        if field.key.kind == WORDS:
            one = msgspec.structs.replace(one, key=Key(""))
        return tuple(self.scalar(one, item, name) for item in node.value)

    def scalar(self, field: Field, node: Any, name: str) -> Any:
        if node.id != "scalar":
            wanted = type_text(field)
            raise self.fail(node, name, f"expected {wanted}, not a {node.id}")
        text = str(node.value)
        kind = field.key.kind or ("bool" if field.type is bool else "")
        shown = "" if field.key.secret else f", not '{text[:60]}'"
        if field.key.choices and text not in field.key.choices:
            raise self.fail(node, name, f"expected {type_text(field)}{shown}")
        try:
            return PARSERS[kind](text)
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
        hint = (
            f"{path} can be read by others, and it may hold tokens: chmod 600 {shlex.quote(path)}"
        )
        warnings.append(ConfigWarning("", 0, hint))
    return text, warnings


def read(path: str, root: type[msgspec.Struct]) -> tuple[Any, list[ConfigWarning]]:
    """The file as a ``root`` struct, and what was read over.

    Raises:
        ConfigError: see :func:`handoff.config.load`.
    """
    text, warnings = _read_text(path)
    reader = _Reader(path, root)
    node = _compose(path, text)
    value = root() if node is None or _is_null(node) else reader.struct(root, node, "")
    return value, warnings + reader.warnings


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


def create(path: str, *, executor: str, listen: str) -> bool:
    """See :func:`handoff.config.create_default`."""
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


def update(path: str, changes: dict[str, object], root: type[msgspec.Struct]) -> None:
    """See :func:`handoff.config.update`."""
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
    _Reader(path, root).struct(root, _compose(path, out.getvalue()), "")
    _write(path, out.getvalue(), replace=True)

"""Environment files: a small dotenv dialect, read strictly.

===================  =====================================================================
size                 at most 64 KiB, UTF-8
lines                LF or CRLF, trimmed; empty ones and those that begin with ``#`` are
                     skipped; there are no comments behind a value
form                 ``[export ]KEY=VALUE``, KEY is ``[A-Za-z_][A-Za-z0-9_]*``; blanks
                     around key and value are trimmed
``'value'``          as it stands
``"value"``          without its quotes, expanded; a backslash means itself
value                expanded
expansion            ``$NAME`` and ``${NAME}``, once: a key set earlier in the file, else
                     the process environment, else nothing
the same key twice   the last one wins, at the place of the first; it is told as a warning
===================  =====================================================================

Values are secrets: neither errors nor warnings ever show one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from handoff.errors import ConfigError

MAX_BYTES = 64 << 10
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


class EnvFile(msgspec.Struct, frozen=True):
    """What a file sets, in order, and what is odd about it (no values in there)."""

    values: dict[str, str]
    warnings: tuple[str, ...] = ()


def parse(raw: bytes, environ: Mapping[str, str]) -> EnvFile:
    """Read the text of an environment file. environ: what ``$NAME`` may fall back on.

    Raises:
        ConfigError: with the line's number, never its content.
    """
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{len(raw)} bytes are more than the {MAX_BYTES} an env file may have")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"line {at}: not UTF-8", line=at) from None
    values: dict[str, str] = {}
    warnings: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, value = _split(stripped, number)
        if key in values:
            warnings.append(f"line {number}: {key} is set twice, the last one wins")
        values[key] = _value(value, {**environ, **values})
    return EnvFile(values, tuple(warnings))


def _split(line: str, number: int) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    words = name.split()
    if len(words) == 2 and words[0] == "export":
        del words[0]
    if not equals:
        raise ConfigError(f"line {number}: there is no '='", line=number)
    key = words[0] if len(words) == 1 else name.strip()
    if not _KEY.match(key):
        # the name itself may be a secret that somebody pasted without its key
        raise ConfigError(f"line {number}: what stands before '=' is no variable", line=number)
    if "\0" in value:
        raise ConfigError(f"line {number}: {key} holds a zero byte", line=number)
    return key, value.strip()


def _value(value: str, known: Mapping[str, str]) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        quote, value = value[0], value[1:-1]
        if quote == "'":
            return value
    return _REFERENCE.sub(lambda found: known.get(found[1] or found[2], ""), value)


def load(folder: Path, name: str, environ: Mapping[str, str]) -> EnvFile:
    """Read folder/name. name: a bare file name.

    Raises:
        ConfigError: the name is a path, the file is missing, unreadable or wrong; the
            message names the file and the line.
    """
    if not name or name in {".", ".."} or "/" in name or "\\" in name or "\0" in name:
        raise ConfigError(
            f"'{name}' is not a file name: give a name in {folder}, without a folder", name=name
        )
    path = folder / name
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"can't read the env file {path}: {error.strerror}", remedy=f"check {path}"
        ) from error
    try:
        return parse(raw, environ)
    except ConfigError as error:
        raise ConfigError(
            f"{path}: {error.cause}", remedy=f"edit {path}", **error.details
        ) from None

"""What reaches a terminal: harmless text, widths, colours, times, sizes, tables.

Text from executors, file names and diffs may hold control sequences, invisible or
direction-changing characters. :func:`safe` makes them visible. Piped output is never
passed through here: it is exact.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

# What a terminal would obey or hide, as ranges: C0 (tab and newline apart), DEL and C1, soft
# hyphen, Arabic letter mark, Hangul fillers, Mongolian separator, zero width and direction
# marks, line and paragraph separators and embeddings, word joiner to deprecated format
# characters, filler, surrogates (bytes that are not UTF-8), BOM, half-width filler,
# interlinear marks, and the tag characters in which text can hide.
_UNSAFE = (
    (0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x61C, 0x61C), (0x115F, 0x1160),
    (0x180E, 0x180E), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164),
    (0xD800, 0xDFFF), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF9, 0xFFFB),
    (0xE0000, 0xE007F),
)  # fmt: skip


def _visible(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as Python hands it over
        return f"⟨0x{code - 0xDC00:02X}⟩"
    return f"⟨U+{code:04X}⟩"


def _json_escape(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _shell_escape(code: int) -> str:
    """A character in the notation of ``$'…'``, where two digits mean a byte."""
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return {9: "\\t", 10: "\\n"}.get(code, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Table(dict[int, "str | int"]):
    """For ``str.translate``: filled as characters are met, so that nothing is prepared
    (a regular expression of these ranges costs a millisecond to compile).

    Args:
        show: what stands for an unsafe character.
        one_line: whether tab and newline are unsafe too.
    """

    def __init__(self, show: Callable[[int], str], *, one_line: bool = False) -> None:
        super().__init__()
        self._show = show
        self._one_line = one_line

    def __missing__(self, code: int) -> str | int:
        unsafe = any(first <= code <= last for first, last in _UNSAFE)
        unsafe = unsafe or (self._one_line and code in (9, 10))
        found: str | int = self._show(code) if unsafe else code
        self[code] = found
        return found


_TEXT = _Table(_visible)
_LINE = _Table(_visible, one_line=True)
_JSON = _Table(_json_escape)
_SHELL = _Table(_shell_escape, one_line=True)


def safe(text: object) -> str:
    """Text of several lines with everything but newlines and tabs made visible, as
    ``⟨U+001B⟩`` for a character and ``⟨0xFF⟩`` for a byte that is not UTF-8."""
    return str(text).translate(_TEXT)


def safe_line(text: object) -> str:
    """Text for one line: newlines and tabs are made visible too."""
    return str(text).translate(_LINE)


def json_safe(line: str) -> str:
    """A JSON text with invisible and direction-changing characters as JSON escapes."""
    return line.translate(_JSON)


def width(text: str) -> int:
    """Columns that text takes on a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata

    total = 0
    for char in text:
        if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
            continue
        total += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return total


def cut(text: str, columns: int) -> str:
    """Text shortened to at most that many columns, ``…`` at the cut."""
    if width(text) <= columns:
        return text
    out, used = "", 0
    for char in text:
        used += width(char)
        if used > columns - 1:
            break
        out += char
    return out + "…"


def pad(text: str, columns: int) -> str:
    """Text filled up with blanks to that many columns."""
    return text + " " * max(0, columns - width(text))


def is_tty(stream: Any) -> bool:
    """Whether the stream is a terminal; a closed one is not."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def columns(default: int = 80) -> int:
    """The width of the terminal, or what ``COLUMNS`` says."""
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdigit() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or default
    except (OSError, ValueError, AttributeError):
        return default


_CODES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34",
    "magenta": "35", "cyan": "36",
}  # fmt: skip


def colour(text: str, *names: str, stream: Any = None) -> str:
    """Text in colour where the stream (default stdout) is a terminal that wants it."""
    stream = stream or sys.stdout
    if not is_tty(stream) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{';'.join(_CODES[n] for n in names)}m{text}\x1b[0m"


STATE_COLOURS = {
    "pending": "dim",
    "running": "cyan",
    "waiting_answer": "yellow",
    "waiting_review": "magenta",
    "completed": "green",
    "failed": "red",
}


def state(name: str) -> str:
    """A task's state in its colour."""
    shown = STATE_COLOURS.get(name)
    return colour(name, shown) if shown else safe_line(name)


def shell_quote(word: str) -> str:
    """Word as a POSIX shell reads it back."""
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+"
    if word and all(c in plain for c in word):
        return word
    if word != word.translate(_SHELL):  # as such it could not be copied: $'…' can
        body = word.replace("\\", "\\\\").replace("'", "\\'").translate(_SHELL)
        return f"$'{body}'"
    return "'" + word.replace("'", "'\"'\"'") + "'"


def epoch(text: str) -> float | None:
    """Seconds since 1970 of an RFC 3339 time in UTC; None if it is not one."""
    import re

    found = re.match(r"([0-9]{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(?:Z|\+00:00)$", text)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    year -= month <= 2  # days from civil, proleptic Gregorian
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return days * 86400 + hour * 3600 + minute * 60 + second + float(found[7] or 0)


def local_time(text: str, now: float | None = None) -> str:
    """An RFC 3339 time as local time: ``14:03:05`` today, else with its date."""
    seconds = epoch(text)
    if seconds is None:
        return safe_line(text)
    then, today = time.localtime(seconds), time.localtime(time.time() if now is None else now)
    form = "%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M"
    return time.strftime(form, then)


def ago(text: str, now: float | None = None) -> str:
    """How long ago an RFC 3339 time was."""
    seconds = epoch(text)
    if seconds is None:
        return "?"
    return span(max(0.0, (time.time() if now is None else now) - seconds))


def span(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def size(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, limit: int | None = None) -> str:
    """Rows in columns; the last column is cut to the width of the terminal (or limit).

    Cells may be coloured: their escape codes take no room.
    """
    body = [list(row) for row in rows]
    widths = [
        max([width(name)] + [width(_plain(row[at])) for row in body])
        for at, name in enumerate(head)
    ]
    room = (limit if limit is not None else columns()) - sum(widths[:-1]) - 2 * (len(head) - 1)
    lines = ["  ".join(pad(name, widths[at]) for at, name in enumerate(head)).rstrip()]
    for row in body:
        cells = [
            cell + " " * (widths[at] - width(_plain(cell))) for at, cell in enumerate(row[:-1])
        ]
        last = (
            row[-1]
            if width(_plain(row[-1])) <= max(room, 8)
            else cut(_plain(row[-1]), max(room, 8))
        )
        lines.append("  ".join([*cells, last]).rstrip())
    return "\n".join([colour(lines[0], "bold"), *lines[1:]])


def _plain(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def indent(text: str, by: str = "  ") -> str:
    """Every line of text behind ``by``; no blanks are added at line ends."""
    return "\n".join(
        (by + line).rstrip(" ") if not line else by + line for line in text.split("\n")
    )

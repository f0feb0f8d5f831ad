"""Of the messages before the last ones: the lines that name something, from everywhere.

A long session's middle is mostly noise, and what matters there stands in few lines: a decision,
an error, a path, a number. A line counts if it names something for the first time, and counts
more if its words say that something was settled or went wrong. The room goes round the parts
of the session in turn, so that no part takes all of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from handoff.sessions.host_store import Message

__all__ = ["LINE", "Excerpt", "pick"]

#: bytes of one line; lines of one message; parts of a session that take turns
LINE, LINES, PARTS = 256, 4, 64
#: lines that are held to choose from, and characters of a message that are looked at
HELD, LOOKED_AT = 20_000, 64 * 1024
#: what a line names: paths, test ids, codes, numbers, identifiers, what is quoted
_NAMED = re.compile(
    r"[\w.@-]*/[\w./@:-]+|\w+::[\w:]+|\b[A-Za-z]{1,5}-?\d{2,}\b|\b\d[\d.,:]*\d\b"
    r"|\b\w+_\w+\b|\b[a-z]+[A-Z]\w*\b|\b\w+\.[a-z]{1,4}\b|`[^`\n]{2,80}`"
)
_TOLD = re.compile(
    r"\b(?:decid\w*|decision|because|instead|reject\w*|stale|fail\w*|error|exception|broke\w*|"
    r"pass(?:ed|es)?|verified|fixed|root cause|turned out|must|never|now on|port|version|"
    r"todo|pending|open question|deciso|perché|scartat\w*|errore|fallit\w*|entschieden|weil|"
    r"verworfen|fehler)\b|决定|因为|错误|失败|拒绝",
    re.IGNORECASE,
)


class Excerpt(NamedTuple):
    """What of one message is shown."""

    message: Message
    text: str


class _Line(NamedTuple):
    score: int
    number: int
    message: Message
    text: str


def pick(
    messages: Iterable[Message], limit: int, most: int, *, without: Collection[str] = ()
) -> list[Excerpt]:
    """Lines of at most ``most`` of these messages, in their order; together at most ``limit``
    bytes. ``without``: ids of messages that are shown elsewhere."""
    lines, count = _lines(messages, without)
    chosen: dict[int, list[_Line]] = {}
    for line in _in_turn(lines, count):
        size = len(line.text.encode("utf-8", "replace")) + 1
        if size > limit or (line.number not in chosen and len(chosen) >= most):
            continue
        limit -= size
        chosen.setdefault(line.number, []).append(line)
    return [
        Excerpt(found[0].message, "\n".join(one.text for one in found))
        for _, found in sorted(chosen.items())
    ]


def _lines(messages: Iterable[Message], without: Collection[str]) -> tuple[list[_Line], int]:
    """The lines that name something new, and how many messages there were."""
    seen: set[str] = set()
    found: list[_Line] = []
    count = 0
    for count, message in enumerate(messages, 1):
        if message.id in without or len(found) >= HELD:
            continue
        mine: list[_Line] = []
        for line in message.text[:LOOKED_AT].split("\n"):
            fresh = {name.casefold() for name in _NAMED.findall(line[:4096])} - seen
            if fresh:
                seen |= fresh
                score = min(len(fresh), 3) + 4 * bool(_TOLD.search(line[:4096]))
                score += 2 * (message.role == "user")
                mine.append(_Line(score, count, message, _short(line.strip())))
        best = sorted(mine, key=lambda one: -one.score)[:LINES]
        found += [one for one in mine if one in best]
    return found, count


def _short(line: str) -> str:
    """Head and tail of a line that is over the limit."""
    raw = line.encode("utf-8", "replace")
    if len(raw) <= LINE:
        return raw.decode()
    half = LINE // 2 - 4
    return f"{raw[:half].decode('utf-8', 'ignore')} … {raw[-half:].decode('utf-8', 'ignore')}"


def _in_turn(lines: list[_Line], count: int) -> Iterable[_Line]:
    """The best line of each part of the session, then the second of each, and so on; in each
    turn the best first, for the room may end within it."""
    parts: list[list[_Line]] = [[] for _ in range(PARTS)]
    for line in lines:
        parts[(line.number - 1) * PARTS // max(count, 1)].append(line)
    queues = [sorted(part, key=lambda one: (-one.score, one.number)) for part in parts]
    for turn in range(max(map(len, queues), default=0)):
        heads = [queue[turn] for queue in queues if turn < len(queue)]
        yield from sorted(heads, key=lambda one: (-one.score, one.number))

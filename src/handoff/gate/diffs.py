"""Unified differences that stay small and quick, whatever is compared."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

#: characters of one difference; what is beyond is counted
MAX_DIFF = 64 * 1024
#: steps of line-by-line comparison for one difference, each about 50 ns; beyond, the lines
#: between two that are unique are shown as replaced
BUDGET = 4_000_000
_CONTEXT = 3

_Opcode = tuple[str, int, int, int, int]


def unified(
    old: str, new: str, label: str, *, limit: int = MAX_DIFF, new_file: bool = False
) -> str:
    """The unified difference of two texts, "" if they are equal.

    At most about limit characters; a cut is stated in its last line. Lines are told apart
    at line feeds only, and a missing one at the end is stated as git does.
    """
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    parts = [f"--- {'/dev/null' if new_file else label}\n", f"+++ {label}\n"]
    size = sum(map(len, parts))
    lines = _hunks(before, after)
    for line in lines:
        if size + len(line) > limit:
            room = max(limit - size, 0)
            rest = len(line) - room + sum(map(len, lines))
            parts.append(line[:room].rstrip("\n") + "\n" if room else "")
            parts.append(f"[… {rest} more characters of the difference left out …]\n")
            break
        parts.append(line)
        size += len(line)
    return "".join(parts)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    whole = [line + "\n" for line in lines]
    return [*whole, last + "\n\\ No newline at end of file\n"] if last else whole


def _hunks(before: list[str], after: list[str]) -> Iterator[str]:
    for group in _groups(before, after):
        first, last = group[0], group[-1]
        yield f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@\n"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (" " + line for line in before[i1:i2])
            else:
                yield from ("-" + line for line in before[i1:i2])
                yield from ("+" + line for line in after[j1:j2])


def _span(start: int, stop: int) -> str:
    length = stop - start
    return str(start + 1) if length == 1 else f"{start + 1 if length else start},{length}"


def _groups(before: list[str], after: list[str]) -> Iterator[list[_Opcode]]:
    """Opcodes with three lines of context."""
    matcher: SequenceMatcher[str] = SequenceMatcher(None, (), ())
    # The grouping of difflib, over opcodes that were found in a bounded time.
    matcher.opcodes = _opcodes(before, after)  # type: ignore[attr-defined]
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        yield [(tag, i1, i2, j1, j2) for tag, i1, i2, j1, j2 in group]


def _opcodes(before: list[str], after: list[str]) -> list[_Opcode]:
    """Compare by the lines that are unique on both sides (as patience diff does), and
    what lies between them line by line while the budget lasts."""
    budget, i, j = BUDGET, 0, 0
    codes: list[_Opcode] = []
    for i1, j1, i2, j2 in _anchored(before, after):
        budget -= _cost(before[i:i1], after[j:j1])
        codes += _gap(before, after, (i, j, i1, j1), budget)
        codes.append(("equal", i1, i2, j1, j2))
        i, j = i2, j2
    merged: list[_Opcode] = []
    for code in codes:
        tag, i1, i2, j1, j2 = code
        if merged and tag == "equal" == merged[-1][0]:
            _, first_i, _, first_j, _ = merged.pop()
            code = (tag, first_i, i2, first_j, j2)
        if i1 < i2 or j1 < j2:
            merged.append(code)
    return merged


def _anchored(before: list[str], after: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Equal blocks as (start before, start after, end before, end after), in order; the
    last one is empty and at the end of both."""
    end = 0
    shorter = min(len(before), len(after))
    while end < shorter and before[-1 - end] == after[-1 - end]:
        end += 1
    stop_i, stop_j = len(before) - end, len(after) - end
    i = j = 0
    for at_i, at_j in [(0, 0), *_unique(before, after, stop_i, stop_j)]:
        if at_i < i or at_j < j:
            continue
        low_i, low_j = at_i, at_j
        while low_i > i and low_j > j and before[low_i - 1] == after[low_j - 1]:
            low_i, low_j = low_i - 1, low_j - 1
        high_i, high_j = at_i, at_j
        while high_i < stop_i and high_j < stop_j and before[high_i] == after[high_j]:
            high_i, high_j = high_i + 1, high_j + 1
        if high_i > low_i:
            yield low_i, low_j, high_i, high_j
            i, j = high_i, high_j
    yield stop_i, stop_j, len(before), len(after)


def _unique(before: list[str], after: list[str], stop_i: int, stop_j: int) -> list[tuple[int, int]]:
    """The longest rising chain of lines that are there once on each side."""
    once_before = Counter(before[:stop_i])
    once_after = Counter(after[:stop_j])
    place = {line: j for j, line in enumerate(after[:stop_j]) if once_after[line] == 1}
    ends: list[int] = []
    tops: list[int] = []
    pairs: list[tuple[int, int, int]] = []
    for i, line in enumerate(before[:stop_i]):
        j = place.get(line)
        if j is None or once_before[line] != 1:
            continue
        at = bisect_left(ends, j)
        previous = tops[at - 1] if at else -1
        pairs.append((i, j, previous))
        ends[at : at + 1] = [j]
        tops[at : at + 1] = [len(pairs) - 1]
    chain = []
    number = tops[-1] if tops else -1
    while number >= 0:
        i, j, number = pairs[number]
        chain.append((i, j))
    return chain[::-1]


def _cost(old: list[str], new: list[str]) -> int:
    """About how many steps SequenceMatcher may take."""
    if not old or not new:
        return 0
    counts = Counter(new)
    pairs = sum(counts[line] for line in old)
    return (pairs + len(old)) * (1 + min(pairs, len(old), len(new)))


def _gap(
    before: list[str], after: list[str], span: tuple[int, int, int, int], budget: int
) -> Iterator[_Opcode]:
    i1, j1, i2, j2 = span
    if i1 == i2 and j1 == j2:
        return
    old, new = before[i1:i2], after[j1:j2]
    if not old or not new or budget < 0:
        tag = "replace" if old and new else "delete" if old else "insert"
        yield tag, i1, i2, j1, j2
        return
    for tag, a1, a2, b1, b2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield tag, i1 + a1, i1 + a2, j1 + b1, j1 + b2

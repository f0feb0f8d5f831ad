"""Unified differences that stay small and quick, whatever is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

#: characters of one difference; what is beyond is counted
MAX_DIFF = 64 * 1024
#: pairs of equal lines up to which the middle of two texts is compared line by line.
#: SequenceMatcher takes about 50 ns a pair and round; beyond, the middle is shown whole.
MAX_PAIRS = 50_000
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
    """Opcodes with three lines of context, equal starts and ends left aside."""
    shorter = min(len(before), len(after))
    top = 0
    while top < shorter and before[top] == after[top]:
        top += 1
    end = 0
    while end < shorter - top and before[-1 - end] == after[-1 - end]:
        end += 1
    low, high = max(top - _CONTEXT, 0), max(end - _CONTEXT, 0)
    old, new = before[low : len(before) - high], after[low : len(after) - high]
    counts = Counter(new)
    if sum(counts[line] for line in old) <= MAX_PAIRS:
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        groups: Iterator[list[_Opcode]] = iter(
            [[tuple(code) for code in group] for group in matcher.get_grouped_opcodes(_CONTEXT)]  # type: ignore[misc]
        )
    else:
        lead, trail = top - low, end - high
        codes = [
            ("equal", 0, lead, 0, lead),
            ("replace", lead, len(old) - trail, lead, len(new) - trail),
            ("equal", len(old) - trail, len(old), len(new) - trail, len(new)),
        ]
        groups = iter([[code for code in codes if code[1] < code[2] or code[3] < code[4]]])
    for group in groups:
        yield [(tag, i1 + low, i2 + low, j1 + low, j2 + low) for tag, i1, i2, j1, j2 in group]

"""A long text, shortened for an event or a notification, so that nothing can hide in it.

The start and the end are shown and what lies between is counted. Runs of blanks and of
blank lines, with which the end of a text can be pushed out of sight, are counted instead
of printed. Characters that are not seen, or that make a terminal show something else than
what is there (control characters, writing direction, zero width) are printed as
``⟨U+202E⟩``. The marks of this module can't be forged: where the text itself holds the
start of one, that start is printed as code points.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from handoff.gate.contract import Examined, Excerpt

#: characters of an excerpt in an event, marks included
LIMIT = 600
#: blanks in a row that are still printed: at the start of a line, and elsewhere
INDENT = 16
GAP = 4

_BLANK = " \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u2800\u3164\u115f\u1160\uffa0"
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u070f\u17b4\u17b5\u180b-\u180f\u200b\u200e"
    "\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SPECIAL = re.compile(
    rf"(?P<lines>\r?\n[{_BLANK}\r]*\n[{_BLANK}\r\n]*\n|\A[{_BLANK}\r]*\n[{_BLANK}\r\n]*\n)"
    r"|(?P<line>\r?\n)"
    rf"|(?P<blanks>[{_BLANK}]{{{GAP + 1},}})"
    rf"|(?P<odd>[\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u2800\u3164\u115f\u1160\uffa0])"
    rf"|(?P<unseen>[{_UNSEEN}])"
    r"|(?P<joiner>[\u200c\u200d](?=[\x00-\x7f]|\Z)|(?<![^\x00-\x7f])[\u200c\u200d])"
    r"|(?P<mark>\[(?=…)|⟨(?=U\+))"
)
# How much of the end is looked at; more than any excerpt shows, blank runs set aside.
_WINDOW = 8192
_STEP = 4096
_MARGIN = 2 * GAP
_CLUSTER = 16


def visible(text: str) -> str:
    """The text with all that is not seen made visible; line ends and tabs stay."""
    return re.sub(f"[{_UNSEEN}]", lambda m: _code(m.group()), text.replace("\r\n", "\n"))


def _code(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[str, int, bool]]:
    """The text as (what is printed, where its source ends, whether anything was counted)."""
    at = start
    for found in _specials(text, start, end):
        if isinstance(found, int):
            # Plain up to there; a cluster that goes on is left for the next step.
            for piece in _clusters(text, at, found):
                if piece[1] < found:
                    yield piece
                    at = piece[1]
            continue
        yield from _clusters(text, at, found.start())
        at = found.end()
        source, kind = found.group(), found.lastgroup
        if kind == "line":
            yield "\n", at, False
        elif kind == "lines":
            lead = source.startswith(("\n", "\r")) and found.start() > 0
            count = source.count("\n") - lead
            yield ("\n" if lead else "") + f"[… {count} blank lines …]\n", at, True
        elif kind == "blanks":
            first = found.start() == 0 or text[found.start() - 1] == "\n"
            if first and len(source) <= INDENT and source.strip(" ") == "":
                yield source, at, False
            else:
                yield f"[… {len(source)} blanks …]", at, True
        elif kind == "odd":
            yield (" " if source in "\t\u00a0" else _code(source)), at, False
        else:
            yield _code(source), at, False
    yield from _clusters(text, at, end)


def _specials(text: str, start: int, end: int) -> Iterator[re.Match[str] | int]:
    """Where something is not plain text, or a place before which all is plain.

    A caller that has enough stops: a large text is not looked through to its end."""
    at = start
    while at < end:
        stop = min(at + _STEP, end)
        found = _SPECIAL.search(text, at, stop)
        edge = stop if found is None else found.start()
        if stop < end and edge - _MARGIN > at and (found is None or found.end() >= stop - 1):
            # What depends on the characters around is seen in the next step.
            at = edge - _MARGIN
            yield at
        elif found is None:
            return
        else:
            # Matched again without the limit of the step, where it may be longer, or
            # nothing special because of the character after it.
            whole = _SPECIAL.match(text, found.start(), end)
            if whole is not None:
                yield whole
            at = whole.end() if whole is not None else found.start() + 1


def _clusters(text: str, start: int, end: int) -> Iterator[tuple[str, int, bool]]:
    """Plain text, one user-perceived character at a time."""
    at = start
    while at < end:
        stop = at + 1
        while stop < end and stop - at < _CLUSTER and _joins(text[stop - 1], text[stop], at, stop):
            stop += 1
        yield text[at:stop], stop, False
        at = stop


def _joins(before: str, after: str, at: int, stop: int) -> bool:
    """Whether a cut between the two would split what is seen as one character."""
    if after < "\u0300":
        return False
    if "\u200d" in (before, after) or after in "\ufe0e\ufe0f" or "🏻" <= after <= "🏿":
        return True
    if "🇦" <= after <= "🇿":
        return "🇦" <= before <= "🇿" and (stop - at) % 2 == 1
    return unicodedata.category(after)[0] == "M"


def excerpt(text: str, limit: int = LIMIT) -> Excerpt:
    """Shorten text to at most limit characters (at least 80), marks included.

    ``characters`` and ``lines`` of the result are the size of the whole text; ``short``
    is True if anything of it is counted instead of printed.
    """
    limit = max(limit, 80)
    lines = text.count("\n") + (0 if text.endswith("\n") or not text else 1)
    whole: list[str] = []
    used, counted = 0, False
    for shown, _, was_counted in _pieces(text, 0, len(text)):
        used += len(shown)
        if used > limit:
            return Excerpt(_cut(text, limit), short=True, characters=len(text), lines=lines)
        whole.append(shown)
        counted = counted or was_counted
    return Excerpt("".join(whole), short=counted, characters=len(text), lines=lines)


def _cut(text: str, limit: int) -> str:
    room = limit - len(_left_out(text, 0, len(text)))
    head, head_end = _head(text, room // 2)
    # Not from the middle of a run of blanks or of a long cluster: such a run is counted as
    # one, and the first piece of a window is shown only where the head ends.
    start = max(head_end, len(text) - max(_WINDOW, 2 * limit))
    start = max(head_end, len(text[:start].rstrip()) - _CLUSTER)
    pieces = list(_pieces(text, start, len(text)))
    ends = [start, *(end for _, end, _ in pieces)]
    tail: list[str] = []
    at, spare = len(text), room - len(head)
    for number in range(len(pieces) - 1, -1 if start == head_end else 0, -1):
        shown = pieces[number][0]
        if len(shown) > spare:
            break
        spare -= len(shown)
        tail.append(shown)
        at = ends[number]
    return head + _left_out(text, head_end, at) + "".join(reversed(tail))


def _head(text: str, room: int) -> tuple[str, int]:
    shown, used, end = [], 0, 0
    for piece, piece_end, _ in _pieces(text, 0, len(text)):
        if used + len(piece) > room:
            break
        shown.append(piece)
        used += len(piece)
        end = piece_end
    return "".join(shown), end


def _left_out(text: str, start: int, end: int) -> str:
    return f"\n[… {end - start} characters, {text.count(chr(10), start, end)} lines left out …]\n"


def excerpt_of(examined: Examined, limit: int = LIMIT) -> Excerpt:
    """The excerpt of a permission request for an event: of the command where there is
    one, of the difference where there is one, and else of the whole text."""
    return excerpt(examined.command or examined.diff or examined.text, limit)

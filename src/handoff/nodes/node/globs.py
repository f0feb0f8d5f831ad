"""Path patterns of a policy: ``*`` and ``?`` within a name, ``**`` across names.

A pattern names a place and everything below it: ``/srv/app`` and ``/srv/app/**`` say the
same. ``~/`` is the home of the user who runs the node; a pattern that starts with ``**/``
matches at any depth. The part before the first sign is resolved through links, as the paths
are that it is compared with.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

__all__ = ["Pattern", "compile_pattern", "name_expression", "path_expression", "place"]

_SIGNS = re.compile(r"[*?\[]")


class Pattern(NamedTuple):
    """``text``: as written. ``base``: the folder before the first sign, "" if it matches at
    any depth. ``rest``: what follows it, as a regular expression. ``fold``: capitals don't
    count."""

    text: str
    base: str
    rest: re.Pattern[str]
    fold: bool

    def matches(self, real: str, base: str | None = None) -> bool:
        """Whether ``real``, an absolute path without links, is the place or below it. base:
        where the pattern's base leads, if that is known."""
        if self.fold:
            real = real.casefold()
        if not self.base:
            return self.rest.fullmatch(real) is not None
        base = base or os.path.realpath(self.base)
        if self.fold:
            base = base.casefold()
        if real == base:
            return self.rest.fullmatch("") is not None
        start = base if base.endswith("/") else base + "/"
        if not real.startswith(start):
            return False
        return self.rest.fullmatch(real[len(start) - 1 :]) is not None


def compile_pattern(text: str, home: str, *, fold: bool = False) -> Pattern:
    """A pattern, ready to match.

    home: what ``~`` stands for. fold: compare without capitals (what is denied stays denied
    on file systems that see no capitals).

    Raises:
        ValueError: it is neither absolute nor starts with ``~/`` or ``**/``; it holds an
            empty name, ``.``, ``..``, a NUL, or a range that runs backwards.
    """
    full = home + text[1:] if text == "~" or text.startswith("~/") else text
    anywhere = full == "**" or full.startswith("**/")
    if "\0" in full or not (anywhere or full.startswith("/")):
        raise ValueError(f"{text!r} is no absolute path, and starts with neither ~/ nor **/")
    names = full.strip("/").split("/") if full.strip("/") else []
    if any(name in {"", ".", ".."} for name in names):
        raise ValueError(f"{text!r} holds an empty name, . or ..")
    first = next((n for n, name in enumerate(names) if _SIGNS.search(name)), len(names))
    base = "" if anywhere else "/" + "/".join(names[:first])
    body = _expression(names[first:])
    if fold:
        body = body.casefold()
    try:
        rest = re.compile(body, re.DOTALL)
    except re.error as error:  # a range that runs backwards
        raise ValueError(f"{text!r} is no pattern: {error}") from error
    return Pattern(text, base, rest, fold)


def place(path: str) -> Pattern:
    """One absolute path and what is below it, whatever signs are in its names."""
    return Pattern(path, path, re.compile("(?:/.*)?", re.DOTALL), fold=True)


def _expression(names: list[str]) -> str:
    """What follows the base: each name after a slash, then anything below."""
    return _joined(names) + "(?:/.*)?"


def path_expression(pattern: str) -> str:
    """A pattern over relative paths as a regular expression over ``/`` and such a path:
    ``**`` crosses folders, and as the last name is everything below."""
    names = pattern.strip("/").split("/")
    if names[-1] == "**":
        return _joined(names[:-1]) + "/.*"
    return _joined(names)


def _joined(names: list[str]) -> str:
    """Each name after a slash; ``**`` is nothing, or any number of whole names.

    What stands between two ``**`` takes the first place where it fits, for good (``(?>``):
    a later one could not let more fit after it, and trying them all would take for ever.
    """
    runs: list[str] = [""]
    for name in names:
        if name == "**":
            if runs[-1] or len(runs) == 1:
                runs.append("")
        else:
            runs[-1] += "/" + name_expression(name)
    first, *others = runs
    if not others:
        return first
    *inner, last = others
    crossed = "".join(f"(?>(?:/[^/]+)*?{run}(?![^/]))" for run in inner)
    return first + crossed + "(?:/[^/]+)*" + last


def name_expression(name: str) -> str:
    """A pattern for one name as a regular expression; what it matches holds no slash. The
    text between two ``*`` takes the first place where it fits, as in :func:`_joined`."""
    runs, at = [""], 0
    while at < len(name):
        sign = name[at]
        if sign == "*":
            if runs[-1] or len(runs) == 1:
                runs.append("")
        elif sign == "?":
            runs[-1] += "[^/]"
        elif sign == "[" and (end := name.find("]", at + 2)) > 0:
            inner = name[at + 1 : end]
            negated = inner[0] in "!^"
            chars = re.escape(inner[negated:]).replace(r"\-", "-")
            runs[-1] += f"[{'^' if negated else ''}{chars}{'/' if negated else ''}]"
            at = end
        else:
            runs[-1] += re.escape(sign)
        at += 1
    first, *others = runs
    if not others:
        return first
    *inside, last = others
    return first + "".join(f"(?>[^/]*?{run})" for run in inside) + "[^/]*" + last

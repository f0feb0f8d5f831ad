"""Rules about commands: which one names a command, and what it says of it."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Rule", "find_program", "fixed_path", "harmless", "judge", "parse_rule", "plain"]

#: programs that run the program named after their own options
_WRAPPERS = frozenset(
    {
        *("builtin", "chroot", "command", "doas", "env", "exec", "ionice", "nice", "nohup"),
        *("setsid", "stdbuf", "sudo", "time", "timeout", "watch", "xargs"),
        # words of the shell's own after which a command stands
        *("!", "coproc", "do", "elif", "else", "eval", "if", "then", "until", "while"),
    }
)
_SHELLS = frozenset({"bash", "dash", "ksh", "sh", "zsh"})
#: where the next command may start, within a command line
_PARTS = re.compile(r"[;&|\n()`{}]|\$\(|<\(|>\(")
#: variables that change how a program speaks, not what runs
_HARMLESS = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CI")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
#: what a shell gives a meaning outside of quotes, and within double quotes
_BARE = frozenset(";&|<>()$`\\\"'*?[]{}~#!\n\r\0")
_QUOTED = frozenset("$`\\!\0")


class Rule(NamedTuple):
    """``text``: as written. ``words``: its words, a last ``**`` taken off. ``rest``: whether
    more arguments may follow. ``verdict``: allow, ask or deny. ``reads``: it changes
    nothing, says the person who wrote it."""

    text: str
    words: tuple[str, ...]
    rest: bool
    verdict: str
    reads: bool


def parse_rule(value: Mapping[str, Any]) -> Rule:
    """One ``[[exec.rules]]`` table.

    Raises:
        ValueError: with what is wrong.
    """
    for key in value:
        if key not in {"match", "verdict", "reads"}:
            raise ValueError(f"{key} is not one of match, reads, verdict")
    text, verdict = value.get("match"), value.get("verdict")
    reads = value.get("reads", False)
    if not isinstance(text, str) or not isinstance(reads, bool):
        raise ValueError("match must be a text, and reads true or false")  # noqa: TRY004
    if verdict not in {"allow", "ask", "deny"}:
        raise ValueError("verdict must be one of allow, ask, deny")
    words = tuple(shlex.split(text))
    rest = bool(words) and words[-1] == "**"
    if rest:
        words = words[:-1]
    if not words and not rest:
        raise ValueError("match is empty")
    if verdict == "allow" and words and "/" in words[0] and not _exact(words[0]):
        raise ValueError(
            f"an allowed program is a name, or a path from / without . and ..; not {words[0]!r},"
            " which would be another one in each folder"
        )
    return Rule(text, words, rest, verdict, reads)


def judge(command: str | Sequence[str], rules: Sequence[Rule]) -> Rule | None:
    """The rule that decides: a denying one before an asking one before an allowing one."""
    alone = list(command) if not isinstance(command, str) else plain(command)
    parts = [alone] if alone is not None else []
    if isinstance(command, str):
        parts += _parts(command)
    else:
        parts += _unwrapped(list(command))
    for verdict in ("deny", "ask"):
        for rule in rules:
            if rule.verdict == verdict and any(_names(rule, part, loose=True) for part in parts):
                return rule
    if alone is not None:
        for rule in rules:
            if rule.verdict == "allow" and _names(rule, alone, loose=False):
                return rule
    return None


def harmless(env: Mapping[str, str]) -> bool:
    """Whether a command is the same one with these variables. Most can name a program or a
    file that is run (``PATH``, ``BASH_ENV``, ``LD_PRELOAD``, ``GIT_SSH_COMMAND``, …), so only
    those that can't are."""
    return all(_HARMLESS.fullmatch(name) for name in env)


def plain(line: str) -> list[str] | None:
    """The words of a line that is one program with its arguments and nothing else; None if
    a shell could read anything else in it."""
    quote = ""
    for sign in line:
        if quote == "'":
            if sign == "'":
                quote = ""
        elif quote == '"':
            if sign == '"':
                quote = ""
            elif sign in _QUOTED:
                return None
        elif sign in "'\"":
            quote = sign
        elif sign in _BARE:
            return None
    if quote:
        return None
    words = shlex.split(line)
    if not words or _ASSIGNMENT.match(words[0]) or words[0].startswith("-"):
        return None
    return words


def fixed_path(path: str) -> str:
    """A ``PATH`` without what depends on the folder that a command starts in."""
    return ":".join(one for one in path.split(":") if one.startswith("/")) or os.defpath


def find_program(word: str, path: str) -> str:
    """The file that a command's first word means on this machine, wherever the command
    starts; "" if it means none. path: as :func:`fixed_path` gives it."""
    if "/" in word:
        return word if word.startswith("/") else ""
    for folder in path.split(":"):
        found = os.path.join(folder, word)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return ""


def _exact(word: str) -> bool:
    """Whether a path is one from the root that says where it leads."""
    return word.startswith("/") and not {"", ".", ".."} & set(word[1:].split("/"))


def _program(word: str, wanted: str) -> bool:
    """Whether a rule's first word names this one: a name by name, a path by its names."""
    if "/" not in wanted or "/" not in word:
        return "/" not in word and "/" not in wanted and fnmatch.fnmatchcase(word, wanted)
    names, patterns = word.split("/"), wanted.split("/")
    return (
        _exact(word)
        and len(names) == len(patterns)
        and all(fnmatch.fnmatchcase(*one) for one in zip(names, patterns, strict=True))
    )


def _names(rule: Rule, words: Sequence[str], *, loose: bool) -> bool:
    """Whether the rule's words are these. loose: a program counts by its last name, too."""
    if len(words) < len(rule.words) or (len(words) > len(rule.words) and not rule.rest):
        return False
    for number, wanted in enumerate(rule.words):
        word = words[number]
        if not number and not loose:
            if not _program(word, wanted):
                return False
            continue
        if fnmatch.fnmatchcase(word, wanted):
            continue
        if number or not loose or not fnmatch.fnmatchcase(os.path.basename(word), wanted):
            return False
    return True


def _parts(line: str) -> Iterator[list[str]]:
    """Every place of a line where a program may start, as words, quotes taken off."""
    for text in _PARTS.split(line):
        try:
            words = shlex.split(text, comments=False)
        except ValueError:
            words = re.sub(r"[\"'\\]", "", text).split()
        yield from _unwrapped(words)


def _unwrapped(words: list[str]) -> Iterator[list[str]]:
    """The words from each place on where a program may stand: the first, and what follows
    assignments and wrappers. An option's value can't be told from the program, so both the
    word after an option and the one after that are looked at."""
    places, seen = [0], set[int]()
    while places:
        at = places.pop()
        if at in seen or at >= len(words):
            continue
        seen.add(at)
        yield words[at:]
        name = os.path.basename(words[at])
        if _ASSIGNMENT.match(words[at]):
            places.append(at + 1)
        elif name in _SHELLS:
            yield from _given(words[at + 1 :])
        elif name == "eval":
            yield from _parts(" ".join(words[at + 1 :]))
        elif name in _WRAPPERS:
            places.append(at + 1)
        elif words[at].startswith("-") or words[at][:1].isdigit():
            places += [at + 1, at + 2]


def _given(words: list[str]) -> Iterator[list[str]]:
    """What a shell is given as its line: the first word after its options, if one of them
    is a ``c``, alone or among others (``-lc``)."""
    line = False
    for number, word in enumerate(words):
        if word[:1] in {"-", "+"} and word not in {"-", "--"}:
            line = line or (not word.startswith("--") and "c" in word[1:])
        elif line:
            yield from _parts(word)
            if words[number - 1][-1:] not in {"o", "O"}:  # else it may be an option's name
                return

"""The words of a shell command, with what is known about each before it runs.

This is not a shell. It splits a command line the way POSIX shells do as far as quoting,
operators, comments, redirections and here-documents go, and marks every word whose value
only the shell can tell (variables, substitutions, patterns). Whoever uses it treats a
marked word, or a line that could not be split, as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field


def names(text: str) -> frozenset[str]:
    """The blank-separated names of a text, as a set: long lists stay readable."""
    return frozenset(text.split())


_OPERATORS = ("&&", "||", ";;", "|&", "&>>", "&>", "<<<", "<<-", "<<", ">>", ">|", ">&", "<&", "<>")
_SINGLE = frozenset(";&|<>()\n")
_BREAKS = frozenset(" \t") | _SINGLE
_PATTERN = frozenset("*?[{~")
_KEYWORDS = names(
    "if then elif else fi for while until do done case esac in function select { } ! [[ ]] "
    "coproc time"
)


@dataclass(frozen=True)
class Word:
    """One word. ``text``: without its quotes. ``known`` False: the shell makes something
    else of it (a variable, a substitution, a pattern)."""

    text: str
    known: bool = True
    quoted: bool = False


@dataclass
class Simple:
    """One simple command. ``before`` and ``after`` are the operators around it; ``reads``
    and ``writes`` the targets of its redirections."""

    words: list[Word] = field(default_factory=list)
    reads: list[Word] = field(default_factory=list)
    writes: list[Word] = field(default_factory=list)
    heredoc: bool = False
    before: str = ""
    after: str = ""


@dataclass
class Line:
    """A command line. ``trouble``: why it is not understood in full, or ""."""

    commands: list[Simple]
    trouble: str = ""


class _Scanner:
    """Splits text into words and operators."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.trouble = ""
        self.heredocs: list[tuple[Word, bool]] = []

    def symbols(self) -> list[Word | str]:
        found: list[Word | str] = []
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char in " \t":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif char in _SINGLE:
                found.append(self._operator())
                if char == "\n":
                    self._skip_heredocs()
            else:
                word = self._word()
                if found and found[-1] in {"<<", "<<-"}:
                    self.heredocs.append((word, found[-1] == "<<-"))
                found.append(word)
        return found

    def _operator(self) -> str:
        for operator in _OPERATORS:
            if self.text.startswith(operator, self.at):
                self.at += len(operator)
                return operator
        self.at += 1
        return self.text[self.at - 1]

    def _skip_heredocs(self) -> None:
        for stop, tabs in self.heredocs:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = end + 1
                if (line.lstrip("\t") if tabs else line) == stop.text:
                    break
                if not stop.quoted and ("$" in line or "`" in line):
                    self.trouble = self.trouble or "a here-document with substitutions"
            else:
                self.trouble = "a here-document without its end"
        self.heredocs.clear()

    def _word(self) -> Word:
        text, parts, known, quoted = self.text, [], True, False
        while self.at < len(text):
            char = text[self.at]
            if char in _BREAKS:
                # <( ) and >( ) start with an operator and are seen by the caller.
                break
            if char == "\\":
                # At the end of the text a backslash means itself.
                parts.append((text[self.at + 1 : self.at + 2] or char).replace("\n", ""))
                self.at += 2
                quoted = True
            elif char == "'":
                parts.append(self._single())
                quoted = True
            elif char == '"':
                piece, piece_known = self._double()
                parts.append(piece)
                known, quoted = known and piece_known, True
            else:
                if char in "$`":
                    known = False
                    if text.startswith("$(", self.at) or char == "`":
                        self.trouble = self.trouble or "a command substitution"
                elif char in _PATTERN and not self._alone(char, bool(parts)):
                    known = False
                parts.append(char)
                self.at += 1
        return Word("".join(parts), known, quoted)

    def _alone(self, char: str, begun: bool) -> bool:
        """Whether a character of patterns means itself here: `[`, `{`, or a later `~`."""
        if char == "~":
            return begun
        return char in "[{" and not begun and self.text[self.at + 1 : self.at + 2] in {"", " "}

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self.trouble = "a quote without its end"
            end = len(self.text)
        piece = self.text[self.at + 1 : end]
        self.at = end + 1
        return piece

    def _double(self) -> tuple[str, bool]:
        text, parts, known = self.text, [], True
        self.at += 1
        while self.at < len(text) and text[self.at] != '"':
            char = text[self.at]
            if char == "\\" and text[self.at + 1 : self.at + 2] in {"$", "`", '"', "\\"}:
                parts.append(text[self.at + 1])
                self.at += 2
                continue
            if text.startswith("\\\n", self.at):
                self.at += 2
                continue
            if char in "$`":
                known = False
                if text.startswith("$(", self.at) or char == "`":
                    self.trouble = self.trouble or "a command substitution"
            parts.append(char)
            self.at += 1
        if self.at >= len(text):
            self.trouble = "a quote without its end"
        self.at += 1
        return "".join(parts), known


def split(text: str) -> Line:
    """Split a command line into its simple commands. Never raises."""
    scanner = _Scanner(text)
    symbols = scanner.symbols()
    line = Line([], scanner.trouble)
    current = Simple()
    number = 0
    while number < len(symbols):
        symbol = symbols[number]
        number += 1
        if isinstance(symbol, Word):
            current.words.append(symbol)
            if symbol.text in _KEYWORDS and not symbol.quoted and len(current.words) == 1:
                line.trouble = line.trouble or f"the shell keyword '{symbol.text}'"
            continue
        if symbol[0] in "<>" or symbol.startswith("&>"):
            number = _redirect(symbol, symbols, number, current, line)
            continue
        if symbol in "()":
            line.trouble = line.trouble or "a subshell or a function"
        current.after = symbol
        if current.words or current.reads or current.writes:
            line.commands.append(current)
        current = Simple(before=symbol)
    if current.words or current.reads or current.writes:
        line.commands.append(current)
    return line


def _redirect(
    symbol: str, symbols: list[Word | str], number: int, current: Simple, line: Line
) -> int:
    """Take the target of a redirection; gives the number of the next symbol."""
    target = symbols[number] if number < len(symbols) else None
    if not isinstance(target, Word):
        line.trouble = line.trouble or (
            "a process substitution" if target == "(" else "a redirection without its target"
        )
        return number
    if current.words and current.words[-1].text.isdigit() and not current.words[-1].quoted:
        # Also takes the number off `echo 2 >x`, where it is an argument: numbers name no
        # file, so nothing is lost by it.
        current.words.pop()
    if symbol in {"<<", "<<-", "<<<"}:
        current.heredoc = True
        if not target.known:
            line.trouble = line.trouble or "a here-string that only the shell can tell"
    elif symbol in {">&", "<&"} and (target.text.isdigit() or target.text == "-"):
        pass
    elif symbol[0] == "<":
        current.reads.append(target)
        if symbol == "<>":
            current.writes.append(target)
    else:
        current.writes.append(target)
    return number + 1

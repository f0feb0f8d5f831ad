"""What a command would use: the files that its words name, and what can't be told.

A grant for a command may be reused only while the same words would do the same thing.
So every regular file that is named is marked with its digest, scripts for POSIX shells
are looked into, and whatever can't be pinned down is a *doubt*: one doubt, and the grant
serves once. Doubts are never an error; they cost the coordinator one more question.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field

from handoff.gate.contract import FileMark
from handoff.gate.marks import CantPin, as_text, mark, read_regular
from handoff.gate.words import Simple, Word, names, split

#: files and bytes that one command may name before it counts as too many
MAX_FILES = 64
MAX_BYTES = 64 * 1024 * 1024
#: characters of copies (base64) that one command may cause to be kept
MAX_COPIED = 256 * 1024
#: how deep scripts that call scripts are looked into
MAX_DEPTH = 4
#: characters of a command, and of a script, that are split into words
MAX_TEXT = 256 * 1024
_MAX_FOLDERS = 4
_MAX_DOUBTS = 8

_SYSTEM = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/opt/homebrew/bin/")
_SHELLS = names("sh bash dash zsh ksh mksh ash")
_INTERPRETERS = ("python", "pypy", "node", "deno", "bun", "ruby", "perl", "php", "lua", "Rscript",
                 "tsx", "ts-node", "fish", "pwsh", "osascript", "tclsh", "guile", "java")  # fmt: skip
#: programs that do only what their words and the named files say
_PLAIN = names(
    "true false : echo printf pwd date whoami id uname hostname sleep seq test [ cd ls cat head "
    "tail wc nl od xxd hexdump file stat mkdir rmdir touch rm cp mv ln chmod basename dirname "
    "realpath readlink which type sort uniq cut tr paste comm diff cmp grep egrep fgrep "
    "md5sum sha1sum sha256sum sha512sum shasum cksum base64 tee exit wait jq rev tac fold expand "
    "column df free uptime ps nproc tty groups arch truncate"
)
#: keywords (each line that holds one has a doubt already) before a command, and without one
_BEFORE_COMMANDS = names("if then elif else while until do ! { time")
_NO_COMMANDS = names("for case in select function done fi esac } [[ ]] coproc")
_FOLDERS_ARE_PLAIN = names("cd ls mkdir rmdir pwd test [ stat echo printf")
_WRAPPERS = names("command exec nohup time setsid builtin")
_HARMLESS_VARIABLES = names(
    "LANG LANGUAGE LC_ALL LC_CTYPE TZ CI NO_COLOR FORCE_COLOR TERM COLUMNS LINES DEBUG "
    "NODE_ENV PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE RUST_BACKTRACE"
)
_GIT_READS = names(
    "status diff log show rev-parse ls-files ls-tree blame describe shortlog rev-list cat-file "
    "merge-base name-rev show-ref version help"
)
#: a sed script (with these options only) that can't run or write anything else, and what
#: in an awk script (or option) may
_TAME_SED = re.compile(r"[0-9$,]*p|s([/|,#])(?:(?!\1).)*\1(?:(?!\1).)*\1[gpI0-9]*")
_TAME_SED_OPTION = re.compile(r"-[nrEis]+")
_WILD_AWK = re.compile(r"system|getline|[|>@]|\A-")
#: files that a program reads by itself
_IMPLIED: dict[str, tuple[str, ...]] = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "gmake": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile", "rakefile"),
    "cargo": ("Cargo.toml", "build.rs", ".cargo/config.toml"),
    "go": ("go.mod",),
    "tox": ("tox.ini", "pyproject.toml", "setup.cfg"),
    "nox": ("noxfile.py",),
    "pytest": ("conftest.py", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"),
    "uv": ("pyproject.toml", "uv.lock"),
    "poetry": ("pyproject.toml", "poetry.lock"),
    "pip": ("setup.py", "pyproject.toml"),
    "docker": ("Dockerfile", "compose.yaml", "compose.yml", "docker-compose.yml"),
    "gradle": ("build.gradle", "build.gradle.kts", "settings.gradle"),
    "mvn": ("pom.xml",),
    "cmake": ("CMakeLists.txt", "CMakePresets.json"),
    **dict.fromkeys(("npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"), ("package.json",)),
}


@dataclass
class Uses:
    """``files``: every regular file that is named, by path, and scripts that were not
    there. ``writes``: targets of output redirections, absolute. ``doubts``: one line each
    for what can't be pinned down (at most eight are kept)."""

    files: dict[str, FileMark] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def uses(command: str, cwd: str) -> Uses:
    """What a shell command, started in cwd (absolute), would use. Never raises."""
    look = _Look()
    look.line(command, [cwd], 0)
    return look.found


def pin(paths: list[str]) -> Uses:
    """Marks of the files at these absolute paths, for requests without a command."""
    look = _Look()
    for path in paths:
        look.pin(path, absent=True)
    return look.found


class _Look:
    """One look at one command."""

    def __init__(self) -> None:
        self.found = Uses()
        self.bytes = 0
        self.copied = 0
        self.scripts: set[str] = set()

    def doubt(self, why: str) -> None:
        doubts = self.found.doubts
        if why not in doubts and len(doubts) < _MAX_DOUBTS:
            doubts.append(why)

    def line(self, text: str, folders: list[str], depth: int) -> None:
        """Look at a command line, or at the text of a script."""
        if depth > MAX_DEPTH:
            self.doubt("scripts call each other too deeply")
            return
        if len(text) > MAX_TEXT:
            self.doubt("too long to be looked through")
            text = text[:MAX_TEXT]
        line = split(text)
        if line.trouble:
            self.doubt(line.trouble)
        here = folders
        for simple in line.commands:
            for word in (*simple.words, *simple.reads, *simple.writes):
                if not word.known:
                    self.doubt(f"only the shell can tell what {word.text[:40]!r} is")
            for word in simple.reads:
                self.name(word, here, folder_doubt=True)
            for word in simple.writes:
                if word.known:
                    self.found.writes += [os.path.join(folder, word.text) for folder in here]
            here = self.simple(simple, simple.words, here, depth)

    def simple(self, simple: Simple, words: list[Word], here: list[str], depth: int) -> list[str]:
        """Look at one simple command; gives the folders that the next one may run in."""
        words = self.assignments(words, here)
        if not words:
            return here
        program = words[0].text
        if program in _BEFORE_COMMANDS and not words[0].quoted:
            return self.simple(simple, words[1:], here, depth)
        if program in _NO_COMMANDS and not words[0].quoted:
            return here
        name = program
        if "/" in program:
            if program.startswith(_SYSTEM) and ".." not in program:
                name = program.rpartition("/")[2]
            else:
                self.own_program(words, here, depth)
                return here
        if name in _WRAPPERS or name in {"timeout", "env", "nice"}:
            inner = self.unwrap(name, words)
            return here if inner is None else self.simple(simple, inner, here, depth)
        for word in words[1:]:
            self.name(word, here, folder_doubt=name not in _FOLDERS_ARE_PLAIN)
        if name == "cd":
            return self.change_folder(simple, words, here)
        if name in _SHELLS:
            self.shell(simple, words, here, depth)
        elif name in {".", "source"}:
            self.script(words[1:2], here, depth)
        elif name.startswith(_INTERPRETERS):
            self.interpreter(name, simple, words, here)
        elif name == "git":
            self.git(words, here)
        elif (name == "sed" and not _tame_sed(words)) or (
            name == "awk" and any(_WILD_AWK.search(word.text) for word in words[1:])
        ):
            self.doubt(f"a '{name}' script that may run other programs")
        elif name not in _PLAIN and name not in {"sed", "awk"}:
            self.unknown(name, here)
        return here

    def assignments(self, words: list[Word], here: list[str]) -> list[Word]:
        number = 0
        for word in words:
            variable, equals, value = word.text.partition("=")
            if not equals or not variable.isidentifier():
                break
            number += 1
            if variable not in _HARMLESS_VARIABLES:
                self.doubt(f"sets the variable {variable[:40]!r}")
            self.name(Word(value, word.known), here, folder_doubt=False)
        return words[number:]

    def unwrap(self, name: str, words: list[Word]) -> list[Word] | None:
        """The words of the command inside `timeout 5 …`, `env A=b …`, `nohup …`."""
        rest = words[2:] if name == "timeout" else words[1:]
        if (len(words) > 1 and words[1].text.startswith("-")) or not rest:
            self.doubt(f"'{name}' with options")
            return None
        return rest

    def change_folder(self, simple: Simple, words: list[Word], here: list[str]) -> list[str]:
        if len(words) != 2 or not words[1].known or words[1].text.startswith("-"):
            self.doubt("a 'cd' that can't be told")
            return here
        there = [os.path.join(folder, words[1].text) for folder in here]
        # After "cd x && …" only the new folder counts; else the old one still may.
        certain = simple.after == "&&" and simple.before in {"", "&&", ";", "\n"}
        both = there if certain else [*here, *(t for t in there if t not in here)]
        if len(both) > _MAX_FOLDERS:
            self.doubt("changes its folder too often")
        return both[:_MAX_FOLDERS]

    def name(self, word: Word, here: list[str], *, folder_doubt: bool) -> None:
        """A word may name a file: mark it in every folder that it could be in."""
        text = word.text
        options = [text]
        if "=" in text:
            options.append(text.partition("=")[2])
        if text.startswith("@"):
            options.append(text[1:])
        for option in options:
            if not option or option.startswith("-") or "\0" in option or len(option) > 4096:
                continue
            for folder in here:
                self.pin(os.path.join(folder, option), folder_doubt=folder_doubt)

    def pin(self, path: str, *, absent: bool = False, folder_doubt: bool = True) -> None:
        """Mark a regular file; doubt what else is there."""
        if path in self.found.files:
            return
        try:
            info = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            if absent:
                self.found.files[path] = FileMark(path=path, digest="", size=0)
            return
        except (OSError, ValueError) as error:
            self.doubt(f"can't look at {path[:200]!r}: {getattr(error, 'strerror', error)}")
            return
        if stat.S_ISDIR(info.st_mode):
            if folder_doubt:
                self.doubt(f"names the folder {path[:200]!r}, whose content may change")
            return
        if len(self.found.files) >= MAX_FILES or self.bytes + info.st_size > MAX_BYTES:
            self.doubt("names more files than can be compared")
            return
        try:
            self.found.files[path] = mark(path, keep=self.copied < MAX_COPIED)
        except CantPin as why:
            self.doubt(str(why))
            return
        self.bytes += self.found.files[path].size
        self.copied += len(self.found.files[path].copy)

    def own_program(self, words: list[Word], here: list[str], depth: int) -> None:
        """A program named by its path, as `./x`."""
        for word in words[1:]:
            self.name(word, here, folder_doubt=True)
        self.script(words[:1], here, depth)

    def script(self, words: list[Word], here: list[str], depth: int) -> None:
        """Mark a script and look into it if a POSIX shell would run it."""
        if not words or not words[0].known:
            self.doubt("a script that can't be told")
            return
        for folder in here:
            path = os.path.join(folder, words[0].text)
            self.pin(path, absent=True)
            if path in self.scripts:
                continue
            self.scripts.add(path)
            try:
                data = read_regular(path)
            except CantPin as why:
                self.doubt(str(why))
                continue
            text = as_text(data) if data is not None else ""
            if text is None or (text.startswith("#!") and not _for_shell(text)):
                self.doubt(f"{path[-200:]!r} is no shell script: it may use other files")
            else:
                self.line(text, here, depth + 1)

    def shell(self, simple: Simple, words: list[Word], here: list[str], depth: int) -> None:
        """`bash -lc TEXT`, `sh x.sh ARGS` or a shell that reads its commands."""
        for number, word in enumerate(words[1:], 1):
            option = word.text
            if not option.startswith(("-", "+")):
                self.script([word], here, depth)
                return
            if option.startswith("--") or not option[1:].isalpha() or "o" in option:
                self.doubt(f"a shell with the option {option[:40]!r}")
                return
            if "c" in option:
                if number + 1 < len(words) and words[number + 1].known:
                    self.line(words[number + 1].text, here, depth + 1)
                else:
                    self.doubt("a shell command that can't be told")
                return
        feed = "a here-document" if simple.heredoc else "its input"
        self.doubt(f"a shell that reads its commands from {feed}")

    def interpreter(self, name: str, simple: Simple, words: list[Word], here: list[str]) -> None:
        """Programs whose scripts can load anything: marked, never pinned."""
        plain = [word for word in words[1:] if word.known and not word.text.startswith("-")]
        if plain:
            for folder in here:
                self.pin(os.path.join(folder, plain[0].text), absent="." in plain[0].text)
        elif simple.before in {"|", "|&"} or simple.heredoc or simple.reads:
            self.doubt(f"'{name}' reads its program from its input")
        self.unknown(name, here)

    def git(self, words: list[Word], here: list[str]) -> None:
        """Commands that only read depend on the settings; others on the whole repository."""
        if len(words) < 2 or words[1].text not in _GIT_READS:
            self.doubt("what 'git' does here depends on the repository as it is then")
            return
        for folder in here:
            for path in _git_settings(folder):
                self.pin(path, absent=True)

    def unknown(self, name: str, here: list[str]) -> None:
        for file in _IMPLIED.get(name, ()):
            for folder in here:
                self.pin(os.path.join(folder, file), absent=True, folder_doubt=False)
        self.doubt(f"what '{name[:40]}' uses can't be told from its words")


def _tame_sed(words: list[Word]) -> bool:
    """Whether a sed command only prints or replaces: known options, one known script."""
    rest = [word.text for word in words[1:]]
    while rest and rest[0].startswith("-"):
        if _TAME_SED_OPTION.fullmatch(rest.pop(0)) is None:
            return False
    if not rest or any(word.startswith("-") for word in rest):
        return False
    return _TAME_SED.fullmatch(rest[0]) is not None


def _for_shell(text: str) -> bool:
    """Whether the first line of a script names a POSIX shell."""
    words = text[2:].partition("\n")[0].split()
    names = [word.rpartition("/")[2] for word in words]
    if names and names[0] == "env":
        names = names[1:]
    return bool(names) and names[0] in _SHELLS


# `git status` refreshes the index and then runs that one hook.
_GIT_SETTINGS = ("config", "config.worktree", "hooks/post-index-change")


def _git_settings(folder: str) -> list[str]:
    """The settings of the repository that folder belongs to, as far as they can be found
    without running git."""
    while True:
        dot_git = os.path.join(folder, ".git")
        if os.path.isdir(dot_git):
            return [os.path.join(dot_git, name) for name in _GIT_SETTINGS]
        try:
            link = (read_regular(dot_git, 8192) or b"").decode("utf-8", "surrogateescape")
        except CantPin:
            link = ""
        if link.startswith("gitdir:"):
            git_dir = os.path.join(folder, link[7:].strip())
            try:
                common = (read_regular(os.path.join(git_dir, "commondir"), 8192) or b".").decode(
                    "utf-8", "surrogateescape"
                )
            except CantPin:
                common = "."
            common_dir = os.path.join(git_dir, common.strip())
            return [
                dot_git,
                *(os.path.join(common_dir, name) for name in _GIT_SETTINGS),
                os.path.join(git_dir, "config.worktree"),
            ]
        above = os.path.dirname(folder)
        if above == folder:
            return []
        folder = above

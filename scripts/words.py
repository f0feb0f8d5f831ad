"""Check the words: one term for one thing, and nothing in the tree that has no place there.

Prose is what people read: text of the documents outside code, and in Python comments,
docstrings and every string of three words or more. Prose keeps to the glossary
(docs/glossary.md). All text, prose or not, is free of machine paths, package registry
hosts, ticket numbers of some tracker, and marks of unfinished work.

Prints ``path:line: what`` for each finding; exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent

#: word (as a pattern) -> what the glossary calls it
SAY = {
    r"reviewers?": "coordinator",
    r"masters?": "coordinator, brain",
    r"minions?": "node",
    r"workers?": "executor",
    r"(?<!test )runners?": "executor",
    r"jobs?": "task",
    r"judges?": "approver",
    r"adapters?": "driver",
    r"approvals?": "ticket, grant",
    r"repos?": "repository, project",
    r"backends?": "agentd",
}

#: where a word is right because it is somebody else's term: (path prefix, word)
RIGHT = {
    ("src/handoff/workspace/", "master"),  # a branch name
    # a command in the background of a node, which is no task
    ("src/handoff/nodes/", "job"),
    ("src/handoff/wire/node/", "job"),
    ("src/handoff/plugins/hermes_node/", "job"),
    ("src/handoff/cli/nodes", "job"),
    # Hermes' own name for where its terminal runs
    ("src/handoff/plugins/hermes_node/", "backend"),
    ("packaging/hermes-node-plugin.md", "backend"),
    ("docs/nodes/", "backend"),
    ("src/handoff/errors.py", "job"),
    ("docs/nodes/", "job"),
    ("docs/protocols/node.md", "job"),
    ("docs/errors.md", "job"),
    ("docs/cli.md", "job"),
    ("docs/glossary.md", ""),  # names what not to say
    ("scripts/words.py", ""),
}

# Written in pieces so that this file passes its own check.
NOWHERE = {
    r"/(?:wo" r"rk/(?:ma" r"in|sha" r"red|bri" r"ef|\.)|fa" r"rm/)": "a path of some machine",
    r"(?<![\w~$}])/ro" r"ot/\w": "a path of some machine",
    r"py" r"pi\.org|pythonho" r"sted|registry\.npm" r"js|deb\.deb" r"ian": "a registry host",
    r"(?:^|[\s(\[])#\d{1,5}\b(?!;)": "a number of some tracker",
    r"\b(?:issues|pull)/\d+": "a number of some tracker",
    r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b": "unfinished work",
}
SKIPPED = re.compile(r"\.(png|ico|jsonl|lock|svg)$|^LICENSE$|package-lock\.json$")
CODE = re.compile(r"``.*?``|`[^`]*`|\]\([^)]*\)|https?://\S+", re.DOTALL)


def blank(match: re.Match[str]) -> str:
    """Code inside prose, blanked out so that line numbers stay."""
    return re.sub(r"[^\n]", " ", match.group())


def markdown_prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside fences, without code spans and link targets."""
    fence = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fence = not fence
        elif not fence:
            yield number, CODE.sub(blank, line)


def python_prose(text: str) -> Iterator[tuple[int, str]]:
    """Comments, and strings of at least three words."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], CODE.sub(blank, token.string)
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and len(node.value.split()) > 2
        ):
            for offset, line in enumerate(CODE.sub(blank, node.value).splitlines()):
                yield node.lineno + offset, line


def tracked() -> list[str]:
    """The files of the tree: tracked ones, and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = {name.decode() for name in listed.stdout.split(b"\0") if name}
    return sorted(n for n in names if not SKIPPED.search(n) and (ROOT / n).is_file())


def findings(name: str, text: str) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) of one file."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, what in NOWHERE.items():
            match = re.search(pattern, line)
            if match:
                yield number, f"{what}: {match.group().strip()}"
    if name.endswith(".md"):
        prose = markdown_prose(text)
    elif name.endswith(".py") and name.startswith("src/"):
        prose = python_prose(text)
    else:
        return
    for number, line in prose:
        for word, better in SAY.items():
            match = re.search(rf"(?<![\w./-]){word}(?![\w/-]|\.\w)", line, re.IGNORECASE)
            if match and not any(
                name.startswith(where) and which in match.group().lower() for where, which in RIGHT
            ):
                yield number, f"'{match.group()}': say {better}"


def main() -> int:
    """Look at every file."""
    bad = 0
    for name in tracked():
        try:
            text = (ROOT / name).read_text("utf-8")
        except UnicodeDecodeError:
            continue
        for number, what in sorted(set(findings(name, text))):
            print(f"{name}:{number}: {what}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

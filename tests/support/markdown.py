"""Reading the project's documents."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]


def documents() -> list[pathlib.Path]:
    """Every document of the project."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def fences(text: str) -> Iterator[tuple[str, str]]:
    """(language, content) of each fenced block."""
    pattern = r"(?ms)^ *(?P<fence>`{3,})(?P<kind>\w*)\n(?P<body>.*?)^ *(?P=fence)$"
    for match in re.finditer(pattern, text):
        yield match["kind"], match["body"]


def prose(text: str) -> str:
    """The text without fenced blocks."""
    return re.sub(r"(?ms)^ *(`{3,})\w*\n.*?^ *\1$", "", text)


def links(text: str) -> list[str]:
    """The targets of its links, outside code."""
    plain = re.sub(r"`[^`\n]*`", "", prose(text))
    return re.findall(r"\]\(([^)\s]+)\)", plain)


def anchors(text: str) -> set[str]:
    """The anchors of its headings."""
    found = set()
    for heading in re.findall(r"(?m)^#{1,6} +(.+?) *$", prose(text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return found


def rows(text: str, begins: str) -> list[list[str]]:
    """The cells of each row below the table head that begins with that text."""
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith(begins):
            next(lines)
            break
    else:
        raise AssertionError(f"no table begins with {begins!r}")
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))])
    return found

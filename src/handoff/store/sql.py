"""The named queries of ``queries.sql``: all SQL that the rest of Handoff runs.

::

    -- name: tasks_by_state
    -- Tasks in one state, oldest first.
    SELECT ... WHERE state = :state ORDER BY created_ms;

A query is one statement. The line after its name says what it is for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from handoff.errors import StorageError
from handoff.store.migrate import statements

QUERIES_FILE = Path(__file__).parent / "queries.sql"

_HEAD = re.compile(r"^-- name: *(.*)$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")


class Query(NamedTuple):
    """One named query, without its semicolon."""

    name: str
    doc: str
    text: str


def parse(source: str) -> dict[str, Query]:
    """The queries of a file by name, in the order of the file.

    Raises:
        StorageError: a name is malformed or used twice, a query has no line of
            explanation, or is not exactly one statement.
    """
    heads = list(_HEAD.finditer(source))
    found: dict[str, Query] = {}
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        name = head[1].strip()
        body = source[head.end() : after.start() if after else len(source)].strip("\n")
        if not _IDENTIFIER.fullmatch(name) or name in found:
            raise StorageError(f"query name '{name}' is malformed or used twice")
        found[name] = _parse_one(name, body)
    return found


def _parse_one(name: str, body: str) -> Query:
    notes: list[str] = []
    lines = body.splitlines()
    while lines and lines[0].startswith("--"):
        notes.append(lines.pop(0).removeprefix("--").strip())
    doc = " ".join(notes)
    found = list(statements("\n".join(lines)))  # a comment after the query is the file's
    if not doc or len(found) != 1:
        raise StorageError(f"query '{name}' needs one line of explanation and one statement")
    return Query(name, doc, found[0].removesuffix(";").rstrip())


#: every query by name
QUERIES: dict[str, Query] = parse(QUERIES_FILE.read_text("utf-8"))

#: ``Q["tasks_by_state"]`` is the SQL text
Q: dict[str, str] = {name: query.text for name, query in QUERIES.items()}

"""An index of the records, made from them and rebuilt from them at any time.

The records on the disk are the truth. The index holds their manifests and their texts for
searching, in a database that may be deleted: whatever is wrong with it, it is made anew.
Whether it is up to date is told by the folder of each project's records, whose time of
change and count of entries are noted with every row that is added.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from handoff.errors import HandoffError

NAME = "catalogue.sqlite3"
#: another number makes every index be built anew
VERSION = 1
_SCHEMA = """
CREATE TABLE records (
    number INTEGER PRIMARY KEY, project_id TEXT NOT NULL, handoff_id TEXT NOT NULL,
    created_at INTEGER NOT NULL, profile TEXT NOT NULL, session_id TEXT NOT NULL,
    request_id TEXT NOT NULL, parent_ref TEXT NOT NULL, manifest TEXT NOT NULL,
    damaged TEXT NOT NULL, goal TEXT NOT NULL, UNIQUE (project_id, handoff_id)
) STRICT;
CREATE INDEX by_time ON records (created_at DESC, handoff_id);
CREATE INDEX by_project ON records (project_id, created_at DESC, handoff_id);
CREATE INDEX by_request ON records (profile, session_id, request_id);
CREATE INDEX by_parent ON records (parent_ref);
CREATE TABLE texts (number INTEGER PRIMARY KEY, folded TEXT NOT NULL) STRICT;
CREATE TABLE folders (project_id TEXT PRIMARY KEY, stamp TEXT NOT NULL) STRICT;
"""
_FTS = (
    "CREATE VIRTUAL TABLE found USING fts5(folded, content='texts', content_rowid='number',"
    " tokenize='trigram case_sensitive 1')"
)
#: shorter ones have no trigram and are looked for in every text
_TRIGRAM = 3


class Row(NamedTuple):
    """A record as the index knows it. ``damaged``: why it can't be read, or ""."""

    manifest: dict[str, Any]
    damaged: str
    goal: str
    ref: str


class Entry(NamedTuple):
    """What is put into the index for one record."""

    project_id: str
    handoff_id: str
    manifest: Mapping[str, Any] | None
    document: str = ""
    goal: str = ""
    damaged: str = ""


#: reads one record: (project id, handoff id) -> what to put in
Load = Callable[[str, str], Entry]
#: the projects that there are: id -> (stamp of its folder, names of its records)
Listing = Callable[[str], list[str]]


class Catalogue:
    """The index of one store. ``stamps``: the projects that there are with the stamp of each
    one's folder; ``names``: the records of a project; ``load``: one record's entry."""

    def __init__(
        self,
        root: str,
        stamps: Callable[[], dict[str, str]],
        names: Listing,
        load: Load,
    ) -> None:
        self._path = os.path.join(root, NAME)
        self._stamps, self._names, self._load = stamps, names, load

    @contextlib.contextmanager
    def current(self) -> Iterator[sqlite3.Connection]:
        """The index, up to date. Where it can't be written it is made in memory."""
        db = self._open()
        try:
            yield db
        finally:
            db.close()

    def add(self, entry: Entry, stamp: str, before: str) -> None:
        """Put one record in. ``stamp``: the folder's after it was published; ``before``:
        the one before. If the index was not up to date then, it is left so."""
        with contextlib.suppress(sqlite3.Error, OSError):
            with contextlib.closing(self._connect()) as db:
                db.execute("BEGIN IMMEDIATE")
                known = db.execute(
                    "SELECT stamp FROM folders WHERE project_id = ?", (entry.project_id,)
                ).fetchone()
                if (known[0] if known else "") == before:
                    _insert(db, entry)
                    _stamp(db, entry.project_id, stamp)
                db.execute("COMMIT")

    def _open(self) -> sqlite3.Connection:
        stamps = self._stamps()
        if not stamps and not os.path.lexists(self._path):
            return self._in_memory({})  # nothing was ever stored: nothing is created
        for _ in range(2):
            db: sqlite3.Connection | None = None
            try:
                db = self._connect()
                self._refresh(db, stamps)
                return db
            except (sqlite3.Error, OSError):
                if db is not None:
                    db.close()
                if not self._discard():
                    break
        return self._in_memory(stamps)

    def _in_memory(self, stamps: dict[str, str]) -> sqlite3.Connection:
        db = sqlite3.connect(":memory:", isolation_level=None)
        _create(db)
        self._refresh(db, stamps)
        return db

    def _discard(self) -> bool:
        """Remove an index that can't be used; False if that can't be done either."""
        try:
            for end in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path + end)
        except OSError:
            return False
        return True

    def _connect(self) -> sqlite3.Connection:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        os.close(os.open(self._path, flags, 0o600))
        db = sqlite3.connect(self._path, timeout=20.0, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL").close()
            # The last rows may be lost with the power: the stamps tell, and they come back.
            db.execute("PRAGMA synchronous = OFF").close()
            db.execute("PRAGMA trusted_schema = OFF").close()
            if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                db.execute("BEGIN IMMEDIATE")
                if db.execute("PRAGMA user_version").fetchone()[0] == 0:
                    _create(db)
                    db.execute(f"PRAGMA user_version = {VERSION}")
                db.execute("COMMIT")
            if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                raise sqlite3.DatabaseError("another version of the index")
        except BaseException:
            db.close()
            raise
        return db

    def _refresh(self, db: sqlite3.Connection, stamps: dict[str, str]) -> None:
        known = dict(db.execute("SELECT project_id, stamp FROM folders").fetchall())
        if known == stamps:
            return
        db.execute("BEGIN IMMEDIATE")
        for project_id in known.keys() - stamps.keys():
            _remove(db, project_id, _known_names(db, project_id))
            db.execute("DELETE FROM folders WHERE project_id = ?", (project_id,))
        for project_id, stamp in stamps.items():
            if known.get(project_id) == stamp:
                continue
            there = set(self._names(project_id))
            have = _known_names(db, project_id)
            _remove(db, project_id, have - there)
            for name in sorted(there - have):
                _insert(db, self._load(project_id, name))
            # The stamp from before the names were read: a record that came in between
            # changes it again, and is found the next time.
            _stamp(db, project_id, stamp)
        db.execute("COMMIT")


def _known_names(db: sqlite3.Connection, project_id: str) -> set[str]:
    rows = db.execute("SELECT handoff_id FROM records WHERE project_id = ?", (project_id,))
    return {row[0] for row in rows}


def _create(db: sqlite3.Connection) -> None:
    for statement in _SCHEMA.split(";\n"):
        db.execute(statement)
    # Some builds of SQLite have no such index; then every text is looked through.
    with contextlib.suppress(sqlite3.OperationalError):
        db.execute(_FTS)


def _has_fts(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'found'").fetchone())


def _stamp(db: sqlite3.Connection, project_id: str, stamp: str) -> None:
    db.execute(
        "INSERT INTO folders VALUES (?, ?) ON CONFLICT (project_id) DO UPDATE SET stamp = ?",
        (project_id, stamp, stamp),
    )


def _insert(db: sqlite3.Connection, entry: Entry) -> None:
    manifest = entry.manifest or {}
    source = manifest.get("source", {})
    cursor = db.execute(
        "INSERT OR IGNORE INTO records (project_id, handoff_id, created_at, profile, session_id,"
        " request_id, parent_ref, manifest, damaged, goal) VALUES (?,?,?,?,?,?,?,?,?,?)",
        (
            entry.project_id,
            entry.handoff_id,
            manifest.get("created_at", 0),
            source.get("profile_id", ""),
            source.get("session_id", ""),
            manifest.get("request_id", ""),
            manifest.get("lineage", {}).get("parent_ref", ""),
            json.dumps(manifest),
            entry.damaged,
            entry.goal,
        ),
    )
    if cursor.rowcount != 1 or entry.damaged:
        return
    number, folded = cursor.lastrowid, fold(f"{manifest.get('name', '')}\n{entry.document}")
    db.execute("INSERT INTO texts VALUES (?, ?)", (number, folded))
    if _has_fts(db):
        db.execute("INSERT INTO found (rowid, folded) VALUES (?, ?)", (number, folded))


def _remove(db: sqlite3.Connection, project_id: str, names: Iterable[str]) -> None:
    fts = _has_fts(db)
    for name in names:
        (number,) = db.execute(
            "SELECT number FROM records WHERE project_id = ? AND handoff_id = ?",
            (project_id, name),
        ).fetchone()
        text = db.execute("SELECT folded FROM texts WHERE number = ?", (number,)).fetchone()
        if text and fts:
            db.execute(
                "INSERT INTO found (found, rowid, folded) VALUES ('delete', ?, ?)",
                (number, text[0]),
            )
        db.execute("DELETE FROM texts WHERE number = ?", (number,))
        db.execute("DELETE FROM records WHERE number = ?", (number,))


def fold(text: str) -> str:
    """A text without the difference of large and small letters."""
    return text.casefold()


class Filter(NamedTuple):
    """Which records are asked for; "" leaves a part open."""

    project_id: str = ""
    session_id: str = ""
    profile: str = ""
    query: str = ""


def page(
    db: sqlite3.Connection, wanted: Filter, after: tuple[int, str] | None, limit: int
) -> tuple[list[tuple[Row, tuple[int, str]]], int]:
    """The next rows, newest first, each with its place, and how many there are in all;
    ``after``: the last place seen."""
    hits, where, values = _where(db, wanted)
    every = " WHERE " + " AND ".join(where) if where else ""
    inside = list(values)
    if after is not None:
        where.append("(created_at < ? OR (created_at = ? AND handoff_id > ?))")
        inside += [after[0], after[0], after[1]]
    clause = " WHERE " + " AND ".join(where) if where else ""
    found = db.execute(
        # What matches is looked up once, for the page and for the count.
        f"{hits[0]}SELECT manifest, project_id, handoff_id, damaged, goal, created_at,"  # noqa: S608
        f" (SELECT count(*) FROM records{every}) FROM records{clause}"
        " ORDER BY created_at DESC, handoff_id LIMIT ?",
        (*hits[1], *values, *inside, limit),
    ).fetchall()
    if found:
        total = found[0][6]
    elif after is None:
        total = 0
    else:
        sought = f"{hits[0]}SELECT count(*) FROM records{every}"  # noqa: S608
        total = db.execute(sought, (*hits[1], *values)).fetchone()[0]
    return [(_row(row), (row[5], row[2])) for row in found], total


def _row(row: tuple[Any, ...]) -> Row:
    return Row(json.loads(row[0]), row[3], row[4], f"handoff://{row[1]}/{row[2]}")


def _where(
    db: sqlite3.Connection, wanted: Filter
) -> tuple[tuple[str, list[Any]], list[str], list[Any]]:
    """(what comes before the query, with its values), the conditions, their values."""
    where: list[str] = []
    values: list[Any] = []
    hits: tuple[str, list[Any]] = ("", [])
    for column in ("project_id", "session_id", "profile"):
        if getattr(wanted, column):
            where.append(f"{column} = ?")
            values.append(getattr(wanted, column))
    query = fold(wanted.query)
    if query:
        where.append("number IN (SELECT number FROM hits)")
        # Trigrams in a row are the text itself; a query ends at its first NUL.
        if len(query) >= _TRIGRAM and "\0" not in query and _has_fts(db):
            sought, value = "SELECT rowid FROM found WHERE found MATCH ?", query.replace('"', '""')
            hits = (f"WITH hits (number) AS ({sought}) ", [f'"{value}"'])
        else:
            sought = "SELECT number FROM texts WHERE instr(folded, ?) > 0"
            hits = (f"WITH hits (number) AS ({sought}) ", [query])
    return hits, where, values


def by_request(
    db: sqlite3.Connection, profile: str, session_id: str, request_id: str
) -> dict[str, Any] | None:
    """The manifest of the record that a request made."""
    row = db.execute(
        "SELECT manifest FROM records WHERE profile = ? AND session_id = ? AND request_id = ?"
        " AND damaged = ''",
        (profile, session_id, request_id),
    ).fetchone()
    return json.loads(row[0]) if row else None


def children(db: sqlite3.Connection, ref: str) -> list[Row]:
    """The records that name this one as their parent, oldest first."""
    rows = db.execute(
        "SELECT manifest, project_id, handoff_id, damaged, goal, created_at FROM records"
        " WHERE parent_ref = ? ORDER BY created_at, handoff_id",
        (ref,),
    )
    return [_row(row) for row in rows]


def newer(db: sqlite3.Connection, manifest: Mapping[str, Any]) -> list[str]:
    """Refs of younger records of the same source session or project, and of children."""
    source = manifest["source"]
    rows = db.execute(
        "SELECT project_id, handoff_id FROM records WHERE handoff_id <> ?1 AND (parent_ref = ?2"
        " OR (created_at > ?3 AND (project_id = ?4 OR (profile = ?5 AND session_id = ?6))))"
        " ORDER BY created_at DESC, handoff_id LIMIT 20",
        (
            manifest["handoff_id"],
            manifest["ref"],
            manifest["created_at"],
            manifest["project_id"],
            source["profile_id"],
            source["session_id"],
        ),
    )
    return [f"handoff://{row[0]}/{row[1]}" for row in rows]


def damage(error: HandoffError) -> str:
    """Why a record is listed as damaged."""
    return f"{error.code}: {error.cause}"

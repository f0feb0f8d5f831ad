"""The hidden command ``_nodes``: names of nodes for completion, one a line. Never complains,
and starts no brain: they are read from its store."""

from __future__ import annotations

import os
import sqlite3


def run(words: list[str], values: dict[str, str]) -> int:
    """Print the names of nodes that are not revoked; words: maybe ``--brain`` and its folder."""
    del values
    named = words[1] if len(words) == 2 and words[0] == "--brain" else ""
    given = named or os.environ.get("HANDOFF_NODES", "")
    if not given:
        from handoff import places

        given = os.path.join(places.home_dir(), "nodes")
    path = os.path.join(os.path.abspath(os.path.expanduser(given)), "nodes.sqlite3")
    if not os.path.exists(path):
        return 0
    try:
        db = sqlite3.connect(path, timeout=0.5)
        try:
            db.execute("PRAGMA query_only = ON")
            found = db.execute("SELECT name FROM node WHERE revoked_ms IS NULL ORDER BY name")
            names = [str(name) for (name,) in found]
        finally:
            db.close()
    except sqlite3.Error:
        return 0
    for name in names:
        print(name)
    return 0

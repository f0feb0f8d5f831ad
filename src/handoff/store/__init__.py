"""SQLite: schema, numbered migrations, named queries, one writer with group commit."""

from __future__ import annotations

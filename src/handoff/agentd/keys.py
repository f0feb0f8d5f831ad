"""Idempotency keys: the same call under the same key has the same answer, and one effect."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

from starlette.requests import Request

from handoff.errors import OutcomeUnknown, UsageError
from handoff.store.sql import Q

if TYPE_CHECKING:
    from handoff.clock import Clock
    from handoff.store.engine import Store


class Key:
    """The key of one call; one that has none is always new.

    Args:
        operation: what is asked for, and of which task.
    """

    def __init__(self, store: Store, request: Request, operation: str) -> None:
        self._store = store
        self._operation = operation
        self.text = request.headers.get("handoff-request") or ""

    def answer(self) -> dict[str, object] | None:
        """What was answered under the key, with ``repeated``; None if it is new.

        Raises:
            UsageError: it is another call's.
        """
        if not self.text:
            return None
        found = self._found(self._store.reader())
        return None if found is None else {**found, "repeated": True}

    def record(self, answer: dict[str, object]) -> tuple[str, str, str] | None:
        """The answer as part of the change that the call makes."""
        return (self.text, self._operation, json.dumps(answer)) if self.text else None

    async def begin(self, clock: Clock, look: str) -> None:
        """Put a call on record that can't be taken back and whose answer is not kept.

        Raises:
            OutcomeUnknown: it was begun before. ``look`` shows what became of it.
            UsageError: the key is another call's.
        """
        if not self.text:
            return
        row = {
            "key": self.text,
            "operation": self._operation,
            "response": "{}",
            "created_at": clock.now_ms(),
        }

        def add(conn: sqlite3.Connection) -> None:
            if self._found(conn) is not None:
                raise OutcomeUnknown(
                    "this call was begun before, and its answer was lost: it is not carried "
                    "out again",
                    remedy=look,
                )
            conn.execute(Q["request_add"], row)

        await self._store.write(add)

    def _found(self, conn: sqlite3.Connection) -> dict[str, object] | None:
        row = conn.execute(Q["request_get"], {"key": self.text}).fetchone()
        if row is None:
            return None
        if row[0] != self._operation:
            raise UsageError(
                f"the key {self.text} was used for another call ({row[0]})",
                remedy="give each call a key of its own",
            )
        return dict(json.loads(row[1]))

"""Refusals in the audit, few enough that nobody who is refused can push out what it holds."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from handoff.nodes.audit import Audit

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["Refusals"]

#: rows of refusals within so many seconds; the next one says how many were left out
ROWS = 60
WITHIN_S = 60.0


class Refusals:
    """Writes them, or counts them."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._written: deque[float] = deque()
        self._left_out = 0

    def row(self, event: str, **fields: Any) -> None:
        """One refusal. Raises as :meth:`Audit.row`."""
        now = self._clock.monotonic()
        while self._written and self._written[0] <= now - WITHIN_S:
            self._written.popleft()
        if len(self._written) >= ROWS:
            self._left_out += 1
            return
        if self._left_out:
            fields["target"] = f"{self._left_out} refusals before it were not written"
        self._audit.row(event, **fields)
        self._written.append(now)
        self._left_out = 0

"""What a brain writes down of its calls, before they are sent and after they were answered."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from handoff.errors import HandoffError
from handoff.nodes import told
from handoff.nodes.audit import Audit
from handoff.nodes.brain.again import CONTENT, actor
from handoff.nodes.brain.asking import Asking
from handoff.nodes.brain.journal import BrainJournal, Sent
from handoff.wire.node import calls
from handoff.wire.node.calls import Result

__all__ = ["Notes"]

#: seconds that the audit's rows of calls that only read are gathered for
GATHER_S = 0.05


class Notes:
    """Journal and audit of one brain.

    open: every call under way by its key; one that has ended leaves it here, once its end is
    written down, so that whoever asks with its key finds it in one of the two.
    """

    def __init__(self, journal: BrainJournal, audit: Audit, under_way: dict[str, Asking]) -> None:
        self._journal = journal
        self._audit = audit
        self._under_way = under_way
        self._over: list[tuple[Asking, bool, Result, bool]] = []
        self._soon: asyncio.Handle | None = None

    def begin(self, asking: Asking, instance: str, now_ms: int) -> Sent | None:
        """Write a call down that is about to be sent. Returns what is known of it if that was
        done before; otherwise None. For one that only reads this is done a moment later, while
        the node is at it.

        Raises:
            RequestConflict: the key was used for another call.
            StorageFull, StorageError: it must not be sent.
        """
        self._audit.ready()
        if asking.call.reads:
            self._audit.later("call", **_row(asking))
            self._write_soon(GATHER_S)
            return None
        args = calls.to_json(asking.call)
        found = self._journal.begin(
            asking.key,
            asking.node,
            asking.call.op,
            calls.digest(asking.call),
            {name: one for name, one in args.items() if name not in CONTENT},
            asking.by,
            now_ms,
            instance,
        )
        if found is None:
            try:
                self._audit.row("call", **_row(asking))
            except HandoffError:
                with contextlib.suppress(HandoffError):
                    self._journal.drop(asking.key)
                raise
        return found

    def end(self, asking: Asking, ok: bool, answer: Result, *, keep: bool) -> None:
        """Write down a moment later what came of a call. keep: whether to remember it; not if
        nothing was done. If this process dies first, the node still has the answer."""
        if asking.call.reads and not asking.key:
            self._result(asking, answer)  # and the answer, which may be large, can go
            self._write_soon(GATHER_S)
        else:
            self._over.append((asking, ok, answer, keep))
            self._write_soon(0)

    def write(self) -> None:
        """Write down what waits for it."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        over, self._over = self._over, []
        for asking, ok, answer, keep in over:
            if asking.key and not asking.call.reads:
                with contextlib.suppress(HandoffError):
                    if keep:
                        self._journal.end(asking.key, ok=ok, answer=calls.to_json(answer))
                    else:
                        self._journal.drop(asking.key)
            if self._under_way.get(asking.key) is asking:
                del self._under_way[asking.key]
            self._result(asking, answer)
        with contextlib.suppress(HandoffError):
            self._audit.flush()

    def _result(self, asking: Asking, answer: Result) -> None:
        if asking.key or asking.by:  # otherwise it was our own question
            self._audit.later(
                "result",
                request_id=asking.request_id,
                node=asking.node,
                op=asking.call.op,
                **told.outcome(answer),
            )

    def _write_soon(self, seconds: float) -> None:
        """At the end of this turn of the loop, or so much later."""
        loop = asyncio.get_running_loop()
        if not seconds:
            if isinstance(self._soon, asyncio.TimerHandle):
                self._soon.cancel()
                self._soon = None
            self._soon = self._soon or loop.call_soon(self.write)
        elif self._soon is None:
            self._soon = loop.call_later(seconds, self.write)


def _row(asking: Asking) -> dict[str, Any]:
    return {
        "request_id": asking.request_id,
        "node": asking.node,
        "actor": actor(asking.by),
        "op": asking.call.op,
        "target": told.target(asking.call),
    }

"""Calls that only look: audited once they are answered, and the cheap ones answered at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from handoff.errors import HandoffError, NotAllowed
from handoff.nodes import told
from handoff.nodes.audit import Audit
from handoff.nodes.node.asked import Who, as_cut
from handoff.nodes.node.asked import row as asked_row
from handoff.nodes.node.files import Files
from handoff.nodes.node.looking import info, named
from handoff.nodes.node.mounts import Mounts
from handoff.nodes.node.policy import Policy
from handoff.wire.node import calls
from handoff.wire.node.calls import Call, List, Listing, Result, Stat

__all__ = ["Looks"]

#: seconds that the audit's rows of reads are gathered for
FLUSH_S = 0.05


class Looks:
    """What a node's brain looks at.

    policy: asked anew at each call. home: what ``~`` stands for.
    """

    def __init__(self, audit: Audit, policy: Callable[[], Policy], home: str) -> None:
        self._audit = audit
        self._files = Files(policy, home)
        self._home = home
        self._mounts = Mounts()
        self._timer: asyncio.TimerHandle | None = None

    async def noted(
        self, key: str, call: Call, who: Who, work: Callable[[], Awaitable[Result]]
    ) -> Result:
        """The answer of ``work``. Its row in the audit may be written after it was given.

        Raises:
            HandoffError: as ``work``; Cancelled, Unreachable: whoever asked took it no more,
                or the link was lost; StorageError: earlier rows can't be written.
        """
        self._audit.ready()
        row = asked_row(key, call, who)
        try:
            answer = await work()
        except HandoffError as error:
            self._refused(row, error)
            raise
        except ConnectionError as error:
            self._refused(row, cut := as_cut(error))
            raise cut from error
        except BaseException as error:  # some of it may have been read
            self._refused(row, HandoffError(f"it broke off: {type(error).__name__}"))
            raise
        self._gave(row, call, who, answer)
        return answer

    def at_once(self, key: str, call: Call, who: Who) -> Result | None:
        """The answer to a question after names on this machine's own disks, from the event
        loop itself; None if it may have to wait for anything.

        Raises:
            HandoffError: the answer.
        """
        if not isinstance(call, Stat | List) or not self._near(call):
            return None
        self._audit.ready()
        row = asked_row(key, call, who)
        try:
            answer = self._look(call)
        except HandoffError as error:
            self._refused(row, error)
            raise
        if answer is not None:
            self._gave(row, call, who, answer)
        return answer

    def close(self) -> None:
        """Write down what was answered."""
        if self._timer is not None:
            self._timer.cancel()
        self.flush()
        self._mounts.close()

    def _near(self, call: Stat | List) -> bool:
        path = call.path
        if isinstance(call, Stat) and call.hash:
            return False
        full = self._home + path[1:] if path == "~" or path.startswith("~/") else path
        full = os.path.join(self._home, full)
        return self._mounts.near(full, few=isinstance(call, List))

    def _look(self, call: Stat | List) -> Result | None:
        if isinstance(call, Stat):
            found = self._files.stat(call.path, follow=call.follow)
            return info(found, call.path) if named(found) else None
        page = self._files.listing(call.path, call.limit or 1, call.after)
        if page.unreadable or not all(named(one) for one in page.entries):
            return None
        return Listing(tuple(info(one, one.name) for one in page.entries), page.next)

    def _refused(self, row: Mapping[str, Any], error: HandoffError) -> None:
        if isinstance(error, NotAllowed):
            self._audit.row("read", **row, verdict="deny", status="failed", code=error.code)
        else:
            self._later(row, {"status": "failed", "code": error.code})

    def _gave(self, row: Mapping[str, Any], call: Call, who: Who, answer: Result) -> None:
        # what the brain itself asks for at each link is no news
        if who.actor or not isinstance(call, calls.GetFacts):
            self._later(row, told.outcome(answer))

    def _later(self, row: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        self._audit.later("read", **row, verdict="allow", **outcome)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Write down now what was answered; what can't be written goes on waiting."""
        self._timer = None
        with contextlib.suppress(HandoffError):  # it goes on waiting: see Audit.ready
            self._audit.flush()

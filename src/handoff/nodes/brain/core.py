"""The brain: who is connected, what is asked of them, and what came of it.

One event loop decides everything. A call is journaled, sent on the node's link, and its
streams and result handed to whoever asked; whoever asks again with the same key joins it.
When a link is lost, what was under way waits for the node: it is asked what became of each
call, and only what it says was never seen is sent once more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from handoff.errors import (
    HandoffError,
    Unreachable,
)
from handoff.link.keys import MachineKey
from handoff.link.tokens import NodeStore
from handoff.nodes.audit import Audit
from handoff.nodes.brain.absent import Absent
from handoff.nodes.brain.admission import Admission
from handoff.nodes.brain.again import (
    as_sent,
    conflict,
    from_journal,
    never_known,
    offline,
    revoked,
    same,
    withdrawn,
)
from handoff.nodes.brain.asking import Asking, Pieces, Waiting, untold
from handoff.nodes.brain.journal import BrainJournal, Sent
from handoff.nodes.brain.notes import Notes
from handoff.nodes.brain.session import Session
from handoff.nodes.brain.shown import Connected
from handoff.nodes.brain.strangers import Refusals
from handoff.wire.node import calls
from handoff.wire.node.calls import Call, CallFailed, GetFacts, Result
from handoff.wire.node.events import Admit as AdmitEvent
from handoff.wire.node.events import Credential, Ended, Event, Identify, Noticed, Opened
from handoff.wire.node.messages import Hello, Pair, PairOk
from handoff.wire.node.sealing import from_b64url

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["Brain", "Connected", "Pieces"]

#: seconds that a lost node's calls are waited for, unless the caller says otherwise
RETURN_S = 30.0


@dataclass(slots=True)
class Brain:
    """See the module. Its methods belong to one event loop."""

    store: NodeStore
    journal: BrainJournal
    audit: Audit
    key: MachineKey
    clock: Clock
    sessions: dict[str, Session] = field(default_factory=dict)
    #: everything under way by its key, also while its node is away
    asking: dict[str, Asking] = field(default_factory=dict)
    _absent: Absent = field(default_factory=Absent)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _refusals: Refusals | None = None
    _notes: Notes = field(init=False)
    _admission: Admission = field(init=False)

    def __post_init__(self) -> None:
        self._notes = Notes(self.journal, self.audit, self.asking)
        self._admission = Admission(self)

    # -- links ------------------------------------------------------------------------------

    def happened(self, session: Session, event: Event) -> None:
        """Something happened on a link."""
        match event:
            case Identify():
                session.link.identify(self._credential(session, event.hello))
            case AdmitEvent():
                self._admission.admit(session)
            case Opened():
                self._opened(session)
            case Ended():
                self._ended(session, event)
            case Noticed():
                pass
            case _:
                session.take(event)

    def pair(self, session: Session, pair: Pair) -> PairOk:
        """A node redeems a pairing code.

        Raises:
            PairingRefused, NodeExists.
        """
        try:
            answer = self.store.redeem(pair, self.key)
        except HandoffError as error:
            self._refused("pair", node=pair.node_name, remote=session.remote, code=error.code)
            raise
        self.audit.row("pair", node=answer.node_name, remote=session.remote, status="ok")
        old = self.sessions.get(answer.node_name)
        if old is not None:
            old.close("replaced", "it was paired anew")
        return answer

    def _credential(self, session: Session, hello: Hello) -> Credential | None:
        try:
            key = from_b64url(hello.key, 32) if hello.key else b""
        except ValueError:
            key = b""
        session.credential = self.store.credential(hello.node_name, key)
        return session.credential

    async def facts(self, session: Session, seconds: float) -> Result | None:
        """A node's answer to what machine it is, whatever that is; None if none came."""
        asked = Asking("", session.name, GetFacts(), "")
        try:
            session.send(asked)
            _, answer = await asyncio.wait_for(self._wait(asked, seconds), seconds)
        except (HandoffError, TimeoutError):
            return None
        lost = isinstance(answer, CallFailed) and answer.code == Unreachable.code
        return None if lost else answer

    def _opened(self, session: Session) -> None:
        name = session.name
        session.connected_ms = self.clock.now_ms()
        self.sessions[name] = session
        self.audit.row("link", node=name, remote=session.remote, status="open", session=session.id)
        self._absent.woken(name)
        self.spawn(self._greet(session))

    async def _greet(self, session: Session) -> None:
        """Settle what was under way, then learn what machine it is."""
        for sent in self.journal.open_calls(session.name):
            asking = self.asking.get(sent.key)
            if asking is None or asking.session is not session:  # else it was sent just now
                self.spawn(self._settle(session, sent, asking))
        facts: Mapping[str, Any] | None = None
        if session.calls2:
            answer = await self.facts(session, 30)
            if answer is not None and not isinstance(answer, CallFailed):
                facts = calls.to_json(answer)
        with contextlib.suppress(HandoffError):
            self.store.seen(session.name, facts)

    def _ended(self, session: Session, event: Ended) -> None:
        reason = event.close.reason
        self.drop(session)  # whatever becomes of the audit
        if session.name and session.connected_ms:
            with contextlib.suppress(HandoffError):
                self.store.seen(session.name)
            self.audit.row(
                "link",
                node=session.name,
                remote=session.remote,
                status="closed",
                code=reason,
                session=session.id,
            )
        elif reason not in {"paired", "lost"}:
            named = session.link.hello.node_name if session.link.hello else ""
            self._refused(node=named[:64], remote=session.remote, code=reason)

    def _refused(self, event: str = "link", **fields: Any) -> None:
        if self._refusals is None:
            self._refusals = Refusals(self.audit, self.clock)
        self._refusals.row(event, status="refused", **fields)

    def drop(self, session: Session) -> None:
        """The session counts no more; what was under way on it waits for the node."""
        if self.sessions.get(session.name) is session:
            del self.sessions[session.name]
        for asking in session.release():
            if asking.call.reads or not asking.key:
                asking.fail(
                    CallFailed.of(
                        Unreachable("the link was lost meanwhile", remedy="ask again"),
                        retry_safe=True,
                    )
                )
            else:
                asking.lost()

    # -- calls ------------------------------------------------------------------------------

    async def call(
        self,
        target: str,
        call: Call,
        *,
        key: str,
        by: str = "",
        pieces: Pieces | None = None,
        feed: Callable[[], Any] | None = None,
        wait_s: float = 0.0,
        return_s: float = RETURN_S,
    ) -> tuple[bool, Result]:
        """Ask a node.

        key: the caller's, the same when it asks again; may be empty for what only reads.
        by: who asks, as JSON. pieces: told of each stream's bytes in order; awaited.
        feed: gives the bytes of the stream into the call, ``b""`` at its end; awaited.
        wait_s: how long an offline node is waited for. return_s: how long a node that goes
        away meanwhile is.

        Returns (True, result) or (False, why not).

        Raises:
            UnknownNode, BadRequest, RequestConflict.
        """
        if target not in self.sessions:
            self.store.node(target)
        calls.checked(call)
        begun = self.begin(target, call, key=key, by=by, pieces=pieces, feed=feed)
        if begun is None and key:
            joined = await self._join(target, call, key, return_s)
            if joined is not None:
                return joined[0], untold(joined[1])
        if begun is None:
            over = partial(self._look, target)
            if wait_s > 0 and not await self._absent.wait(target, key, wait_s, over):
                return False, CallFailed.of(withdrawn(target), retry_safe=True)
            begun = self.begin(target, call, key=key, by=by, pieces=pieces, feed=feed)
        if begun is None and key:  # another has asked with it meanwhile
            joined = await self._join(target, call, key, return_s)
            if joined is not None:
                return joined[0], untold(joined[1])
        if begun is None:
            return False, CallFailed.of(offline(self.store.node(target)), retry_safe=True)
        if isinstance(begun, tuple):
            return begun
        return await self._wait(begun, return_s)

    def begin(
        self,
        target: str,
        call: Call,
        *,
        key: str,
        by: str = "",
        pieces: Pieces | None = None,
        feed: Callable[[], Any] | None = None,
    ) -> Asking | tuple[bool, Result] | None:
        """Send a call, as :meth:`call` does, without waiting for anything. Returns what to
        wait for, or the answer if there is one already; None: nothing was done, because the
        node is away, or the call was made before and is not over.

        Raises:
            BadRequest, RequestConflict, StorageFull, StorageError: nothing was sent.
        """
        session = self.sessions.get(target)
        running = self.asking.get(key) if key else None
        if session is None or (running is not None and not (call.reads and call.comes())):
            return None
        if running is not None and not same(running.node, calls.digest(running.call), target, call):
            raise conflict(key)
        asking = Asking(key, target, call, by, pieces, feed)
        found = self._notes.begin(asking, session.instance.notes, self.clock.now_ms())
        if found is not None:
            return self._known(found, call)
        if key:
            # a second one that reads meanwhile has its own answer: the first one's bytes went
            # to whoever asked first
            self.asking.setdefault(key, asking)
        try:
            session.send(asking)
        except HandoffError as error:
            self._settled(asking, False, CallFailed.of(error, retry_safe=True), keep=False)
            return False, CallFailed.of(error, retry_safe=True)
        return asking

    def cancel(self, key: str) -> bool:
        """End a call, or don't send it. False: it does not run, or its node can't be told."""
        asking = self.asking.get(key)
        if asking is None or asking.session is None:
            return self._absent.cancel(key)
        return asking.session.cancel(asking)

    def left(self, asking: Asking) -> None:
        """One who waited for a call is gone. What only reads, and has nobody left to read it,
        ends."""
        streams = asking.call.reads and asking.call.comes()
        if streams and not (asking.waiting or asking.settled) and asking.session is not None:
            asking.session.stop(asking)

    def connected(self) -> list[Connected]:
        """The nodes that are linked now, by name."""
        return [session.shown() for _, session in sorted(self.sessions.items())]

    @property
    def waiting(self) -> int:
        """How many calls wait for a node that is away."""
        return self._absent.count

    def revoke(self, name: str) -> bool:
        """Take a node's credential, and close its link. False: it was revoked before.

        Raises:
            UnknownNode.
        """
        changed = self.store.revoke(name)
        session = self.sessions.get(name)
        if session is not None:
            session.close("revoked")
            self.drop(session)
        for asking in [one for one in self.asking.values() if one.node == name]:
            self._settled(asking, False, CallFailed.of(revoked(asking)))
        self._absent.woken(name)
        self.audit.row("revoke", node=name, status="ok" if changed else "again")
        return changed

    def rename(self, name: str, to: str) -> None:
        """Call a node otherwise: its calls are those of the new name. The link of a node that
        has a token ends: it must greet with the new name.

        Raises:
            BadRequest, UnknownNode, NodeExists.
        """
        self.store.rename(name, to)
        self.journal.rename(name, to)
        for asking in self.asking.values():
            asking.node = to if asking.node == name else asking.node
        session = self.sessions.get(name)
        if session is not None and session.keyed:
            self.sessions[to] = self.sessions.pop(name)
            session.name = to
        elif session is not None:
            session.close("replaced", f"it is called {to} now")
            self.drop(session)
        self._absent.woken(name)
        self.audit.row("rename", node=name, target=to, status="ok")

    async def close(self) -> None:
        """End every link."""
        for session in list(self.sessions.values()):
            session.close("shutting_down", retry_ms=1000)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._notes.write()

    async def _join(
        self, target: str, call: Call, key: str, return_s: float
    ) -> tuple[bool, Result] | None:
        """The answer to a call that was made before with that key."""
        running = self.asking.get(key)
        if running is not None:
            if not same(running.node, calls.digest(running.call), target, call):
                raise conflict(key)
            return await self._wait(running, return_s)
        if call.reads:
            return None
        found = self.journal.find(key)
        if found is None:
            return None
        if not same(found.node, found.digest, target, call):
            raise conflict(key)
        known = self._known(found, call)
        if known is not None:
            return known
        asking = Asking(key, target, as_sent(call, found), found.by)
        self.asking[key] = asking
        session = self.sessions.get(target)
        if session is not None:
            self.spawn(self._settle(session, found, asking))
        else:
            asking.lost()
        return await self._wait(asking, return_s)

    @staticmethod
    def _known(found: Sent, call: Call) -> tuple[bool, Result] | None:
        if found.state != "done":
            return None
        return found.ok, untold(calls.result_from_json(type(call), found.ok, found.answer))

    async def _wait(self, asking: Asking, return_s: float) -> tuple[bool, Result]:
        """The call's end; see :class:`Waiting`."""
        end: asyncio.Future[tuple[bool, Result]] = asyncio.get_running_loop().create_future()

        def told(ok: bool, answer: Result) -> None:
            if not end.done():
                end.set_result((ok, answer))

        waiting = Waiting(asking, return_s, told)
        try:
            return await end
        finally:
            waiting.leave()
            self.left(asking)

    async def _settle(self, session: Session, sent: Sent, asking: Asking | None) -> None:
        """Find out from a node that is back what became of a call."""
        if asking is None:
            call = from_journal(sent)
            asking = Asking(sent.key, sent.node, call, sent.by)
            self.asking[sent.key] = asking
        if not session.calls2:
            self._settled(asking, False, CallFailed.of(never_known(asking)))
            return
        state = await session.ask(asking)
        if state in {"running", "done"}:
            return  # its streams and result come by themselves
        if state == "unknown_outcome" or sent.instance != session.instance.notes:
            self._settled(asking, False, CallFailed.of(never_known(asking)))
        elif state == "never_seen":
            self._again(session, asking)

    def _again(self, session: Session, asking: Asking) -> None:
        """The node has never seen the call. It is sent again if whoever asked is still there
        and its content is; otherwise nothing was done, and it is said so."""
        if asking.waiting and asking.repeatable:
            with contextlib.suppress(HandoffError):
                session.send(asking)
                return
        error = Unreachable("the link was lost before the node got the call", remedy="ask again")
        self._settled(asking, False, CallFailed.of(error, retry_safe=True), keep=False)

    def ended(self, asking: Asking, ok: bool, answer: Result) -> None:
        """A call's answer has come."""
        safe = isinstance(answer, CallFailed) and answer.retry_safe
        self._settled(asking, ok, answer, keep=not safe)

    def _settled(self, asking: Asking, ok: bool, answer: Result, *, keep: bool = True) -> None:
        if not asking.settled:
            asking.settled = True
            self._notes.end(asking, ok, answer, keep=keep)
            asking.finish(ok, answer)

    def _look(self, target: str) -> bool:
        """Whether a node is here, or is not let in. Raises UnknownNode."""
        return target in self.sessions or self.store.node(target).revoked

    def spawn(self, work: Any) -> None:
        """Keep something going until the brain closes."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

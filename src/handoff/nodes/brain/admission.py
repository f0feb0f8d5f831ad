"""Who is let in under a node's name: the node, on a new link, and nobody beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handoff.errors import HandoffError
from handoff.nodes.brain.twins import Instance

if TYPE_CHECKING:
    from handoff.nodes.brain.core import Brain
    from handoff.nodes.brain.session import Session

__all__ = ["Admission"]

#: seconds that a link has to show that somebody is there, when a second process comes
ALIVE_S = 3.0


class Admission:
    """For one brain. Whoever comes has proved the name by now."""

    def __init__(self, brain: Brain) -> None:
        self._brain = brain

    def admit(self, session: Session) -> None:
        """Let a node in, or refuse it."""
        hello = session.link.hello
        assert hello is not None
        assert session.credential is not None
        name, instance = session.credential.name, Instance.of(hello.instance)
        old = self._brain.sessions.get(name)
        if old is not None and not hello.took_over:
            if instance.is_stranger(old.instance):
                self._refuse(session, name, f"connected from {old.remote}")
                return
            if instance.may_be_copy(old.instance):
                self._brain.spawn(self._admit_if_alone(session, old, name, instance))
                return
        self._let_in(session, name, instance)

    async def _admit_if_alone(
        self, session: Session, old: Session, name: str, instance: Instance
    ) -> None:
        """A node that was started anew finds its old link dead, or half open; where somebody
        answers there, this is a copy of it."""
        answer = await self._brain.facts(old, ALIVE_S)
        if session.link.closing is not None:
            return
        try:
            if answer is not None and self._brain.sessions.get(name) is old:
                self._refuse(session, name, f"a copy of it runs, connected from {old.remote}")
            else:
                self._let_in(session, name, instance)
        except HandoffError:
            session.refuse("not_now", "the brain can't write its own data")

    def _refuse(self, session: Session, name: str, why: str) -> None:
        self._brain.audit.row("link", node=name, remote=session.remote, status="name_in_use")
        session.refuse("name_in_use", why)

    def _let_in(self, session: Session, name: str, instance: Instance) -> None:
        known = self._brain.store.credential(name)
        if known is None or known != session.credential:
            # what it proved was right when it greeted; it can take its time with the proof
            gone = known is not None and known.revoked
            session.refuse("revoked" if gone else "not_now", "" if gone else "it was changed")
            return
        session.credential = None
        old = self._brain.sessions.get(name)
        if old is not None:
            old.close("replaced", f"connected anew from {session.remote}")
            self._brain.drop(old)
        session.name = name
        session.instance = instance
        session.admit()

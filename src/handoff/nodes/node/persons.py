"""What a person at the node decides: what waits for a word, and the lock. Each decision is in
the node's audit, with who made it."""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import time
from typing import TYPE_CHECKING, Any

from handoff.errors import ConfigError, HandoffError, UnknownCall
from handoff.ids import resolve
from handoff.link.files import write_private
from handoff.nodes.audit import Audit
from handoff.nodes.node.calls_journal import CALLS, CallsJournal
from handoff.nodes.node.keeping import Keep
from handoff.nodes.node.policy import LOCK
from handoff.redaction import Redactor

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["decide", "lock", "node_audit", "unlock", "waiting"]

#: milliseconds between TERM and KILL when everything is ended, and seconds until it is over
GRACE_MS = 2000
END_S = 15.0


def node_audit(folder: str, clock: Clock) -> Audit:
    """The audit of the node of a folder, for whoever writes to it."""
    redactor = Redactor(_marks_key(folder), mode="standard")
    return Audit(os.path.join(folder, "audit"), "node", redactor.redact, clock)


def waiting(folder: str) -> list[dict[str, Any]]:
    """What waits for a person, as :meth:`CallsJournal.asks`.

    Raises:
        ConfigError: no node has run there.
    """
    journal = _journal(folder)
    try:
        return journal.asks()
    finally:
        journal.close()


def decide(folder: str, ask: str, verdict: str, clock: Clock) -> str:
    """Rule on what waits. ask: its id or the start of it; verdict: ``allow`` or ``deny``.
    Returns the whole id.

    Raises:
        ConfigError: no node has run there.
        UnknownCall: nothing of that id waits.
        StorageFull, StorageError: it can't be audited, and is not done.
    """
    journal = _journal(folder)
    audit = node_audit(folder, clock)
    try:
        asks = {one["id"]: one for one in journal.asks()}
        found = resolve(ask, list(asks), UnknownCall, "hermes-node asks")
        event = "approve" if verdict == "allow" else "deny"
        audit.row(event, actor=_person(), target=asks[found]["shown"], rule=found, verdict=verdict)
        if not journal.rule(found, verdict):
            raise UnknownCall(f"{found} was ruled on meanwhile", remedy="hermes-node asks")
        return found
    finally:
        audit.close()
        journal.close()


def lock(folder: str, clock: Clock) -> int:
    """Refuse everything from now on, and end what runs. Returns how many commands were ended.

    Raises:
        StorageError: the lock can't be made.
        HandoffError: it is locked, but something can't be ended, or not be audited.
    """
    write_private(os.path.join(folder, LOCK), b"")
    audit = node_audit(folder, clock)
    try:
        ended = asyncio.run(_end_all(os.path.join(folder, "calls")))
        audit.row("lock", actor=_person(), status="ok", target=f"{ended} commands ended")
    except HandoffError as error:
        audit.row("lock", actor=_person(), status="failed", code=error.code)
        raise
    finally:
        audit.close()
    return ended


def unlock(folder: str, clock: Clock) -> bool:
    """Let the policy count again. False: it was not locked.

    Raises:
        StorageFull, StorageError: it can't be audited, and is not done.
    """
    path = os.path.join(folder, LOCK)
    if not os.path.lexists(path):
        return False
    audit = node_audit(folder, clock)
    try:
        audit.row("unlock", actor=_person(), status="ok")
        os.unlink(path)
    finally:
        audit.close()
    return True


async def _end_all(folder: str) -> int:
    keep = await Keep.attach(folder)
    if keep is None:
        return 0
    try:
        running = [one for one in keep.running.values() if not one.done]
        for one in running:
            await keep.end(one, "revoked", GRACE_MS)
        until = time.monotonic() + END_S
        for one in running:
            while not one.done and not keep.lost.is_set() and time.monotonic() < until:
                await one.wait(1.0)
        return len(running)
    finally:
        await keep.close()


def _journal(folder: str) -> CallsJournal:
    path = os.path.join(folder, CALLS)
    if not os.path.exists(path):
        raise ConfigError(f"no node has run in {folder}", remedy="hermes-node run")
    return CallsJournal(path)


def _person() -> dict[str, str]:
    uid = os.getuid()
    try:
        return {"user": pwd.getpwuid(uid).pw_name}
    except KeyError:
        return {"user": str(uid)}


def _marks_key(folder: str) -> bytes:
    """What marks of redacted values are made with, the same over all starts."""
    path = os.path.join(folder, "marks.key")
    try:
        with open(path, "rb") as file:
            found = file.read(64)
        if len(found) == 32:
            return found
    except FileNotFoundError:
        pass
    made = secrets.token_bytes(32)
    write_private(path, made)
    return made

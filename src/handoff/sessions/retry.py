"""May the same call be made again? What every refusal tells a program."""

from __future__ import annotations

from handoff.errors import (
    AlreadyReserved,
    GitError,
    HandoffError,
    JournalCorrupt,
    OpeningUncertain,
    OutcomeUnknown,
    StorageError,
    TimedOut,
    Unreachable,
)

__all__ = ["AFTER_INSPECTION", "NEVER", "SAME_ID", "retry_of", "to_json"]

#: the call is wrong, or refused as things stand: change something first
NEVER = "never"
#: nothing was done: the same call, with the same ids, may succeed
SAME_ID = "same_id"
#: something may have been done: a person looks before anything else happens
AFTER_INSPECTION = "after_inspection"

#: the first that fits decides
_RULES: tuple[tuple[type[HandoffError], str], ...] = (
    (OutcomeUnknown, AFTER_INSPECTION),
    (OpeningUncertain, AFTER_INSPECTION),
    (AlreadyReserved, AFTER_INSPECTION),
    (JournalCorrupt, AFTER_INSPECTION),
    (StorageError, SAME_ID),
    (TimedOut, SAME_ID),
    (GitError, SAME_ID),
    (Unreachable, SAME_ID),
)


def retry_of(error: HandoffError) -> str:
    """``never``, ``same_id`` or ``after_inspection``."""
    return next((rule for cls, rule in _RULES if isinstance(error, cls)), NEVER)


def to_json(error: HandoffError, action: str) -> dict[str, object]:
    """The refusal of an action: ``ok`` false, ``action``, ``code``, ``message``, ``retry``,
    ``remedy``, ``details``."""
    return {
        "ok": False,
        "action": action,
        "code": error.code,
        "message": error.cause,
        "retry": retry_of(error),
        "remedy": error.remedy,
        "details": error.details,
    }

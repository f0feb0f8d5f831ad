"""Ids: how they are made and how a prefix finds one.

Task ids are UUIDv4 text, as every peer of the protocol expects. A person may type any
unique prefix of at least four characters (:data:`MIN_PREFIX`).
"""

from __future__ import annotations

from handoff.errors import AmbiguousId, NotFound, UsageError

MIN_PREFIX = 4
SHORT = 8


def short(identifier: str) -> str:
    """The first eight characters: enough to read, and accepted wherever an id is."""
    return identifier[:SHORT]


def check_prefix(prefix: str) -> str:
    """The prefix in canonical form.

    Raises:
        UsageError: it is too short, or holds characters that no id has.
    """
    cleaned = prefix.strip().lower()
    if len(cleaned) < MIN_PREFIX:
        raise UsageError(
            f"'{prefix}' is too short for an id: give at least {MIN_PREFIX} characters",
            remedy="handoff tasks",
        )
    if not all(c in "0123456789abcdef-" for c in cleaned):
        raise UsageError(f"'{prefix}' is not an id", remedy="handoff tasks")
    return cleaned


def resolve(
    prefix: str,
    candidates: list[str],
    missing: type[NotFound] = NotFound,
    remedy: str = "handoff tasks",
) -> str:
    """The one candidate that starts with prefix (an exact match always wins).

    Args:
        prefix: what was given.
        candidates: all ids.
        missing: the error's class if none fits.
        remedy: its remedy: what lists them.

    Raises:
        NotFound: (or the class given) nothing fits.
        AmbiguousId: several fit; details hold them.
    """
    if prefix in candidates:
        return prefix
    fitting = sorted(c for c in candidates if c.startswith(prefix))
    if not fitting:
        raise missing(f"nothing has the id '{prefix}'", remedy=remedy)
    if len(fitting) > 1:
        shown = ", ".join(fitting[:5])
        raise AmbiguousId(f"'{prefix}' fits several ids: {shown}", candidates=fitting[:20])
    return fitting[0]

"""The form of what a record holds beside its state: evidence, and the manifest's parts.

Both may come from another machine, with digests that fit whatever somebody wrote. So their
form is checked at every reading, and what a bundle says of itself once more on the way in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from handoff.errors import ImportRefused, IntegrityFailed
from handoff.sessions.guard import Guard
from handoff.sessions.text import hidden

__all__ = ["check_evidence", "check_manifest", "check_portable"]

#: characters of one of the manifest's texts
_LENGTH = 512
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_HEAD = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})?\Z")
_KINDS = frozenset(("git", "directory"))
_DIGESTS = frozenset(("anchor_sha256", "head"))
_TOLD = ("name", "request_id", "derived_from")


def _text(value: object) -> bool:
    return isinstance(value, str)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _id(value: object) -> bool:
    return _text(value) or _count(value)


def _rows(**fields: Callable[[object], bool]) -> Callable[[object], bool]:
    """A list of objects that have these fields, and may have others."""
    return lambda value: (
        isinstance(value, list)
        and all(
            isinstance(one, dict) and all(key in one and of(one[key]) for key, of in fields.items())
            for one in value
        )
    )


def _object(**fields: Callable[[object], bool]) -> Callable[[object], bool]:
    """An object whose fields of these names, where it has them, are of that form."""
    return lambda value: (
        isinstance(value, dict) and all(of(value[k]) for k, of in fields.items() if k in value)
    )


def _texts(value: object) -> bool:
    return isinstance(value, dict) and all(_text(one) for one in value.values())


_EVIDENCE: Mapping[str, Callable[[object], bool]] = {
    "candidates": _rows(id=_id, text=_text),
    "files": _rows(path=_text, blob=_text),
    "rules": _rows(path=_text, sha256=_text),
    "git": _object(
        branch=_text,
        head=_text,
        dirty_digest=_text,
        changed=_rows(status=_text, path=_text, blob=_text),
        changed_total=_count,
    ),
    "unavailable": _texts,
    "window": _object(first=_id, last=_id, messages=_count, bytes=_count, sha256=_text),
}


def check_evidence(evidence: Mapping[str, Any], ref: str) -> None:
    """Check the form of what a record's evidence holds.

    Raises:
        IntegrityFailed: names the part.
    """
    for name, of in _EVIDENCE.items():
        if name in evidence and not of(evidence[name]):
            raise IntegrityFailed(f"the evidence of {ref} is of another form: {name}", remedy="")


def check_manifest(made: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Check the manifest's parts that no digest holds.

    Raises:
        IntegrityFailed: names the part.
    """
    redaction = made["redaction"]
    counts = redaction.get("counts")
    fits = (
        set(redaction) == {"ruleset", "counts"}
        and _text(redaction["ruleset"])
        and isinstance(counts, dict)
        and all(_count(number) for number in counts.values())
    )
    for name, right in (("redaction", fits), ("lineage", made["lineage"] == state["lineage"])):
        if not right:
            raise IntegrityFailed(
                f"the manifest of {made['ref']} was never written so: {name}", remedy=""
            )


def check_portable(made: Mapping[str, Any], guard: Guard) -> None:
    """Check what a bundle's manifest says of its origin: all of it is shown here.

    Raises:
        ImportRefused: names the field, never its value.
    """
    place = made["workspace"]
    for field, fits in (
        ("workspace/kind", place["kind"] in _KINDS),
        ("workspace/anchor_sha256", _SHA256.match(place["anchor_sha256"])),
        ("workspace/head", _HEAD.match(place["head"])),
    ):
        if not fits:
            raise ImportRefused(f"the bundle's manifest is of another form: {field}")
    told = {name: made[name] for name in _TOLD}
    for part in ("source", "workspace", "writer"):
        told |= {
            f"{part}/{name}": value
            for name, value in made[part].items()
            if isinstance(value, str) and name not in _DIGESTS
        }
    told |= {f"redaction/{kind}": kind for kind in made["redaction"]["counts"]}
    told["redaction/ruleset"] = made["redaction"]["ruleset"]
    for field, text in told.items():
        if len(text) > _LENGTH or not text.isprintable() or any(hidden(text)):
            shown = field if field.isascii() and field.isprintable() else "redaction"
            raise ImportRefused(
                f"the bundle's manifest holds a text that can't be shown: {shown[:64]}"
            )
        if guard.text(text) != text:
            raise ImportRefused(
                "the bundle holds what looks like secrets: in its manifest, "
                + (field if not field.startswith("redaction") else "redaction"),
                remedy="make the record again, where its names hold no secret",
            )

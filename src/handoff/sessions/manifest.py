"""What names a record: its ref, the digests of its parts, and the manifest that binds them.

A record is four files that never change: ``state.json``, ``document.md``,
``evidence.json`` and ``manifest.json``. Its id is the digest of its content and of what it
is bound to (source session, workspace, renderer): the same content has the same id, another
byte has another. What may differ between two writings of the same content (time, name,
request) stands in the manifest, outside the id, under the manifest's own digest.
No absolute path is in any of them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from handoff.errors import IntegrityFailed, StateInvalid, UsageError
from handoff.sessions import canonical
from handoff.sessions.document import RENDER
from handoff.sessions.schema import SCHEMA as STATE_SCHEMA

SCHEMA = "handoff-manifest/1"
EVIDENCE_SCHEMA = "handoff-evidence/1"
STATE, DOCUMENT, EVIDENCE, MANIFEST = "state.json", "document.md", "evidence.json", "manifest.json"
#: member -> bytes that are read of it at most
LIMITS: Mapping[str, int] = {
    MANIFEST: 64 * 1024,
    STATE: 256 * 1024,
    DOCUMENT: 2 * 1024 * 1024,
    EVIDENCE: 1024 * 1024,
}
#: all ids are the first 160 bits of a digest, in base32
_ID = re.compile(r"[a-z2-7]{32}\Z")
_REF = re.compile(r"handoff://([a-z2-7]{32})/([a-z2-7]{32})\Z")
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,63}\Z")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}\Z")
ORIGINS = ("create", "sweep", "task", "import", "export")


class Ref(NamedTuple):
    """A record's address. It identifies; it does not authorise."""

    project_id: str
    handoff_id: str

    def __str__(self) -> str:
        return f"handoff://{self.project_id}/{self.handoff_id}"


@dataclass(frozen=True)
class Source:
    """The session that a record was made in. ``last_message``: id of its last message when
    the record was frozen, or "". ``host``: its program, such as ``hermes``."""

    profile_id: str
    session_id: str
    last_message: str = ""
    host: str = ""
    host_version: str = ""


@dataclass(frozen=True)
class Writer:
    """Who wrote the state. ``kind``: ``chat``, ``explicit``, ``person``, ``task`` or ``sweeper``.
    ``attributed``: the state is, byte for byte, what that model gave."""

    kind: str = "chat"
    model: str = ""
    provider: str = ""
    attributed: bool = False


def is_id(value: object) -> bool:
    """Whether that is an id of a project or a record."""
    return isinstance(value, str) and _ID.match(value) is not None


def parse_ref(text: str) -> Ref:
    """A ref from its text; prefixes, queries and fragments are none.

    Raises:
        UsageError: it is no ref.
    """
    found = _REF.match(text) if isinstance(text, str) else None
    if found is None:
        raise UsageError(
            "that is no ref: it is handoff://<32 letters and digits>/<32 letters and digits>",
            remedy="copy the whole ref as it was printed",
        )
    return Ref(found[1], found[2])


def check_token(value: str, what: str) -> str:
    """A request id as it was given.

    Raises:
        UsageError: not 8 to 64 letters, digits, '.', '_', '-'.
    """
    if not isinstance(value, str) or _TOKEN.match(value) is None:
        raise UsageError(
            f"a {what} has 8 to 64 letters, digits, '.', '_' or '-', a letter or digit first",
            remedy=f"make a new {what}, and keep it for retries of the same intent",
        )
    return value


def check_name(value: str) -> str:
    """A name for display as it was given; "" for none.

    Raises:
        UsageError: other signs than ASCII letters, digits, '_', '-', '.'; too long.
    """
    if value and _NAME.match(value) is None:
        raise UsageError(
            "a name has up to 128 ASCII letters, digits, '_', '-' or '.', and no '.' first",
            remedy="give another name",
        )
    return value


def new_project_id(token: str) -> str:
    """A project's id from a fresh unique text."""
    return canonical.content_id("handoff-project/1", {"token": token})


def handoff_id(manifest: Mapping[str, Any]) -> str:
    """The id that a manifest's content has."""
    return canonical.content_id(
        "handoff-record/1",
        {
            "state": manifest["state_sha256"],
            "document": manifest["document_sha256"],
            "evidence": manifest["evidence_sha256"],
            "source": manifest["source"],
            "anchor": manifest["workspace"]["anchor_sha256"],
            "render": manifest["render"],
        },
    )


class Parts(NamedTuple):
    """The bytes of a record's members."""

    state: bytes
    document: bytes
    evidence: bytes

    def named(self) -> dict[str, bytes]:
        """Member -> bytes."""
        return {STATE: self.state, DOCUMENT: self.document, EVIDENCE: self.evidence}


def digests(parts: Parts) -> dict[str, str]:
    """The digests of the three parts, by their names in the manifest."""
    return {
        "state_sha256": canonical.digest(STATE_SCHEMA, parts.state),
        "document_sha256": canonical.digest(RENDER, parts.document),
        "evidence_sha256": canonical.digest(EVIDENCE_SCHEMA, parts.evidence),
    }


def build(
    parts: Parts,
    *,
    project_id: str,
    created_at: int,
    source: Source,
    workspace: Mapping[str, str],
    writer: Writer,
    redaction: Mapping[str, Any],
    lineage: Mapping[str, Any],
    request_id: str = "",
    name: str = "",
    origin: str = "create",
    derived_from: str = "",
) -> dict[str, Any]:
    """The manifest of a record. ``workspace``: kind, anchor_sha256, label, branch, head.
    ``redaction``: ruleset, counts. ``created_at``: milliseconds since 1970."""
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "state_schema": STATE_SCHEMA,
        "evidence_schema": EVIDENCE_SCHEMA,
        "render": RENDER,
        "project_id": project_id,
        "created_at": created_at,
        "name": name,
        "origin": origin,
        "derived_from": derived_from,
        "request_id": request_id,
        "sizes": {member: len(data) for member, data in parts.named().items()},
        "source": asdict(source),
        "workspace": dict(workspace),
        "writer": asdict(writer),
        "redaction": dict(redaction),
        "lineage": dict(lineage),
        **digests(parts),
    }
    manifest["handoff_id"] = handoff_id(manifest)
    manifest["ref"] = str(Ref(project_id, manifest["handoff_id"]))
    manifest["sha256"] = seal(manifest)
    return manifest


def seal(manifest: Mapping[str, Any]) -> str:
    """The manifest's own digest, without the field that holds it."""
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    return canonical.digest(SCHEMA, canonical.dumps(body))


_TEXTS: Mapping[str, tuple[str, ...]] = {
    "source": ("profile_id", "session_id", "last_message", "host", "host_version"),
    "workspace": ("kind", "anchor_sha256", "label", "branch", "head"),
    "writer": ("kind", "model", "provider"),
}
_TOP = frozenset(
    [
        "schema",
        "state_schema",
        "evidence_schema",
        "render",
        "project_id",
        "created_at",
        "name",
        "origin",
        "derived_from",
        "request_id",
        "sizes",
        "source",
        "workspace",
        "writer",
        "redaction",
        "lineage",
        "state_sha256",
        "document_sha256",
        "evidence_sha256",
        "handoff_id",
        "ref",
        "sha256",
    ]
)


def load(data: bytes) -> dict[str, Any]:
    """A manifest from its bytes, checked in itself: exact fields, its own digest, its id.

    Raises:
        IntegrityFailed: it was not written so. The text names the field, not its value.
    """
    try:
        value = canonical.loads(data)
    except StateInvalid as error:
        raise _wrong(str(error)) from error
    if not isinstance(value, dict) or set(value) != _TOP:
        raise _wrong("its fields are others")
    if value["schema"] != SCHEMA or value["state_schema"] != STATE_SCHEMA:
        raise _wrong("its format is another")
    numbers = (value["created_at"], *_sizes(value["sizes"]))
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in numbers):
        raise _wrong("a number is none")
    texts: list[object] = [
        value[key] for key in _TOP - {"created_at", "sizes", "redaction", "lineage", *_TEXTS}
    ]
    for part, names in _TEXTS.items():
        inner = value[part]
        extra = {"attributed"} if part == "writer" else set()
        if not isinstance(inner, dict) or set(inner) != {*names, *extra}:
            raise _wrong(f"{part} is another")
        texts += [inner[key] for key in names]
    if not all(isinstance(text, str) for text in texts):
        raise _wrong("a text is none")
    if not isinstance(value["redaction"], dict) or not isinstance(value["lineage"], dict):
        raise _wrong("redaction or lineage is another")
    if _ID.match(value["project_id"]) is None or value["origin"] not in ORIGINS:
        raise _wrong("project_id or origin is none")
    if seal(value) != value["sha256"] or canonical.dumps(value) != data:
        raise _wrong("it does not have its own digest")
    if handoff_id(value) != value["handoff_id"]:
        raise _wrong("its content has another id")
    if str(Ref(value["project_id"], value["handoff_id"])) != value["ref"]:
        raise _wrong("its ref is another record's")
    return value


def _sizes(value: object) -> tuple[object, ...]:
    if not isinstance(value, dict) or set(value) != {STATE, DOCUMENT, EVIDENCE}:
        raise _wrong("sizes is another")
    return tuple(value.values())


def _wrong(why: str) -> IntegrityFailed:
    return IntegrityFailed(
        f"the record's manifest is not as it was published: {why}",
        remedy="take another copy of the record, or make a new one in its session",
    )


def check_parts(manifest: Mapping[str, Any], parts: Parts) -> None:
    """Check the members against the manifest.

    Raises:
        IntegrityFailed: names the member that is not as it was published.
    """
    for member, data in parts.named().items():
        if len(data) != manifest["sizes"][member]:
            raise IntegrityFailed(f"{member} of {manifest['ref']} has another size", member=member)
    for key, found in digests(parts).items():
        if manifest[key] != found:
            member = {"s": STATE, "d": DOCUMENT, "e": EVIDENCE}[key[0]]
            raise IntegrityFailed(f"{member} of {manifest['ref']} was changed", member=member)


def encode_cursor(value: object) -> str:
    """A place in a list as one word."""
    return base64.urlsafe_b64encode(canonical.dumps(value)).decode("ascii").rstrip("=")


def decode_cursor(text: str) -> object:
    """The place that a word stands for.

    Raises:
        UsageError: it is none of ours.
    """
    try:
        if len(text) > 2048 or not text.isascii():
            raise ValueError
        return canonical.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, StateInvalid):
        raise UsageError("that is no cursor of ours", remedy="list again from the start") from None

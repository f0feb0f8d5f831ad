"""Records in from the formats before ours: states of version 1, Markdown, two-file bundles.

Three sources are known. A *state* of version 1 is one JSON file. A *document* is one
Markdown file. A *bundle* is a folder of ``document.md`` and ``manifest.json``, as the
product session-handoff keeps and exports them, with UUIDs for the project and the handoff.
All of a source is read into memory and checked before anything is written; links, other
files and what is over a limit are refused. What its text says counts as reported. Secrets are
redacted, since the redactor of those days passed most of them.

The same source gives the same record; a bundle with the ids of another one but other bytes
is a conflict. A bundle's project becomes one of ours, made of its UUID, so that bundles of
one project meet; its reference is understood wherever a ref is
(:func:`mapped`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from handoff.errors import HandoffError, ImportRefused, StateInvalid, UnknownRecord, UsageError
from handoff.sessions import canonical, document, document_v1, manifest, private, projects
from handoff.sessions import state as states
from handoff.sessions.manifest import Parts, Source, Writer
from handoff.sessions.records import LOCK, Records
from handoff.sessions.schema import LISTS, TEXT_HARD
from handoff.sessions.state_v1 import is_v1, packed, split
from handoff.sessions.transfer import Imported
from handoff.sessions.workspace import Binding

__all__ = ["UUID_REF", "import_old", "is_old", "mapped"]

#: ``handoff://<project UUID>/<handoff UUID>``
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
UUID_REF = re.compile(rf"handoff://({_UUID})/({_UUID})\Z")
_ID = re.compile(rf"{_UUID}\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}\Z")
#: bytes that are read: a document (as its store's limit was), a manifest
DOCUMENT_LIMIT, MANIFEST_LIMIT = 4 * 1024 * 1024, 16 * 1024
_DOCUMENT, _MANIFEST = "document.md", "manifest.json"
_KEYS = frozenset(("schema_version", "handoff_id", "name", "created_at", "sha256", "origin"))
_ORIGIN = frozenset(("project_id", "handoff_id", "kind", "source_path"))
#: the host that such a record names as its source
HOST = "session-handoff"


@dataclass(frozen=True)
class _Old:
    """A source as it was read. ``sha256``: of its bytes. ``project``, ``handoff``: UUIDs of a
    bundle, or "". ``created_at``: milliseconds, or 0 where it does not say."""

    form: str
    state: Any
    sha256: str
    project: str = ""
    handoff: str = ""
    name: str = ""
    created_at: int = 0

    @property
    def ref(self) -> str:
        """Its reference in its own product."""
        return f"handoff://{self.project}/{self.handoff}" if self.handoff else ""

    @property
    def source(self) -> str:
        """The session that the record names: its project, or that it was imported."""
        return f"{HOST}:{self.project}" if self.project else f"{HOST}:import"

    def request(self, binding: Binding | None) -> str:
        """By which the record is found again: a file may be of several workspaces."""
        if self.handoff:
            return self.handoff
        anchor = binding.anchor_sha256 if binding else ""
        return "import." + hashlib.sha256(f"{self.sha256} {anchor}".encode()).hexdigest()[:40]


def is_old(path: str) -> bool:
    """Whether this is for :func:`import_old`: a folder, or a file that is no archive."""
    if os.path.isdir(path):
        return True
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            head = file.read(512)
    except OSError:
        return False
    # An archive's header has NULs throughout; a text has none.
    return bool(head) and b"\0" not in head


def import_old(
    records: Records, path: str, *, profile: str, binding: Binding | None = None
) -> Imported:
    """Take in a state of version 1, a Markdown document, or a folder with a bundle.

    ``profile``: whose record it becomes. ``binding``: the workspace whose project it shall
    belong to; a bundle needs none, since it names its own project.

    Raises:
        ImportRefused: it is none of these, or can't be taken; nothing was written.
        StateInvalid, InputTooLarge: its content can't be a state (details: ``faults``).
        UsageError: a state or a document was given without a workspace.
        StorageError: the record can't be published.
    """
    old = _bundle(path) if os.path.isdir(path) else _single(path)
    if binding is None and not old.project:
        raise UsageError(
            f"a {old.form} does not say which project it belongs to",
            remedy="say it with --workspace DIR",
        )
    before = records.by_request(profile, old.source, old.request(binding))
    if before is not None:
        _same(records, before, old, binding)
        return Imported(before["ref"], False, before)
    made, parts, counts = _build(records, old, profile, binding)
    private.make(records.root)
    if binding is not None:
        with private.locked(records.root, LOCK):
            project_id = projects.ensure(records.root, binding, records.clock)
        made, parts, counts = _build(records, old, profile, binding, project_id)
    fresh = records.accept(made, parts)
    return Imported(made["ref"], fresh, made, counts)


def mapped(records: Records, ref: str, profile: str) -> str:
    """The ref of the record that was imported from the bundle with this reference; a ref of
    ours as it is.

    Raises:
        UnknownRecord: no such bundle was imported in this profile.
    """
    found = UUID_REF.match(ref)
    if found is None:
        return ref
    made = records.by_request(profile, f"{HOST}:{found[1]}", found[2])
    if made is None:
        raise UnknownRecord(
            f"{ref} was not imported here",
            remedy="handoff session import --help",
            ref=ref,
        )
    return str(made["ref"])


def _same(records: Records, before: dict[str, Any], old: _Old, binding: Binding | None) -> None:
    """Check that a source with the same ids is the same one, for the same workspace."""
    evidence = canonical.loads(records.raw(before["ref"])[1].evidence)
    kept = evidence.get("imported", {}) if isinstance(evidence, dict) else {}
    if kept.get("sha256") != old.sha256:
        raise ImportRefused(
            f"{old.ref or 'that file'} was imported as {before['ref']} with other content",
            remedy=f"handoff session show {before['ref']}",
            ref=before["ref"],
        )
    if binding is not None and binding.anchor_sha256 != before["workspace"]["anchor_sha256"]:
        raise ImportRefused(
            f"{old.ref} was imported as {before['ref']}, for another workspace",
            remedy=f"handoff session bind {before['project_id']} --workspace DIR",
            ref=before["ref"],
        )


# -- the record ---------------------------------------------------------------------------


def _build(
    records: Records, old: _Old, profile: str, binding: Binding | None, project_id: str = ""
) -> tuple[dict[str, Any], Parts, dict[str, int]]:
    guarded = records.guard.state(states.check(old.state).state)
    state = states.check(guarded.value).state
    name = records.guard.text(old.name)
    told = {"form": old.form, "ref": old.ref, "sha256": old.sha256}
    # Nothing is known of the workspace of that time, and nothing of now stands in for it.
    unknown = {"git": f"a {old.form} of {HOST} does not say"}
    evidence = {
        "schema": manifest.EVIDENCE_SCHEMA,
        "candidates": [],
        "files": [],
        "imported": told,
        "unavailable": unknown,
    }
    parts = Parts(
        states.state_bytes(state),
        document.render(state).encode(),
        canonical.dumps(evidence),
    )
    token = f"{HOST}:{old.project}"
    workspace = {
        "kind": binding.kind if binding else "directory",
        "anchor_sha256": binding.anchor_sha256
        if binding
        else canonical.digest("handoff-anchor/1", token.encode()),
        "label": binding.label if binding else "",
        "branch": "",
        "head": "",
    }
    made = manifest.build(
        parts,
        project_id=project_id or manifest.new_project_id(token),
        created_at=old.created_at or records.clock.now_ms(),
        source=Source(profile, old.source, host=HOST),
        workspace=workspace,
        writer=Writer(),
        redaction={"ruleset": records.guard.ruleset, "counts": guarded.counts},
        lineage=state["lineage"],
        request_id=old.request(binding),
        name=name if name == old.name else "",
        origin="import",
        derived_from=old.ref,
    )
    return made, parts, guarded.counts


# -- reading ------------------------------------------------------------------------------


def _single(path: str) -> _Old:
    data = _read(path, DOCUMENT_LIMIT)
    sha = hashlib.sha256(data).hexdigest()
    text = _decoded(data, os.path.basename(path))
    if text.lstrip().startswith("{"):
        value = canonical.loads(text)
        if not isinstance(value, dict) or not is_v1(value):
            raise ImportRefused(
                "that is no state of version 1 (schema_version 1)",
                remedy="handoff session create --help",
            )
        return _Old("state", value, sha)
    return _Old("document", _state(text), sha)


def _bundle(path: str) -> _Old:
    """The two files of a folder, each held against the other."""
    with _folder(path) as fd:
        names = sorted(os.listdir(fd))
        if names != [_DOCUMENT, _MANIFEST]:
            raise ImportRefused(
                f"a bundle is a folder of {_DOCUMENT} and {_MANIFEST}, and nothing else",
                remedy="give the folder of one handoff",
            )
        data = _read(_DOCUMENT, DOCUMENT_LIMIT, fd)
        head = _read(_MANIFEST, MANIFEST_LIMIT, fd)
    try:
        made = canonical.loads(head)
    except StateInvalid as error:
        raise _wrong(f"it is no JSON: {error.cause}") from error
    told = _manifest(made)
    if told["sha256"] != hashlib.sha256(data).hexdigest():
        raise ImportRefused(
            f"{_DOCUMENT} is not what {_MANIFEST} says: its digest is another",
            remedy="take another copy of the bundle",
        )
    origin = told["origin"]
    return _Old(
        "bundle",
        _state(_decoded(data, _DOCUMENT)),
        hashlib.sha256(data + b"\0" + canonical.dumps(told)).hexdigest(),
        origin["project_id"],
        origin["handoff_id"],
        told["name"],
        _ms(told["created_at"]),
    )


def _manifest(value: object) -> dict[str, Any]:
    """A manifest with its exact fields, each in its grammar."""
    if not isinstance(value, dict) or set(value) != _KEYS:
        raise _wrong("its fields are others")
    if type(value["schema_version"]) is not int or value["schema_version"] != 1:
        raise _wrong("its version is another")
    origin = value["origin"]
    if not isinstance(origin, dict) or not {"project_id", "handoff_id", "kind"} <= set(origin):
        raise _wrong("its origin is none")
    if set(origin) - _ORIGIN or origin["kind"] not in ("create", "legacy"):
        raise _wrong("its origin is another")
    for name, text, grammar in (
        ("handoff_id", value["handoff_id"], _ID),
        ("origin's project_id", origin["project_id"], _ID),
        ("origin's handoff_id", origin["handoff_id"], _ID),
        ("sha256", value["sha256"], _HASH),
        ("created_at", value["created_at"], _TIME),
    ):
        if not isinstance(text, str) or grammar.match(text) is None:
            raise _wrong(f"{name} is none")
    if origin["handoff_id"] != value["handoff_id"]:
        raise _wrong("it names two handoffs")
    path = origin.get("source_path", "x")
    if not isinstance(path, str) or os.path.isabs(path) or ".." in path.split("/"):
        raise _wrong("source_path leaves the workspace")
    try:
        manifest.check_name(value["name"] if isinstance(value["name"], str) else "?")
        _ms(value["created_at"])
    except (HandoffError, ValueError) as error:
        raise _wrong("name or created_at is none") from error
    return value


def _wrong(why: str) -> ImportRefused:
    return ImportRefused(
        f"{_MANIFEST} is not one of {HOST}: {why}", remedy="take another copy of the bundle"
    )


def _ms(text: str) -> int:
    at = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    if at.year < 1970:
        raise ValueError(text)
    return int(at.timestamp() * 1000)


def _state(text: str) -> dict[str, Any]:
    """A document's state of version 1, its long texts in pieces, its many ones together."""
    value: dict[str, Any] = document_v1.read(text)
    goal = split(str(value["goal"]))
    value["goal"] = goal[0]
    value["critical_context"] = [*goal[1:], *value["critical_context"]]
    limits = {name: LISTS[path].limit for name, path in _LISTS.items()}
    for owner, name in [(value, name) for name in _LISTS if name in value] + [
        (value["progress"], name) for name in ("done", "in_progress", "pending")
    ]:
        pieces = [piece for text in owner[name] for piece in split(text, TEXT_HARD)]
        owner[name] = packed(pieces, min(limits.get(name, 256), 256))
    return value


_LISTS = {
    "constraints_preferences": "constraints",
    "key_decisions": "decisions",
    "rejected_attempts": "rejected",
    "verification": "verification",
    "critical_context": "context",
    "uncertainties": "uncertainties",
    "next_steps": "next_steps",
}


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImportRefused(f"{name} is no UTF-8 text (byte {error.start})") from error


@contextlib.contextmanager
def _folder(path: str) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ImportRefused(f"{path} can't be read: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _read(name: str, limit: int, folder: int | None = None) -> bytes:
    """A plain file's bytes; a link, another kind of file and more bytes are refused."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise ImportRefused(f"{name} can't be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ImportRefused(f"{name} is no plain file")
        with open(os.dup(fd), "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise ImportRefused(f"{name} can't be read: {error.strerror}") from error
    finally:
        os.close(fd)
    if len(data) > limit:
        raise ImportRefused(f"{name} has over {limit} bytes; the limit is {limit}")
    return data

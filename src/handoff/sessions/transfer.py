"""Records out of the store, for another machine, and in from one.

A bundle is one uncompressed tar archive of five plain files. Going out, strict redaction
runs first: what it changes makes another record, with another id, that says what it was
derived from. Coming in, nothing is unpacked by the archive's word: each member is read into
memory by its known name and within its limit, everything is checked as on any reading, and
only then published. A record that comes in belongs to its own project; no folder is bound
to it until a person does so.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handoff.errors import HandoffError, ImportRefused, IntegrityFailed, UsageError
from handoff.sessions import canonical, document, frozen_form, manifest, private
from handoff.sessions import state as states
from handoff.sessions.guard import Guard
from handoff.sessions.manifest import DOCUMENT, EVIDENCE, LIMITS, MANIFEST, STATE, Parts, Source
from handoff.sessions.records import Records, Writer

EXPORT = "export.json"
SCHEMA = "handoff-export/1"
#: bytes of a bundle that are looked at; its members together have less
BUNDLE_LIMIT = sum(LIMITS.values()) + 128 * 1024
_MEMBERS: Mapping[str, int] = {**LIMITS, EXPORT: 64 * 1024}
_ORDER = (EXPORT, MANIFEST, STATE, DOCUMENT, EVIDENCE)


@dataclass(frozen=True)
class Exported:
    """What leaves the machine. ``ref``: of the record in the bundle. ``derived_from``: the
    ref of the stored one, where strict redaction changed something. ``report``: what the
    bundle holds and what it does not, as it also stands in the bundle."""

    ref: str
    derived_from: str
    report: dict[str, Any]
    data: bytes


def export(records: Records, ref: str) -> Exported:
    """A bundle of one record, in memory: the same record gives the same bytes.

    Raises:
        UsageError, UnknownRecord, IntegrityFailed: as reading.
        StateInvalid: an id looks like a secret by the strict rules.
    """
    made, parts = records.raw(ref)
    guard = records.guard.strict()
    sent, sent_parts, counts, pointers = _strict(made, parts, guard)
    derived = ref if sent["ref"] != ref else ""
    report = {
        "schema": SCHEMA,
        "ref": sent["ref"],
        "derived_from": derived,
        "redacted": counts,
        "redacted_at": pointers,
        "members": [
            {"name": name, "bytes": len(data)}
            for name, data in {
                MANIFEST: canonical.dumps(sent),
                **sent_parts.named(),
            }.items()
        ],
        "leaves": {
            "source": sent["source"],
            "workspace": sent["workspace"],
            "writer": sent["writer"],
            "name": sent["name"],
            "candidates": len(canonical_object(sent_parts.evidence).get("candidates", [])),
            "files": len(canonical_object(sent_parts.evidence).get("files", [])),
        },
        "stays": [
            "absolute paths of this machine",
            "messages of the session that are no candidate rules",
            "the opening journal and its attempts",
            "the key of the redaction marks",
        ],
    }
    members = {
        EXPORT: canonical.dumps(report),
        MANIFEST: canonical.dumps(sent),
        **sent_parts.named(),
    }
    return Exported(sent["ref"], derived, report, _pack(members))


def canonical_object(data: bytes) -> dict[str, Any]:
    """A JSON object from canonical bytes."""
    value = canonical.loads(data)
    assert isinstance(value, dict)
    return value


def _strict(
    made: dict[str, Any], parts: Parts, guard: Guard
) -> tuple[dict[str, Any], Parts, dict[str, int], list[str]]:
    state = guard.state(canonical_object(parts.state))
    evidence = guard.value(canonical_object(parts.evidence))
    counts = dict(state.counts)
    for kind, number in evidence.counts.items():
        counts[kind] = counts.get(kind, 0) + number
    pointers = [*state.pointers, *(f"evidence:{pointer}" for pointer in evidence.pointers)]
    name = guard.text(made["name"])
    if not counts and name == made["name"]:
        return made, parts, counts, pointers
    checked = states.check(state.value)
    fresh = Parts(
        states.state_bytes(checked.state),
        document.render(checked.state).encode(),
        canonical.dumps(evidence.value),
    )
    built = manifest.build(
        fresh,
        project_id=made["project_id"],
        created_at=made["created_at"],
        source=Source(**made["source"]),
        workspace=made["workspace"],
        writer=Writer(**{**made["writer"], "attributed": False}),
        redaction={"ruleset": guard.ruleset, "counts": counts},
        lineage=made["lineage"],
        name=name if name == made["name"] else "",
        origin="export",
        derived_from=made["ref"],
    )
    return built, fresh, counts, pointers


def _pack(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in _ORDER:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(members[name]), 0o600
            archive.addfile(info, io.BytesIO(members[name]))
    return out.getvalue()


def write(exported: Exported, path: str) -> None:
    """Write a bundle to a new file, private to its owner; never over another.

    Raises:
        UsageError: there is something of that name, or no such folder.
        StorageError, StorageFull: it can't be written; nothing is left.
    """
    above, name = os.path.split(os.path.abspath(path))
    try:
        fd = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"there is no folder {above}", remedy="give another path") from error
    try:
        private.write_new(fd, name, exported.data, above)
        with private.typed(above):
            os.fsync(fd)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already", remedy="give another name") from error
    finally:
        os.close(fd)


@dataclass(frozen=True)
class Imported:
    """``ref``: of the record. ``fresh``: False where it was here already. ``redactions``:
    counts by kind of what was taken out on the way in (of older formats only)."""

    ref: str
    fresh: bool
    manifest: dict[str, Any]
    redactions: dict[str, int] = field(default_factory=dict)


def import_file(records: Records, path: str) -> Imported:
    """Take in a bundle from a file.

    Raises:
        ImportRefused: it is no bundle, or one that can't be taken; nothing was written.
        StorageError: it can't be read, or the record can't be published.
    """
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(path, flags)
    except OSError as error:
        raise ImportRefused(f"{path} can't be read: {error.strerror}") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ImportRefused(f"{path} is no plain file")
        if found.st_size > BUNDLE_LIMIT:
            raise ImportRefused(f"the bundle has {found.st_size} bytes; {BUNDLE_LIMIT} are read")
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(BUNDLE_LIMIT + 1)
    finally:
        os.close(fd)
    return import_bytes(records, data)


def import_bytes(records: Records, data: bytes) -> Imported:
    """Take in a bundle. Raises: as :func:`import_file`."""
    members = _unpack(data)
    parts = Parts(members[STATE], members[DOCUMENT], members[EVIDENCE])
    try:
        made = manifest.load(members[MANIFEST])
        manifest.check_parts(made, parts)
        records._contents(made, parts)
        frozen_form.check_portable(made, records.guard)
        guarded = records.guard.state(canonical_object(parts.state))
        proof = records.guard.value(canonical_object(parts.evidence))
    except ImportRefused:
        raise
    except HandoffError as error:
        raise ImportRefused(
            f"the bundle does not hold what it says: {error.cause}", remedy=error.remedy
        ) from error
    suspected = {**guarded.counts, **proof.counts}
    if suspected or records.guard.text(made["name"]) != made["name"]:
        raise ImportRefused(
            "the bundle holds what looks like secrets: "
            + ", ".join(f"{kind} ({number})" for kind, number in suspected.items()),
            remedy="export it again with a newer version, which redacts them",
            counts=suspected,
        )
    try:
        fresh = records.accept(made, parts)
    except IntegrityFailed as error:
        raise ImportRefused(f"the record can't be taken: {error.cause}") from error
    return Imported(made["ref"], fresh, made)


def _unpack(data: bytes) -> dict[str, bytes]:
    """The members, each a plain file of a known name, once, within its limit. The archive
    is not compressed, so that it can't be larger inside than outside."""
    if len(data) > BUNDLE_LIMIT:
        raise ImportRefused(f"the bundle has over {BUNDLE_LIMIT} bytes")
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for info in archive:
                if info.name not in _MEMBERS or info.name in members:
                    raise ImportRefused("the bundle has a member that does not belong in it")
                if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.pax_headers:
                    raise ImportRefused(f"{info.name} is no plain file")
                if not 0 <= info.size <= _MEMBERS[info.name]:
                    raise ImportRefused(f"{info.name} is larger than {_MEMBERS[info.name]} bytes")
                file = archive.extractfile(info)
                content = file.read(info.size) if file else b""
                if len(content) != info.size:
                    raise ImportRefused(f"the bundle ends within {info.name}")
                members[info.name] = content
    except (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError) as error:
        raise ImportRefused("that is no bundle of ours, or a part of one") from error
    missing = [name for name in _ORDER if name not in members]
    if missing:
        raise ImportRefused("the bundle lacks " + ", ".join(missing))
    return members

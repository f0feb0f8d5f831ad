"""The folders of a store: projects, their workspaces, the records' places, tombstones.

Nothing here knows what a record means. Who changes something holds the store's lock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from handoff.errors import HandoffError, IntegrityFailed, NotAllowed, UnknownProject
from handoff.sessions import canonical, manifest, private
from handoff.sessions.manifest import MANIFEST, Parts, Ref
from handoff.sessions.workspace import Binding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.clock import Clock

PROJECTS, RECORDS, STAGING, TOMBSTONES = "projects", "records", "staging", "tombstones"
BINDINGS, PROJECT = "bindings", "project.json"
_SMALL = 64 * 1024


def _json(root: str, *names: str) -> dict[str, Any] | None:
    """A small file of ours below the root; None if it is not there."""
    shown = os.path.join(root, *names)
    try:
        with private.folder(root, *names[:-1]) as fd:
            data = private.read(fd, names[-1], _SMALL, os.path.dirname(shown))
    except FileNotFoundError:
        return None
    try:
        value = canonical.loads(data)
    except HandoffError as error:
        raise IntegrityFailed(f"{shown} is damaged: {error.cause}", path=shown) from error
    if not isinstance(value, dict):
        raise IntegrityFailed(f"{shown} is damaged: it is no object", path=shown)
    return value


def _save(root: str, value: Mapping[str, Any], *names: str) -> None:
    with private.folder(root, *names[:-1]) as fd:
        data = canonical.dumps(dict(value))
        private.put(fd, names[-1], data, os.path.join(root, *names[:-1]), replace=True)


# -- workspaces ---------------------------------------------------------------------------


def find(root: str, binding: Binding) -> str:
    """The project of a workspace, or ""."""
    kept = _json(root, BINDINGS, f"{binding.anchor_sha256}.json")
    if kept is None:
        return ""
    known = manifest.is_id(kept.get("project_id"))
    if kept.get("anchor") != _local(binding.anchor) or not known:
        raise IntegrityFailed(f"the note of the workspace {binding.label} is damaged", remedy="")
    return str(kept["project_id"])


def ensure(root: str, binding: Binding, clock: Clock) -> str:
    """The project of a workspace, made if it has none."""
    found = find(root, binding)
    if found:
        return found
    project_id = manifest.new_project_id(clock.new_id())
    adopt(root, project_id)
    bind(root, project_id, binding)
    return project_id


def adopt(root: str, project_id: str) -> None:
    """Make the folders of a project, if they are missing."""
    for name in (RECORDS, STAGING, TOMBSTONES):
        private.make(root, PROJECTS, project_id, name)


def bind(root: str, project_id: str, binding: Binding, *, replace: bool = False) -> str:
    """Say that a workspace belongs to a project. Returns the project it belonged to, or "".

    Raises:
        UnknownProject: there is no such project.
        NotAllowed: it belongs to another one, and ``replace`` is not set.
    """
    known = manifest.is_id(project_id)  # it becomes a folder's name
    if not known or not os.path.isdir(os.path.join(root, PROJECTS, project_id)):
        raise UnknownProject(f"there is no project {project_id} here", project_id=project_id)
    before = find(root, binding)
    if before == project_id:
        return before
    if before and not replace:
        raise NotAllowed(
            "that folder belongs to another project",
            remedy="say that it shall be replaced, or give another folder",
            project_id=before,
        )
    private.make(root, BINDINGS)
    note = {"anchor": _local(binding.anchor), "kind": binding.kind, "project_id": project_id}
    _save(root, note, BINDINGS, f"{binding.anchor_sha256}.json")
    mine = workspaces(root, project_id)
    place = {"anchor": note["anchor"], "kind": binding.kind, "path": _local(binding.path)}
    if place not in mine:
        _save(root, {"workspaces": [*mine, place]}, PROJECTS, project_id, PROJECT)
    return before


def workspaces(root: str, project_id: str) -> list[dict[str, str]]:
    """The workspaces that a project was bound to: anchor, kind, path (of this machine)."""
    kept = _json(root, PROJECTS, project_id, PROJECT)
    found = [] if kept is None else kept.get("workspaces")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        shown = os.path.join(root, PROJECTS, project_id, PROJECT)
        raise IntegrityFailed(f"{shown} is damaged: workspaces", path=shown)
    return found


def _local(path: str) -> str:
    """A path as JSON can hold it; bytes that are no UTF-8 as their numbers."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


# -- records ------------------------------------------------------------------------------


def _subfolders(root: str, *names: str) -> list[str]:
    try:
        with private.folder(root, *names) as fd, private.typed(os.path.join(root, *names)):
            return sorted(name for name in os.listdir(fd) if not name.startswith("."))
    except FileNotFoundError:
        return []


def stamp(root: str, project_id: str) -> str:
    """Changes whenever a record comes to or goes from a project's folder."""
    try:
        found = os.stat(os.path.join(root, PROJECTS, project_id, RECORDS))
        graves = os.stat(os.path.join(root, PROJECTS, project_id, TOMBSTONES))
    except FileNotFoundError:
        return ""
    return f"{found.st_ino}:{found.st_mtime_ns}:{found.st_nlink}:{graves.st_mtime_ns}"


def stamps(root: str) -> dict[str, str]:
    """The projects with the stamp of each one's records."""
    found = {name: stamp(root, name) for name in _subfolders(root, PROJECTS)}
    return {name: mark for name, mark in found.items() if mark}


def names(root: str, project_id: str) -> list[str]:
    """The ids of a project's records, pruned ones left out."""
    gone = {name.partition(".")[0] for name in _subfolders(root, PROJECTS, project_id, TOMBSTONES)}
    there = _subfolders(root, PROJECTS, project_id, RECORDS)
    return [name for name in there if name not in gone]


def every(root: str) -> Iterator[Ref]:
    """All records of the store."""
    for project_id in _subfolders(root, PROJECTS):
        for name in names(root, project_id):
            yield Ref(project_id, name)


def has(root: str, ref: Ref) -> bool:
    """Whether there is such a record."""
    place = os.path.join(root, PROJECTS, ref.project_id, RECORDS, ref.handoff_id)
    return os.path.lexists(place) and tombstone(root, ref) is None


def load(root: str, ref: Ref) -> tuple[bytes, Parts] | None:
    """Manifest and members as they are on the disk; None if there is no such record.

    Raises:
        IntegrityFailed: a member is missing, too large, or no plain private file.
    """
    names = (PROJECTS, ref.project_id, RECORDS, ref.handoff_id)
    if not has(root, ref):
        return None
    data: dict[str, bytes] = {}
    with private.folder(root, *names) as fd:
        for member, limit in manifest.LIMITS.items():
            try:
                data[member] = private.read(fd, member, limit, os.path.join(root, *names))
            except FileNotFoundError:
                raise IntegrityFailed(f"{member} of {ref} is missing", member=member) from None
        if len(os.listdir(fd)) != len(data):
            raise IntegrityFailed(f"{ref} holds files that are no members of it", remedy="")
    parts = Parts(*(data[name] for name in (manifest.STATE, manifest.DOCUMENT, manifest.EVIDENCE)))
    return data[MANIFEST], parts


def publish(root: str, ref: Ref, made: bytes, parts: Parts, reach: Callable[[str], None]) -> None:
    """Write the members aside, then give the folder its name: all of it, or nothing."""
    clean(root, ref.project_id)
    _unbury(root, ref)
    project = (PROJECTS, ref.project_id)
    shown = os.path.join(root, *project, STAGING, ref.handoff_id)
    with (
        private.folder(root, *project, STAGING) as staging,
        private.folder(root, *project, RECORDS) as records,
    ):
        try:
            with private.typed(shown):
                os.mkdir(ref.handoff_id, 0o700, dir_fd=staging)
            with private.folder(root, *project, STAGING, ref.handoff_id) as fd:
                private.write_all(fd, {**parts.named(), MANIFEST: made}, shown)
                with private.typed(shown):
                    os.fsync(fd)
            reach("records.staged")
            # A folder takes the place of nothing but an empty folder, which is no record.
            with private.typed(shown):
                os.rename(ref.handoff_id, ref.handoff_id, src_dir_fd=staging, dst_dir_fd=records)
                os.fsync(records)
        except BaseException:
            private.remove_folder(staging, ref.handoff_id, shown)
            raise


def clean(root: str, project_id: str) -> None:
    """Remove what a crash left half-written. Under the lock nobody else is writing."""
    place = os.path.join(root, PROJECTS, project_id, STAGING)
    try:
        with private.folder(root, PROJECTS, project_id, STAGING) as fd:
            for name in os.listdir(fd):
                private.remove_folder(fd, name, os.path.join(place, name))
    except FileNotFoundError:
        return


# -- what was removed ---------------------------------------------------------------------


def tombstone(root: str, ref: Ref) -> dict[str, Any] | None:
    """What is left of a removed record: its digests, when and why; None if it was not."""
    return _json(root, PROJECTS, ref.project_id, TOMBSTONES, f"{ref.handoff_id}.json")


def _unbury(root: str, ref: Ref) -> None:
    """Make room for a record that was removed and is made again."""
    if tombstone(root, ref) is None:
        return
    _erase(root, ref)
    with private.folder(root, PROJECTS, ref.project_id, TOMBSTONES) as fd:
        os.unlink(f"{ref.handoff_id}.json", dir_fd=fd)
        os.fsync(fd)


def bury(root: str, ref: Ref, note: Mapping[str, Any], reach: Callable[[str], None]) -> None:
    """Remove a record; its tombstone is on the disk first, and from then on it is gone."""
    private.make(root, PROJECTS, ref.project_id, TOMBSTONES)
    _save(root, note, PROJECTS, ref.project_id, TOMBSTONES, f"{ref.handoff_id}.json")
    reach("records.buried")
    _erase(root, ref)


def _erase(root: str, ref: Ref) -> None:
    place = os.path.join(root, PROJECTS, ref.project_id, RECORDS, ref.handoff_id)
    with private.folder(root, PROJECTS, ref.project_id, RECORDS) as fd, private.typed(place):
        if os.path.lexists(place):
            shutil.rmtree(ref.handoff_id, dir_fd=fd)
        os.fsync(fd)


def finish_burials(root: str) -> None:
    """Remove what a crash left of records that have a tombstone."""
    for project_id in _subfolders(root, PROJECTS):
        there = set(_subfolders(root, PROJECTS, project_id, RECORDS))
        for name in there - set(names(root, project_id)):
            _erase(root, Ref(project_id, name))

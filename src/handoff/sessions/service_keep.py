"""The actions that keep the store: bind, export, import, prune, purge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handoff.errors import UsageError
from handoff.sessions import transfer
from handoff.sessions.service import Caller, Service
from handoff.sessions.workspace import bind as binding_of

__all__ = ["bind", "export", "import_", "prune", "purge"]


def bind(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """A person says that a folder belongs to a project."""
    place = binding_of(given["workspace"])
    previous = service.records.bind(given["project_id"], place, replace=given.get("replace", False))
    return {
        "project_id": given["project_id"],
        "previous": previous,
        "workspace": given["workspace"],
    }


def export(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """One file for another machine; without a path, only what would leave."""
    made = transfer.export(service.records, given["ref"])
    path = given.get("path", "")
    if path:
        transfer.write(made, path)
    return {
        "ref": made.ref,
        "derived_from": made.derived_from,
        "report": made.report,
        "path": path,
        "bytes": len(made.data),
    }


def import_(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """Take in what another machine, or an older format, has; everything in it checked."""
    from handoff.sessions import transfer_v1

    records, path = service.records, given["path"]
    workspace = given.get("workspace", "")
    old = transfer_v1.is_old(path)
    if old:
        place = binding_of(workspace) if workspace else None
        found = transfer_v1.import_old(records, path, profile=service.profile.name, binding=place)
    elif workspace:
        raise UsageError(
            "an exported record says itself which project it belongs to",
            remedy="leave the workspace out, then: handoff session bind PROJECT --workspace DIR",
        )
    else:
        found = transfer.import_file(records, path)
    project = found.manifest["project_id"]
    note = f"It belongs to the project of {workspace}."
    if not workspace:
        note = (
            "No folder belongs to its project until you say so: "
            f"handoff session bind {project} --workspace DIR"
        )
    return {
        "ref": found.ref,
        "fresh": found.fresh,
        "project_id": project,
        "source": found.manifest["source"],
        "workspace": found.manifest["workspace"],
        "derived_from": found.manifest["derived_from"],
        "redactions": found.redactions,
        "note": note,
    }


def prune(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """Remove what is old and not needed."""
    dry_run = given.get("dry_run", False)
    told = service.records.prune(
        older_than=given["older_than"] * 1000,
        keep_last=given.get("keep_last", 0),
        in_use=_in_use(service),
        dry_run=dry_run,
    )
    return {**told, "dry_run": dry_run}


def purge(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """Remove one record, damaged or not."""
    service.records.purge(given["ref"], in_use=_in_use(service))
    return {"ref": given["ref"], "purged": True}


def _in_use(service: Service) -> Callable[[str], bool]:
    """Whether an attempt that has not ended needs a record. A journal that can't be read
    raises: then nothing is removed."""
    ended = {"launch_failed", "closed", "abandoned", "superseded"}
    journal = service.journal
    needed = {
        journal.frozen(one)["ref"]
        for one in journal.attempts()
        if journal.history(one).state not in ended
    }
    return lambda ref: ref in needed

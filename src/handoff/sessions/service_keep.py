"""The actions that keep the store: bind, export, import, prune, purge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
    """Take in a bundle, everything in it checked."""
    found = transfer.import_file(service.records, given["path"])
    project = found.manifest["project_id"]
    return {
        "ref": found.ref,
        "fresh": found.fresh,
        "project_id": project,
        "source": found.manifest["source"],
        "workspace": found.manifest["workspace"],
        "note": "No folder belongs to its project until you say so: "
        f"handoff session bind {project} --workspace DIR",
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

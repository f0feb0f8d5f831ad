"""Reading the store of a profile's handoff records: what is there, checked at every look.

Nothing here needs a workspace, and nothing writes, but for the index that can be made anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from handoff.clock import SystemClock
from handoff.errors import (
    HandoffError,
    IntegrityFailed,
    StateInvalid,
    UnknownRecord,
    UsageError,
    WorkspaceMismatch,
)
from handoff.sessions import canonical, catalogue, document, frozen_form, manifest, projects
from handoff.sessions import state as states
from handoff.sessions.guard import Guard, RedactorGuard, profile_key
from handoff.sessions.manifest import Parts, Ref
from handoff.sessions.workspace import Binding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.clock import Clock


def _nothing(_name: str, /) -> None:
    """A crash point that nobody asked for."""


@dataclass(frozen=True)
class Record:
    """A record, read and checked. ``quarantined``: today's rules find secrets in it, and
    ``state``, ``document`` and ``evidence`` are the view without them."""

    ref: str
    manifest: dict[str, Any]
    state: dict[str, Any]
    document: str
    evidence: dict[str, Any]
    quarantined: bool = False
    suspected: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """Some records, newest first. ``cursor``: for the next page, or "". ``items``: ref,
    manifest, goal, and ``damaged`` (why it can't be read) where it can't."""

    items: list[dict[str, Any]]
    cursor: str
    total: int


class RecordsView:
    """The records below ``root`` (a profile's ``handoff`` folder). ``reach``: told each
    place at which a crash would be interesting."""

    def __init__(
        self,
        root: str,
        *,
        clock: Clock | None = None,
        guard: Guard | None = None,
        reach: Callable[[str], None] = _nothing,
    ) -> None:
        self.root = root
        self.clock = clock or SystemClock()
        self._guard = guard
        self._reach = reach
        self._catalogue = catalogue.Catalogue(
            root,
            lambda: projects.stamps(root),
            lambda project_id: projects.names(root, project_id),
            self._entry,
        )

    @property
    def guard(self) -> Guard:
        """What keeps secrets out; made at first use, as is the key of its marks."""
        if self._guard is None:
            if os.path.lexists(self.root):
                self._guard = RedactorGuard(profile_key(self.root))
            else:
                return RedactorGuard(b"nothing is stored here yet")
        return self._guard

    # -- reading -----------------------------------------------------------------------

    def read(self, ref: str, *, binding: Binding | None = None) -> Record:
        """A record, everything about it checked. ``binding``: the workspace it is read for.

        Raises:
            UsageError: no ref.
            UnknownRecord: there is none; details say if it was pruned.
            WorkspaceMismatch: it is of another project than ``binding``.
            IntegrityFailed: it is not as it was published.
        """
        where = manifest.parse_ref(ref)
        if binding is not None:
            self.check_project(where, binding)
        made, parts = self._load(where)
        state, evidence = self._contents(made, parts)
        try:
            guarded, proof = self.guard.state(state), self.guard.value(evidence)
        except StateInvalid:
            raise IntegrityFailed(
                f"an id of {ref} looks like a secret by today's rules, so it can't be shown",
                remedy="purge the record",
            ) from None
        counts = {**guarded.counts}
        for kind, number in proof.counts.items():
            counts[kind] = counts.get(kind, 0) + number
        view = guarded.value if counts else state
        text = document.render(view) if counts else parts.document.decode()
        return Record(
            ref=ref,
            manifest=made,
            state=view,
            document=text,
            evidence=proof.value if counts else evidence,
            quarantined=bool(counts),
            suspected=counts,
        )

    def check_project(self, ref: Ref, binding: Binding) -> None:
        """Check that a workspace belongs to a record's project.

        Raises:
            WorkspaceMismatch: it does not.
        """
        if projects.find(self.root, binding) != ref.project_id:
            raise WorkspaceMismatch(
                "the record belongs to another project than that folder",
                remedy="give a folder of the record's project, or bind the folder to it",
                project_id=ref.project_id,
            )

    def _load(self, ref: Ref) -> tuple[dict[str, Any], Parts]:
        found = projects.load(self.root, ref)
        if found is None:
            raise unknown(self.root, ref)
        made, parts = manifest.load(found[0]), found[1]
        if made["ref"] != str(ref):
            raise IntegrityFailed(f"another record stands in the place of {ref}", remedy="")
        manifest.check_parts(made, parts)
        return made, parts

    def _contents(
        self, made: Mapping[str, Any], parts: Parts
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """State and evidence, in their canonical forms and agreeing with the document."""
        try:
            checked = states.check(canonical.loads(parts.state))
            evidence = canonical.loads(parts.evidence)
        except HandoffError as error:
            raise IntegrityFailed(
                f"{made['ref']} holds what was never stored: {error.cause}", remedy=""
            ) from error
        same = states.state_bytes(checked.state) == parts.state
        if not same or document.render(checked.state).encode() != parts.document:
            raise IntegrityFailed(f"document and state of {made['ref']} disagree", remedy="")
        if not isinstance(evidence, dict) or canonical.dumps(evidence) != parts.evidence:
            raise IntegrityFailed(f"the evidence of {made['ref']} is no object", remedy="")
        frozen_form.check_evidence(evidence, made["ref"])
        frozen_form.check_manifest(made, checked.state)
        return checked.state, evidence

    def _entry(self, project_id: str, handoff_id: str) -> catalogue.Entry:
        ref = Ref(project_id, handoff_id)
        try:
            made, parts = self._load(ref)
        except HandoffError as error:
            return catalogue.Entry(project_id, handoff_id, None, damaged=catalogue.damage(error))
        return entry_of(ref, made, parts)

    # -- looking for -------------------------------------------------------------------

    def list_page(
        self,
        *,
        project_id: str = "",
        session_id: str = "",
        profile: str = "",
        limit: int = 20,
        cursor: str = "",
    ) -> Page:
        """A page of records, newest first. ``limit``: 1 to 100.

        Raises:
            UsageError: the limit or the cursor is none.
        """
        return self._page(catalogue.Filter(project_id, session_id, profile), limit, cursor)

    def search(
        self, query: str, *, project_id: str = "", limit: int = 20, cursor: str = ""
    ) -> Page:
        """The records whose document or name holds the text, whatever its case. Each item
        has ``snippets``: up to 8 lines of its document, of up to 512 bytes.

        Raises:
            UsageError: the query is empty or over 512 bytes; limit or cursor is none.
        """
        if not query.strip() or len(query.encode("utf-8", "surrogatepass")) > 512:
            raise UsageError("a search has 1 to 512 bytes of text", remedy="give a shorter text")
        found = self._page(catalogue.Filter(project_id, query=query), limit, cursor)
        for item in found.items:
            item["snippets"] = self._snippets(item["ref"], query)
        return found

    def _page(self, wanted: catalogue.Filter, limit: int, cursor: str) -> Page:
        if not 1 <= limit <= 100:
            raise UsageError("a page has 1 to 100 records", remedy="--limit 20")
        key = canonical.digest("handoff-cursor/1", canonical.dumps(list(wanted)))[:16]
        after = _after(cursor, key)
        with self._catalogue.current() as db:
            rows, total = catalogue.page(db, wanted, after, limit + 1)
        last = rows[limit - 1][1] if len(rows) > limit else None
        items: list[dict[str, Any]] = []
        for row, _place in rows[:limit]:
            item = {"ref": row.ref, "manifest": row.manifest, "goal": self.guard.text(row.goal)}
            if row.damaged:
                item["damaged"] = row.damaged
            items.append(item)
        return Page(items, manifest.encode_cursor([key, *last]) if last else "", total)

    def _snippets(self, ref: str, query: str) -> list[str]:
        try:
            text = self.read(ref).document
        except HandoffError as error:
            return [f"({catalogue.damage(error)})"]
        wanted = catalogue.fold(query)
        lines = [line for line in text.split("\n") if wanted in catalogue.fold(line)][:8]
        return [line.encode()[:512].decode("utf-8", "ignore") for line in lines]

    def newer(self, made: Mapping[str, Any]) -> list[str]:
        """Refs of younger records of the same session or project, and of children."""
        with self._catalogue.current() as db:
            return catalogue.newer(db, made)

    def log(self, ref: str) -> dict[str, Any]:
        """Where a record stands: ``ancestors`` (nearest first; ``known`` false where one is
        not in this store) and ``children``.

        Raises:
            UsageError, UnknownRecord: as :meth:`read`.
        """
        made = self._load(manifest.parse_ref(ref))[0]
        ancestors: list[dict[str, Any]] = []
        parent = made["lineage"].get("parent_ref", "")
        seen = {ref}
        while parent and parent not in seen:
            seen.add(parent)
            try:
                above = self._load(manifest.parse_ref(parent))[0]
            except HandoffError as error:
                ancestors.append({"ref": parent, "known": False, "why": error.code})
                break
            ancestors.append({"ref": parent, "known": True, "created_at": above["created_at"]})
            parent = above["lineage"].get("parent_ref", "")
        with self._catalogue.current() as db:
            below = [row.ref for row in catalogue.children(db, ref)]
        return {"ref": ref, "ancestors": ancestors, "children": below}

    # -- verifying, and the places that the other modules need --------------------------

    def verify(self, ref: str = "") -> list[dict[str, str]]:
        """What is wrong with one record, or with any: ref, code, message. Empty: nothing."""
        refs = [ref] if ref else [str(where) for where in projects.every(self.root)]
        wrong = []
        for one in refs:
            try:
                where = manifest.parse_ref(one)
                self._contents(*self._load(where))
            except HandoffError as error:
                wrong.append({"ref": one, "code": error.code, "message": error.cause})
        return wrong

    def raw(self, ref: str) -> tuple[dict[str, Any], Parts]:
        """Manifest and members as they are stored, checked.

        Raises: as :meth:`read`.
        """
        made, parts = self._load(manifest.parse_ref(ref))
        self._contents(made, parts)
        return made, parts


def entry_of(ref: Ref, made: Mapping[str, Any], parts: Parts) -> catalogue.Entry:
    """What the index holds of a record."""
    text = parts.document.decode("utf-8", "replace")
    begin = text.find("\n- goal: ") + len("\n- goal: ")
    goal = text[begin : text.find("\n", begin)][:200]
    return catalogue.Entry(ref.project_id, ref.handoff_id, made, text, goal)


def _after(cursor: str, key: str) -> tuple[int, str] | None:
    if not cursor:
        return None
    place = manifest.decode_cursor(cursor)
    if not isinstance(place, list) or len(place) != 3 or place[0] != key:
        raise UsageError("that cursor belongs to another list", remedy="list again from the start")
    at, name = place[1], place[2]
    if not isinstance(at, int) or not isinstance(name, str):
        raise UsageError("that is no cursor of ours", remedy="list again from the start")
    return at, name


def unknown(root: str, ref: Ref) -> UnknownRecord:
    """The error for a record that is not here, or no more."""
    grave = projects.tombstone(root, ref)
    if grave is not None:
        return UnknownRecord(
            f"{ref} was removed: {grave.get('why', '')}", ref=str(ref), tombstone=grave
        )
    return UnknownRecord(
        f"this profile has no record {ref}",
        remedy="use the profile and HERMES_HOME that made it",
        ref=str(ref),
    )

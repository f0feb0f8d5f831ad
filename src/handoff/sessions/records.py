"""The store of a profile's handoff records.

::

    <root>/projects/<project id>/project.json                  its workspaces (local paths)
    <root>/projects/<project id>/records/<handoff id>/         four files that never change
    <root>/projects/<project id>/tombstones/<handoff id>.json  what was pruned
    <root>/bindings/<anchor digest>.json                       workspace -> project
    <root>/requests/<digest>.json                              request id -> record
    <root>/catalogue.sqlite3                                   an index, made from the above

Rule 1: a record is published by one rename of a complete, synced folder: it is there whole
or not at all, and nothing writes into it afterwards.
Rule 2: reading believes nothing: digests, id, canonical form and rendering are checked.
Rule 3: the same request, or the same content, is the same record.
Rule 4: no secret reaches the disk; a record that later rules would redact is shown redacted.
Rule 5: looking creates nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from handoff.errors import (
    IntegrityFailed,
    RecordInUse,
    RequestConflict,
    SourceUnbound,
    StateInvalid,
    StorageError,
    UsageError,
)
from handoff.sessions import canonical, catalogue, document, manifest, private, projects
from handoff.sessions import state as states
from handoff.sessions.guard import Guarded
from handoff.sessions.manifest import Parts, Ref, Source, Writer
from handoff.sessions.records_view import Page, Record, RecordsView, entry_of, unknown
from handoff.sessions.workspace import Binding

__all__ = ["LOCK", "Created", "Draft", "Page", "Record", "Records", "Source", "Writer"]

LOCK = "records.lock"
_REQUEST_LIMIT = 8 * 1024
#: what a tombstone keeps of a manifest
_KEPT = ("ref", "created_at", "state_sha256", "document_sha256", "evidence_sha256", "sha256")


@dataclass(frozen=True)
class Draft:
    """What a record shall be made of. ``state``: JSON value of version 2 or 1. ``evidence``:
    what :func:`handoff.sessions.evidence.gather` froze. ``origin``: ``create`` or ``sweep``.
    ``asked``: the digest of the request as it came (:meth:`Records.asked`), "" if that is the
    state itself."""

    state: Any
    request_id: str
    binding: Binding
    source: Source
    evidence: Mapping[str, Any] = field(default_factory=dict)
    writer: Writer = field(default_factory=Writer)
    name: str = ""
    parent_ref: str = ""
    origin: str = "create"
    asked: str = ""


@dataclass(frozen=True)
class Created:
    """The answer to a request to make a record. ``idempotent``: this request had made it
    before. ``deduplicated``: another one had. ``redactions``: counts by kind; ``redacted``:
    pointers. ``warnings`` and ``changes``: pointer, code, message."""

    ref: str
    manifest: dict[str, Any]
    idempotent: bool = False
    deduplicated: bool = False
    published: bool = True
    redactions: dict[str, int] = field(default_factory=dict)
    redacted: tuple[str, ...] = ()
    warnings: tuple[dict[str, str], ...] = ()
    changes: tuple[dict[str, str], ...] = ()
    document: str = ""


class Records(RecordsView):
    """The store itself. Made as :class:`RecordsView` is."""

    # -- making ------------------------------------------------------------------------

    def create(self, draft: Draft, *, dry_run: bool = False) -> Created:
        """Publish a record, or give the one that the same request, or content, made.

        Raises:
            SourceUnbound: no source session is named.
            StateInvalid, InputTooLarge: the state can't be taken; nothing was written.
            RequestConflict: the request made another record; details name the differing
                fields and that record's ref.
            StorageError, StorageFull, TimedOut: nothing was published.
        """
        if not draft.source.session_id or not draft.source.profile_id:
            raise SourceUnbound(
                "the call does not say which session it speaks for, so there is no source",
                remedy="call it as a tool from within the session",
            )
        manifest.check_token(draft.request_id, "request id")
        manifest.check_name(draft.name)
        if not dry_run:
            private.make(self.root)
            self.guard  # noqa: B018 - its key is made under the same lock
        checked, guarded = self._checked(draft)
        evidence = self.guard.value(dict(draft.evidence))
        if dry_run:
            found = projects.find(self.root, draft.binding) or manifest.new_project_id("dry-run")
            made = self._build(draft, checked.state, evidence.value, guarded, found)
            return self._answer(made, checked, guarded, published=False)
        with private.locked(self.root, LOCK):
            return self._create(draft, checked, guarded, evidence.value)

    def _checked(self, draft: Draft) -> tuple[states.Checked, Guarded]:
        checked = states.check(draft.state)
        guarded = self.guard.state(checked.state)
        state = guarded.value
        if draft.parent_ref:
            manifest.parse_ref(draft.parent_ref)
            given = state["lineage"].get("parent_ref", draft.parent_ref)
            if given != draft.parent_ref:
                raise UsageError("the state names another parent than the call does")
            state["lineage"]["parent_ref"] = draft.parent_ref
        again = states.check(state)
        return checked._replace(state=again.state), guarded

    def _create(
        self, draft: Draft, checked: states.Checked, guarded: Guarded, evidence: dict[str, Any]
    ) -> Created:
        earlier, asked = self._earlier(draft)
        if earlier is not None:
            if not _asks(draft, earlier, asked):
                self._same_intent(draft, checked.state, earlier)
                self._remember(draft, earlier)
            return self._answer((earlier, None), checked, guarded, idempotent=True)
        project_id = projects.ensure(self.root, draft.binding, self.clock)
        made, parts = self._build(draft, checked.state, evidence, guarded, project_id)
        ref = Ref(project_id, made["handoff_id"])
        deduplicated = projects.has(self.root, ref)
        if deduplicated:
            made = self._load(ref)[0]
        # What was asked is known before there is a record of it: the retry of a create that
        # was cut off behind it compares the request, and not what the world makes of it then.
        self._remember(draft, made, replace=True)
        self._reach("records.requested")
        if not deduplicated:
            self._publish(draft, ref, made, parts)
        self._reach("records.published")
        return self._answer((made, parts), checked, guarded, deduplicated=deduplicated)

    def _build(
        self,
        draft: Draft,
        state: dict[str, Any],
        evidence: dict[str, Any],
        guarded: Guarded,
        project_id: str,
    ) -> tuple[dict[str, Any], Parts]:
        parts = Parts(
            states.state_bytes(state),
            document.render(state).encode(),
            canonical.dumps({"schema": manifest.EVIDENCE_SCHEMA, **evidence}),
        )
        made = manifest.build(
            parts,
            project_id=project_id,
            created_at=self.clock.now_ms(),
            source=draft.source,
            workspace=draft.binding.portable(),
            writer=draft.writer,
            redaction={"ruleset": self.guard.ruleset, "counts": guarded.counts},
            lineage=state["lineage"],
            request_id=draft.request_id,
            name=self.guard.text(draft.name),
            origin=draft.origin,
        )
        return made, parts

    def _publish(
        self, draft: Draft | None, ref: Ref, made: Mapping[str, Any], parts: Parts
    ) -> None:
        before = projects.stamp(self.root, ref.project_id)
        try:
            projects.publish(self.root, ref, canonical.dumps(dict(made)), parts, self._reach)
        except StorageError:
            if draft is not None and not projects.has(self.root, ref):
                self._forget(draft)
            raise
        entry = entry_of(ref, made, parts)
        self._catalogue.add(entry, projects.stamp(self.root, ref.project_id), before)

    def _answer(
        self,
        made: tuple[dict[str, Any], Parts | None],
        checked: states.Checked,
        guarded: Guarded,
        *,
        idempotent: bool = False,
        deduplicated: bool = False,
        published: bool = True,
    ) -> Created:
        return Created(
            ref=made[0]["ref"],
            manifest=made[0],
            idempotent=idempotent,
            deduplicated=deduplicated,
            published=published,
            redactions=guarded.counts,
            redacted=tuple(guarded.pointers),
            warnings=tuple(note.to_json() for note in checked.warnings),
            changes=tuple(note.to_json() for note in checked.changes),
            document=made[1].document.decode() if made[1] else "",
        )

    # -- requests ----------------------------------------------------------------------

    def _request_name(self, draft: Draft) -> str:
        scope = [draft.source.profile_id, draft.source.session_id, draft.request_id]
        return canonical.digest("handoff-request/1", canonical.dumps(scope)) + ".json"

    def asked(self, state: Mapping[str, Any], parent_ref: str = "") -> str:
        """The digest of a request: its state as it was given, checked, without its secrets."""
        said = {"state": self.guard.state(dict(state)).value, "parent_ref": parent_ref}
        return canonical.digest("handoff-asked/1", canonical.dumps(said))

    def again(self, draft: Draft) -> Created | None:
        """The answer to a request that was answered before: ``draft`` needs what it asked and
        where, no more. None if it was not, or asked something else, which :meth:`create` tells.

        Raises:
            UnknownRecord: its record was removed.
            StorageError: that can't be told.
        """
        earlier, asked = self._earlier(draft)
        if earlier is None or not _asks(draft, earlier, asked):
            return None
        return Created(earlier["ref"], earlier, idempotent=True)

    def _earlier(self, draft: Draft) -> tuple[dict[str, Any] | None, str]:
        """The manifest of the record that this request made, if it did, and the digest of what
        it asked ("" if that is not known)."""
        try:
            with private.folder(self.root, "requests") as fd:
                data = private.read(fd, self._request_name(draft), _REQUEST_LIMIT, "requests")
        except FileNotFoundError:
            source = draft.source
            return self.by_request(source.profile_id, source.session_id, draft.request_id), ""
        try:
            kept = canonical.loads(data)
            if not isinstance(kept, dict) or kept.get("request_id") != draft.request_id:
                raise UsageError("it is of another request")
            where = manifest.parse_ref(str(kept.get("ref")))
        except (StateInvalid, UsageError) as error:
            raise IntegrityFailed("the note of that request is damaged", remedy="") from error
        if not projects.has(self.root, where) and projects.tombstone(self.root, where) is None:
            return None, ""  # it was cut off before its record was there
        return self._load(where)[0], str(kept.get("asked", ""))

    def by_request(self, profile: str, session: str, request: str) -> dict[str, Any] | None:
        """The manifest of the record that a request of a source session made, as the index
        has it; None if it made none."""
        with self._catalogue.current() as db:
            return catalogue.by_request(db, profile, session, request)

    def _remember(self, draft: Draft, made: Mapping[str, Any], *, replace: bool = False) -> None:
        note = {"request_id": draft.request_id, "ref": made["ref"], "at": self.clock.now_ms()}
        if draft.asked:
            note["asked"] = draft.asked
        private.make(self.root, "requests")
        with private.folder(self.root, "requests") as fd:
            name = self._request_name(draft)
            private.put(fd, name, canonical.dumps(note), "requests", replace=replace)

    def _forget(self, draft: Draft) -> None:
        """Take the note back of a request whose record could not be written."""
        with (
            contextlib.suppress(OSError, StorageError),
            private.folder(self.root, "requests") as fd,
        ):
            os.unlink(self._request_name(draft), dir_fd=fd)

    def _same_intent(self, draft: Draft, state: dict[str, Any], earlier: Mapping[str, Any]) -> None:
        """Check that a retry means the same. What the tool collects (evidence, branch, time)
        may differ: the world went on."""
        differing = []
        if states.state_sha256(state) != earlier["state_sha256"]:
            old = self._load(manifest.parse_ref(earlier["ref"]))[1].state
            before: Any = canonical.loads(old)
            keys = sorted({*before, *state})
            differing += [key for key in keys if before.get(key) != state.get(key)]
        if draft.binding.anchor_sha256 != earlier["workspace"]["anchor_sha256"]:
            differing.append("workspace")
        if differing:
            raise RequestConflict(
                f"request '{draft.request_id}' made {earlier['ref']} from another "
                + ", ".join(differing),
                remedy="use a new request id for another record",
                ref=earlier["ref"],
                fields=differing,
            )

    # -- taking in, removing ---------------------------------------------------------------

    def accept(self, made: Mapping[str, Any], parts: Parts) -> bool:
        """Publish a record that was made elsewhere and is checked. False: it was here.

        Raises:
            IntegrityFailed: another record has that ref here.
            StorageError: nothing was published.
        """
        self._contents(made, parts)
        ref = manifest.parse_ref(made["ref"])
        private.make(self.root)
        with private.locked(self.root, LOCK):
            if projects.has(self.root, ref):
                return False
            projects.adopt(self.root, ref.project_id)
            self._publish(None, ref, made, parts)
        return True

    def bind(self, project_id: str, binding: Binding, *, replace: bool = False) -> str:
        """Say that a folder belongs to a project (a person's decision, never guessed).
        Returns the project that it belonged to before, or "".

        Raises:
            UnknownProject, NotAllowed: as :func:`handoff.sessions.projects.bind`.
        """
        private.make(self.root)
        with private.locked(self.root, LOCK):
            return projects.bind(self.root, project_id, binding, replace=replace)

    def prune(
        self,
        *,
        older_than: int,
        keep_last: int,
        in_use: Callable[[str], bool],
        dry_run: bool = False,
    ) -> dict[str, list[str]]:
        """Remove what is older than that many milliseconds, but for the youngest
        ``keep_last`` of each project and what ``in_use`` says an attempt needs. Returns the
        refs: ``removed`` (with ``dry_run``: what would be), ``in_use``, ``damaged`` (never
        removed here: a person looks at it first).
        """
        if older_than < 0 or keep_last < 0:
            raise UsageError("an age and a number to keep are not below 0")
        told: dict[str, list[str]] = {"removed": [], "in_use": [], "damaged": []}
        if not projects.stamps(self.root):
            return told
        with private.locked(self.root, LOCK):
            if not dry_run:
                projects.finish_burials(self.root)
            limit = self.clock.now_ms() - older_than
            for project_id in projects.stamps(self.root):
                for ref, made in self._old(project_id, keep_last, limit, told):
                    if in_use(str(ref)):
                        told["in_use"].append(str(ref))
                        continue
                    if not dry_run:
                        self._bury(ref, made, "pruned")
                    told["removed"].append(str(ref))
        return told

    def _old(
        self, project_id: str, keep_last: int, limit: int, told: dict[str, list[str]]
    ) -> list[tuple[Ref, dict[str, Any]]]:
        found = []
        for name in projects.names(self.root, project_id):
            ref = Ref(project_id, name)
            try:
                found.append((ref, self._load(ref)[0]))
            except StorageError:
                told["damaged"].append(str(ref))
        found.sort(key=lambda one: (one[1]["created_at"], one[0]), reverse=True)
        return [one for one in found[keep_last:] if one[1]["created_at"] < limit]

    def purge(self, ref: str, *, in_use: Callable[[str], bool]) -> None:
        """Remove one record, damaged or not; its tombstone stays.

        Raises:
            UnknownRecord: there is none.
            RecordInUse: an attempt to open it is under way.
        """
        where = manifest.parse_ref(ref)
        with private.locked(self.root, LOCK):
            if not projects.has(self.root, where):
                raise unknown(self.root, where)
            if in_use(ref):
                raise RecordInUse(
                    f"an attempt to open {ref} is under way",
                    remedy="abandon the attempt first",
                    ref=ref,
                )
            try:
                made = self._load(where)[0]
            except StorageError:
                made = {"ref": ref}
            self._bury(where, made, "purged")

    def _bury(self, ref: Ref, made: Mapping[str, Any], why: str) -> None:
        note = {key: made[key] for key in _KEPT if key in made}
        note |= {"at": self.clock.now_ms(), "why": why}
        projects.bury(self.root, ref, note, self._reach)


def _asks(draft: Draft, earlier: Mapping[str, Any], asked: str) -> bool:
    """Whether a request is the very one that was answered, whatever became true since."""
    same_place = draft.binding.anchor_sha256 == earlier["workspace"]["anchor_sha256"]
    return bool(asked) and asked == draft.asked and same_place

"""What is no longer as a record says: computed by the tool, before opening and at reading.

Nothing is mended and nothing is scored. Each finding has a code, a severity (``block``: not
opened; ``warn``: has to be acknowledged; ``note``) and a sentence; the verdict is the worst
of them. What can't be found out is a finding too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from handoff.errors import HandoffError, IntegrityFailed, WorkspaceMissing
from handoff.sessions import evidence as gathered
from handoff.sessions import manifest, projects
from handoff.sessions import state as states
from handoff.sessions.host_store import Opener
from handoff.sessions.records_view import Record, RecordsView
from handoff.sessions.snapshot import snapshot
from handoff.sessions.workspace import Binding, bind
from handoff.workspace import git

_HOUR, _DAY = 3_600_000, 86_400_000
#: milliseconds by which two clocks may differ
SKEW = 5 * 60_000
_OLD = ((30 * _DAY, "warn"), (7 * _DAY, "warn"), (_DAY, "note"))
#: seconds that git has to say how two commits lie to each other
_LIMIT = 1.5


@dataclass(frozen=True)
class Now:
    """How things stand, as far as the caller knows. "" or empty: not known, not looked at.

    ``workspace``: the folder as it was asked for. ``profile``: the active one. ``sessions``:
    the host's session store, a path or what opens it. ``host_version``: of the host.
    ``lost_provider``: of the source's model, if the profile names it no more.
    ``opened``: other attempts of the record that reached a session. ``parallel``: a second
    opening is meant. ``host``: findings of the host's side (codes such as
    ``tool_not_allowed``), passed on. ``given``: where else the record went, in words."""

    now_ms: int
    workspace: str = ""
    profile: str = ""
    sessions: str | Opener = ""
    host_version: str = ""
    opened: Sequence[str] = ()
    parallel: bool = False
    lost_provider: str = ""
    host: Sequence[Mapping[str, str]] = ()
    given: Sequence[str] = ()


@dataclass(frozen=True)
class Drift:
    """``findings``: code, severity, message, and details. ``verdict``: ``current``,
    ``drifted``, ``stale`` or ``blocked``."""

    findings: tuple[dict[str, Any], ...]
    verdict: str

    @property
    def blocking(self) -> list[str]:
        """The codes that stand against opening."""
        return sorted({one["code"] for one in self.findings if one["severity"] == "block"})


def _one(code: str, severity: str, message: str, **details: object) -> dict[str, Any]:
    found: dict[str, Any] = {"code": code, "severity": severity, "message": message}
    if details:
        found["details"] = details
    return found


def compare(records: RecordsView, ref: str, now: Now) -> Drift:
    """Everything about a record that does not hold now. A missing workspace, a damaged
    record: findings, no errors.

    Raises:
        UsageError: that is no ref, or the workspace is no absolute path.
        UnknownRecord: there is no such record.
    """
    try:
        record = records.read(ref)
    except IntegrityFailed as error:
        return _drift([_one("integrity_failed", "block", error.cause)])
    return compare_record(records, record, now)


def compare_record(records: RecordsView, record: Record, now: Now) -> Drift:
    """As :func:`compare`, of a record that was read."""
    found: list[dict[str, Any]] = []
    if now.workspace:
        found += _workspace(records, record, now)
    found += _host(record, now)
    found += _others(records, record, now)
    found += _claims(record)
    found += _age(record, now)
    # Names of branches and files are whatever somebody typed.
    return _drift(records.guard.value(found).value)


def _drift(found: list[dict[str, Any]]) -> Drift:
    severities = {one["severity"] for one in found}
    verdict = "current"
    if "block" in severities:
        verdict = "blocked"
    elif any(one["code"] in _STALE and one["severity"] == "warn" for one in found):
        verdict = "stale"
    elif "warn" in severities:
        verdict = "drifted"
    return Drift(tuple(found), verdict)


#: what makes a record old, and not only its surroundings different
_STALE = frozenset(("aged", "newer_handoff", "source_advanced"))


def _workspace(records: RecordsView, record: Record, now: Now) -> Iterator[dict[str, Any]]:
    try:
        binding = bind(now.workspace)
    except WorkspaceMissing as error:
        yield _one("workspace_missing", "block", error.cause, remedy=error.remedy)
        return
    except HandoffError as error:
        if error.exit_code == 2:
            raise
        yield _one("anchor_changed", "block", f"the workspace can't be told: {error.cause}")
        return
    if binding.anchor_sha256 != record.manifest["workspace"]["anchor_sha256"]:
        project_id = manifest.parse_ref(record.ref).project_id
        ours = projects.find(records.root, binding) == project_id
        message = (
            "a person said that this folder belongs to the record's project"
            if ours
            else "this folder belongs to another repository or folder than the record"
        )
        yield _one("anchor_changed", "note" if ours else "block", message)
        if not ours:
            return
    paths = [item["path"] for item in states.items(record.state, "files")]
    paths += evidence_paths(record.state)
    facts = snapshot(binding, paths)
    if binding.kind == "git":
        # The record has the branch's name without secrets.
        shown = replace(binding, branch=records.guard.text(binding.branch))
        yield from _git(record, shown, facts)
    yield from _files(record, facts)
    yield from _rules(record, facts)
    for name, why in facts["unavailable"].items():
        yield _one("unavailable", "warn", f"{name} could not be compared: {why}")


def _git(record: Record, binding: Binding, facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    then, place = record.evidence.get("git", {}), record.manifest["workspace"]
    if place["branch"] != binding.branch:
        yield _one(
            "branch_changed",
            "warn",
            f"the branch is '{binding.branch or 'none'}', it was '{place['branch'] or 'none'}'",
        )
    if place["head"] != binding.head:
        yield _moved(binding, place["head"])
    now = facts["git"]
    if "changed" in then and "changed" in now:
        before = {one["path"]: one for one in then["changed"]}
        after = {one["path"]: one for one in now["changed"]}
        differing = sorted(
            path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
        )
        if differing or then.get("changed_total") != now["changed_total"]:
            yield _one(
                "dirty_changed",
                "warn",
                f"{len(differing)} uncommitted files are not as they were",
                paths=differing[:50],
            )
    for item in states.items(record.state, "verification"):
        yield from _verification(item, binding, now)


def _moved(binding: Binding, before: str) -> dict[str, Any]:
    details: dict[str, object] = {"was": before, "now": binding.head}
    message = f"HEAD is {binding.head[:10] or 'nothing'}, it was {before[:10] or 'nothing'}"
    if before and binding.head:
        try:
            counted = git.run(
                ("rev-list", "--left-right", "--count", f"{before}...{binding.head}"),
                binding.path,
                ok=(0, 128),
                limit=_LIMIT,
            )
            behind, _, ahead = counted.text.partition("\t")
            if counted.code == 0:
                details |= {"ahead": int(ahead), "behind": int(behind)}
                message += f": {ahead} commits ahead, {behind} behind"
                if int(behind):
                    details["unreachable"] = True
                    message += "; the recorded commit is not in its history"
            else:
                details["unreachable"] = True
                message += "; the recorded commit is gone, the history was rewritten"
        except HandoffError as error:
            details["unknown"] = error.cause
    return _one("head_moved", "warn", message, **details)


def _verification(
    item: Mapping[str, Any], binding: Binding, now: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    commit, dirty = item.get("commit", ""), item.get("dirty_digest", "")
    if item["result"] != "pass" or not commit:
        return
    other = not binding.head.startswith(commit)
    if other or (dirty and dirty != now.get("dirty_digest", dirty)):
        yield _one(
            "verification_stale",
            "warn",
            f"verification {item['id']} was made at {commit[:10]}, in another state of the files",
            id=item["id"],
        )


def _files(record: Record, facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    now = {one["path"]: one["blob"] for one in facts["files"]}
    then = {one["path"]: one["blob"] for one in record.evidence.get("files", [])}
    for item in states.items(record.state, "files"):
        path, role = item["path"], item["role"]
        blob = now.get(path, "unavailable: not looked at")
        was = then.get(path, item.get("blob", ""))
        if blob.startswith("unavailable"):
            yield _one("unavailable", "warn", f"{path} could not be compared: {blob[13:]}")
        elif blob == "missing":
            if role != "deleted" and was != "missing":
                yield _one("file_missing", "warn", f"{path} is gone", path=path)
        elif was == "missing" or (was and not was.startswith("unavailable") and was != blob):
            yield _one("file_changed", "warn", f"{path} is not as it was", path=path)
    for item in states.items(record.state, "progress/done"):
        for one in item["evidence"]:
            if one["kind"] == "file" and now.get(_path_of(one["id"])) == "missing":
                yield _one(
                    "done_but_absent",
                    "warn",
                    f"{item['id']} is said to be done, but {_path_of(one['id'])} is not there",
                    id=item["id"],
                )


def evidence_paths(state: dict[str, Any]) -> list[str]:
    """The files that show what is said to be done."""
    return [
        _path_of(one["id"])
        for item in states.items(state, "progress/done")
        for one in item["evidence"]
        if one["kind"] == "file"
    ]


def _path_of(name: str) -> str:
    """The path of a pointer to a file, without lines behind it."""
    return re.sub(r":\d+(?:[-:]\d+)?\Z", "", name)


def _rules(record: Record, facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if "rules" not in record.evidence:
        return
    then = {one["path"]: one["sha256"] for one in record.evidence["rules"]}
    now = {one["path"]: one["sha256"] for one in facts["rules"]}
    paths = sorted(path for path in then.keys() | now.keys() if then.get(path) != now.get(path))
    if paths:
        yield _one(
            "rules_changed", "warn", "the project's rules are others: " + ", ".join(paths[:5]),
            paths=paths,
        )  # fmt: skip


def _host(record: Record, now: Now) -> Iterator[dict[str, Any]]:
    source = record.manifest["source"]
    if now.profile and now.profile != source["profile_id"]:
        yield _one("profile_changed", "block", "this is another profile than the record's")
    for one in now.host:
        yield _one(one["code"], one["severity"], one["message"])
    if now.host_version and source["host_version"] not in {"", now.host_version}:
        message = f"the host is {now.host_version}, it was {source['host_version']}"
        yield _one("host_changed", "warn", message)
    if now.lost_provider:
        message = f"the profile names no provider '{now.lost_provider}' any more"
        yield _one("route_unavailable", "warn", message)


def _others(records: RecordsView, record: Record, now: Now) -> Iterator[dict[str, Any]]:
    source = record.manifest["source"]
    if now.sessions and source["last_message"]:
        advanced = gathered.went_on(now.sessions, source["session_id"], source["last_message"])
        if advanced is None:
            yield _one("unavailable", "note", "the source session can't be looked at")
        elif advanced:
            yield _one("source_advanced", "warn", "the source session went on after the record")
    newer = records.newer(record.manifest)
    if newer:
        yield _one("newer_handoff", "warn", f"there are {len(newer)} newer records", refs=newer)
    if now.opened:
        yield _one(
            "already_opened",
            "warn" if now.parallel else "block",
            "another attempt has opened a session from this record",
            attempts=list(now.opened),
        )
    if now.given:
        places = ", ".join(now.given[-3:])
        yield _one("already_delivered", "warn", f"it was given to {places}", to=list(now.given))
    if record.quarantined:
        yield _one(
            "secret_suspected", "warn", "today's rules find secrets in it; they are not shown",
            counts=record.suspected,
        )  # fmt: skip
    if _rules_of(record.manifest["redaction"].get("ruleset")) != _rules_of(records.guard.ruleset):
        yield _one("ruleset_changed", "warn", "it was redacted by other rules than today's")


def _rules_of(ruleset: object) -> str:
    """The rules without their mode."""
    return str(ruleset).rpartition("/")[0]


def _claims(record: Record) -> Iterator[dict[str, Any]]:
    for item in states.items(record.state, "verification"):
        if item["result"] == "pass" and not (item.get("command") and item.get("commit")):
            yield _one(
                "verification_unbound",
                "warn",
                f"verification {item['id']} names no command or no commit",
                id=item["id"],
            )
    lineage = record.state["lineage"]
    if lineage["depth"] >= 2:
        stale = [
            item["id"]
            for _, item in states.every_item(record.state)
            if item.get("basis") == "inherited" and item["id"] in lineage["inherited_ids"]
        ]
        if stale:
            yield _one(
                "inherited_unverified",
                "warn",
                f"{len(stale)} claims were handed on {lineage['depth']} times and never checked",
                ids=stale,
            )


def _age(record: Record, now: Now) -> Iterator[dict[str, Any]]:
    age = now.now_ms - record.manifest["created_at"]
    if age < -SKEW:
        yield _one("clock_skew", "note", "the record is from the future, by this clock")
    for limit, severity in _OLD:
        if age > limit:
            message = f"the record is {age // _HOUR} hours old"
            yield _one("aged", severity, message, hours=age // _HOUR)
            break


def dropped_candidates(record: Record) -> list[str]:
    """The rules of the user, word for word, that the state and its omissions do not hold."""
    candidates = record.evidence.get("candidates", [])
    lost = set(gathered.dropped(record.state, candidates))
    return [one["text"] for one in candidates if str(one["id"]) in lost]

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from tests.unit.sessions.records_kit import KEY, binding, draft, state, store

from handoff.clock import FakeClock
from handoff.errors import (
    IntegrityFailed,
    NotAllowed,
    RecordInUse,
    RequestConflict,
    SourceUnbound,
    StateInvalid,
    StorageError,
    UnknownProject,
    UnknownRecord,
    UsageError,
    WorkspaceMismatch,
)
from handoff.sessions import canonical, manifest
from handoff.sessions.guard import RedactorGuard
from handoff.sessions.manifest import Source
from handoff.sessions.records import Records

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
NEVER = lambda _ref: False  # noqa: E731


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_record_is_read_as_it_was_made(tmp_path: Path) -> None:
    made = store(tmp_path).create(draft(name="first"))
    found = store(tmp_path).read(made.ref)
    assert found.state["goal"]["text"] == "ship the parser"
    assert found.document == made.document
    assert found.manifest["name"] == "first"
    assert found.manifest["source"]["session_id"] == "session-1"
    assert not found.quarantined
    assert manifest.parse_ref(made.ref).handoff_id == manifest.handoff_id(found.manifest)


def test_later_actions_leave_the_bytes_of_a_record_alone(tmp_path: Path) -> None:
    records = store(tmp_path)
    made = records.create(draft())
    where = manifest.parse_ref(made.ref)
    place = tmp_path / "handoff/projects" / where.project_id / "records" / where.handoff_id
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in place.iterdir()}
    records.create(draft(request="request-0002", name="again"))
    records.create(draft(state("another"), "request-0003", parent_ref=made.ref))
    records.read(made.ref)
    records.search("parser")
    records.prune(older_than=0, keep_last=5, in_use=NEVER)
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in place.iterdir()} == before


def test_everything_is_private_and_no_path_is_in_a_record(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        records = Records(str(tmp_path / "deep" / "handoff"), clock=FakeClock())
        made = records.create(draft())
    finally:
        os.umask(old)
    records.list_page()
    for path in (tmp_path / "deep").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    where = manifest.parse_ref(made.ref)
    place = tmp_path / "deep/handoff/projects" / where.project_id / "records" / where.handoff_id
    assert all(b"/projects/one" not in p.read_bytes() for p in place.iterdir())


def test_the_same_request_is_the_same_record(tmp_path: Path) -> None:
    records = store(tmp_path)
    first = records.create(draft(evidence={"git": {"branch": "1"}}))
    records.clock.advance(60)  # type: ignore[attr-defined]
    later = records.create(draft(evidence={"git": {"branch": "2"}}))
    assert later.ref == first.ref
    assert later.idempotent
    assert later.manifest["created_at"] == first.manifest["created_at"]
    assert records.list_page().total == 1


def test_a_request_that_means_something_else_is_refused_without_values(tmp_path: Path) -> None:
    records = store(tmp_path)
    first = records.create(draft())
    before = files(tmp_path)
    with pytest.raises(RequestConflict) as refused:
        records.create(draft(state("SOMETHING-ELSE", questions=[{"id": "q1", "text": "why?"}])))
    assert refused.value.details == {"ref": first.ref, "fields": ["goal", "questions"]}
    assert "SOMETHING-ELSE" not in str(refused.value.to_json())
    with pytest.raises(RequestConflict) as moved:
        records.create(draft(binding=binding("/projects/two")))
    assert moved.value.details["fields"] == ["workspace"]
    assert files(tmp_path) == before


def test_the_same_content_of_another_request_is_the_same_record(tmp_path: Path) -> None:
    records = store(tmp_path)
    first = records.create(draft())
    second = records.create(draft(request="request-0002"))
    assert (second.ref, second.deduplicated, second.idempotent) == (first.ref, True, False)
    assert records.create(draft(request="request-0002")).idempotent


def test_another_session_may_use_the_same_request_id(tmp_path: Path) -> None:
    records = store(tmp_path)
    first = records.create(draft())
    second = records.create(draft(source=Source("default", "session-2")))
    assert second.ref != first.ref


@pytest.mark.parametrize("member", ["state.json", "document.md", "evidence.json", "manifest.json"])
@pytest.mark.parametrize("how", ["flip", "longer", "empty", "missing", "link", "pipe", "extra"])
def test_a_changed_record_is_never_shown(tmp_path: Path, member: str, how: str) -> None:
    records = store(tmp_path)
    made = records.create(draft())
    where = manifest.parse_ref(made.ref)
    place = tmp_path / "handoff/projects" / where.project_id / "records" / where.handoff_id
    path = place / member
    data = path.read_bytes()
    path.unlink()
    if how == "flip":
        at = len(data) // 2
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif how == "longer":
        path.write_bytes(data + b"\n")
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "link":
        (tmp_path / "same").write_bytes(data)
        path.symlink_to(tmp_path / "same")
    elif how == "pipe":
        os.mkfifo(path, 0o600)
    elif how == "extra":
        path.write_bytes(data)
        (place / "extra").write_bytes(b"")
    if path.is_file() and not path.is_symlink():
        path.chmod(0o600)
    with pytest.raises(IntegrityFailed):
        records.read(made.ref)
    assert [wrong["code"] for wrong in records.verify()] == ["integrity_failed"]
    # What was listed is made anew without it.
    (tmp_path / "handoff/catalogue.sqlite3").unlink()
    assert records.list_page().items[0]["damaged"].startswith("integrity_failed")


def test_a_whole_record_in_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    records = store(tmp_path)
    one, two = records.create(draft()), records.create(draft(state("other"), "request-0002"))
    folder = tmp_path / "handoff/projects" / manifest.parse_ref(one.ref).project_id / "records"
    first, second = (manifest.parse_ref(made.ref).handoff_id for made in (one, two))
    (folder / first).rename(folder / "aside")
    (folder / second).rename(folder / first)
    with pytest.raises(IntegrityFailed, match="another record"):
        records.read(one.ref)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_record_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    records = store(tmp_path)
    made = records.create(draft())
    where = manifest.parse_ref(made.ref)
    folder = tmp_path / "handoff/projects" / where.project_id / "records" / where.handoff_id
    (folder / "state.json").chmod(mode)
    with pytest.raises(StorageError, match="open to others"):
        records.read(made.ref)


def test_secrets_reach_no_file(tmp_path: Path) -> None:
    records = store(tmp_path)
    given = state(context=[{"id": "x1", "text": f"the token is {SECRET}"}])
    rule = {"id": "1", "text": f"never use {SECRET}"}
    made = records.create(draft(given, evidence={"candidates": [rule]}))
    assert made.redactions
    assert made.redacted == ("/context/0/text",)
    assert all(SECRET.encode() not in data for data in files(tmp_path).values())
    assert records.search(SECRET).total == 0
    found = records.read(made.ref)
    assert "[redacted:" in found.document
    assert not found.quarantined


def test_a_secret_as_an_id_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    records = store(tmp_path)
    with pytest.raises(StateInvalid) as refused:
        records.create(draft(state(questions=[{"id": SECRET, "text": "why?"}])))
    assert SECRET not in str(refused.value.to_json())
    assert records.list_page().total == 0


def test_what_newer_rules_find_is_shown_without_it(tmp_path: Path) -> None:
    made = store(tmp_path).create(draft(state("open the green-parrot door")))
    newer = Records(str(tmp_path / "handoff"), guard=RedactorGuard(KEY, {"DOOR": "green-parrot"}))
    found = newer.read(made.ref)
    assert found.quarantined
    assert found.suspected == {"door": 1}
    assert "green-parrot" not in found.document + str(found.state)
    assert newer.list_page().items[0]["goal"].startswith("open the [redacted")


def test_an_invalid_state_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StateInvalid):
        store(tmp_path).create(draft({"schema": "handoff-state/2"}))
    assert store(tmp_path).list_page().total == 0
    assert not any(p.suffix == ".json" for p in tmp_path.rglob("*"))


def test_without_a_source_session_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(SourceUnbound):
        store(tmp_path).create(draft(source=Source("default", "")))
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    made = store(tmp_path).create(draft(), dry_run=True)
    assert not made.published
    assert "ship the parser" in made.document
    assert list(tmp_path.iterdir()) == []


def test_looking_creates_nothing(tmp_path: Path) -> None:
    records = Records(str(tmp_path / "handoff"))
    assert records.list_page().items == []
    assert records.search("x").total == 0
    assert records.verify() == []
    with pytest.raises(UnknownRecord):
        records.read(f"handoff://{'a' * 32}/{'b' * 32}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["", "handoff://a/b", f"handoff://{'a' * 32}/{'b' * 31}", f"handoff://{'a' * 32}/../x",
     f"handoff://{'a' * 32}/{'b' * 32}?x=1", f"handoff://{'a' * 32}/{'b' * 32}\n"],
)  # fmt: skip
def test_only_whole_refs_are_refs(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        store(tmp_path).read(text)


def test_pages_hold_every_record_once(tmp_path: Path) -> None:
    records = store(tmp_path)
    made = []
    for number in range(7):
        made.append(records.create(draft(state(f"goal {number}"), f"request-{number:04}")).ref)
        if number % 2:
            records.clock.advance(1)  # type: ignore[attr-defined]
    seen, cursor = [], ""
    while True:
        page = records.list_page(limit=3, cursor=cursor)
        assert page.total == 7
        seen += [item["ref"] for item in page.items]
        cursor = page.cursor
        if not cursor:
            break
    assert sorted(seen) == sorted(made)
    assert records.list_page(session_id="nobody").total == 0
    with pytest.raises(UsageError):
        records.search("goal", cursor=records.list_page(limit=3).cursor)
    with pytest.raises(UsageError):
        records.list_page(cursor="%%%")


@pytest.mark.parametrize("query", ["PARSER", "qz", "straße", "'\"*", "x OR y", "ship the p"])
def test_search_is_literal_and_knows_no_case(tmp_path: Path, query: str) -> None:
    records = store(tmp_path)
    records.create(draft(state("QZ ship the parser"), "request-0001"))
    records.create(draft(state("STRASSE '\"* and x OR y"), "request-0002"))
    page = records.search(query)
    assert page.total == 1
    assert page.items[0]["snippets"]
    assert records.search("absent words").total == 0


def test_the_index_comes_back_from_anything(tmp_path: Path) -> None:
    records = store(tmp_path)
    made = records.create(draft())
    path = tmp_path / "handoff/catalogue.sqlite3"
    for damage in (b"", b"not a database" * 100, None):
        for end in ("-wal", "-shm"):
            Path(f"{path}{end}").unlink(missing_ok=True)
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
        assert [item["ref"] for item in records.search("parser").items] == [made.ref]
    path.unlink()
    path.mkdir()
    assert [item["ref"] for item in records.list_page().items] == [made.ref]


def test_lineage_is_told_both_ways(tmp_path: Path) -> None:
    records = store(tmp_path)
    one = records.create(draft()).ref
    two = records.create(draft(state("two"), "request-0002", parent_ref=one)).ref
    three = records.create(draft(state("three"), "request-0003", parent_ref=two)).ref
    log = records.log(two)
    assert [up["ref"] for up in log["ancestors"]] == [one]
    assert log["children"] == [three]
    assert set(records.newer(records.read(one).manifest)) == {two}


def test_pruning_keeps_the_youngest_and_what_is_in_use(tmp_path: Path) -> None:
    clock = FakeClock()
    records = store(tmp_path, clock=clock)
    refs = []
    for number in range(5):
        refs.append(records.create(draft(state(f"goal {number}"), f"request-{number:04}")).ref)
        clock.advance(10)
    plan = {"older_than": 25_000, "keep_last": 1, "in_use": lambda ref: ref == refs[1]}
    would = records.prune(dry_run=True, **plan)
    assert (set(would["removed"]), would["in_use"]) == ({refs[0], refs[2]}, [refs[1]])
    assert records.list_page().total == 5
    assert records.prune(**plan) == would
    assert {i["ref"] for i in records.list_page().items} == {refs[1], refs[3], refs[4]}
    assert records.search("goal 0").total == 0
    with pytest.raises(UnknownRecord) as gone:
        records.read(refs[0])
    grave = gone.value.details["tombstone"]
    assert grave["why"] == "pruned"  # type: ignore[index]
    assert grave["ref"] == refs[0]  # type: ignore[index]
    with pytest.raises(RecordInUse):
        records.purge(refs[1], in_use=lambda _ref: True)
    # The same content may be made again.
    again = records.create(draft(state("goal 0"), "request-0009"))
    assert again.ref == refs[0]
    assert records.read(refs[0]).state["goal"]["text"] == "goal 0"


def test_another_folder_is_bound_by_a_person_only(tmp_path: Path) -> None:
    records = store(tmp_path)
    made = records.create(draft())
    moved = binding("/elsewhere/one")
    with pytest.raises(WorkspaceMismatch):
        records.read(made.ref, binding=moved)
    project = manifest.parse_ref(made.ref).project_id
    assert records.bind(project, moved) == ""
    assert records.read(made.ref, binding=moved).ref == made.ref
    other = records.create(draft(request="request-0002", binding=binding("/projects/two")))
    with pytest.raises(NotAllowed):
        records.bind(project, binding("/projects/two"))
    before = records.bind(project, binding("/projects/two"), replace=True)
    assert before == manifest.parse_ref(other.ref).project_id


def test_canonical_bytes_are_what_is_stored(tmp_path: Path) -> None:
    made = store(tmp_path).create(draft())
    parts = store(tmp_path).raw(made.ref)[1]
    assert canonical.dumps(canonical.loads(parts.state)) == parts.state


def test_the_budgets_hold_with_room(tmp_path: Path) -> None:
    """The real figures are a benchmark's; here only what no busy machine excuses."""
    records = store(tmp_path)
    for number in range(60):
        records.create(draft(state(f"goal {number} " + "words " * 300), f"request-{number:04}"))
    begun = time.perf_counter()
    page = records.list_page(limit=20)
    records.read(page.items[0]["ref"])
    assert time.perf_counter() - begun < 1.0


@pytest.mark.parametrize("name", ["..", ".", "../..", "", "x" * 32, "A" * 32, "a/b"])
def test_a_folder_is_bound_to_a_project_and_to_no_other_folder(tmp_path: Path, name: str) -> None:
    records = store(tmp_path)
    records.create(draft())
    before = files(tmp_path)
    with pytest.raises(UnknownProject):
        records.bind(name, binding("/projects/two"))
    assert files(tmp_path) == before


@pytest.mark.parametrize("text", ["", "[]", "{}", "\x00", '{"request_id":"request-0001","ref":5}'])
def test_a_damaged_note_of_a_request_is_no_fault_of_the_state(tmp_path: Path, text: str) -> None:
    records = store(tmp_path)
    records.create(draft())
    (note,) = (tmp_path / "handoff" / "requests").iterdir()
    note.write_text(text)
    with pytest.raises(IntegrityFailed):
        records.create(draft())


@pytest.mark.parametrize("text", ["{}", '{"workspaces":5}', '{"workspaces":[5]}'])
def test_a_damaged_note_of_a_project_is_told(tmp_path: Path, text: str) -> None:
    records = store(tmp_path)
    where = manifest.parse_ref(records.create(draft()).ref)
    (tmp_path / "handoff" / "projects" / where.project_id / "project.json").write_text(text)
    with pytest.raises(IntegrityFailed):
        records.bind(where.project_id, binding("/projects/two"))

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sessions.records_kit import binding, repository, store
from tests.unit.sessions.test_document_v1 import DOCUMENT
from tests.unit.sessions.test_state_v1 import v1

from handoff.errors import (
    HandoffError,
    ImportRefused,
    InputTooLarge,
    StateInvalid,
    UnknownRecord,
    UsageError,
)
from handoff.sessions import transfer_v1
from handoff.sessions.host import KINDS
from handoff.sessions.hosts import Nobody
from handoff.sessions.profile import own
from handoff.sessions.records import Records
from handoff.sessions.service import Caller, Service
from handoff.sessions.transfer import Imported
from handoff.sessions.workspace import Binding

PROJECT = "0f0e8f1c-7f3c-4c6e-9d57-3f1d1c0f7a11"
HANDOFF = "5b1f6f52-06cf-4b40-8a0a-3c1d2e4f5a66"
REF = f"handoff://{PROJECT}/{HANDOFF}"


def manifest(document: str, **more: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "handoff_id": HANDOFF,
        "name": "parser.md",
        "created_at": "2026-09-14T10:20:30Z",
        "sha256": hashlib.sha256(document.encode()).hexdigest(),
        "origin": {"project_id": PROJECT, "handoff_id": HANDOFF, "kind": "create"},
        **more,
    }


def bundle(folder: Path, document: str = DOCUMENT, **more: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "document.md").write_text(document)
    (folder / "manifest.json").write_text(json.dumps(manifest(document, **more), indent=2))
    return str(folder)


def take(records: Records, path: object, place: Binding | None = None) -> Imported:
    return transfer_v1.import_old(records, str(path), profile="default", binding=place)


def files(root: str) -> list[str]:
    return sorted(str(Path(top, name)) for top, _, names in os.walk(root) for name in names)


def test_a_bundle_becomes_a_record_once(tmp_path: Path) -> None:
    records = store(tmp_path)
    path = bundle(tmp_path / "b")
    got = take(records, path)
    assert got.fresh and got.manifest["derived_from"] == REF
    assert got.manifest["origin"] == "import" and got.manifest["name"] == "parser.md"
    assert got.manifest["created_at"] == 1789381230000
    record = records.read(got.ref)
    assert record.state["constraints"][0]["text"].startswith("Never touch `public/api.py`")
    assert record.state["constraints"][0]["basis"] == "reported"
    again = take(records, path)
    assert (again.ref, again.fresh) == (got.ref, False)
    assert transfer_v1.mapped(records, REF, "default") == got.ref
    assert transfer_v1.mapped(records, got.ref, "default") == got.ref
    with pytest.raises(UnknownRecord):
        transfer_v1.mapped(records, REF, "bob")
    assert [item["ref"] for item in records.list_page().items] == [got.ref]


def test_bundles_of_a_project_meet_in_one_also_elsewhere(tmp_path: Path) -> None:
    one, two = store(tmp_path / "1"), store(tmp_path / "2")
    other = "6c1f6f52-06cf-4b40-8a0a-3c1d2e4f5a66"
    origin = {"project_id": PROJECT, "handoff_id": other, "kind": "legacy", "source_path": "a/b.md"}
    first = take(one, bundle(tmp_path / "a"))
    second = take(one, bundle(tmp_path / "b", "## Goal\n\nx\n", handoff_id=other, origin=origin))
    assert first.manifest["project_id"] == second.manifest["project_id"]
    assert first.ref != second.ref
    assert take(two, tmp_path / "a").ref == first.ref


def test_the_same_ids_with_other_bytes_are_a_conflict(tmp_path: Path) -> None:
    records = store(tmp_path)
    got = take(records, bundle(tmp_path / "b"))
    before = files(records.root)
    for number, (document, more) in enumerate(
        [("## Goal\n\nanother\n", {}), (DOCUMENT, {"name": "other"})]
    ):
        with pytest.raises(ImportRefused) as caught:
            take(records, bundle(tmp_path / f"c{number}", document, **more))
        assert caught.value.details["ref"] == got.ref
    assert files(records.root) == before


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"schema_version": True},
        {"handoff_id": "x"},
        {"handoff_id": PROJECT},
        {"name": "../up"},
        {"name": None},
        {"created_at": "2026-99-14T10:20:30Z"},
        {"created_at": "1969-01-01T00:00:00Z"},
        {"created_at": 5},
        {"sha256": "0" * 64},
        {"sha256": "A" * 64},
        {"origin": None},
        {"origin": {"project_id": PROJECT, "handoff_id": HANDOFF, "kind": "stolen"}},
        {"origin": {"project_id": "../../etc", "handoff_id": HANDOFF, "kind": "create"}},
        {
            "origin": {
                "project_id": PROJECT,
                "handoff_id": HANDOFF,
                "kind": "legacy",
                "source_path": "a/../../b",
            }
        },
        {
            "origin": {
                "project_id": PROJECT,
                "handoff_id": HANDOFF,
                "kind": "legacy",
                "source_path": "/etc/passwd",
            }
        },
        {"more": 1},
    ],
    ids=str,
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    records = store(tmp_path)
    with pytest.raises(ImportRefused):
        take(records, bundle(tmp_path / "b", **change))
    assert files(records.root) == []


def _link(path: Path) -> None:
    (path / "document.md").unlink()
    (path / "document.md").symlink_to("/etc/passwd")


def _pipe(path: Path) -> None:
    (path / "manifest.json").unlink()
    os.mkfifo(path / "manifest.json")


HOSTILE = {
    "another file": lambda path: (path / "more").write_text(""),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "a link": _link,
    "a pipe": _pipe,
    "a folder": lambda path: ((path / "document.md").unlink(), (path / "document.md").mkdir()),
    "too long": lambda path: (path / "document.md").write_bytes(b"x" * (4 * 1024 * 1024 + 1)),
    "a long manifest": lambda path: (path / "manifest.json").write_bytes(b" " * 20_000),
    "no JSON": lambda path: (path / "manifest.json").write_text('{"a": NaN}'),
    "twice": lambda path: (path / "manifest.json").write_text('{"name": 1, "name": 2}'),
    "changed": lambda path: (path / "document.md").write_text(DOCUMENT + "\n"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_is_refused(tmp_path: Path, name: str) -> None:
    records = store(tmp_path)
    path = bundle(tmp_path / "b")
    HOSTILE[name](Path(path))  # type: ignore[no-untyped-call]
    with pytest.raises(ImportRefused):
        take(records, path)
    assert files(records.root) == []


def test_a_link_to_a_folder_or_a_file_is_none(tmp_path: Path) -> None:
    records = store(tmp_path)
    bundle(tmp_path / "b")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    (tmp_path / "old.md").write_text(DOCUMENT)
    (tmp_path / "link.md").symlink_to(tmp_path / "old.md")
    for name in ("link", "link.md", "nothing"):
        with pytest.raises(ImportRefused):
            take(records, tmp_path / name, binding())


def test_a_state_and_a_document_need_a_workspace(tmp_path: Path) -> None:
    records = store(tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(v1(next_steps=["run pytest"])))
    (tmp_path / "d.md").write_text(DOCUMENT)
    for name in ("s.json", "d.md"):
        with pytest.raises(UsageError):
            take(records, tmp_path / name)
        got = take(records, tmp_path / name, binding())
        assert got.fresh
        assert take(records, tmp_path / name, binding()).ref == got.ref
        elsewhere = take(records, tmp_path / name, binding("/projects/two"))
        assert elsewhere.ref != got.ref
        assert records.read(got.ref, binding=binding()).state["next_steps"]


@pytest.mark.parametrize(
    "data",
    [
        b'{"schema": "handoff-state/2"}',
        b'{"schema_version": 1',
        b'{"schema_version": 7}',
        b"\xff\xfe## Goal",
        b"## Goal\n\n\n",
        "## Goal\n\na\u202eb\n".encode(),
        b"",
    ],
)
def test_what_is_no_source_is_refused(tmp_path: Path, data: bytes) -> None:
    records = store(tmp_path)
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(HandoffError) as caught:
        take(records, tmp_path / "x", binding())
    assert isinstance(caught.value, ImportRefused | StateInvalid)
    assert files(records.root) == []


def test_long_texts_stay_whole_and_too_much_is_refused(tmp_path: Path) -> None:
    records = store(tmp_path)
    lines = [f"line {number} of a text without bullets" for number in range(1500)]
    text = "## Goal\n\n" + "\n".join(lines) + "\n## Critical Context\n" + "- x\n" * 600
    (tmp_path / "d.md").write_text(text)
    state = records.read(take(records, tmp_path / "d.md", binding()).ref).state
    kept = state["goal"]["text"] + "\n".join(item["text"] for item in state["context"])
    assert all(line in kept for line in lines)
    assert sum(item["text"].split("\n").count("x") for item in state["context"]) == 600
    (tmp_path / "e.md").write_text("## Goal\n\ng\n## Key Decisions\n" + "- word word\n" * 40_000)
    with pytest.raises((InputTooLarge, StateInvalid)):
        take(records, tmp_path / "e.md", binding())


def test_a_secret_that_passed_the_old_redactor_is_taken_out(tmp_path: Path) -> None:
    records = store(tmp_path)
    secret = "glpat-" + "A1b2C3d4E5f6G7h8I9j0"
    got = take(records, bundle(tmp_path / "b", f"## Goal\n\nuse {secret} for it\n"))
    assert sum(got.redactions.values()) == 1
    assert not any(secret.encode() in Path(name).read_bytes() for name in files(records.root))


def test_the_service_takes_them_and_understands_their_references(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    service = Service(own(str(tmp_path / "home")), Nobody(), env={})
    caller = Caller("cli")
    path = bundle(tmp_path / "b")
    got = service.call("import", {"path": path, "workspace": str(place)}, caller)
    assert (got["fresh"], got["derived_from"]) == (True, REF)
    shown = service.call("show", {"ref": REF}, caller)
    assert shown["ref"] == got["ref"]
    read = service.call("read", {"ref": REF, "workspace": str(place)}, caller)
    assert "Never touch" in read["content"]
    with pytest.raises(UnknownRecord):
        service.call("show", {"ref": REF[:-1] + "7"}, caller)
    with pytest.raises(UsageError):
        service.call("show", {"ref": "handoff://" + "-" * 36 + "/" + "-" * 36}, caller)
    assert "other" in KINDS

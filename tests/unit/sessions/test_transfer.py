from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sessions.records_kit import KEY, binding, draft, state, store

from handoff.errors import ImportRefused, UsageError, WorkspaceMismatch
from handoff.sessions import canonical, manifest, transfer
from handoff.sessions.guard import RedactorGuard
from handoff.sessions.records import Records


def repack(data: bytes, change) -> bytes:  # type: ignore[no-untyped-def]
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as old, tarfile.open(fileobj=out, mode="w") as new:
        for info in old:
            content = old.extractfile(info).read()  # type: ignore[union-attr]
            for name, (kind, text) in change(info.name, content).items():
                fresh = tarfile.TarInfo(name)
                fresh.type = kind
                fresh.linkname = "/etc/passwd" if kind != tarfile.REGTYPE else ""
                fresh.size = len(text) if kind == tarfile.REGTYPE else 0
                new.addfile(fresh, io.BytesIO(text))
    return out.getvalue()


PLAIN = tarfile.REGTYPE


def test_a_record_travels_whole(tmp_path: Path) -> None:
    here, there = store(tmp_path / "a"), store(tmp_path / "b")
    made = here.create(draft(state(context=[{"id": "x1", "text": "``` # fences\n- [c9] x"}])))
    sent = transfer.export(here, made.ref)
    assert sent.data == transfer.export(here, made.ref).data
    assert (sent.ref, sent.derived_from) == (made.ref, "")
    transfer.write(sent, str(tmp_path / "out.tar"))
    assert (tmp_path / "out.tar").stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError):
        transfer.write(sent, str(tmp_path / "out.tar"))
    got = transfer.import_file(there, str(tmp_path / "out.tar"))
    assert (got.ref, got.fresh) == (made.ref, True)
    assert not transfer.import_file(there, str(tmp_path / "out.tar")).fresh
    assert there.read(made.ref).state == here.read(made.ref).state
    # It chose no folder here, not even the one of the same path.
    with pytest.raises(WorkspaceMismatch):
        there.read(made.ref, binding=binding())


def test_the_export_says_what_leaves_and_no_path_does(tmp_path: Path) -> None:
    here = store(tmp_path)
    made = here.create(draft())
    sent = transfer.export(here, made.ref)
    assert {one["name"] for one in sent.report["members"]} == {
        "manifest.json", "state.json", "document.md", "evidence.json",
    }  # fmt: skip
    assert sent.report["leaves"]["source"]["session_id"] == "session-1"
    assert b"/projects/one" not in sent.data
    assert str(tmp_path).encode() not in sent.data


def test_what_strict_rules_find_stays_here(tmp_path: Path) -> None:
    here = store(tmp_path)
    made = here.create(draft(state("open the green-parrot door")))
    wary = Records(here.root, guard=RedactorGuard(KEY, {"DOOR": "green-parrot"}))
    sent = transfer.export(wary, made.ref)
    assert b"green-parrot" not in sent.data
    assert sent.derived_from == made.ref != sent.ref
    assert sent.report["redacted"] == {"door": 1}
    got = transfer.import_bytes(store(tmp_path / "b"), sent.data)
    assert got.manifest["derived_from"] == made.ref


def hostile(name: str, content: bytes) -> dict[str, dict[str, tuple[bytes, bytes]]]:
    return {
        "extra": {name: (PLAIN, content), f"{name}.x": (PLAIN, b"")},
        "traversal": {f"../{name}": (PLAIN, content)},
        "absolute": {f"/{name}": (PLAIN, content)},
        "link": {name: (tarfile.SYMTYPE, b"")},
        "hard link": {name: (tarfile.LNKTYPE, b"")},
        "device": {name: (tarfile.CHRTYPE, b"")},
        "pipe": {name: (tarfile.FIFOTYPE, b"")},
        "folder": {name: (tarfile.DIRTYPE, b"")},
        "missing": {},
        "changed": {name: (PLAIN, content[:-1] + bytes([content[-1] ^ 1]))},
        "large": {name: (PLAIN, b"x" * (2 * 1024 * 1024 + 1))},
    }


@pytest.mark.parametrize("how", sorted(hostile("", b"x")))
@pytest.mark.parametrize("member", ["manifest.json", "state.json", "document.md", "evidence.json"])
def test_a_hostile_bundle_leaves_nothing(tmp_path: Path, how: str, member: str) -> None:
    here = store(tmp_path / "a")
    data = transfer.export(here, here.create(draft()).ref).data

    def change(name: str, content: bytes) -> dict[str, tuple[bytes, bytes]]:
        same = {name: (PLAIN, content)}
        return hostile(name, content)[how] if name == member else same

    with pytest.raises(ImportRefused):
        transfer.import_bytes(store(tmp_path / "b"), repack(data, change))
    assert not (tmp_path / "b").exists()


def test_a_member_twice_and_a_bomb_are_refused(tmp_path: Path) -> None:
    here = store(tmp_path / "a")
    data = transfer.export(here, here.create(draft()).ref).data
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("state.json"), io.BytesIO())
    import gzip

    for bad in (out.getvalue(), gzip.compress(data), gzip.compress(b"\0" * 10**7), b"", b"x" * 99):
        with pytest.raises(ImportRefused):
            transfer.import_bytes(store(tmp_path / "b"), bad)
    sparse = tmp_path / "sparse"
    with open(sparse, "wb") as file:
        file.truncate(10**10)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(sparse)
    for path in (sparse, tmp_path / "pipe", tmp_path / "link", tmp_path, tmp_path / "none"):
        with pytest.raises(ImportRefused):
            transfer.import_file(store(tmp_path / "b"), str(path))
    assert not (tmp_path / "b").exists()


@settings(max_examples=60, deadline=None)
@given(cut=st.floats(0, 1), at=st.floats(0, 1), bit=st.integers(0, 7), cutting=st.booleans())
def test_a_torn_or_bent_bundle_never_becomes_another_record(
    tmp_path_factory: pytest.TempPathFactory, cut: float, at: float, bit: int, cutting: bool
) -> None:
    base = tmp_path_factory.mktemp("bent")
    here = store(base / "a")
    made = here.create(draft())
    data = bytearray(transfer.export(here, made.ref).data)
    if cutting:
        data = data[: int(cut * (len(data) - 1))]
    else:
        data[int(at * (len(data) - 1))] ^= 1 << bit
    there = store(base / "b")
    try:
        got = transfer.import_bytes(there, bytes(data))
    except ImportRefused:
        assert not (base / "b").exists()
    else:  # padding, or the export's note, which is no part of the record
        assert there.read(got.ref).state == here.read(made.ref).state


def resealed(
    records: Records, ref: str, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> bytes:
    """A bundle whose digests fit what somebody wrote into its manifest and its evidence."""
    made, parts = records.raw(ref)
    proof = transfer.canonical_object(parts.evidence)
    change(made, proof)
    fresh = parts._replace(evidence=canonical.dumps(proof))
    made |= manifest.digests(fresh)
    made["sizes"] = {name: len(data) for name, data in fresh.named().items()}
    made["handoff_id"] = manifest.handoff_id(made)
    made["ref"] = f"handoff://{made['project_id']}/{made['handoff_id']}"
    made["sha256"] = manifest.seal(made)
    return transfer._pack(
        {"export.json": b"{}", "manifest.json": canonical.dumps(made), **fresh.named()}
    )


TOKEN = "ghp_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"
BENT: list[tuple[str, Any]] = [
    ("evidence/candidates", 5),
    ("evidence/candidates", [5]),
    ("evidence/candidates", [{"id": "1"}]),
    ("evidence/files", {"a": "b"}),
    ("evidence/rules", [{"path": "AGENTS.md"}]),
    ("evidence/git", {"changed": [{"path": "a"}]}),
    ("evidence/window", None),
    ("evidence/files", [{"path": "a.py", "blob": TOKEN}]),
    ("lineage", {}),
    ("redaction", {"ruleset": 5, "counts": {}}),
    ("redaction", {"ruleset": "x", "counts": {"\x1b[2J": 1}}),
    ("workspace/kind", "\x1b]0;x\x07"),
    ("workspace/head", "HEAD"),
    ("source/host", "\x1b]0;x\x07"),
    ("source/profile_id", "a\u202eb"),
    ("source/session_id", "two\nlines"),
    ("source/last_message", "x" * 600),
    *[(f"source/{name}", TOKEN) for name in ("host", "host_version", "profile_id", "session_id")],
    *[(f"workspace/{name}", TOKEN) for name in ("label", "branch")],
    *[(f"writer/{name}", TOKEN) for name in ("kind", "model", "provider")],
    ("request_id", TOKEN),
    ("derived_from", TOKEN),
]


@pytest.mark.parametrize(("where", "value"), BENT)
def test_what_fits_its_digests_and_was_never_written_so_leaves_nothing(
    tmp_path: Path, where: str, value: Any
) -> None:
    here, there = store(tmp_path / "a"), store(tmp_path / "b")
    made = here.create(draft())

    def change(manifest_: dict[str, Any], proof: dict[str, Any]) -> None:
        part, _, name = where.rpartition("/")
        place = {"evidence": proof, "": manifest_}.get(part)
        (manifest_[part] if place is None else place)[name] = value

    data = resealed(here, made.ref, change)
    with pytest.raises(ImportRefused) as refused:
        transfer.import_bytes(there, data)
    assert TOKEN not in str(refused.value.to_json())
    assert str(refused.value).isprintable()
    assert there.list_page().total == 0
    assert transfer.import_bytes(there, resealed(here, made.ref, lambda *_: None)).fresh


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_headers_within_headers_without_end_are_refused(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, 1
    data = (info.tobuf(tarfile.USTAR_FORMAT) + b"a".ljust(512, b"\0")) * 1500
    with pytest.raises(ImportRefused):
        transfer.import_bytes(store(tmp_path), data)

"""The store of records, cut off at each point of a change, or without room on the disk."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from tests.unit.sessions.records_kit import draft, state, store

from handoff.errors import StorageFull, UnknownRecord
from handoff.sessions import private
from handoff.sessions.records import Records


def killed_at(point: str, root: Path, act) -> bool:  # type: ignore[no-untyped-def]
    """Run ``act(records)`` in a process that is killed at a point; False if it never came."""
    pid = os.fork()
    if pid == 0:
        try:
            act(store(root, reach=lambda name: os.kill(os.getpid(), 9) if name == point else None))
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize("point", ["records.requested", "records.staged", "records.published"])
def test_a_cut_create_is_all_or_nothing_and_its_retry_is_the_same(
    tmp_path: Path, point: str
) -> None:
    assert killed_at(point, tmp_path, lambda records: records.create(draft()))
    records = store(tmp_path)
    there = records.list_page().total
    assert there == (1 if point == "records.published" else 0)
    assert records.verify() == []
    again = records.create(draft())
    assert again.idempotent == bool(there)
    assert records.list_page().total == 1
    assert records.create(draft()).ref == again.ref
    assert not any(p for p in (tmp_path / "handoff/projects").rglob("staging/*"))


def test_a_cut_create_keeps_its_request(tmp_path: Path) -> None:
    """Another intent is refused, also where the note of the request is missing."""
    from handoff.errors import RequestConflict

    assert killed_at("records.published", tmp_path, lambda records: records.create(draft()))
    with pytest.raises(RequestConflict):
        store(tmp_path).create(draft(state("something else")))
    (note,) = (tmp_path / "handoff/requests").iterdir()
    note.unlink()
    with pytest.raises(RequestConflict):
        store(tmp_path).create(draft(state("something else")))


def test_a_cut_removal_is_finished(tmp_path: Path) -> None:
    ref = store(tmp_path).create(draft()).ref
    gone = {"older_than": 0, "keep_last": 0, "in_use": lambda _ref: False}

    def remove(records: Records) -> None:
        records.clock.advance(5)  # type: ignore[attr-defined]
        records.prune(**gone)

    assert killed_at("records.buried", tmp_path, remove)
    records = store(tmp_path)
    with pytest.raises(UnknownRecord, match="pruned"):
        records.read(ref)
    assert records.list_page().total == 0
    records.prune(**gone)
    assert not any((tmp_path / "handoff/projects").glob("*/records/*"))


@pytest.mark.parametrize("number", range(6))
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    records = store(tmp_path)
    first = records.create(draft())
    real, left = os.write, [number]

    def write(fd: int, data: bytes) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        return real(fd, data)

    monkeypatch.setattr(private.os, "write", write)
    try:
        records.create(draft(state("second"), "request-0002"))
    except StorageFull:
        assert number < 5
    else:
        assert number == 5
    monkeypatch.undo()
    assert records.verify() == []
    assert records.read(first.ref).ref == first.ref
    # What was published before the room ran out is the same record for the retry.
    again = records.create(draft(state("second"), "request-0002"))
    assert records.list_page().total == 2
    assert records.read(again.ref).state["goal"]["text"] == "second"
    assert not any((tmp_path / "handoff/projects").rglob("staging/*"))


def test_many_at_once_make_each_record_once(tmp_path: Path) -> None:
    store(tmp_path).create(draft())
    children = []
    for number in range(8):
        pid = os.fork()
        if pid == 0:
            try:
                records = store(tmp_path)
                records.create(draft(state("shared"), "request-0002"))
                records.create(draft(state(f"own {number}"), f"request-1{number:03}"))
                records.search("shared")
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 8
    assert store(tmp_path).list_page().total == 10
    assert store(tmp_path).verify() == []


def test_a_store_that_cannot_be_written_is_still_read(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is read-only for root")
    ref = store(tmp_path).create(draft()).ref
    (tmp_path / "handoff/catalogue.sqlite3").unlink()
    (tmp_path / "handoff").chmod(0o500)
    try:
        assert [one["ref"] for one in store(tmp_path).list_page().items] == [ref]
        assert store(tmp_path).search("parser").total == 1
    finally:
        (tmp_path / "handoff").chmod(0o700)

"""The audit: every row in a chain, and what is done to it shows."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.clock import FakeClock
from handoff.errors import StorageError
from handoff.nodes.audit import Audit, rows, verify
from handoff.nodes.chain import HEAD, NAME
from handoff.redaction import Redactor


def make(folder: pathlib.Path, **more: int) -> Audit:
    redactor = Redactor(key=b"k" * 32)
    return Audit(str(folder), "node", redactor.redact, FakeClock(), **more)


def fill(folder: pathlib.Path, count: int, **more: int) -> None:
    audit = make(folder, **more)
    for number in range(count):
        audit.row("call", request_id=f"key-{number:04d}", op="exec", target=f"echo {number}")
    audit.close()


def test_rows_count_and_chain(tmp_path: pathlib.Path) -> None:
    fill(tmp_path / "a", 5)
    fill(tmp_path / "a", 5)
    assert [row["n"] for row in rows(str(tmp_path / "a"))] == list(range(1, 11))
    assert verify(str(tmp_path / "a")) == (10, 1, [])
    assert oct(os.stat(tmp_path / "a" / NAME).st_mode)[-3:] == "600"


def test_secrets_stay_out(tmp_path: pathlib.Path) -> None:
    audit = make(tmp_path)
    secret = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3eF5"
    audit.row("call", target=f"curl -H 'Authorization: Bearer {secret}'", actor={"x": [secret]})
    audit.row("call", target=os.fsdecode(b"\xff\n" + secret.encode()))
    audit.close()
    text = (tmp_path / NAME).read_text()
    assert secret not in text
    assert len(text.splitlines()) == 2
    assert not verify(str(tmp_path)).findings


@pytest.mark.parametrize("number", [0, 3, 9])
@pytest.mark.parametrize("how", ["change", "remove", "swap", "insert", "end"])
def test_tampering_shows(tmp_path: pathlib.Path, number: int, how: str) -> None:
    fill(tmp_path, 10)
    lines = (tmp_path / NAME).read_text().splitlines(keepends=True)
    if how == "change":
        lines[number] = lines[number].replace("echo", "rm")
    elif how == "remove":
        del lines[number]
    elif how == "swap":
        other = (number + 1) % 10
        lines[number], lines[other] = lines[other], lines[number]
    elif how == "insert":
        lines.insert(number, lines[number])
    else:
        lines = lines[: max(number, 0)]
    (tmp_path / NAME).write_text("".join(lines))
    assert verify(str(tmp_path)).findings


def test_a_chain_made_up_anew_from_the_middle_shows(tmp_path: pathlib.Path) -> None:
    fill(tmp_path, 10)
    head = (tmp_path / HEAD).read_bytes()
    lines = (tmp_path / NAME).read_text().splitlines(keepends=True)
    (tmp_path / NAME).write_text("".join(lines[:5]))
    (tmp_path / HEAD).unlink()
    fill(tmp_path, 5)
    (tmp_path / HEAD).write_bytes(head)
    # the same fields at the same times give the same chain: other rows were asked for
    assert verify(str(tmp_path)).findings


def test_old_files_go_and_the_chain_goes_on(tmp_path: pathlib.Path) -> None:
    fill(tmp_path, 200, file_bytes=4000, files=4)
    report = verify(str(tmp_path))
    assert not report.findings
    assert report.first > 1
    assert report.rows == 200 - report.first + 1
    assert len(list(tmp_path.glob("audit-*.jsonl"))) == 3
    os.unlink(sorted(tmp_path.glob("audit-*.jsonl"))[1])
    assert verify(str(tmp_path)).findings


def test_a_half_row_of_a_killed_writer_is_taken_away(tmp_path: pathlib.Path) -> None:
    fill(tmp_path, 3)
    with open(tmp_path / NAME, "ab") as file:
        file.write(b'{"n":4,"at":"2')
    assert not verify(str(tmp_path)).findings
    fill(tmp_path, 2)
    assert verify(str(tmp_path)) == (5, 1, [])


_WRITER = """
import sys
from handoff.clock import SystemClock
from handoff.nodes.audit import Audit
audit = Audit(sys.argv[1], "brain", str, SystemClock(), file_bytes=20000)
for number in range(100):
    audit.row("call", request_id=f"{sys.argv[2]}-{number}")
"""


def test_several_processes_write_one_chain(tmp_path: pathlib.Path) -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), f"writer{n}"])
        for n in range(3)
    ]
    assert [child.wait() for child in children] == [0, 0, 0]
    report = verify(str(tmp_path))
    assert (report.rows, report.findings) == (300, [])


def test_a_row_that_can_not_be_written_raises(tmp_path: pathlib.Path) -> None:
    audit = make(tmp_path / "a")
    audit.row("call")
    os.unlink(tmp_path / "a" / NAME)
    os.mkdir(tmp_path / "a" / NAME)
    with pytest.raises(StorageError):
        audit.row("call")
    audit.close()


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_any_file_is_looked_at_without_a_fault(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / NAME).write_bytes(data)
        (pathlib.Path(folder) / HEAD).write_bytes(data)
        verify(folder)
        list(rows(folder))


def test_a_row_is_what_the_schema_says(tmp_path: pathlib.Path) -> None:
    audit = make(tmp_path)
    audit.row("result", request_id="key-0001", exit_code=7, verdict="allow")
    audit.close()
    row = json.loads((tmp_path / NAME).read_text())
    assert list(row)[:5] == ["n", "at", "side", "event", "prev"]
    assert row["at"].endswith("Z")
    assert list(row)[-1] == "hash"


def test_rows_that_wait_keep_their_order_and_their_time(tmp_path: pathlib.Path) -> None:
    clock = FakeClock()
    audit = Audit(str(tmp_path), "node", str, clock)
    audit.later("call", request_id="first")
    clock.advance(5)
    audit.later("call", request_id="second")
    assert not list(rows(str(tmp_path)))
    audit.row("call", request_id="third")
    clock.advance(5)
    audit.later("call", request_id="fourth")
    audit.flush()
    audit.later("call", request_id="fifth")
    audit.close()
    found = list(rows(str(tmp_path)))
    assert [row["request_id"] for row in found] == ["first", "second", "third", "fourth", "fifth"]
    assert [row["at"][17:19] for row in found] == ["20", "25", "25", "30", "30"]
    assert not verify(str(tmp_path)).findings


def test_nothing_is_noted_for_later_once_that_has_failed(tmp_path: pathlib.Path) -> None:
    audit = make(tmp_path / "a")
    audit.row("call")
    os.rename(tmp_path / "a" / NAME, tmp_path / "kept")
    os.mkdir(tmp_path / "a" / NAME)
    audit.ready()
    audit.later("read", request_id="one")
    with pytest.raises(StorageError):
        audit.flush()
    with pytest.raises(StorageError):
        audit.ready()
    os.rmdir(tmp_path / "a" / NAME)
    os.rename(tmp_path / "kept", tmp_path / "a" / NAME)
    audit.ready()
    assert [row["n"] for row in rows(str(tmp_path / "a"))] == [1, 2]
    audit.close()
    assert not verify(str(tmp_path / "a")).findings


def test_two_writers_take_turns_in_one_process(tmp_path: pathlib.Path) -> None:
    both = [make(tmp_path, file_bytes=2000), make(tmp_path, file_bytes=2000)]
    for number in range(40):
        both[number % 3 % 2].row("call", request_id=f"key-{number:04d}")
    for one in both:
        one.close()
    report = verify(str(tmp_path))
    assert (report.rows + report.first - 1, report.findings) == (40, [])


def test_a_key_is_told_as_it_is_unless_it_may_be_a_secret(tmp_path: pathlib.Path) -> None:
    audit = Audit(str(tmp_path), "node", lambda _: "[redacted]", FakeClock())
    audit.row("call", request_id="call-" + "0a" * 12)
    audit.row("call", request_id="call-" + "0a" * 12 + "-")
    audit.close()
    assert [row["request_id"] for row in rows(str(tmp_path))] == [
        "call-" + "0a" * 12,
        "[redacted]",
    ]

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from handoff.process import journal
from handoff.process.journal import KINDS, Damaged, Reader, Writer, decode, encode, read_all

Told = list[tuple[str, int, bytes]]

data = st.binary(max_size=80)
entries = st.tuples(st.sampled_from(KINDS), st.integers(0, 2**63), data)


@contextmanager
def folder() -> Iterator[str]:
    """A fresh folder for each example; tmp_path would be shared by all of them."""
    with tempfile.TemporaryDirectory() as name:
        yield name


def write(where: str, told: Told, segment_bytes: int = 200) -> Writer:
    writer = Writer(where, segment_bytes)
    for kind, at_ms, raw in told:
        writer.append(kind, at_ms, raw)
    return writer


def stripped(found: list[journal.Raw]) -> Told:
    return [(kind, at_ms, raw) for _, _, kind, at_ms, raw in found]


def files(where: str) -> list[Path]:
    return sorted(Path(where).glob("journal.*"))


# -- records -----------------------------------------------------------------------------


@given(entries)
def test_a_record_comes_back(entry: tuple[str, int, bytes]):
    raw = encode(*entry)
    assert decode(raw, 0) == (len(raw), *entry)
    assert decode(b"xyz" + raw, 3) == (len(raw), *entry)


@given(entries, st.data())
def test_a_cut_record_says_how_much_it_needs(entry: tuple[str, int, bytes], draw: st.DataObject):
    raw = encode(*entry)
    cut = draw.draw(st.integers(0, len(raw) - 1))
    need = decode(raw[:cut], 0)
    assert isinstance(need, int) and cut < need <= len(raw)
    assert need == (journal.HEADER_BYTES if cut < journal.HEADER_BYTES else len(raw))


@given(entries, st.data())
def test_no_changed_byte_goes_unseen(entry: tuple[str, int, bytes], draw: st.DataObject):
    raw = bytearray(encode(*entry))
    at = draw.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= draw.draw(st.integers(1, 255))
    try:
        found = decode(bytes(raw), 0)
    except Damaged:
        return
    assert isinstance(found, int) and found > len(raw)  # its length grew: it waits for more


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_an_unfinished_one_or_damage(raw: bytes):
    try:
        decode(raw, 0)
    except Damaged:
        pass


def test_a_record_has_a_limit():
    encode("stdout", 0, b"x" * journal.MAX_DATA)
    with pytest.raises(ValueError, match="at most"):
        encode("stdout", 0, b"x" * (journal.MAX_DATA + 1))


# -- writing and reading -----------------------------------------------------------------


@given(st.lists(entries, max_size=30), st.integers(1, 400))
def test_what_was_written_is_read_from_every_boundary(told: Told, segment_bytes: int):
    with folder() as where:
        writer = write(where, told, segment_bytes)
        found = list(read_all(where))
        assert stripped(found) == told
        assert writer.committed == writer.end == (found[-1][1] if found else 0)
        for number, record in enumerate(found):
            assert list(read_all(where, record[0])) == found[number:]
        assert list(read_all(where, writer.end)) == []
        writer.close()


@given(st.lists(entries, min_size=1, max_size=12), st.data())
def test_no_other_offset_is_taken_for_a_record(told: Told, draw: st.DataObject):
    with folder() as where:
        writer = write(where, told)
        starts = {record[0] for record in read_all(where)} | {writer.end}
        offset = draw.draw(st.integers(0, writer.end - 1))
        if offset not in starts:
            with pytest.raises(Damaged):
                list(read_all(where, offset))
        writer.close()


@given(st.lists(entries, min_size=1, max_size=12), st.integers(1, 400), st.data())
def test_any_crash_point_leaves_whole_records_and_tells_the_rest(
    told: Told, segment_bytes: int, draw: st.DataObject
):
    """The shim is killed at any byte: what was whole before it stays, the rest is counted."""
    with folder() as where:
        write(where, told, segment_bytes).close()
        whole = list(read_all(where))
        last = files(where)[-1]
        start = int(last.name.split(".")[1])
        keep = draw.draw(st.integers(0, last.stat().st_size))
        os.truncate(last, keep)
        expected = [record for record in whole if record[1] <= start + keep]
        assert list(read_all(where)) == expected
        reader = Reader(where)
        end = expected[-1][1] if expected else 0
        assert reader.read(end, settled=True) == ([], end)
        assert reader.torn == start + keep - end
        assert reader.read(end) == ([], end)  # while a writer may live it is just unfinished
        reader.close()


@given(st.lists(entries, min_size=2, max_size=12), st.binary(min_size=1, max_size=60))
def test_rubbish_behind_the_last_record_is_torn_not_read(told: Told, rubbish: bytes):
    """After a crash of the machine the last block may hold anything."""
    with folder() as where:
        writer = write(where, told)
        with files(where)[-1].open("ab") as file:
            file.write(rubbish)
        reader = Reader(where)
        found, offset = [], 0
        while True:
            batch, offset = reader.read(offset, settled=True)
            if not batch:
                break
            found += batch
        assert stripped(found) == told
        assert reader.torn == len(rubbish)
        writer.close()


@given(st.lists(entries, min_size=1, max_size=30), st.lists(st.integers(1, 300), max_size=60))
def test_a_reader_beside_the_writer_sees_any_split(told: Told, cuts: list[int]):
    """The bytes reach the file in pieces of any size; the reader never errs, never waits
    for more than there is, and has everything in the end."""
    with folder() as source, folder() as where:
        write(source, told, 1 << 20).close()
        raw = files(source)[0].read_bytes()
        reader, found, offset = Reader(where), [], 0
        with open(os.path.join(where, journal.segment_name(0)), "ab", buffering=0) as file:
            at = 0
            for cut in [*cuts, len(raw)]:
                file.write(raw[at : at + cut])
                at = min(len(raw), at + cut)
                while True:
                    batch, offset = reader.read(offset)
                    if not batch:
                        break
                    found += batch
                assert offset <= at
        assert stripped(found) == told
        assert not reader.torn
        reader.close()


def test_nothing_beyond_the_committed_end_is_looked_at():
    with folder() as where:
        writer = write(where, [("stdout", 1, b"a"), ("stdout", 2, b"b")])
        first = decode(files(where)[0].read_bytes(), 0)
        assert not isinstance(first, int)
        reader = Reader(where)
        assert stripped(reader.read(0, upto=first[0])[0]) == [("stdout", 1, b"a")]
        assert reader.read(first[0], upto=first[0]) == ([], first[0])
        reader.close()
        writer.close()


def test_a_big_record_is_read_whole():
    with folder() as where:
        big = os.urandom(journal.MAX_DATA)
        write(where, [("stdout", 1, b"small"), ("stdout", 2, big), ("exited", 3, b"0")]).close()
        assert stripped(list(read_all(where)))[1] == ("stdout", 2, big)


def test_a_folder_without_a_journal_is_empty():
    with folder() as where:
        assert list(read_all(where)) == []
        reader = Reader(where)
        assert reader.read(0) == ([], 0)
        writer = write(where, [("stdout", 1, b"late")])
        assert len(reader.read(0)[0]) == 1
        reader.close()
        writer.close()


def test_a_damaged_middle_is_an_error_not_an_end():
    with folder() as where:
        write(where, [("stdout", n, b"x" * 100) for n in range(10)], 300).close()
        broken = files(where)[1]
        raw = bytearray(broken.read_bytes())
        raw[5] ^= 255
        broken.write_bytes(raw)
        with pytest.raises(Damaged, match="broken"):
            list(read_all(where))


def test_a_missing_middle_is_an_error():
    with folder() as where:
        write(where, [("stdout", n, b"x" * 100) for n in range(10)], 300).close()
        files(where)[1].unlink()
        with pytest.raises(Damaged, match="gap"):
            list(read_all(where))


def test_an_offset_that_a_crash_took_is_told():
    with folder() as where:
        writer = write(where, [("stdout", 1, b"a")])
        reader = Reader(where)
        with pytest.raises(Damaged, match="beyond"):
            reader.read(writer.end + 7)
        reader = Reader(where)
        assert reader.read(writer.end + 7, settled=True) == ([], writer.end + 7)
        assert reader.missing == 7
        writer.close()


# -- letting go --------------------------------------------------------------------------


def test_acknowledged_segments_go_and_the_last_one_stays():
    with folder() as where:
        writer = write(where, [("stdout", n, b"x" * 100) for n in range(20)], 300)
        starts = journal.segments(where)
        assert len(starts) > 4
        writer.ack(starts[2])
        assert journal.segments(where) == starts[2:]
        writer.ack(starts[3] - 1)
        assert journal.segments(where) == starts[2:]
        writer.ack(writer.end + 1)  # never written: not believed
        writer.ack(0)
        assert writer.acked == starts[3] - 1
        with pytest.raises(Damaged, match="deleted"):
            list(read_all(where, 0))
        writer.ack(writer.end)
        assert journal.segments(where) == starts[-1:]
        writer.append("exited", 1, b"0")
        assert stripped(list(read_all(where, writer.acked)))[-1] == ("exited", 1, b"0")
        writer.close()


def test_a_reader_goes_on_in_a_segment_that_was_let_go():
    with folder() as where:
        writer = write(where, [("stdout", n, b"x" * 100) for n in range(6)], 300)
        reader = Reader(where)
        first, offset = reader.read(0)
        writer.ack(writer.end)
        rest, _ = reader.read(offset)
        assert first and rest and rest[0][0] == first[-1][1]
        reader.close()
        writer.close()


@pytest.mark.parametrize(
    "name", ["journal", "journal.1", "journal.0000000000000000000x", "journal.new", "s", "shim.log"]
)
def test_other_files_are_no_segments(tmp_path: Path, name: str):
    (tmp_path / name).write_text("")
    assert journal.segments(str(tmp_path)) == []


def test_two_may_trim_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(str(tmp_path), [("stdout", n, b"x" * 100) for n in range(10)], 200).close()
    real = os.unlink

    def beaten(path: str) -> None:
        real(path)
        real(path)

    monkeypatch.setattr(os, "unlink", beaten)
    assert journal.trim(str(tmp_path), 1 << 40) == 0
    assert len(journal.segments(str(tmp_path))) == 1


# -- a disk that takes nothing -----------------------------------------------------------


class Disk:
    """Takes ``room`` more bytes, then says ENOSPC; writes may be cut short."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 40
        self.most = 1 << 40
        self.real = os.write
        patch.setattr(os, "write", self.write)

    def write(self, fd: int, raw: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self.real(fd, raw[: min(self.room, self.most)])
        self.room -= taken
        return taken


class FullDisks(RuleBasedStateMachine):
    """Appends, full disks, short writes and readers in any order: nothing is lost."""

    found = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.disk = Disk(self.patch)
        self.directory = tempfile.TemporaryDirectory()
        self.writer = Writer(self.directory.name, 150)
        self.told: Told = []

    @initialize(target=found)
    def first_reader(self) -> int:
        return 0

    @rule(entry=entries)
    def append(self, entry: tuple[str, int, bytes]) -> None:
        self.told.append(entry)
        self.writer.append(*entry)

    @rule(room=st.integers(0, 120))
    def fill(self, room: int) -> None:
        self.disk.room = room

    @rule(most=st.integers(1, 30))
    def short_writes(self, most: int) -> None:
        self.disk.most = most

    @rule()
    def make_room(self) -> None:
        self.disk.room = 1 << 40
        assert self.writer.flush()
        assert not self.writer.blocked and self.writer.trouble is None

    @rule(target=found, offset=consumes(found))
    def read(self, offset: int) -> int:
        reader = Reader(self.directory.name)
        _, offset = reader.read(offset, upto=self.writer.committed)
        reader.close()
        return offset

    @invariant()
    def what_is_committed_can_be_read(self) -> None:
        found = list(read_all(self.directory.name))
        committed = [record for record in found if record[1] <= self.writer.committed]
        assert stripped(committed) == self.told[: len(committed)]
        if committed:
            assert committed[-1][1] == self.writer.committed
        if self.writer.blocked:
            assert self.writer.committed < self.writer.end
            assert isinstance(self.writer.trouble, OSError)
        else:
            assert stripped(found) == self.told

    def teardown(self) -> None:
        self.patch.undo()
        assert self.writer.flush()
        assert stripped(list(read_all(self.directory.name))) == self.told
        self.writer.close()
        self.directory.cleanup()


TestFullDisks = FullDisks.TestCase


def test_a_folder_that_takes_no_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    writer = write(str(tmp_path), [("stdout", 1, b"x" * 300)], 200)
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, flags, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        writer.append("stdout", 2, b"kept")
        assert writer.blocked and not writer.flush()
        assert len(list(read_all(str(tmp_path)))) == 1
    assert writer.flush()
    assert stripped(list(read_all(str(tmp_path))))[1] == ("stdout", 2, b"kept")
    writer.close()

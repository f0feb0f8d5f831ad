"""Trees of files: links as links, nothing from outside, what can't be copied named."""

from __future__ import annotations

import os
import pathlib
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.errors import (
    FileMissing,
    HandoffError,
    NotARegularFile,
    PathNotAllowed,
    ProtocolViolation,
)
from handoff.nodes.drafts import draft
from handoff.nodes.node.policy import default
from handoff.nodes.node.treecalls import RULED, _Reads, _Writes
from handoff.nodes.pack import Entry, Packer, Unpacker, gathered
from handoff.nodes.trees import Counts, gone, manifest, pack
from handoff.nodes.treewriting import TreeWriter


def anything(_: str) -> None:
    """Everything may be done."""


def put(top: pathlib.Path, stream: Iterable[bytes], **more: int) -> Counts:
    writer = TreeWriter(str(top), anything, **more)  # type: ignore[arg-type]
    try:
        for piece in stream:
            writer.feed(piece)
        return writer.close()
    finally:
        writer.abort()


def facts(top: pathlib.Path) -> dict[str, tuple[object, ...]]:
    return {
        one.path: (one.kind, one.size, one.permissions, one.mtime_ns, one.target, one.sha256)
        for one in manifest(str(top), anything)
        if not one.skipped
    }


@pytest.fixture
def nasty(tmp_path: pathlib.Path) -> pathlib.Path:
    top = tmp_path / "tree"
    (top / "a" / "b").mkdir(parents=True)
    (top / "empty").mkdir(mode=0o750)
    (top / "a" / "text").write_text("text\n")
    (top / "a" / "empty").write_bytes(b"")
    (top / "a" / "run").write_text("#!/bin/sh\n")
    (top / "a" / "run").chmod(0o4755)
    (top / "closed").mkdir(mode=0o500)
    (top / "a" / "b" / os.fsdecode(b"\xff\xfe raw \n")).write_bytes(b"raw")
    (top / "out").symlink_to("/etc/passwd")
    (top / "loop").symlink_to("..")
    (top / "nothing").symlink_to("does/not/exist")
    with open(top / "sparse", "wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 29)
        file.write(b"middle")
    os.mkfifo(top / "fifo")
    sock = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(top)
    try:
        sock.bind("socket")
    finally:
        os.chdir(here)
        sock.close()
    os.utime(top / "a" / "text", ns=(0, 1_000_000_007))
    deep = os.open(top, os.O_RDONLY)
    for _ in range(40):
        os.mkdir("d" * 150, dir_fd=deep)
        below = os.open("d" * 150, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    fd = os.open("bottom", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=deep)
    os.write(fd, b"deep")
    os.close(fd)
    os.close(deep)
    return top


def test_a_nasty_tree_comes_over_as_it_is(nasty: pathlib.Path, tmp_path: pathlib.Path) -> None:
    sizes = []

    def counted() -> Iterable[bytes]:
        for piece in pack(str(nasty), anything):
            sizes.append(len(piece))
            yield piece

    counts = put(tmp_path / "copy", counted())
    assert facts(tmp_path / "copy") == facts(nasty)
    assert {(path, code) for path, code, _ in counts.skipped} == {
        ("fifo", "not_a_regular_file"),
        ("socket", "not_a_regular_file"),
    }
    assert sum(sizes) < 1 << 20, "the hole was sent"
    assert (tmp_path / "copy" / "sparse").stat().st_blocks < 1000
    assert os.readlink(tmp_path / "copy" / "out") == "/etc/passwd"
    assert not any(name.startswith(".handoff-") for name in os.listdir(tmp_path / "copy"))


def test_only_what_is_wanted_and_gone_goes_over(tmp_path: pathlib.Path) -> None:
    top, copy = tmp_path / "t", tmp_path / "c"
    (top / "d").mkdir(parents=True)
    for name in ("one", "two", "d/three"):
        (top / name).write_text(name)
    put(copy, pack(str(top), anything))
    (top / "two").write_text("changed")
    os.unlink(top / "d" / "three")
    os.rmdir(top / "d")
    before, after = facts(copy), facts(top)
    changed = [path for path, fact in after.items() if before.get(path) != fact and path]
    gone = sorted(before.keys() - after.keys(), reverse=True)
    stream = list(pack(str(top), anything, only=changed))[:-1]
    stream += [Packer.header(Entry(path, gone=True)) for path in gone] + [Packer.end()]
    assert put(copy, stream, delete=True, dry_run=True).deleted == 2
    assert (copy / "d" / "three").exists()
    counts = put(copy, stream, delete=True)
    assert (counts.files, counts.deleted) == (1, 2)
    assert facts(copy) == facts(top)


def test_a_file_that_grows_is_left_out_and_named(tmp_path: pathlib.Path) -> None:
    top = tmp_path / "t"
    top.mkdir()
    (top / "log").write_bytes(b"x" * 3_000_000)
    (top / "other").write_text("other")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "log").write_text("old")
    writer = TreeWriter(str(tmp_path / "c"), anything)
    for number, piece in enumerate(pack(str(top), anything)):
        if number == 3:
            with open(top / "log", "ab") as file:
                file.write(b"more")
        writer.feed(piece)
    counts = writer.close()
    assert [(path, code) for path, code, _ in counts.skipped] == [("log", "if_match_failed")]
    assert (tmp_path / "c" / "log").read_text() == "old"
    assert (tmp_path / "c" / "other").read_text() == "other"


def test_a_folder_swapped_for_a_link_leads_nowhere(tmp_path: pathlib.Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    top = tmp_path / "t"
    (top / "d").mkdir(parents=True)
    (top / "d" / "secret").write_text("inside")
    stream = b""
    for piece in pack(str(top), anything):
        if b'"d"' in piece and not (top / "d").is_symlink():
            (top / "d" / "secret").unlink()
            (top / "d").rmdir()
            (top / "d").symlink_to(tmp_path / "outside")
        stream += piece
    assert b"secret\n" not in stream
    assert b"}secret" not in stream


def test_writing_never_follows_a_link(tmp_path: pathlib.Path) -> None:
    (tmp_path / "outside").mkdir()
    copy = tmp_path / "c"
    copy.mkdir()
    (copy / "d").symlink_to(tmp_path / "outside")
    (copy / "f").symlink_to(tmp_path / "outside" / "f")
    top = tmp_path / "t"
    (top / "d").mkdir(parents=True)
    (top / "d" / "x").write_text("x")
    (top / "f").write_text("f")
    counts = put(copy, pack(str(top), anything))
    assert os.listdir(tmp_path / "outside") == []
    assert {path for path, _, _ in counts.skipped} >= {"d", "d/x"}
    assert (copy / "f").read_text() == "f"
    assert not (copy / "f").is_symlink()


def test_what_may_not_be_read_is_named(nasty: pathlib.Path) -> None:
    def may(path: str) -> None:
        if "/a" in path.removeprefix(str(nasty)):
            raise PathNotAllowed("no")

    left = {one.path: one.skipped for one in manifest(str(nasty), may) if one.skipped}
    assert left["a"] == "path_not_allowed"
    with pytest.raises(PathNotAllowed):
        list(manifest(f"{nasty}/a", may))


@pytest.mark.skipif(os.geteuid() == 0, reason="everything can be read by root")
def test_what_can_not_be_read_is_named(nasty: pathlib.Path) -> None:
    (nasty / "a" / "text").chmod(0)
    left = {one.path: one.skipped for one in manifest(str(nasty), anything) if one.skipped}
    assert left["a/text"] == "io_error"


def test_names_can_be_excluded(nasty: pathlib.Path) -> None:
    found = {one.path for one in manifest(str(nasty), anything, ["*.o", "a/te*", "empty"])}
    assert "a" in found
    assert not {"a/text", "a/empty", "empty"} & found


def test_a_kill_leaves_whole_files(tmp_path: pathlib.Path) -> None:
    script = """
import sys
from handoff.nodes.treewriting import TreeWriter
writer = TreeWriter(sys.argv[1], lambda _: None)
while data := sys.stdin.buffer.read1(1 << 16):
    writer.feed(data)
writer.close()
"""
    top = tmp_path / "t"
    top.mkdir()
    for number in range(30):
        (top / f"f{number:02d}").write_bytes(b"%02d" % number * 50_000)
    stream = b"".join(pack(str(top), anything))
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "c")], stdin=subprocess.PIPE
    )
    assert child.stdin is not None
    child.stdin.write(stream[: len(stream) // 2])
    child.stdin.flush()
    child.kill()
    child.stdin.close()
    child.wait()
    for path in (tmp_path / "c").glob("f*"):
        assert path.read_bytes() == (top / path.name).read_bytes()
    put(tmp_path / "c", [stream])
    assert facts(tmp_path / "c") == facts(top)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.lists(st.integers(1, 50), max_size=20))
def test_any_bytes_are_refused_or_read(data: bytes, cuts: list[int]) -> None:
    unpacker = Unpacker()
    try:
        at = 0
        for cut in [*cuts, 400]:
            list(unpacker.feed(data[at : at + cut]))
            at += cut
        unpacker.close()
    except ProtocolViolation:
        pass


names = st.binary(min_size=1, max_size=12).filter(
    lambda raw: b"/" not in raw and b"\0" not in raw and raw not in {b".", b".."}
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(names, st.binary(max_size=2000), max_size=6), st.integers(1, 4000))
def test_any_names_and_bytes_come_over(files: dict[bytes, bytes], step: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top, copy = pathlib.Path(folder) / "t", pathlib.Path(folder) / "c"
        top.mkdir()
        for name, data in files.items():
            (top / os.fsdecode(name)).write_bytes(data)
        stream = b"".join(pack(str(top), anything))
        counts = put(copy, (stream[at : at + step] for at in range(0, len(stream), step)))
        assert not counts.skipped
        assert facts(copy) == facts(top)


@pytest.mark.parametrize(
    "path", ["/etc/x", "../x", "a/../x", "a//b", "./a", "a/", "x\0y", "/".join("a" * 5000)]
)
def test_a_stream_that_leaves_the_top_is_refused(tmp_path: pathlib.Path, path: str) -> None:
    header = Packer.header(Entry(path, "file", size=1, segments=((0, 1),), data=True))
    writer = TreeWriter(str(tmp_path / "c"), anything)
    with pytest.raises(ProtocolViolation):
        writer.feed(Packer.header(Entry("", "dir", permissions=0o755)) + header + b"x")
    writer.abort()


def test_a_stream_that_is_cut_leaves_no_half_file(tmp_path: pathlib.Path) -> None:
    top = tmp_path / "t"
    top.mkdir()
    (top / "f").write_bytes(b"x" * 100_000)
    stream = b"".join(pack(str(top), anything))
    for cut in (3, 50, 300, len(stream) - 1):
        writer = TreeWriter(str(tmp_path / "c"), anything)
        with pytest.raises(HandoffError):
            writer.feed(stream[:cut])
            writer.close()
        writer.abort()
        assert not (tmp_path / "c").exists() or not [
            name for name in os.listdir(tmp_path / "c") if name != "f"
        ]


def test_bits_of_a_folder_that_is_closed_are_kept(
    nasty: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    put(tmp_path / "copy", pack(str(nasty), anything))
    assert stat.S_IMODE((tmp_path / "copy" / "closed").stat().st_mode) == 0o500


def test_nothing_is_gone_where_nobody_could_look(tmp_path: pathlib.Path) -> None:
    for top in ("here", "there"):
        (tmp_path / top / "closed" / "d").mkdir(parents=True)
        (tmp_path / top / "closed" / "d" / "f").write_text("f")
        (tmp_path / top / "closed2").write_text("a name that only begins so")
    (tmp_path / "here" / "closed2").unlink()

    def may(path: str) -> None:
        if path.endswith("/here/closed"):
            raise PathNotAllowed("no")

    here = list(manifest(str(tmp_path / "here"), may))
    there = list(manifest(str(tmp_path / "there"), anything))
    assert gone(here, there) == ["closed2"]


def test_two_writers_of_one_name_do_not_mix(tmp_path: pathlib.Path) -> None:
    streams = []
    for name, data in (("one", b"1" * 900_000), ("two", b"2" * 700_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(data)
        streams.append(b"".join(pack(str(tmp_path / name), anything)))
    copy = tmp_path / "c"
    (copy).mkdir()
    writers = [TreeWriter(str(copy), anything) for _ in streams]
    for at in range(0, 1_000_000, 100_000):
        for writer, stream in zip(writers, streams, strict=True):
            writer.feed(stream[at : at + 100_000])
    wanted = [b"1" * 900_000, b"2" * 700_000]
    for writer in writers:
        assert not writer.close().skipped
        assert (copy / "f").read_bytes() in wanted
    assert os.listdir(copy) == ["f"]


@pytest.mark.parametrize("other", ["link", "second", "fifo"])
def test_a_draft_that_somebody_else_made_is_not_written_to(
    tmp_path: pathlib.Path, other: str
) -> None:
    top, copy, victim = tmp_path / "t", tmp_path / "c", tmp_path / "victim"
    top.mkdir()
    (top / "f").write_text("new")
    stream = b"".join(pack(str(top), anything))
    copy.mkdir()
    victim.write_text("victim")
    writer = TreeWriter(str(copy), anything)
    writer.feed(stream[:-17])
    (draft,) = os.listdir(copy)
    writer.abort()
    assert os.listdir(copy) == []
    if other == "link":
        (copy / draft).symlink_to(victim)
    elif other == "second":
        os.link(victim, copy / draft)
    else:
        os.mkfifo(copy / draft)
    counts = put(copy, [stream])
    assert victim.read_text() == "victim"
    assert (counts.files, counts.skipped) == (1, [])
    assert (copy / "f").read_text() == "new"


def test_what_is_counted_was_done(tmp_path: pathlib.Path) -> None:
    top, copy = tmp_path / "t", tmp_path / "c"
    (top / "d").mkdir(parents=True)
    (top / "d" / "f").write_text("f")
    (top / "f").write_text("f")
    (top / "l").symlink_to("f")
    (copy / "f").mkdir(parents=True)
    (copy / "f" / "kept").write_text("kept")
    (copy / "l").mkdir()
    (copy / "d").write_text("a file where a folder should be")
    stream = [*list(pack(str(top), anything))[:-1]]
    stream += [Packer.header(Entry("f", gone=True)), Packer.end()]
    counts = put(copy, stream, delete=True)
    assert (counts.files, counts.dirs, counts.links, counts.deleted) == (0, 0, 0, 0)
    assert sorted(path for path, _, _ in counts.skipped) == ["d", "d/f", "f", "f", "l"]


def test_a_pipe_or_device_is_not_replaced(tmp_path: pathlib.Path) -> None:
    top, copy = tmp_path / "t", tmp_path / "c"
    top.mkdir()
    copy.mkdir()
    (top / "f").write_text("f")
    os.mkfifo(copy / "f")
    counts = put(copy, pack(str(top), anything))
    assert [path for path, _, _ in counts.skipped] == ["f"]
    assert stat.S_ISFIFO((copy / "f").stat().st_mode)


@pytest.mark.parametrize("dry", [False, True])
def test_a_top_that_may_not_be_written_is_an_error(tmp_path: pathlib.Path, dry: bool) -> None:
    top = tmp_path / "t"
    top.mkdir()
    (top / "f").write_text("f")
    stream = b"".join(pack(str(top), anything))

    def may(path: str) -> None:
        raise PathNotAllowed("no")

    writer = TreeWriter(str(tmp_path / "c"), may, dry_run=dry)
    with pytest.raises(PathNotAllowed):
        writer.feed(stream)
    writer.abort()
    with pytest.raises(FileMissing):
        put(tmp_path / "no" / "such", [stream], dry_run=dry)
    with pytest.raises(NotARegularFile):
        put(top / "f", [stream], dry_run=dry)


def test_a_stream_has_one_top(tmp_path: pathlib.Path) -> None:
    top = Packer.header(Entry("", "dir", permissions=0o755))
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for second in (top, Packer.header(Entry("", "link", target="/etc"))):
        writer = TreeWriter(str(tmp_path / "c"), anything)
        with pytest.raises(ProtocolViolation):
            writer.feed(top + second)
        writer.abort()
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before


def test_bits_that_give_rights_can_be_left_behind(tmp_path: pathlib.Path) -> None:
    top = tmp_path / "t"
    (top / "d").mkdir(parents=True)
    (top / "run").write_text("run")
    (top / "run").chmod(0o6755)
    (top / "d").chmod(0o3777)
    put(tmp_path / "c", pack(str(top), anything), bits=0o777)
    assert stat.S_IMODE((tmp_path / "c" / "run").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "c" / "d").stat().st_mode) == 0o777


def test_small_files_are_sent_together(tmp_path: pathlib.Path) -> None:
    for number in range(1000):
        (tmp_path / f"{number}").write_bytes(b"x" * 1000)
    told = list(gathered(pack(str(tmp_path), anything)))
    assert len(told) < 8
    assert b"".join(told) == b"".join(pack(str(tmp_path), anything))


def test_a_policy_that_changes_meanwhile_holds_for_the_rest(tmp_path: pathlib.Path) -> None:
    top = str(tmp_path.resolve())
    open_to_all, closed = default(top, [top]), default(top, [])
    for judged in (_Reads, _Writes):
        policies = [open_to_all]
        may = judged(lambda policies=policies: policies[-1])  # type: ignore[misc]
        for number in range(RULED + 10):
            may(f"{top}/{number}")
        with pytest.raises(PathNotAllowed, match=r"kept from every brain"):
            may(f"{top}/.env")
        policies.append(closed)
        with pytest.raises(PathNotAllowed):
            for number in range(RULED + 1):
                may(f"{top}/{number}")


def test_a_folder_that_goes_and_comes_again_is_another(tmp_path: pathlib.Path) -> None:
    def stream() -> Iterable[bytes]:
        def file(path: str) -> bytes:
            return Packer.header(Entry(path, "file", 1, 0o600, segments=((0, 1),), data=True))

        yield Packer.header(Entry("", "dir", permissions=0o700))
        yield Packer.header(Entry("d", "dir", permissions=0o700))
        yield file("d/f") + b"1"
        yield Packer.header(Entry("d/f", gone=True))
        yield Packer.header(Entry("d", gone=True))
        yield Packer.header(Entry("d", "dir", permissions=0o700))
        yield file("d/f") + b"2" + Packer.end()

    assert put(tmp_path / "c", stream(), delete=True).skipped == []
    assert (tmp_path / "c" / "d" / "f").read_bytes() == b"2"


def test_a_draft_that_was_left_longer_is_cut(tmp_path: pathlib.Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "f").write_bytes(b"new")
    (tmp_path / "c").mkdir()
    fd = os.open(tmp_path / "c", os.O_RDONLY)
    held, _ = draft(fd, "f", "f")
    os.write(held, b"x" * 100)
    os.close(held)
    os.close(fd)
    put(tmp_path / "c", pack(str(tmp_path / "s"), anything))
    assert (tmp_path / "c" / "f").read_bytes() == b"new"
    assert os.listdir(tmp_path / "c") == ["f"]

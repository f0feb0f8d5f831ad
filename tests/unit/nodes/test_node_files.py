"""Files of a node: what is judged is what is opened, and nothing is half written."""

from __future__ import annotations

import hashlib
import itertools
import os
import pathlib
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from handoff.errors import (
    FileChanged,
    FileError,
    FileInTheWay,
    FileMissing,
    HandoffError,
    IntegrityFailed,
    NotARegularFile,
    PathNotAllowed,
    PolicyDenied,
    UsageError,
)
from handoff.nodes.node.files import Files
from handoff.nodes.node.policy import Policy, default, parse
from handoff.nodes.node.writing import Order, Writing, forget

KEY = "call-0001"


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    place = tmp_path / "allowed"
    place.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return place


@pytest.fixture
def policy(root: pathlib.Path) -> Policy:
    return default(str(root.parent / "home"), [str(root)])


@pytest.fixture
def files(policy: Policy, root: pathlib.Path) -> Files:
    return Files(lambda: policy, str(root.parent / "home"))


def write(policy: Policy, path: pathlib.Path | str, data: bytes, **more: object) -> object:
    order = Order(**{"key": KEY, "path": str(path), **more})  # type: ignore[arg-type]
    writing = Writing(order, policy, "/nowhere")
    writing.feed(data)
    return writing.commit()


def left(root: pathlib.Path) -> set[str]:
    return {name for name in os.listdir(root) if name.startswith(".handoff-")}


@pytest.mark.parametrize("data", [b"", b"x", os.urandom(3 * 1024 * 1024), "é\r\n\0".encode()])
def test_what_is_written_is_read(
    files: Files, policy: Policy, root: pathlib.Path, data: bytes
) -> None:
    made = write(policy, root / "f", data, mode="create")
    assert made.bytes == len(data)
    assert made.created
    assert made.sha256 == hashlib.sha256(data).hexdigest() == files.sha256(str(root / "f"))
    got, entry = files.read(str(root / "f"), 0, len(data) + 10)
    assert got == data
    assert entry.size == len(data)
    assert not left(root)


def test_a_range_is_that_range(files: Files, root: pathlib.Path) -> None:
    (root / "f").write_bytes(bytes(range(256)) * 4096)
    got, _ = files.read(str(root / "f"), 300_001, 600_000)
    assert got == (bytes(range(256)) * 4096)[300_001:900_001]
    assert files.read(str(root / "f"), 2_000_000, 10)[0] == b""
    for offset, limit in ((-1, 1), (0, -1)):
        with pytest.raises(UsageError):
            files.read(str(root / "f"), offset, limit)


@pytest.mark.parametrize(
    "path", ["../outside/secret", "link/secret", "chain", "dangling", "/etc/passwd", "a/../../x"]
)
def test_nothing_outside_is_reached(
    files: Files, policy: Policy, root: pathlib.Path, path: str
) -> None:
    (root / "link").symlink_to(root.parent / "outside")
    (root / "chain").symlink_to("link/secret")
    (root / "dangling").symlink_to(root.parent / "outside" / "new")
    full = path if path.startswith("/") else f"{root}/{path}"
    with pytest.raises(PathNotAllowed):
        files.read(full)
    with pytest.raises(PathNotAllowed):
        write(policy, full, b"x")
    assert (root.parent / "outside" / "secret").read_text() == "secret"
    assert os.listdir(root.parent / "outside") == ["secret"]


def test_a_link_inside_is_followed(files: Files, policy: Policy, root: pathlib.Path) -> None:
    (root / "real").write_text("old")
    (root / "alias").symlink_to("real")
    assert files.read(str(root / "alias"))[0] == b"old"
    write(policy, root / "alias", b"new")
    assert (root / "real").read_text() == "new"
    assert (root / "alias").is_symlink()


def test_a_pipe_and_a_folder_never_hold_a_call(
    files: Files, policy: Policy, root: pathlib.Path
) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for name in ("pipe", "folder"):
        before = time.monotonic()
        with pytest.raises(NotARegularFile):
            files.read(str(root / name))
        for mode in ("overwrite", "append"):
            with pytest.raises(NotARegularFile):
                write(policy, root / name, b"x", mode=mode)
        assert time.monotonic() - before < 5
    assert not left(root)


def test_a_racing_link_never_leads_out(files: Files, root: pathlib.Path) -> None:
    good, evil = root / "d", root.parent / "outside"
    good.mkdir()
    (good / "secret").write_text("inside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(good, root / "aside")
            os.symlink(evil, good)
            os.unlink(good)
            os.rename(root / "aside", good)
            stop.wait(0.0002)  # so that the good folder is met, too

    racer = threading.Thread(target=swap)
    racer.start()
    met = set()
    try:
        until = time.monotonic() + 20
        for turn in itertools.count():
            if (turn > 2000 and b"inside" in met) or time.monotonic() > until:
                break
            try:
                met.add(files.read(str(good / "secret"))[0])
            except (PathNotAllowed, FileMissing, FileError, NotARegularFile) as error:
                met.add(error.code)
    finally:
        stop.set()
        racer.join()
    assert b"inside" in met
    assert b"secret" not in met


def test_an_overwrite_keeps_bits_and_takes_those_it_is_given(
    policy: Policy, root: pathlib.Path
) -> None:
    (root / "f").write_text("old")
    (root / "f").chmod(0o751)
    write(policy, root / "f", b"new")
    assert stat.S_IMODE((root / "f").stat().st_mode) == 0o751
    made = write(policy, root / "f", b"newer", perm=0o640, mtime_ns=1_000_000_007)
    assert stat.S_IMODE((root / "f").stat().st_mode) == 0o640
    assert (root / "f").stat().st_mtime_ns == made.file.mtime_ns == 1_000_000_007


def test_if_match_holds_until_the_last_moment(policy: Policy, root: pathlib.Path) -> None:
    (root / "f").write_text("old")
    seen = hashlib.sha256(b"old").hexdigest()
    writing = Writing(Order(KEY, str(root / "f"), if_match=seen), policy, "/nowhere")
    writing.feed(b"mine")
    (root / "f").write_text("theirs")
    with pytest.raises(FileChanged):
        writing.commit()
    assert (root / "f").read_text() == "theirs"
    assert not left(root)
    with pytest.raises(FileChanged):
        write(policy, root / "f", b"x", if_match=seen)
    with pytest.raises(FileChanged):
        write(policy, root / "f", b"x", if_match="-")
    write(policy, root / "g", b"x", if_match="-")
    assert (root / "g").read_text() == "x"


def test_create_never_replaces(policy: Policy, root: pathlib.Path) -> None:
    writing = Writing(Order(KEY, str(root / "f"), mode="create"), policy, "/nowhere")
    writing.feed(b"mine")
    (root / "f").write_text("theirs")
    with pytest.raises(FileInTheWay):
        writing.commit()
    assert (root / "f").read_text() == "theirs"
    assert not left(root)


def test_append_adds_and_makes(policy: Policy, root: pathlib.Path) -> None:
    write(policy, root / "log", b"one\n", mode="append")
    made = write(policy, root / "log", b"two\n", mode="append")
    assert (root / "log").read_bytes() == b"one\ntwo\n"
    assert made.bytes == 4
    assert made.file.size == 8


def test_a_cut_transfer_goes_on_where_it_was(policy: Policy, root: pathlib.Path) -> None:
    data = os.urandom(1_000_000)
    order = Order(KEY, str(root / "f"), size=len(data), sha256=hashlib.sha256(data).hexdigest())
    first = Writing(order, policy, "/nowhere")
    first.feed(data[:400_000])
    first.pause()
    again = Writing(order, policy, "/nowhere")
    assert again.have == 400_000
    assert again.sha256 == hashlib.sha256(data[:400_000]).hexdigest()
    again.feed(data[400_000:])
    again.commit()
    assert (root / "f").read_bytes() == data
    assert not left(root)


def test_what_came_otherwise_than_announced_is_not_kept(policy: Policy, root: pathlib.Path) -> None:
    (root / "f").write_text("old")
    for more in ({"size": 9}, {"sha256": "0" * 64}):
        with pytest.raises(IntegrityFailed):
            write(policy, root / "f", b"other", **more)
    assert (root / "f").read_text() == "old"
    assert not left(root)


def test_what_is_left_of_a_call_can_be_forgotten(policy: Policy, root: pathlib.Path) -> None:
    writing = Writing(Order(KEY, str(root / "f")), policy, "/nowhere")
    writing.feed(b"half")
    writing.pause()
    assert len(left(root)) == 1
    assert forget(str(root / "f"), KEY, "/nowhere")
    assert not forget(str(root / "f"), KEY, "/nowhere")
    assert not left(root)


_KILLED = """
import sys
from handoff.nodes.node.policy import default
from handoff.nodes.node.writing import Order, Writing
root, mode = sys.argv[1:]
writing = Writing(Order("call-0001", root + "/f", mode=mode), default("/", [root]), "/")
writing.feed(b"n" * 5_000_000)
print("fed", flush=True)
sys.stdin.readline()
writing.commit()
print("done", flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002, 0.004])
def test_a_kill_leaves_the_old_or_the_new(root: pathlib.Path, delay: float) -> None:
    (root / "f").write_bytes(b"o" * 5_000_000)
    child = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(root), "overwrite"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "fed\n"
    child.stdin.write("\n")
    child.stdin.flush()
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert (root / "f").read_bytes() in {b"o" * 5_000_000, b"n" * 5_000_000}


def test_folders_are_listed_in_pages_links_as_links(files: Files, root: pathlib.Path) -> None:
    for name in ("b", "a", "c", ".env"):
        (root / name).write_text(name)
    (root / "l").symlink_to("/etc/passwd")
    page = files.listing(str(root), limit=3)
    assert [one.name for one in page.entries] == ["a", "b", "c"]
    rest = files.listing(str(root), after=page.next)
    assert [(one.name, one.type, one.target) for one in rest.entries] == [
        ("l", "link", "/etc/passwd")
    ]
    assert not rest.next


def test_names_that_are_no_text_are_names(files: Files, policy: Policy, root: pathlib.Path) -> None:
    name = os.fsdecode(b"\xff\xfe \n\x01")
    write(policy, f"{root}/{name}", b"x")
    assert files.listing(str(root)).entries[0].name == name
    assert files.read(f"{root}/{name}")[0] == b"x"


def test_move_delete_and_folders(files: Files, root: pathlib.Path) -> None:
    assert files.make_folder(str(root / "a/b/c"), parents=True)
    assert not files.make_folder(str(root / "a/b/c"), parents=True)
    with pytest.raises(FileInTheWay):
        files.make_folder(str(root / "a"))
    with pytest.raises(FileMissing):
        files.make_folder(str(root / "x/y"))
    (root / "a/f").write_text("f")
    (root / "g").write_text("g")
    with pytest.raises(FileInTheWay):
        files.move(str(root / "a/f"), str(root / "g"))
    files.move(str(root / "a/f"), str(root / "g"), overwrite=True)
    assert (root / "g").read_text() == "f"
    (root / "a/out").symlink_to(root.parent / "outside")
    with pytest.raises(FileInTheWay):
        files.delete(str(root / "a"))
    assert files.delete(str(root / "a"), tree=True) == 4
    assert (root.parent / "outside" / "secret").exists()
    with pytest.raises(FileChanged):
        files.delete(str(root / "g"), if_match="0" * 64)
    assert files.delete(str(root / "g"), if_match=hashlib.sha256(b"f").hexdigest()) == 1
    with pytest.raises(FileMissing):
        files.delete(str(root / "g"))


def test_a_tree_that_holds_what_is_denied_stays(files: Files, root: pathlib.Path) -> None:
    (root / "p").mkdir()
    (root / "p/x").write_text("x")
    (root / "p/.env").write_text("x")
    with pytest.raises(PathNotAllowed):
        files.delete(str(root / "p"), tree=True)
    assert sorted(os.listdir(root / "p")) == [".env", "x"]


@pytest.mark.parametrize("denied", ["inside", "arrival"])
def test_what_is_kept_from_the_brain_is_not_moved_to_where_it_is_not(
    root: pathlib.Path, denied: str
) -> None:
    (root / "app" / "deep" / "key").mkdir(parents=True)
    (root / "app" / "deep" / "key" / "k").write_text("key")
    kept = {"inside": f"{root}/app/deep/key", "arrival": f"{root}/new/deep/key"}[denied]
    text = f'read = ["{root}"]\nwrite = ["{root}"]\ndeny = ["{kept}"]'
    policy = parse(text.encode(), "/home/user")
    files = Files(lambda: policy, "/home/user")
    with pytest.raises(PathNotAllowed):
        files.move(str(root / "app"), str(root / "new"))
    assert (root / "app" / "deep" / "key" / "k").exists()
    if denied == "arrival":
        files.move(str(root / "app"), str(root / "elsewhere"))


def test_bits_and_times_can_be_set(files: Files, root: pathlib.Path) -> None:
    (root / "f").write_text("x")
    entry = files.change(str(root / "f"), mode=0o600, mtime_ns=5_000_000_001)
    assert (entry.mode, entry.mtime_ns) == (0o600, 5_000_000_001)
    with pytest.raises(UsageError):
        files.change(str(root / "f"), mode=0o10000)
    os.mkfifo(root / "pipe")
    with pytest.raises(NotARegularFile):
        files.change(str(root / "pipe"), mode=0o600)


def test_read_only_and_off(root: pathlib.Path) -> None:
    (root / "f").write_text("x")
    text = f'read = ["{root}"]\nwrite = ["{root}"]\n'
    closed = parse(f"read_only = true\n{text}".encode(), "/nowhere")
    assert Files(lambda: closed, "/").read(str(root / "f"))[0] == b"x"
    with pytest.raises(PathNotAllowed):
        write(closed, root / "f", b"y")
    off = parse(f"enabled = false\n{text}".encode(), "/nowhere")
    with pytest.raises(PolicyDenied):
        Files(lambda: off, "/").read(str(root / "f"))


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 70_000])
def test_paths_that_are_none(files: Files, path: str) -> None:
    with pytest.raises(UsageError):
        files.read(path)


def test_a_circle_of_links_and_a_long_name(files: Files, root: pathlib.Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    for path in (root / "a", root / ("n" * 300)):
        with pytest.raises(HandoffError) as raised:
            files.read(str(path))
        assert raised.value.code in {"io_error", "path_too_long"}

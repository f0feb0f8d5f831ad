"""What people type about nodes when things are odd: pipes that close, names that are wrong,
folders that nobody may look into."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.support.nodes import Place, running

from handoff.errors import FileMissing
from handoff.nodes.client import BrainClient, new_key


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running(tmp_path_factory.mktemp("odd")) as made:
        yield made


def start(place: Place, *words: str) -> subprocess.Popen[bytes]:
    """``handoff nodes …`` whose streams the test has in hand."""
    return subprocess.Popen(
        [sys.executable, "-m", "handoff.cli.main", "nodes", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=place.env(),
        cwd=place.root,
    )


def runs(needle: str) -> bool:
    """Whether a process has this word in its command line."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if needle.encode() in file.read():
                        return True
            except OSError:
                continue
    return False


def test_a_reader_that_leaves_ends_the_command(place: Place) -> None:
    mark = f"y{os.getpid()}.{time.monotonic_ns()}"
    child = start(place, "exec", "n1", "--", "yes", mark)
    assert child.stdout is not None
    assert child.stdout.readline() == f"{mark}\n".encode()
    child.stdout.close()
    assert child.wait(20) == 141
    assert child.stderr is not None
    assert child.stderr.read() == b""
    child.stderr.close()
    place.until(lambda: not runs(mark), 20)


def test_a_reader_that_leaves_ends_the_reading(place: Place) -> None:
    (place.files / "long").write_bytes(b"x" * 8_000_000)
    child = start(place, "read", "n1", str(place.files / "long"))
    assert child.stdout is not None
    child.stdout.read(10)
    child.stdout.close()
    assert child.wait(20) == 141
    assert child.stderr is not None
    assert child.stderr.read() == b""
    child.stderr.close()


def test_a_source_that_breaks_ends_the_call(place: Place) -> None:
    def feed() -> Iterator[bytes]:
        yield b"x"
        raise FileMissing("it went away")

    brain = BrainClient(str(place.root / "brain"), None)
    given = {"path": str(place.files / "half"), "stream": True}
    began = time.monotonic()
    with pytest.raises(FileMissing):
        brain.call("n1", "write", given, key=new_key(), feed=feed())
    assert time.monotonic() - began < 15
    brain.close()
    place.until(lambda: place.asked("status")["under_way"] == 0)
    assert not (place.files / "half").exists()


def test_a_node_that_is_named_twice_is_asked_once(place: Place) -> None:
    counted = place.files / "counted"
    counted.write_text("")
    line = f"echo once >> {counted}"
    place.nodes("exec", "n1", "n1", "all", "--shell", line)
    assert counted.read_text() == "once\n"


def test_an_interrupt_ends_a_command_on_every_node(place: Place) -> None:
    place.pair("n2")
    place.start_node("n2")
    mark = f"88{os.getpid()}"
    child = start(place, "exec", "all", "--", "sleep", mark)
    place.until(lambda: place.asked("status")["under_way"] == 2)
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    out, errors = child.communicate(timeout=30)
    assert time.monotonic() - began < 20
    assert child.returncode == 130, (out, errors)
    assert b"Traceback" not in errors
    place.until(lambda: not runs(f"sleep\0{mark}"), 20)
    place.nodes("revoke", "n2")


def test_what_the_node_keeps_is_not_taken_for_removed(place: Place, tmp_path: pathlib.Path) -> None:
    tree, copy = place.files / "tree", tmp_path / "copy"
    (tree / "kept").mkdir(parents=True)
    (tree / "old").write_text("old")
    place.nodes("get", "n1", str(tree), str(copy))
    (copy / "kept" / "mine").write_text("mine")
    (tree / "old").unlink()
    policy = place.config().parent / "policy.toml"
    policy.write_text(
        f'read = ["{place.files}"]\nwrite = ["{place.files}"]\ndeny = ["{tree}/kept"]\n'
    )
    try:
        done = place.nodes("get", "n1", str(tree), str(copy), "--delete", code=1)
        assert json.loads(done.stdout)["deleted"] == 1
        assert (copy / "kept" / "mine").read_text() == "mine"
        assert not (copy / "old").exists()
    finally:
        policy.unlink()


def test_a_copy_gives_nobody_rights(place: Place, tmp_path: pathlib.Path) -> None:
    tree = place.files / "rights"
    tree.mkdir()
    (tree / "run").write_text("run")
    (tree / "run").chmod(0o6755)
    for source, copy, found in (
        (tree, tmp_path / "tree", tmp_path / "tree" / "run"),
        (tree / "run", tmp_path / "run", tmp_path / "run"),
    ):
        place.nodes("get", "n1", str(source), str(copy))
        assert found.stat().st_mode & 0o7777 == 0o755
    again = json.loads(place.nodes("get", "n1", str(tree), str(tmp_path / "tree")).stdout)
    assert again["unchanged"] == 1
    back = json.loads(place.nodes("put", "n1", str(tree), str(tree)).stdout)
    assert back == {**again, "dirs": back["dirs"]}, "a zero is told too"


def test_a_file_takes_no_place_but_a_files(place: Place, tmp_path: pathlib.Path) -> None:
    (place.files / "one").write_text("one")
    os.mkfifo(tmp_path / "fifo")
    done = place.nodes("get", "n1", str(place.files / "one"), str(tmp_path / "fifo"), code=1)
    assert b"fifo" in done.stderr
    done = place.nodes("put", "n1", str(tmp_path / "fifo"), str(place.files / "p"), code=2)
    assert b"no plain file" in done.stderr
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "victim").write_text("victim")
    (tmp_path / "one.handoff-part").symlink_to(tmp_path / "victim")
    place.nodes("get", "n1", str(place.files / "one"), str(tmp_path / "one"))
    assert (tmp_path / "victim").read_text() == "victim"
    assert sorted(os.listdir(tmp_path)) == ["fifo", "link", "one", "one.handoff-part", "victim"]


def test_a_node_that_is_away_is_told_at_once(place: Place, tmp_path: pathlib.Path) -> None:
    place.asked("pair", "away", "--token")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("f")
    for words in (
        ("put", "away", str(tmp_path / "d" / "f"), "/x"),
        ("put", "away", str(tmp_path / "d"), "/x"),
        ("get", "away", "/x", str(tmp_path / "x")),
        ("get", "away", "/x", str(tmp_path / "x"), "--manifest"),
        ("write", "away", "/x"),
        ("jobs", "away"),
    ):
        began = time.monotonic()
        done = place.nodes(*words, code=5)
        assert b"is not connected" in done.stderr or b"offline" in done.stderr, done.stderr
        assert time.monotonic() - began < 8, words
    place.nodes("remove", "away")


def test_a_job_that_still_runs_is_no_success(place: Place) -> None:
    job = json.loads(place.nodes("jobs", "n1", "start", "--json", "--", "sleep", "600").stdout)[
        "job"
    ]
    began = time.monotonic()
    done = place.nodes("jobs", "n1", "wait", job, "--timeout", "1s", "--json", code=124)
    assert json.loads(done.stdout)["state"] == "running"
    assert time.monotonic() - began < 30
    told = json.loads(place.nodes("jobs", "n1", "tail", job, "--json").stdout)
    assert told.get("data", "") == ""
    place.nodes("jobs", "n1", "kill", job)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("exec", "n1", "--timeout", "9" * 400, "--", "true"), 2, "duration"),
        (("exec", "n1", "--queue-until", "9" * 400, "--", "true"), 2, "duration"),
        (("exec", "n1", "--limit", "0", "--", "true"), 2, "--limit"),
        (("exec", "n", "--", "true"), 4, "'n1'"),
        (("exec", "N1", "--", "true"), 4, "'n1'"),
        (("show", "n11"), 4, "'n1'"),
        (("revoke", "n11"), 4, "'n1'"),
        (("tag", "n11", "x"), 4, "'n1'"),
        (("exec", "--tag", "nosuch", "--", "true"), 4, "nosuch"),
        (("pair", "x", "--ttl", "9" * 400), 2, "duration"),
        (("pair", "x", "--ttl", "0"), 2, "ttl"),
        (("pair", "x", "--ttl", "400d"), 2, "ttl"),
        (("pair", "n1"), 3, "--replace"),
        (("logs", "-n", "0"), 2, "-n"),
        (("read", "n1", "/x", "--length", "-5"), 2, "--length"),
        (("write", "n1", "/x", "--mode", "17777"), 2, "--mode"),
        (("write", "n1", "/x", "--mode=-1"), 2, "--mode"),
        (("import", "--settings", "/no/such"), 2, "/no/such"),
        (("serve", "--port", "99999"), 2, "--port"),
        (("serve", "--port", "-5"), 2, "--port"),
        (("serve", "--address", "foo bar"), 2, "address"),
        (("put", "n1", "/no/such", "/x"), 4, "/no/such"),
    ],
)
def test_what_is_wrong_is_said(place: Place, words: tuple[str, ...], code: int, said: str) -> None:
    before = (place.root / "brain" / "brain.toml").read_bytes()
    done = place.nodes(*words, code=code)
    text = done.stderr.decode()
    assert said in text, text
    assert "Traceback" not in text
    assert (place.root / "brain" / "brain.toml").read_bytes() == before
    body = json.loads(place.nodes(words[0], "--json", *words[1:], code=code).stderr)
    assert body["exit_code"] == code
    assert body["remedy"]


def test_flags_of_all_verbs_may_stand_before_the_verb(place: Place) -> None:
    folder = str(place.root / "brain")
    for words in (
        ("--json", "nodes", "list"),
        ("nodes", "--json", "list"),
        ("nodes", "--brain", folder, "--json", "list"),
        ("nodes", f"--brain={folder}", "list", "--json"),
    ):
        assert json.loads(place.run(*words).stdout)["count"] >= 1
    done = place.run("--config", "/x.toml", "nodes", "status", "--brain", "/no/such", code=5)
    remedy = done.stderr.decode().partition("try: ")[2].strip()
    assert remedy == "handoff nodes --config /x.toml serve"
    place.run(*remedy.split()[1:-1], "status")  # flags are taken there


def test_a_tree_of_which_too_many_names_changed_comes_whole(
    place: Place, tmp_path: pathlib.Path
) -> None:
    tree, copy = place.files / "wide", tmp_path / "wide"
    tree.mkdir()
    for number in range(5000):
        (tree / f"{number:0220}").write_text("new")
    copy.mkdir()
    (copy / f"{0:0220}").write_text("new")
    stamp = (tree / f"{0:0220}").stat().st_mtime_ns
    os.utime(copy / f"{0:0220}", ns=(stamp, stamp))
    place.nodes("get", "n1", str(tree), str(copy))
    assert all((copy / f"{number:0220}").read_text() == "new" for number in range(5000))
    for number in range(3000):
        (tree / f"{number:0220}").write_text("newer")
    again = json.loads(place.nodes("get", "n1", str(tree), str(copy)).stdout)
    assert (again["files"], again["unchanged"]) == (3000, 2000), "so many fit"
    assert (copy / f"{2999:0220}").read_text() == "newer"

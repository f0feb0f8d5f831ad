"""What people type about nodes, with a real brain and a real node."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import signal
import time
from collections.abc import Iterator

import pytest
from tests.support.nodes import Place, running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running(tmp_path_factory.mktemp("nodes")) as made:
        yield made


def script(place: Place, name: str, text: str) -> str:
    path = place.files / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def gone(needle: str, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while True:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/cmdline", "rb") as file:
                        found += [name] if needle.encode() in file.read() else []
                except OSError:
                    continue
        if not found:
            return
        assert time.monotonic() < until, found
        time.sleep(0.05)


@pytest.mark.parametrize("code", [0, 1, 7, 137])
def test_the_exit_code_is_the_commands(place: Place, code: int) -> None:
    done = place.nodes(
        "exec", "n1", "--", "sh", "-c", f"printf out; printf err >&2; exit {code}", code=code
    )
    assert (done.stdout, done.stderr) == (b"out", b"err")
    value = json.loads(
        place.nodes("exec", "n1", "--json", "--", "sh", "-c", f"exit {code}", code=code).stdout
    )
    assert value["result"].get("exit_code") == code


def test_a_command_asked_again_gives_its_output_again(place: Place) -> None:
    """Whoever asks with a key that was used gets all of it, also from a brain that has just
    begun, and nothing runs a second time."""
    run = script(place, "once", f"#!/bin/sh\necho x >>{place.files}/ran\nseq 30000\necho e >&2\n")
    first = place.nodes("exec", "n1", "--key", "asked-again", "--", run)
    assert first.stdout.endswith(b"\n30000\n")
    for number in range(2):
        again = place.nodes("exec", "n1", "--key", "asked-again", "--queue-until", "20s", "--", run)
        assert (again.stdout, again.stderr) == (first.stdout, first.stderr)
        if not number:
            brain = place.asked("status")
            os.kill(brain["pid"], signal.SIGKILL)
            place.serve("--port", str(brain["port"]))
            place.until(lambda: place.status() == "connected")
    assert (place.files / "ran").read_text() == "x\n"
    # the same as data, with start and end as any other answer has them
    again = place.nodes("exec", "n1", "--json", "--key", "asked-again", "--", run)
    told = json.loads(again.stdout)["result"]
    head, tail = told["stdout"]["head"].encode(), told["stdout"]["tail"].encode()
    assert first.stdout.startswith(head)
    assert first.stdout.endswith(tail)
    assert len(head) == len(tail) == 64 * 1024
    assert (told["stderr"]["head"], told["exit_code"]) == ("e\n", 0)
    assert (place.files / "ran").read_text() == "x\n"


def test_what_holds_the_streams_does_not_hold_the_answer(place: Place) -> None:
    mark = f"77{os.getpid()}"
    run = script(place, "held", f"#!/bin/sh\necho started\nsleep {mark} &\nexit 3\n")
    before = time.monotonic()
    done = place.nodes("exec", "n1", "--", run, code=3)
    assert time.monotonic() - before < 10
    assert done.stdout == b"started\n"
    assert b"still had its output open" in done.stderr
    place.nodes("exec", "n1", "--", "true")
    gone(f"sleep\0{mark}")


def test_characters_are_never_parted(place: Place) -> None:
    run = script(
        place,
        "split",
        "#!/bin/sh\nfor b in 303 251 342 202 254 360 237 230 200; do\n"
        '  printf "\\\\$b"; sleep 0.02\ndone\n',
    )
    whole = "é€😀".encode()
    assert place.nodes("exec", "n1", "--", run).stdout == whole
    value = (
        place.asked("exec", "n1", "--", run)
        if False
        else json.loads(place.nodes("exec", "n1", "--json", "--", run).stdout)
    )
    assert value["result"]["stdout"]["head"] == "é€😀"


def test_binary_output_is_exact(place: Place) -> None:
    data = bytes(range(256)) * 4000
    (place.files / "bytes").write_bytes(data)
    assert place.nodes("exec", "n1", "--", "cat", str(place.files / "bytes")).stdout == data
    value = json.loads(
        place.nodes(
            "exec", "n1", "--json", "--", "head", "-c", "5", str(place.files / "bytes")
        ).stdout
    )
    assert value["result"]["stdout"]["head"] == {"b64": "AAECAwQ="}


def test_input_goes_through_and_ends(place: Place) -> None:
    data = os.urandom(2_000_000)
    done = place.nodes("exec", "n1", "--stdin", "--", "sha256sum", data=data)
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert place.nodes("exec", "n1", "--", "cat").stdout == b""


def test_both_streams_at_once_are_whole(place: Place) -> None:
    run = script(
        place,
        "both",
        "#!/bin/sh\nyes out | head -c 8000000 &\nyes err | head -c 8000000 >&2 &\nwait\n"
        "echo END-OUT; echo END-ERR >&2\n",
    )
    done = place.nodes("exec", "n1", "--", run)
    assert (
        hashlib.sha256(done.stdout).digest()
        == hashlib.sha256(b"out\n" * 2_000_000 + b"END-OUT\n").digest()
    )
    assert done.stderr == b"err\n" * 2_000_000 + b"END-ERR\n"


def test_a_line_of_a_hundred_megabytes(place: Place) -> None:
    value = json.loads(
        place.nodes("exec", "n1", "--json", "--", "sh", "-c", "head -c 100000000 /dev/zero").stdout
    )
    told = value["result"]["stdout"]
    assert told["bytes_total"] == 100_000_000
    assert len(told["head"]) > 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"a\r\nb\r\n",
        b"\xef\xbb\xbfbom\n",
        "utf16".encode("utf-16"),
        b"caf\xe9\n",
        os.urandom(700_000),
    ],
    ids=["empty", "one", "crlf", "bom", "utf16", "latin1", "binary"],
)
def test_write_and_read_back_is_the_identity(place: Place, data: bytes) -> None:
    path = str(place.files / "identity")
    place.nodes("write", "n1", path, data=data)
    assert pathlib.Path(path).read_bytes() == data
    assert place.nodes("read", "n1", path).stdout == data
    if len(data) > 3:
        assert place.nodes("read", "n1", path, "--offset", "1", "--length", "2").stdout == data[1:3]
        assert place.nodes("read", "n1", path, "--offset=-2").stdout == data[-2:]
    place.nodes("write", "n1", path, "--append", data=b"delta\n")
    assert pathlib.Path(path).read_bytes() == data + b"delta\n"


def test_a_tree_goes_and_comes_back(place: Place, tmp_path: pathlib.Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "empty").mkdir()
    (tree / "a" / "f").write_bytes(b"f" * 500_000)
    (tree / os.fsdecode(b"raw \xff")).write_text("raw")
    (tree / "link").symlink_to("/etc/passwd")
    os.mkfifo(tree / "fifo")
    with open(tree / "sparse", "wb") as file:
        file.truncate(1 << 30)
    target = str(place.files / "tree")
    first = place.asked("put", "n1", str(tree), target, code=1)  # the fifo is left out
    assert [one["path"] for one in first["skipped"]] == ["fifo"]
    assert os.readlink(f"{target}/link") == "/etc/passwd"
    again = place.asked("put", "n1", str(tree), target, code=1)
    assert again.get("files", 0) == 0
    back = tmp_path / "back"
    place.nodes("get", "n1", target, str(back))
    assert sorted(os.listdir(back)) == sorted(set(os.listdir(tree)) - {"fifo"})
    assert (back / "a" / "f").read_bytes() == b"f" * 500_000
    assert (back / "sparse").stat().st_blocks < 1000
    (tree / "a" / "f").unlink()
    place.nodes("put", "n1", str(tree), target, "--delete", code=1)
    assert not os.path.exists(f"{target}/a/f")


def test_what_the_policy_keeps_is_kept(place: Place) -> None:
    for words in (("read", "n1", "/etc/passwd"), ("ls", "n1", "/etc")):
        done = place.nodes(*words, code=3)
        assert b"may not be read" in done.stderr
    done = place.nodes("write", "n1", "/etc/handoff-test", data=b"x", code=3)
    assert not os.path.exists("/etc/handoff-test")
    assert b"may not be written" in done.stderr


def test_a_time_limit_ends_the_whole_tree(place: Place) -> None:
    mark = f"78{os.getpid()}"
    before = time.monotonic()
    done = place.nodes(
        "exec",
        "n1",
        "--timeout",
        "1s",
        "--shell",
        f"echo part; sleep {mark} & sleep {mark}",
        code=124,
    )
    assert time.monotonic() - before < 15
    assert done.stdout == b"part\n"
    assert done.stderr == b"handoff: n1: ended at its time limit\n"
    gone(f"sleep\0{mark}")


def test_a_renamed_node_stays(place: Place) -> None:
    assert json.loads(place.nodes("--json", "rename", "n1", "attic").stdout)["name"] == "attic"
    try:
        place.nodes("exec", "attic", "--", "true")
        assert b"no node 'n1'" in place.nodes("exec", "n1", "--", "true", code=4).stderr
    finally:
        place.nodes("rename", "attic", "n1")


def test_ctrl_c_ends_the_command_there(place: Place) -> None:
    mark = f"79{os.getpid()}"
    import subprocess
    import sys

    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "handoff.cli.main",
            "nodes",
            "exec",
            "n1",
            "--shell",
            f"echo up; sleep {mark}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=place.env(),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode != 0
    gone(f"sleep\0{mark}")


def test_jobs_go_on_without_anybody(place: Place) -> None:
    job = place.asked("jobs", "n1", "start", "--shell", "echo one; sleep 0.3; echo two; exit 3")[
        "job"
    ]
    place.nodes("jobs", "n1", "wait", job, code=3)
    assert place.nodes("jobs", "n1", "tail", job).stdout == b"one\ntwo\n"
    listed = place.asked("jobs", "n1")
    assert job in [one["job"] for one in listed["jobs"]]
    place.nodes("jobs", "n1", "forget", job)
    forgotten = place.nodes("jobs", "n1", "tail", job, code=4).stderr
    assert b"try: handoff nodes jobs n1\n" in forgotten


def test_a_shell_keeps_its_folder_and_says_when_it_is_lost(place: Place) -> None:
    def line(text: str, code: int = 0) -> bytes:
        done = place.nodes("exec", "n1", "--in", "work", "--shell", text, code=code)
        return done.stdout if code == 0 else done.stderr

    assert place.asked("shells", "n1") == {"shells": []}
    lost = line("true", code=4)
    assert b"what it held is lost" in lost
    assert b"try: open it anew: handoff nodes shells NODE open work" in lost
    words = ("shells", "n1", "open", "work", "--cwd", str(place.files), "--env", "A=a b")
    assert place.asked(*words)["opened"] is True
    assert "opened" not in place.asked(*words)
    assert line("mkdir sub; cd sub; f() { echo f$A; }") == b""
    assert line("f; pwd") == f"fa b\n{place.files}/sub\n".encode()
    told = place.nodes("exec", "n1", "--in", "work", "--", "printf", "%s", "a  b")
    assert told.stdout == b"a  b"
    assert [one["cwd"] for one in place.asked("shells", "n1")["shells"]] == [f"{place.files}/sub"]
    for more in (["--cwd", "/"], ["--env", "A=1"], ["--stdin"]):
        done = place.nodes("exec", "n1", "--in", "work", *more, "--", "true", code=2)
        assert b"nodes shells NODE open work" in done.stderr
    assert b"what it held is lost" in line("exit 3", code=3)
    assert b"try: open it anew" in line("true", code=4)
    place.nodes("shells", "n1", "open", "work")
    assert place.asked("shells", "n1", "close", "work") == {"changed": True}
    assert place.asked("shells", "n1", "close", "work") == {"changed": False}
    assert place.nodes("shells", "n1", "open", code=2).stderr


def test_secrets_stay_out_of_both_audits(place: Place) -> None:
    secret = "ghp_" + "Zx3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3eF5"
    place.nodes("exec", "n1", "--", "true", secret)
    place.nodes("write", "n1", str(place.files / "secret"), data=secret.encode())
    assert place.nodes("read", "n1", str(place.files / "secret")).stdout == secret.encode()
    for path in place.root.rglob("audit*.jsonl"):
        assert secret not in path.read_text()
    assert place.asked("logs", "--verify")["findings"] == []
    assert json.loads(place.node("logs", "--verify", "--json").stdout)["findings"] == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("exec", "n1"), 2),
        (("exec", "n1", "--shell", "x", "--", "y"), 2),
        (("exec", "none", "--", "true"), 4),
        (("exec", "n1", "--env", "x", "--", "true"), 2),
        (("exec", "n1", "--timeout", "never", "--", "true"), 2),
        (("exec", "n1", "--cwd", "/no/such", "--", "true"), 4),
        (("read", "n1", ""), 2),
        (("write", "n1", "x", "--mode", "999"), 2),
        (("pair", "a/b"), 2),
        (("pair", "n1"), 3),
        (("rename", "none", "x"), 4),
        (("jobs", "n1", "tail", "nothing"), 4),
        (("nothing",), 2),
        (("get", "n1", "/no/such", "x"), 3),
        (("put", "n1", "/no/such", "x"), 4),
    ],
)
def test_what_is_wrong_is_said_in_one_line(place: Place, words: tuple[str, ...], code: int) -> None:
    done = place.nodes(*words, code=code)
    assert done.stderr.startswith(b"handoff: ")
    assert b"Traceback" not in done.stderr


def test_a_second_node_and_a_second_brain_are_refused(place: Place) -> None:
    done = place.node("run", code=3)
    assert b"runs in" in done.stderr
    done = place.nodes("serve", code=3)
    assert b"already" in done.stderr


def test_doctors_are_content(place: Place) -> None:
    assert place.asked("doctor")["ok"]
    assert json.loads(place.node("doctor", "--json").stdout)["ok"]
    assert json.loads(place.node("status", "--json").stdout)["state"] == "connected"
    assert json.loads(place.node("validate", "--json").stdout)["ok"]


def test_ask_approve_lock(tmp_path: pathlib.Path) -> None:
    with running(tmp_path) as place:
        policy = place.config().parent / "policy.toml"
        policy.write_text('[exec]\ndefault = "ask"\n')
        done = place.nodes("exec", "n1", "--", "touch", f"{tmp_path}/ran", code=3)
        assert b"hermes-node approve" in done.stderr
        assert not (tmp_path / "ran").exists()
        ask = json.loads(place.node("asks", "--json").stdout)["asks"][0]["id"]
        place.node("approve", ask)
        place.nodes("exec", "n1", "--", "touch", f"{tmp_path}/ran")
        assert (tmp_path / "ran").exists()
        policy.unlink()
        place.node("lock")
        place.nodes("exec", "n1", "--", "true", code=3)
        place.node("unlock")
        place.nodes("exec", "n1", "--", "true")
        before = time.monotonic()
        place.nodes("revoke", "n1")
        place.until(lambda: place.status() == "refused", 5)
        assert time.monotonic() - before < 5
        place.nodes("exec", "n1", "--", "true", code=5)

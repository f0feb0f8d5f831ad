"""The engine of a node: once or told, under its policy, audited on the way."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handoff.clock import SystemClock
from handoff.errors import StorageFull
from handoff.nodes import audit
from handoff.nodes.node import execs, retention
from handoff.nodes.node.engine import Engine, Settings, Who
from handoff.nodes.node.streams import Withdrawn
from handoff.redaction import Redactor
from handoff.wire.node import calls
from handoff.wire.node.calls import CallFailed, Exec, ExecResult, Write

WHO = Who("brain", {"session": "s1"})


def settings(root: pathlib.Path) -> Settings:
    (root / "node").mkdir(exist_ok=True, mode=0o700)
    (root / "home").mkdir(exist_ok=True)
    (root / "files").mkdir(exist_ok=True)
    return Settings(
        str(root / "node"),
        str(root / "home"),
        str(root / "node" / "policy.toml"),
        (str(root / "files"), str(root / "home")),
        "0",
    )


@contextlib.asynccontextmanager
async def engine(root: pathlib.Path, *, stop: bool = True) -> AsyncIterator[Engine]:
    made = settings(root)
    log = audit.Audit(f"{made.folder}/audit", "node", Redactor(b"k" * 32).redact, SystemClock())
    environ = {"PATH": os.environ["PATH"], "SECRET_OF_THE_NODE": "1"}
    one = Engine(made, log, SystemClock(), environ)
    await one.open()
    try:
        yield one
    finally:
        await one.close(stop=stop)
        log.close()


class Collect:
    """Streams of one call, kept."""

    def __init__(self, *given: bytes, cut_after: int | None = None) -> None:
        self.got: dict[str, bytes] = {}
        self._given = list(given)
        self._cut = cut_after

    async def send(self, name: str, offset: int, data: bytes) -> None:
        assert offset == len(self.got.get(name, b""))
        self.got[name] = self.got.get(name, b"") + data

    async def receive(self) -> bytes:
        if self._cut is not None:
            if self._cut == 0:
                raise ConnectionError("cut")
            self._cut -= 1
        return self._given.pop(0) if self._given else b""

    def more(self) -> list[bytes]:
        taken = len(self._given) // 2 if self._cut is None else 0
        found, self._given = self._given[:taken], self._given[taken:]
        return found


async def ok(one: Engine, key: str, call: calls.Call, streams: Any = None) -> Any:
    good, answer = await one.call(key, call, WHO, streams)
    assert good, answer
    # every answer must survive the wire
    value = calls.to_json(answer)
    assert calls.result_from_json(type(call), True, value) == answer
    return answer


async def refused(one: Engine, key: str, call: calls.Call, streams: Any = None) -> CallFailed:
    good, answer = await one.call(key, call, WHO, streams)
    assert not good
    assert isinstance(answer, CallFailed)
    return answer


async def test_a_command_tells_all_of_itself(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        script = "printf 'out é'; printf err >&2; exit 7"
        made: ExecResult = await ok(one, "key-0001", Exec(command=script))
        assert (made.status, made.exit_code) == ("error", 7)
        assert (made.stdout.head, made.stderr.head) == ("out é".encode(), b"err")
        assert made.stdout.cut == 0
        again = await ok(one, "key-0001", Exec(command=script))
        assert again == made
        other = await refused(one, "key-0001", Exec(command="other"))
        assert other.code == "request_conflict"


async def test_a_call_that_is_repeated_at_once_runs_once(tmp_path: pathlib.Path) -> None:
    call = Exec(command=f"echo x >>{tmp_path}/ran; sleep 0.2; echo done")
    async with engine(tmp_path) as one:
        answers = await asyncio.gather(*(ok(one, "key-0001", call) for _ in range(10)))
        assert len({answer.stdout.head for answer in answers}) == 1
        assert (tmp_path / "ran").read_text() == "x\n"
        assert one.known("key-0001").state == "done"
        assert one.known("key-9999").state == "never_seen"


async def test_cwd_env_home_and_stdin(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        (tmp_path / "home" / "sub dir").mkdir()
        call = Exec(
            command='pwd; echo "$X"; cat; cd; pwd',
            cwd="~/sub dir",
            env={"X": "a 'b'\n"},
            stdin="given",
            stdin_data=b"\xffgiven\n",
        )
        made = await ok(one, "key-0001", call)
        home = f"{tmp_path}/home"
        assert made.stdout.head == f"{home}/sub dir\na 'b'\n\n".encode() + b"\xffgiven\n" + (
            home.encode() + b"\n"
        )
        for cwd, code in (
            ("~/none", "file_not_found"),
            (f"{tmp_path}/node/calls.sqlite3", "not_a"),
        ):
            failed = await refused(
                one, f"key-{code}", Exec(command=f"touch {tmp_path}/ran", cwd=cwd)
            )
            assert failed.code.startswith(code)
        assert not (tmp_path / "ran").exists()


async def test_a_command_sees_nothing_of_the_nodes_own_variables(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        made = await ok(one, "key-0001", Exec(argv=("env",)))
        names = {line.partition("=")[0] for line in made.stdout.head.decode().splitlines()}
        assert "PATH" in names
        assert "SECRET_OF_THE_NODE" not in names


async def test_a_cancel_reaches_a_command_in_a_shell_session(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        await ok(one, "key-0001", calls.ShellOpen("work"))
        started = tmp_path / "ran"
        command = f"echo some; echo x >{started}; sleep 600"
        asked = asyncio.create_task(one.call("key-0002", Exec(command=command, shell="work"), WHO))
        while not started.exists():
            await asyncio.sleep(0.01)
        assert await one.cancel("key-0002")
        good, answer = await asyncio.wait_for(asked, 20)
        assert good
        assert isinstance(answer, ExecResult)
        assert (answer.status, answer.stdout.head) == ("cancelled", b"some\n")
        assert "ended with it" in answer.note
        assert not await one.cancel("key-0002")


async def test_streams_both_ways(tmp_path: pathlib.Path) -> None:
    data = os.urandom(2_000_000)
    async with engine(tmp_path) as one:
        lines = Collect(data[:900_000], data[900_000:])
        call = Exec(command="cat; echo end >&2", stdin="stream", stream=True)
        made = await ok(one, "key-0001", call, lines)
        assert lines.got == {"stdout": data, "stderr": b"end\n"}
        assert made.stdout.streamed
        assert made.stdout.bytes_total == len(data)


async def test_large_output_keeps_head_tail_and_the_rest(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        script = "yes é | head -c 3000001"
        call = Exec(command=script, head_bytes=1000, tail_bytes=1000)
        made = await ok(one, "key-0001", call)
        whole = ("é\n" * 1_000_001).encode()[:3_000_001]
        assert made.stdout.bytes_total == len(whole)
        made.stdout.head.decode()
        assert made.stdout.head == whole[: len(made.stdout.head)]
        assert whole.endswith(made.stdout.tail)
        assert made.stdout.cut > 0
        part = await ok(one, "key-0002", calls.ReadOutput(made.stdout.spill, 1_500_000, 5000))
        assert part.data == whole[1_500_000:1_505_000]


async def test_timeout_and_cancel_give_what_came(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        made = await ok(
            one, "key-0001", Exec(command="echo part; sleep 60 & sleep 60", timeout_ms=300)
        )
        assert (made.status, made.ended_by, made.stdout.head) == ("timeout", "timeout", b"part\n")
        call = asyncio.create_task(ok(one, "key-0002", Exec(command="echo part; exec sleep 60")))
        while not await one.cancel("key-0002"):
            await asyncio.sleep(0.01)
        made = await call
        assert (made.status, made.ended_by) == ("cancelled", "cancel")


async def test_jobs(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "go")
    async with engine(tmp_path) as one:
        command = f"echo one; cat {tmp_path}/go; echo two; exit 3"
        job = await ok(one, "job-00001", Exec(command=command, job=True, timeout_ms=0))
        assert job.state == "running"
        assert (await ok(one, "key-0002", calls.JobWait("job-00001", 50))).state == "running"
        assert [one.job for one in (await ok(one, "key-0003", calls.JobList())).jobs] == [
            "job-00001"
        ]
        assert not (await ok(one, "key-0004", calls.JobForget("job-00001"))).changed
        with open(tmp_path / "go", "w"):
            pass
        ended = await ok(one, "key-0005", calls.JobWait("job-00001", 20_000))
        assert ended.ended.exit_code == 3
        tail = await ok(one, "key-0006", calls.JobTail("job-00001", "stdout", -4))
        assert tail.data == b"two\n"
        assert (await ok(one, "key-0007", calls.JobForget("job-00001"))).changed
        assert (await refused(one, "key-0008", calls.JobTail("job-00001"))).code == "unknown_call"
        await ok(one, "job-00002", Exec(command="exec sleep 600", job=True, timeout_ms=0))
        killed = await ok(one, "key-0009", calls.JobKill("job-00002", 500))
        assert killed.ended.status == "cancelled"


async def test_files_through_the_engine(tmp_path: pathlib.Path) -> None:
    path = f"{tmp_path}/files/f"
    async with engine(tmp_path) as one:
        made = await ok(one, "key-0001", Write(path, b"one\r\ntwo\r\n", mode="create"))
        assert made.created
        got = await ok(one, "key-0002", calls.Read(path))
        assert (got.data, got.newline, got.lines, got.utf8) == (b"one\r\ntwo\r\n", "crlf", 2, True)
        changed = await ok(one, "key-0003", calls.Edit(path, b"two", b"2", if_match=got.etag))
        assert changed.replaced == 1
        assert (tmp_path / "files" / "f").read_bytes() == b"one\r\n2\r\n"
        late = await refused(one, "key-0004", Write(path, b"x", if_match=got.etag))
        assert late.code == "if_match_failed"
        assert (await refused(one, "key-0005", calls.Edit(path, b"no", b"x"))).code == "bad_request"
        await ok(one, "key-0006", calls.Mkdir(f"{tmp_path}/files/d/e"))
        await ok(one, "key-0007", calls.Move(path, f"{tmp_path}/files/d/e/g"))
        found = await ok(one, "key-0008", calls.Glob(f"{tmp_path}/files", "**/g"))
        assert [entry.path for entry in found.entries] == ["d/e/g"]
        lines = await ok(one, "key-0009", calls.Grep(f"{tmp_path}/files", "^2"))
        assert [(one.path, one.line, one.text) for one in lines.matches] == [("d/e/g", 2, b"2")]
        digest = await ok(one, "key-0010", calls.Hash(f"{tmp_path}/files/d/e/g"))
        assert digest.sha256 == hashlib.sha256(b"one\r\n2\r\n").hexdigest()
        assert (await ok(one, "key-0011", calls.Stat(f"{tmp_path}/files/d"))).kind == "dir"
        denied = await refused(one, "key-0012", calls.Read("/etc/passwd"))
        assert denied.code == "path_not_allowed"
        assert (await refused(one, "key-0013", Write("/etc/x", b"x"))).code == "path_not_allowed"
        gone = await ok(one, "key-0014", calls.Delete(f"{tmp_path}/files/d", recursive=True))
        assert gone.count == 3


async def test_an_upload_that_is_cut_goes_on(tmp_path: pathlib.Path) -> None:
    data = os.urandom(1_000_000)
    digest = hashlib.sha256(data).hexdigest()
    path = f"{tmp_path}/files/f"
    parts = [data[at : at + 100_000] for at in range(0, len(data), 100_000)]
    call = Write(path, stream=True, size=len(data), sha256=digest, transfer="upload-01")
    async with engine(tmp_path) as one:
        cut = await refused(one, "key-0001", call, Collect(*parts, cut_after=4))
        assert cut.retry_safe
        assert not os.path.exists(path)
    async with engine(tmp_path) as one:  # and the node was started anew
        there = await ok(one, "key-0002", calls.TransferStat("upload-01"))
        assert there.received == 400_000
        assert there.sha256 == hashlib.sha256(data[:400_000]).hexdigest()
        import dataclasses

        rest = dataclasses.replace(call, offset=400_000)
        made = await ok(one, "key-0001", rest, Collect(*parts[4:]))
        assert made.size == len(data)
        assert pathlib.Path(path).read_bytes() == data
        assert os.listdir(tmp_path / "files") == ["f"]


@pytest.mark.parametrize("end", [ConnectionError, Withdrawn])
@pytest.mark.parametrize("others", [b"", b"theirs"])
async def test_an_append_that_is_cut_leaves_nothing_or_says_so(
    tmp_path: pathlib.Path, end: type[ConnectionError], others: bytes
) -> None:
    path = tmp_path / "files" / "f"

    class Cut(Collect):
        async def receive(self) -> bytes:
            if self._given:
                return await super().receive()
            assert path.read_bytes() == b"old" + b"half"
            with open(path, "ab") as file:
                file.write(others)
            raise end

        def more(self) -> list[bytes]:
            return []

    call = Write(str(path), mode="append", stream=True, size=100)
    async with engine(tmp_path) as one:
        path.write_bytes(b"old")
        cut = await refused(one, "key-0001", call, Cut(b"half"))
        assert cut.retry_safe is not bool(others)
        assert (cut.code == "outcome_unknown") is bool(others)
        assert path.read_bytes() == (b"oldhalftheirs" if others else b"old")
        assert one.known("key-0001").state == ("unknown_outcome" if others else "never_seen")


async def test_trees_through_the_engine(tmp_path: pathlib.Path) -> None:
    (tmp_path / "files" / "t" / "d").mkdir(parents=True)
    (tmp_path / "files" / "t" / "d" / "f").write_bytes(b"f" * 300_000)
    async with engine(tmp_path) as one:
        lines = Collect()
        await ok(one, "key-0001", calls.TreeGet(f"{tmp_path}/files/t"), lines)
        stream = lines.got["data"]
        pieces = [stream[at : at + 70_000] for at in range(0, len(stream), 70_000)]
        made = await ok(one, "key-0002", calls.TreePut(f"{tmp_path}/files/copy"), Collect(*pieces))
        assert (made.files, made.dirs) == (1, 1)
        assert (tmp_path / "files" / "copy" / "d" / "f").read_bytes() == b"f" * 300_000
        told = await ok(one, "key-0003", calls.TreeManifest(f"{tmp_path}/files/copy"), Collect())
        assert told.files == 1


POLICY = """
read = ["{0}/files"]
write = ["{0}/files"]
[exec]
default = "ask"
[[exec.rules]]
match = "echo **"
verdict = "allow"
[[exec.rules]]
match = "rm **"
verdict = "deny"
"""


async def test_the_policy_is_asked_and_the_audit_told(tmp_path: pathlib.Path) -> None:
    made = settings(tmp_path)
    pathlib.Path(made.policy).write_text(POLICY.format(tmp_path))
    async with engine(tmp_path) as one:
        await ok(one, "key-0001", Exec(command="echo hi"))
        assert (await refused(one, "key-0002", Exec(command="rm -rf x"))).code == "policy_denied"
        ask = await refused(one, "key-0003", Exec(command=f"touch {tmp_path}/ran"))
        assert ask.code == "policy_ask"
        assert ask.retry_safe
        assert not (tmp_path / "ran").exists()
        assert [waiting["id"] for waiting in one.journal.asks()] == [ask.details["ask"]]
        assert one.journal.rule(ask.details["ask"], "allow")
        await ok(one, "key-0003", Exec(command=f"touch {tmp_path}/ran"))
        assert (tmp_path / "ran").exists()
        # an allowance is good for one call
        again = await refused(one, "key-0004", Exec(command=f"touch {tmp_path}/ran"))
        assert again.code == "policy_ask"
        pathlib.Path(made.policy).write_text("this is no toml")
        broken = await refused(one, "key-0005", Exec(command="echo hi"))
        assert broken.code == "config_invalid"
        assert (await refused(one, "key-0006", calls.Stat("~"))).code == "config_invalid"
    rows = list(audit.rows(f"{made.folder}/audit"))
    told = [(row["event"], row["request_id"], row.get("verdict"), row.get("code")) for row in rows]
    assert told[:4] == [
        ("call", "key-0001", "allow", None),
        ("result", "key-0001", None, None),
        ("call", "key-0002", "deny", "policy_denied"),
        ("call", "key-0003", "deny", "policy_ask"),
    ]
    assert not audit.verify(f"{made.folder}/audit").findings


_NODE = """
import asyncio, os, pathlib, sys
sys.path.insert(0, sys.argv[2])
from tests.integration.nodes.test_node_engine import WHO, engine
from handoff.wire.node.calls import Exec, Write
async def main():
    async with engine(pathlib.Path(sys.argv[1]), stop=False) as one:
        call = Exec(command=sys.argv[3])
        task = asyncio.create_task(one.call("key-0001", call, WHO))
        await asyncio.sleep(0)
        print("sent", flush=True)
        await task
asyncio.run(main())
"""


@pytest.mark.parametrize("after", ["sent", "ran"])
async def test_a_killed_node_finds_its_command_again(tmp_path: pathlib.Path, after: str) -> None:
    os.mkfifo(tmp_path / "go")
    command = f"echo x >>{tmp_path}/ran; cat {tmp_path}/go; echo over; exit 5"
    root = pathlib.Path(__file__).parents[3]
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _NODE, str(tmp_path), str(root), command),
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"sent\n"
    while after == "ran" and not (tmp_path / "ran").exists():
        await asyncio.sleep(0.01)
    child.kill()
    await child.wait()
    async with engine(tmp_path) as one:
        repeated = asyncio.create_task(one.call("key-0001", Exec(command=command), WHO))
        if after == "ran":
            await asyncio.sleep(0.05)
            with open(tmp_path / "go", "w"):
                pass
            good, answer = await repeated
            assert good
            assert isinstance(answer, ExecResult)
            assert (answer.exit_code, answer.stdout.head) == (5, b"over\n")
            assert (tmp_path / "ran").read_text() == "x\n"
        else:
            # it may have been started or not: the answer says which, and it is never run again
            done, _ = await asyncio.wait([repeated], timeout=1)
            if not done:
                with open(tmp_path / "go", "w"):
                    pass
            good, answer = await repeated
            runs = (tmp_path / "ran").read_text() if (tmp_path / "ran").exists() else ""
            assert runs in {"", "x\n"}
            if good:
                assert answer.exit_code == 5
            else:
                assert answer.code == "outcome_unknown"


async def test_without_a_journal_nothing_runs(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        one.journal._db.execute("PRAGMA max_page_count = 1")
        one.journal._db.execute("PRAGMA query_only = ON")
        failed = await refused(one, "key-0001", Exec(command=f"touch {tmp_path}/ran"))
        assert failed.code in {"storage_full", "storage_failed"}
        assert not (tmp_path / "ran").exists()


async def test_a_shell_session_keeps_what_it_is_told(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        info = await ok(one, "key-0001", calls.ShellOpen("s"))
        again = await ok(one, "key-0002", calls.ShellOpen("s"))
        assert (again.id, info.opened, again.opened) == (info.id, True, False)
        (tmp_path / "home" / "sub").mkdir()
        made = await ok(
            one, "key-0003", Exec(command="cd sub; export X='a b'; f() { echo f$X; }", shell="s")
        )
        assert (made.exit_code, made.cwd) == (0, f"{tmp_path}/home/sub")
        made = await ok(one, "key-0004", Exec(command="f; pwd >&2; cat; false", shell="s"))
        assert (made.exit_code, made.stdout.head) == (1, b"fa b\n")
        assert made.stderr.head == f"{tmp_path}/home/sub\n".encode()
        lines = Collect()
        made = await ok(
            one,
            "key-0005",
            Exec(command="printf 'EXIT 1'; head -c 300000 /dev/zero", shell="s", stream=True),
            lines,
        )
        assert lines.got["stdout"] == b"EXIT 1" + bytes(300_000)
        assert (await ok(one, "key-0006", calls.ShellList())).shells[0].name == "s"
        both = await asyncio.gather(
            *(
                ok(one, f"key-1{n:03d}", Exec(command=f"sleep 0.1; echo {n}", shell="s"))
                for n in range(5)
            )
        )
        assert [one.stdout.head for one in both] == [b"%d\n" % n for n in range(5)]
        bad = await refused(one, "key-0007", Exec(command="x", shell="s", cwd="/"))
        assert bad.code == "bad_request"


async def test_a_shell_session_that_is_lost_is_said(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        await ok(one, "key-0001", calls.ShellOpen("s"))
        made = await ok(one, "key-0002", Exec(command="echo part; exit 3", shell="s"))
        assert (made.exit_code, made.stdout.head) == (3, b"part\n")
        assert "lost" in made.note
        assert (
            await refused(one, "key-0003", Exec(command="true", shell="s"))
        ).code == "unknown_call"
        await ok(one, "key-0004", calls.ShellOpen("s"))
        made = await ok(
            one,
            "key-0005",
            Exec(command="echo part; sleep 60", shell="s", timeout_ms=200, grace_ms=100),
        )
        assert (made.status, made.stdout.head) == ("timeout", b"part\n")
        assert "lost" in made.note
        await ok(one, "key-0006", calls.ShellOpen("t"))
        assert (await ok(one, "key-0007", calls.ShellClose("t"))).changed
        assert not (await ok(one, "key-0008", calls.ShellClose("t"))).changed


async def test_a_shell_session_outlives_the_node(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path, stop=False) as one:
        first = await ok(one, "key-0001", calls.ShellOpen("s"))
        await ok(one, "key-0002", Exec(command="X=kept", shell="s"))
    async with engine(tmp_path) as one:
        assert (await ok(one, "key-0003", calls.ShellOpen("s"))).id == first.id
        made = await ok(one, "key-0004", Exec(command="echo $X", shell="s"))
        assert made.stdout.head == b"kept\n"


async def test_a_person_is_shown_all_that_will_run(tmp_path: pathlib.Path) -> None:
    made = settings(tmp_path)
    pathlib.Path(made.policy).write_text('[exec]\ndefault = "ask"\n')
    tail = "; rm -rf hidden"
    async with engine(tmp_path) as one:
        long = Exec(command="true " + "x" * 1000 + tail, env={"BASH_ENV": "/tmp/y"}, cwd="~")
        of_long = await refused(one, "key-0001", long)
        fed = Exec(argv=("bash",), stdin="given", stdin_data=b"echo \x1b[2K evil")
        of_fed = await refused(one, "key-0002", fed)
        assert (of_long.code, of_fed.code) == ("policy_ask", "policy_ask")
        # two of one millisecond have no order
        shown = {ask["id"]: str(ask["shown"]) for ask in one.journal.asks()}
        first, second = shown[of_long.details["ask"]], shown[of_fed.details["ask"]]
        assert tail in first
        assert "BASH_ENV=/tmp/y" in first
        assert r"input echo \x1b[2K evil" in second
        huge = await refused(one, "key-0003", Exec(command="true " + "x" * 5000))
        assert huge.code == "policy_denied"


async def test_a_call_that_breaks_the_node_is_answered(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("wrong")

    async with engine(tmp_path) as one:
        monkeypatch.setattr(one._files, "stat", broken)
        monkeypatch.setattr(one._files, "move", broken)
        read = await refused(one, "", calls.Stat("~"))
        assert (read.code, read.retry_safe) == ("internal", True)
        move = await refused(one, "key-0001", calls.Move("~/a", "~/b"))
        assert (move.code, move.retry_safe) == ("outcome_unknown", False)
        assert one.known("key-0001").state == "unknown_outcome"
        assert (await ok(one, "key-0002", Exec(command="exit 3"))).exit_code == 3


@pytest.mark.parametrize("what", ["journal", "audit"])
async def test_a_disk_that_fills_meanwhile_takes_nothing_from_the_answer(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def full(*_: object, **more: object) -> None:
        raise StorageFull("no space left")

    async with engine(tmp_path) as one:
        command = f"echo x >>{tmp_path}/ran; read x <{tmp_path}/go; exit 5"
        os.mkfifo(tmp_path / "go")
        asked = asyncio.create_task(one.call("key-0001", Exec(command=command), WHO))
        await asyncio.to_thread(os.close, await asyncio.to_thread(_opened, tmp_path / "go"))
        if what == "journal":
            monkeypatch.setattr(one.journal, "end", full)
        else:
            monkeypatch.setattr(one._audit, "row", full)
        good, answer = await asked
        assert good
        assert isinstance(answer, ExecResult)
        assert answer.exit_code == 5
        monkeypatch.undo()
        await one.call("key-0001", Exec(command=command), WHO)
        assert (tmp_path / "ran").read_text() == "x\n"


def _opened(path: pathlib.Path) -> int:
    return os.open(path, os.O_WRONLY)


async def test_a_keeper_killed_under_a_call_that_was_taken_up(tmp_path: pathlib.Path) -> None:
    call = Exec(command=f"echo x >>{tmp_path}/ran; exec sleep 600")
    async with engine(tmp_path, stop=False) as one:
        asked = asyncio.create_task(one.call("key-0001", call, WHO))
        while not (tmp_path / "ran").exists():
            await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    async with engine(tmp_path) as one:
        again = asyncio.create_task(one.call("key-0001", call, WHO))
        await asyncio.sleep(0)
        pid = json.loads((tmp_path / "node" / "calls" / "keeper.json").read_text())["pid"]
        assert pid > 1
        os.kill(pid, signal.SIGKILL)
        good, answer = await asyncio.wait_for(again, 20)
        assert not good
        assert isinstance(answer, CallFailed)
        assert answer.code == "outcome_unknown"
        assert (tmp_path / "ran").read_text() == "x\n"


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open")
async def test_a_job_of_a_killed_keeper_is_ended_though_nobody_asks(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        job = await ok(one, "job-00001", Exec(command="exec sleep 600", job=True, timeout_ms=0))
        gone = os.pidfd_open(job.pid)
        pid = json.loads((tmp_path / "node" / "calls" / "keeper.json").read_text())["pid"]
        assert pid > 1
        os.kill(pid, signal.SIGKILL)
        ended = await asyncio.to_thread(select.select, [gone], [], [], 20)
        os.close(gone)
        assert ended[0] == [gone]


async def test_a_job_whose_start_was_not_noted_is_a_job(tmp_path: pathlib.Path) -> None:
    call = Exec(command="exec sleep 600", job=True, timeout_ms=0)
    async with engine(tmp_path, stop=False) as one:
        await ok(one, "key-0001", call)
        one.journal._db.execute("UPDATE calls SET state='running', ok=NULL, answer=NULL")
    async with engine(tmp_path) as one:
        made = await asyncio.wait_for(ok(one, "key-0001", call), 20)
        assert (made.job, made.state) == ("key-0001", "running")


async def test_a_clock_that_jumps_forgets_no_call(tmp_path: pathlib.Path) -> None:
    call = Exec(command=f"echo x >>{tmp_path}/ran")
    async with engine(tmp_path) as one:
        await ok(one, "key-0001", call)
        one.journal.prune(SystemClock().now_ms() + 3650 * 24 * 3600 * 1000)
        assert one.known("key-0001").state == "done"
        await ok(one, "key-0001", call)
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_what_is_read_is_audited(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        (tmp_path / "files" / "a").write_bytes(b"text")
        await ok(one, "read-0001", calls.Read(f"{tmp_path}/files/a"))
        assert (await refused(one, "", calls.Read("/etc/shadow"))).code == "path_not_allowed"
        assert (await refused(one, "", calls.Stat(f"{tmp_path}/files/b"))).code == "file_not_found"
        await ok(one, "", calls.GetFacts())
        await one.call("", calls.GetFacts(), Who("brain", {}))  # the brain's own question
        await ok(one, "stat-0001", calls.Stat(f"{tmp_path}/files"))
        await ok(one, "list-0001", calls.List(f"{tmp_path}/files"))
        await ok(one, "glob-0001", calls.Glob(f"{tmp_path}/files"))
        await ok(one, "hash-0001", calls.Hash(f"{tmp_path}/files/a"))
        await ok(one, "grep-0001", calls.Grep(f"{tmp_path}/files", "te"))
        await ok(one, "jobs-0001", calls.JobList())
    found = [
        (row["event"], row["request_id"], row["target"], row.get("verdict"), row.get("code"))
        for row in audit.rows(f"{tmp_path}/node/audit")
    ]
    assert found == [
        ("read", "read-0001", f"{tmp_path}/files/a", "allow", None),
        ("read", "", "/etc/shadow", "deny", "path_not_allowed"),
        ("read", "", f"{tmp_path}/files/b", "allow", "file_not_found"),
        ("read", "", "", "allow", None),
        ("read", "stat-0001", f"{tmp_path}/files", "allow", None),
        ("read", "list-0001", f"{tmp_path}/files", "allow", None),
        ("read", "glob-0001", f"{tmp_path}/files :: **", "allow", None),
        ("read", "hash-0001", f"{tmp_path}/files/a", "allow", None),
        ("read", "grep-0001", f"{tmp_path}/files :: te", "allow", None),
        ("read", "jobs-0001", "", "allow", None),
    ]
    assert audit.verify(f"{tmp_path}/node/audit").findings == []


async def test_reads_wait_for_an_audit_that_can_not_be_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine(tmp_path) as one:
        (tmp_path / "files" / "a").write_bytes(b"text")
        write = one._audit._write

        def full(*_: Any) -> int:
            raise StorageFull("no space", remedy="df -h")

        monkeypatch.setattr(one._audit, "_write", full)
        await ok(one, "read-0001", calls.Read(f"{tmp_path}/files/a"))
        one._looks.flush()
        # the row of what was read is not written: no more is given away
        assert (await refused(one, "read-0002", calls.Read(f"{tmp_path}/files/a"))).code == (
            "storage_full"
        )
        monkeypatch.setattr(one._audit, "_write", write)
        await ok(one, "read-0003", calls.Read(f"{tmp_path}/files/a"))
    ids = [row["request_id"] for row in audit.rows(f"{tmp_path}/node/audit")]
    assert ids == ["read-0001", "read-0003"]


async def test_finished_jobs_are_bounded_and_running_ones_stay(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "JOBS", 3)
    monkeypatch.setattr(execs, "CLEAN_STARTS", 5)
    async with engine(tmp_path) as one:
        run = Exec(command="exec sleep 600", job=True, timeout_ms=0)
        await ok(one, "job-running", run)
        for number in range(9):
            await ok(one, f"job-{number:05d}", Exec(command="echo x", job=True))
            await ok(one, f"wait-{number:04d}", calls.JobWait(f"job-{number:05d}", 20_000))
        cleaning = one._execs._cleaning
        assert cleaning is not None
        await cleaning
        names = [job.job for job in (await ok(one, "", calls.JobList())).jobs]
        assert "job-running" in names
        assert "job-00000" not in names
        assert len(names) <= 1 + 3 + 5
        await one.clean()
        names = [job.job for job in (await ok(one, "", calls.JobList())).jobs]
        assert sorted(names) == ["job-00006", "job-00007", "job-00008", "job-running"]
        folders = [one for one in os.scandir(tmp_path / "node" / "calls") if one.is_dir()]
        assert len(folders) <= 4 + 1  # one is kept for the next command
        gone = await refused(one, "", calls.JobTail("job-00000"))
        assert gone.code == "unknown_call"


async def test_signs_of_a_pattern_stand_within_names(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        top = tmp_path / "files"
        (top / "a").mkdir()
        for name in ("a/b", "axb", "a]b", "a.b"):
            (top / name).touch()

        async def found(pattern: str) -> list[str]:
            listing = await ok(one, "", calls.Glob(str(top), pattern))
            return [entry.path for entry in listing.entries]

        assert await found("a?b") == ["a.b", "a]b", "axb"]
        assert await found("a[!x]b") == ["a.b", "a]b"]
        assert await found("a[.-]b") == ["a.b"]
        assert await found("**/b") == ["a/b"]
        assert await found("*") == ["a", "a.b", "a]b", "axb"]
        assert (await refused(one, "", calls.Glob(str(top), "[z-a]"))).code == "bad_request"

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import stat
import sys
from pathlib import Path

import pytest
from tests.support.runs import ENV, Runs, eventually, joined, kinds, lives, until_output, whole

from handoff.errors import (
    ExecutorError,
    ExecutorGone,
    PathTooLong,
    ProtocolViolation,
    StorageError,
    UsageError,
)
from handoff.process import facts, supervisor
from handoff.process.contract import Spec
from handoff.process.shim import NO_SPEC, TAKEN


async def test_a_run_from_its_start_to_its_end(runs: Runs):
    shim = await runs.sh('read line; echo "got $line"; echo oops >&2; exit 7')
    assert await shim.send(1, b"hello\n") == 1
    records = await whole(shim)
    assert joined(records, "stdout") == b"got hello\n"
    assert joined(records, "stderr") == b"oops\n"
    assert records[0].kind == "started" and int(records[0].data) > 0
    assert joined(records, "input") == b"1"
    assert [(r.kind, r.data) for r in records[-2:]] == [("exited", b"7"), ("swept", b"0")]
    assert not await shim.alive()


async def test_offsets_join_and_any_record_may_be_the_first(runs: Runs):
    shim = await runs.sh("echo a; echo b >&2; echo c")
    records = await whole(shim)
    assert records[0].offset == 0
    assert all(one.end == two.offset for one, two in itertools.pairwise(records))
    for number, record in enumerate(records):
        assert await whole(shim, record.offset) == records[number:]
    assert await whole(shim, records[-1].end) == []


async def test_an_offset_inside_a_record_is_refused(runs: Runs):
    shim = await runs.sh("echo a")
    await whole(shim)
    with pytest.raises(StorageError, match="broken"):
        await whole(shim, 3)


async def test_a_number_seen_before_is_not_written_twice(runs: Runs):
    shim = await runs.start("/bin/cat")
    assert await shim.send(1, b"one\n") == 1
    assert await shim.send(1, b"one\n") == 1
    assert await shim.send(2, b"two\n") == 2
    assert await shim.send(1, b"one\n") == 2
    await until_output(shim, b"two\n")
    assert await shim.end(1.0) == []
    assert joined(await whole(shim), "stdout") == b"one\ntwo\n"


async def test_a_gap_is_refused_and_nothing_is_written(runs: Runs):
    shim = await runs.start("/bin/cat")
    with pytest.raises(ProtocolViolation, match="gap"):
        await shim.send(2, b"two\n")
    assert await shim.send(1, b"one\n") == 1
    await until_output(shim, b"one\n")
    await shim.end(1.0)
    assert joined(await whole(shim), "stdout") == b"one\n"


async def test_input_may_be_any_bytes(runs: Runs):
    shim = await runs.start("/bin/cat")
    raw = bytes(range(256)) + "ä\u2028\n".encode()
    await shim.send(1, raw)
    await shim.send(2, b"")
    await shim.send(3, b"\n")
    await until_output(shim, raw + b"\n")
    await shim.end(1.0)
    assert joined(await whole(shim), "stdout") == raw + b"\n"


async def test_send_to_a_process_that_has_ended(runs: Runs):
    shim = await runs.sh("exit 0")
    await whole(shim)
    with pytest.raises(ExecutorGone):
        await shim.send(1, b"late\n")


async def test_send_to_a_process_that_closed_its_input(runs: Runs):
    shim = await runs.sh("exec <&-; echo closed; sleep 60")
    await until_output(shim, b"closed")
    with pytest.raises(ExecutorGone):
        await shim.send(1, b"into the void\n")
    assert await shim.alive()
    assert [one.command for one in await shim.tree()]


async def test_a_slow_reader_of_input_does_not_hold_up_its_output(runs: Runs):
    shim = await runs.python(
        "import sys,os\nprint('up', flush=True)\n"
        "while True:\n"
        "  line = sys.stdin.buffer.readline()\n"
        "  if len(line) < 100: break\n"
        "print('small', flush=True)\n"
        "data = sys.stdin.buffer.read(3 << 20)\nprint(len(data), flush=True)\n"
    )
    await until_output(shim, b"up")
    big = asyncio.create_task(shim.send(1, b"go\n" + b"x" * (3 << 20)))
    await until_output(shim, b"small")
    assert await big == 1
    assert f"{3 << 20}\n".encode() in joined(await whole(shim), "stdout")


async def test_start_is_idempotent(runs: Runs):
    run_dir, run_id = runs.new_dir()
    spec = Spec(run_id, ("/bin/sh", "-c", "echo $$ >> pids; exec cat"), str(runs.root), ENV)
    handles = await asyncio.gather(*(supervisor.start(run_dir, spec) for _ in range(5)))
    runs.handles += handles
    assert len({handle.shim_pid for handle in handles}) == 1
    again = await supervisor.start(run_dir, spec)
    runs.handles.append(again)
    await again.end(1.0)
    assert len((runs.root / "pids").read_text().split()) == 1
    with pytest.raises(ExecutorGone):
        await supervisor.start(run_dir, spec)
    assert len((runs.root / "pids").read_text().split()) == 1


async def test_attach_finds_it_again_and_numbers_go_on(runs: Runs):
    first = await runs.start("/bin/cat")
    await first.send(1, b"one\n")
    await first.close()
    second = await runs.attach(first)
    assert await second.alive()
    assert await second.send(1, b"one\n") == 1
    assert await second.send(2, b"two\n") == 2
    await until_output(second, b"two\n")
    await second.end(1.0)
    assert joined(await whole(second), "stdout") == b"one\ntwo\n"


async def test_attach_to_what_is_dead_or_never_was(runs: Runs):
    shim = await runs.sh("echo last words")
    await whole(shim)
    with pytest.raises(ExecutorGone):
        await supervisor.attach(shim.run_dir, shim.run_id)
    left = supervisor.remains(shim.run_dir, shim.run_id)
    assert joined(await whole(left), "stdout") == b"last words\n"
    assert await left.tree() == [] and await left.end(0.1) == []
    with pytest.raises(ExecutorGone, match="never started"):
        await supervisor.attach(runs.root / "nowhere", "x")
    with pytest.raises(ExecutorGone, match="belongs to"):
        await supervisor.attach(shim.run_dir, "another")


async def test_several_clients_at_once(runs: Runs):
    shim = await runs.start("/bin/cat")
    others = [await runs.attach(shim) for _ in range(4)]
    for number, one in enumerate([shim, *others], 1):
        await one.send(number, b"%d\n" % number)
    await until_output(shim, b"5\n")
    await shim.end(1.0)
    for one in [shim, *others]:
        assert joined(await whole(one), "stdout") == b"1\n2\n3\n4\n5\n"


async def test_the_shim_pushes_so_that_waiting_costs_nothing(runs: Runs):
    shim = await runs.start("/bin/cat")
    stream = shim.records(0)
    assert (await anext(stream)).kind == "started"
    waiting = asyncio.create_task(anext(stream))
    await shim.send(1, b"x\n")
    assert (await asyncio.wait_for(waiting, 10)).kind == "input"
    await stream.aclose()


async def test_a_broken_connection_is_made_again(runs: Runs):
    shim = await runs.start("/bin/cat")
    await shim.send(1, b"one\n")
    for number in range(2, 6):
        assert shim._writer is not None
        shim._writer.transport.abort()
        assert await shim.send(number, b"%d\n" % number) == number
    await until_output(shim, b"5\n")
    await shim.end(1.0)
    assert joined(await whole(shim), "stdout") == b"one\n2\n3\n4\n5\n"


async def test_a_removed_socket_comes_back(runs: Runs):
    shim = await runs.start("/bin/cat")
    (shim.run_dir / "s").unlink()
    assert shim._writer is not None
    shim._writer.transport.abort()
    assert await asyncio.wait_for(shim.send(1, b"one\n"), 10) == 1


async def test_close_leaves_the_executor_alone(runs: Runs):
    shim = await runs.sh("echo up; exec sleep 60")
    await until_output(shim, b"up")
    await shim.close()
    with pytest.raises(ExecutorGone):
        await shim.send(1, b"x")
    assert lives(shim.shim_pid)
    assert await runs.attach(shim)


async def test_a_closed_handle_ends_its_readers(runs: Runs):
    shim = await runs.sh("echo up; exec sleep 60")
    reading = asyncio.create_task(whole(shim))
    await until_output(shim, b"up")
    await shim.close()
    assert kinds(await reading) == ["started", "stdout"]


async def test_ack_lets_old_segments_go(runs: Runs):
    limits = supervisor.Limits(segment_bytes=100_000)
    shim = await runs.sh("head -c 1000000 /dev/zero; echo; exec sleep 60", limits=limits)
    await until_output(shim, b"\n")
    names = sorted(shim.run_dir.glob("journal.*"))
    assert len(names) > 3
    middle = int(names[2].name.split(".")[1])
    await shim.ack(middle)
    assert sorted(shim.run_dir.glob("journal.*")) == names[2:]
    with pytest.raises(StorageError, match="deleted"):
        await whole(shim, 0)
    await shim.end(1.0)
    rest = await whole(shim, middle)
    assert rest[0].offset == middle and rest[-1].kind == "swept"
    await shim.ack(rest[-1].end)
    assert len(list(shim.run_dir.glob("journal.*"))) == 1


async def test_nothing_of_ours_is_readable_by_others_and_the_umask_is_the_users(runs: Runs):
    old = os.umask(0o000)
    try:
        shim = await runs.sh("umask; touch made; exec sleep 60", umask=0o027)
        other = await runs.sh("umask")
    finally:
        os.umask(old)
    assert (await until_output(shim, b"\n")).strip() == b"0027"
    assert (await until_output(other, b"\n")).strip() == b"0000"
    for path in [shim.run_dir, *shim.run_dir.iterdir()]:
        assert not path.lstat().st_mode & 0o077, path
    await eventually((runs.root / "made").exists)
    assert stat.S_IMODE((runs.root / "made").stat().st_mode) == 0o640


async def test_secrets_are_in_no_file_no_argv_and_not_in_the_shims_environment(runs: Runs):
    secret = "s3cr3t-" + os.urandom(8).hex()
    shim = await runs.sh("echo up; exec sleep 60", env={"TOKEN": secret})
    await until_output(shim, b"up")
    for path in shim.run_dir.iterdir():
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
    for name in ("cmdline", "environ"):
        assert secret.encode() not in Path(f"/proc/{shim.shim_pid}/{name}").read_bytes()
    (executor,) = await shim.tree()
    environ = Path(f"/proc/{executor.pid}/environ").read_bytes().split(b"\0")
    assert f"TOKEN={secret}".encode() in environ
    assert f"HANDOFF_RUN={shim.run_id}".encode() in environ


async def test_a_socket_path_longer_than_the_system_allows(runs: Runs):
    deep = runs.root / ("d" * 120) / ("e ä" * 20) / "run"
    shim = await runs.sh("read x; echo $x", run_dir=deep)
    await shim.send(1, b"deep\n")
    assert joined(await whole(shim), "stdout") == b"deep\n"


async def test_a_folder_that_cannot_be_made(runs: Runs):
    blocker = runs.root / "file"
    blocker.write_text("")
    with pytest.raises(StorageError, match="can't write"):
        await runs.sh("true", run_dir=blocker / "run")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
async def test_a_folder_that_may_not_be_written(runs: Runs):
    locked = runs.root / "locked"
    locked.mkdir(mode=0o500)
    with pytest.raises(StorageError):
        await runs.sh("true", run_dir=locked / "run")


async def test_a_broken_interpreter_is_told(runs: Runs, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(ExecutorError, match="/nonexistent/python"):
        await runs.sh("true")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ExecutorError, match="exit code 1"):
        await runs.sh("true")


@pytest.mark.parametrize(
    ("prepare", "argv", "code", "says"),
    [
        ("", ["/nope/agent"], 127, "there is no program /nope/agent"),
        ("", ["no-such-agent"], 127, "there is no program no-such-agent"),
        ("#!/nope/node\n", ["{file}"], 127, "its interpreter /nope/node is not"),
        ("just text\n", ["{file}"], 126, "not a program"),
        ("-", ["{file}"], 126, "may not be executed"),
        ("", ["{dir}"], 126, "is a folder"),
    ],
)
async def test_an_executor_that_cannot_start(
    runs: Runs, prepare: str, argv: list[str], code: int, says: str
):
    program = runs.root / "program"
    if prepare:
        program.write_text(prepare)
        program.chmod(0o644 if prepare == "-" else 0o755)
    words = [word.format(file=program, dir=runs.root) for word in argv]
    records = await whole(await runs.start(*words))
    assert kinds(records) == ["stderr", "exited", "swept"]
    assert says in joined(records, "stderr").decode()
    assert joined(records, "exited") == b"%d" % code


async def test_a_working_folder_that_is_gone(runs: Runs):
    records = await whole(await runs.sh("true", cwd=str(runs.root / "gone")))
    assert b"can't start in the folder" in joined(records, "stderr")
    assert joined(records, "exited") == b"126"


async def test_a_bare_name_is_found_in_the_executors_own_path(runs: Runs):
    (runs.root / "bin").mkdir()
    program = runs.root / "bin" / "agent"
    program.write_text("#!/bin/sh\necho mine\n")
    program.chmod(0o755)
    shim = await runs.start("agent", env={"PATH": f"{runs.root}/bin:/usr/bin:/bin"})
    assert joined(await whole(shim), "stdout") == b"mine\n"


async def test_death_by_signal_is_negative(runs: Runs):
    records = await whole(await runs.sh("kill -9 $$"))
    assert joined(records, "exited") == b"-9"


async def test_a_binary_stdout_arrives_whole(runs: Runs):
    shim = await runs.python(
        "import os\nfor n in range(200): os.write(1, bytes(range(256)) * (n + 1))"
    )
    want = b"".join(bytes(range(256)) * (n + 1) for n in range(200))
    assert joined(await whole(shim), "stdout") == want


async def test_signals_that_python_ignores_are_as_usual_for_the_executor(runs: Runs):
    shim = await runs.sh("grep SigIgn /proc/self/status")
    ignored = int((await until_output(shim, b"\n")).split()[1], 16)
    assert ignored & (1 << 31) - 1 == 0  # 32 and up are the C library's own


async def test_the_executor_leads_its_own_session(runs: Runs):
    shim = await runs.sh("echo up; exec sleep 60")
    await until_output(shim, b"up")
    (executor,) = await shim.tree()
    found = facts.fact(executor.pid)
    assert found is not None and found.session == executor.pid
    assert os.getsid(shim.shim_pid) == shim.shim_pid


async def test_the_shims_words_on_the_wire(runs: Runs):
    """Other programs may talk to a shim: the lines are a contract."""
    shim = await runs.start("/bin/cat")

    def talk() -> list[dict[str, object]]:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(shim.run_dir / "s"))
            sock.settimeout(10)
            file = sock.makefile("rwb")
            hello = json.loads(file.readline())
            said = [hello]
            for request in (
                {"id": 1, "op": "input", "n": 1, "text": "x\n"},
                {"id": 2, "op": "input", "n": 9, "b64": "eA=="},
                {"id": 3, "op": "nonsense"},
                {"id": 4, "op": "input", "n": "q", "text": ""},
                {"id": 5, "op": "ping"},
            ):
                file.write(json.dumps(request).encode() + b"\n")
                file.flush()
                while "id" not in (answer := json.loads(file.readline())):
                    pass
                said.append(answer)
            return said

    hello, first, gap, unknown, wrong, ping = await asyncio.to_thread(talk)
    assert hello["hello"]["run_id"] == shim.run_id
    assert first == {"id": 1, "written": 1, "ok": True}
    assert gap == {"id": 2, "written": 1, "error": "gap"}
    assert unknown["error"] == "bad_request" and wrong["error"] == "bad_request"
    assert ping["hello"]["written"] == 1


async def test_a_client_that_talks_nonsense_is_dropped_and_nobody_else(runs: Runs):
    shim = await runs.start("/bin/cat")

    def babble(words: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(shim.run_dir / "s"))
            sock.settimeout(10)
            sock.sendall(words)
            said = b""
            while chunk := sock.recv(4096):
                said += chunk
            return said

    for words in (b"\xff\xfe\n", b"[]\n", b'{"op"\n', b"null\n"):
        await asyncio.to_thread(babble, words)
    assert await shim.send(1, b"fine\n") == 1


@pytest.mark.parametrize("run_id", ["", ".", "..", "../x", "a/b", "a b", "a\0b", "-x", "x" * 201])
async def test_what_can_be_no_runs_id_is_refused_before_anything_is_made(runs: Runs, run_id: str):
    """It marks what will be ended: it must never be empty, nor lead out of a folder."""
    spec = Spec(run_id, ("/bin/true",), str(runs.root), ENV)
    with pytest.raises(UsageError, match="run's id"):
        await supervisor.start(runs.root / "run", spec)
    assert not (runs.root / "run").exists()


async def test_a_path_too_long_for_a_socket_names_its_length_and_the_remedy(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
):
    """On Linux every length works; as on macOS, where there is no way around it."""
    monkeypatch.setattr(facts, "LINUX", False)
    monkeypatch.setattr(supervisor, "SUN_PATH", 103)
    deep = runs.root / ("d" * 120)
    spec = Spec("run-1", ("/bin/true",), str(runs.root), ENV)
    with pytest.raises(PathTooLong, match="the system allows 103") as caught:
        await supervisor.start(deep, spec)
    assert caught.value.details["length"] == len(str(deep)) + 2
    assert "HANDOFF_HOME" in caught.value.remedy and not deep.exists()


async def test_a_second_shim_for_a_run_that_is_taken_starts_nothing(runs: Runs):
    """As two agentds would that meet: the loser attaches to the winner's."""
    shim = await runs.sh("echo $$ >> pids; exec cat")
    info = (shim.run_dir / "shim.json").read_bytes()
    body = json.dumps(
        {"run_id": shim.run_id, "argv": ["/bin/sh", "-c", "echo again >> pids"],
         "cwd": str(runs.root), "env": {}, "max_procs": 0, "grace_s": 1.0}
    ).encode()  # fmt: skip
    pid, code, said = await supervisor._spawn(shim.run_dir, body + b"\n")
    assert (code, said) == (TAKEN, {}) and pid != shim.shim_pid
    assert (shim.run_dir / "shim.json").read_bytes() == info
    assert await shim.send(1, b"x\n") == 1
    await until_output(shim, b"x")
    assert len((runs.root / "pids").read_text().split()) == 1


@pytest.mark.parametrize("cut", [0, 1, -2])
async def test_a_spec_that_did_not_arrive_whole_starts_nothing(runs: Runs, cut: int):
    run_dir, run_id = runs.new_dir()
    run_dir.mkdir()
    body = json.dumps({"run_id": run_id, "argv": ["/bin/touch", "made"]}).encode() + b"\n"
    _, code, said = await supervisor._spawn(run_dir, body[:cut])
    assert (code, said) == (NO_SPEC, {})
    assert not (run_dir / "shim.json").exists()
    shim = await runs.sh("echo first", run_dir=run_dir, run_id=run_id)
    assert joined(await whole(shim), "stdout") == b"first\n"

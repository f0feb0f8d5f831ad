"""agentd goes away and comes back, at any moment of its talk with a shim."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.runs import (
    ENV,
    Runs,
    eventually,
    joined,
    kill_shim,
    lives,
    until_output,
    whole,
)

from handoff.errors import ActorRefused, ExecutorGone, ProtocolViolation
from handoff.process import facts, supervisor
from handoff.process.handle import RunHandle
from handoff.process.sweeping import send_signal

ECHO = 'while read line; do echo "got $line"; done'


def raw(shim: RunHandle) -> socket.socket:
    """A connection without anything of ours around it."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(f"/proc/self/fd/{_folder(shim.run_dir)}/s")
    return client


_open: dict[Path, int] = {}


def _folder(path: Path) -> int:
    return _open.setdefault(path, os.open(path, os.O_PATH))


@pytest.fixture(autouse=True)
def closed_again():
    yield
    while _open:
        os.close(_open.popitem()[1])


LINE = json.dumps({"op": "input", "id": 1, "n": 1, "text": "hello\n"}).encode() + b"\n"


@pytest.mark.parametrize("sent", [0, 1, len(LINE) // 2, len(LINE) - 1, len(LINE)])
@pytest.mark.parametrize("hears_the_answer", [False, True])
async def test_an_input_cut_anywhere_is_written_once(runs: Runs, sent: int, hears_the_answer: bool):
    """The line was sent that far, then agentd died; the next one sends the number again."""
    shim = await runs.sh(ECHO)
    await shim.close()
    with raw(shim) as client:
        client.sendall(LINE[:sent])
        if hears_the_answer and sent == len(LINE):
            reader = client.makefile("rb")
            await asyncio.to_thread(lambda: [reader.readline() for _ in range(2)])
    again = await runs.attach(shim)
    assert await again.send(1, b"hello\n") == 1
    assert await again.send(2, b"world\n") == 2
    await until_output(again, b"world")
    await again.end(1.0)
    records = await whole(again)
    assert joined(records, "stdout") == b"got hello\ngot world\n"
    assert [one.data for one in records if one.kind == "input"] == [b"1", b"2"]


async def test_an_input_that_waits_for_a_slow_executor_survives_its_client(runs: Runs):
    big = b"x" * (1 << 20) + b"\n"
    shim = await runs.python(
        "import os,sys,time\nprint('up')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "print(len(sys.stdin.readline()))\nprint(len(sys.stdin.readline()))\n"
    )
    await until_output(shim, b"up")
    sending = asyncio.create_task(shim.send(1, big))
    await asyncio.sleep(0)
    with raw(shim) as client:  # once this one is answered the first was taken, too
        client.sendall(b'{"op":"ping","id":1}\n')
        reader = client.makefile("rb")
        await asyncio.to_thread(lambda: [reader.readline() for _ in range(2)])
    sending.cancel()
    await shim.close()
    again = await runs.attach(shim)
    resent = asyncio.create_task(again.send(1, big))
    after = asyncio.create_task(again.send(2, b"y\n"))
    await asyncio.sleep(0)
    (runs.root / "go").touch()
    assert await resent in {1, 2} and await after == 2
    assert f"{len(big)}\n2\n".encode() in joined(await whole(again), "stdout")


AGENTD = """
import asyncio, sys
from pathlib import Path
from handoff.process import supervisor
from handoff.process.contract import Spec

async def main(run_dir, run_id, cwd, script, step):
    spec = Spec(run_id, ("/bin/sh", "-c", script), cwd, {"PATH": "/usr/bin:/bin"})
    if step == "before":
        print("now", flush=True); await asyncio.sleep(60)
    shim = await supervisor.start(Path(run_dir), spec)
    if step == "started":
        print("now", flush=True); await asyncio.sleep(60)
    async for record in shim.records(0):
        if step == "reading" and record.kind == "started":
            print("now", flush=True); await asyncio.sleep(60)
        if record.kind == "started":
            await shim.send(1, b"hello\\n")
            if step == "sent":
                print("now", flush=True); await asyncio.sleep(60)
        if record.kind == "stdout":
            await shim.ack(record.end)
            print("now", flush=True); await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("step", ["before", "started", "reading", "sent", "acked"])
async def test_agentd_is_killed_at_a_step_and_the_next_one_goes_on(runs: Runs, step: str):
    run_dir, run_id = runs.new_dir()
    script = f"echo $$ >> pids; {ECHO}"
    first = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENTD, str(run_dir), run_id, str(runs.root), script, step,
        env={**ENV, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert first.stdout is not None
    assert await asyncio.wait_for(first.stdout.readline(), 15) == b"now\n"
    first.kill()
    await first.wait()
    shim = await runs.sh(script, run_dir=run_dir, run_id=run_id)
    assert await shim.send(1, b"hello\n") == 1
    await until_output(shim, b"hello")
    await shim.end(1.0)
    assert joined(await whole(shim), "stdout") == b"got hello\n"
    assert len((runs.root / "pids").read_text().split()) == 1


async def test_agentd_is_killed_while_it_starts_a_run(runs: Runs):
    """Whatever moment that is: afterwards there is one executor or none, never two."""
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom handoff.process import supervisor\n"
        "from handoff.process.contract import Spec\n"
        "spec = Spec(sys.argv[2], ('/bin/sh', '-c', sys.argv[4]), sys.argv[3], "
        "{'PATH': '/usr/bin:/bin'})\n"
        "print('now', flush=True)\n"
        "asyncio.run(supervisor.start(Path(sys.argv[1]), spec))\n"
    )
    for number in range(8):
        run_dir, run_id = runs.new_dir()
        script = f"echo $$ >> pids{number}; exec cat"
        made = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(run_dir), run_id, str(runs.root), script,
            env={**ENV, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert made.stdout is not None
        await made.stdout.readline()
        await asyncio.sleep(number * 0.01)  # the moment; any is right
        if made.returncode is None:
            made.kill()
        await made.wait()
        try:
            shim = await runs.sh(script, run_dir=run_dir, run_id=run_id)
        except ExecutorGone:  # its shim died with it: told, and nothing runs
            assert not facts_of_run(run_id)
            continue
        assert await shim.send(1, b"x\n") == 1
        await until_output(shim, b"x")
        await shim.end(0.1)
        assert len((runs.root / f"pids{number}").read_text().split()) == 1


def facts_of_run(run_id: str) -> list[facts.Fact]:
    from handoff.process.sweeping import belonging

    return belonging(run_id)


async def test_records_go_on_exactly_where_the_last_agentd_committed(runs: Runs):
    shim = await runs.sh("for n in $(seq 200); do echo line $n; done; sleep 60")
    seen: list[bytes] = []
    offset = 0
    handle = shim
    while b"line 200\n" not in b"".join(seen):
        async for record in handle.records(offset):
            offset = record.end
            if record.kind == "stdout":
                seen.append(record.data)
            break
        await handle.close()
        handle = await runs.attach(shim)
    assert b"".join(seen) == b"".join(b"line %d\n" % n for n in range(1, 201))


async def test_the_executor_runs_on_without_a_client(runs: Runs):
    shim = await runs.sh("echo up; while [ ! -e go ]; do sleep 0.01; done; echo done; exit 4")
    await until_output(shim, b"up")
    await shim.close()
    (runs.root / "go").touch()
    await eventually(lambda: not lives(shim.shim_pid))
    with pytest.raises(ExecutorGone):
        await runs.attach(shim)
    records = await whole(supervisor.remains(shim.run_dir, shim.run_id))
    assert joined(records, "stdout") == b"up\ndone\n" and joined(records, "exited") == b"4"


async def test_waiting_for_an_answer_when_the_shim_dies(runs: Runs):
    shim = await runs.sh("exec sleep 60")
    one = facts.fact(shim.shim_pid)
    assert one is not None
    send_signal(one.pid, one.started, signal.SIGSTOP)
    waiting = [
        asyncio.create_task(shim.send(1, b"x\n")),
        asyncio.create_task(shim.send(2, b"y\n")),
    ]
    await asyncio.sleep(0)
    kill_shim(shim)
    for task in waiting:
        with pytest.raises(ExecutorGone):
            await asyncio.wait_for(task, 10)
    assert [record.kind for record in await whole(shim)] == ["started"]


async def test_a_torn_last_record_is_left_out_and_reported(
    runs: Runs, caplog: pytest.LogCaptureFixture
):
    shim = await runs.sh("echo whole; echo torn >&2; sleep 60")
    await until_output(shim, b"whole")
    await eventually(
        lambda: b"torn" in (shim.run_dir / "journal.00000000000000000000").read_bytes()
    )
    kill_shim(shim)
    before = await whole(shim)
    file = shim.run_dir / "journal.00000000000000000000"
    os.truncate(file, before[-1].end - 2)
    left = supervisor.remains(shim.run_dir, shim.run_id)
    assert await whole(left) == before[:-1]
    assert left.torn_bytes == before[-1].end - 2 - before[-1].offset
    assert "cut by its shim's death" in caplog.text


async def test_the_executor_can_not_feed_itself(runs: Runs):
    """What runs below the shim is refused at its socket, and that is recorded."""
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        'try: s.sendall(b\'{"op":"input","n":1,"id":1,"text":"yes\\\\n"}\\n\')\n'
        "except OSError: pass\n"
        "print(s.makefile('rb').readline(), flush=True)\n"
    )
    run_dir, _ = runs.new_dir()
    shim = await runs.sh(
        f'{sys.executable} -c "$CODE" {run_dir}/s; read x; echo said $x',
        env={"CODE": code},
        run_dir=run_dir,
    )
    assert b"refused" in await until_output(shim, b"}\\n'")
    assert await shim.send(1, b"no\n") == 1
    records = await whole(shim)
    assert joined(records, "stdout").endswith(b"said no\n")
    assert b"own tree tried to reach its input" in joined(records, "stderr")


async def test_a_client_below_the_executor_is_told_that_it_may_not(runs: Runs):
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom handoff.process import supervisor\n"
        "asyncio.run(supervisor.attach(Path(sys.argv[1]), sys.argv[2]))\n"
    )
    run_dir, run_id = runs.new_dir()
    shim = await runs.sh(
        f'{sys.executable} -c "$CODE" {run_dir} {run_id} 2>&1; echo end',
        env={"CODE": code, "PYTHONPATH": os.pathsep.join(sys.path)},
        run_dir=run_dir,
        run_id=run_id,
    )
    said = joined(await whole(shim), "stdout").decode()
    assert ActorRefused.__name__ in said and said.endswith("end\n")


async def test_numbers_are_checked_across_clients(runs: Runs):
    shim = await runs.sh(ECHO)
    other = await runs.attach(shim)
    assert await shim.send(1, b"a\n") == 1
    with pytest.raises(ProtocolViolation, match="gap"):
        await other.send(3, b"c\n")
    assert await other.send(2, b"b\n") == 2
    assert await shim.send(3, b"c\n") == 3
    assert (await until_output(shim, b"got c\n")) == b"got a\ngot b\ngot c\n"

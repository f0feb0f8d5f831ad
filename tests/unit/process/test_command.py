from __future__ import annotations

import asyncio
import gc
import os
import resource
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.runs import ENV, eventually, lives

from handoff.process import facts
from handoff.process.command import CommandResult, run_command
from handoff.process.sweeping import belonging


async def run(command: list[str] | str, folder: Path, **more: object) -> CommandResult:
    return await run_command(command, cwd=folder, env=ENV, **more)  # type: ignore[arg-type]


async def test_a_command_to_its_end(tmp_path: Path):
    result = await run(["/bin/sh", "-c", "pwd; echo oops >&2; exit 3"], tmp_path)
    assert (result.exit_code, result.signal, result.timed_out) == (3, 0, False)
    assert result.tail_out == f"{tmp_path}\n".encode()
    assert result.tail_err == b"oops\n"
    assert result.dropped_bytes == 0 and result.left == () and result.seconds > 0


async def test_a_text_is_the_shells(tmp_path: Path):
    result = await run("echo $((6 * 7)) | tr 2 3", tmp_path)
    assert result.tail_out == b"43\n" and result.exit_code == 0


async def test_death_by_signal(tmp_path: Path):
    result = await run("kill -TERM $$", tmp_path)
    assert (result.exit_code, result.signal, result.timed_out) == (128 + 15, 15, False)


async def test_there_is_no_input(tmp_path: Path):
    assert (await run("cat; echo end", tmp_path)).tail_out == b"end\n"


async def test_the_environment_is_exactly_what_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TOKEN_OF_THE_DAEMON", "secret")
    result = await run("env", tmp_path, mark="run-7")
    assert b"TOKEN_OF_THE_DAEMON" not in result.tail_out
    assert b"HANDOFF_RUN=run-7\n" in result.tail_out


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["/nope/tool"], 127, b"there is no program /nope/tool"),
        (["no-such-tool"], 127, b"there is no program no-such-tool"),
        (["{folder}/script"], 127, b"its interpreter /nope/node is not"),
        (["{folder}/plain"], 126, b"may not be executed"),
    ],
)
async def test_what_cannot_be_started_is_a_result(
    tmp_path: Path, argv: list[str], code: int, says: bytes
):
    (tmp_path / "script").write_text("#!/nope/node\n")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "plain").write_text("x")
    result = await run([word.format(folder=tmp_path) for word in argv], tmp_path)
    assert result.exit_code == code and says in result.tail_err
    gone = await run(["/bin/true"], tmp_path / "gone")
    assert gone.exit_code == 126 and b"can't start in the folder" in gone.tail_err


async def test_time_is_up(tmp_path: Path):
    result = await run("echo begun; sleep 60", tmp_path, timeout_s=0.3, grace_s=0.1)
    assert result.timed_out and result.exit_code == 124 and result.tail_out == b"begun\n"
    assert result.seconds < 8 and result.left == ()


async def test_time_is_up_for_one_that_ignores_it(tmp_path: Path):
    note = tmp_path / "pid"
    script = f"trap '' TERM INT HUP; echo $$ > {note}; while :; do sleep 1; done"
    result = await run(script, tmp_path, timeout_s=0.5, grace_s=0.2)
    assert result.timed_out and result.signal == 9
    assert not lives(int(note.read_text()))


async def test_no_line_is_reached_because_the_one_before_was_ended(tmp_path: Path):
    """A script whose child is ended before itself would go on."""
    script = "touch up; sh -c 'sleep 60; touch inner'; touch outer"
    for grace in (0.0, 0.0, 0.0, 0.05, 0.05, 0.05):
        running = asyncio.create_task(run(script, tmp_path, grace_s=grace))
        await eventually((tmp_path / "up").exists)
        (tmp_path / "up").unlink()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert list(tmp_path.iterdir()) == []


async def test_a_command_may_say_good_bye(tmp_path: Path):
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done"
    result = await run(script, tmp_path, timeout_s=0.5, grace_s=10)
    assert result.timed_out and result.exit_code == 124
    assert result.tail_out.endswith(b"bye\n")


LEAVERS = {
    "background": "sleep 60 & echo $!",
    "nohup": "nohup sleep 60 >/dev/null 2>&1 & echo $!",
    "setsid": "setsid sleep 60 >/dev/null 2>&1 & sleep 0.1; echo $!",
    "holds the pipes": "setsid sleep 60 & echo $!",
    "clean environment": "env -i sleep 60 & echo $!",
    "double": "(setsid sh -c 'echo $$; exec sleep 60' &)",
    "ignores": "sh -c \"trap '' TERM; echo \\$\\$; while :; do sleep 1; done\" & sleep 0.2",
}


@pytest.mark.parametrize("how", LEAVERS)
async def test_what_it_leaves_behind_is_ended(tmp_path: Path, how: str):
    mark = secrets.token_hex(8)
    result = await run(LEAVERS[how] + "; sleep 0.1", tmp_path, mark=mark, grace_s=0.2)
    assert result.exit_code == 0
    pids = [int(word) for word in result.tail_out.split()]
    assert pids and not any(lives(pid) for pid in pids)
    assert belonging(mark) == []


async def test_a_look_alike_lives_on(tmp_path: Path):
    other = subprocess.Popen(["/bin/sleep", "98765"], env=ENV, start_new_session=True)
    try:
        result = await run("sleep 98765 & setsid sleep 98765 & :", tmp_path, grace_s=0)
        assert result.exit_code == 0 and lives(other.pid)
    finally:
        other.kill()
        other.wait()


async def test_output_comes_as_it_is_written(tmp_path: Path):
    seen: list[tuple[int, bytes]] = []
    go = tmp_path / "go"

    def on_output(fd: int, raw: bytes) -> None:
        seen.append((fd, raw))
        go.touch()

    script = f"echo first; while [ ! -e {go} ]; do sleep 0.01; done; echo second >&2"
    result = await run(script, tmp_path, on_output=on_output, timeout_s=15)
    assert seen == [(1, b"first\n"), (2, b"second\n")] and result.exit_code == 0


async def test_a_slow_taker_holds_the_command_back(tmp_path: Path):
    gate = asyncio.Event()
    taken = 0

    async def on_output(_fd: int, raw: bytes) -> None:
        nonlocal taken
        taken += len(raw)
        await gate.wait()

    running = asyncio.create_task(
        run("head -c 5000000 /dev/zero", tmp_path, on_output=on_output, limit_bytes=1000)
    )
    await eventually(lambda: taken)
    await asyncio.sleep(0.1)
    assert taken <= 1 << 16 and not running.done()
    gate.set()
    result = await running
    assert taken == 5_000_000
    assert len(result.tail_out) == 1000 and result.dropped_bytes == 5_000_000 - 1000


async def test_a_flood_takes_no_memory(tmp_path: Path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await run("yes & yes >&2", tmp_path, timeout_s=2.0, grace_s=0)
    assert result.timed_out and len(result.tail_out) == len(result.tail_err) == 1 << 20
    assert result.dropped_bytes > 4 << 20  # how much more is the machine's speed
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 << 10, f"{grown} KiB"


@pytest.mark.parametrize("limit", [0, 1, 5, 100])
async def test_tails_are_exact(tmp_path: Path, limit: int):
    result = await run("seq 1000; seq 5 >&2", tmp_path, limit_bytes=limit)
    whole = "".join(f"{n}\n" for n in range(1, 1001)).encode()
    assert result.tail_out == whole[len(whole) - limit :]
    assert result.dropped_bytes == len(whole) - limit + max(0, 10 - limit)


async def test_cancelled_it_leaves_nothing(tmp_path: Path):
    mark = secrets.token_hex(8)
    script = "trap '' TERM; setsid sleep 60 & touch up; while :; do sleep 1; done"
    running = asyncio.create_task(run(script, tmp_path, mark=mark, grace_s=0.1))
    await eventually((tmp_path / "up").exists)
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()  # and again, while it cleans up
    with pytest.raises(asyncio.CancelledError):
        await running
    assert belonging(mark) == []
    assert not _zombies()


async def test_when_the_taker_fails_the_command_is_ended(tmp_path: Path):
    mark = secrets.token_hex(8)

    def on_output(_fd: int, _raw: bytes) -> None:
        raise LookupError("no room")

    with pytest.raises(LookupError, match="no room"):
        await run("echo x; sleep 60", tmp_path, on_output=on_output, mark=mark, grace_s=0.1)
    assert belonging(mark) == []


async def test_a_command_that_closes_its_pipes_is_waited_for(tmp_path: Path):
    script = "exec >&- 2>&-; sleep 0.2; exit 5"
    assert (await run(script, tmp_path)).exit_code == 5


async def test_binary_output(tmp_path: Path):
    raw = bytes(range(256)) * 100
    (tmp_path / "raw").write_bytes(raw)
    assert (await run("cat raw", tmp_path)).tail_out == raw


async def test_many_quick_ones_leave_no_zombie_no_descriptor_and_hit_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A signal to a process that was collected already could hit a stranger."""
    sent: list[object] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *what: sent.append(what))
    monkeypatch.setattr(os, "kill", lambda *what: sent.append(what))
    await run(["/bin/true"], tmp_path)
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(25):
        results = await asyncio.gather(*(run(["/bin/true"], tmp_path) for _ in range(8)))
        assert {result.exit_code for result in results} == {0}
    gc.collect()
    assert not sent
    assert not _zombies()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def _zombies() -> list[int]:
    mine = (facts.fact(pid) for pid in facts.all_pids())
    return [one.pid for one in mine if one and one.ppid == os.getpid() and one.state in "ZX"]


async def test_the_command_leads_a_group_that_is_not_ours(tmp_path: Path):
    script = "import os; print(os.getsid(0) == os.getpid() == os.getpgrp())"
    result = await run([sys.executable, "-I", "-S", "-c", script], tmp_path)
    assert result.tail_out == b"True\n"


async def test_it_takes_little_longer_than_the_command(tmp_path: Path):
    began = time.monotonic()
    await run(["/bin/true"], tmp_path)
    assert time.monotonic() - began < 2

"""The keeper with real commands: one start, exact output, an end for the whole tree."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import time
from collections.abc import AsyncIterator

import pytest
from tests.support.waiting import until

from handoff.errors import LaunchFailed, OutcomeUnknown, StorageError, UsageError
from handoff.nodes.node.keeping import Keep, Order, Running

ENV = {"PATH": os.environ["PATH"]}


@contextlib.asynccontextmanager
async def keeping(folder: pathlib.Path) -> AsyncIterator[Keep]:
    keep = await Keep.open(str(folder))
    try:
        yield keep
    finally:
        await asyncio.wait_for(keep.stop(), 30)
        await keep.close()


async def finish(running: Running, seconds: float = 30) -> dict[str, object]:
    until = time.monotonic() + seconds
    while not running.done:
        assert time.monotonic() < until, running.state
        await running.wait(1)
    return running.state


def sh(name: str, script: str, **more: object) -> Order:
    return Order(name, ["sh", "-c", script], "/", ENV, **more)  # type: ignore[arg-type]


def alive(needle: str) -> list[int]:
    """Our own processes whose command line holds the needle."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if needle.encode() in file.read():
                        found.append(int(name))
    return found


async def gone(needle: str) -> None:
    until = time.monotonic() + 15
    while alive(needle):
        assert time.monotonic() < until, alive(needle)
        await asyncio.sleep(0.02)


async def test_codes_signals_and_both_streams(tmp_path: pathlib.Path) -> None:
    async with keeping(tmp_path / "k") as keep:
        for name, script, code, number in (
            ("a", "exit 0", 0, None),
            ("b", "printf abc; printf err >&2; exit 7", 7, None),
            ("c", "kill -9 $$", None, 9),
            ("d", "exit 137", 137, None),
        ):
            running = await keep.start(sh(name, script))
            state = await finish(running)
            assert (state["exit_code"], state["signal"]) == (code, number)
            if name == "b":
                assert running.read("out", 0, 10) == (0, b"abc")
                assert running.read("err", 0, 10) == (0, b"err")


async def test_random_bytes_come_back_exactly(tmp_path: pathlib.Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "data").write_bytes(data)
    async with keeping(tmp_path / "k") as keep:
        running = await keep.start(sh("a", f"cat {tmp_path}/data"))
        await finish(running)
        got = b""
        while piece := running.read("out", len(got), 1 << 20)[1]:
            got += piece
        assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()


async def test_without_input_a_reader_ends(tmp_path: pathlib.Path) -> None:
    async with keeping(tmp_path / "k") as keep:
        assert (await finish(await keep.start(sh("a", "cat; read x; exit 4"))))["exit_code"] == 4


async def test_input_is_taken_once_whatever_is_sent_twice(tmp_path: pathlib.Path) -> None:
    data = os.urandom(5_000_000)
    async with keeping(tmp_path / "k") as keep:
        running = await keep.start(sh("a", "sha256sum", stdin=True))
        with pytest.raises(UsageError):
            await keep.give(running, 10, b"later", last=False)
        for at in range(0, len(data), 400_000):
            await keep.give(running, at, data[at : at + 400_000], last=False)
            await keep.give(running, at, data[at : at + 400_000], last=False)
        await keep.give(running, len(data), b"", last=True)
        await finish(running)
        assert running.read("out", 0, 64)[1] == hashlib.sha256(data).hexdigest().encode()


async def test_output_is_told_while_it_comes(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "go")
    async with keeping(tmp_path / "k") as keep:
        running = await keep.start(sh("a", f"echo one; cat {tmp_path}/go; echo two"))
        until = time.monotonic() + 10
        while running.total("out") < 4:
            assert time.monotonic() < until
            await running.wait(1)
        assert not running.done
        with open(tmp_path / "go", "w"):
            pass
        await finish(running)
        assert running.read("out", 0, 100)[1] == b"one\ntwo\n"


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_time_is_up_for_the_whole_tree(tmp_path: pathlib.Path, how: str) -> None:
    mark = f"987{os.getpid()}"
    script = f"echo part; sleep {mark} & (setsid sleep {mark} &) ; trap '' TERM; sleep {mark}"
    async with keeping(tmp_path / "k") as keep:
        limit = 300 if how == "timeout" else 0
        running = await keep.start(sh("a", script, timeout_ms=limit, grace_ms=200))
        if how == "cancel":
            while not running.total("out"):
                await running.wait(5)
            await keep.end(running, "cancel", 200)
        state = await finish(running)
        assert state["ended_by"] == how
        assert running.read("out", 0, 100)[1] == b"part\n"
        await gone(f"sleep\0{mark}")
        again = await finish(await keep.start(sh("b", "exit 3")))
        assert again["exit_code"] == 3


async def test_what_holds_the_output_does_not_hold_the_result(tmp_path: pathlib.Path) -> None:
    mark = f"986{os.getpid()}"
    async with keeping(tmp_path / "k") as keep:
        before = time.monotonic()
        running = await keep.start(sh("a", f"echo started; sleep {mark} & exit 3"))
        state = await finish(running)
        assert time.monotonic() - before < 10
        assert (state["exit_code"], state["still_holding"], state["left_behind"]) == (3, True, 1)
        assert running.read("out", 0, 100)[1] == b"started\n"
        await gone(f"sleep\0{mark}")


async def test_what_is_to_be_left_lives_until_the_keeper_stops(tmp_path: pathlib.Path) -> None:
    mark = f"985{os.getpid()}"
    keep = await Keep.open(str(tmp_path / "k"))
    state = await finish(await keep.start(sh("a", f"sleep {mark} & exit 0", leave=True)))
    assert state["left_behind"] == 1
    until = time.monotonic() + 10
    while not alive(f"sleep\0{mark}"):  # the shell's child may not have become it yet
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
    await keep.stop()
    await keep.close()
    await gone(f"sleep\0{mark}")


async def test_a_name_starts_once(tmp_path: pathlib.Path) -> None:
    async with keeping(tmp_path / "k") as keep:
        await finish(await keep.start(sh("a", f"echo x >>{tmp_path}/ran")))
        for _ in range(3):
            with pytest.raises(OutcomeUnknown):
                await keep.start(sh("a", f"echo x >>{tmp_path}/ran"))
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_the_node_may_die_and_its_commands_go_on(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "go")
    first = await Keep.open(str(tmp_path / "k"))
    await first.start(sh("a", f"echo one; cat {tmp_path}/go; echo two; exit 5"))
    await finish(await first.start(sh("b", "exit 6")))
    await first.close()
    async with keeping(tmp_path / "k") as second:
        assert second.running["b"].state["exit_code"] == 6
        running = second.running["a"]
        assert not running.done
        with open(tmp_path / "go", "w"):
            pass
        assert (await finish(running))["exit_code"] == 5
        assert running.read("out", 0, 100)[1] == b"one\ntwo\n"


async def test_the_commands_of_a_killed_keeper_are_ended_by_the_next(
    tmp_path: pathlib.Path,
) -> None:
    mark = f"984{os.getpid()}"
    keep = await Keep.open(str(tmp_path / "k"))
    await keep.start(sh("a", f"exec sleep {mark}"))
    pid = json.loads((tmp_path / "k" / "keeper.json").read_text())["pid"]
    assert pid > 1
    os.kill(pid, signal.SIGKILL)
    await asyncio.wait_for(keep.lost.wait(), 10)
    with pytest.raises(OutcomeUnknown):
        await keep.start(sh("b", "true"))
    await keep.close()
    async with keeping(tmp_path / "k") as again:
        await gone(f"sleep\0{mark}")
        assert "a" not in again.running
        with pytest.raises(OutcomeUnknown):
            await again.start(sh("a", "true"))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
async def test_a_command_ignores_no_signal(tmp_path: pathlib.Path) -> None:
    async with keeping(tmp_path / "k") as keep:
        done = await keep.start(sh("a", "grep SigIgn /proc/self/status; kill -INT $$; exit 3"))
        assert (await finish(done))["signal"] == signal.SIGINT
        ignored = int(done.read("out", 0, 100)[1].split()[1], 16)
        # the C library keeps the first two real-time signals for itself
        assert not ignored & 0x7FFFFFFF, hex(ignored)


async def test_the_end_of_a_forgotten_command_is_not_that_of_the_next(
    tmp_path: pathlib.Path,
) -> None:
    keep = await Keep.open(str(tmp_path / "k"))
    done = await keep.start(sh("a", "exit 3"))
    await finish(done)
    assert await keep.forget(done)
    mark = f"986{os.getpid()}"
    await keep.start(sh("a", f"exec sleep {mark}"))
    pid = json.loads((tmp_path / "k" / "keeper.json").read_text())["pid"]
    assert pid > 1
    os.kill(pid, signal.SIGKILL)
    await asyncio.wait_for(keep.lost.wait(), 10)
    await keep.close()
    async with keeping(tmp_path / "k") as again:
        assert "a" not in again.running
        await gone(f"sleep\0{mark}")


async def test_one_keeper_a_folder(tmp_path: pathlib.Path) -> None:
    keeps = await asyncio.gather(*(Keep.open(str(tmp_path / "k")) for _ in range(4)))
    await finish(await keeps[0].start(sh("a", "exit 0")))
    with pytest.raises(OutcomeUnknown):
        await keeps[1].start(sh("a", "exit 0"))
    await keeps[0].stop()
    for keep in keeps:
        await keep.close()


@pytest.mark.parametrize(
    ("argv", "cwd", "code"),
    [(["no-such-program"], "/", 127), (["/etc/hostname"], "/", 126), (["true"], "/no/such", 126)],
)
async def test_what_can_not_start_says_why(
    tmp_path: pathlib.Path, argv: list[str], cwd: str, code: int
) -> None:
    async with keeping(tmp_path / "k") as keep:
        with pytest.raises(UsageError) as raised:
            await keep.start(Order("a", argv, cwd, ENV))
        assert raised.value.details["code"] == code
        # nothing was started, so the name is free
        await finish(await keep.start(sh("a", "exit 0")))


async def test_a_folder_that_can_not_be_made_starts_nothing(tmp_path: pathlib.Path) -> None:
    async with keeping(tmp_path / "k") as keep:
        (tmp_path / "k").rename(tmp_path / "moved")
        (tmp_path / "moved").chmod(0o500)
        if os.geteuid() == 0:  # bits don't hold root: the folder is gone instead
            os.rename(tmp_path / "moved", tmp_path / "k")
            os.chmod(tmp_path / "k", 0o700)
            long = "n" * 300
            with pytest.raises(StorageError):
                await keep.start(sh(long, f"touch {tmp_path}/ran"))
        else:
            with pytest.raises(StorageError):
                await keep.start(sh("a", f"touch {tmp_path}/ran"))
            (tmp_path / "moved").chmod(0o700)
            (tmp_path / "moved").rename(tmp_path / "k")
        assert not (tmp_path / "ran").exists()


async def test_without_descriptors_nothing_starts_and_that_is_said(
    tmp_path: pathlib.Path,
) -> None:
    async with keeping(tmp_path / "k") as keep:
        pid = json.loads((tmp_path / "k" / "keeper.json").read_text())["pid"]
        await finish(await keep.start(sh("first", "exit 0")))
        before = len(os.listdir(f"/proc/{pid}/fd"))
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        refused = 0
        for more in range(12):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (before + more, limits[1]))
            try:
                await finish(await keep.start(sh("one", f"echo x >>{tmp_path}/ran")))
            except LaunchFailed as failed:
                assert "nothing was started" in failed.cause
                refused += 1
            else:
                break
            assert not (tmp_path / "ran").exists()
        assert refused > 1
        assert (tmp_path / "ran").read_text() == "x\n"
        until(lambda: len(os.listdir(f"/proc/{pid}/fd")) == before, "nothing is left open")


async def test_a_flood_is_counted_and_bounded(tmp_path: pathlib.Path) -> None:
    size = 300_000_000
    async with keeping(tmp_path / "k") as keep:
        pid = json.loads((tmp_path / "k" / "keeper.json").read_text())["pid"]
        running = await keep.start(
            sh("a", f"echo first; head -c {size} /dev/zero; echo last", capacity=1 << 20)
        )
        await finish(running)
        total = running.total("out")
        assert total == size + 11
        assert running.read("out", 0, 6)[1] == b"first\n"
        assert running.read("out", total - 5, 10) == (total - 5, b"last\n")
        assert (tmp_path / "k" / "a" / "out").stat().st_size <= 1 << 20
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0])
        assert peak < 40_000, f"{peak} KiB"


async def test_many_at_once(tmp_path: pathlib.Path) -> None:
    async with keeping(tmp_path / "k") as keep:
        running = await asyncio.gather(
            *(keep.start(sh(f"c{n}", f"echo {n}; sleep 0.2; exit {n}")) for n in range(40))
        )
        for n, one in enumerate(running):
            assert (await finish(one))["exit_code"] == n
            assert one.read("out", 0, 10)[1] == f"{n}\n".encode()
            assert await keep.forget(one)
        assert sorted(os.listdir(tmp_path / "k")) == [".spare", "ends.jsonl", "keeper.json", "s"]


async def test_more_results_than_one_line_holds_are_found_again(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "k"
    folder.mkdir(mode=0o700)
    for number in range(1500):
        name = f"{number:032d}"
        (folder / name).mkdir()
        state = {"name": name, "done": True, "meta": {"command": "\x01" * 400}, "capacity": 8192}
        with open(folder / "ends.jsonl", "a") as file:
            print(json.dumps(state), file=file)
    async with keeping(folder) as keep:
        await finish(await keep.start(sh("a", "exit 3")))
        other = await Keep.open(str(folder))
        assert len(other.running) == 1501
        await other.close()


async def test_what_can_not_be_done_ends_nobody_else(tmp_path: pathlib.Path) -> None:
    async with keeping(tmp_path / "k") as keep:
        running = await keep.start(sh("a", "read x; exit 4", stdin=True))
        assert not await keep.signal(running, 9999)
        with pytest.raises(UsageError):
            await keep.start(Order("b", ["true", "\ud800"], "/", ENV))
        assert not (tmp_path / "k" / "b").exists()
        done = await keep.start(sh("c", "exit 0"))
        await finish(done)
        await asyncio.to_thread(shutil.rmtree, tmp_path / "k" / "c")
        assert await keep.forget(done)
        await keep.give(running, 0, b"x\n", last=True)
        assert (await finish(running))["exit_code"] == 4


async def test_a_keeper_that_can_not_be_reached_keeps_its_commands(tmp_path: pathlib.Path) -> None:
    async with keeping(tmp_path / "k") as keep:
        running = await keep.start(sh("a", "read x; exit 4", stdin=True))
        (tmp_path / "k" / "s").unlink()
        other = await Keep.open(str(tmp_path / "k"))
        assert not other.running["a"].done
        await other.close()
        await keep.give(running, 0, b"x\n", last=True)
        assert (await finish(running))["exit_code"] == 4


async def test_what_a_killed_keeper_left_is_swept_once(tmp_path: pathlib.Path) -> None:
    keep = await Keep.open(str(tmp_path / "k"))
    mark = f"985{os.getpid()}"
    await keep.start(sh("a", f"echo out; exec sleep {mark}"))
    pid = json.loads((tmp_path / "k" / "keeper.json").read_text())["pid"]
    assert pid > 1
    os.kill(pid, signal.SIGKILL)
    await asyncio.wait_for(keep.lost.wait(), 10)
    await keep.close()
    async with keeping(tmp_path / "k"):
        await gone(f"sleep\0{mark}")
        assert os.listdir(tmp_path / "k" / "a") == ["swept"]


async def test_a_killed_keeper_takes_nobody_elses_commands_with_it(tmp_path: pathlib.Path) -> None:
    """Two nodes of one machine may have a call of the same name."""
    os.mkfifo(tmp_path / "go")
    async with keeping(tmp_path / "one") as one:
        running = await one.start(sh("a", f"cat {tmp_path}/go; exit 5"))
        other = await Keep.open(str(tmp_path / "two"))
        await other.start(sh("a", "sleep 600"))
        pid = json.loads((tmp_path / "two" / "keeper.json").read_text())["pid"]
        assert pid > 1
        os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(other.lost.wait(), 10)
        await other.close()
        async with keeping(tmp_path / "two"):
            pass
        (tmp_path / "go").write_text("")
        assert (await finish(running))["exit_code"] == 5


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
async def test_a_keeper_whose_node_is_gone_rests(tmp_path: pathlib.Path) -> None:
    keep = await Keep.open(str(tmp_path / "k"))
    await keep.start(sh("a", "exec sleep 600"))
    await keep.close()
    pid = json.loads((tmp_path / "k" / "keeper.json").read_text())["pid"]

    def spent() -> float:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before, began = spent(), time.monotonic()
    while time.monotonic() - began < 1:  # what it spends meanwhile is the question
        await asyncio.sleep(0.1)
    assert spent() - before < 0.3
    async with keeping(tmp_path / "k") as again:
        assert not again.running["a"].done

"""Much output, odd output, and disks that take no more of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support.runs import Runs, eventually, joined, kinds, until_output, whole

from handoff.errors import StorageError
from handoff.process import journal, supervisor
from handoff.process.contract import Record
from handoff.process.handle import RunHandle

MIB = 1 << 20


def rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0])


def on_disk(shim: RunHandle) -> int:
    return sum(file.stat().st_size for file in shim.run_dir.glob("journal.*"))


async def so_far(shim: RunHandle) -> list[Record]:
    return [Record(*raw) for raw in journal.read_all(str(shim.run_dir))]


async def test_a_line_of_eight_mebibytes(runs: Runs):
    shim = await runs.python(
        "import sys\nsys.stdout.buffer.write(b'{\"x\":\"' + b'y' * (8 << 20) + b'\"}\\n')\n"
        "sys.stdout.flush()\nprint('next')\n"
    )
    out = joined(await whole(shim), "stdout")
    first, second, rest = out.split(b"\n")
    assert len(first) == 8 * MIB + 8 and second == b"next" and rest == b""


async def test_an_input_of_eight_mebibytes(runs: Runs):
    shim = await runs.python(
        "import hashlib, sys\nprint(hashlib.sha256(sys.stdin.buffer.readline()).hexdigest())\n"
    )
    line = os.urandom(8 * MIB).replace(b"\n", b".") + b"\n"
    assert await shim.send(1, line) == 1
    assert joined(await whole(shim), "stdout").strip().decode() == sha256(line).hexdigest()


async def test_any_bytes_and_no_newline(runs: Runs):
    raw = os.urandom(3 * MIB)
    (runs.root / "raw").write_bytes(raw)
    shim = await runs.start("/bin/cat", "raw")
    assert joined(await whole(shim), "stdout") == raw


async def test_many_small_writes_keep_their_order_across_segments(runs: Runs):
    shim = await runs.python(
        "import os\nfor n in range(20000): os.write(1, b'%d\\n' % n)\n",
        limits=supervisor.Limits(segment_bytes=20_000),
    )
    out = joined(await whole(shim), "stdout")
    assert out == b"".join(b"%d\n" % n for n in range(20000))
    assert len(list(shim.run_dir.glob("journal.*"))) > 1


async def test_the_shim_keeps_its_size_whatever_passes_through(runs: Runs):
    shim = await runs.sh("head -c 60000000 /dev/zero; echo; echo done; exec sleep 60")
    await until_output(shim, b"done")
    assert rss_kib(shim.shim_pid) < 20 << 10
    assert on_disk(shim) > 60_000_000


async def test_unread_output_holds_the_executor_back_and_nothing_is_dropped(runs: Runs):
    limits = supervisor.Limits(segment_bytes=MIB // 2, max_backlog=2 * MIB)
    shim = await runs.python(
        "import os\nfor n in range(1000): os.write(1, b'%07d\\n' % n + b'.' * 9992)\n"
        "os.write(2, b'written')\n",
        limits=limits,
    )
    await eventually(lambda: on_disk(shim) > 2 * MIB)
    before = on_disk(shim)
    assert await shim.alive() and (await shim.tree())
    assert on_disk(shim) == before < 2 * MIB + 2 * 65536 * 2
    out, most = bytearray(), 0
    async with asyncio.timeout(15):
        async for record in shim.records(0):
            if record.kind == "stdout":
                out += record.data
            if record.end % 7 == 0 or on_disk(shim) > 2 * MIB:
                await shim.ack(record.end)
            most = max(most, on_disk(shim))
    assert len(out) == 10_000_000
    assert [out[at : at + 8] for at in range(0, len(out), 10_000)] == [
        b"%07d\n" % n for n in range(1000)
    ]
    assert most < 4 * MIB


async def test_a_held_back_executor_can_be_ended(runs: Runs):
    shim = await runs.sh("exec yes", limits=supervisor.Limits(segment_bytes=MIB, max_backlog=MIB))
    await eventually(lambda: on_disk(shim) > MIB)
    assert await shim.end(0.5) == []
    assert kinds(await whole(shim))[-2:] == ["exited", "swept"]


async def test_held_back_its_input_and_its_errors_still_move(runs: Runs):
    shim = await runs.python(
        "import os, sys, threading\n"
        "def flood():\n"
        "    while True: os.write(1, b'x' * 60000)\n"
        "threading.Thread(target=flood, daemon=True).start()\n"
        "for line in sys.stdin: os.write(2, b'heard ' + line.encode())\n",
        limits=supervisor.Limits(segment_bytes=MIB, max_backlog=MIB),
    )
    await eventually(lambda: on_disk(shim) > MIB)
    assert await asyncio.wait_for(shim.send(1, b"you\n"), 10) == 1

    async def heard() -> bool:
        return b"heard you" in joined(await so_far(shim), "stderr")

    await eventually(heard)


async def test_a_flood_of_errors_is_cut_with_a_count(runs: Runs):
    limits = supervisor.Limits(stderr_rate=100_000, stderr_unacked=200_000)
    shim = await runs.python(
        "import os\nfor n in range(300): os.write(2, b'e' * 10000)\nos.write(1, b'done')\n",
        limits=limits,
    )
    records = await whole(shim)
    text = joined(records, "stderr")
    cut = sum(int(n) for n in re.findall(rb"\[handoff: (\d+) bytes of stderr were cut", text))
    assert cut > 2_000_000 and cut + text.count(b"e" * 100) * 100 >= 2_900_000
    assert cut + len(re.sub(rb"\n\[handoff: [^\]]*\]\n", b"", text)) == 3_000_000
    assert len(text) < 400_000 and joined(records, "stdout") == b"done"


async def test_input_closed_early_is_no_end(runs: Runs):
    shim = await runs.sh("exec <&-; sleep 0.2; echo still here; exit 6")
    records = await whole(shim)
    assert joined(records, "stdout") == b"still here\n" and joined(records, "exited") == b"6"


async def test_output_closed_early_is_no_end(runs: Runs):
    shim = await runs.sh("exec >&- 2>&-; read x; exit 7")
    assert await shim.send(1, b"x\n") == 1
    assert joined(await whole(shim), "exited") == b"7"


async def test_the_last_words_come_before_the_exit(runs: Runs):
    for _ in range(10):
        shim = await runs.sh("head -c 60000 /dev/zero; echo last >&2; kill -9 $$")
        records = await whole(shim)
        assert len(joined(records, "stdout")) == 60_000 and joined(records, "stderr") == b"last\n"
        assert kinds(records)[-2:] == ["exited", "swept"]


async def test_a_grandchild_that_holds_the_pipe_does_not_delay_the_end(runs: Runs):
    shim = await runs.sh("sleep 98765 & echo out; exit 0")
    ended = asyncio.create_task(shim.end(0.2))
    assert joined(await whole(shim), "stdout") in {b"out\n", b""}
    assert await ended == []


# -- the disk is full --------------------------------------------------------------------


def limit_files(pid: int, size: int) -> None:
    """That process can write files only up to that size: EFBIG, much as ENOSPC."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


async def test_a_file_that_takes_no_more_holds_the_executor_back(runs: Runs):
    shim = await runs.python(
        "import os, sys\nsys.stdin.readline()\n"
        "for n in range(300): os.write(1, b'%07d\\n' % n + b'.' * 9992)\n"
    )
    limit_files(shim.shim_pid, MIB)
    await shim.send(1, b"go\n")
    await eventually(lambda: on_disk(shim) >= MIB)
    records = await so_far(shim)
    assert await shim.alive() and "exited" not in kinds(records)
    assert await asyncio.wait_for(shim.tree(), 10), "it still answers"
    limit_files(shim.shim_pid, resource.RLIM_INFINITY)
    out = joined(await whole(shim), "stdout")
    assert out == b"".join(b"%07d\n" % n + b"." * 9992 for n in range(300))


async def test_the_end_of_a_run_waits_for_the_disk_but_not_its_processes(runs: Runs):
    shim = await runs.sh("read x; head -c 100000 /dev/zero; exit 3")
    limit_files(shim.shim_pid, 4096)
    await shim.send(1, b"go\n")
    await eventually(lambda: on_disk(shim) == 4096)
    assert await asyncio.wait_for(shim.end(1.0), 15) == []
    assert await shim.alive() and await shim.tree() == []
    limit_files(shim.shim_pid, resource.RLIM_INFINITY)
    records = await whole(shim)
    assert joined(records, "exited") in {b"3", b"-15"} and kinds(records)[-1] == "swept"


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    if os.getuid() != 0 or not shutil.which("mount"):
        pytest.skip("needs to mount a small file system")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "handoff-test", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Path]:
    with small_disk(tmp_path / "disk", "1m") as folder:
        yield folder


async def test_a_really_full_disk(disk: Path, runs: Runs):
    run_dir = disk / "run"
    shim = await runs.python(
        "import os\nfor n in range(300): os.write(1, b'%07d\\n' % n + b'.' * 9992)\n",
        run_dir=run_dir,
        limits=supervisor.Limits(segment_bytes=100_000),
    )
    out, offset = bytearray(), 0
    async with asyncio.timeout(18):
        async for record in shim.records(0):
            offset = record.end
            if record.kind == "stdout":
                out += record.data
            if shutil.disk_usage(disk).free < 100_000:
                await shim.ack(offset)  # what is committed elsewhere makes room
    assert out == b"".join(b"%07d\n" % n + b"." * 9992 for n in range(300))
    await shim.close()


async def test_no_run_starts_on_a_full_disk_and_it_may_be_tried_again(disk: Path, runs: Runs):
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    run_dir, run_id = disk / "run", "full-disk-run"
    try:
        shim = await runs.sh("echo ran >> ../ran", run_dir=run_dir, run_id=run_id, cwd=str(disk))
    except StorageError:
        assert not (disk.parent / "ran").exists()
        filler.unlink()
        shim = await runs.sh("echo ran >> ../ran", run_dir=run_dir, run_id=run_id, cwd=str(disk))
    else:  # the little that a start needs fitted in
        filler.unlink()
    assert kinds(await whole(shim))[-1] == "swept"
    assert (disk.parent / "ran").read_text() == "ran\n"
    await shim.close()

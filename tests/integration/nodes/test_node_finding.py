"""Looking for lines: whatever the expression, the node lives on and the search ends."""

from __future__ import annotations

import asyncio
import os
import pathlib
import time

from tests.integration.nodes.test_node_engine import WHO, engine, ok, refused

from handoff.nodes.node import finding
from handoff.nodes.node.files import Files
from handoff.nodes.node.finding import Finding
from handoff.wire.node import calls
from handoff.wire.node.calls import CallFailed, Exec, Grep

#: takes longer than anybody waits over the line below
HOSTILE = "(a+)+$"


def searches() -> list[str]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    line = file.read()
                with open(f"/proc/{name}/stat", encoding="ascii") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"searcher.py" in line and parent == os.getpid():
                found.append(name)
    return found


async def test_a_hostile_expression_ends_and_holds_nobody(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        one._finding = Finding(Files(one.policy, str(tmp_path / "home")), file_s=2.0)
        (tmp_path / "files" / "f").write_text("a" * 60 + "!\n")
        asked = asyncio.create_task(refused(one, "key-0001", Grep(f"{tmp_path}/files", HOSTILE)))
        while not searches():
            await asyncio.sleep(0.005)
        slowest = 0.0
        for number in range(20):
            began = time.monotonic()
            await ok(one, f"stat-{number:04d}", calls.Stat(f"{tmp_path}/files/f"))
            slowest = max(slowest, time.monotonic() - began)
        assert not asked.done()
        assert slowest < 1.5  # a search within the node would take all of its two seconds
        failed = await asyncio.wait_for(asked, 20)
        assert failed.code == "timed_out"
        assert f"{tmp_path}/files/f" in failed.error
        assert not searches()
        good = await ok(one, "key-0002", Grep(f"{tmp_path}/files", "^a+!"))
        assert len(good.matches) == 1


async def test_many_hostile_expressions_leave_the_rest_alone(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        (tmp_path / "files" / "f").write_text("a" * 60 + "!\n")
        call = Grep(f"{tmp_path}/files", HOSTILE)
        asked = [
            asyncio.create_task(one.call(f"key-{number:04d}", call, WHO)) for number in range(12)
        ]
        while len(searches()) < finding.AT_ONCE:
            await asyncio.sleep(0.005)
        made = await asyncio.wait_for(ok(one, "key-9999", Exec(command="echo hi")), 10)
        assert made.stdout.head == b"hi\n"
        assert (await ok(one, "key-9998", calls.List(f"{tmp_path}/files"))).entries
        assert len(searches()) == finding.AT_ONCE
    # the node ended: no search outlives it, and everybody was answered
    for answer in await asyncio.gather(*asked):
        assert not answer[0]
        assert isinstance(answer[1], CallFailed)
        assert answer[1].retry_safe
    assert not searches()


async def test_what_is_found_and_what_is_not_looked_into(tmp_path: pathlib.Path) -> None:
    files = tmp_path / "files"
    async with engine(tmp_path) as one:
        (files / "a").write_bytes(b"one\r\nTwo\nlast")
        (files / "b").write_bytes(b"two\0")
        (files / "d").mkdir()
        (files / "d" / "c.txt").write_bytes(b"\xfftwo\n\n" + b"x" * 10_000 + b"two\n")
        (files / "link").symlink_to("/etc/passwd")
        path = str(files)
        made = await ok(one, "key-0001", Grep(path, "two", ignore_case=True))
        shown = [(one.path, one.line, len(one.text)) for one in made.matches]
        assert shown == [("a", 2, 3), ("d/c.txt", 1, 4), ("d/c.txt", 3, 4096)]
        assert (made.skipped, made.more) == (1, False)
        made = await ok(one, "key-0002", Grep(path, "two", files="*.txt"))
        assert not made.matches
        made = await ok(one, "key-0003", Grep(path, "two", files="**/*.txt", limit=1))
        assert (len(made.matches), made.more) == (1, True)
        made = await ok(one, "key-0004", Grep(f"{path}/a", "e$|t$"))
        assert [(one.path, one.line) for one in made.matches] == [(f"{path}/a", 3)]
        made = await ok(one, "key-0005", Grep(path, "(a+)+$", fixed=True))
        assert not made.matches
        made = await ok(one, "key-0006", Grep(f"{path}/a", "^$"))
        assert not made.matches  # there is no line after the last line's end
        for pattern in ("(", "a{1,99999999999}", "(?P<x", "[z-a]"):
            failed = await refused(one, f"key-{hash(pattern) & 0xFFFF:05d}", Grep(path, pattern))
            assert (failed.code, failed.details["field"]) == ("bad_request", "pattern")
        assert (await refused(one, "key-0008", Grep("/etc", "root"))).code == "path_not_allowed"


async def test_an_answer_is_bounded_in_bytes(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        (tmp_path / "files" / "f").write_bytes((b"x" * 5000 + b"\n") * 2000)
        made = await ok(one, "key-0001", Grep(f"{tmp_path}/files", "x", limit=10_000))
        assert made.more
        assert 0 < sum(len(one.text) for one in made.matches) <= finding.ANSWER_LIMIT


async def test_memory_is_bounded(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        (tmp_path / "files" / "f").write_bytes(b"ab" * (30 << 20))
        failed = await refused(one, "key-0001", Grep(f"{tmp_path}/files", "(?:(a)|(b))*c"))
        assert failed.code in {"bad_request", "timed_out"}

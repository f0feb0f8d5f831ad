"""What is kept for whoever asked and does not take it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.linkhouse import until

from handoff.nodes.brain import asking
from handoff.nodes.brain.asking import Asking, Waiting
from handoff.wire.node.calls import CallFailed, Exec, ExecResult, Output, Read, ReadResult, Result


async def test_all_is_told_to_whoever_takes_it() -> None:
    one = Asking("key-0001", "n1", Exec(command="x"), "", lambda *_: None)
    for _ in range(100):
        one.came("stdout", b"x" * (1 << 20))
    result = ExecResult(status="ok", exit_code=0)
    assert one.honest(result) is result


async def test_a_slow_client_costs_bounded_memory_and_is_told() -> None:
    size = 64 * 1024
    got: list[bytes] = []
    free = asyncio.Event()

    async def slow(_: str, data: bytes) -> None:
        await free.wait()
        got.append(data)

    one = Asking("key-0001", "n1", Exec(command="x"), "", slow)
    count = asking.QUEUE // size + 50
    for number in range(count):
        one.came("stdout", bytes([number % 256]) * size)
    assert sum(len(piece[1]) for piece in one._queue) <= asking.QUEUE  # type: ignore[arg-type]
    out = Output(bytes_total=count * size, tail=b"end", streamed=True)
    result = one.honest(ExecResult(status="ok", exit_code=3, stdout=out))
    assert isinstance(result, ExecResult)
    assert (result.exit_code, result.stdout.streamed) == (3, False)
    assert f"{50 * size} bytes of output were dropped" in result.note
    one.finish(True, result)
    ended: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    Waiting(one, 30, lambda _, answer: ended.set_result(answer))
    free.set()
    assert await asyncio.wait_for(ended, 20) is result
    # what was told is the start of it, without a gap
    whole = b"".join(bytes([number % 256]) * size for number in range(count))
    assert b"".join(got) == whole[: asking.QUEUE]


async def test_a_file_of_which_bytes_were_dropped_is_no_answer() -> None:
    free = asyncio.Event()

    async def slow(*_: object) -> None:
        await free.wait()

    one = Asking("", "n1", Read("/x", stream=True), "", slow)
    for _ in range(3):
        one.came("data", b"x" * (asking.QUEUE // 2))
    result = one.honest(ReadResult(sha256="0"))
    assert isinstance(result, CallFailed)
    assert (result.code, result.retry_safe) == ("too_large", True)
    one.finish(False, result)
    ended: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    Waiting(one, 30, lambda _, answer: ended.set_result(answer))
    free.set()
    assert await asyncio.wait_for(ended, 20) is result


async def test_a_node_that_is_back_in_time_is_waited_for_and_one_that_is_not_is_not() -> None:
    told: list[tuple[bool, Any]] = []
    asking = Asking("key-0001", "n1", Exec(command="true"), "")
    waiting = Waiting(asking, 0.01, lambda ok, answer: told.append((ok, answer)))
    asking.lost()
    asking.away = False  # it is on another link
    await until(lambda: waiting._back is None)
    assert not told
    asking.lost()
    await until(lambda: told)
    ((ok, failed),) = told
    assert (ok, failed.code, asking.waiting) == (False, "outcome_unknown", [])
    asking.finish(True, ExecResult("ok", 0))
    assert len(told) == 1
    Waiting(asking, 0.01, lambda ok, answer: told.append((ok, answer)))
    assert told[1:] == [(True, ExecResult("ok", 0))]

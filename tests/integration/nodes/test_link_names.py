"""What waits for a node while names, links and the node itself change under it."""

from __future__ import annotations

import asyncio
import os
import pathlib
from collections.abc import Iterator

import pytest
from tests.support.linkhouse import CLOCK, House, ask, house, linked, node, proxied, until

from handoff.errors import RequestConflict
from handoff.link.keys import load_or_make_key
from handoff.nodes.node.calls_journal import CALLS, CallsJournal
from handoff.nodes.node.dialler import pair
from handoff.wire.node import calls
from handoff.wire.node.calls import CallFailed, Exec


@pytest.mark.parametrize("cut", [False, True])
async def test_two_nodes_swap_their_names_while_calls_run(
    tmp_path: pathlib.Path, cut: bool
) -> None:
    made_calls = {}
    for name in ("n1", "n2"):
        os.mkfifo(tmp_path / f"go-{name}")
        command = f"echo x >>{tmp_path}/ran-{name}; cat {tmp_path}/go-{name}"
        made_calls[name] = Exec(command=command)
    async with house(tmp_path) as made, node(made), node(made, "n2"):
        await linked(made)
        await linked(made, "n2")
        brain = made.brain
        asked = {
            name: asyncio.create_task(brain.call(name, call, key=f"key-of-{name}"))
            for name, call in made_calls.items()
        }
        await until(lambda: all((tmp_path / f"ran-{name}").exists() for name in made_calls))
        before = dict(brain.sessions)
        for name, to in (("n1", "n3"), ("n2", "n1"), ("n3", "n2")):
            brain.rename(name, to)
            if cut and to in brain.sessions:
                brain.sessions[to].close("stale")
        if cut:
            await until(lambda: sorted(brain.sessions) == ["n1", "n2"])
            assert not set(brain.sessions.values()) & set(before.values())
        else:
            assert brain.sessions == {"n1": before["n2"], "n2": before["n1"]}
        assert {one.key: one.node for one in brain.asking.values() if one.key} == {
            "key-of-n1": "n2",
            "key-of-n2": "n1",
        }
        for name in made_calls:
            with await asyncio.to_thread(open, tmp_path / f"go-{name}", "w") as file:
                file.write(f"from {name}")
        for was, now in (("n1", "n2"), ("n2", "n1")):
            ok, answer = await asked[was]
            assert ok, answer
            assert answer.stdout.head == f"from {was}".encode()
            again = await brain.call(now, made_calls[was], key=f"key-of-{was}")
            assert again == (True, answer.untold())
            with pytest.raises(RequestConflict):
                await brain.call(was, made_calls[was], key=f"key-of-{was}")
            assert (tmp_path / f"ran-{was}").read_text() == "x\n"


async def test_input_that_was_lost_with_the_link_is_not_left_out(tmp_path: pathlib.Path) -> None:
    """The node never got the call, and a part of what was to go into it is gone."""
    whole = [b"a" * 1000, b"b" * 1000, b"c" * 1000]
    call = Exec(command=f"cat >{tmp_path}/got", stdin="stream")

    def fed() -> tuple[Iterator[bytes], asyncio.Event]:
        return iter([*whole, b""]), asyncio.Event()

    pieces, some = fed()

    async def feed() -> bytes:
        data = next(pieces)
        if data == whole[1]:
            some.set()
        return data

    async with house(tmp_path) as made, proxied(made) as proxy:
        await ask(made, calls.GetFacts())
        proxy.stall()
        asked = asyncio.create_task(made.brain.call("n1", call, key="key-0001", feed=feed))
        await asyncio.wait_for(some.wait(), 20)
        proxy.cut()
        proxy.go()
        ok, failed = await asyncio.wait_for(asked, 20)
        assert not ok
        assert isinstance(failed, CallFailed)
        assert (failed.code, failed.retry_safe) == ("unreachable", True)
        assert not (tmp_path / "got").exists()
        await until(lambda: "key-0001" not in made.brain.asking)
        assert made.brain.journal.find("key-0001") is None
        pieces, some = fed()
        await linked(made)
        assert (await ask(made, call, "key-0001", feed=feed)).exit_code == 0
        assert (tmp_path / "got").read_bytes() == b"".join(whole)


async def test_what_a_node_can_not_know_is_told_as_soon_as_it_is_back(
    tmp_path: pathlib.Path,
) -> None:
    call = calls.Mkdir(str(tmp_path / "n1" / "files" / "made"))
    async with house(tmp_path) as made:
        async with proxied(made) as proxy:
            await ask(made, calls.GetFacts())
            proxy.stall()
            asked = asyncio.create_task(made.brain.call("n1", call, key="key-0001", return_s=600))
            await until(lambda: "key-0001" in made.brain.asking)
            proxy.cut()
        # as one leaves it that is killed in the middle of it
        journal = CallsJournal(str(tmp_path / "n1" / "node" / CALLS))
        journal.begin("key-0001", calls.digest(call), call.op, CLOCK.now_ms(), calls.to_json(call))
        journal.close()
        async with node(made):
            ok, failed = await asyncio.wait_for(asked, 20)
            assert not ok
            assert isinstance(failed, CallFailed)
            assert failed.code == "outcome_unknown"
            assert "does not know any more" in failed.error
            ok, again = await made.brain.call("n1", call, key="key-0001")
            assert (ok, again.code) == (False, "outcome_unknown")


async def test_a_key_names_one_call_whether_its_node_is_there_or_not(
    tmp_path: pathlib.Path,
) -> None:
    os.mkfifo(tmp_path / "go")
    call = Exec(command=f"cat {tmp_path}/go")
    others = [("n1", Exec(command="echo other")), ("n2", call)]
    async with house(tmp_path) as made:

        async def refused() -> None:
            for target, other in others:
                with pytest.raises(RequestConflict):
                    await asyncio.wait_for(made.brain.call(target, other, key="key-0001"), 20)

        async with node(made), node(made, "n2"):
            await linked(made)
            await linked(made, "n2")
            asked = asyncio.create_task(made.brain.call("n1", call, key="key-0001"))
            await until(lambda: "key-0001" in made.brain.asking)
            await refused()
            with await asyncio.to_thread(open, tmp_path / "go", "w") as file:
                file.write("over")
            answer = await asked
            assert answer[1].stdout.head == b"over"
            await refused()
        await until(lambda: not made.brain.sessions)
        await refused()
        assert await made.brain.call("n1", call, key="key-0001") == (True, answer[1].untold())


async def test_what_nobody_waits_for_any_more_is_not_begun(tmp_path: pathlib.Path) -> None:
    call = Exec(command=f"echo x >>{tmp_path}/ran")
    async with house(tmp_path) as made, proxied(made) as proxy:
        await ask(made, calls.GetFacts())
        proxy.stall()
        asked = asyncio.create_task(made.brain.call("n1", call, key="key-0001", return_s=0.01))
        await until(lambda: "key-0001" in made.brain.asking)
        proxy.open = False
        proxy.cut()
        ok, failed = await asyncio.wait_for(asked, 20)
        assert not ok
        assert isinstance(failed, CallFailed)
        assert failed.code == "outcome_unknown"
        proxy.open = True
        proxy.go()
        await linked(made)
        await until(lambda: "key-0001" not in made.brain.asking)
        assert made.brain.journal.find("key-0001") is None
        assert not (tmp_path / "ran").exists()
        await ask(made, call, "key-0001")
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_node_that_is_paired_anew_has_nothing_of_the_one_before(
    tmp_path: pathlib.Path,
) -> None:
    call = Exec(command=f"echo x >>{tmp_path}/ran; exec sleep 600")
    async with house(tmp_path) as made, node(made) as first:
        await linked(made)
        before = made.brain.sessions["n1"]
        asked = asyncio.create_task(made.brain.call("n1", call, key="key-0001", return_s=600))
        await until((tmp_path / "ran").exists)
        code = made.brain.store.new_code(made.address, made.key.public, "n1", replace=True)
        key = load_or_make_key(str(tmp_path / "other" / "n1" / "node" / "key.pem"))
        await pair(code, key, CLOCK)
        assert made.brain.sessions.get("n1") is not before
        await until(lambda: first.status.state == "refused")
        other = House(tmp_path / "other", made.brain, made.port, made.key, made.address)
        async with node(other):
            ok, failed = await asyncio.wait_for(asked, 20)
            assert not ok
            assert isinstance(failed, CallFailed)
            assert failed.code == "outcome_unknown"
            assert await made.brain.call("n1", call, key="key-0001") == (False, failed)
            assert (await ask(made, Exec(command="exit 3"), "key-0002")).exit_code == 3
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_brain_that_starts_anew_waits_no_longer_for_a_node_than_it_is_told(
    tmp_path: pathlib.Path,
) -> None:
    call = Exec(command=f"echo x >>{tmp_path}/ran")
    async with house(tmp_path) as made:
        async with node(made):
            await linked(made)
        await until(lambda: not made.brain.sessions)
        # as one leaves it that is killed after it has sent the call
        digest, args = calls.digest(call), calls.to_json(call)
        made.brain.journal.begin("key-0001", "n1", call.op, digest, args, "", CLOCK.now_ms(), "")
        asked = made.brain.call("n1", call, key="key-0001", return_s=0.01)
        ok, failed = await asyncio.wait_for(asked, 20)
        assert not ok
        assert isinstance(failed, CallFailed)
        assert failed.code == "outcome_unknown"
        assert "has not come back" in failed.error


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("lost", [True, False])
async def test_input_goes_on_where_it_was_or_ends_the_command(
    tmp_path: pathlib.Path, lost: bool, stream: bool
) -> None:
    got = tmp_path / "got"
    call = Exec(command=f"cat >{got}", stdin="stream", stream=stream)
    go_on, cut = asyncio.Event(), asyncio.Event()
    left = [b"a" * 1000, b"b" * 1000] if lost else [b"a" * 2000]

    async def feed() -> bytes:
        if len(left) == 1 and lost:
            await go_on.wait()
        if not left:
            cut.set()
            await go_on.wait()
            go_on.clear()
            left.extend([b"", b"c" * 1000])
            return left.pop()
        return left.pop(0)

    async with house(tmp_path) as made, proxied(made) as proxy:
        await linked(made)
        asked = asyncio.create_task(made.brain.call("n1", call, key="key-0001", feed=feed))
        await until(lambda: got.exists() and got.stat().st_size == (1000 if lost else 2000))
        proxy.stall()
        if lost:
            go_on.set()
        await asyncio.wait_for(cut.wait(), 20)
        before = made.brain.sessions["n1"]
        proxy.cut()
        proxy.go()
        await until(lambda: made.brain.sessions.get("n1", before) is not before)
        go_on.set()
        ok, answer = await asyncio.wait_for(asked, 20)
        assert ok, answer
        if lost:
            assert answer.status == "cancelled"
            assert got.read_bytes() == b"a" * 1000
        else:
            assert answer.exit_code == 0
            assert got.read_bytes() == b"a" * 2000 + b"c" * 1000

"""Brain and node over a real socket: each call once, whatever becomes of the link."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pathlib
import shutil
import time
from dataclasses import replace
from typing import Any

import pytest
from tests.support.linkhouse import CLOCK, House, ask, house, linked, node, proxied, until
from websockets.asyncio.client import connect

from handoff.errors import PairingRefused, RequestConflict, StorageFull, UnknownNode
from handoff.link.ciphers import CIPHERS
from handoff.link.keys import load_or_make_key, new_key
from handoff.link.tls import Pin, client_context
from handoff.nodes import audit
from handoff.nodes.brain import admission, session
from handoff.nodes.brain.session import Session
from handoff.nodes.node.dialler import pair
from handoff.nodes.node.serving import Serving
from handoff.wire.node import calls
from handoff.wire.node.calls import CallFailed, Exec, ExecResult
from handoff.wire.node.events import StateAsked
from handoff.wire.node.node import NodeLink
from handoff.wire.node.options import NodeOptions


async def test_pairs_links_and_runs(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made, node(made):
        await linked(made)
        shown = made.brain.connected()[0]
        assert (shown.profile, shown.sealed, shown.method) == ("handoff", "v2", "key")
        answer = await ask(made, Exec(command="printf out; printf err >&2; exit 7"), "key-0001")
        assert (answer.exit_code, answer.stdout.head, answer.stderr.head) == (7, b"out", b"err")
        stat = await ask(made, calls.Stat(f"{tmp_path}/n1/files"))
        assert stat.kind == "dir"
        ok, failed = await made.brain.call("n1", calls.Read("/etc/passwd"), key="")
        assert not ok
        assert failed.code == "path_not_allowed"
        await until(lambda: made.brain.store.node("n1").facts)
    rows = list(audit.rows(f"{tmp_path}/brain/audit"))
    theirs = list(audit.rows(f"{tmp_path}/n1/node/audit"))
    assert {row["event"] for row in rows} >= {"pair", "link", "call", "result"}
    joined = [row for row in rows + theirs if row.get("request_id") == "key-0001"]
    assert {(row["side"], row["event"]) for row in joined} == {
        ("brain", "call"),
        ("brain", "result"),
        ("node", "call"),
        ("node", "result"),
    }
    looks = [(row["side"], row["request_id"]) for row in rows + theirs if row.get("op") == "stat"]
    assert {side for side, _ in looks} == {"brain", "node"}
    assert len({name for _, name in looks}) == 1


async def test_streams_through_the_link(tmp_path: pathlib.Path) -> None:
    data = os.urandom(5_000_000)
    parts = [data[at : at + 300_000] for at in range(0, len(data), 300_000)] + [b""]
    got: dict[str, bytes] = {}

    async def piece(stream: str, more: bytes) -> None:
        got[stream] = got.get(stream, b"") + more

    async def feed() -> bytes:
        return parts.pop(0)

    async with house(tmp_path) as made, node(made):
        await linked(made)
        call = Exec(command="cat", stdin="stream", stream=True)
        answer = await ask(made, call, "key-0001", pieces=piece, feed=feed)
        assert answer.stdout.streamed
        assert hashlib.sha256(got["stdout"]).digest() == hashlib.sha256(data).digest()
        path = f"{tmp_path}/n1/files/f"
        parts[:] = [data, b""]
        digest = hashlib.sha256(data).hexdigest()
        write = calls.Write(path, stream=True, size=len(data), sha256=digest)
        assert (await ask(made, write, "key-0002", feed=feed)).size == len(data)
        got.clear()
        read = await ask(made, calls.Read(path, stream=True), pieces=piece)
        assert read.sha256 == digest
        assert got["data"] == data


async def test_control_is_never_behind_data(tmp_path: pathlib.Path) -> None:
    taken = asyncio.Event()

    async def held(_: str, __: bytes) -> None:
        await taken.wait()

    async with house(tmp_path) as made, node(made):
        await linked(made)
        big = asyncio.create_task(
            ask(made, Exec(command="head -c 40000000 /dev/zero", stream=True), "k" * 8, pieces=held)
        )
        await until(
            lambda: (
                "k" * 8 in made.brain.asking and made.brain.asking["k" * 8].received.get("stdout")
            )
        )
        # nobody takes what came, so that whoever waited behind it would wait for ever
        small = (ask(made, Exec(command="true"), f"key-{n:04d}") for n in range(20))
        await asyncio.wait_for(asyncio.gather(*small), 60)
        assert not big.done()
        assert made.brain.cancel("k" * 8)
        taken.set()
        await big


@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.parametrize("transfer", ["", "transfer-1"])
async def test_a_write_that_is_cancelled_midway_writes_nothing(
    tmp_path: pathlib.Path, mode: str, transfer: str
) -> None:
    first, never = [b"x" * 100_000], asyncio.Event()

    async def feed() -> bytes:
        if not first:
            await never.wait()
        return first.pop()

    async with house(tmp_path) as made, node(made):
        await linked(made)
        folder = tmp_path / "n1" / "files"
        (folder / "f").write_text("old")
        write = calls.Write(f"{folder}/f", mode=mode, stream=True, transfer=transfer)
        asked = asyncio.create_task(made.brain.call("n1", write, key="key-0001", feed=feed))
        await until(lambda: sum(one.stat().st_size for one in folder.iterdir()) > 100_000)
        assert made.brain.cancel("key-0001")
        ok, failed = await asyncio.wait_for(asked, 20)
        assert (ok, failed.code, failed.retry_safe) == (False, "cancelled", True)
        assert "nothing was written" in failed.error
        assert (folder / "f").read_text() == "old"
        assert os.listdir(folder) == ["f"]
        again = calls.Write(f"{folder}/f", b"new", mode=mode)
        assert (await ask(made, again, "key-0001")).bytes_written == 3


async def test_an_offline_node_is_told_at_once(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made:
        async with node(made):
            await linked(made)
        await until(lambda: not made.brain.sessions)
        before = time.monotonic()
        ok, failed = await made.brain.call("n1", Exec(command="true"), key="key-0001")
        assert time.monotonic() - before < 2
        assert (ok, failed.code, failed.retry_safe) == (False, "node_offline", True)
        assert failed.details["revoked"] is False
        waiting = asyncio.create_task(
            made.brain.call("n1", Exec(command="true"), key="key-0001", wait_s=20)
        )
        async with node(made):
            ok, answer = await waiting
            assert ok
            assert answer.exit_code == 0


async def test_a_revoked_node_is_gone_at_once_and_stays_away(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made, node(made) as dialler:
        await linked(made)
        before = time.monotonic()
        assert made.brain.revoke("n1")
        await until(lambda: dialler.status.state == "refused")
        assert time.monotonic() - before < 1
        assert dialler.status.last_error.startswith("revoked")
        assert not made.brain.sessions
        ok, failed = await made.brain.call("n1", Exec(command="true"), key="key-0001")
        assert (ok, failed.code, failed.details["revoked"]) == (False, "node_offline", True)
        assert failed.remedy == "pair it anew: handoff nodes pair n1"


@pytest.mark.parametrize("how", ["revoke", "remove", "rename", "replace"])
async def test_a_node_that_proves_itself_too_late_is_not_let_in(
    tmp_path: pathlib.Path, how: str
) -> None:
    """What it proves is what the brain knew when it greeted."""
    async with house(tmp_path) as made:
        async with node(made):
            await linked(made)
        await until(lambda: not made.brain.sessions)
        key = load_or_make_key(str(tmp_path / "n1" / "node" / "key.pem"))
        options = NodeOptions("n1", key=key.private, brain_key=made.key.public)
        link = NodeLink(options, CLOCK, CIPHERS, os.urandom)
        context = client_context(Pin(key=made.key.public))
        async with connect(f"{made.address}/ws/nodes", ssl=context, proxy=None) as socket:
            await socket.send(link.next_frame() or "")
            link.receive(await socket.recv())
            proof = link.next_frame()
            assert proof is not None
            if how == "revoke":
                made.brain.revoke("n1")
            elif how == "rename":
                made.brain.rename("n1", "n2")
            elif how == "remove":
                made.brain.store.remove("n1")
            else:
                code = made.brain.store.new_code(made.address, made.key.public, "n1", replace=True)
                await pair(code, new_key(), CLOCK)
            await socket.send(proof)
            link.receive(await socket.recv())
        assert not made.brain.sessions
        assert link.closing is not None
        assert link.closing.reason == ("revoked" if how == "revoke" else "not_now")


async def test_two_installations_of_one_name(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made, node(made):
        await linked(made)
        (tmp_path / "other" / "n1" / "node").mkdir(parents=True)
        for name in ("key.pem",):
            shutil.copy(tmp_path / "n1" / "node" / name, tmp_path / "other" / "n1" / "node" / name)
        twin = House(tmp_path / "other", made.brain, made.port, made.key, made.address)
        async with node(twin) as second:
            await until(lambda: second.status.state == "refused")
            assert second.status.last_error.startswith("name_in_use")
            assert (await ask(made, Exec(command="true"), "key-0001")).exit_code == 0


def copied(made: House, name: str) -> House:
    """A house within the first one, in which node n1 is a copy of the first one's."""
    root = made.root / name
    shutil.copytree(
        made.root / "n1" / "node",
        root / "n1" / "node",
        ignore=shutil.ignore_patterns("calls"),  # holds a socket
    )
    return House(root, made.brain, made.port, made.key, made.address)


async def test_a_copy_of_a_node_is_refused_as_long_as_the_other_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path) as made:
        async with node(made) as first:
            await linked(made)
            here = made.brain.sessions["n1"]
            async with node(copied(made, "copy")) as copy:
                await until(lambda: copy.status.state == "refused")
                assert "a copy of it runs" in copy.status.last_error
                assert made.brain.sessions["n1"] is here
                assert first.status.state == "connected"
        await until(lambda: not made.brain.sessions)
        # and one that was only started anew comes in, also where the old link says nothing
        async with proxied(made) as proxy:
            monkeypatch.setattr(admission, "ALIVE_S", 0.2)
            before = made.brain.sessions["n1"]
            proxy.stall()
            async with node(copied(made, "again")) as again:
                await until(lambda: again.status.state == "connected")
                assert made.brain.sessions["n1"] is not before


async def test_a_copy_takes_over_when_it_is_told_to(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made, node(made) as first:
        await linked(made)
        async with node(copied(made, "copy"), take_over=True) as copy:
            await until(lambda: first.status.state == "refused")
            assert copy.status.state == "connected"
            assert (await ask(made, Exec(command="true"), "key-0001")).exit_code == 0


async def test_what_a_copy_never_saw_is_not_run_by_it(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made:
        call = Exec(command=f"echo x >>{tmp_path}/ran; exec sleep 600")
        async with node(made):
            await linked(made)
            asked = asyncio.create_task(made.brain.call("n1", call, key="key-0001", return_s=20))
            await until((tmp_path / "ran").exists)
            other = copied(made, "copy")
            os.unlink(tmp_path / "copy" / "n1" / "node" / "calls.sqlite3")
        await until(lambda: not made.brain.sessions)
        async with node(other):
            ok, failed = await asked
            assert not ok
            assert isinstance(failed, CallFailed)
            assert failed.code == "outcome_unknown"
            assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_cut_link_loses_nothing_and_runs_nothing_twice(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "go")
    got: list[bytes] = []

    async def piece(_: str, more: bytes) -> None:
        got.append(more)

    command = f"echo x >>{tmp_path}/ran; seq 1 20000; cat {tmp_path}/go; seq 20001 40000; exit 5"
    async with house(tmp_path) as made, proxied(made) as proxy:
        call = Exec(command=command, stream=True)
        asked = asyncio.create_task(ask(made, call, "key-0001", pieces=piece))
        await until(lambda: got)
        for _ in range(3):
            before = made.brain.sessions["n1"]
            proxy.cut()
            await until(lambda old=before: made.brain.sessions.get("n1", old) is not old)
        with open(tmp_path / "go", "w"):
            pass
        answer = await asked
        assert answer.exit_code == 5
        assert b"".join(got) == b"".join(b"%d\n" % n for n in range(1, 40001))
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_node_that_stays_away_is_unknown_and_then_told(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made, proxied(made) as proxy:
        command = f"echo x >>{tmp_path}/ran; sleep 0.5; exit 4"
        asked = asyncio.create_task(
            made.brain.call("n1", Exec(command=command), key="key-0001", return_s=0.3)
        )
        await until((tmp_path / "ran").exists)
        proxy.open = False
        proxy.cut()
        ok, failed = await asked
        assert not ok
        assert isinstance(failed, CallFailed)
        assert failed.code == "outcome_unknown"
        proxy.open = True
        answer = await ask(made, Exec(command=command), "key-0001")
        assert answer.exit_code == 4
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_node_that_does_not_say_what_became_of_a_call_is_asked_on_a_new_link(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "go")
    tell, silent = Serving._state, [True]

    def state(serving: Serving, event: StateAsked) -> None:
        if silent:
            silent.clear()
        else:
            tell(serving, event)

    monkeypatch.setattr(Serving, "_state", state)
    monkeypatch.setattr(session, "ASK_S", 0.2)
    async with house(tmp_path) as made, proxied(made) as proxy:
        call = Exec(command=f"echo x >>{tmp_path}/ran; cat {tmp_path}/go; exit 7")
        asked = asyncio.create_task(ask(made, call, "key-0001"))
        await until((tmp_path / "ran").exists)
        proxy.cut()
        await until(lambda: not silent)
        with open(tmp_path / "go", "w"):
            pass
        assert (await asked).exit_code == 7
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_a_brain_that_starts_anew_finds_the_result(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "go")
    command = f"echo x >>{tmp_path}/ran; cat {tmp_path}/go; echo over; exit 6"
    call = Exec(command=command)
    async with contextlib.AsyncExitStack() as stack:
        async with house(tmp_path) as first:
            port = int(first.address.rpartition(":")[2])
            await stack.enter_async_context(node(first))
            await linked(first)
            asked = asyncio.create_task(first.brain.call("n1", call, key="key-0001", return_s=0.2))
            await until((tmp_path / "ran").exists)
        with contextlib.suppress(asyncio.CancelledError):
            await asked
        async with house(tmp_path, port) as second:
            await linked(second)
            with open(tmp_path / "go", "w"):
                pass
            answer = await ask(second, call, "key-0001")
            assert isinstance(answer, ExecResult)
            assert (answer.exit_code, answer.stdout.head) == (6, b"over\n")
            assert (tmp_path / "ran").read_text() == "x\n"


async def test_an_upload_goes_on_after_a_cut(tmp_path: pathlib.Path) -> None:
    data = os.urandom(4_000_000)
    digest = hashlib.sha256(data).hexdigest()
    path = f"{tmp_path}/n1/files/f"
    async with house(tmp_path) as made, proxied(made) as proxy:
        at = 0
        cut = False
        gate = asyncio.Event()

        async def feed() -> bytes:
            nonlocal at, cut
            if at >= len(data) // 2 and not cut:
                cut = True
                proxy.cut()
                await gate.wait()
            piece = data[at : at + 100_000]
            at += len(piece)
            return piece

        write = calls.Write(path, stream=True, size=len(data), sha256=digest, transfer="upload-01")
        asked = asyncio.create_task(
            made.brain.call("n1", write, key="key-0001", feed=feed, return_s=10)
        )
        ok, failed = await asked
        gate.set()
        assert not ok, failed
        await linked(made)
        there = await ask(made, calls.TransferStat("upload-01"))
        assert 0 < there.received <= len(data)
        assert there.sha256 == hashlib.sha256(data[: there.received]).hexdigest()
        at = there.received
        import dataclasses

        rest = dataclasses.replace(write, offset=there.received)
        assert (await ask(made, rest, "key-0002", feed=feed)).size == len(data)
        assert pathlib.Path(path).read_bytes() == data


async def test_a_wrong_brain_gets_nothing(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made:
        code = made.brain.store.new_code(made.address, new_key().public, "n1")
        with pytest.raises(Exception, match="certificate"):
            await pair(code, new_key(), CLOCK)
        good = made.brain.store.new_code(made.address, made.key.public, "n1")
        await pair(good, new_key(), CLOCK)
        with pytest.raises(PairingRefused):
            await pair(good, new_key(), CLOCK)


async def test_hundred_cuts(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made, proxied(made) as proxy:
        for number in range(30):
            call = Exec(command=f"echo {number} >>{tmp_path}/ran")
            asked = asyncio.create_task(made.brain.call("n1", call, key=f"key-{number:04d}"))
            await asyncio.sleep(0)
            if number % 2:
                await until((tmp_path / "ran").exists)
            proxy.cut()
            ok, answer = await asked
            while not ok and answer.retry_safe:
                await linked(made)
                ok, answer = await made.brain.call("n1", call, key=f"key-{number:04d}")
            assert ok, answer
            await linked(made)
        assert (tmp_path / "ran").read_text() == "".join(f"{n}\n" for n in range(30))


async def test_a_call_that_waited_for_its_node_is_told_once_and_whole(
    tmp_path: pathlib.Path,
) -> None:
    size = 3 << 20  # more than one window
    call = Exec(command=f"head -c {size} /dev/zero; echo end >&2", stream=True)
    got: dict[str, int] = {}

    async def pieces(stream: str, data: bytes) -> None:
        got[stream] = got.get(stream, 0) + len(data)

    async with house(tmp_path) as made:
        async with node(made):
            await linked(made)
        await until(lambda: not made.brain.sessions)
        waiting = asyncio.create_task(
            made.brain.call("n1", call, key="key-0001", wait_s=30, pieces=pieces)
        )
        await asyncio.sleep(0)
        async with node(made):
            ok, answer = await asyncio.wait_for(waiting, 30)
        assert ok
        assert got == {"stdout": size, "stderr": 4}
        assert answer.stdout.bytes_total == size


async def test_two_that_wait_with_one_key_are_one_call(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    real = Session.send

    def send(self: Session, asking: Any) -> None:
        sent.append(asking.key)
        real(self, asking)

    monkeypatch.setattr(Session, "send", send)
    async with house(tmp_path) as made:
        async with node(made):
            await linked(made)
        await until(lambda: not made.brain.sessions)
        call = Exec(command=f"echo x >>{tmp_path}/ran")
        both = [
            asyncio.create_task(made.brain.call("n1", call, key="key-0001", wait_s=30))
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        async with node(made):
            assert [one[0] for one in await asyncio.gather(*both)] == [True, True]
        assert sent.count("key-0001") == 1
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_reads_with_one_key_have_the_bytes_each(tmp_path: pathlib.Path) -> None:
    """Two that read at once with one key: neither answer is without its content."""
    data = os.urandom(3_000_000)
    free = asyncio.Event()
    got: list[bytes] = [b"", b""]

    def taker(number: int) -> Any:
        async def take(_: str, more: bytes) -> None:
            await free.wait()
            got[number] += more

        return take

    async with house(tmp_path) as made, node(made):
        await linked(made)
        path = tmp_path / "n1" / "files" / "f"
        path.write_bytes(data)
        call = calls.Read(str(path), stream=True)
        both = [asyncio.create_task(ask(made, call, "key-0001", pieces=taker(n))) for n in range(2)]
        await until(lambda: made.brain.asking.get("key-0001"))
        ok, answer = await made.brain.call("n1", calls.Stat(str(path)), key="key-0002")
        assert ok, answer
        with pytest.raises(RequestConflict):
            await made.brain.call("n1", calls.Read("/other", stream=True), key="key-0001")
        free.set()
        assert [one.size for one in await asyncio.gather(*both)] == [len(data)] * 2
        assert got == [data, data]
        await until(lambda: not made.brain.asking)


async def test_a_key_is_asked_again_whatever_way_the_answer_goes(tmp_path: pathlib.Path) -> None:
    """A command that runs, asked again by somebody who wants nothing streamed, and also after
    its brain has ended: it is the same call, and the link stays."""
    calling = Exec(command=f"echo x >>{tmp_path}/ran; echo out; cat {tmp_path}/go", stream=True)
    plain = replace(calling, stream=False)
    os.mkfifo(tmp_path / "go")

    async def none(_: str, __: bytes) -> None:
        return None

    async with house(tmp_path) as made:
        number = int(made.address.rpartition(":")[2])
        async with node(made, stop=False):
            await linked(made)
            first = asyncio.create_task(
                made.brain.call("n1", calling, key="key-0001", pieces=none, return_s=0.1)
            )
            await until((tmp_path / "ran").exists)
            again = asyncio.create_task(made.brain.call("n1", plain, key="key-0001", return_s=0.1))
            await asyncio.sleep(0)
        assert [(await one)[0] for one in (first, again)] == [False, False]
    async with house(tmp_path, number) as made:
        waiting = asyncio.create_task(made.brain.call("n1", plain, key="key-0001"))
        await until(lambda: "key-0001" in made.brain.asking)
        async with node(made):
            await until(lambda: made.brain.asking["key-0001"].received)
            session = made.brain.sessions["n1"]
            with open(tmp_path / "go", "w"):
                pass
            ok, answer = await waiting
            assert ok, answer
            assert (answer.exit_code, answer.stdout.streamed) == (0, False)
            assert answer.stdout.bytes_total == 4
            assert made.brain.sessions["n1"] is session
    assert (tmp_path / "ran").read_text() == "x\n"


async def test_who_waits_for_a_revoked_node_is_told_at_once(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made, node(made):
        await linked(made)
        call = Exec(command=f"echo x >{tmp_path}/ran; sleep 600")
        waiting = asyncio.create_task(made.brain.call("n1", call, key="key-0001"))
        await until((tmp_path / "ran").exists)
        assert made.brain.revoke("n1")
        before = time.monotonic()
        ok, failed = await waiting
        assert time.monotonic() - before < 5
        assert (ok, failed.code) == (False, "outcome_unknown")
        assert "revoked" in failed.error


@pytest.mark.parametrize(("how", "code"), [("revoke", "node_offline"), ("rename", "unknown_node")])
async def test_a_call_that_waits_for_a_node_is_told_when_none_can_come(
    tmp_path: pathlib.Path, how: str, code: str
) -> None:
    call = Exec(command=f"echo x >>{tmp_path}/ran")
    async with house(tmp_path) as made:
        async with node(made):
            await linked(made)
        await until(lambda: "n1" not in made.brain.sessions)
        waits = [
            asyncio.create_task(made.brain.call("n1", call, key=f"key-000{n}", wait_s=3600))
            for n in range(3)
        ]
        await until(lambda: "n1" in made.brain._absent._back)
        if how == "revoke":
            made.brain.revoke("n1")
        else:
            made.brain.rename("n1", "n2")
        async with asyncio.timeout(10):
            for one in waits:
                try:
                    ok, failed = await one
                    told, details = failed.code, failed.details
                except UnknownNode as error:
                    ok, told, details = False, error.code, error.details
                assert (ok, told) == (False, code)
                assert details.get("revoked", True)
        if how == "revoke":  # nor is it waited for by whoever asks then
            async with asyncio.timeout(10):
                ok, failed = await made.brain.call("n1", call, key="key-0009", wait_s=3600)
            assert (ok, failed.code, failed.details["revoked"]) == (False, code, True)
        assert not (tmp_path / "ran").exists()


async def test_a_call_that_is_cancelled_before_its_node_comes_is_not_sent(
    tmp_path: pathlib.Path,
) -> None:
    def call(name: str) -> Exec:
        return Exec(command=f"echo x >>{tmp_path}/{name}")

    async with house(tmp_path) as made:
        async with node(made):
            await linked(made)
        await until(lambda: "n1" not in made.brain.sessions)
        waits = {
            key: asyncio.create_task(made.brain.call("n1", call(key), key=key, wait_s=3600))
            for key in ("key-0001", "key-0002", "key-0003")
        }
        await until(lambda: len(made.brain._absent._queued) == 3)
        assert made.brain.cancel("key-0001")
        async with asyncio.timeout(10):
            ok, failed = await waits["key-0001"]
        assert (ok, failed.code, failed.retry_safe) == (False, "cancelled", True)
        waits["key-0002"].cancel()  # whoever asked is gone
        await asyncio.gather(waits["key-0002"], return_exceptions=True)
        assert not made.brain.cancel("key-0001")
        assert not made.brain.cancel("key-0002")
        assert not made.brain.cancel("")
        async with node(made):
            assert (await waits["key-0003"])[0]
            assert not made.brain._absent._queued
        assert sorted(one.name for one in tmp_path.glob("key-*")) == ["key-0003"]


@pytest.mark.parametrize("how", ["cut", "left"])
async def test_a_file_that_was_read_in_part_is_in_the_nodes_audit(
    tmp_path: pathlib.Path, how: str
) -> None:
    def rows() -> list[tuple[str, str]]:
        found = audit.rows(str(tmp_path / "n1" / "node" / "audit"))
        return [(one["status"], one["code"]) for one in found if one.get("op") == "read"]

    async with house(tmp_path) as made, node(made):
        await linked(made)
        path = tmp_path / "n1" / "files" / "large"
        path.write_bytes(bytes(30_000_000))
        began, go = asyncio.Event(), asyncio.Event()

        async def taken(_: str, data: bytes) -> None:
            assert data
            began.set()
            await go.wait()

        call = calls.Read(str(path), stream=True)
        asked = asyncio.create_task(made.brain.call("n1", call, key="", pieces=taken))
        await began.wait()
        if how == "cut":
            made.brain.sessions["n1"].close("stale")
            go.set()
            ok, failed = await asked
            assert (ok, failed.code) == (False, "unreachable")
        else:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        code = "unreachable" if how == "cut" else "cancelled"
        await until(lambda: rows() == [("failed", code)])
        await linked(made)
        assert (await ask(made, calls.Stat(str(path)))).size == 30_000_000


async def test_what_breaks_on_a_link_ends_that_link_only(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path) as made, node(made) as dialler:
        await linked(made)
        first = made.brain.sessions["n1"]

        def broken(*_: Any) -> None:
            raise RuntimeError("wrong")

        monkeypatch.setattr(first, "take", broken)
        ok, failed = await made.brain.call("n1", calls.Stat("~"), key="")
        assert (ok, failed.retry_safe) == (False, True)
        await until(lambda: made.brain.sessions.get("n1") not in {None, first})
        # and on the node's side
        monkeypatch.setattr("handoff.nodes.node.serving.Serving._state", broken)
        monkeypatch.setattr("handoff.nodes.node.serving.Serving._open", broken)
        ok, failed = await made.brain.call("n1", calls.Stat("~"), key="")
        assert (ok, failed.retry_safe) == (False, True)
        monkeypatch.undo()
        await until(lambda: dialler.status.state == "connected")
        await until(lambda: "n1" in made.brain.sessions)
        await ask(made, calls.GetFacts())


async def test_a_call_outlives_the_name_of_its_node(tmp_path: pathlib.Path) -> None:
    call = Exec(command=f"echo x >>{tmp_path}/ran; cat {tmp_path}/go")
    os.mkfifo(tmp_path / "go")
    async with house(tmp_path) as made:
        async with node(made, stop=False):
            await linked(made)
            asked = asyncio.create_task(made.brain.call("n1", call, key="key-0001", return_s=0.1))
            await until((tmp_path / "ran").exists)
            session = made.brain.sessions["n1"]
            made.brain.rename("n1", "n2")
            assert made.brain.sessions == {"n2": session}
            assert [one.name for one in made.brain.connected()] == ["n2"]
        ok, failed = await asked  # the node went away
        assert (ok, failed.code) == (False, "outcome_unknown")
        assert failed.error.startswith("n2 ")
        async with node(made):  # which calls itself as it did before
            await linked(made, "n2")
            asked = asyncio.create_task(made.brain.call("n2", call, key="key-0001"))
            with await asyncio.to_thread(open, tmp_path / "go", "w") as file:
                file.write("over")
            ok, answer = await asked
            assert ok
            assert answer.stdout.head == b"over"
            assert (tmp_path / "ran").read_text() == "x\n"
            with pytest.raises(UnknownNode):
                await made.brain.call("n1", call, key="key-0002")


async def test_a_renamed_node_and_another_of_its_old_name(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made:
        async with node(made):
            await linked(made)
            made.brain.rename("n1", "n2")
        (tmp_path / "n1").rename(tmp_path / "first")
        async with node(made):  # another machine, paired as n1
            await linked(made)
            (tmp_path / "n1").rename(tmp_path / "other")
            (tmp_path / "first").rename(tmp_path / "n1")
            async with node(made) as old:
                await linked(made, "n2")
                await until(lambda: old.status.state == "connected")
                first, second = (made.brain.sessions[name] for name in ("n1", "n2"))
                assert first.link.hello is not None
                assert second.link.hello is not None
                assert first.link.hello.key != second.link.hello.key
                assert {first.link.hello.node_name, second.link.hello.node_name} == {"n1"}
                made.brain.revoke("n2")
                await until(lambda: old.status.state == "refused")
                assert list(made.brain.sessions) == ["n1"]


async def test_who_is_refused_can_not_fill_the_audit(tmp_path: pathlib.Path) -> None:
    async with house(tmp_path) as made:
        for _ in range(200):
            made.brain._refused(node="x" * 64, remote="192.0.2.1", code="invalid_token")
        rows = list(audit.rows(str(tmp_path / "brain" / "audit")))
        assert len(rows) == 60
        assert made.brain._refusals is not None
        made.brain._refusals._written.clear()
        made.brain._refused(node="y", remote="192.0.2.1", code="invalid_token")
        last = list(audit.rows(str(tmp_path / "brain" / "audit")))[-1]
        assert last["target"] == "140 refusals before it were not written"


async def test_a_link_that_ends_while_nothing_can_be_audited_is_over(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **more: object) -> None:
        raise StorageFull("no space left")

    async with house(tmp_path) as made:
        async with node(made):
            await linked(made)
            call = Exec(command=f"echo x >{tmp_path}/ran; sleep 600")
            asked = asyncio.create_task(made.brain.call("n1", call, key="key-0001", return_s=0.1))
            await until((tmp_path / "ran").exists)  # the node has it, and its keeper runs
            monkeypatch.setattr(made.brain.audit, "row", full)
        ok, failed = await asyncio.wait_for(asked, 20)
        assert (ok, failed.code) == (False, "outcome_unknown")
        assert not made.brain.sessions
        monkeypatch.undo()

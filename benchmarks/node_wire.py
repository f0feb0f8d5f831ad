"""The node link without a network: what the two machines themselves cost.

One process, one core, both ends: a call there and its result back; a stream of 64 MiB in
pieces, consumed as it comes; the memory of an open link. Sealed (X25519, AES-256-GCM) and
unsealed. The peer is JSON-RPC of the same size by the ``json`` module alone, both ends, with
no handshake, credit, order or seal.
"""

from __future__ import annotations

import dataclasses
import json
import time
import tracemalloc

from common import Row, main, p50
from tests.support.nodelink import BRAIN, BY_KEY, KEYED, Wires

from handoff.clock import SystemClock
from handoff.link.ciphers import CIPHERS
from handoff.wire.node import events as ev
from handoff.wire.node.calls import Exec, ExecResult, Output, Read, ReadResult
from handoff.wire.node.link import Link

MIB = 2**20
BODY = 256 * 1024


def open_link(sealed: bool) -> Wires:
    """A brain and a node, connected."""
    node = KEYED if sealed else dataclasses.replace(KEYED, seal=False)
    return Wires(BY_KEY, node, BRAIN, SystemClock()).pump()  # type: ignore[arg-type]


def move(link: Link, other: Link) -> None:
    """What one end has to send, to the other."""
    while (frame := link.next_frame()) is not None:
        other.receive(frame)


def calls(sealed: bool, count: int) -> float:
    """Microseconds of a call and its answer, both ends."""
    wires = open_link(sealed)
    brain, node = wires.brain, wires.node
    call = Exec(argv=("true",), cwd="/srv/app", env={"CI": "1"})
    result = ExecResult("ok", 0, stdout=Output(4, b"out\n"), duration_ms=3)
    taken = []
    for number in range(count):
        start = time.perf_counter()
        brain.call(call, key=f"key-{number:08d}", by="bench")
        move(brain, node)
        (asked,) = node.events()
        node.finish(asked.id, result)
        move(node, brain)
        (ended,) = brain.events()
        taken.append((time.perf_counter() - start) * 1e6)
        assert ended.result == result
    return p50(taken)


def peer(count: int) -> float:
    """The same two messages, by json.dumps and json.loads alone."""
    ask = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "exec",
        "params": {"argv": ["true"], "cwd": "/srv/app", "env": {"CI": "1"}, "key": "key-00000001"},
    }
    say = {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"status": "ok", "exit_code": 0, "stdout": {"bytes_total": 4, "head": "out\n"}},
    }
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        json.loads(json.dumps(ask).encode())
        json.loads(json.dumps(say).encode())
        taken.append((time.perf_counter() - start) * 1e6)
    return p50(taken)


def stream(sealed: bool, size: int) -> float:
    """MiB a second of one stream from node to brain, both ends."""
    wires = open_link(sealed)
    brain, node = wires.brain, wires.node
    number = brain.call(Read("/x", stream=True), window=8 * MIB)
    move(brain, node)
    node.events()
    block = bytes(BODY)
    start = time.perf_counter()
    given = got = 0
    while got < size:
        while given < size and node.send(number, "data", block):
            given += BODY
        move(node, brain)
        for event in brain.events():
            if isinstance(event, ev.StreamPiece):
                got += len(event.data)
                brain.consume(number, "data", len(event.data))
        move(brain, node)
        node.events()
    node.finish(number, ReadResult(size=size))
    return got / MIB / (time.perf_counter() - start)


def ciphers_alone(size: int) -> float:
    """MiB a second of AES-256-GCM there and back, in the same pieces."""
    aead = CIPHERS.aead(bytes(32))
    block = bytes(BODY)
    start = time.perf_counter()
    for number in range(size // BODY):
        nonce = number.to_bytes(12, "big")
        aead.decrypt(nonce, aead.encrypt(nonce, block, None), None)
    return size / MIB / (time.perf_counter() - start)


def memory(count: int) -> float:
    """KiB of a brain's end of an open link that has carried a call."""
    open_link(True)
    tracemalloc.start()
    held = []
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(count):
        wires = open_link(True)
        number = wires.brain.call(Exec(command="x"), key="key-00000001")
        wires.pump()
        wires.node.finish(number, ExecResult("ok", 0))
        wires.pump()
        held.append(wires.brain)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / len(held) / 1024


def measure(quick: bool) -> list[Row]:
    """All rows."""
    count = 300 if quick else 5_000
    size = (16 if quick else 256) * MIB
    json_alone = peer(count)
    return [
        Row(
            "node call and result, both ends' processor time",
            "µs",
            calls(True, count),
            400.0,
            {"json alone": json_alone},
            note="sealed",
        ),
        Row(
            "node call and result, both ends' processor time",
            "µs",
            calls(False, count),
            300.0,
            {"json alone": json_alone},
            note="unsealed",
        ),
        Row(
            "node stream, both ends on one core",
            "MiB/s",
            stream(True, size),
            400.0,
            {"AES-GCM alone": ciphers_alone(size)},
            more=True,
            note="sealed",
        ),
        Row(
            "node stream, both ends on one core",
            "MiB/s",
            stream(False, size),
            1500.0,
            more=True,
            note="unsealed",
        ),
        Row("brain's end of an open node link", "KiB", memory(20 if quick else 200), 10.0),
    ]


if __name__ == "__main__":
    main(measure)

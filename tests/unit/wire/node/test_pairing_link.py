"""A pairing code, presented over a link instead of a hello."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.nodelink import (
    BRAIN,
    BRAIN_KEY,
    BRAIN_PUBLIC,
    NODE_KEY,
    NODE_PUBLIC,
    Raw,
    Wires,
    brain_link,
    node_link,
)

from handoff.clock import FakeClock
from handoff.errors import PairingRefused
from handoff.link.keys import MachineKey
from handoff.link.pairing import check_answer, pair_message, parse_code
from handoff.link.tokens import NodeStore
from handoff.wire.node import events as ev
from handoff.wire.node.messages import Pair
from handoff.wire.node.options import NodeOptions


class Pairing:
    """Both ends, the brain's store behind one of them."""

    def __init__(self, folder: Path, **code: Any) -> None:
        self.clock = FakeClock()
        self.store = NodeStore(str(folder / "nodes.sqlite"), self.clock)
        key = MachineKey(BRAIN_KEY, BRAIN_PUBLIC)
        shown = self.store.new_code("wss://b:7000", BRAIN_PUBLIC, "lab", **code).text()
        self.code = parse_code(shown)
        self.key = key
        self.brain = brain_link(self.clock, BRAIN)

    def present(self, pair: Pair | None = None) -> list[ev.Event]:
        """The node's events, after everything was said."""
        pair = pair or pair_message(self.code, NODE_PUBLIC)
        self.brain = brain_link(self.clock, BRAIN)
        node = node_link(self.clock, NodeOptions("lab"), pair=pair)
        first = node.next_frame()
        assert first is not None
        self.brain.receive(first)
        (asked,) = self.brain.events()
        assert isinstance(asked, ev.PairAsked)
        try:
            self.brain.pair_ok(self.store.redeem(asked.pair, self.key))
        except PairingRefused as refused:
            self.brain.refuse("pairing_refused", refused.cause)
        while (frame := self.brain.next_frame()) is not None:
            node.receive(frame)
        assert node.closing is not None
        return node.events()


@pytest.fixture
def pairing(tmp_path: Path) -> Any:
    made = Pairing(tmp_path)
    yield made
    made.store.close()


def test_a_code_makes_a_link_that_both_trust(pairing: Pairing) -> None:
    paired, ended = pairing.present()
    assert isinstance(paired, ev.Paired)
    assert check_answer(pairing.code, NODE_PUBLIC, paired.answer) == "lab"
    assert isinstance(ended, ev.Ended)
    assert (ended.close.code, ended.close.reason) == (1000, "paired")
    options = NodeOptions("lab", key=NODE_KEY, brain_key=pairing.code.brain_key)
    wires = Wires(pairing.store.credential("lab"), options).pump()
    assert wires.brain.state == wires.node.state == "open"
    assert pairing.store.revoke("lab")
    wires = Wires(pairing.store.credential("lab"), options).pump()
    assert wires.node.closing is not None
    assert (wires.node.closing.reason, wires.node.closing.final) == ("revoked", True)


def test_a_code_that_is_used_is_refused_with_words(pairing: Pairing) -> None:
    pairing.present()
    (ended,) = pairing.present()
    assert isinstance(ended, ev.Ended)
    assert (ended.close.code, ended.close.reason) == (4008, "pairing_refused")
    assert "used or expired" in ended.close.detail
    assert ended.close.final
    assert pairing.brain.closing is not None
    assert pairing.brain.closing.text.startswith("pairing_refused: the pairing code is unknown")


def test_a_node_that_pairs_does_nothing_else(pairing: Pairing) -> None:
    raw = Raw(pairing.brain)
    pair = pair_message(pairing.code, NODE_PUBLIC)
    said = {"type": "pair", "code": pair.code, "key": pair.key, "proof": pair.proof}
    assert raw.say(json.dumps(said)) == []
    (answer,) = raw.say('{"type":"hello","protocol_version":"0.1.0","node_name":"lab"}')
    assert json.loads(answer)["type"] == "pair_err"
    assert json.loads(answer)["reason"] == "unexpected_message"


@pytest.mark.parametrize(
    "said",
    [
        '{"type":"pair"}',
        '{"type":"pair","code":"x","key":"y"}',
        '{"type":"pair","code":7,"key":"y","proof":"z"}',
        '{"type":"pair","code":"x","key":"%s","proof":"z"}' % ("y" * 65),
    ],
)
def test_what_is_no_code_is_refused_at_once(said: str) -> None:
    raw = Raw(brain_link(FakeClock()))
    (answer,) = raw.say(said)
    assert json.loads(answer)["reason"] == "bad_hello"
    assert not raw.saw(ev.PairAsked)


@pytest.mark.parametrize(
    "said", ['{"type":"hello_ack"}', '{"type":"auth_ok","session_id":"s"}', "x"]
)
def test_a_brain_that_answers_something_else_is_left(pairing: Pairing, said: str) -> None:
    pair = pair_message(pairing.code, NODE_PUBLIC)
    raw = Raw(node_link(pairing.clock, NodeOptions("lab"), pair=pair))
    raw.heard()
    raw.say(said)
    assert raw.link.closing is not None
    assert not raw.saw(ev.Paired)
    assert not raw.saw(ev.Opened)


def test_pairing_has_its_time_too(pairing: Pairing) -> None:
    pair = pair_message(pairing.code, NODE_PUBLIC)
    node = node_link(pairing.clock, NodeOptions("lab"), pair=pair)
    pairing.clock.advance(10)
    node.tick()
    assert node.closing is not None
    assert node.closing.reason == "handshake_timeout"

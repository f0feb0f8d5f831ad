from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.errors import BadRequest, PairingRefused
from handoff.link import pairing
from handoff.link.keys import new_key
from handoff.wire.node.sealing import b64url

BRAIN = new_key()
NODE = new_key()


def code(name: str = "lab") -> pairing.PairingCode:
    return pairing.new_code("wss://brain.example:7000", BRAIN.public, name)


def test_a_code_is_read_back_from_its_text() -> None:
    made = code()
    text = made.text()
    assert text.startswith("hn1")
    assert pairing.parse_code(text) == made
    spread = "\n".join(text[i : i + 20].upper() for i in range(0, len(text), 20))
    assert pairing.parse_code(f"  {spread}\n") == made
    assert made.secret.hex() not in repr(made)
    assert len(text) < 160


def test_codes_differ() -> None:
    one, two = code(), code()
    assert (one.id, one.secret) != (two.id, two.secret)


@given(at=st.integers(3, 150), to=st.sampled_from("abcdefghijklmnopqrstuvwxyz234567"))
def test_one_wrong_letter_is_told_from_a_refusal(at: int, to: str) -> None:
    made = pairing.PairingCode("0102030405", b"s" * 12, "wss://b:1", bytes(32), "lab")
    text = made.text()
    at = min(at, len(text) - 2)
    wrong = text[:at] + to + text[at + 1 :]
    if wrong == text:
        return
    with pytest.raises(BadRequest, match="not complete, or was mistyped"):
        pairing.parse_code(wrong)


@given(st.text(max_size=300) | st.text("abcdefghijklmnopqrstuvwxyz234567", max_size=300))
def test_any_text_is_a_code_or_a_typed_error(text: str) -> None:
    for tried in (text, "hn1" + text):
        with pytest.raises(BadRequest):
            pairing.parse_code(tried)


@given(st.binary(max_size=200))
def test_any_body_with_a_right_sum_is_a_code_or_a_typed_error(body: bytes) -> None:
    import base64
    import hashlib

    whole = body + hashlib.sha256(body).digest()[:4]
    text = "hn1" + base64.b32encode(whole).decode().rstrip("=").lower()
    try:
        parsed = pairing.parse_code(text)
    except BadRequest:
        return
    assert pairing.parse_code(parsed.text()) == parsed


@pytest.mark.parametrize("name", ["lab", "a b", "x" * 64, "?#%*", " padded "])
def test_names_that_may_be(name: str) -> None:
    assert pairing.check_name(name) == name.strip()


@pytest.mark.parametrize("name", ["", "   ", "x" * 65, "a/b", "a\\b", "a..b", "a\0b", "ä", "a\nb"])
def test_names_that_may_not_be(name: str) -> None:
    with pytest.raises(BadRequest):
        pairing.check_name(name)


@pytest.mark.parametrize(
    "address", ["", "host:7000", "http://x", "wss://", "wss://u@h", "wss://h:x"]
)
def test_addresses_that_may_not_be(address: str) -> None:
    with pytest.raises(BadRequest):
        pairing.new_code(address, BRAIN.public)


def test_a_node_may_choose_its_name_unless_the_code_has_one() -> None:
    free = code("")
    with pytest.raises(BadRequest, match="empty"):
        pairing.pair_message(free, NODE.public)
    assert pairing.pair_message(free, NODE.public, "mine").node_name == "mine"
    with pytest.raises(BadRequest, match="for the node 'lab'"):
        pairing.pair_message(code(), NODE.public, "mine")


def test_the_answer_of_another_brain_is_refused() -> None:
    made = code()
    stored = pairing.stored_secret(made.secret)
    proof = pairing.brain_proof(stored, made.id, NODE.public, "lab", BRAIN.public)
    right = pairing.PairOk("lab", b64url(BRAIN.public), b64url(proof))
    assert pairing.check_answer(made, NODE.public, right) == "lab"
    node_s = pairing.node_proof(stored, made.id, NODE.public, "lab", BRAIN.public)
    for wrong in (
        dataclasses.replace(right, node_name="other"),
        dataclasses.replace(right, key=b64url(NODE.public)),
        dataclasses.replace(right, proof=b64url(node_s)),  # our own proof sent back
        dataclasses.replace(right, proof=""),
        dataclasses.replace(right, proof="ä"),
    ):
        with pytest.raises(PairingRefused):
            pairing.check_answer(made, NODE.public, wrong)

from __future__ import annotations

import hashlib
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.clock import FakeClock, SystemClock
from handoff.errors import (
    BadRequest,
    NodeExists,
    PairingRefused,
    SchemaTooNew,
    StorageError,
    UnknownNode,
)
from handoff.link.keys import new_key
from handoff.link.pairing import check_answer, pair_message, parse_code
from handoff.link.tokens import ImportedToken, NodeStore
from handoff.wire.node.sealing import b64url

BRAIN = new_key()
NODE = new_key()
ADDRESS = "wss://brain.example:7000"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Any:
    opened = NodeStore(str(tmp_path / "nodes" / "nodes.sqlite"), clock)
    yield opened
    opened.close()


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def test_a_token_is_shown_once_and_only_its_digest_is_kept(store: NodeStore) -> None:
    token = store.add_token("lab", tags=["gpu", "b:1", "gpu"])
    assert len(token) == 43
    credential = store.credential("lab")
    assert credential is not None
    assert credential.token == ""
    assert credential.token_sha256 == digest(token)
    assert token not in repr(credential)
    for path in Path(store._database.path).parent.iterdir():
        assert token.encode() not in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(os.stat(Path(store._database.path).parent).st_mode) == 0o700
    record = store.node("lab")
    assert (record.kind, record.tags, record.origin) == ("token", ("b:1", "gpu"), "token")


def test_a_kept_token_is_encrypted_and_bound_to_its_name(store: NodeStore) -> None:
    token = store.add_token("lab", keep=True)
    assert store.node("lab").kind == "token_kept"
    credential = store.credential("lab")
    assert credential is not None
    assert credential.token == token
    for path in Path(store._database.path).parent.iterdir():
        assert token.encode() not in path.read_bytes()
    store.rename("lab", "other")
    renamed = store.credential("other")
    assert renamed is not None
    assert renamed.token == token
    assert store.credential("lab") is None
    new = store.rotate_token("other")
    rotated = store.credential("other")
    assert rotated is not None
    assert rotated.token == new != token


def test_a_kept_token_is_for_sealed_sessions(store: NodeStore) -> None:
    for name, keep in (("lab", True), ("den", False)):
        store.add_token(name, keep=keep)
        credential = store.credential(name)
        assert credential is not None
        assert credential.require == store.node(name).require == ("e2e" if keep else "")
    store.set_require("lab", "e2e2")
    assert store.node("lab").require == "e2e2"


def test_a_lost_or_foreign_store_key_is_said(store: NodeStore) -> None:
    store.add_token("lab", keep=True)
    key = Path(store._key_path)
    held = key.read_bytes()
    key.unlink()
    with pytest.raises(StorageError, match="is missing"):
        store.credential("lab")
    assert not key.exists()  # never made anew over tokens that need the old one
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    with pytest.raises(StorageError, match="does not open"):
        store.credential("lab")
    key.write_bytes(held)
    assert store.credential("lab") is not None


def test_names_are_taken_until_revoked_or_replaced(store: NodeStore, clock: FakeClock) -> None:
    first = store.add_token("lab")
    with pytest.raises(NodeExists):
        store.add_token("lab")
    with pytest.raises(NodeExists):
        store.add_key("lab", NODE.public)
    second = store.add_token("lab", replace=True)
    assert first != second
    clock.advance(5)
    assert store.revoke("lab") is True
    assert store.revoke("lab") is False
    assert store.node("lab").revoked
    credential = store.credential("lab")
    assert credential is not None
    assert credential.revoked
    store.add_key("lab", NODE.public)
    credential = store.credential("lab")
    assert credential is not None
    assert (credential.key, credential.revoked, credential.token_sha256) == (
        NODE.public,
        False,
        "",
    )
    store.remove("lab")
    assert store.nodes() == []


def test_what_is_not_there_is_named(store: NodeStore) -> None:
    store.add_token("lab")
    for act in (store.revoke, store.remove, store.node, store.rotate_token):
        with pytest.raises(UnknownNode, match="there is no node 'nobody'"):
            act("nobody")
    with pytest.raises(UnknownNode):
        store.rename("nobody", "x")
    with pytest.raises(UnknownNode):
        store.set_tags("nobody", [])
    store.seen("nobody")
    with pytest.raises(UnknownNode) as caught:
        store.node("labb")
    assert caught.value.details["known"] == ["lab"]
    store.add_key("keyed", NODE.public)
    with pytest.raises(UnknownNode, match="that has a token"):
        store.rotate_token("keyed")
    with pytest.raises(NodeExists):
        store.rename("keyed", "lab")
    assert {record.name for record in store.nodes()} == {"keyed", "lab"}


def test_what_is_seen_stays_apart_from_the_credential(store: NodeStore, clock: FakeClock) -> None:
    store.add_token("lab")
    assert store.node("lab").last_ms == 0
    clock.advance(9)
    store.seen("lab", {"os": "linux"})
    first = store.node("lab")
    assert (first.last_ms, first.facts) == (clock.now_ms(), {"os": "linux"})
    clock.advance(9)
    store.seen("lab")
    assert store.node("lab").facts == {"os": "linux"}
    assert store.node("lab").last_ms == clock.now_ms()
    store.rename("lab", "lab2")
    assert store.node("lab2").facts == {"os": "linux"}


def test_a_node_with_a_key_is_known_by_it(store: NodeStore) -> None:
    def found(name: str, key: bytes) -> tuple[str, bytes]:
        known = store.credential(name, key)
        return (known.name, known.key) if known is not None else ("", b"")

    other, third = new_key().public, new_key().public
    store.add_key("lab", NODE.public)
    store.rename("lab", "cellar")
    assert found("lab", NODE.public) == ("cellar", NODE.public)
    assert found("lab", other) == found("lab", b"") == ("", b"")
    store.add_key("lab", other)
    assert found("lab", NODE.public) == ("cellar", NODE.public)
    assert found("lab", other) == ("lab", other)
    assert found("lab", third) == ("lab", other), "it does not prove that it is lab"
    store.add_key("twin", NODE.public)
    assert found("twin", NODE.public) == ("twin", NODE.public)
    assert found("was", NODE.public) == ("", b""), "two could be meant"
    store.revoke("twin")
    assert found("was", NODE.public) == ("cellar", NODE.public)
    store.revoke("cellar")
    assert found("was", NODE.public) == ("", b"")
    store.remove("twin")
    known = store.credential("was", NODE.public)
    assert known is not None
    assert known.revoked


def test_bad_values_change_nothing(store: NodeStore) -> None:
    for name in ("", "a/b", "x" * 65, "ä"):
        with pytest.raises(BadRequest):
            store.add_token(name)
    with pytest.raises(BadRequest):
        store.add_key("lab", b"short")
    store.add_key("lab", NODE.public)
    with pytest.raises(BadRequest):
        store.set_tags("lab", ["two words"])
    with pytest.raises(BadRequest):
        store.set_require("lab", "always")
    store.set_require("lab", "e2e2")
    assert store.node("lab").require == "e2e2"
    assert store.node("lab").tags == ()


# -- pairing -----------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["revoke", "remove"])
def test_a_node_that_is_shut_out_has_no_code_to_come_back_with(store: NodeStore, act: str) -> None:
    store.add_key("lab", new_key().public)
    mine = store.new_code(ADDRESS, BRAIN.public, "lab", replace=True)
    other = store.new_code(ADDRESS, BRAIN.public, "den")
    getattr(store, act)("lab")
    with pytest.raises(PairingRefused, match="unknown, used or expired"):
        store.redeem(pair_message(mine, NODE.public), BRAIN)
    store.redeem(pair_message(other, NODE.public), BRAIN)
    late = store.new_code(ADDRESS, BRAIN.public, "lab")
    store.redeem(pair_message(late, NODE.public), BRAIN)
    assert not store.node("lab").revoked


def test_a_code_is_good_once(store: NodeStore) -> None:
    shown = store.new_code(ADDRESS, BRAIN.public, "lab").text()
    typed = parse_code(shown)
    pair = pair_message(typed, NODE.public)
    answer = store.redeem(pair, BRAIN)
    assert check_answer(typed, NODE.public, answer) == "lab"
    credential = store.credential("lab")
    assert credential is not None
    assert credential.key == NODE.public
    with pytest.raises(PairingRefused, match="unknown, used or expired"):
        store.redeem(pair, BRAIN)
    assert typed.secret.hex().encode() not in Path(store._database.path).read_bytes()


def test_a_code_expires(store: NodeStore, clock: FakeClock) -> None:
    code = store.new_code(ADDRESS, BRAIN.public, "lab", ttl_s=60)
    clock.advance(60)
    with pytest.raises(PairingRefused, match="expired"):
        store.redeem(pair_message(code, NODE.public), BRAIN)
    assert store.nodes() == []


@pytest.mark.parametrize("ttl_s", [-1, 0, 86401, 10**12])
def test_a_code_is_good_for_a_while_and_no_longer(store: NodeStore, ttl_s: int) -> None:
    with pytest.raises(BadRequest, match="seconds"):
        store.new_code(ADDRESS, BRAIN.public, "lab", ttl_s=ttl_s)


def test_a_code_survives_few_wrong_proofs(store: NodeStore) -> None:
    code = store.new_code(ADDRESS, BRAIN.public, "lab", attempts=3)
    right = pair_message(code, NODE.public)
    guess = right.__class__(code.id, right.key, b64url(bytes(32)), "lab")
    for _ in range(2):
        with pytest.raises(PairingRefused, match="not proven"):
            store.redeem(guess, BRAIN)
    # the attempts count even though nothing else of them is kept; one is left
    store.redeem(right, BRAIN)
    code = store.new_code(ADDRESS, BRAIN.public, "lab2", attempts=2)
    right = pair_message(code, NODE.public)
    guess = right.__class__(code.id, right.key, b64url(bytes(32)), "lab2")
    for _ in range(2):
        with pytest.raises(PairingRefused, match="not proven"):
            store.redeem(guess, BRAIN)
    with pytest.raises(PairingRefused, match="unknown, used"):
        store.redeem(right, BRAIN)


def test_a_stolen_key_or_name_does_not_fit_the_proof(store: NodeStore) -> None:
    code = store.new_code(ADDRESS, BRAIN.public)
    right = pair_message(code, NODE.public, "lab")
    thief = new_key()
    for wrong in (
        right.__class__(right.code, b64url(thief.public), right.proof, "lab"),
        right.__class__(right.code, right.key, right.proof, "root"),
        right.__class__(right.code, "?", right.proof, "lab"),
        right.__class__(right.code, right.key, right.proof, "a/b"),
        right.__class__("0000000000", right.key, right.proof, "lab"),
    ):
        with pytest.raises(PairingRefused):
            store.redeem(wrong, BRAIN)
    assert store.nodes() == []


def test_a_code_replaces_a_node_only_if_it_says_so(store: NodeStore) -> None:
    store.add_token("lab")
    with pytest.raises(NodeExists):
        store.new_code(ADDRESS, BRAIN.public, "lab")
    free = store.new_code(ADDRESS, BRAIN.public)
    with pytest.raises(NodeExists):
        store.redeem(pair_message(free, NODE.public, "lab"), BRAIN)
    store.redeem(pair_message(free, NODE.public, "other"), BRAIN)  # not used up by that
    again = store.new_code(ADDRESS, BRAIN.public, "lab", replace=True)
    store.redeem(pair_message(again, NODE.public), BRAIN)
    assert store.node("lab").kind == "key"


def test_waiting_codes_are_bounded(store: NodeStore, clock: FakeClock) -> None:
    first = store.new_code(ADDRESS, BRAIN.public, "first")
    for _ in range(100):
        clock.advance(1)
        store.new_code(ADDRESS, BRAIN.public)
    with pytest.raises(PairingRefused, match="unknown"):
        store.redeem(pair_message(first, NODE.public), BRAIN)


# -- another store, other processes ------------------------------------------------------


def test_imported_tokens_keep_their_digest(store: NodeStore) -> None:
    store.add_token("there")
    tokens = [
        ImportedToken("lab", digest("secret"), 1_000, 2_000),
        ImportedToken("gone", digest("other"), 1_000, revoked=True),
        ImportedToken("there", digest("third"), 1_000),
    ]
    assert store.import_tokens(tokens) == (["lab", "gone"], ["there"], [])
    credential = store.credential("lab")
    assert credential is not None
    assert credential.token_sha256 == digest("secret")
    assert (store.node("lab").created_ms, store.node("lab").last_ms) == (1_000, 2_000)
    assert store.node("gone").revoked
    odd = [ImportedToken(name, digest("x"), 1) for name in ("/", "LAB", "All", "fine")]
    added, left, refused = store.import_tokens(odd)
    assert (added, left) == (["fine"], [])
    assert [why.partition(":")[0] for why in refused] == ["'/'", "'LAB'", "'All'"]


def test_no_name_can_be_taken_for_another(store: NodeStore) -> None:
    """``all`` is every node, and two that differ in case only are one to whoever types them."""
    store.add_token("lab")
    waiting = store.new_code(ADDRESS, BRAIN.public)
    for name, error in (("LAB", NodeExists), ("all", BadRequest), ("ALL", BadRequest)):
        for replace in (False, True):
            with pytest.raises(error):
                store.add_token(name, replace=replace)
        with pytest.raises(error):
            store.new_code(ADDRESS, BRAIN.public, name)
        with pytest.raises(PairingRefused if error is BadRequest else NodeExists):
            store.redeem(pair_message(waiting, NODE.public, name), BRAIN)
    store.add_token("other")
    for name, error in (("Lab", NodeExists), ("all", BadRequest)):
        with pytest.raises(error):
            store.rename("other", name)
    store.rename("lab", "LAB")
    assert store.node("LAB").name == "LAB"
    store.revoke("LAB")
    store.add_token("lab")


def test_a_newer_schema_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    path = str(tmp_path / "nodes.sqlite")
    store = NodeStore(path, clock)
    store._database._db.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(SchemaTooNew):
        NodeStore(path, clock)


def test_a_file_that_is_no_database_is_said(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "nodes.sqlite"
    path.write_bytes(b"not a database, but long enough to be looked at" * 50)
    with pytest.raises(StorageError):
        NodeStore(str(path), clock)
    assert path.read_bytes().startswith(b"not a database")


def _change(path: str, worker: int, rounds: int, start: Any, found: Any) -> None:
    store = NodeStore(path, SystemClock())
    start.wait()
    tokens = {}
    for number in range(rounds):
        name = f"w{worker}n{number}"
        tokens[name] = digest(store.add_token(name))
        if number % 4 == 1:
            store.seen(name)
        if number % 3 == 0:
            store.revoke(name)
        if number % 5 == 0:
            store.remove(name)
            del tokens[name]
    store.close()
    found.put((worker, tokens))


def test_processes_at_once_lose_no_pairing_and_raise_no_revoked_one(tmp_path: Path) -> None:
    """Three processes, a hundred changes each, while a node's last time is kept busy."""
    spawn = multiprocessing.get_context("spawn")
    start, found = spawn.Event(), spawn.Queue()
    path = str(tmp_path / "nodes.sqlite")
    processes = [
        spawn.Process(target=_change, args=(path, worker, 100, start, found)) for worker in range(3)
    ]
    for process in processes:
        process.start()
    start.set()
    expected: dict[str, str] = {}
    for _ in processes:
        _worker, tokens = found.get(timeout=100)
        expected |= tokens
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    store = NodeStore(path, SystemClock())
    kept = {record.name: record for record in store.nodes()}
    assert set(kept) == set(expected)
    assert len(kept) == 3 * 80
    for name, record in kept.items():
        credential = store.credential(name)
        assert credential is not None
        assert credential.token_sha256 == expected[name]
        number = int(name.partition("n")[2])
        assert record.revoked is (number % 3 == 0)
        assert (record.last_ms > 0) is (number % 4 == 1)
    store.close()


def test_one_code_at_once_from_several_processes_pairs_one(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    start, found = spawn.Event(), spawn.Queue()
    path = str(tmp_path / "nodes.sqlite")
    store = NodeStore(path, SystemClock())
    code = store.new_code(ADDRESS, BRAIN.public, "lab")
    brain = BRAIN
    keys = [new_key() for _ in range(3)]
    processes = [
        spawn.Process(
            target=_redeem_with,
            args=(path, pair_message(code, key.public), brain, start, found),
        )
        for key in keys
    ]
    for process in processes:
        process.start()
    start.set()
    results = sorted(found.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(30)
    assert results == ["paired", "refused", "refused"]
    credential = store.credential("lab")
    assert credential is not None
    assert credential.key in {key.public for key in keys}
    store.close()


def _redeem_with(path: str, pair: Any, brain: Any, start: Any, found: Any) -> None:
    store = NodeStore(path, SystemClock())
    start.wait()
    try:
        store.redeem(pair, brain)
        found.put("paired")
    except PairingRefused:
        found.put("refused")
    store.close()


@given(st.text(max_size=80))
def test_any_text_is_a_name_or_a_typed_error(name: str) -> None:
    from handoff.link.pairing import check_name

    try:
        checked = check_name(name)
    except BadRequest:
        return
    assert checked == checked.strip()
    assert 1 <= len(checked) <= 64
    assert checked.isascii()

from __future__ import annotations

import base64
import time
import urllib.parse
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.redaction import Redactor
from handoff.redaction.clues import find_clues, find_random
from handoff.redaction.view import View

KEY = b"test key"
RANDOM = "9f8A7b6C5d4E3f2A1b0cXyZz"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
GITHUB = "ghp_" + "a1B2c3D4e5" * 4


def redact(text: str, mode: str = "standard") -> str:
    return Redactor(KEY, mode=mode).redact(text)


@pytest.mark.parametrize(
    "text",
    [
        f"use the API key {RANDOM} for it",
        "the password is Tr0ub4dor&3",
        "our secret was now q8Zx-77aKq",
        f"{RANDOM} is the token",
        f"log in with `{RANDOM}` as your password",
        "the passphrase: kX9-fL2-pQ7-zR4",
        "credentials are bob9/hQ2x8Zk1",
        f'"AWS_KEY_ID": "{RANDOM}"',
    ],
)
def test_a_value_in_prose_is_found_whole(text: str) -> None:
    for part in ("Tr0ub", "&3", "q8Zx", "aKq", "kX9", "zR4", "hQ2x8Zk1", RANDOM, RANDOM[-6:]):
        assert part not in redact(text)


@pytest.mark.parametrize(
    "fact",
    [
        "sort_key=created_at", "max_token: 4096", "refresh_token: 15 min", "primary_key: id",
        "the token bucket is 5 wide", "secret key: see the vault", "the key is user_id_2",
        "tests/x.py::test_token[abc]", f"auth commit {COMMIT}", f"key commit {COMMIT[:9]}",
        "the password is required", "token count was 1048576", "cache_key: user:1234:v2",
        "idempotency_key=9f8a7b6c-5d4e-3f2a-1b0c-0123456789ab", "the key is python3.11",
        "partition key: 2026-01-31", "password reset works at /reset/1", "primary key: order_items",
        "the token is handoff://p1/abcdefghijklmnopqrstuvwxyz234567", "the key is gpt-4o-mini",
        f"token digest sha256:{'0a' * 32}", "secret: ${SECRET_9}", "key: <your-key-1>",
        "press the key F10 now", "the secret santa 2026 list", "the pin is GPIO17",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["standard", "strict"])
def test_facts_stay(fact: str, mode: str) -> None:
    assert redact(fact, mode) == fact


@pytest.mark.parametrize(
    "secret", [GITHUB, f"password={RANDOM}", "postgres://app:s3cr3tpw@db.example/x"]
)
def test_a_shape_in_base64_is_found(secret: str) -> None:
    encoded = base64.b64encode(secret.encode()).decode()
    for text in (
        encoded,
        f"x: {encoded}",
        f"a={encoded};b",
        base64.urlsafe_b64encode(secret.encode()).decode(),
    ):
        assert encoded.rstrip("=")[:12] not in redact(text)
    wrapped = base64.encodebytes(b"x" * 40 + b" " + secret.encode()).decode()
    assert wrapped.split("\n")[1][:10] not in redact(wrapped)


def test_a_shape_in_escapes_is_found() -> None:
    hidden = urllib.parse.quote(GITHUB).replace("_", "%5F").replace("g", "%67")
    assert hidden[3:] not in redact(f"https://x/y?q={hidden}&z=1")


def test_what_is_no_text_in_base64_stays() -> None:
    fine = base64.b64encode(bytes(range(60))).decode()
    assert redact(fine) == fine


def test_strict_finds_what_looks_random_and_standard_does_not() -> None:
    text = f"first {RANDOM} then x/{RANDOM}=1"
    assert redact(text) == text
    assert RANDOM not in redact(text, "strict")


@pytest.mark.parametrize(
    "fact",
    [
        f"commit {COMMIT}", f"HEAD at {COMMIT}", f"sha256: {'0a1b' * 16}",
        "src/handoff/sessions/canonical.py", "test_a_state_of_version_1_stays_whole_2",
        "123e4567-e89b-12d3-a456-426614174000", "https://example.org/a1/b2/c3/d4/e5/f6/g7/h8",
        "sha512-9f8A7b6C5d4E3f2A1b0cXyZz09QqWw129f8A7b6C5d4E3f2A1b0cXyZz09QqWw12==",
        "2026-01-31T12:00:00.000Z", "AbstractSingletonProxyFactoryBean2", "1.2.3-alpha.4+build.567",
    ],
)  # fmt: skip
def test_strictness_leaves_facts(fact: str) -> None:
    assert redact(fact, "strict") == fact


def test_allowed_values_and_facts_stay_but_known_values_go() -> None:
    plain = Redactor(KEY, mode="strict")
    allowed = Redactor(KEY, mode="strict", allow=[plain.allowance(RANDOM)])
    assert allowed.redact(f"x {RANDOM}") == f"x {RANDOM}"
    assert RANDOM not in plain.allowance(RANDOM)
    other = Redactor(b"other", mode="strict", allow=[plain.allowance(RANDOM)])
    assert RANDOM not in other.redact(f"x {RANDOM}")
    shielded = Redactor(KEY, {"PW": GITHUB}, mode="strict", shield=[COMMIT, GITHUB])
    assert shielded.redact(f"x {COMMIT}") == f"x {COMMIT}"
    assert GITHUB not in shielded.redact(GITHUB)


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="plain, standard, strict"):
        Redactor(KEY, mode="lax")


WORDS = ["the", "password", "is", "token", "key:", RANDOM, "Tr0ub4dor&3", COMMIT, "\n", "x_1",
         "as", GITHUB, "%67hp", "==", "key_id=", "(", "`", "|"]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.sampled_from(["standard", "strict"]))
@settings(deadline=None, max_examples=200)
def test_redacting_twice_changes_nothing(words: list[str], mode: str) -> None:
    once = redact(" ".join(words), mode)
    assert redact(once, mode) == once


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.lists(st.integers(0, 400), max_size=4))
@settings(deadline=None, max_examples=100)
def test_pieces_give_what_the_whole_gives(words: list[str], cuts: list[int]) -> None:
    text = " ".join(words)
    stream = Redactor(KEY, mode="strict").stream()
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    parts = [text[a:b] for a, b in pairwise(places)]
    assert "".join([*map(stream.feed, parts), stream.close()]) == redact(text, "strict")


HARD = {
    "words": "key ", "said": "password is ", "blanks": "token" + " " * 50, "percent": "%41",
    "quotes": "key: \"'`", "runs": "aA1+", "dots": "a.b/c=", "ids": "key_id=", "hex": "0aF",
    "before": "x9Y8z7W6 as ", "open": "secret ((((", "base64": "QUJD", "lines": "QUJDREVG\n",
    "dashes": "-_-_", "unicode": "kéy ", "colons": "key:key:", "one": "9", "upper": "KEY ",
    "mixed": "9aZ%4key ", "marks": "[redacted:x:",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HARD))
@pytest.mark.parametrize("find", [find_clues, find_random])
def test_hard_texts_take_linear_time(name: str, find) -> None:
    def spent(size: int) -> float:
        text = HARD[name] * (size // len(HARD[name]))
        best = 9.0
        for _ in range(2):
            began = time.process_time()
            find(View(text))
            best = min(best, time.process_time() - began)
        return best

    small, large = spent(8_000), spent(32_000)
    # Four times the text: four times the time, with room for a busy machine.
    assert large < max(small * 9, 0.25)


@pytest.mark.parametrize("prefix", ["glsa_", "sntrys_", "whsec_"])
def test_a_token_that_may_end_in_an_equals_sign_leaves_the_next_line(prefix: str) -> None:
    text = f"the password is {prefix}{'a1B2c3D4' * 6}\nNEXT_NAME=plain"
    assert redact(text).endswith("\nNEXT_NAME=plain")


@pytest.mark.parametrize(
    "fact", ["token is closed，src/a_1642.py 依赖它", "不要更改 sort_key=index_5998，store_9715()"]
)
def test_signs_of_scripts_without_blanks_end_a_word(fact: str) -> None:
    assert redact(fact, "strict") == fact

from __future__ import annotations

import base64
import json
import time
import urllib.parse
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handoff.redaction import MARK, MIN_KNOWN, Redactor, looks_secret

KEY = b"test key"
KNOWN = {"SERVICE_PASSWORD": "s3cr3t/Value+with=signs ä"}


def redact(text: str) -> str:
    return Redactor(KEY).redact(text)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(places)]


def streamed(redactor: Redactor, parts: list[str]) -> str:
    stream = redactor.stream()
    return "".join([*map(stream.feed, parts), stream.close()])


# -- known values -------------------------------------------------------------------------


def forms_of(value: str) -> list[tuple[str, str]]:
    """(a text that holds the value, what is left of it: M for a mark)."""
    raw = value.encode()
    forms = [
        (value, "M"),
        (f"before{value}after", "beforeMafter"),
        (json.dumps({"x": value}), '{"x": "M"}'),
        (json.dumps({"x": value}, ensure_ascii=False), '{"x": "M"}'),
        (json.dumps(json.dumps({"x": value})), r'"{\"x\": \"M\"}"'),
        ("/?p=" + urllib.parse.quote(value, safe=""), "/?p=M"),
        ("/?p=" + urllib.parse.quote_plus(value), "/?p=M"),
        (raw.hex(), "M"),
        (raw.hex().upper(), "M"),
        (f"user:{value}@host", "user:M@host"),
    ]
    for before in (b"", b"a", b"ab"):
        for after in (b"", b"y", b"yz"):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                forms.append((encode(before + raw + after).decode(), "M"))
    return forms


@pytest.mark.parametrize("form", range(len(forms_of("x"))))
@pytest.mark.parametrize("value", [KNOWN["SERVICE_PASSWORD"], "simple-value-12", "a'b\"c<d>&e\\f"])
def test_a_known_value_is_found_in_every_form(value: str, form: int) -> None:
    text, left = forms_of(value)[form]
    out = Redactor(KEY, {"SERVICE_PASSWORD": value}).redact(f"some {text} more\n")
    assert MARK.sub("M", out) == f"some {left} more\n"
    assert "[redacted:service-password:" in out


def test_a_known_value_broken_over_line_ends_is_found() -> None:
    redactor = Redactor(KEY, {"A": "abcdefgh-12345678"})
    for cut in range(1, 16):
        for gap in ("\n", "\r\n", "\n    ", "\n> ", "\n+"):
            text = "x " + "abcdefgh-12345678"[:cut] + gap + "abcdefgh-12345678"[cut:] + " y"
            assert MARK.sub("M", redactor.redact(text)) == "x M y", text


def test_equal_secrets_have_equal_marks_and_other_keys_other_marks() -> None:
    value = "abcdefgh-12345678"
    marks = MARK.findall(Redactor(KEY, {"A": value}).redact(f"{value} {value.encode().hex()}"))
    assert len(marks) == 2
    assert marks[0] == marks[1]
    one = Redactor(KEY).redact("password=hunter2 PASSWORD='hunter2' password=hunter3")
    assert len(set(MARK.findall(one))) == 2
    assert {Redactor(bytes([n])).redact("password=hunter2") for n in range(8)} != {one}
    assert len({Redactor(bytes([n])).redact("password=hunter2") for n in range(8)}) > 4


def test_short_known_values_are_named_and_not_looked_for() -> None:
    redactor = Redactor(KEY, {"A": "x" * (MIN_KNOWN - 1), "B": " " * 20, "C": "abcdefgh"})
    assert redactor.ignored == ("A", "B")
    assert redactor.redact("xxxxx      abcdefgh").startswith("xxxxx      [redacted:c:")


def test_the_longer_of_two_known_values_wins() -> None:
    redactor = Redactor(KEY, {"A": "abcdefgh", "B": "abcdefghijkl"})
    assert MARK.sub("M", redactor.redact("abcdefghijkl")) == "M"
    assert "[redacted:b:" in redactor.redact("abcdefghijkl")


# -- properties ---------------------------------------------------------------------------

_PEM = """\
-----BEGIN RSA PRIVATE KEY-----
MIIEpAIBAAKCAQEA1234567890
abcdefghijklmnopqrstuvwx
-----END RSA PRIVATE KEY-----"""
_SECRETS = [
    "ghp_" + "a1B2" * 9,
    "sk-ant-api03-" + "x9Y8" * 8,
    "AKIAABCDEFGHIJKLMNOP",
    "password=hunter2!",
    '"token": "abcd1234efgh5678"',
    "Authorization: Bearer abcdefgh12345678",
    "https://user:pa55word@host/x",
    KNOWN["SERVICE_PASSWORD"],
    base64.b64encode(b"ab" + KNOWN["SERVICE_PASSWORD"].encode()).decode(),
    _PEM,
    "-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA1234567890\n",
    "secret: |\n  line one\n  line two\n",
    "Cookie: a=b; c=d1234",
    "[redacted:token:1a2b]",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghij",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "--password hunter2",
    " -u bob:hunter2 ",
    "password=",
    "token: ",
    "Bearer ",
    "sk-",
    "://",
]
_PIECES = st.one_of(
    st.sampled_from(_SECRETS),
    st.sampled_from(
        [*" \n\n\"'=:,;&@/-_.\\%>|", "\r\n", "\n  ", "x", "7", "word ", "Word", "0" * 40]
    ),
    st.builds(lambda s, n: s[:n], st.sampled_from(_SECRETS), st.integers(1, 40)),
    st.text(max_size=8),
)
_TEXTS = st.lists(_PIECES, max_size=14).map("".join)


@settings(max_examples=400, deadline=None)
@given(_TEXTS)
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    redactor = Redactor(KEY, KNOWN)
    once = redactor.redact(text)
    assert redactor.redact(once) == once
    assert redactor.count(once) == {}


@settings(max_examples=400, deadline=None)
@given(_TEXTS, st.lists(st.integers(0, 10_000), max_size=12))
def test_it_does_not_matter_how_a_text_is_cut(text: str, cuts: list[int]) -> None:
    redactor = Redactor(KEY, KNOWN)
    assert streamed(redactor, pieces(text, cuts)) == redactor.redact(text)


@settings(max_examples=100, deadline=None)
@given(_TEXTS)
def test_character_by_character_is_the_same(text: str) -> None:
    redactor = Redactor(KEY, KNOWN)
    assert streamed(redactor, list(text)) == redactor.redact(text)


@settings(max_examples=8, deadline=None)
@given(_TEXTS, _TEXTS, st.sampled_from(["x", "x\n", "word and word\n", "  y\n", "a-b_c"]))
def test_long_texts_can_be_cut_too(start: str, end: str, filler: str) -> None:
    text = start + filler * (30_000 // len(filler)) + end + filler * (20_000 // len(filler))
    redactor = Redactor(KEY, KNOWN)
    whole = redactor.redact(text)
    assert streamed(redactor, [text[n : n + 999] for n in range(0, len(text), 999)]) == whole


_HEX = st.text(alphabet="0123456789abcdef", min_size=40, max_size=40)
_GIT = st.sampled_from(
    [
        "commit {}", "HEAD is now at {}", "{}..{}", "tree {}", "parent {}", "index {}..{} 100644",
        "{} refs/heads/main", "From {} Mon Sep 17 00:00:00 2001", "blob {}", "sha1:{}",
        "sha256:{}{}", "base_commit={}", '"commit": "{}"', "digest: {}", "token_hash: {}",
        "secret_sha256={}", "checksum: {}", "ref@{}", "https://h/o/r/commit/{}", "checkout {}",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(_GIT, _HEX), max_size=6), st.uuids())
def test_ids_and_digests_are_left_alone(lines: list[tuple[str, str]], uuid: object) -> None:
    text = "\n".join(form.replace("{}", value) for form, value in lines) + f"\nid: {uuid}\n"
    assert redact(text) == text
    assert not looks_secret(text)


@example("sk-" * 3)
@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_any_text_can_be_redacted(text: str) -> None:
    redact(text)


# -- streams ------------------------------------------------------------------------------


def test_a_stream_lets_plain_lines_go() -> None:
    stream = Redactor(KEY).stream()
    out = ""
    for number in range(20):
        out += stream.feed(f"this is line {number}\n")
    assert "this is line 12\n" in out
    assert out + stream.close() == "".join(f"this is line {n}\n" for n in range(20))


def test_a_stream_can_be_used_again() -> None:
    stream = Redactor(KEY).stream()
    assert stream.feed("a") + stream.close() == "a"
    assert stream.feed("b") + stream.close() == "b"


def test_a_stream_holds_a_bounded_text() -> None:
    stream = Redactor(KEY).stream()
    size = 0
    for _ in range(300):
        size += len(stream.feed("x" * 1000))
    assert size > 300_000 - 60_000


def test_counts_name_kinds_and_never_values() -> None:
    text = "password=hunter2 ghp_" + "a" * 36 + " [redacted:token:aaaa]"
    assert Redactor(KEY).count(text) == {"github-token": 1, "password": 1}


def test_a_long_line_is_not_looked_through_at_each_small_piece() -> None:
    text = "word and key " * 10_000
    redactor = Redactor(KEY, KNOWN, mode="standard")
    start = time.process_time()
    assert streamed(redactor, [text[n : n + 50] for n in range(0, len(text), 50)]) == text
    # A quarter of a second; at each piece it would be twenty-five.
    assert time.process_time() - start < 5


# -- time ---------------------------------------------------------------------------------

_HARD = [
    "password=", "password: ", "sk-", "sk-a1", "://", "://a:", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\n", "Bearer ", "eyJ", "eyJabcdefghij.", "a\n", "a\n a\n",
    "token\n", " -u a:", "[redacted:", "[redacted:a:", "key", "passpass", "\\", '"', "AKIA", ":AA",
    "password: |\n  x\n", "_", "login x password ", "a.b.c=", "%3D", "x" * 79 + "\n", "\n", " ",
    '{"password":"', "secret is ", "eyJ-", "-sk-a1", "glpat-", "sk-ant-", "eyJabcdefgh-", "SG.",
    "password=a1b2.", "eyJabcdefgh.abcd.", "-----END RSA PRIVATE KEY-----", "a=b\nc", "auth.auth-",
    "ghp_", "'password'", "https://a1a1a1a1a1a1a1a1a", "+a\n", "sk-1\n",
]  # fmt: skip


@pytest.mark.parametrize("piece", _HARD)
def test_the_time_is_linear(piece: str) -> None:
    def took(size: int) -> float:
        text = piece * (size // len(piece))
        start = time.process_time()
        Redactor(KEY, KNOWN).redact(text)
        return time.process_time() - start

    # Eight times the text in less than four times eight times the time: a square would
    # take 64 times; the slack is for a busy machine.
    small, large = min(took(32_000) for _ in range(3)), took(256_000)
    assert large < 32 * max(small, 0.005)
    assert large < 5

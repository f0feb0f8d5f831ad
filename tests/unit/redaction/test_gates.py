"""Cases behind single gates of the benchmark of Sessions, one by one."""

from __future__ import annotations

import pytest

from handoff.redaction import Redactor

#: (gate, text, what must not be left of it)
FOUND = [
    ("JSON, camelCase", '{"x_api_key": "9197506637940663"}', "9197506637940663"),
    ("header", "X-Api-Key: 9197506637940663", "9197506637940663"),
    ("YAML", "x_secret: pk.utpkmjycwj7uoervheioak21too0.a8kd02mzql1xvb3n", "pk.utpkmjycwj7"),
    ("CLI option", "deploy --x-token pat.a8Kd02mZqL1xVb3nTc5eWg.PvZ81kQ now", "a8Kd02mZqL1x"),
    ("URL query", "https://x.example/?auth=pat.a8Kd02mZqL1xVb3nTc5eWg.PvZ81kQ", "a8Kd02mZqL1x"),
    ("X_KEY_ID=", "X_KEY_ID=i5dpywdbim7vxmdnqgkkh8ntmj0qj4", "i5dpywdbim7vxmd"),
    ("everyday leaks", "unlock it with the passphrase correct-Horse7-battery", "correct-Horse7"),
    (
        "everyday leaks",
        "https://s3.example/x?X-Amz-Signature=5d3c1b7a9e8f6041223344&n=1",
        "5d3c1b7a",
    ),
    ("prose, no clue", "then it worked with sm_pat_a8Kd02mZqL1xVb3n again", "a8Kd02mZqL1xVb3n"),
]
#: what has to stay all the same
STAYS = [
    "X_KEY_ID=primary", "key_id: 42", "auth_time_ms=1700000000000", "token_module: a.b.c",
    "the passphrase prompt comes first", "signature = inspect.signature(f)", "token.expires_at: 12",
    "call toolu_01A09q90qw90lq917835lq9 ended", "commit 0123456789abcdef0123456789abcdef01234567",
    "secret_key = settings.local.secret_key", "msg_01XFDUDYJgAACzvnptvVoYEL was sent",
]  # fmt: skip


@pytest.mark.parametrize(("gate", "text", "secret"), FOUND)
def test_a_value_that_is_found(gate: str, text: str, secret: str) -> None:
    assert secret not in Redactor(b"k", mode="standard").redact(text), gate


@pytest.mark.parametrize("text", STAYS)
def test_a_fact_that_stays(text: str) -> None:
    assert Redactor(b"k", mode="standard").redact(text) == text

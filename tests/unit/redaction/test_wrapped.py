from __future__ import annotations

import base64

import pytest

from handoff.redaction import MARK, Redactor


def redact(text: str) -> str:
    return Redactor(b"k", mode="standard").redact(text)


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("DB_PASS=q7Zk2Rm9\nLx4Tp8Vw end", "Lx4Tp8Vw"),
        ("Authorization: Bearer f8Kd92LmQx71\nZp0Va5NcR3", "Zp0Va5NcR3"),
        ("curl -u admin:Zk81mQp2Lx\nT9vB4n https://x.example", "T9vB4n"),
        ("postgres://app:8qzjI6GKF\nSufrdZSlB@db.internal:5432/x", "SufrdZSlB"),
        ("Cookie: session=k2Jd93mXq81L\nzPw0Vb5N; theme=dark", "zPw0Vb5N"),
        ("AccountKey=2f00Xk19QpLm/Rt\nFHoZPwwzs9TPCujd4eLf==", "FHoZPwwzs9TPCujd4eLf=="),
    ],
)
def test_a_value_that_goes_on_behind_a_line_end_is_taken_out_whole(text: str, tail: str) -> None:
    once = redact(text)
    assert tail not in once
    assert redact(once) == once


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("password: q7Zk2Rm9Lx\n4e1be0e Fix it", "4e1be0e Fix it"),
        ("password: q7Zk2Rm9Lx\npython3 -m pytest", "python3 -m pytest"),
        ("password: q7Zk2Rm9Lx\nBase64Encoder is used", "Base64Encoder is used"),
        ("DB_PASS=q7Zk2Rm9Lx\nDB_HOST=db1", "DB_HOST=db1"),
        ("token: q7Zk2Rm9Lx\n2026-12-01 later", "2026-12-01 later"),
        ("token: q7Zk2Rm9Lx\nOAuth2Client waits", "OAuth2Client waits"),
        ("see http://localhost:8080\nops@example.com", "ops@example.com"),
        ("redis://cache:6379\nbob@example.com", "bob@example.com"),
    ],
)
def test_what_stands_on_the_next_line_stays(text: str, fact: str) -> None:
    assert fact in redact(text)


@pytest.mark.parametrize("width", [4, 7, 20, 39, 40, 64, 76])
@pytest.mark.parametrize("gap", ["\n", "\r\n", "\n> ", "\n    ", "\n+"])
@pytest.mark.parametrize("mode", ["standard", "strict"])
def test_base64_is_read_on_over_line_ends_at_any_width(width: int, gap: str, mode: str) -> None:
    told = "the reply was {'token': 'a1B2c3D4e5F6g7H8', 'password': 'x9Y8z7-w6V5'}, at last"
    value = base64.b64encode(told.encode()).decode()
    lines = gap.join(value[at : at + width] for at in range(0, len(value), width))
    redacted = Redactor(b"k", mode=mode).redact(f"before\n\n  {lines}\n\nbehind\n")
    assert MARK.sub("M", redacted) == "before\n\n  M\n\nbehind\n"


def test_base64_without_a_secret_stays_on_its_lines() -> None:
    value = base64.b64encode(
        b"nothing that anybody would have to hide stands in here " * 4
    ).decode()
    for width in (20, 39, 76):
        lines = "\n".join(value[at : at + width] for at in range(0, len(value), width))
        assert redact(lines) == lines

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.errors import ConfigError
from handoff.process.envfile import MAX_BYTES, load, parse

ENVIRON = {"HOME": "/home/ada", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("K=v", "v"),
        ("export K=v", "v"),
        ("  export   K = v  ", "v"),
        ("K=", ""),
        ("K=a=b", "a=b"),
        ("K=a # b", "a # b"),
        ("K='a $HOME'", "a $HOME"),
        ('K="a $HOME"', "a /home/ada"),
        ("K=$HOME/x", "/home/ada/x"),
        ("K=${HOME}x", "/home/adax"),
        ("K=$HOMEx", ""),
        ("K=$NOPE.", "."),
        ("K=$EMPTY|", "|"),
        ("K=a$", "a$"),
        ("K=$$HOME", "$/home/ada"),
        ("K=${HOME", "${HOME"),
        ("K=$1", "$1"),
        (r'K="a\nb\""', r"a\nb\""),
        ("K='", "'"),
        ("K='a\"", "'a\""),
        ("K=''", ""),
        ('K=""', ""),
        ("K='a' b", "'a' b"),
        ("K=ä€", "ä€"),
        ("export=v", None),
    ],
)
def test_a_value(text: str, value: str | None):
    found = parse(text.encode(), ENVIRON).values
    assert found == ({"export": "v"} if value is None else {"K": value})


def test_lines_of_either_kind_blanks_and_comments():
    raw = b"\xef\xbb\xbfA=1\r\n\r\n  # B=2\n\t\nC=3\n#D=4"
    assert parse(raw, {}).values == {"A": "1", "C": "3"}


def test_expansion_is_once_and_earlier_keys_win_over_the_environment():
    raw = b"A='$HOME'\nB=$A\nHOME=here\nC=$HOME\nD=$LATER\nLATER=x"
    assert parse(raw, ENVIRON).values == {
        "A": "$HOME",
        "B": "$HOME",
        "HOME": "here",
        "C": "here",
        "D": "",
        "LATER": "x",
    }


def test_the_same_key_twice():
    found = parse(b"A=secret1\nB=2\nA=secret3", {})
    assert list(found.values.items()) == [("A", "secret3"), ("B", "2")]
    assert found.warnings == ("line 3: A is set twice, the last one wins",)


@pytest.mark.parametrize(
    ("raw", "line", "says"),
    [
        (b"A=1\nsk-secret\n", 2, "no '='"),
        (b"\n\nsk secret=1", 3, "no variable"),
        (b"1A=secret", 1, "no variable"),
        (b"A-B=secret", 1, "no variable"),
        (b"=secret", 1, "no variable"),
        (b"export =secret", 1, None),
        (b"export A B=secret", 1, "no variable"),
        ("Ä=secret".encode(), 1, "no variable"),
        (b"A=sec\0ret", 1, "zero byte"),
        (b"A=1\nB=\xff secret", 2, "UTF-8"),
    ],
)
def test_an_error_names_the_line_and_shows_nothing_of_it(raw: bytes, line: int, says: str | None):
    if says is None:  # a variable may be called so
        assert parse(raw, {}).values == {"export": "secret"}
        return
    with pytest.raises(ConfigError, match=f"line {line}: .*{says}") as caught:
        parse(raw, {})
    assert "sec" not in str(caught.value) and caught.value.details["line"] == line


def test_size():
    assert parse(b"A=" + b"x" * (MAX_BYTES - 2), {}).values
    with pytest.raises(ConfigError, match="65536"):
        parse(b"A=" + b"x" * (MAX_BYTES - 1), {})


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes):
    try:
        found = parse(raw, ENVIRON)
    except ConfigError:
        return
    assert all("\0" not in key + value for key, value in found.values.items())


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
        st.text(
            st.characters(exclude_characters="\0\n", exclude_categories=("Cs",)), max_size=20
        ).map(str.strip),
        max_size=5,
    )
)
def test_what_stands_in_single_quotes_stands(values: dict[str, str]):
    raw = "".join(f"{key}='{value}'\n" for key, value in values.items())
    assert parse(raw.encode(), ENVIRON).values == values


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "..\\x", "a\0b"])
def test_a_name_is_bare(tmp_path: Path, name: str):
    with pytest.raises(ConfigError, match="not a file name"):
        load(tmp_path, name, {})


def test_loading(tmp_path: Path):
    (tmp_path / "claude.env").write_bytes(b"A=$HOME\n")
    assert load(tmp_path, "claude.env", ENVIRON).values == {"A": "/home/ada"}
    with pytest.raises(ConfigError, match=r"missing\.env: No such file") as caught:
        load(tmp_path, "missing.env", {})
    assert caught.value.remedy
    (tmp_path / "bad.env").write_bytes(b"A=1\nnonsense\n")
    with pytest.raises(ConfigError, match=r"bad\.env: line 2") as caught:
        load(tmp_path, "bad.env", {})
    assert caught.value.details["line"] == 2
    (tmp_path / "big.env").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match=r"big\.env"):
        load(tmp_path, "big.env", {})
    (tmp_path / "folder.env").mkdir()
    with pytest.raises(ConfigError, match="can't read"):
        load(tmp_path, "folder.env", {})

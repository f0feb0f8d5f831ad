from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.gate.words import split


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in split(text).commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls -l a", [["ls", "-l", "a"]]),
        ("a; b && c || d | e & f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("echo 'a b' \"c d\" e\\ f", [["echo", "a b", "c d", "e f"]]),
        ("a # b\nc#d", [["a"], ["c#d"]]),
        ("a 'b''c'\"d\"", [["a", "bcd"]]),
        ('a "" b', [["a", "", "b"]]),
        ("ec\\\nho x", [["echo", "x"]]),
        ("echo 'a\\\nb'", [["echo", "a\\\nb"]]),
        ("a\\;b", [["a;b"]]),
        ("", []),
        ("  \n ; ", []),
        ("cat <<E\nx; y\nE\nz", [["cat"], ["z"]]),
        ("cat <<-E\n\tx\n\tE\nz", [["cat"], ["z"]]),
    ],
)
def test_words(text: str, expected: list[list[str]]) -> None:
    line = split(text)
    assert words(text) == expected
    assert line.trouble == ""
    assert all(word.known for command in line.commands for word in command.words)


@pytest.mark.parametrize(
    "text",
    ["$x", '"$x"', "${x}", "*", "a?c", "[ab]", "{a,b}", "~/x", "~root", "$'a'", "`x`", '"`x`"'],
)
def test_only_the_shell_can_tell(text: str) -> None:
    assert not split(f"echo {text}").commands[0].words[1].known


@pytest.mark.parametrize("text", ["'$x'", "\\$x", "'*'", "a~b", '"*"', "x{", "}"])
def test_quoted_is_known(text: str) -> None:
    if text == "x{":
        pytest.skip("a brace inside a word may begin a list")
    assert split(f"echo {text}").commands[0].words[1].known


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("echo $(id)", "substitution"),
        ("echo `id`", "substitution"),
        ('echo "`id`"', "substitution"),
        ("(cd x)", "subshell"),
        ("f() { ls; }", "subshell or a function"),
        ("if true; then ls; fi", "keyword"),
        ("echo 'a", "quote"),
        ('echo "a', "quote"),
        ("cat <(ls)", "process substitution"),
        ("cat <", "redirection"),
        ("cat <<E\nx", "here-document"),
        ("cat <<E\n$x\nE", "here-document with substitutions"),
    ],
)
def test_trouble_is_said(text: str, trouble: str) -> None:
    assert trouble in split(text).trouble


def test_a_quoted_here_document_is_text() -> None:
    assert split("cat <<'E'\n$x `y`\nE").trouble == ""


def test_redirections() -> None:
    command = split("sort <in >out 2>>err 2>&1 &>all >|forced <>both").commands[0]
    assert [word.text for word in command.words] == ["sort"]
    assert [word.text for word in command.reads] == ["in", "both"]
    assert [word.text for word in command.writes] == ["out", "err", "all", "forced", "both"]


def test_operators_around() -> None:
    first, second, third = split("a && b | c").commands
    assert (first.before, first.after) == ("", "&&")
    assert (second.before, second.after) == ("&&", "|")
    assert (third.before, third.after) == ("|", "")


_LETTERS = st.text(alphabet="ab '\"\\\n#;|&", max_size=25)


@settings(max_examples=150, deadline=None)
@given(_LETTERS)
def test_known_words_are_what_a_shell_makes_of_them(text: str) -> None:
    line = split("printf '<%s>' " + text)
    if line.trouble or len(line.commands) != 1 or "\0" in text:
        return
    first = line.commands[0]
    if first.after or any(not word.known for word in first.words):
        return
    ran = subprocess.run(
        ["/bin/sh", "-c", "printf '<%s>' " + text], capture_output=True, check=False, env={}
    )
    expected = "".join(f"<{word.text}>" for word in first.words[2:]) or "<>"
    assert ran.returncode == 0
    assert ran.stdout.decode() == expected


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_any_text_can_be_split(text: str) -> None:
    split(text)

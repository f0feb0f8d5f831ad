from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.executors.contract import FileEdit, PermissionAsked
from handoff.gate.changed import changed
from handoff.gate.contract import Examined
from handoff.gate.examine import examine
from handoff.gate.excerpt import excerpt


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "wt" / "d").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "wt" / "f").write_text("one\n")
    (tmp_path / "wt" / "out").symlink_to("../outside")
    return tmp_path / "wt"


def ask(kind: str = "write", **fields: Any) -> PermissionAsked:
    given = {"tool": "T", "title": "", "text": "", "raw": "", **fields}
    return PermissionAsked(id="1", kind=kind, **given)


def write(path: str, new: str = "x\n", kind: str = "write", **fields: Any) -> PermissionAsked:
    raw = json.dumps({"file_path": path, "content": new})
    edits = (FileEdit(path=path, new=new, whole=True),)
    return ask(kind, **{"paths": (path,), "edits": edits, "raw": raw, **fields})


def run(command: str, **fields: Any) -> PermissionAsked:
    given = {"tool": "Bash", "command": command, "raw": json.dumps({"command": command}), **fields}
    return ask("execute", **given)


def look(work: Path, asked: PermissionAsked, **options: Any) -> Examined:
    return examine(asked, work_dir=str(work), **options)


def decided(found: Examined) -> tuple[str, str]:
    return found.verdict.decision, found.verdict.source


@pytest.mark.parametrize("path", ["f", "new", "d/e/new", "./d/../f"])
@pytest.mark.parametrize("kind", ["write", "edit"])
def test_a_write_inside_passes(work: Path, path: str, kind: str) -> None:
    for form in (path, str(work / path)):
        found = look(work, write(form, kind=kind))
        assert decided(found) == ("allow", "policy")
        assert "write in the worktree" in found.verdict.why
        assert "+x" in found.diff


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("out/x", "outside"),
        ("../x", "outside"),
        ("/etc/x", "outside"),
        (".git/config", "protected"),
        (".claude/settings.json", "protected"),
        ("d", "directory"),
        ("~/x", "home"),
        ("", "empty"),
    ],
)
def test_other_writes_ask_and_say_why(work: Path, path: str, why: str) -> None:
    found = look(work, write(path))
    assert decided(found) == ("ask", "policy")
    assert why in found.verdict.why


def test_one_bad_path_among_many_asks(work: Path) -> None:
    good, bad = write("f"), FileEdit("out/x", new="x", whole=True)
    assert decided(look(work, ask(paths=("f", "d/x")))) == ("allow", "policy")
    assert decided(look(work, ask(paths=("f", "out/x")))) == ("ask", "policy")
    assert decided(look(work, ask(paths=("f",), edits=(*good.edits, bad)))) == ("ask", "policy")


@pytest.mark.parametrize(
    "raw",
    [
        {"file_path": "/etc/x"},
        {"edits": [{"path": "f"}, {"path": "../x"}]},
        {"changes": {"a": {"kind": {"type": "update", "move_path": "/etc/x"}}}},
        {"command": "rm -rf /"},
        {"grantRoot": "/home"},
        {"changes": [{"path": "f", "kind": {"type": "delete"}}]},
        {"a": {"b": {"c": ["x", {"destination": "../x"}]}}},
    ],
)
def test_what_the_input_says_beside_the_request_counts(work: Path, raw: object) -> None:
    found = look(work, ask(paths=("f",), raw=json.dumps(raw)))
    assert decided(found) == ("ask", "policy")


@pytest.mark.parametrize(
    "raw",
    ["{", "[" * 100_000, "*** Begin Patch", json.dumps(list(range(1, 30_000)))],
    ids=["cut", "deep", "no JSON", "many"],
)
def test_an_input_that_can_not_be_looked_through_asks(work: Path, raw: str) -> None:
    assert decided(look(work, ask(paths=("f",), raw=raw))) == ("ask", "policy")


def test_text_in_the_content_is_no_path(work: Path) -> None:
    found = look(work, write("f", new='{"path": "/etc/x", "command": "rm"}\n'))
    assert decided(found) == ("allow", "policy")


def test_a_write_without_a_path_or_with_a_command_asks(work: Path) -> None:
    assert decided(look(work, ask())) == ("ask", "policy")
    assert decided(look(work, write("f", command="rm -rf x"))) == ("ask", "policy")


@pytest.mark.parametrize(
    "kind", ["read", "delete", "move", "search", "execute", "fetch", "think", "other", "", "WRITE"]
)
def test_every_other_kind_asks(work: Path, kind: str) -> None:
    found = look(work, ask(kind, paths=("f",)))
    assert decided(found) == ("ask", "policy")
    assert kind in found.verdict.why


def test_a_folder_given_by_the_executor_counts(work: Path) -> None:
    assert look(work, write("x", cwd=str(work / "d"))).targets[0].resolved == str(work / "d" / "x")
    assert decided(look(work, write("x", cwd=str(work.parent)))) == ("ask", "policy")


def test_a_worktree_that_is_gone_asks(tmp_path: Path) -> None:
    assert decided(look(tmp_path / "gone", write("f"))) == ("ask", "policy")


def test_the_text_holds_every_byte(work: Path) -> None:
    tail = "\n" * 3000 + "touch deceived \u202e\x1b"
    asked = run(
        "ls" + tail,
        title="title" + tail,
        text="text" + tail,
        reason="because" + tail,
        raw=json.dumps({"command": "x"}) + tail,
    )
    found = look(work, asked)
    for part in (asked.command, asked.title, asked.text, asked.reason, asked.raw):
        assert part is not None
        assert part in found.text
    assert found.text.startswith("command:\nls")


def test_what_stands_above_is_not_said_twice(work: Path) -> None:
    command = "ls" + "\n" * 3000 + "touch deceived"
    found = look(work, run(command, raw=json.dumps({"command": command, "timeout": 5})))
    assert found.text.count("touch deceived") == 1
    assert found.text.endswith('\n{"command": "(as above)", "timeout": 5}')
    shown = excerpt(found.text).text
    assert "[… 2999 blank lines …]\ntouch deceived" in shown


@pytest.mark.parametrize(
    "raw",
    [
        '{"command":"true","command":"false"}',
        '{"command":"true","x":{"y":"z"}}',
        '{"command":"true","x":["y"]}',
        '["true"]',
        '"true"',
        '{"command":"other"}',
        "true",
    ],
)
def test_an_unusual_input_is_shown_as_it_came(work: Path, raw: str) -> None:
    assert raw in look(work, run("true", raw=raw)).text


def test_the_text_of_a_write_shows_where_and_what(work: Path) -> None:
    found = look(work, write("out/new", new="hi\n"))
    assert f"path: out/new -> {work.parent}/outside/new (OUTSIDE the worktree)" in found.text
    assert "+hi" in found.text
    assert "+hi" in found.diff
    os.mkfifo(work / "pipe")
    assert "FIFO" in look(work, write("pipe")).text


def test_equal_words_with_other_content_are_not_the_same(work: Path) -> None:
    script = work / "s.sh"
    script.write_text("echo one >>out-file\n")
    first = look(work, run("bash s.sh"))
    again = look(work, run("bash s.sh"))
    assert first.reusable
    assert first.fingerprint == again.fingerprint
    script.write_text("echo two >>out-file\n")
    assert look(work, run("bash s.sh")).fingerprint != first.fingerprint
    assert [change.path for change in changed(first.files, str(work))] == ["s.sh"]
    script.write_text("echo one >>out-file\n")
    assert look(work, run("bash s.sh")).fingerprint == first.fingerprint


def test_everything_that_matters_is_in_the_fingerprint(work: Path) -> None:
    (work / "s.sh").write_text("true\n")
    base = run("bash s.sh", cwd=str(work))
    prints = {
        look(work, asked).fingerprint
        for asked in (
            base,
            run("bash s.sh ", cwd=str(work)),
            run("bash s.sh", cwd=str(work / "d")),
            run("bash s.sh", cwd=str(work), tool="Other"),
            run("bash s.sh", cwd=str(work), raw='{"command":"bash s.sh","timeout":1}'),
            ask("other", command="bash s.sh", cwd=str(work), tool="Bash", raw=base.raw),
            write("out/x", new="a"),
            write("out/x", new="b"),
            write("out/y", new="a"),
        )
    }
    assert len(prints) == 9


def test_the_model_s_words_about_a_command_are_not_what_runs(work: Path) -> None:
    one = run("true", raw='{"command":"true","description":"a"}', text="a", title="a")
    two = run("true", raw='{"description":"b","command":"true"}', text="b", title="b")
    assert look(work, one).fingerprint == look(work, two).fingerprint


def test_a_redirection_through_a_link_that_was_turned_is_another_command(work: Path) -> None:
    first = look(work, run("echo x >out/log"))
    assert first.reusable
    assert first.targets[0].resolved == str(work.parent / "outside" / "log")
    (work / "out").unlink()
    (work / "out").symlink_to("d")
    assert look(work, run("echo x >out/log")).fingerprint != first.fingerprint


def test_a_grant_serves_again_only_for_the_same(work: Path) -> None:
    asked_for: list[str] = []

    def grants(fingerprint: str) -> str | None:
        asked_for.append(fingerprint)
        return "t-7"

    found = look(work, run("true"), grants=grants)
    assert decided(found) == ("allow", "grant")
    assert "t-7" in found.verdict.why
    assert asked_for == [found.fingerprint]
    assert decided(look(work, run("true"), grants=lambda _: None)) == ("ask", "policy")


@pytest.mark.parametrize(
    "asked",
    [
        run("curl x | sh"),
        run("npm test"),
        run("echo $(id)"),
        run("git push"),
        ask("other", raw='{"x":1}'),
        ask("write", paths=("out/x",), edits=(FileEdit("out/x"),)),
        ask("delete", paths=("d",)),
    ],
    ids=str,
)
def test_what_can_not_be_pinned_never_asks_for_a_grant(work: Path, asked: PermissionAsked) -> None:
    def grants(_: str) -> str | None:
        raise AssertionError

    found = look(work, asked, grants=grants)
    assert decided(found) == ("ask", "policy")
    assert not found.reusable
    assert "a grant serves once, because" in found.text


def test_a_write_that_passes_needs_no_grant(work: Path) -> None:
    def grants(_: str) -> str | None:
        raise AssertionError

    assert decided(look(work, write("f"), grants=grants)) == ("allow", "policy")


def test_a_write_outside_that_was_granted_asks_again_when_the_file_is_another(work: Path) -> None:
    first = look(work, write("out/x"))
    assert first.reusable
    assert first.files[0].digest == ""
    (work.parent / "outside" / "x").write_text("else\n")
    assert look(work, write("out/x")).fingerprint != first.fingerprint
    assert changed(first.files, str(work))[0].what == "appeared"


def test_a_loop_is_told_and_can_not_be_reused(work: Path) -> None:
    (work / "loop-a").symlink_to("loop-b")
    (work / "loop-b").symlink_to("loop-a")
    found = look(work, write("loop-a"))
    assert decided(found) == ("ask", "policy")
    assert "symlink loop" in found.text
    assert not found.reusable


_TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["f", "out/x", "../x", ".git/x", "a\0b", "\ud800", "$(x)", "bash f"]),
)


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(["write", "edit", "execute", "delete", "other"]),
    path=_TEXTS,
    raw=_TEXTS,
    command=st.none() | _TEXTS,
    cwd=st.none() | _TEXTS,
    old=st.none() | _TEXTS,
    new=st.none() | _TEXTS,
)
def test_nothing_that_can_be_asked_breaks_it(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    path: str,
    raw: str,
    command: str | None,
    cwd: str | None,
    old: str | None,
    new: str | None,
) -> None:
    work = tmp_path_factory.getbasetemp() / "fuzzed"
    work.mkdir(exist_ok=True)
    asked = ask(
        kind, raw=raw, command=command, cwd=cwd, paths=(path,), edits=(FileEdit(path, old, new),)
    )
    found = look(work, asked)
    assert raw.encode("utf-8", "backslashreplace").decode() in found.text
    if found.verdict.decision == "allow":
        assert kind in {"write", "edit"}
        real = os.path.realpath(os.path.join(work, cwd or "", path))
        assert real.startswith(os.path.realpath(work) + "/")

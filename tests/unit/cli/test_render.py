from __future__ import annotations

import pytest

from handoff.cli.context import Context
from handoff.cli.render import clip, event_line, removal, task_head

CONTEXT = Context()


def test_the_end_can_not_be_pushed_out_of_sight_by_nothing() -> None:
    text = "echo building" + " " * 3000 + "\n" * 400 + "touch deceived-by-tail"
    assert clip(text, 10, 6) == (
        ["echo building[… 3000 blanks …]", "[… 399 blank lines …]", "touch deceived-by-tail"],
        True,
    )


@pytest.mark.parametrize("nothing", ["\t", "\u00a0", "\u3000", "\u2800", " \u2003"])
def test_whatever_looks_like_nothing_is_counted(nothing: str) -> None:
    shown, short = clip(f"a{nothing * 60}b\n{nothing}\n\n{nothing}{nothing}\nc\n", 10, 6)
    assert short
    assert shown == [f"a[… {len(nothing) * 60} blanks …]b", "[… 3 blank lines …]", "c"]


def test_lines_left_out_are_those_of_the_text() -> None:
    shown, _ = clip("\n".join(["x"] * 30 + [""] * 50 + ["y"] * 30), 10, 6)
    assert shown[10] == "[… 94 lines left out …]"
    assert len(shown) == 17


def test_a_text_can_not_pretend_to_have_gaps() -> None:
    assert clip("a\n[… 3 blank lines …]\nb", 10, 6) == (
        ["a", "⟨U+005B⟩… 3 blank lines …]", "b"],
        False,
    )


@pytest.mark.parametrize("entry", ["?? b.txt", {"status": "??", "path": "b.txt"}, ["??", "b.txt"]])
def test_what_kept_a_worktree_is_shown_however_agentd_tells_it(entry: object) -> None:
    found = {
        "action": "kept",
        "work_dir": "/w/1f3a",
        "reason": "dirty",
        "note": "/w/1f3a was kept (dirty): 1 uncommitted change",
        "entries": [entry],
        "remedy": "handoff reclaim 1f3a --force",
    }
    assert removal(found, CONTEXT, "1f3a") == [
        "  /w/1f3a was kept (dirty): 1 uncommitted change",
        "    ?? b.txt",
        "  handoff reclaim 1f3a --force",
    ]


def test_why_a_worktree_was_kept_is_said_without_a_note_too() -> None:
    found = {"action": "kept", "work_dir": "/w/1f3a", "reason": "operation", "note": "a rebase"}
    assert removal(found, CONTEXT, "1f3a") == [
        "  /w/1f3a was kept (operation)",
        "  a rebase",
        "  handoff reclaim 1f3a",
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("main", "from main de5f5c2448"),
        ("detached HEAD at de5f5c2448", "from detached HEAD at de5f5c2448"),
        ("", "from de5f5c2448"),
    ],
)
def test_the_base_is_named_once(name: str, shown: str) -> None:
    task = {"id": "1f3a", "state": "running", "branch": "b", "base_name": name}
    lines = task_head({**task, "base_commit": "de5f5c24481079f5e878"})
    assert f"  branch: b {shown}" in lines


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"state": "began"}, "make test"),
        ({"state": "ended", "exit_code": 0}, "make test  passed"),
        ({"state": "ended", "exit_code": 3}, "make test  exit 3"),
        ({"state": "ended", "exit_code": -15, "timed_out": True}, "make test  timed out"),
    ],
)
def test_a_verify_command_is_listed_with_its_end(payload: dict[str, object], told: str) -> None:
    event = {"type": "verify", "payload": {"command": "make test", **payload}}
    assert event_line(event).endswith(f"verify  {told}")


def test_what_policy_allowed_is_listed_with_the_reason() -> None:
    payload = {"ref": "p1", "permission": "--- /dev/null\n+++ a", "why": "write in the worktree: a"}
    line = event_line({"type": "permission_allowed", "actor": "policy", "payload": payload})
    assert line.endswith("permission_allowed p1 [policy]  write in the worktree: a")

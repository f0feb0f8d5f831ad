"""What each command sends, prints and returns."""

from __future__ import annotations

import base64
import itertools
import json
import os
import pathlib
import threading
from typing import Any

import pytest
from tests.unit.cli.calling import OTHER, TASK, Caller, asked, event, task, ticket
from tests.unit.client.served import Reply, Request, Served, lines

from handoff.cli import dispatch
from handoff.client import http


def serve_task(served: Served, found: dict[str, Any] | None = None, **more: Any) -> None:
    shown = {
        "task": found or task(),
        "pending_tickets": [],
        "recent_events": [],
        "turns": [],
        **more,
    }
    for ident in (TASK, "1f3a"):
        served.on("GET", f"/api/tasks/{ident}", shown)


# -- dispatch ----------------------------------------------------------------------------


def test_dispatch_prints_the_task_as_one_line(call: Caller, served: Served) -> None:
    served.on("POST", "/api/tasks", task(notes=["the hook post-checkout was left out"]))
    pathlib.Path("my plan.md").write_text("Do ä.")
    done = call("dispatch", "my plan.md", "--executor", "claude", "--verify", "a", "--verify", "b")
    assert (done.code, done.json["id"]) == (0, TASK)
    assert done.raw.count(b"\n") == 1
    assert "note: the hook post-checkout was left out" in done.err
    sent = served.seen[0].json
    assert base64.b64decode(sent["plan_b64"]).decode() == "Do ä."
    assert sent["plan_name"] == "my plan.md"
    assert sent["start_dir"] == os.getcwd()
    assert sent["verify"] == ["a", "b"]
    assert (sent["executor"], sent["in_place"], sent["setup"]) == ("claude", False, True)
    assert served.seen[0].headers["handoff-request"]


def test_dispatch_reads_a_prompt_from_stdin(call: Caller, served: Served) -> None:
    served.on("POST", "/api/tasks", task())
    assert call("dispatch", "--prompt", "-", "--in-place", stdin="größer\n".encode()).code == 0
    sent = served.seen[0].json
    assert (sent["prompt"], sent["in_place"]) == ("größer\n", True)
    assert "plan_b64" not in sent


def test_dispatch_by_project_name_does_not_send_the_folder(call: Caller, served: Served) -> None:
    served.on("POST", "/api/tasks", task())
    call("dispatch", "--prompt", "x", "--project", "web", "--worktree", "w")
    sent = served.seen[0].json
    assert (sent["project_name"], sent["worktree"]) == ("web", os.path.join(os.getcwd(), "w"))
    assert "start_dir" not in sent


@pytest.mark.parametrize(
    ("argv", "stdin", "code", "told"),
    [
        ([], b"", 2, "nothing to do"),
        (["--prompt", " "], b"", 2, "nothing to do"),
        (["--prompt", "-"], b"\n", 2, "nothing to do"),
        (["--prompt", "-"], b"\xff", 2, "not UTF-8"),
        (["missing.md"], b"", 4, "missing.md"),
        (["empty.md"], b"", 2, "is empty"),
        (["big.md"], b"", 2, "larger than"),
        (["."], b"", 2, "can't be read"),
        (["--prompt", "x", "--branch", "a", "--new-branch", "b"], b"", 2, "not allowed with"),
        (["--prompt", "x", "--worktree", "a", "--in-place"], b"", 2, "not allowed with"),
    ],
)
def test_a_dispatch_that_cant_be_is_refused_before_anything_is_sent(
    call: Caller, served: Served, argv: list[str], stdin: bytes, code: int, told: str
) -> None:
    pathlib.Path("empty.md").write_text(" \n")
    with open("big.md", "wb") as file:
        file.truncate(dispatch.MAX_PLAN + 1)
    done = call("dispatch", *argv, stdin=stdin)
    assert (done.code, done.raw) == (code, b"")
    assert told in done.err
    assert served.seen == []


def test_a_dispatch_whose_outcome_is_unknown_says_how_to_look(call: Caller, served: Served) -> None:
    served.on("POST", "/api/tasks", Reply(raw=b""))
    ticks = itertools.count(step=4)
    real = http.Client.__init__

    def hurried(self: http.Client, locate: Any) -> None:
        real(self, locate, sleep=lambda _: None, monotonic=lambda: float(next(ticks)))

    call.patch.setattr(http.Client, "__init__", hurried)
    done = call("dispatch", "--prompt", "x")
    assert done.code == 5
    assert "may or may not have been carried out" in done.err
    assert "try: handoff tasks --limit 3" in done.err
    assert len({request.headers["handoff-request"] for request in served.seen}) == 1


def test_dispatch_on_a_terminal_shows_the_start_and_the_next_commands(
    call: Caller, served: Served
) -> None:
    call.patch.setenv("NO_COLOR", "1")
    served.on("POST", "/api/tasks", task())
    started = event(2, "executor_started", text="fake 1.0")
    stream = Reply(chunks=lines({"event": event(1, "dispatched")}, {"event": started}), cut=True)
    served.on("GET", f"/api/tasks/{TASK}/stream", stream)
    done = call("dispatch", "--prompt", "x", tty=True)
    assert done.code == 0
    assert "branch: handoff/count from main aaaaaaaaaa" in done.out
    assert "executor_started" in done.out
    assert "  handoff wait 1f3a0000\n  handoff attach 1f3a0000\n" in done.out
    quick = call("dispatch", "--prompt", "x", "--detach", tty=True)
    assert "executor_started" not in quick.out


def test_a_task_that_cant_begin_is_its_typed_error_on_a_terminal_too(
    call: Caller, served: Served
) -> None:
    served.on("POST", "/api/tasks", task(state="pending"))
    why = {"reason": "no claude here", "code": "executor_missing", "remedy": "handoff doctor"}
    stream = Reply(chunks=lines({"event": event(1, "failed", **why)}, {"end": {}}))
    served.on("GET", f"/api/tasks/{TASK}/stream", stream)
    done = call("dispatch", "--prompt", "x", tty=True)
    assert done.code == 1
    assert "no claude here\n  try: handoff doctor" in done.err


def test_only_a_script_waits_for_the_start_in_the_call_itself(call: Caller, served: Served) -> None:
    served.on("POST", "/api/tasks", task())
    call("dispatch", "--prompt", "x")
    call("dispatch", "--prompt", "x", "--detach")
    call("dispatch", "--prompt", "x", "--detach", tty=True)
    assert [request.query for request in served.seen] == [{}, {"wait": ["0"]}, {"wait": ["0"]}]


# -- reply -------------------------------------------------------------------------------


def reply_to(served: Served, *tickets: dict[str, Any]) -> None:
    serve_task(served, pending_tickets=list(tickets))
    served.on("POST", "/api/tasks/1f3a/reply", {"ok": True, "relayed": True, "state": "delivered"})
    for one in tickets:
        served.on("GET", f"/api/tasks/1f3a/tickets/{one['ref']}", one)


@pytest.mark.parametrize(
    ("argv", "sent"),
    [
        (["--approve"], {"decision": "allow", "reason": ""}),
        (["--deny"], {"decision": "deny", "reason": ""}),
        (["--deny", "--reason", " no "], {"decision": "deny", "reason": "no"}),
        (["--answer", "yes"], {"answer": "yes"}),
    ],
)
def test_reply_to_the_only_open_ticket(
    call: Caller, served: Served, argv: list[str], sent: dict[str, str]
) -> None:
    reply_to(served, ticket("g1"))
    done = call("reply", "1f3a", *argv)
    assert (done.code, done.json["state"]) == (0, "delivered")
    assert served.seen[-1].json == {**sent, "ticket_id": f"{TASK}:g1"}


def test_reply_names_the_tickets_where_several_are_open(call: Caller, served: Served) -> None:
    reply_to(served, ticket("g1"), ticket("q1"))
    done = call("reply", "1f3a", "--approve")
    assert done.code == 2
    assert "g1" in done.err
    assert "q1" in done.err
    assert all(request.method == "GET" for request in served.seen)
    assert call("reply", "1f3a", "--ticket", "g1", "--approve").code == 0
    assert served.seen[-1].json["ticket_id"] == "g1"


def test_reply_without_an_open_ticket_is_3(call: Caller, served: Served) -> None:
    reply_to(served)
    done = call("reply", "1f3a", "--approve")
    assert (done.code, "no ticket is open (the task is running)" in done.err) == (3, True)


def test_reply_that_was_not_delivered_is_1(call: Caller, served: Served) -> None:
    reply_to(served, ticket("g1"))
    answer = {"ok": True, "relayed": False, "state": "answered", "reason": "it is busy"}
    served.on("POST", "/api/tasks/1f3a/reply", answer)
    done = call("reply", "1f3a", "--approve")
    assert done.code == 1
    assert "it is busy" in done.err
    assert done.json == answer


def test_answers_fit_the_questions(call: Caller, served: Served) -> None:
    two = ticket("q1", request={"kind": "ask", "questions": [{"text": "a"}, {"text": "b"}]})
    reply_to(served, two)
    assert call("reply", "1f3a", "--answer", "x", "--answer", "y").code == 0
    assert served.seen[-1].json["answers"] == [["x"], ["y"]]
    many = ticket("q2", request={"kind": "ask", "questions": [{"text": "a", "multiple": True}]})
    reply_to(served, many)
    assert call("reply", "1f3a", "--ticket", "q2", "--answer", "x", "--answer", "y").code == 0
    assert served.seen[-1].json["answers"] == [["x", "y"]]
    one = ticket("q3", request={"kind": "ask", "questions": [{"text": "a"}]})
    reply_to(served, one)
    assert call("reply", "1f3a", "--answer", "x", "--answer", "y").code == 2


def test_reason_needs_deny(call: Caller, served: Served) -> None:
    assert call("reply", "1f3a", "--approve", "--reason", "x").code == 2
    assert served.seen == []


# -- continue, done, stop, interrupt, resume ---------------------------------------------


def test_continue_takes_text_or_stdin(call: Caller, served: Served) -> None:
    served.on("POST", "/api/tasks/1f3a/continue", {"ok": True, "state": "running"})
    assert call("continue", "1f3a", "more").json["ok"] is True
    assert served.seen[-1].json == {"instructions": "more"}
    assert call("continue", "1f3a", "-", stdin=b"from a file").code == 0
    assert served.seen[-1].json == {"instructions": "from a file"}
    assert call("continue", "1f3a", "  ").code == 2


def test_done_checks_the_note_and_shows_what_became_of_the_worktree(
    call: Caller, served: Served
) -> None:
    kept = {"action": "kept", "work_dir": "/w/x", "reason": "dirty", "entries": [["??", "a\nb"]]}
    served.on("POST", "/api/tasks/1f3a/done", {"ok": True, "note_saved": False, "worktree": kept})
    assert call("done", "1f3a", "--note", "ä" * 2049).code == 2
    assert served.seen == []
    done = call("done", "1f3a", "--note", "ä" * 2048)
    assert done.code == 0
    assert "did not confirm" in done.err
    call.patch.setenv("NO_COLOR", "1")
    shown = call("done", "1f3a", tty=True).out
    assert "/w/x was kept (dirty)" in shown
    assert "?? a⟨U+000A⟩b" in shown
    assert "handoff reclaim 1f3a" in shown


@pytest.mark.parametrize("name", ["stop", "interrupt", "resume"])
def test_simple_calls(call: Caller, served: Served, name: str) -> None:
    served.on("POST", f"/api/tasks/1f3a/{name}", {"ok": True, "note": "x"})
    assert call(name, "1f3a").json == {"ok": True, "note": "x"}
    assert call(name, "1f3a", tty=True).code == 0


def test_resume_force(call: Caller, served: Served) -> None:
    served.on("POST", "/api/tasks/1f3a/resume", {"forced": True})
    call("resume", "1f3a", "--force")
    call("resume", "1f3a")
    assert [request.query for request in served.seen] == [{"force": ["1"]}, {}]


# -- tasks, show -------------------------------------------------------------------------


def test_tasks_one_a_line_all_of_them(call: Caller, served: Served) -> None:
    served.on("GET", "/api/tasks", [task(), task(id=OTHER, state="failed")])
    assert [t["id"] for t in call("tasks").lines] == [TASK, OTHER]
    assert "limit" not in served.seen[0].query
    several = call("tasks", "--state", "failed", "--state", "running", "--limit", "1")
    assert [t["id"] for t in several.lines] == [TASK]
    one = call("tasks", "--state", "failed", "--limit", "1").lines
    assert served.seen[-1].query == {"state": ["failed"], "limit": ["1"]}
    assert [t["id"] for t in one] == [OTHER]


def test_tasks_as_a_table(call: Caller, served: Served) -> None:
    call.patch.setenv("NO_COLOR", "1")
    hostile = task(name="x\x1b[2J\u202e\n" + "日本" * 60, open_tickets=2, state="waiting_answer")
    served.on("GET", "/api/tasks", [hostile] * 40)
    shown = call("tasks", tty=True).out
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 32
    assert "2 open tickets" in shown
    assert "handoff tasks --limit 1000" in shown
    served.on("GET", "/api/tasks", [])
    assert "handoff dispatch" in call("tasks", tty=True).out


def test_show_is_one_line_of_json_and_all_gets_every_event(call: Caller, served: Served) -> None:
    serve_task(served, recent_events=[event(1500)])
    pages = {0: [event(n) for n in range(1, 1001)], 1000: [event(n) for n in range(1001, 1501)]}
    served.on("GET", f"/api/tasks/{TASK}/events", lambda r: pages[int(r.one("from_seq") or 0)])
    assert len(call("show", "1f3a").json["recent_events"]) == 1
    found = call("show", "1f3a", "--all").json["recent_events"]
    assert [e["seq"] for e in found] == list(range(1, 1501))


def test_show_on_a_terminal(call: Caller, served: Served) -> None:
    call.patch.setenv("NO_COLOR", "1")
    long = "\n".join(f"line {n} \x1b]0;x\x07" for n in range(100))
    request = {"kind": "gate", "permission": long, "tool": "bash", "paths": []}
    turns = [{"number": 1, "state": "ended", "started_at": "2026-11-30T10:00:00.000Z",
              "outcome": {"code": "no_claim", "reason": "nothing was said"}}]  # fmt: skip
    serve_task(
        served,
        task(state="waiting_answer", done_note=""),
        pending_tickets=[ticket("g1", request=request)],
        recent_events=[event(n, text=f"t{n}") for n in range(1, 31)],
        turns=turns,
    )
    shown = call("show", "1f3a", tty=True).out
    assert "\x1b" not in shown
    assert "line 0 " in shown
    assert "line 99 " in shown
    assert "line 50 " not in shown
    assert "[… 84 lines left out …]" in shown
    assert "100 lines; in full: handoff show 1f3a0000 --ticket g1)" in shown
    assert "no_claim  nothing was said" in shown
    assert "t30" in shown
    assert "handoff show 1f3a0000 --all" in shown
    assert "handoff reply 1f3a0000 --ticket g1 --approve" in shown


def test_show_ticket_keeps_every_byte(call: Caller, served: Served) -> None:
    text = "a" * 50_000 + "\x1b[2J" + "b" * 50_000
    found = ticket("g1", request={"kind": "gate", "permission": text, "paths": [
        {"given": "../x", "resolved": "/etc/x", "problem": "symlink loop"}]})  # fmt: skip
    served.on("GET", "/api/tasks/1f3a/tickets/g1", found)
    assert call("show", "1f3a", "--ticket", "g1").json["request"]["permission"] == text
    shown = call("show", "1f3a", "--ticket", "g1", tty=True).out
    assert "a" * 50_000 + "⟨U+001B⟩[2J" + "b" * 50_000 in shown
    assert "/etc/x  (symlink loop)" in shown


def test_show_plan_is_exact_when_piped(call: Caller, served: Served) -> None:
    served.on("GET", "/api/tasks/1f3a/plan", {"plan": "a\r\n\x1b[1m", "name": "p.md"})
    assert call("show", "1f3a", "--plan").raw == b"a\r\n\x1b[1m"
    assert call("show", "1f3a", "--plan", "--json").json["name"] == "p.md"
    assert call("show", "1f3a", "--plan", tty=True).out == "a⟨U+000D⟩\n⟨U+001B⟩[1m\n"


# -- diff, fetch, run --------------------------------------------------------------------


def test_diff_is_exact_when_piped(call: Caller, served: Served) -> None:
    data = b"--- a\n+\xff\x1b[31m\r\n\\ No newline"
    served.on("GET", "/api/tasks/1f3a/diff", Reply(chunks=[data[:9], data[9:]]))
    assert call("diff", "1f3a").raw == data
    call("diff", "1f3a", "--stat", "--base", "main", "--", "*.txt", "-rf", "a\udcff")
    query = served.seen[-1].query
    assert query == {
        "stat": ["1"],
        "base": ["main"],
        "format": ["raw"],
        "path": ["*.txt", "-rf", "a\udcff"],
    }


def test_diff_json_keeps_bytes_that_are_not_utf8(call: Caller, served: Served) -> None:
    served.on("GET", "/api/tasks/1f3a/diff", {"files": [{"path": "a\udcff"}], "diff": "ä"})
    done = call("diff", "1f3a", "--json", "--name-only")
    assert done.json["files"][0]["path"] == "a\udcff"
    assert served.seen[-1].query["name_only"] == ["1"]


def test_diff_on_a_terminal_cuts_a_huge_line_with_its_size(call: Caller, served: Served) -> None:
    huge = b"+" + b"x" * (24 << 20)

    def chunks() -> Any:
        yield b"diff --git a/app.py b/app.py\n+one\x1b[2J line\n"
        for at in range(0, len(huge), 65536):
            yield huge[at : at + 65536]
        yield b"\n-last\n"

    served.on("GET", "/api/tasks/1f3a/diff", lambda _: Reply(chunks=chunks()))
    call.patch.setenv("NO_COLOR", "1")
    shown = call("diff", "1f3a", tty=True).out
    assert len(shown) < 10_000
    assert "+one⟨U+001B⟩[2J line" in shown
    assert "[line of 24.0 MiB, cut here]" in shown
    assert shown.splitlines()[-1] == "-last"


def test_diff_that_is_cut_off_is_not_taken_for_whole(call: Caller, served: Served) -> None:
    served.on("GET", "/api/tasks/1f3a/diff", lambda _: Reply(chunks=[b"half"], cut=True))
    for tty in (False, True):
        done = call("diff", "1f3a", tty=tty)
        assert (done.code, "cut off" in done.err) == (5, True)


def test_fetch(call: Caller, served: Served) -> None:
    served.on("GET", "/api/tasks/1f3a/file", Reply(chunks=[b"\x00\xff\n"]))
    assert call("fetch", "1f3a", "a b").raw == b"\x00\xff\n"
    assert call("fetch", "1f3a", "--", "-x").raw == b"\x00\xff\n"
    assert [r.one("path") for r in served.seen] == ["a b", "-x"]
    assert call("fetch", "1f3a").code == 2
    assert call("fetch", "1f3a", "a", "--", "b").code == 2
    assert call("fetch", "1f3a", "x", tty=True).out == "⟨U+0000⟩⟨0xFF⟩\n"


def run_reply(*parts: tuple[int, bytes], **end: Any) -> Reply:
    found = [{"fd": fd, "b64": base64.b64encode(data).decode()} for fd, data in parts]
    return Reply(
        chunks=lines(*found, {"exit_code": 0, "timed_out": False, "dropped_bytes": 0, **end})
    )


@pytest.mark.parametrize(
    ("argv", "sent"),
    [
        (["1f3a", "ls | wc -l"], {"cmd": "ls | wc -l"}),
        (["1f3a", "ls", "-l", "--json", "a b"], {"argv": ["ls", "-l", "--json", "a b"]}),
        (["1f3a", "--", "ls", "--", "x"], {"argv": ["ls", "--", "x"]}),
        (["1f3a", "git", "log", "--", "x"], {"argv": ["git", "log", "--", "x"]}),
        (["--timeout", "90s", "1f3a", "ls"], {"cmd": "ls", "timeout_s": 90.0}),
        (["1f3a", "--timeout", "2m", "--", "ls", "-l"], {"argv": ["ls", "-l"], "timeout_s": 120.0}),
    ],
)
def test_run_keeps_arguments_as_they_are(
    call: Caller, served: Served, argv: list[str], sent: dict[str, Any]
) -> None:
    served.on("POST", "/api/tasks/1f3a/run", lambda _: run_reply((1, b"o\xff"), (2, b"e")))
    done = call("run", *argv)
    assert (done.code, done.raw, done.err) == (0, b"o\xff", "e")
    assert served.seen[-1].json == {"timeout_s": 600.0, "stream": True, **sent}


@pytest.mark.parametrize(
    ("end", "code"),
    [({"exit_code": 3}, 3), ({"exit_code": -9}, 137), ({"exit_code": 0, "timed_out": True}, 124)],
)
def test_run_exits_with_the_commands_code(
    call: Caller, served: Served, end: dict[str, Any], code: int
) -> None:
    served.on("POST", "/api/tasks/1f3a/run", lambda _: run_reply((1, b"x"), **end))
    assert call("run", "1f3a", "true").code == code


def test_run_says_what_was_left_out_and_when_the_link_broke(call: Caller, served: Served) -> None:
    served.on("POST", "/api/tasks/1f3a/run", lambda _: run_reply(dropped_bytes=5))
    assert "5 bytes of output were left out" in call("run", "1f3a", "x").err
    served.on(
        "POST", "/api/tasks/1f3a/run", lambda _: Reply(chunks=lines({"heartbeat": 1}), cut=True)
    )
    done = call("run", "1f3a", "x")
    assert done.code == 5
    assert "while the command ran" in done.err
    assert len(served.seen) == 2, "a command is never started twice"
    assert call("run", "1f3a").code == 2


def test_run_on_a_terminal_is_harmless_and_never_cuts_a_character(
    call: Caller, served: Served
) -> None:
    data = "größe 日\x1b[2J\r\n".encode()
    parts = [(1, data[n : n + 1]) for n in range(len(data))]
    served.on("POST", "/api/tasks/1f3a/run", lambda _: run_reply(*parts))
    assert call("run", "1f3a", "x", tty=True).out == "größe 日⟨U+001B⟩[2J\n"


# -- attach ------------------------------------------------------------------------------


def frames(*items: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"frame": {"n": n, "turn": 1, "kind": kind, "at": "2026-11-30T10:00:00.000Z", "data": data}}
        for n, (kind, data) in enumerate(items)
    ]


def test_attach_shows_the_work(call: Caller, served: Served) -> None:
    serve_task(served)
    found = frames(
        ("prompt", {"text": "Do it", "actor": "uid 0"}),
        ("text", {"text": "I will "}),
        ("text", {"text": "\x1b[2Jdo."}),
        ("tool", {"id": "1", "status": "running", "command": "make"}),
        ("tool", {"id": "1", "status": "failed", "output": "\n".join(map(str, range(9)))}),
        ("ticket", {"id": "x", "ref": "g1", "kind": "gate", "text": "rm -rf /"}),
        ("answer", {"ref": "g1", "decision": "deny", "reason": "no", "actor": "ada"}),
        ("retry", {"attempt": 2, "limit": None, "delay_s": None, "reason": "overloaded"}),
        ("plan", {"steps": [{"text": "a", "status": "completed"}]}),
        ("usage", {"input_tokens": 1}),
        ("brand_new", {"text": "x"}),
        ("turn_end", {"code": "verified"}),
    )
    served.on("GET", f"/api/tasks/{TASK}/frames", Reply(chunks=lines(*found, {"end": {}})))
    done = call("attach", "1f3a", "--all", "--no-follow")
    assert done.code == 0
    assert "  > Do it\n" in done.out
    assert "I will ⟨U+001B⟩[2Jdo.\n▸ make\n    [3 lines before]\n    3\n" in done.out
    assert "    8\n    failed\n◆ permission g1" in done.out
    assert (
        "  │ rm -rf /\n◇ g1 deny: no  (by ada)\n↻ attempt 2: overloaded\nplan\n  [x] a\n"
        in done.out
    )
    assert "── turn 1 ended: verified" in done.out
    assert "input_tokens" not in done.out
    assert served.seen[-1].query == {"from": ["0"]}
    shown = call("attach", "1f3a", "--json").lines
    assert [frame["n"] for frame in shown] == list(range(12))
    assert served.seen[-1].query == {"from": ["0"], "tail": ["60"], "follow": ["1"]}


def test_attach_goes_on_at_its_frame_after_a_loss(call: Caller, served: Served) -> None:
    call.patch.setattr("time.sleep", lambda _: None)
    serve_task(served)
    found = frames(*[("text", {"text": f"{n} "}) for n in range(6)])

    def answer(request: Request) -> Reply:
        start = int(request.one("from") or 0)
        if start == 0:
            return Reply(chunks=lines(*found[:3]), cut=True)
        return Reply(chunks=lines(*found[start:], {"end": {}}))

    served.on("GET", f"/api/tasks/{TASK}/frames", answer)
    assert call("attach", "1f3a").out == "0 1 2 3 4 5 \n"


def test_attach_is_left_quietly(call: Caller, served: Served) -> None:
    serve_task(served)
    hold = threading.Event()

    def chunks() -> Any:
        yield from lines(*frames(("text", {"text": "half"})))
        hold.wait(10)

    served.on("GET", f"/api/tasks/{TASK}/frames", lambda _: Reply(chunks=chunks()))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    call.patch.setattr("handoff.cli.attach.View.frame", interrupted)
    done = call("attach", "1f3a")
    hold.set()
    assert done.code == 0
    assert "handoff attach 1f3a" in done.err


def test_attach_without_a_task(call: Caller, served: Served) -> None:
    served.on("GET", "/api/tasks", [task(id=OTHER, state="failed"), task()])
    serve_task(served)
    served.on("GET", f"/api/tasks/{TASK}/frames", Reply(chunks=lines({"end": {}})))
    assert call("attach").out == f"handoff attach {TASK}\nhandoff attach {OTHER}\n"
    call.patch.setattr("handoff.cli.terminal.is_tty", lambda _: True)
    call.patch.setattr("builtins.input", lambda _: "1")
    assert call("attach").code == 0
    assert served.seen[-1].path == f"/api/tasks/{TASK}/frames"
    call.patch.setattr("builtins.input", lambda _: "9")
    assert call("attach").code == 2
    served.on("GET", "/api/tasks", [])
    assert call("attach").code == 0


# -- the machine -------------------------------------------------------------------------

STATUS = {
    "version": {"version": "0.1.0"},
    "pid": 7,
    "instance": "i",
    "socket": "/s",
    "listen": "http://127.0.0.1:7777",
    "data_dir": "/d",
    "started_at": "2026-11-30T10:00:00.000Z",
    "executors": ["claude", "fake"],
    "default_executor": "fake",
    "task_counts": {"running": 1, "failed": 0},
    "active": [
        {"id": TASK, "name": "n\x1b[2J", "state": "running", "executor": "fake", "live": "alive",
         "note": "", "watchers": 0, "procs": 3},
        {"id": OTHER, "name": "m", "state": "waiting_review", "executor": "fake",
         "live": "unknown", "note": "no answer", "watchers": 0},
    ],
    "queue": {"running": 1, "limit": 2, "waiting": 0},
    "disk": {"free_bytes": 1 << 30, "db_bytes": 1024, "tasks_bytes": 0},
    "recovering": True,
    "warnings": ["no sandbox"],
}  # fmt: skip


def test_status(call: Caller, served: Served) -> None:
    served.on("GET", "/api/status", STATUS)
    body = call("status", "--json").json
    assert (body["reachable"], body["agentd"]["pid"]) == (True, 7)
    shown = call("status").out
    for part in ("fake (default)", "1 running", "1 of 2 running", "1.0 KiB used", "! no sandbox"):
        assert part in shown
    assert "recovering" in shown
    rows = {line.split()[0]: line for line in shown.splitlines() if line}
    assert rows["1f3a0000"].split()[4:] == ["3", "n⟨U+001B⟩[2J", "(unwatched)"]
    assert rows["2b4c0000"].split()[3:5] == ["unknown", "?"]
    assert "unwatched" not in rows["2b4c0000"]


def test_status_without_agentd_is_5(call: Caller, served: Served) -> None:
    served.stop()
    done = call("status", "--json")
    served.restart()
    assert (done.code, done.raw) == (5, b"")
    assert json.loads(done.err)["remedy"].startswith("handoff agentd")


def test_projects(call: Caller, served: Served) -> None:
    project = {"name": "web", "project_id": "ab", "path": "/p", "origin_url": "", "status": "ok"}
    served.on("GET", "/api/projects", [project])
    served.on("POST", "/api/projects", project)
    served.on("DELETE", "/api/projects/a%2Fb", {"ok": True})
    assert call("project", "ls").json == project
    assert "web" in call("project", "ls", tty=True).out
    assert call("project", "add", "web").json == project
    assert served.seen[-1].json == {"path": os.getcwd(), "name": "web"}
    assert call("project", "rm", "a/b").json == {"ok": True}
    assert served.seen[-1].headers["handoff-request"]
    assert call("project", "rm").code == 2


def test_footprint_and_reclaim(call: Caller, served: Served) -> None:
    rows = [
        {"task_id": TASK, "name": "n", "state": "running", "procs": 3, "verdict": "ok"},
        {"task_id": OTHER, "name": "m", "state": "failed", "procs": 0, "verdict": "ok"},
    ]
    served.on("GET", "/api/footprint", {"rows": rows, "usage": {"used": 9, "limit": 100}})
    assert "2b4c0000" not in call("footprint").out
    assert "2b4c0000" in call("footprint", "--all").out
    assert call("footprint", "--json").json["usage"]["limit"] == 100
    left = {
        "task_id": TASK,
        "state": "failed",
        "worktree": "dirty",
        "dirty_count": 2,
        "work_dir": "/w",
    }
    served.on("GET", "/api/reclaim", {"rows": [left], "scanned": 1})
    assert "dirty (2)" in call("reclaim").out
    refusal = {"error": "kept", "code": "not_allowed", "details": {"reason": "dirty",
               "dirty": [{"status": "??", "path": "a b"}]}}  # fmt: skip
    served.on("POST", "/api/tasks/1f3a/reclaim", Reply(refusal, 409))
    done = call("reclaim", "1f3a")
    assert (done.code, done.out) == (3, "?? a b\n")
    assert "handoff reclaim 1f3a --force" in done.err
    gone = {"removed": True, "action": "removed", "work_dir": "/w",
            "discarded": [{"status": "??", "path": "a b"}]}  # fmt: skip
    served.on("POST", "/api/tasks/1f3a/reclaim", gone)
    assert "discarded ?? a b" in call("reclaim", "1f3a", "--force").out
    assert served.seen[-1].json == {"force": True}


def test_ids_never_complain(call: Caller, served: Served) -> None:
    served.on("GET", "/api/tasks", [task(), task(id=OTHER)])
    assert call("_ids").out == "1f3a0000\n2b4c0000\n"
    served.on("GET", "/api/tasks", Reply({"error": "x"}, 500))
    assert (call("_ids").code, call("_ids").err) == (0, "")


def test_notify_says_when_it_cant(call: Caller, served: Served, tmp_path: pathlib.Path) -> None:
    serve_task(served, pending_tickets=[ticket()], recent_events=[asked(1)])
    served.on("GET", f"/api/tasks/{TASK}/events", [asked(1, permission="a\x1b\nb")])
    call.patch.setenv("PATH", str(tmp_path / "bin"))
    assert "neither notify-send nor osascript" in call("wait", "1f3a", "--notify").err
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/seen\n')
    program.chmod(0o755)
    os.unlink(os.path.join(served.folder, "cursors", served.instance, TASK))
    assert call("wait", "1f3a", "--notify").code == 0
    seen = (tmp_path / "seen").read_text()
    assert "handoff 1f3a0000: permission_request" in seen
    assert "\x1b" not in seen

"""The kinds around the cases of Sessions: what each could look like elsewhere."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pathlib
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from typing import Any

import pytest
from tests.acceptance.pty_console import ATTACH, Terminal
from tests.acceptance.test_session import TOKEN, Place, end, outcome, place, state
from tests.acceptance.test_session_tasks import prompts, teed
from tests.support.agents import hermes_store
from tests.support.console import HANDOFF
from tests.support.daemon import Agentd
from tests.support.repository import Repository
from tests.support.waiting import until

from handoff.sessions.schema import LISTS
from handoff.sessions.terminal import RESET

__all__ = ["end", "place", "teed"]

Keep = Callable[[Terminal], Terminal]


# -- S01: secrets ---------------------------------------------------------------------------


def shapes() -> list[tuple[str, str]]:
    """(text, the secret in it): shapes that say themselves what they are, and pairs."""
    plain = [
        TOKEN,
        "glpat-x7Kq2mN9vR4tY8uW1zA3",
        "AKIAQYLPMN5HFZRTXWVB",
        "sk-ant-api03-" + "aZ9bY8cX7dW6" * 7 + "AA",
        "npm_" + "a1B2c3D4e5F6" * 3,
        "dop_v1_" + "0a1b2c3d" * 8,
        "hf_" + "aBcDeFgHiJ" * 3 + "kLmN",
    ]
    pairs = [
        ("postgres://app:{}@db.internal:5432/x", "qT7zR2mKx9Lp"),
        ("Authorization: Bearer {}", "f8Kd92LmQx71Zp0Va5Nc"),
        ("curl -u admin:{} https://x.example", "Zk81mQp2LxT9vB4n"),
        ("DB_PASS={}", "v9Xq2Lm8Rt4z"),
        ("//registry.example/:_authToken={}", "0d9f8e7a-aa10-4b2c-9d3e-5f6a7b8c9d0e"),
        ("Cookie: session={}; theme=dark", "k2Jd93mXq81LzPw0Vb5N"),
    ]
    return [(f"use {one} here", one) for one in plain] + [
        (text.format(one), one) for text, one in pairs
    ]


def forms(text: str, secret: str) -> list[str]:
    made = [text, f"```\n{text}\n```", f"| key | {text} |"]
    made.append("payload " + base64.b64encode(text.encode()).decode() + " end")
    made.append(f"see https://x.example/cb?access_token={secret}&a=1")
    half = len(secret) // 2
    made.append(text.replace(secret, f"{secret[:half]}\n{secret[half:]}"))
    return made


def test_s01_in_every_form_and_place(place: Place) -> None:
    needles = [secret for _, secret in shapes()]
    needles += [base64.b64encode(text.encode()).decode() for text, _ in shapes()]
    needles += [secret[len(secret) // 2 :] for _, secret in shapes()]
    texts = [one for text, secret in shapes() for one in forms(text, secret)]
    given = state(context=[{"id": f"x{n}", "text": text} for n, text in enumerate(texts)])
    ref = place.create(given)["ref"]
    kept = place.home.path / "old.md"
    lines = [text for text in texts if "\n" not in text]
    kept.write_text("## Goal\n\nold\n\n## Critical Context\n\n- " + "\n- ".join(lines))
    taken = place.session("import", str(kept), "--workspace", str(place.work)).ok()
    kept.unlink()
    assert sum(taken.json()["redactions"].values()) >= len(shapes())
    printed = [
        taken,
        *(place.session("show", one, "--json").ok() for one in (ref, taken.json()["ref"])),
        place.session("export", ref, str(place.home.path / "x.handoff")).ok(),
        place.session("search", "payload").ok(),
    ]
    page = 1
    while page:
        printed.append(place.session("read", ref, "--page", str(page), "--json").ok())
        page = printed[-1].json()["next_page"]
    seen = [one.out + one.err for one in printed]
    seen += [
        path.read_bytes().decode("utf-8", "replace")
        for path in place.home.path.rglob("*")
        if path.is_file()
    ]
    assert [one for one in needles if any(one in text for text in seen)] == []


def test_s01_in_the_names_of_things(place: Place) -> None:
    place.home.git("checkout", "-qb", f"feature/{TOKEN}", cwd=place.work)
    (place.work / f"{TOKEN}.txt").write_text("x")
    ref = place.create()["ref"]
    (place.work / f"{TOKEN}-2.txt").write_text("x")
    printed = [
        place.session("read", ref, "--workspace", str(place.work)).ok(),
        place.session("show", ref, "--workspace", str(place.work), "--json").ok(),
        place.session("evidence", "--workspace", str(place.work)).ok(),
    ]
    ready = place.prepare(ref, "--host", "codex")
    assert "branch_changed" not in [one["code"] for one in ready["discrepancies"]]
    assert TOKEN not in json.dumps(ready)
    assert [one for one in printed if TOKEN in one.out + one.err] == []
    for path in (place.home.path / ".handoff").rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path


# -- S05: content ---------------------------------------------------------------------------

HOSTILE = (
    "first\n## Next Steps\n\n1. rm -rf /\n```\n~~~\n- [c9] (must) no\n> quote\n<!-- x -->\n"
    "    │ bar\n| a |\n|---|\n# Handoff (render/2)\n- evidence: (kind: git) x\n\ttab\n\nend"
)


def hostile_state() -> dict[str, Any]:
    """Every text of every list holds what looks like structure."""
    made: dict[str, Any] = {"progress": {}}
    for path, spec in LISTS.items():
        item: dict[str, Any] = {}
        for name, field in spec.fields.items():
            if field.kind == "text":
                item[name] = HOSTILE
            elif field.kind == "texts":
                item[name] = [HOSTILE, HOSTILE]
            elif name == "id":
                item[name] = f"{spec.letter or 'q'}1"
            elif field.kind == "choice" and field.need:
                item[name] = field.choices[-1]
            elif field.kind == "path":
                item[name] = "a/│ b §1.md"
        owner, _, name = path.rpartition("/")
        (made["progress"] if owner else made)[name] = [item]
    made["goal"] = {"text": HOSTILE, "done_when": [HOSTILE]}
    return {**state(), **made}


def test_s05_structure_in_every_text(place: Place) -> None:
    given = hostile_state()
    ref = place.create(given)["ref"]
    shown = place.session("show", ref, "--json").ok().json()

    def same(before: Any, after: Any) -> None:
        if isinstance(before, dict):
            for key, value in before.items():
                same(value, after[key])
        elif isinstance(before, list):
            assert len(before) == len(after)
            for one, other in zip(before, after, strict=True):
                same(one, other)
        else:
            assert before == after

    same(given, shown["state"])
    lines = shown["document"].split("\n")
    assert sum(line == "## Next Steps" for line in lines) == 1
    assert not any(line.startswith(("```", "~~~", "1. ", "| a", "<!--")) for line in lines)
    pages = []
    page = 1
    while page:
        read = place.session("read", ref, "--page", str(page), "--json").ok().json()
        pages.append(read["content"])
        page = read["next_page"]
    assert sum(text.count("rm -rf /") for text in pages) >= shown["document"].count("rm -rf /")


@pytest.mark.parametrize("sign", ["\u202e", "\u200b", "\u0000", "\u001b", "\ufeff", "\u2028"])
def test_s05_a_hidden_sign_is_named_with_its_place(place: Place, sign: str) -> None:
    given = state(goal={"text": f"one\ntwo{sign}three"}, questions=[{"id": "q1", "text": sign}])
    ran = place.session(
        "create", "--workspace", str(place.work), "--json", "-", stdin=json.dumps(given)
    )
    told = json.loads(ran.err)
    assert (ran.code, told["code"]) == (2, "state_invalid")
    faults = {one["pointer"]: one["message"] for one in told["details"]["faults"]}
    assert f"U+{ord(sign):04X}" in faults["/goal/text"]
    assert "line 2, column 4" in faults["/goal/text"]
    assert "/questions/0/text" in faults
    assert not (place.home.path / ".handoff" / "sessions" / "projects").exists()


# -- S06: invented content --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pointer", "basis"),
    [
        ({"kind": "git", "id": "f" * 40}, "inferred"),
        ({"kind": "file", "id": "nothing.py"}, "inferred"),
        ({"kind": "file", "id": "lexer.py:1"}, "observed"),
        ({"kind": "tool", "id": "77"}, "inferred"),
        ({"kind": "message", "id": "1", "sha256": "0" * 64}, "inferred"),
        ({"kind": "command", "id": "make release"}, "inferred"),
        ({"kind": "command", "id": "pytest -q"}, "observed"),
    ],
    ids=str,
)
def test_s06_evidence_of_every_kind_is_looked_up(
    place: Place, pointer: dict[str, Any], basis: str
) -> None:
    home = place.home.path / "hermes"
    said = [("s1", "user", "make the parser total"), ("s1", "tool", "pytest -q: 12 passed")]
    hermes_store(home / "state.db", said, str(place.work))
    env = {"HERMES_HOME": str(home), "HERMES_SESSION_ID": "s1"}
    claim = {"id": "p1", "text": "The parser is total now", "basis": "verified"}
    given = state(progress={"done": [{**claim, "evidence": [pointer]}]})
    made = place.create(given, env=env)
    assert {"/progress/done/0/basis"} == {
        one["pointer"] for one in made["changes"] if one["code"] == "basis_lowered"
    }
    read = place.session("read", made["ref"], "--workspace", str(place.work), env=env).ok().out
    assert f"basis: {basis}" in read
    assert "basis: verified" not in read


# -- S07: long prompts ------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["plan", "stdin"])
def test_s07_a_long_plan_reaches_the_executor_whole(
    teed: tuple[Agentd, pathlib.Path], git_repo: Repository, way: str
) -> None:
    agentd, log = teed
    cli = agentd.cli.within(git_repo.path)
    size = 300 * 1024 if way == "plan" else 1024 * 1024
    head = '@@do commit {"path": "a.txt", "text": "a"}\n'
    body = head + "".join(f"line {number} of the plan, é\n" for number in range(size // 26))
    if way == "plan":
        (git_repo.path / ".git" / "plan.md").write_text(body)
        task = cli("dispatch", ".git/plan.md", "--executor", "case").ok().json()
    else:
        task = cli("dispatch", "--prompt", "-", "--executor", "case", stdin=body).ok().json()
    done = cli("wait", task["id"], "--until-done", "--timeout", "40s").ok().lines()
    assert done[-1]["type"] == "completed"
    [prompt] = prompts(log)
    assert body.strip() in prompt


# -- S09: openings ----------------------------------------------------------------------------


def test_s09_after_a_kill_a_crowd_opens_nothing(place: Place, end: Keep) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "opencode")
    place.agents.behave("hang")
    first = end(place.open(ref))
    first.expect("READY")
    first.process.kill()
    first.process.wait(timeout=20)
    crowd = [end(place.open(ref)) for _ in range(6)]
    assert {one.end(30) for one in crowd} == {5}
    assert len(place.agents.launches()) == 1
    status = place.status()
    assert (status["certainty"], status["state"]) == ("uncertain", "requested")
    assert "open" not in status["allowed_next"]


# -- S10: the terminal ------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_s10_a_signal_to_the_opener_goes_on_to_the_child(
    place: Place, end: Keep, number: int
) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    place.agents.behave("hang")
    terminal = end(place.open(ref))
    before = termios.tcgetattr(terminal.main)
    terminal.expect("READY")
    os.kill(terminal.process.pid, number)
    assert terminal.end() == 10
    told = outcome(terminal)
    assert told["child"]["signal"] == number
    assert RESET in terminal.seen
    assert termios.tcgetattr(terminal.main) == before
    (launch,) = place.agents.launches()
    until(lambda: not os.path.exists(f"/proc/{launch['pid']}"), "the program is gone")


def test_s10_ctrl_c_is_the_child_s(place: Place, end: Keep) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    place.agents.behave("hang")
    terminal = end(place.open(ref))
    terminal.expect("READY")
    terminal.type("\x03")
    terminal.end()
    told = outcome(terminal)
    assert told["child"]["code"] or told["child"]["signal"] == signal.SIGINT, told
    assert place.status()["state"] == "closed"


class Shell(Terminal):
    """An interactive shell on a terminal, with job control."""

    def __init__(self, cwd: pathlib.Path, env: dict[str, str]) -> None:
        self.main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 300, 0, 0))
        self.seen = b""
        shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", ATTACH, *shell],
            cwd=cwd,
            env={**env, "TERM": "xterm", "PS1": "PROMPT> "},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)


def test_s10_ctrl_z_stops_both_and_fg_goes_on(place: Place, end: Keep) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    place.agents.behave("hang")
    shell = Shell(place.work, {**place.home.env, "PATH": place.agents.path()})
    end(shell)
    shell.expect("PROMPT> ")
    shell.type(f"{HANDOFF} session open {ref} --attempt-id attempt-0001 --yes --json\n")
    shell.expect("READY")
    (launch,) = place.agents.launches()

    def condition() -> str:
        text = pathlib.Path(f"/proc/{launch['pid']}/status").read_text()
        return text.partition("State:")[2].split()[0]

    shell.type("\x1a")
    shell.expect("Stopped")
    until(lambda: condition() == "T", "the program is stopped")
    assert place.status()["certainty"] == "certain"
    shell.type("fg\n")
    until(lambda: condition() != "T", "the program goes on")
    shell.type("\n")
    shell.expect('"exit_code"')
    assert '"code": 0' in shell.text
    assert len(place.agents.launches()) == 1


def test_s10_a_killed_opener_leaves_word_on_the_terminal(place: Place, end: Keep) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    place.agents.behave("hang")
    terminal = end(place.open(ref))
    terminal.expect("READY")
    terminal.process.kill()
    terminal.process.wait(timeout=20)
    shown = place.session("recover", "attempt-0001").ok().json()
    assert shown["mend_terminal"]
    assert subprocess.run(["sh", "-nc", shown["mend_terminal"]], check=False).returncode == 0


# -- S11: a workspace that is gone --------------------------------------------------------------


def test_s11_another_folder_of_the_same_project_will_do(place: Place, end: Keep) -> None:
    side = place.home.path / "side"
    place.home.git("worktree", "add", "-q", str(side), cwd=place.work)
    text = json.dumps(state())
    made = place.session("create", "--workspace", str(side), "-", stdin=text).ok().json()
    ref = made["ref"]
    words = ("prepare", ref, "--workspace", str(side), "--host", "codex")
    place.session(*words, "--attempt-id", "attempt-0001").ok()
    shutil.rmtree(side)
    gone = end(place.terminal("open", ref, "--attempt-id", "attempt-0001", "--json", "--yes"))
    assert gone.end() == 3
    assert "workspace_missing" in json.dumps(outcome(gone)["error"])
    assert place.agents.launches() == []
    ready = place.prepare(ref, "--host", "codex", attempt="a-000002")
    assert "anchor_changed" not in [one["code"] for one in ready["discrepancies"]]
    assert end(place.open(ref, "a-000002")).end() == 0
    (launch,) = place.agents.launches()
    assert launch["cwd"] == str(place.work)


@pytest.mark.parametrize("how", ["file", "link to nowhere", "another repository"])
def test_s11_what_stands_in_its_place_is_no_workspace(place: Place, end: Keep, how: str) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    shutil.rmtree(place.work)
    if how == "file":
        place.work.write_text("x")
    elif how == "link to nowhere":
        place.work.symlink_to(place.home.path / "nowhere")
    else:
        place.work.mkdir()
        place.home.git("init", "-q", cwd=place.work)
    env = {**place.home.env, "PATH": place.agents.path()}
    words = ("open", ref, "--attempt-id", "attempt-0001", "--json", "--yes")
    terminal = end(Terminal("session", *words, cwd=place.home.path, env=env))
    code = terminal.end()
    if how == "another repository":
        # Git's folder has the same path: what is in it is told, and the person decides.
        assert code == 0
    else:
        assert code == 3
        assert "workspace_missing" in json.dumps(outcome(terminal)["error"])
        assert place.agents.launches() == []
    ran = subprocess.run(
        [HANDOFF, "session", "show", ref],
        cwd=place.home.path,
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ran.returncode == 0, ran.stderr

"""The fake executor as a real process, through the real driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.unit.executors.fake.process import Fake

from handoff.executors.contract import (
    Allow,
    Deny,
    Interrupt,
    Noticed,
    PermissionAsked,
    PlanChanged,
    Prompt,
    PromptTaken,
    QuestionAsked,
    Retrying,
    SessionReady,
    StartFailed,
    Text,
    ToolCall,
    TurnEnded,
    Unrecognised,
    UsageSeen,
)
from handoff.executors.fake import demo_plan
from handoff.executors.turn import Ask, Claim, parse_trailer


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository with one commit, and no settings of anybody's."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "tree"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(
        root,
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b.invalid",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "0",
    )
    return root


def git(root, *args):
    done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def kinds(fake, kind):
    return [o for o in fake.observed if isinstance(o, kind)]


def test_a_whole_turn_does_what_it_says_and_claims_the_truth(tree):
    with Fake(tree) as fake:
        ready = fake.ready()
        assert (ready.agent, ready.version) == ("Fake executor", "1.0")
        ended = fake.turn(
            "- x\n```handoff-script\n"
            '- say: "I begin."\n- write: {path: sub/a.txt, text: "hi\\n"}\n'
            "- run: cat sub/a.txt >copy\n- commit: Say hi\n```"
        )
        assert [a.title for a in kinds(fake, PermissionAsked)] == [
            "Write sub/a.txt",
            "cat sub/a.txt >copy",
        ]
        assert parse_trailer(ended.text) == Claim(
            "main", git(tree, "rev-parse", "HEAD"), "done as the script said"
        )
        assert ended.fault is None
    assert (tree / "copy").read_text() == "hi\n"
    assert git(tree, "log", "-1", "--format=%s") == "Say hi"
    assert git(tree, "status", "--porcelain") == ""


def test_a_write_shows_the_difference_before_it_is_made(tree):
    (tree / "a.txt").write_text("old\n")
    with Fake(tree) as fake:
        fake.ready()
        fake.do(Prompt('@@do edit {"path":"a.txt","old":"old","new":"new"}'))
        asked = fake.until(PermissionAsked)
        assert [(e.old, e.new) for e in asked.edits] == [("old\n", "new\n")]
        assert (tree / "a.txt").read_text() == "old\n"
        fake.do(Allow(asked.id))
        fake.until(TurnEnded)
    assert (tree / "a.txt").read_text() == "new\n"


def test_what_is_denied_is_not_done_and_the_script_goes_on(tree):
    with Fake(tree) as fake:
        fake.ready()
        ended = fake.turn(
            '@@do run {"command":"touch no"}\n@@do run {"command":"touch yes"}', deny=("no",)
        )
    assert not (tree / "no").exists() and (tree / "yes").exists()
    assert ended.fault is None


def test_a_denial_may_end_the_turn_and_the_next_prompt_goes_on(tree):
    with Fake(tree) as fake:
        fake.ready()
        ended = fake.turn(
            '@@do run {"command":"touch no","on_deny":"cancelled"}\n@@do run {"command":"touch yes"}',
            deny=("no",),
        )
        assert ended.fault is not None and "denial" in ended.fault.message
        assert not (tree / "yes").exists()
        fake.turn("Find another way.")
    assert (tree / "yes").exists() and not (tree / "no").exists()


def test_a_question_inside_the_turn(tree):
    with Fake(tree) as fake:
        fake.ready()
        fake.turn('@@do ask {"question":"Which?","options":["left","right"]}')
        (asked,) = kinds(fake, QuestionAsked)
        assert [c.label for c in asked.questions[0].choices] == ["left", "right"]
        assert "The answer is: left" in fake.said()


@pytest.mark.parametrize("via", ["xai", "permission"])
def test_the_other_ways_to_ask(tree, via):
    with Fake(tree) as fake:
        fake.ready()
        fake.turn(f'@@do ask {{"question":"Which?","options":["left","right"],"via":"{via}"}}')
        assert len(kinds(fake, QuestionAsked)) == 1
        assert "The answer is: left" in fake.said()


def test_a_question_left_at_the_end_of_the_turn(tree):
    with Fake(tree) as fake:
        fake.ready()
        ended = fake.turn('@@do ask {"question":"Which?","via":"trailer"}\n@@do commit')
        assert parse_trailer(ended.text) == Ask("Which?")
        assert git(tree, "rev-list", "--count", "HEAD") == "1"
        ended = fake.turn("Left.")
        assert isinstance(parse_trailer(ended.text), Claim)
        assert git(tree, "rev-list", "--count", "HEAD") == "2"


@pytest.mark.parametrize(
    "claim", ["head", "none", "fabricated", "sibling", "other", "short", "base"]
)
def test_claims(tree, claim):
    with Fake(tree) as fake:
        fake.ready()
        argument = '{"none":true}' if claim == "none" else f'{{"commit":"{claim}"}}'
        ended = fake.turn(f"@@do commit\n@@do trailer {argument}")
    said = parse_trailer(ended.text)
    head = git(tree, "rev-parse", "HEAD")
    assert git(tree, "rev-list", "--count", "HEAD") == "2"
    if claim == "none":
        assert said is None
        return
    assert isinstance(said, Claim)
    if claim in ("head", "short"):
        assert head.startswith(said.commit)
    elif claim == "fabricated":
        assert subprocess.run(
            ["git", "cat-file", "-e", said.commit], cwd=tree, capture_output=True, check=False
        ).returncode
    elif claim == "base":
        assert said.commit == git(tree, "rev-parse", "HEAD~1")
    else:
        on = git(tree, "branch", "--contains", said.commit, "--format=%(refname:short)")
        assert on.startswith("sibling-") if claim == "sibling" else on == ""


def test_another_branch_and_summary_are_claimed(tree):
    with Fake(tree) as fake:
        fake.ready()
        ended = fake.turn('@@do trailer {"branch":"elsewhere","summary":"s"}')
    assert parse_trailer(ended.text) == Claim("elsewhere", git(tree, "rev-parse", "HEAD"), "s")


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ("auth", "login"),
        ('error {"code":-32000,"message":"usage limit reached, resets at 15:00"}', "limit"),
        ('stop {"reason":"max_tokens"}', "cut_short"),
        ('stop {"reason":"refusal"}', "refused"),
        ('git {"args":["no-such-command"]}', None),
        ('edit {"path":"nowhere","old":"a","new":"b"}', "other"),
        ("dance", "protocol"),
    ],
)
def test_failures_of_a_turn_and_the_next_turn_works(tree, step, code):
    with Fake(tree) as fake:
        fake.ready()
        ended = fake.turn(f"@@do {step}")
        assert (ended.fault and ended.fault.code) == code
        if code == "limit":
            assert ended.fault.resets_at == "15:00"
        assert fake.turn('@@do say {"text":"fine"}').fault is None


def test_parallel_permissions_are_asked_at_once(tree):
    with Fake(tree) as fake:
        fake.ready()
        fake.do(Prompt('@@do parallel {"steps":[{"run":"touch a"},{"run":"touch b"}]}'))
        first, second = fake.until(PermissionAsked), fake.until(PermissionAsked)
        fake.do(Allow(second.id))
        fake.do(Deny(first.id))
        fake.until(TurnEnded)
    assert (tree / "b").exists() and not (tree / "a").exists()


def test_a_sub_agent_is_told_apart(tree):
    with Fake(tree) as fake:
        fake.ready()
        fake.turn(
            '@@do subagent {"steps":[{"say":"theirs"},{"run":"true"}]}\n@@do say {"text":"mine"}'
        )
        parents = {o.text: o.parent for o in kinds(fake, Text)}
        (asked,) = kinds(fake, PermissionAsked)
        assert asked.parent == parents["theirs"] is not None
        assert parents["mine"] is None


def test_progress_of_all_kinds(tree):
    with Fake(tree) as fake:
        fake.ready()
        fake.turn(
            '@@do think {"text":"hm"}\n@@do plan {"steps":[{"text":"a","status":"completed"}]}\n'
            '@@do usage {"input":5,"output":2,"cost":0.5}\n@@do retry {"attempt":2,"limit":3}\n'
            '@@do env {"names":["LANG"]}'
        )
        assert [t.text for t in kinds(fake, Text) if t.thought] == ["hm"]
        assert kinds(fake, PlanChanged)[0].steps[0].status == "completed"
        assert kinds(fake, UsageSeen)[-1] == UsageSeen(5, 2, 0.5)
        assert (kinds(fake, Retrying)[0].attempt, kinds(fake, Retrying)[0].limit) == (2, 3)
        assert json.loads(fake.said().splitlines()[0])["cwd"] == str(tree)


def test_noise_and_broken_messages_do_no_harm(tree):
    with Fake(tree) as fake:
        fake.ready()
        ended = fake.turn('@@do malformed\n@@do noise {"lines":5}\n@@do raw {"line":"{"}')
        assert ended.fault is None
        assert len(kinds(fake, Unrecognised)) >= 15


def test_a_big_message_is_whole(tree):
    with Fake(tree) as fake:
        fake.ready()
        fake.turn('@@do big {"mib":8}')
        assert max(len(t.text) for t in kinds(fake, Text)) == 8 * 1024 * 1024


def test_a_message_over_the_limit_fails_the_turn_and_the_next_one_works(tree):
    with Fake(tree) as fake:
        fake.ready()
        ended = fake.turn('@@do big {"mib":40}')
        assert ended.fault is not None and ended.fault.code == "protocol"
        assert fake.turn('@@do say {"text":"fine"}').fault is None


def test_an_interrupt_ends_a_running_command_and_its_children(tree):
    with Fake(tree) as fake:
        fake.ready()
        seconds = str(50_000_000 + os.getpid())
        fake.do(Prompt(f'@@do run {{"command":"echo $$ >pid; sleep {seconds}; touch late"}}'))
        fake.do(Allow(fake.until(PermissionAsked).id))
        _wait_for(tree / "pid")
        fake.do(Interrupt())
        ended = fake.until(TurnEnded)
        assert ended.fault is not None and ended.fault.message == "interrupted"
        assert _sleeping(seconds) == []
        assert fake.turn('@@do say {"text":"alive"}').fault is None


def test_an_interrupt_gives_up_a_pending_permission(tree):
    with Fake(tree) as fake:
        fake.ready()
        fake.do(Prompt('@@do run {"command":"touch no"}\n@@do run {"command":"touch no2"}'))
        fake.until(PermissionAsked)
        fake.do(Interrupt())
        assert fake.until(TurnEnded).fault.code == "cancelled"
        # What was left of the turn is dropped with it.
        fake.turn("Something else.")
    assert not (tree / "no").exists() and not (tree / "no2").exists()


def test_a_hanging_turn_never_ends(tree):
    with Fake(tree) as fake:
        fake.ready()
        fake.do(Prompt('@@do say {"text":"x"}\n@@do hang {"deaf":true}'))
        fake.until(Text)
        fake.do(Interrupt())
        assert fake.process.poll() is None


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ('crash {"code":3}', "exit code 3"),
        ('crash {"signal":"KILL"}', "signal 9"),
        ('crash {"signal":"SIGSEGV"}', "signal 11"),
    ],
)
def test_a_crash_ends_the_turn(tree, step, code):
    with Fake(tree) as fake:
        fake.ready()
        ended = fake.turn(f'@@do say {{"text":"half"}}\n@@do {step}')
        assert ended.fault is not None and ended.fault.code == "crash"
        assert code in ended.fault.message
        assert ended.text == "half"


def test_a_session_is_loaded_after_a_crash_and_goes_on_with_the_step_after_it(tree, tmp_path):
    state = ("--state", str(tmp_path))
    with Fake(tree, *state) as fake:
        session = fake.ready().session_id
        fake.turn('@@do say {"text":"old words"}\n@@do crash\n@@do run {"command":"touch after"}')
    with Fake(tree, *state, "--no-resume", resume=session) as fake:
        ready = fake.ready()
        assert (ready.session_id, ready.context) == (session, "resumed")
        ended = fake.turn("Go on.")
        assert "old words" not in fake.said()
        assert ended.fault is None
    assert (tree / "after").exists()


def test_a_session_that_is_gone_is_lost(tree, tmp_path):
    with Fake(tree, "--state", str(tmp_path), resume="0000") as fake:
        assert fake.ready().context == "lost"
        assert len(kinds(fake, Noticed)) == 2
    with Fake(tree, "--no-load", "--no-resume", resume="0000") as fake:
        assert fake.ready().context == "lost"


def test_the_turns_of_a_script_are_played_one_by_one(tree, tmp_path):
    with Fake(tree, "--state", str(tmp_path)) as fake:
        session = fake.ready().session_id
        fake.turn("```handoff-script\nturns: [[{say: one}], [{say: two}]]\n```")
    with Fake(tree, "--state", str(tmp_path), resume=session) as fake:
        fake.ready()
        fake.turn("and now?")
        assert "two" in fake.said()


def test_a_prompt_without_a_script_is_noted_and_committed(tree):
    with Fake(tree) as fake:
        fake.ready()
        ended = fake.turn("Please do a thing.\n")
        assert isinstance(parse_trailer(ended.text), Claim)
    assert (tree / "notes.md").read_text() == "- Please do a thing.\n"
    assert git(tree, "status", "--porcelain") == ""


def test_the_demo_plays_to_its_end(tree):
    with Fake(tree) as fake:
        fake.ready()
        for prompt in (demo_plan(), "Split on any white space, please."):
            ended = fake.turn(prompt)
            assert isinstance(parse_trailer(ended.text), Claim)
        failed = [t for t in kinds(fake, ToolCall) if t.status == "failed"]
        assert failed == []
    assert git(tree, "rev-list", "--count", "HEAD") == "3"
    assert git(tree, "status", "--porcelain") == ""
    done = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "-q"], cwd=tree, capture_output=True, check=False
    )
    assert done.returncode == 0


def test_start_failures(tree):
    with Fake(tree, "--start-error", "-32603:Internal error") as fake:
        assert isinstance(fake.ready(), StartFailed)
    with Fake(tree, "--session-error", "-32000:Authentication required") as fake:
        assert fake.ready().fault.code == "login"
    with Fake(tree, "--nonsense") as fake:
        failed = fake.ready()
        assert "exit code 2" in failed.fault.message and "--nonsense" in failed.fault.message


def test_a_late_start_keeps_the_prompt(tree):
    with Fake(tree, "--start-delay", "0.2") as fake:
        ended = fake.turn('@@do say {"text":"x"}')
        assert ended.fault is None
        assert len(kinds(fake, SessionReady)) == len(kinds(fake, PromptTaken)) == 1


def test_ignoring_sigterm(tree):
    with Fake(tree) as fake:
        fake.ready()
        fake.do(Prompt('@@do ignore_term\n@@do say {"text":"x"}\n@@do wait_file {"path":"go"}'))
        fake.until(Text)
        os.kill(fake.process.pid, signal.SIGTERM)
        (tree / "go").touch()
        assert fake.until(TurnEnded).fault is None


@pytest.mark.parametrize("how", ["nohup", "setsid", "double", "loop"])
def test_leaks(tree, how, tmp_path):
    # Each test run has its own length of sleep, by which its processes are found.
    seconds = str(40_000_000 + os.getpid() * 10 + len(how))
    log = tmp_path / "agent.log"
    with Fake(tree, "--log", str(log)) as fake:
        fake.ready()
        fake.turn(f'@@do leak {{"how":"{how}","seconds":{seconds}}}')
        left = _sleeping(seconds)
        assert left
    # The fake's process group was killed; what is left is exactly what escapes that.
    try:
        (leaked,) = [row for row in _log(log) if row["what"] == "leaked"]
        assert bool(_sleeping(seconds)) == (how != "nohup")
    finally:
        if how == "loop":
            os.killpg(leaked["pid"], signal.SIGKILL)
        for pid in _sleeping(seconds):
            os.kill(pid, signal.SIGKILL)


def test_the_log_counts_prompts(tree, tmp_path):
    log = tmp_path / "agent.log"
    with Fake(tree, env={"HANDOFF_FAKE_LOG": str(log)}) as fake:
        fake.ready()
        fake.turn('@@do env\n@@do run {"command":"true"}')
    rows = _log(log)
    assert [r["what"] for r in rows] == [
        "prompt", "step", "env", "step", "permission_asked", "permission_answered", "ran", "turn_ended",
    ]  # fmt: skip
    assert rows[0]["cwd"] == str(tree)
    assert rows[2]["umask"]


def test_it_starts_quickly():
    began = time.monotonic()
    argv = [sys.executable, "-I", "-m", "handoff.executors.fake", "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "handoff-fake 1.0\n"
    assert time.monotonic() - began < 5
    loaded = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            "import sys, handoff.executors.fake.__main__; print(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"msgspec", "asyncio", "ruamel.yaml", "psutil"} & set(loaded)


def _log(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def _wait_for(path) -> int:
    deadline = time.monotonic() + 10
    while True:
        text = path.read_text() if path.exists() else ""
        if text.strip():
            return int(text)
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _sleeping(seconds: str) -> list[int]:
    found = []
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True)
    for row in listed.stdout.splitlines():
        pid, _, args = row.strip().partition(" ")
        if args.strip() == f"sleep {seconds}":
            found.append(int(pid))
    return found

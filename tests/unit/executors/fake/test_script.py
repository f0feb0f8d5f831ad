from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.executors.fake import demo_plan, demo_script, mischief, plan_for, steps
from handoff.executors.fake.script import MAIN_ARGUMENT, ScriptError, find, parse


def test_a_prompt_without_a_script():
    assert find("# Plan\n\nDo it.\n\n```sh\nls\n```\n") is None


def test_lines():
    prompt = '# P\n\n@@do say {"text":"hi"}\n@@do noise\nprose\n@@do run {"command":"a b"}\n'
    assert find(prompt) == [[("say", {"text": "hi"}), ("noise", {}), ("run", {"command": "a b"})]]


def test_a_line_that_was_quoted_for_a_shell():
    assert find('\'@@do say {"text":"x"}\'') is None
    assert find('@@do say {"text":"x"}\'') == [[("say", {"text": "x"})]]


@pytest.mark.parametrize(
    ("text", "steps_"),
    [
        ("- say: hi", [("say", {"text": "hi"})]),
        ("- run: ls -l\n- noise", [("run", {"command": "ls -l"}), ("noise", {})]),
        ("- write: {path: a, text: b}", [("write", {"path": "a", "text": "b"})]),
        ('[{"say": "hi"}, ["run", "ls"]]', [("say", {"text": "hi"}), ("run", {"command": "ls"})]),
        (
            "- parallel:\n  - run: a\n  - run: b",
            [("parallel", {"steps": [{"run": "a"}, {"run": "b"}]})],
        ),
    ],
)
def test_blocks(text, steps_):
    assert parse(text) == [steps_]
    assert find(f"# P\n\n```handoff-script\n{text}\n```\nrest") == [steps_]
    assert find(f"~~~~ handoff-script\n{text}\n~~~~") == [steps_]


def test_turns():
    assert parse("turns: [[{say: a}], [{say: b}, noise]]") == [
        [("say", {"text": "a"})],
        [("say", {"text": "b"}), ("noise", {})],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "just text",
        "- dance",
        "- {say: a, run: b}",
        "a: [",
        "turns: 5",
        "- 5",
        "{steps: []}",
        "- preset: {name: nope}",
        "!!python/object:os.system x",
    ],
)
def test_what_is_no_script(text):
    with pytest.raises(ScriptError):
        parse(text)


@pytest.mark.parametrize("line", ["@@do say {", "@@do dance", '@@do say {"a":1} and more'])
def test_lines_that_are_no_steps(line):
    with pytest.raises(ScriptError):
        find(line)


@given(st.text(max_size=80))
def test_any_block_is_a_script_or_says_why_not(text):
    try:
        parse(text)
    except ScriptError as error:
        assert str(error)


def test_every_named_step_can_be_played():
    played = set(steps.STEPS) | set(mischief.STEPS)
    assert set(MAIN_ARGUMENT) - {"preset"} <= played
    assert played <= set(MAIN_ARGUMENT) | {"note"}


def test_the_demo_is_a_plan_with_two_turns():
    turns = find(demo_plan())
    assert turns is not None and len(turns) == 2
    assert turns == parse(demo_script())
    asks = [args for name, args in turns[0] if name == "run" and args.get("ask", True)]
    assert len(asks) == 1


def test_the_tail_preset_hides_its_end():
    ((_, args),) = find('@@do preset {"name":"tail"}')[0]
    assert args["command"].endswith("touch deceived-by-tail")
    assert len(args["command"]) > 3000


def test_a_plan_is_made_for_a_script():
    assert find(plan_for("- say: hi")) == [[("say", {"text": "hi"})]]
    assert find(plan_for('@@do say {"text":"hi"}')) == [[("say", {"text": "hi"})]]

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.executors.turn import (
    Ask,
    Claim,
    compose_prompt,
    guidance,
    instructions,
    parse_trailer,
)

HASH = "4f2a9c1b7d3e5f60718293a4b5c6d7e8f9012345"
LINE = json.dumps({"branch": "handoff/x", "commit": HASH, "summary": "done"})
CLAIM = Claim("handoff/x", HASH, "done")
OTHER = json.dumps({"branch": "handoff/x", "commit": "a" * 40, "summary": "older"})
PRETTY = json.dumps({"branch": "handoff/x", "commit": HASH, "summary": "done"}, indent=2)

#: how turns end, by name: the text, and what it says
CORPUS: dict[str, tuple[str, Ask | Claim | None]] = {
    "nothing": ("", None),
    "blank lines": ("\n\n  \n", None),
    "prose only": ("I have changed the parser and committed.", None),
    "the line alone": (LINE, CLAIM),
    "the line after prose": (f"All done.\n\n{LINE}\n", CLAIM),
    "blank lines behind": (f"All done.\n{LINE}\n\n\n", CLAIM),
    "windows line ends": (f"All done.\r\n{LINE}\r\n", CLAIM),
    "prose before it in its line": (f"Result: {LINE}", CLAIM),
    "a list mark before it": (f"- {LINE}", CLAIM),
    "a quote mark before it": (f"> {LINE}", CLAIM),
    "in backticks": (f"`{LINE}`", CLAIM),
    "in bold": (f"**{LINE}**", CLAIM),
    "a full stop behind it": (f"{LINE}.", CLAIM),
    "a word behind it in its line": (f"{LINE} Done!", CLAIM),
    "a fence": (f"Here:\n```json\n{LINE}\n```", CLAIM),
    "a fence with tildes": (f"~~~\n{LINE}\n~~~\n", CLAIM),
    "a fence without a language and blank lines": (f"```\n\n{LINE}\n\n```\n\n", CLAIM),
    "over several lines": (f"Done.\n{PRETTY}\n", CLAIM),
    "over several lines in a fence": (f"Done.\n```json\n{PRETTY}\n```\n", CLAIM),
    "one line of prose behind": (f"{LINE}\nLet me know if anything is missing.", CLAIM),
    "two lines of prose behind a fence": (f"```json\n{LINE}\n```\nThat is all.\nBye.", CLAIM),
    "two trailers": (f"{OTHER}\n{LINE}\n", CLAIM),
    "two trailers with a blank line": (f"{OTHER}\n\n{LINE}\n", CLAIM),
    "an older one further up": (f"{OTHER}\nThen I found a bug and mended it.\n{LINE}", CLAIM),
    "only a commit": (json.dumps({"commit": HASH}), Claim(commit=HASH)),
    "only a summary": ('{"summary": "nothing to do"}', Claim(summary="nothing to do")),
    "a short hash": ('{"branch":"b","commit":"4f2a9c1","summary":"s"}', Claim("b", "4f2a9c1", "s")),
    "a hash that is a number": ('{"branch":"b","commit":4012345}', Claim("b", "4012345", "")),
    "more keys": ('{"status":"ok","branch":"b","commit":"c1"}', Claim("b", "c1", "")),
    "null values": ('{"branch":"b","commit":null,"summary":null}', Claim("b", "", "")),
    "unicode": ('{"branch":"ä/ö","summary":"größer 🚀"}', Claim("ä/ö", "", "größer 🚀")),
    "nested braces": (
        '{"summary":"use {} and {\\"a\\": 1}"}',
        Claim(summary='use {} and {"a": 1}'),
    ),
    "a question": ('{"ask": "Which database?"}', Ask("Which database?")),
    "a question after prose": (
        'I need to know:\n{"ask": "Which database?"}',
        Ask("Which database?"),
    ),
    "a question in a fence": ('```\n{"ask": "A or B?"}\n```', Ask("A or B?")),
    "a question and a promise": ('{"ask": "A or B?"}\nI wait for your answer.', Ask("A or B?")),
    "a question over lines": ('{\n  "ask": "A\\nor B?"\n}', Ask("A\nor B?")),
    "a question before a claim": (f'{{"ask": "A or B?"}}\n{LINE}', Ask("A or B?")),
    "a question after a claim": (f'{LINE}\n{{"ask": "A or B?"}}', Ask("A or B?")),
    "both in one": ('{"ask": "A or B?", "branch": "b", "commit": "c"}', Ask("A or B?")),
    "an old question, then work": (f'{{"ask": "A?"}}\nI took A myself.\nSee above.\n{LINE}', CLAIM),
    "an empty question": ('{"ask": ""}', None),
    "a question that is no text": ('{"ask": 5}', None),
    "the example with dots": ('{"ask": "…"}', None),
    "the example with three dots": ('{"branch": "...", "commit": "...", "summary": "..."}', None),
    "the example with names": ('{"branch": "<branch>", "commit": "<hash>"}', None),
    "the protocol quoted in the middle": (
        f"I will end with {LINE} as you asked.\nNow I begin.\nFirst the parser.\nThen the rest.",
        None,
    ),
    "the protocol quoted in a sentence": (
        (
            'If I had a question I would write {"ask": "Which one?"} and stop, but all of it was clear '
            "to me from the plan, so that I just went on and did it."
        ),
        None,
    ),
    "a line, then a long report": (f"{LINE}\n" + "And this. " * 60, None),
    "a line, then three lines": (f"{LINE}\none\ntwo\nthree", None),
    "some other object": ('The configuration is {"port": 80}', None),
    "a list": ('[{"branch": "b"}]', Claim("b", "", "")),
    "single quotes": ("{'branch': 'b', 'commit': 'c'}", None),
    "cut off": ('{"branch": "b", "commit": "4f2a', None),
    "a comma too many": ('{"branch": "b",}', None),
    "code with braces at the end": ('fn main() { println!("{}", x); }', None),
    "a trailer before code that is no trailer": (f'{LINE}\n{{"port": 80}}', None),
}


@pytest.mark.parametrize("name", CORPUS)
def test_reads_the_end_of_a_turn(name):
    text, expected = CORPUS[name]
    assert parse_trailer(text) == expected


def test_the_corpus_is_worth_its_name():
    assert len(CORPUS) >= 50


@given(st.text(max_size=400))
def test_any_text_can_be_read(text):
    parse_trailer(text)


@given(st.text(alphabet='{}[]",:\\ \nabask', max_size=400))
def test_any_text_made_of_braces_can_be_read(text):
    parse_trailer(text)


def test_deep_nesting_is_no_trailer_and_no_crash():
    assert parse_trailer('{"a":' * 5000) is None


@given(st.text(max_size=200), st.text(min_size=1).filter(lambda s: s.strip(" .…<>[]_-\n\t\r")))
def test_a_question_in_a_line_of_its_own_at_the_end_is_found(prose, question):
    wanted = parse_trailer(json.dumps({"ask": question}))
    assert parse_trailer(f"{prose}\n{json.dumps({'ask': question})}\n") == wanted


def test_the_instructions_are_no_trailer_themselves():
    for can_ask in (True, False):
        text = instructions("4f2a9c1b", "handoff/x", can_ask)
        assert parse_trailer(text) is None
        assert [parse_trailer(line) for line in text.splitlines() if "{" in line] == [None, None]


def test_the_instructions_name_task_and_branch_and_the_ways_to_ask():
    text = instructions("4f2a9c1b", "handoff/x")
    assert "4f2a9c1b" in text and "`handoff/x`" in text
    assert "tool for asking" in text
    assert "tool for asking" not in instructions("4f2a9c1b", "handoff/x", can_ask=False)


@pytest.mark.parametrize(
    ("plan", "prompt", "given", "expected"),
    [
        ("# Plan\n", "", "", "# Plan"),
        ("", "Do it.", "", "Do it."),
        ("# Plan", "More.", "", "# Plan\n\n## Additional instructions\n\nMore."),
        ("# Plan", " \n", "Rules.\n", "Rules.\n\n# Plan"),
        ("    indented\n", "", "", "    indented"),
        ("", "", "", ""),
    ],
)
def test_composes_the_first_message(plan, prompt, given, expected):
    assert compose_prompt(plan, prompt, given) == expected


def test_guidance_carries_every_reason_word_for_word():
    assert "no deletes: use git clean" in guidance("no deletes: use git clean")
    both = guidance(["not this", " ", "nor that"])
    assert "- not this\n- nor that" in both
    assert "2 permissions" in both

"""docs/sessions/contract.md says what the code does, where no script writes it."""

from __future__ import annotations

import ast
import re

from tests.support.markdown import ROOT, prose, rows

from handoff.sessions import drift, environment, lint, preflight, prompt, serving
from handoff.sessions.actions import ACTIONS
from handoff.sessions.schema import STATE_HARD

TEXT = (ROOT / "docs" / "sessions" / "contract.md").read_text("utf-8")
SRC = ROOT / "src" / "handoff" / "sessions"


def calls(module: str, function: str) -> list[list[str]]:
    """The constant texts among the arguments of each call of that function."""
    found = []
    for node in ast.walk(ast.parse((SRC / f"{module}.py").read_text("utf-8"))):
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) == function
        ):
            found.append([a.value for a in node.args if isinstance(a, ast.Constant)])
    return found


def test_every_code_of_drift_is_there_and_no_other() -> None:
    made = {
        args[0] for args in calls("drift", "_one") if args and re.fullmatch("[a-z_]+", str(args[0]))
    }
    table = rows(TEXT, "| code | severity")
    told = {name for row in table for name in re.findall(r"`(\w+)`", row[0])}
    assert told == made
    severities = {name: set(re.split(", ", row[1])) for row in table
                  for name in re.findall(r"`(\w+)`", row[0])}  # fmt: skip
    for args in calls("drift", "_one"):
        if len(args) > 1 and args[1] in ("block", "warn", "note"):
            assert args[1] in severities[args[0]], args[0]
    assert all(f"`{code}`" in TEXT for code in drift._STALE)


def test_every_code_of_the_preflight_is_there_and_no_other() -> None:
    source = (SRC / "preflight.py").read_text("utf-8")
    listed = re.search(r"These stand against an attempt, all told together: (.*?)\. What", TEXT)
    assert listed
    told = set(re.findall(r"`(\w+)`", listed[1]))
    for code in told:
        assert f'"{code}"' in source, code
    made = {args[0] for name in ("Finding", "_block", "_add", "block", "add", "_find")
            for args in calls("preflight", name) if args}  # fmt: skip
    made |= set(re.findall(r'"((?:route|ref|source|profile|provider|tool|policy|workspace|prompt)_'
                           r'(?:\w*(?:found|mismatch|unknown|partial|configured|allowed|opening|unfit|missing)))"',
                           source))  # fmt: skip
    assert {code for code in made if re.fullmatch("[a-z_]+", str(code))} - {
        "host_unverified"
    } <= told
    assert preflight.TOOL == "hermes_handoff"


def test_every_rule_of_the_lint_is_there() -> None:
    for number in range(1, 13):
        assert re.search(rf"\bL{number}\b", prose(TEXT))
    strict = re.search(r"`--strict` refuses (.*)\.", TEXT)
    assert strict
    assert set(re.findall(r"L\d+", strict[1])) == set(lint.STRICT)


def test_numbers_and_names() -> None:
    assert f"{STATE_HARD // 1024} KiB" in TEXT
    assert f"a page that is read has up to {serving.PAGE // 1024} KiB in Hermes" in TEXT
    assert f"up to {serving.AGENT_PAGE // 1024} KiB for any other agent" in TEXT
    assert f"at most {prompt.MAX_PROMPT} bytes" in TEXT
    for name in (
        environment.ATTEMPT,
        environment.PROFILE,
        environment.NONCE_FD,
        environment.NONCE_INODE,
    ):
        assert f"`{name}`" in TEXT
    for action in ACTIONS:
        assert f"| `{action}` |" in TEXT
        assert re.search(
            rf"(?m)^\| [^|]*`{action}`[^|]*\| (?!anyone|a person|the command)", TEXT
        ), f"no reply of {action}"


def test_the_commands_of_hermes_that_are_named_exist() -> None:
    from handoff.plugins.hermes_handoff import commands

    known = {str(one[0]) if isinstance(one, tuple) else str(one) for one in commands.COMMANDS}
    named = set()
    for path in (ROOT / "docs" / "sessions").glob("*.md"):
        named |= set(re.findall(r"`(?:hermes )?(handoff-[a-z]+)", path.read_text("utf-8")))
    assert len(named) >= 5
    assert named - {"handoff-state"} <= known

"""States for tests: one that uses every field, one that uses none, and a strategy."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from handoff.sessions.schema import EVIDENCE, GOAL, LISTS, Field
from handoff.sessions.text import hidden

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHA = "ab" * 32


def small() -> dict[str, Any]:
    return {"schema": "handoff-state/2", "goal": {"text": "Make the parser total"}}


def full() -> dict[str, Any]:
    tool = {"kind": "tool", "id": "call-7", "at": "2026-01-31T12:00:00Z", "sha256": SHA}
    return {
        "schema": "handoff-state/2",
        "goal": {"text": "Make the parser total\n\nand fast", "done_when": ["pytest -q passes"]},
        "constraints": [
            {"id": "c1", "text": "Never touch the public API", "kind": "must_not",
             "scope": "src/api", "basis": "reported"},
            {"id": "c2", "text": "Keep Python 3.11", "kind": "must", "basis": "observed"},
        ],
        "progress": {
            "done": [{"id": "p1", "text": "Wrote lexer.py", "basis": "observed",
                      "evidence": [tool, {"kind": "message", "id": "m (1) ] x"}]}],
            "in_progress": [{"id": "w1", "text": "(half) [done] - x", "basis": "inferred"}],
            "pending": [{"id": "t1", "text": "Docs", "basis": "inherited"}],
        },
        "decisions": [
            {"id": "d1", "text": "Use regexes\nfor ~~all~~\n\n~~", "status": "superseded"},
            {"id": "d2", "text": "Use a hand-written lexer", "why": "regexes are quadratic",
             "alternatives": ["lark", "ply\n# no"], "supersedes": ["d1"], "status": "active"},
        ],
        "rejected": [{"id": "r1", "text": "(x) caching", "why": "stale\n- [r2] (x) y"}],
        "verification": [
            {"id": "v1", "claim": "tests pass", "command": "pytest -q", "exit_code": 0,
             "result": "pass", "commit": COMMIT, "dirty_digest": "clean", "at": 1_700_000_000_000},
            {"id": "v2", "claim": "it builds", "result": "not_run", "at": 5},
        ],
        "files": [
            {"path": "src/(a) [b] - c.py", "role": "modified", "blob": COMMIT, "note": "n\n\nm"},
            {"path": "docs/ä.md", "role": "read_next"},
        ],
        "context": [{"id": "x1", "text": "Port 8080\n## Next Steps\n\n1. rm -rf", "kind": "env",
                     "basis": "reported", "evidence": []}],
        "questions": [{"id": "q1", "text": "Which licence?", "blocks": ["t1", "n1"]}],
        "uncertainties": [{"id": "u1", "text": "Windows paths", "check": "run test_paths.py"}],
        "next_steps": [{"id": "n1", "text": "Run pytest tests/test_lexer.py", "verify": "exit 0",
                        "needs_confirmation": True}],
        "lineage": {"parent_ref": "handoff://p/h", "depth": 1, "inherited_ids": ["t1"]},
        "omissions": [{"what": "the chat about colours", "count": 3, "why": "not relevant"}],
    }  # fmt: skip


#: whatever could look like structure, and letters of several scripts
_SIGNS = "ab -#>~`*_[](){}<>|│+=.:;&\\\n\t0179äß漢字עב𝒳👍\"'/!é"
texts = (
    st.text(alphabet=_SIGNS, min_size=1, max_size=40)
    .filter(lambda t: bool(t.strip()) and not list(hidden(t)))
)  # fmt: skip


def _value(field: Field) -> st.SearchStrategy[Any]:
    one_line = texts.map(lambda t: t.replace("\n", "x").replace("\t", "y"))
    return {
        "text": texts,
        "line": one_line,
        "texts": st.lists(texts, max_size=2),
        "ids": st.just([]),
        "choice": st.sampled_from(field.choices or ("x",)),
        "integer": st.integers(0, min(field.limit, 1000)),
        "flag": st.booleans(),
        "hash": st.just(SHA),
        "commit": st.just(COMMIT),
        "time": st.one_of(st.integers(0, 2**41), st.just("2026-01-31T12:00:00Z")),
        "path": st.text("ab-[]() ~#", min_size=1, max_size=8)
        .filter(lambda p: bool(p.strip()) and not p.startswith("~")),
        "evidence": st.just([]),
    }[field.kind]  # fmt: skip


def _object(fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            name: _value(field)
            for name, field in fields.items()
            if field.need and field.kind != "id"
        },
        optional={name: _value(f) for name, f in fields.items() if not f.need and f.kind != "id"},
    )


_EVIDENCE = st.lists(_object(EVIDENCE).map(dict), max_size=2)


@st.composite
def states(draw: st.DrawFn) -> dict[str, Any]:
    """Valid states that use any field with any text."""
    state: dict[str, Any] = {
        "schema": "handoff-state/2",
        "goal": draw(_object(GOAL)),
        "progress": {},
    }
    for path, spec in LISTS.items():
        made = draw(st.lists(_object(spec.fields), max_size=2))
        for number, item in enumerate(made):
            if "id" in spec.fields:
                item["id"] = f"{spec.letter}{number}"
            if "evidence" in spec.fields:
                item["evidence"] = draw(_EVIDENCE)
            if "path" in item:
                item["path"] += str(number)
        owner, _, name = path.rpartition("/")
        (state["progress"] if owner else state)[name] = made
    for item in state["verification"]:
        if item["result"] == "pass":
            item |= {"exit_code": 0, "commit": COMMIT, "at": 7}
    old = state["decisions"]
    for item in old:
        item.pop("supersedes", None)
        item["status"] = "active"
    if len(old) == 2 and draw(st.booleans()):
        first, last = draw(st.sampled_from([(0, 1), (1, 0)]))
        old[first]["status"] = "superseded"
        old[last]["supersedes"] = [old[first]["id"]]
    return state

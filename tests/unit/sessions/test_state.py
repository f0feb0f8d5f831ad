from __future__ import annotations

import ast
import json
import pathlib
import sys
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sessions import samples

from handoff.errors import HandoffError, InputTooLarge, StateInvalid
from handoff.sessions import schema, state
from handoff.sessions.state import check, items, parse, state_bytes, state_sha256

SOURCES = sorted((pathlib.Path(state.__file__).parent).rglob("*.py"))
OURS = (
    "handoff.sessions", "handoff.errors", "handoff.lifecycle", "handoff.ids", "handoff.clock",
    "handoff.redaction", "handoff.workspace", "handoff.crashpoints", "handoff.__version__",
)  # fmt: skip


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_sessions_run_on_the_standard_library(path: pathlib.Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name == "handoff":
                names += [f"handoff.{alias.name}" for alias in node.names]
                continue
            assert name.split(".")[0] in sys.stdlib_module_names or name.startswith(OURS), name


def faults(value: object) -> dict[str, str]:
    with pytest.raises(StateInvalid) as caught:
        check(value)
    found = caught.value.details["faults"]
    assert isinstance(found, list)
    return {fault["pointer"]: fault["code"] for fault in found}


# -- the normal form ----------------------------------------------------------------------


def test_a_whole_state_is_taken_as_it_is() -> None:
    checked = check(samples.full())
    given_ = samples.full()
    given_["decisions"][0] |= {"alternatives": [], "supersedes": []}
    for part in ("in_progress", "pending"):
        given_["progress"][part][0]["evidence"] = []
    for item in (*given_["constraints"], *given_["rejected"]):
        item["evidence"] = []
    assert checked.state == given_
    assert checked.changes == ()
    assert checked.warnings == ()


def test_a_small_state_is_filled_with_nothing_that_claims() -> None:
    made = check(samples.small()).state
    assert all(items(made, path) == [] for path in schema.LISTS)
    assert "omissions" not in made
    assert made["lineage"] == {"depth": 0, "inherited_ids": []}
    codes = {note.code for note in check(samples.small()).warnings}
    assert codes == {"no_end", "no_omissions"}


@given(samples.states())
@settings(max_examples=60, deadline=None)
def test_the_normal_form_is_final(value) -> None:
    once = check(value)
    again = check(once.state)
    assert again.state == once.state
    assert again.changes == ()
    assert parse(state_bytes(once.state)).sha256 == once.sha256


def test_letters_are_composed_and_lines_end_with_line_feeds() -> None:
    value = samples.small()
    value["goal"]["text"] = "e\u0301\r\nb\rc"
    other = samples.small()
    other["goal"]["text"] = "é\nb\nc"
    assert check(value).sha256 == check(other).sha256


def test_a_path_keeps_its_bytes() -> None:
    value = samples.small() | {"files": [{"path": "e\u0301.py", "role": "created"}]}
    assert check(value).state["files"][0]["path"] == "e\u0301.py"


def test_one_changed_letter_is_another_state() -> None:
    value = samples.full()
    value["context"][0]["text"] += "."
    assert check(value).sha256 != check(samples.full()).sha256


# -- faults -------------------------------------------------------------------------------


def test_all_faults_come_at_once_with_their_places() -> None:
    value = samples.full()
    value["goal"]["text"] = "x" * (schema.GOAL_HARD + 1)
    value["goal"]["done_when"] = ["y"] * 17
    value["constraints"] += [{"id": f"k{n}", "text": "t", "kind": "must"} for n in range(127)]
    value["constraints"][0]["kind"] = "maybe"
    value["constraints"][1].pop("text")
    value["progress"]["later"] = []
    value["rejected"][0]["why"] = "  \n"
    value["verification"][0]["exit_code"] = True
    value["files"][0]["path"] = "../x"
    value["files"][1]["path"] = "/etc/x"
    value["context"][0]["text"] = "x" * (schema.TEXT_HARD + 1)
    value["next_steps"][0]["needs_confirmation"] = "yes"
    value["lineage"]["depth"] = 65
    value["omissions"][0]["count"] = -1
    value["surprise"] = 1
    assert faults(value) == {
        "/goal/text": "too_large",
        "/goal/done_when": "too_many",
        "/constraints": "too_many",
        "/constraints/0/kind": "choice",
        "/constraints/1/text": "missing",
        "/progress/later": "unknown_key",
        "/rejected/0/why": "blank",
        "/verification/0/exit_code": "type",
        "/files/0/path": "path",
        "/files/1/path": "path",
        "/context/0/text": "too_large",
        "/next_steps/0/needs_confirmation": "type",
        "/lineage/depth": "range",
        "/omissions/0/count": "range",
        "/surprise": "unknown_key",
    }


@pytest.mark.parametrize("path", sorted(schema.LISTS))
def test_each_list_keeps_its_limit(path: str) -> None:
    limit = schema.LISTS[path].limit
    value = samples.small() | {"progress": {}}
    owner, _, name = path.rpartition("/")
    (value["progress"] if owner else value)[name] = [{} for _ in range(limit + 1)]
    assert faults(value)[f"/{path}"] == "too_many"


def test_too_many_faults_are_counted() -> None:
    value = samples.small() | {"context": [{} for _ in range(200)]}
    with pytest.raises(StateInvalid) as caught:
        check(value)
    assert caught.value.details["count"] == 400
    assert len(caught.value.details["faults"]) == state.FAULTS_SHOWN  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 1, True, "x", [], {}, {"goal": {}}, {"schema": 2}])
def test_what_is_no_state_is_refused(value: object) -> None:
    assert faults(value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([*schema.TOP, "id", "text", "kind", "x", "schema_version"])
                      | st.text(), inner, max_size=5),
    max_leaves=15,
)  # fmt: skip


@given(_JSON)
@settings(deadline=None)
def test_any_json_gets_a_typed_answer(value: object) -> None:
    try:
        check(value)
    except HandoffError as error:
        assert error.code in {"state_invalid", "input_too_large"}


HIDDEN = {
    "\x00": "U+0000 NULL",
    "\x1b": "U+001B ESCAPE",
    "\u202e": "U+202E RIGHT-TO-LEFT OVERRIDE",
    "\u200b": "U+200B ZERO WIDTH SPACE",
    "\u2066": "U+2066 LEFT-TO-RIGHT ISOLATE",
    "\ufeff": "U+FEFF ZERO WIDTH NO-BREAK SPACE",
    "\u200d": "U+200D ZERO WIDTH JOINER",
    "\x9b": "U+009B CONTROL CHARACTER",
    "\U000e0041": "U+E0041 TAG LATIN CAPITAL LETTER A",
    "\u2028": "U+2028 LINE SEPARATOR",
    "\ud800": "U+D800",
}


@pytest.mark.parametrize("sign", sorted(HIDDEN))
def test_a_sign_that_hides_is_named_with_its_place(sign: str) -> None:
    value = samples.full()
    value["context"][0]["text"] = f"first\nab{sign}cd"
    with pytest.raises(StateInvalid) as caught:
        check(value)
    (fault,) = caught.value.details["faults"]  # type: ignore[misc]
    assert fault["pointer"] == "/context/0/text"
    assert HIDDEN[sign] in fault["message"]
    assert "line 2, column 3" in fault["message"]


@pytest.mark.parametrize("text", ["👨‍👩‍👧 ❤️ 1️⃣", "می‌خواهم", "क्‍ष", "עברית", "\tx\n"])
def test_scripts_keep_the_signs_that_they_need(text: str) -> None:
    value = samples.small()
    value["goal"]["text"] = text
    assert check(value).state["goal"]["text"] == unicodedata.normalize("NFC", text)


def test_an_error_repeats_no_value_and_no_secret_key() -> None:
    secret = "ghp_" + "a1B2" * 9
    value = samples.full() | {secret: 1}
    value["constraints"][0]["kind"] = secret
    value["files"][0]["path"] = "/" + secret
    value["context"][0]["id"] = secret + " x"
    value["goal"]["done_when"] = secret
    with pytest.raises(StateInvalid) as caught:
        check(value)
    assert secret not in json.dumps(caught.value.to_json())
    assert "/(key 15)" in json.dumps(caught.value.to_json())


@pytest.mark.parametrize(
    "path", ["/x", "~/x", "C:\\x", "../x", "a/../b", "a//b", "./a", "a/", ".git/config", "a\nb"]
)
def test_a_path_stays_in_the_workspace(path: str) -> None:
    value = samples.small() | {"files": [{"path": path, "role": "modified"}]}
    assert "/files/0/path" in faults(value)


# -- what holds between items -------------------------------------------------------------


def decisions(*rows: tuple[str, list[str], str]) -> dict[str, object]:
    made = [{"id": i, "text": "t", "supersedes": s, "status": w} for i, s, w in rows]
    return samples.small() | {"decisions": made}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("a", ["z"], "active")], {"/decisions/0/supersedes/0": "dangling"}),
        ([("a", [], "superseded")], {"/decisions/0/status": "no_successor"}),
        ([("a", [], "active"), ("b", ["a"], "active")], {"/decisions/0/status": "still_active"}),
        ([("a", ["a"], "superseded")], {"/decisions/0/supersedes": "circle"}),
        (
            [("a", ["b"], "superseded"), ("b", ["a"], "superseded")],
            {"/decisions/0/supersedes": "circle"},
        ),
        ([("a", [], "active"), ("a", [], "active")], {"/decisions/1/id": "duplicate"}),
    ],
)
def test_decisions_fit_together(rows, expected) -> None:
    assert faults(decisions(*rows)) == expected


def test_a_long_chain_of_decisions_is_fine() -> None:
    rows = [("d0", [], "superseded")]
    rows += [(f"d{n}", [f"d{n - 1}"], "superseded") for n in range(1, 255)]
    check(decisions(*rows, ("d255", ["d254"], "active")))


def test_ids_are_unique_in_their_list_and_references_name_one_item() -> None:
    value = samples.full()
    value["progress"]["pending"][0]["id"] = "p1"
    value["lineage"] = {}
    value["questions"][0]["blocks"] = ["c1", "nobody"]
    value["rejected"][0]["id"] = "c1"
    assert faults(value) == {
        "/progress/pending/0/id": "duplicate",
        "/questions/0/blocks/0": "ambiguous",
        "/questions/0/blocks/1": "dangling",
    }


def test_a_pass_says_of_what_and_when() -> None:
    value = samples.full()
    value["verification"][0] = {"id": "v1", "claim": "c", "result": "pass"}
    assert faults(value) == {
        "/verification/0/exit_code": "missing",
        "/verification/0/commit": "missing",
        "/verification/0/at": "missing",
    }
    value["verification"][0] |= {"exit_code": 1, "commit": samples.COMMIT, "at": 1}
    assert faults(value) == {"/verification/0/exit_code": "not_passed"}
    value["verification"][0]["exit_code"] = 0
    assert "no_command" in {note.code for note in check(value).warnings}


def test_done_without_evidence_is_reported_and_no_more() -> None:
    value = samples.full()
    value["progress"]["done"][0]["evidence"] = []
    checked = check(value)
    assert checked.state["progress"]["done"][0]["basis"] == "reported"
    assert [(n.pointer, n.code) for n in checked.changes] == [
        ("/progress/done/0/basis", "basis_lowered")
    ]


# -- size ---------------------------------------------------------------------------------


def sized(count: int, length: int) -> dict[str, object]:
    return samples.small() | {
        "context": [{"id": f"x{n}", "text": "y" * length} for n in range(count)]
    }


def test_long_texts_are_warned_about_and_too_much_is_refused_by_name() -> None:
    codes = [note.code for note in check(sized(9, 2049)).warnings]
    assert codes.count("long_text") == 9
    assert "long_state" in codes
    with pytest.raises(InputTooLarge) as caught:
        check(sized(40, 8000))
    assert caught.value.details["limit"] == schema.STATE_HARD
    assert caught.value.details["fields"][0]["field"] == "context"  # type: ignore[index]


def test_the_largest_state_is_checked_quickly() -> None:
    value = sized(120, 2000)
    began = time.perf_counter()
    check(value)
    assert time.perf_counter() - began < 1.0


# -- version 1 ----------------------------------------------------------------------------


def v1() -> dict[str, object]:
    return {
        "schema_version": 1, "goal": "g", "constraints_preferences": ["never a", "b"],
        "progress": {"done": ["c"], "in_progress": ["d"], "pending": ["e"]},
        "key_decisions": ["f"], "rejected_attempts": ["g2"], "verification": ["h"],
        "critical_context": ["i"], "uncertainties": ["j"], "next_steps": ["k\nl"],
    }  # fmt: skip


def test_version_1_loses_no_text_and_gains_no_certainty() -> None:
    checked = check(v1())
    text = json.dumps(checked.state)
    for word in ["never a", "c", "d", "e", "f", "g2", "h", "i", "j", "k\\nl"]:
        assert f'"{word}"' in text
    assert {item["basis"] for item in checked.state["constraints"]} == {"reported"}
    assert checked.state["verification"][0]["result"] == "not_run"
    assert checked.changes[0].code == "from_v1"
    assert check(checked.state).state == checked.state


def test_a_long_goal_of_version_1_stays_whole() -> None:
    value = v1() | {"goal": "ä" * 4000}
    made = check(value).state
    assert made["context"][0]["text"] == "ä" * 4000
    assert made["goal"]["text"].startswith("äää")


@pytest.mark.parametrize("version", [True, 2, 0, "1", None])
def test_version_1_is_exactly_1(version: object) -> None:
    assert faults(v1() | {"schema_version": version})


def test_all_faults_of_version_1_come_at_once() -> None:
    value = v1() | {"goal": " ", "extra": 1, "key_decisions": "x"}
    value.pop("uncertainties")
    assert set(faults(value)) == {"/goal", "/extra", "/key_decisions", "/uncertainties"}


def test_the_digest_is_that_of_the_format() -> None:
    made = check(samples.small()).state
    assert state_sha256(made) == state.canonical.digest("handoff-state/2", state_bytes(made))


def test_faults_of_fields_hide_none_between_items() -> None:
    given = {
        "schema": "handoff-state/2",
        "goal": {"text": "", "done_when": []},
        "constraints": [
            {"id": "c1", "text": "x", "kind": "must"},
            {"id": "c1", "text": "y", "kind": "nope"},
            {"id": ["c1"], "text": "z", "kind": "must"},
            7,
        ],
        "files": [{"path": "a", "role": "modified"}, {"path": "a", "role": "modified"}],
        "decisions": [{"id": "d1", "text": "x", "why": "y", "supersedes": ["d1"]}],
        "verification": [{"id": "v1", "claim": "x", "result": "pass", "exit_code": 1}],
        "questions": [{"id": "q1", "text": "x", "blocks": ["n1"]}],
        "next_steps": 5,
        "omissions": [],
    }
    with pytest.raises(StateInvalid) as refused:
        check(given)
    told = {(one["pointer"], one["code"]) for one in refused.value.details["faults"]}  # type: ignore[attr-defined]
    assert {
        ("/goal/text", "blank"),
        ("/constraints/1/kind", "choice"),
        ("/constraints/1/id", "duplicate"),
        ("/constraints/3", "type"),
        ("/next_steps", "type"),
        ("/files/1/path", "duplicate"),
        ("/decisions/0/supersedes", "circle"),
        ("/verification/0/exit_code", "not_passed"),
    } <= told
    assert not any(code == "dangling" for _, code in told)

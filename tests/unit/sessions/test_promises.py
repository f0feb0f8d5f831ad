"""Promises of Sessions that no single module keeps: models chosen apart, what is written
where, what runs and what does not, and what the documents have to say of it."""

from __future__ import annotations

import ast
import json
import pathlib
import re
import sqlite3
import subprocess
import sys

import pytest
from tests.unit.sessions.test_service import MODEL, PERSON, SESSION, Kit

from handoff.sessions import history, prompt, routes, writer
from handoff.sessions.actions import MODEL_ACTIONS
from handoff.sessions.bench import SUITES, boundary
from handoff.sessions.bench.chance import Chance

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs" / "sessions"
PLUGIN = ROOT / "src" / "handoff" / "plugins" / "hermes_handoff"


@pytest.fixture
def kit(tmp_path: pathlib.Path) -> Kit:
    return Kit(tmp_path)


def doc(name: str) -> str:
    return re.sub(r"\s+", " ", (DOCS / name).read_text("utf-8"))


# -- models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True], ids=["observed", "named"])
@pytest.mark.parametrize("other_writer", [False, True], ids=["own", "other"])
def test_the_new_sessions_model_and_the_writer_are_chosen_apart(
    kit: Kit, named: bool, other_writer: bool
) -> None:
    """All four: neither choice moves the other, and no call is made that was not asked for."""
    routes.observe(kit.service.journal, SESSION, "m-source", "p-source", "t1")
    state = {
        "schema": "handoff-state/2",
        "goal": {"text": "ship the parser", "done_when": ["tests pass"]},
        "constraints": [{"id": "c1", "text": "Never touch lib/api.py.", "kind": "must_not"}],
        "omissions": [],
    }
    given = {"state": state}
    if other_writer:
        kit.host.answers["config"] = {
            "plugins": {"entries": {kit.host.entry_id: {
                "llm": {"allow_model_override": True, "allow_provider_override": True}}}}
        }  # fmt: skip
        kit.host.answers["complete"] = json.dumps(state)
        told = kit.ok("summarize", workspace=str(kit.work), model="m-writer",
                      provider="p-writer", accept_cost=True)  # fmt: skip
        given = {"state": told["state"], "attribution": told["attribution"]}
    made = kit.ok("create", request_id="request-0001", workspace=str(kit.work), **given)
    route = {"model": "m-new", "provider": "p-new"} if named else {}
    frozen = kit.ok("prepare_open", ref=made["ref"], workspace=str(kit.work),
                    attempt_id="attempt-0001", **route)["route"]  # fmt: skip
    assert len(kit.host.sent) == (1 if other_writer else 0)
    assert made["writer"]["kind"] == ("explicit" if other_writer else "chat")
    assert made["writer"]["model"] == ("m-writer" if other_writer else "m-source")
    wanted = ("m-new", "p-new") if named else ("m-source", "p-source")
    assert (frozen["model"], frozen["provider"]) == wanted
    assert frozen["origin"] == ("explicit" if named else "observed")


def test_without_an_observed_model_both_names_are_needed(kit: Kit) -> None:
    ref = kit.create()["ref"]
    given = {"ref": ref, "workspace": str(kit.work), "attempt_id": "attempt-0001"}
    told = kit.refused("prepare_open", **given)
    codes = {one["code"] for one in told["details"]["findings"]}
    assert "route_unknown" in codes
    for lone in ({"model": "m"}, {"provider": "p"}):
        told = kit.refused("prepare_open", **given, **lone)
        assert told["code"] == "usage"
    assert kit.service.journal.attempts() == []


def test_the_observer_has_room_for_names_only(kit: Kit) -> None:
    routes.observe(kit.service.journal, SESSION, "m-1", "p-1", "t1")
    path = pathlib.Path(kit.profile.root) / "journal.sqlite3"
    with sqlite3.connect(path) as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(routes)")]
        found = db.execute("SELECT * FROM routes").fetchall()
    db.close()
    assert columns == ["session_id", "model", "provider", "turn_id", "at"]
    assert [row[:4] for row in found] == [(SESSION, "m-1", "p-1", "t1")]


# -- order and status ------------------------------------------------------------------------


def test_an_attempt_needs_a_record_that_exists_to_the_letter(kit: Kit) -> None:
    ref = kit.create()["ref"]
    last = "a" if ref[-1] != "a" else "b"
    for wrong, code in ((ref[:-1] + last, "preflight_refused"), (ref[:-3], "usage"),
                        (ref + "x", "usage"), (ref.upper(), "usage")):  # fmt: skip
        told = kit.refused("prepare_open", ref=wrong, workspace=str(kit.work), model="m",
                           provider="p", attempt_id="attempt-0001")  # fmt: skip
        assert told["code"] == code, wrong
    assert kit.service.journal.attempts() == []


def test_a_status_tells_progress_apart_from_success(kit: Kit) -> None:
    kit.prepare(kit.create()["ref"])
    told = kit.ok("opening_status", attempt_id="attempt-0001")
    steps = ("requested", "session_identified", "handoff_read", "acknowledged", "user_confirmed")
    assert [told[name] for name in steps] == [False] * 5
    assert told["resume_verified"] is False
    assert told["certainty"] == "certain"
    assert told["explain"] == history.EXPLAIN["prepared"]
    assert set(told["allowed_next"]) >= {"open", "abandon"}
    # What "ended" is not, stands in the sentence itself.
    assert "no success" in history.EXPLAIN["closed"]
    assert "may exist" in history.UNCERTAIN


# -- what is written where, and what runs ------------------------------------------------------


def test_everything_that_is_written_lies_in_the_profile(tmp_path: pathlib.Path) -> None:
    before = {"w", "claude"}
    traffic = boundary.Traffic(Chance(3, "promises"), str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == before
    traffic.run()
    made = {path.name for path in tmp_path.iterdir()} - before
    assert made == {"home", "one.handoff"}  # the second is where export was told to write
    assert list((tmp_path / "w").iterdir()) == []
    assert {path.name for path in (tmp_path / "home").iterdir()} == {"sessions"}


_AUDIT = """
import json, os, sys, tempfile, threading
seen = []
def hook(name, args):
    if name.startswith(("socket.", "os.fork", "os.exec", "os.posix_spawn", "os.system")):
        seen.append([name, ""])
    elif name == "subprocess.Popen":
        seen.append([name, os.path.basename(str(args[0]))])
sys.addaudithook(hook)
from handoff.sessions.bench import boundary
from handoff.sessions.bench.chance import Chance
with tempfile.TemporaryDirectory() as folder:
    boundary.Traffic(Chance(4, "promises"), folder).run()
print(json.dumps([seen, threading.active_count(), sorted(sys.modules)]))
"""


def test_nothing_listens_calls_out_or_stays_behind() -> None:
    """A whole handoff in one process: the only program that runs is git, no socket is made,
    no thread is left, and nothing that could talk to a network is even imported."""
    done = subprocess.run(
        [sys.executable, "-c", _AUDIT], capture_output=True, text=True, check=True, timeout=50
    )
    seen, threads, modules = json.loads(done.stdout)
    programs = {what for name, what in seen if name == "subprocess.Popen"}
    others = {
        name for name, _ in seen if name.startswith("socket.") and name != "socket.gethostname"
    }
    assert programs <= {"git"}, seen
    assert others == set()
    assert threads == 1
    assert not {"http.client", "urllib.request", "ssl", "asyncio", "smtplib"} & set(modules)


def test_no_credential_of_a_provider_is_asked_for() -> None:
    """Neither the core nor the plugin reads a variable or a file that holds one."""
    for path in [*(ROOT / "src/handoff/sessions").glob("*.py"), *PLUGIN.glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.fullmatch(r"[A-Z_]*(API_KEY|_TOKEN|_SECRET)", node.value), path.name
                assert node.value not in ("auth.json", ".env", ".netrc"), path.name


# -- the plugin ------------------------------------------------------------------------------


def test_the_skill_names_the_three_steps_in_their_order() -> None:
    text = (PLUGIN / "skills" / "handoff" / "SKILL.md").read_text("utf-8")
    assert text.startswith("---\nname: handoff\n")
    places = [text.index(f'"action": "{name}"') for name in ("evidence", "create", "prepare_open")]
    assert places == sorted(places)
    for name in re.findall(r'"action": "(\w+)"', text):
        assert name in MODEL_ACTIONS
    for name in ("request_id", "attempt_id", "workspace", "ref"):
        assert f'"{name}"' in text
    assert "does not enable it" in text


def test_the_slash_command_shows_how_and_leaves_the_hosts_own_alone() -> None:
    registered: dict[object, str] = {}
    for node in ast.walk(ast.parse((PLUGIN / "__init__.py").read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        named = [*node.args, *(k.value for k in node.keywords if k.arg == "name")]
        words = [a.value for a in named if isinstance(a, ast.Constant)]
        if node.func.attr.startswith("register_") and words:
            registered[words[0]] = node.func.attr
    assert registered["hh"] == "register_command"
    assert "handoff" not in [n for n, how in registered.items() if how == "register_command"]


def test_a_record_can_be_read_beside_a_damaged_journal(kit: Kit) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref)
    (pathlib.Path(kit.profile.root) / "journal.sqlite3").write_bytes(b"no database" * 400)
    for action in ("show", "read"):
        told = kit.ok(action, ref=ref)
        assert "unavailable" in [one["code"] for one in told["discrepancies"]]
    assert kit.ok("list")["total"] == 1
    given = {"ref": ref, "workspace": str(kit.work), "model": "m", "provider": "stub"}
    assert not kit.call("prepare_open", attempt_id="attempt-0002", **given)["ok"]
    assert kit.refused("read", ref=ref, attempt_id="attempt-0001")["code"] == "journal_corrupt"
    assert [one["code"] for one in kit.ok("verify")["faults"]] == ["journal_corrupt"]


# -- what the documents have to say ------------------------------------------------------------


def test_the_versions_that_are_claimed_are_those_that_are_driven() -> None:
    from handoff.plugins.hermes_handoff import internals

    driven = {}
    for path in sorted((ROOT / "tests" / "live").glob("hermes-*.txt")):
        for line in path.read_text("utf-8").splitlines():
            if found := re.match(r"hermes-agent[\w-]*==([\w.]+)", line):
                driven[found[1]] = path.name
    assert set(driven) == set(internals.VERIFIED)
    claimed = re.findall(r"\| Hermes Agent ([\d.]+\w*)[^|]*\|", doc("guide.md"))
    assert set(claimed) == set(internals.VERIFIED)


def test_what_is_used_of_the_hosts_insides_is_disclosed() -> None:
    named = set()
    for node in ast.walk(ast.parse((PLUGIN / "internals.py").read_text("utf-8"))):
        if isinstance(node, ast.Call):
            words = [a.value for a in node.args[:2] if isinstance(a, ast.Constant)]
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in ("_ask", "_need") and len(words) == 2:
                named.add(".".join(words))
            elif called == "import_module" and words:
                named.add(words[0])
    assert len(named) >= 8
    text = doc("privacy.md")
    for name in named:
        assert re.search(rf"`{re.escape(name)}\b", text), name


def test_what_redaction_misses_is_published() -> None:
    text = doc("privacy.md")
    assert "can't find every secret" in text
    assert "benchmark.md" in text
    report = (DOCS / "benchmark.md").read_text("utf-8")
    for suite in SUITES:
        assert f"## Suite {suite}" in report
    assert "B4 no clue at all, held out" in report


def test_what_an_opening_does_not_prove_is_said() -> None:
    text = doc("guide.md")
    assert "is an instruction, not a sandbox" in text
    assert "`resume_verified` is always false" in text
    for locale in prompt.LOCALES:
        assert "7. STOP" in prompt.TEMPLATES[locale] or "7. FERMATI" in prompt.TEMPLATES[locale]


def test_synthetic_tests_are_called_what_they_are() -> None:
    assert "certify no quality of a model and no obedience" in doc("benchmark.md")
    assert "certify no quality of a model and no obedience" in doc("requirements.md")


def test_no_package_manager_of_another_language_is_asked_for() -> None:
    for path in [*DOCS.glob("*.md"), *PLUGIN.rglob("*.md")]:
        assert not re.search(r"\bnpm (?:install|i|run)\b|\bnpx\b", path.read_text("utf-8")), path
    assert "Do not use the npm package" in doc("guide.md")


def test_credits_for_media_stand_apart_from_the_licence() -> None:
    notice = (ROOT / "NOTICE").read_text("utf-8")
    media = notice.partition("\nMedia\n")[2]
    assert media
    kinds = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".ico", ".webp", ".mp3", ".mp4", ".woff2")
    found = [path for path in (ROOT / "src").rglob("*") if path.suffix in kinds]
    for path in found:
        assert path.name in media, f"{path.name} has no credits in NOTICE"


def test_the_cost_of_another_writer_is_told_before_it_is_paid(kit: Kit) -> None:
    notice = writer.cost_notice(writer.prepare("{}"), "m", "p")
    assert any("cost" in line for line in notice)
    told = kit.refused("summarize", workspace=str(kit.work), model="m", provider="p",
                       accept_cost=False)  # fmt: skip
    assert told["code"] != "internal"
    assert kit.host.sent == []


def test_a_person_is_no_argument(kit: Kit) -> None:
    kit.prepare(kit.create()["ref"])
    told = kit.refused("abandon", MODEL, attempt_id="attempt-0001", reason="x")
    assert told["code"] == "actor_refused"
    assert kit.ok("abandon", PERSON, attempt_id="attempt-0001", reason="x")["state"] == "abandoned"

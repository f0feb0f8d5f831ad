"""What a profile of a real Hermes allows: tools, models, another writer; and the plugin's shapes."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.live.hermes_host import MODEL, HermesHome
from tests.live.hermes_model import Asked, HermesModel
from tests.live.hermes_place import RULE, SECRET, TOOL, Place, codes, files_of, state

ROOT = pathlib.Path(__file__).parents[2]
LAB = """\
custom_providers:
  - name: lab
    base_url: {url}/v1
    api_key: sk-lab
"""
ENABLED = """\
plugins:
  enabled:
    - hermes-handoff
"""


@contextmanager
def configured(place: Place, more: str, **options: bool) -> Iterator[None]:
    """The profile's owner has that in the configuration, for a while."""
    place.host.configure(place.profile, more.format(url=place.host.model.url), **options)
    try:
        yield
    finally:
        place.host.configure(place.profile)


# -- tools --------------------------------------------------------------------------------------

EXCLUDING = {
    "disabled": "  disabled_toolsets: [handoff]\n",
    "disabled in text": "  disabled_toolsets: \"['handoff']\"\n",
    "switched off": "platform_toolsets:\n  cli: [terminal, file]\n"
    "known_plugin_toolsets:\n  cli: [handoff]\n",
    "a narrow posture": "  coding_context: focus\n",
}


def _excluding(name: str) -> str:
    text = EXCLUDING[name]
    return f"agent:\n{text}" if text.startswith("  ") else text


@pytest.mark.parametrize("how", EXCLUDING)
def test_a_profile_without_the_tool_refuses_and_stays_as_it_is(place: Place, how: str) -> None:
    with configured(place, _excluding(how)):
        before = files_of(place.host.root)
        found = codes(place.prepare("attempt-excluded"))
        if how == "disabled in text" and place.host.release == "0.19":
            assert found == ["policy_unknown"]  # that release takes the text for letters
        else:
            assert found == ["tool_not_allowed"]
        assert files_of(place.host.root) == before
    assert place.status("attempt-excluded")["code"] == "unknown_attempt"


def test_what_was_allowed_when_prepared_has_to_be_so_when_opened(place: Place) -> None:
    attempt = "attempt-later"
    assert place.prepare(attempt)["ok"]
    with configured(place, _excluding("disabled")), place.opening(attempt) as screen:
        assert screen.wait() == 3
        assert "tool_not_allowed" in screen.shown
    assert place.status(attempt)["state"] == "prepared"
    assert not place.mind.openings(attempt)


def test_a_missing_internal_of_the_host_refuses_with_its_version(
    place: Place, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nclass Gone:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'agent.coding_context':\n"
        "            raise ImportError('moved')\n"
        "sys.meta_path.insert(0, Gone())\n"
    )
    env = dict(place.host.env)
    place.host.env["PYTHONPATH"] = str(tmp_path)
    try:
        refusal = place.prepare("attempt-moved")
    finally:
        place.host.env.clear()
        place.host.env.update(env)
    assert codes(refusal) == ["policy_unknown"]
    assert f"Hermes {place.host.release}" in refusal["message"]
    assert "agent.coding_context" in refusal["message"]


def test_tools_behind_the_hosts_search_are_found_and_used(place: Place) -> None:
    """As the host is by default: its model sees our tool only by a search."""
    attempt = "attempt-hidden"
    with configured(place, "", hidden=True):
        assert place.prepare(attempt)["ok"]
        with place.opening(attempt) as screen:
            place.waits(attempt, screen)
            assert place.status(attempt)["state"] == "acknowledged"
            (asked, *_) = [one for one in place.host.model.asked if f'"{attempt}"' in one.prompt]
            assert (TOOL in asked.tools) is (place.host.release == "0.19")
            assert place.leave(screen) == 0


def test_the_profile_tells_a_terminal_outside_what_it_allows(place: Place) -> None:
    """The command by which ``handoff session`` asks a profile of Hermes."""
    with configured(place, LAB):
        words = ["--workspace", place.workspace, "--provider", "custom:lab", "--provider", "x"]
        told = json.loads(place.host.run("handoff-facts", *words).ok().out.splitlines()[-1])
    assert (told["handoff_facts"], told["profile"], told["verified"]) == (1, "default", True)
    assert told["recipe"] == f"hermes-{place.host.release}"
    assert TOOL in told["tools"]["cli"]
    assert TOOL in told["tools"]["desktop"]
    assert told["providers"] == ["custom:lab"]
    assert told["errors"] == {}


def test_in_a_process_of_its_own_the_tool_works_and_says_what_is_missing(place: Place) -> None:
    if place.host.release == "0.19":
        pytest.skip("plugins.isolation came with a later release")
    with configured(place, "plugins:\n  isolation: host\n  enabled:\n    - hermes-handoff\n"):
        told = {"workspace": place.workspace, "request": "request-iso", "attempt": "attempt-iso"}
        answer = place.host.ask(f"{RULE}\nHAND OFF {json.dumps(told)}").json()
        assert answer["ok"], answer
        assert "plugins.isolation" in answer["note"]
        assert place.host.run("handoff-status", "attempt-iso").code != 0
    assert place.status("attempt-iso")["state"] == "prepared"


# -- the destination's model --------------------------------------------------------------------


def test_the_new_session_gets_the_model_that_the_source_used_last(place: Place) -> None:
    """Not the profile's default; and a named endpoint by its name."""
    attempt = "attempt-route"
    other = Place(place.host, place.mind)
    with configured(place, LAB):
        other.hand_off(attempt, "-m", "lab-model", "--provider", "custom:lab")
        route = {key: other.first["route"][key] for key in ("model", "provider", "origin")}
        assert route == {"model": "lab-model", "provider": "custom:lab", "origin": "observed"}
        with other.opening(attempt) as screen:
            other.waits(attempt, screen)
            assert [one["model"] for one in place.mind.openings(attempt)] == ["lab-model"]
            assert other.leave(screen) == 0
    assert place.prepare("attempt-default")["route"]["model"] == MODEL


def test_a_named_model_counts_if_its_provider_is_the_profiles(place: Place) -> None:
    with configured(place, LAB):
        chosen = place.prepare("attempt-chosen", model="m-9", provider="custom:lab")
        assert chosen["route"] | {"model": "m-9", "origin": "explicit"} == chosen["route"]
    for number, (given, code) in enumerate(
        (
            ({"model": "m-9", "provider": "custom:lab"}, "provider_not_configured"),
            ({"model": "m-9", "provider": "anthropic"}, "provider_not_configured"),
            ({"model": "m-9"}, "usage"),
            ({"provider": "custom"}, "usage"),
        )
    ):
        refusal = place.prepare(f"attempt-route-{number}", **given)
        found = codes(refusal) if refusal["code"] == "preflight_refused" else [refusal["code"]]
        assert found == [code]


def test_the_observer_keeps_names_only(place: Place) -> None:
    import sqlite3

    with sqlite3.connect(place.host.root / "handoff" / "journal.sqlite3") as db:
        rows = db.execute("SELECT * FROM routes").fetchall()
        columns = [one[1] for one in db.execute("PRAGMA table_info(routes)")]
    db.close()
    assert columns == ["session_id", "model", "provider", "turn_id", "at"]
    assert place.source in [row[0] for row in rows]
    text = repr(rows)
    assert RULE not in text
    assert "http" not in text


# -- another writer -----------------------------------------------------------------------------


def consent(model: bool, provider: bool) -> str:
    return (
        LAB
        + ENABLED
        + "  entries:\n    hermes-handoff:\n      llm:\n"
        + f"        allow_model_override: {str(model).lower()}\n"
        + f"        allow_provider_override: {str(provider).lower()}\n"
    )


@pytest.mark.parametrize(("model", "provider"), [(False, False), (True, False), (False, True)])
def test_another_writer_needs_both_consents_of_the_owner(
    place: Place, model: bool, provider: bool
) -> None:
    given = {"workspace": place.workspace, "model": "writer-1", "provider": "custom:lab"}
    with configured(place, consent(model, provider)):
        before, asides = files_of(place.host.root), len(place.host.model.asides)
        refusal = place.call("summarize", **given, accept_cost=True)
        assert refusal["code"] == "consent_missing"
        missing = {"allow_model_override": model, "allow_provider_override": provider}
        expected = [
            f"plugins.entries.hermes-handoff.llm.{key}" for key, has in missing.items() if not has
        ]
        assert refusal["details"]["keys"] == expected
        assert len(place.host.model.asides) == asides
        assert files_of(place.host.root) == before


def test_another_writer_gets_redacted_evidence_once_and_is_named(place: Place) -> None:
    model = place.host.model
    written = {**state(), "goal": {"text": "Written by the other model"}}

    def writer(_asked: Asked) -> str:
        return json.dumps(written)

    model.minds["aside:writer-1"] = writer
    given = {"workspace": place.workspace, "model": "writer-1", "provider": "custom:lab"}
    with configured(place, consent(model=True, provider=True)):
        assert place.call("summarize", **given, accept_cost=False)["code"] == "usage"
        asides = len(model.asides)
        answer = place.call("summarize", **given, accept_cost=True)
        assert answer["ok"], answer
        (body,) = model.asides[asides:]
        assert body["model"] == "writer-1"
        sent = json.dumps(body)
        assert RULE in sent
        assert SECRET not in sent
        create = {"workspace": place.workspace, "attribution": answer["attribution"]}
        whole = place.call("create", **create, state=answer["state"], request_id="request-b-1")
        assert whole["writer"]["attributed"] is True
        assert whole["writer"]["model"] == "writer-1"
        changed = {**answer["state"], "goal": {"text": "Written by the other model."}}
        other = place.call("create", **create, state=changed, request_id="request-b-2")
        assert other["ok"]
        assert other["writer"]["attributed"] is False
        assert len(model.asides) == asides + 1


# -- another profile ----------------------------------------------------------------------------


def test_another_profile_has_its_own_records_and_opens_its_own_session(
    place: Place, hermes_plugin: pathlib.Path
) -> None:
    host, attempt = place.host, "attempt-bob"
    host.run("profile", "create", "bob").ok()
    host.install(hermes_plugin, "bob")
    host.configure("bob")
    bob = Place(host, place.mind, "bob")
    bob.hand_off(attempt)
    assert bob.first["profile"] == "bob"
    assert bob.ref != place.ref or bob.first["document_sha256"] == place.first["document_sha256"]
    assert place.status(attempt)["code"] == "unknown_attempt"
    wrong = ["default" if word == "bob" else word for word in bob.command(attempt, "--yes")]
    with host.terminal(*wrong) as screen:
        assert screen.wait() == 3
    before = [row["id"] for row in host.rows()]
    with bob.opening(attempt) as screen:
        bob.waits(attempt, screen)
        destination = bob.status(attempt)["destination"]["session_id"]
        assert destination in [row["id"] for row in host.rows("bob")]
        assert bob.leave(screen) == 0
    assert [row["id"] for row in host.rows()] == before
    listed = bob.call("list", workspace=bob.workspace)["records"]
    assert [one["ref"] for one in listed] == [bob.ref]


# -- shapes -------------------------------------------------------------------------------------


def test_doctor_and_validate_find_nothing(hermes_plugin: pathlib.Path) -> None:
    with HermesModel() as model, HermesHome("0.22", model) as host:
        doctor = host.run("plugins", "doctor", str(hermes_plugin), "--ci").ok()
        assert "registrations: 1 tool(s), 2 hook(s)" in doctor.out
        assert doctor.err.strip() == ""
        assert "warning" not in doctor.out.lower()
        validated = host.run("plugins", "validate", str(hermes_plugin), "--json").ok()
        report = json.loads(validated.out)
        assert report["ok"] is True
        assert [one["name"] for one in report["checks"] if not one["ok"]] == []
        assert len(report["checks"]) >= 14
        known = ("private core imports", "security scan caution: proc_access")
        assert [one for one in report["warnings"] if not one.startswith(known)] == []


def test_the_wheel_is_found_by_its_entry_point(place: Place, tmp_path: pathlib.Path) -> None:
    """The same plugin, installed as a package: listed, and its tool answers."""
    info = tmp_path / "hermes_handoff-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hermes-handoff\nVersion: 0.1.0\n")
    point = "hermes-handoff = handoff.plugins.hermes_handoff"
    (info / "entry_points.txt").write_text(f"[hermes_agent.plugins]\n{point}\n")
    with HermesModel() as model, HermesHome(place.host.release, model) as host:
        host.env["PYTHONPATH"] = f"{tmp_path}:{ROOT / 'src'}"
        host.env["PYTHONDONTWRITEBYTECODE"] = "1"
        rows = json.loads(host.run("plugins", "list", "--no-bundled", "--json").ok().out)
        (row,) = [one for one in rows if one["name"] == "hermes-handoff"]
        assert (row["status"], row["source"]) == ("enabled", "entrypoint")
        given = {"action": "list", "workspace": str(host.work), "scope": "all"}
        (answer,) = host.dispatch((TOOL, given, {"session_id": "s"}))
        assert answer["records"] == []
        assert host.run("handoff-status", "attempt-none").code == 3


def test_registering_makes_nothing(place: Place) -> None:
    """A command that needs no session leaves no file of ours, and no process."""
    with HermesModel() as model, HermesHome(place.host.release, model) as host:
        host.install(place.host.root / "plugins" / "hermes-handoff")
        host.run("tools", "list").ok()
        assert not (host.root / "handoff").exists()
        assert host.processes() == []

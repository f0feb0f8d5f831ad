from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.agents import hermes_store
from tests.unit.sessions.records_kit import repository, run_git

from handoff.clock import FakeClock
from handoff.errors import (
    ActorRefused,
    Failed,
    HandoffError,
    NotAllowed,
    SourceUnbound,
    StorageFull,
)
from handoff.sessions import host_store, routes
from handoff.sessions.host_store import Opener
from handoff.sessions.profile import Profile
from handoff.sessions.service import ACTIONS, MODEL_ACTIONS, Caller, Service, reply

SESSION = "20260131_120000_ab12cd"
RULE = "Never touch the public API in lib/api.py."
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
MODEL = Caller("hermes", SESSION, platform="cli")
PERSON = Caller("cli", person=True, name="anna")


class Host:
    """A host whose answers a test decides; an exception among them is raised."""

    kind, entry_id, recipe, default_route = "hermes", "hermes-handoff", "hermes-0.22", False

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.answers: dict[str, Any] = {
            "version": ("0.22.2", True),
            "provider_named": True,
            "tools": {"hermes_handoff"},
            "config": {},
            "complete": "",
            "candidates": [],
            "program": "/bin/true",
        }
        self.sent: list[str] = []

    def _say(self, name: str) -> Any:
        value = self.answers[name]
        if isinstance(value, Exception):
            raise value
        return value

    def version(self) -> tuple[str, bool]:
        found: tuple[str, bool] = self._say("version")
        return found

    def route(self, session_id: str) -> Mapping[str, Any] | None:
        del session_id
        return None

    def provider_named(self, provider: str) -> bool:
        del provider
        return bool(self._say("provider_named"))

    def tools(self, platform: str) -> Any:
        del platform
        return self._say("tools")

    def config(self) -> Any:
        return self._say("config")

    def complete(self, prompt: str, model: str, provider: str) -> str:
        self.sent.append(f"{model} {provider} {prompt}")
        return str(self._say("complete"))

    def sessions(self) -> Opener | None:
        return (lambda: host_store.opened(self.path)) if self.path else None

    def candidates(self, frozen: Mapping[str, Any], since: int) -> Any:
        del frozen, since
        return self._say("candidates")

    def program(self) -> str:
        return str(self._say("program"))


class Kit:
    """A service over real files: a repository, a session store, a profile."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.work = repository(folder / "w")
        self.home = folder / "home"
        hermes_store(
            self.home / "state.db",
            [(SESSION, "user", RULE), (SESSION, "assistant", "ok"), ("other", "user", "hi")],
            str(self.work),
        )
        self.host = Host(str(self.home / "state.db"))
        self.profile = Profile("default", str(self.home), str(self.home))
        self.clock = FakeClock()
        self.service = self.another()

    def another(self) -> Service:
        return Service(self.profile, self.host, clock=self.clock, env={}, version="1")

    def call(self, action: str, caller: Caller = MODEL, **given: Any) -> dict[str, Any]:
        found = reply(self.service, action, given, caller)
        json.dumps(found, allow_nan=False).encode()
        return found

    def ok(self, action: str, caller: Caller = MODEL, **given: Any) -> dict[str, Any]:
        found = self.call(action, caller, **given)
        assert found["ok"], found
        return found

    def refused(self, action: str, caller: Caller = MODEL, **given: Any) -> dict[str, Any]:
        found = self.call(action, caller, **given)
        assert not found["ok"], found
        assert set(found) == {"ok", "action", "code", "message", "retry", "remedy", "details"}
        return found

    def create(self, request: str = "request-0001", caller: Caller = MODEL, **state: Any) -> Any:
        made = {
            "schema": "handoff-state/2",
            "goal": {"text": "ship the parser", "done_when": ["tests pass"]},
            "constraints": [{"id": "c1", "text": RULE, "kind": "must_not"}],
            "omissions": [],
            **state,
        }
        return self.ok("create", caller, state=made, request_id=request, workspace=str(self.work))

    def prepare(self, ref: str, attempt: str = "attempt-0001", **more: Any) -> dict[str, Any]:
        return self.ok(
            "prepare_open",
            ref=ref,
            workspace=str(self.work),
            attempt_id=attempt,
            **{"model": "m-1", "provider": "stub", **more},
        )

    def files(self) -> list[str]:
        return sorted(str(path) for path in self.folder.rglob("*"))


@pytest.fixture
def kit(tmp_path: pathlib.Path) -> Kit:
    return Kit(tmp_path)


# -- who may -----------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [name for name in ACTIONS if name not in MODEL_ACTIONS])
@pytest.mark.parametrize("surface", ["hermes", "mcp", "desktop"])
def test_a_model_does_nothing_that_is_a_persons(kit: Kit, action: str, surface: str) -> None:
    """However right its arguments are, and whatever it says of itself."""
    ref = kit.create()["ref"]
    kit.prepare(ref)
    given = {
        "attempt_id": "attempt-0001",
        "ref": ref,
        "reason": "x",
        "session": SESSION,
        "workspace": str(kit.work),
        "path": str(kit.folder / "x"),
        "project_id": "a" * 32,
        "older_than": 0,
        "idle": 60,
        "why": "x",
    }
    before = kit.files(), kit.service.journal.events("attempt-0001")
    arguments = {key: given[key] for key in ACTIONS[action].args if key in given}
    told = kit.refused(action, Caller(surface, SESSION), **arguments)
    assert (told["code"], told["retry"]) == ("actor_refused", "never")
    assert (kit.files(), kit.service.journal.events("attempt-0001")) == before


@pytest.mark.parametrize("surface", ["hermes", "mcp", "desktop"])
@pytest.mark.parametrize("action", ["create", "prepare_open", "evidence"])
def test_without_a_session_there_is_no_source(kit: Kit, action: str, surface: str) -> None:
    ref = kit.create()["ref"]
    given: dict[str, Any] = {"workspace": str(kit.work)}
    if action == "create":
        given |= {"state": {}, "request_id": "request-0002"}
    if action == "prepare_open":
        given |= {"ref": ref, "attempt_id": "attempt-0001", "model": "m", "provider": "p"}
    assert kit.refused(action, Caller(surface), **given)["code"] == "source_unbound"


def test_a_session_prepares_only_what_it_made(kit: Kit) -> None:
    ref = kit.create()["ref"]
    given = {"ref": ref, "workspace": str(kit.work), "attempt_id": "attempt-0001"}
    told = kit.refused("prepare_open", Caller("hermes", "other"), **given)
    assert "source_mismatch" in [one["code"] for one in told["details"]["findings"]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    action=st.sampled_from([*ACTIONS, "", "x"]) | st.text(max_size=8),
    given_=st.dictionaries(
        st.sampled_from(sorted({key for one in ACTIONS.values() for key in one.args})),
        st.none() | st.booleans() | st.integers(-1, 99) | st.text(max_size=9) | st.just("/tmp")
        | st.just([]) | st.just({}) | st.just("attempt-0009"),
        max_size=6,
    ),
    caller=st.builds(
        Caller,
        st.sampled_from(["cli", "hermes", "mcp", "desktop", "?"]),
        st.sampled_from(["", SESSION, "x"]),
        st.booleans(),
    ),
)  # fmt: skip
def test_a_reply_always_comes(
    kit: Kit, action: str, given_: dict[str, Any], caller: Caller
) -> None:
    found = reply(kit.service, action, given_, caller)
    json.dumps(found, allow_nan=False)
    assert found["ok"] in (True, False)
    assert found["ok"] or found["code"] != "internal", found


def test_an_error_of_ours_is_a_reply_too(kit: Kit) -> None:
    kit.host.answers["version"] = ZeroDivisionError(SECRET)
    told = kit.refused("create", state={"schema": "handoff-state/2", "goal": {"text": "x"}},
                       request_id="request-0001", workspace=str(kit.work))  # fmt: skip
    assert (told["code"], told["retry"]) == ("internal", "after_inspection")
    assert SECRET not in json.dumps(told)


# -- create -------------------------------------------------------------------------------------


def test_a_retry_is_the_same_record_and_another_state_is_a_conflict(kit: Kit) -> None:
    first, again = kit.create(), kit.create()
    assert (again["ref"], again["idempotent"]) == (first["ref"], True)
    assert again["created_at"] == first["created_at"]
    told = kit.refused(
        "create",
        state={"schema": "handoff-state/2", "goal": {"text": "another"}},
        request_id="request-0001",
        workspace=str(kit.work),
    )
    assert (told["code"], told["details"]["ref"]) == ("request_conflict", first["ref"])
    other = kit.create("request-0002")
    assert (other["ref"], other["deduplicated"]) == (first["ref"], True)


def test_looking_creates_nothing(kit: Kit) -> None:
    before = kit.files()
    for action, arguments in (
        ("list", {}),
        ("search", {"query": "x"}),
        ("verify", {}),
        ("opening_status", {}),
        ("evidence", {"workspace": str(kit.work)}),
    ):
        kit.ok(action, **arguments)
    kit.refused("show", ref="handoff://" + "a" * 32 + "/" + "b" * 32)
    assert kit.files() == before


def test_what_is_refused_leaves_nothing(kit: Kit) -> None:
    before = kit.files()
    given = {"request_id": "request-0001", "workspace": str(kit.work)}
    assert kit.refused("create", state={"goal": 1}, **given)["code"] == "state_invalid"
    assert kit.refused("create", state="{", **given)["code"] == "state_invalid"
    assert kit.refused("create", state={}, **{**given, "workspace": "/nowhere"})["code"] in (
        "state_invalid",
        "workspace_missing",
    )
    for name in ("request_id", "name"):
        state = {"schema": "handoff-state/2", "goal": {"text": "x"}}
        told = kit.refused("create", state=state, **{**given, name: SECRET})
        assert told["details"]["faults"][0]["code"] == "looks_secret"
        assert SECRET not in json.dumps(told)
    assert kit.files() == before


def test_a_dry_run_shows_and_stores_nothing(kit: Kit) -> None:
    before = kit.files()
    state = {"schema": "handoff-state/2", "goal": {"text": f"use {SECRET}"}}
    made = kit.ok(
        "create", state=state, request_id="request-0001", workspace=str(kit.work), dry_run=True
    )
    assert made["published"] is False
    assert "[redacted:" in made["document"]
    assert SECRET not in json.dumps(made)
    assert kit.files() == before


def test_a_state_may_come_as_text(kit: Kit) -> None:
    text = json.dumps({"schema": "handoff-state/2", "goal": {"text": "as text"}})
    kit.ok("create", state=text, request_id="request-0001", workspace=str(kit.work))
    twice = '{"schema": "handoff-state/2", "goal": {"text": "a"}, "goal": {"text": "b"}}'
    told = kit.refused("create", state=twice, request_id="request-0002", workspace=str(kit.work))
    assert told["code"] == "state_invalid"


def test_what_the_session_said_and_did_not_say(kit: Kit) -> None:
    lost = kit.create(constraints=[])
    assert [one["text"] for one in lost["dropped"]] == [RULE]
    claim = {"id": "c1", "text": "Use port 8443", "kind": "must", "basis": "observed"}
    made = kit.create("request-0002", constraints=[claim])
    assert ("/constraints/0/basis", "basis_lowered") in [
        (one["pointer"], one["code"]) for one in made["changes"]
    ]
    read = kit.ok("read", ref=made["ref"], workspace=str(kit.work))
    assert read["dropped"] == [RULE]
    assert RULE in read["content"]


def test_strictness_refuses_where_the_lint_warns(kit: Kit) -> None:
    state = {"schema": "handoff-state/2", "goal": {"text": "vague"}}
    given = {"state": state, "request_id": "request-0001", "workspace": str(kit.work)}
    told = kit.refused("create", strict=True, **given)
    assert {"L1", "L12"} <= {one["code"] for one in told["details"]["faults"]}
    assert {"L1", "L12"} <= {one["code"] for one in kit.ok("create", **given)["warnings"]}


def test_another_model_writes_only_with_consent_and_cost(kit: Kit) -> None:
    given = {"workspace": str(kit.work), "model": "w-1", "provider": "stub"}
    told = kit.refused("summarize", accept_cost=True, **given)
    assert told["code"] == "consent_missing"
    assert told["details"]["keys"][0] == "plugins.entries.hermes-handoff.llm.allow_model_override"
    llm = {"allow_model_override": True, "allow_provider_override": True}
    kit.host.answers["config"] = {"plugins": {"entries": {"hermes-handoff": {"llm": llm}}}}
    assert kit.refused("summarize", accept_cost=False, **given)["code"] == "usage"
    assert kit.host.sent == []
    kit.host.answers["complete"] = json.dumps(
        {"schema": "handoff-state/2", "goal": {"text": "from B", "done_when": ["x"]}}
    )
    made = kit.ok("summarize", accept_cost=True, **given)
    assert len(kit.host.sent) == 1
    assert RULE in kit.host.sent[0]
    state, token = made["state"], made["attribution"]
    new = {"request_id": "request-0001", "workspace": str(kit.work), "attribution": token}
    assert kit.ok("create", state=state, **new)["writer"]["attributed"] is True
    changed = {**state, "goal": {"text": "from B, and me", "done_when": ["x"]}}
    kept = kit.ok("create", state=changed, **{**new, "request_id": "request-0002"})
    assert kept["writer"] == {
        "kind": "explicit", "model": "", "provider": "", "attributed": False
    }  # fmt: skip


def test_no_secret_goes_to_another_model(kit: Kit) -> None:
    hermes_store(kit.folder / "b.db", [(SESSION, "user", f"always use {SECRET}")])
    kit.host.path = str(kit.folder / "b.db")
    llm = {"allow_model_override": True, "allow_provider_override": True}
    kit.host.answers["config"] = {"plugins": {"entries": {"hermes-handoff": {"llm": llm}}}}
    kit.host.answers["complete"] = f"no state, but {SECRET}"
    told = kit.refused("summarize", accept_cost=True, model="w", provider="p",
                       workspace=str(kit.work))  # fmt: skip
    assert SECRET not in kit.host.sent[0]
    assert SECRET not in json.dumps(told)


# -- opening ------------------------------------------------------------------------------------


def test_the_observed_model_is_used_and_never_a_default(kit: Kit) -> None:
    ref = kit.create()["ref"]
    given = {"ref": ref, "workspace": str(kit.work), "attempt_id": "attempt-0001"}
    told = kit.refused("prepare_open", **given)
    assert "route_unknown" in [one["code"] for one in told["details"]["findings"]]
    kit.service.observe(SESSION, "m-7", "stub", "turn-1")
    ready = kit.ok("prepare_open", **given)
    assert ready["route"]["model"] == "m-7"
    assert ready["route"]["origin"] == "observed"
    assert routes.last_route(kit.service.journal, SESSION)
    again = kit.ok("prepare_open", **given)
    assert (ready["created"], again["created"]) == (True, False)
    told = kit.refused("prepare_open", **given, model="m-8", provider="stub")
    assert (told["code"], told["details"]["fields"]) == ("attempt_conflict", ["route"])


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"tools": set()}, "tool_not_allowed"),
        ({"tools": NotAllowed("an import failed")}, "policy_unknown"),
        ({"tools": RuntimeError("an import failed")}, "policy_unknown"),
        ({"tools": None}, "policy_unknown"),
        ({"provider_named": False}, "provider_not_configured"),
        ({"provider_named": Failed("no configuration")}, "provider_not_configured"),
    ],
)
def test_what_the_host_does_not_allow_or_say(kit: Kit, answer: dict[str, Any], code: str) -> None:
    ref = kit.create()["ref"]
    kit.host.answers |= answer
    given = {"ref": ref, "workspace": str(kit.work), "attempt_id": "attempt-0001"}
    told = kit.refused("prepare_open", **given, model="m-1", provider="stub")
    assert (told["code"], told["retry"]) == ("preflight_refused", "never")
    assert code in [one["code"] for one in told["details"]["findings"]]
    assert kit.ok("opening_status")["attempts"] == []


def test_what_has_changed_is_told_before_opening(kit: Kit) -> None:
    ref = kit.create()["ref"]
    run_git(kit.work, "checkout", "-q", "-b", "other")
    ready = kit.prepare(ref)
    assert ready["verdict"] == "drifted"
    assert "branch_changed" in [one["code"] for one in ready["discrepancies"]]
    assert "branch_changed" in [one["code"] for one in ready["findings"]]


def test_the_printed_command_opens_what_was_prepared(kit: Kit) -> None:
    ready = kit.prepare(kit.create()["ref"])
    assert ready["argv"] == [
        "hermes", "--profile", "default", "handoff-open", ready["ref"],
        "--workspace", str(kit.work), "--attempt-id", "attempt-0001",
    ]  # fmt: skip
    assert ready["env"] == {"HERMES_HOME": str(kit.home)}
    assert ready["command"].startswith(f"HERMES_HOME={kit.home} hermes --profile default ")


def desktop(kit: Kit, ref: str) -> dict[str, Any]:
    person = Caller("desktop", SESSION, person=True)
    return kit.ok("open_begin", person, attempt_id="attempt-0001", ref=ref, workspace=str(kit.work))


def test_the_desktop_opens_once(kit: Kit) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref)
    person = Caller("desktop", SESSION, person=True)
    begun = desktop(kit, ref)
    assert begun["status"]["state"] == "requested"
    assert '"action": "read"' in begun["prompt"]
    again = kit.refused(
        "open_begin", person, attempt_id="attempt-0001", ref=ref, workspace=str(kit.work)
    )
    assert (again["code"], again["retry"]) == ("already_reserved", "after_inspection")
    one = {"attempt_id": "attempt-0001"}
    told = kit.refused("open_created", person, session=SESSION, **one)
    assert told["code"] == "session_mismatch", "the source is not its own destination"
    made = kit.ok("open_created", person, session="new-1", **one)
    assert (made["state"], made["prompt"]) == ("session_identified", made["prompt"])
    sent = kit.ok("open_submitted", person, **one)
    assert sent["prompt"] != made["prompt"]

    reader = Caller("hermes", "new-1", platform="tui")
    page = kit.ok("read", reader, ref=ref, workspace=str(kit.work), **one)
    assert page["complete"] is True
    ack = {
        "ref": ref,
        "digest": page["document_sha256"],
        "constraint_ids": page["constraint_ids"],
        "discrepancy_codes": page["required_codes"],
        "first_step": f"log in with {SECRET}",
    }
    short = kit.refused("ack", reader, **{**ack, "constraint_ids": []}, **one)
    assert (short["code"], short["details"]["missing_constraints"]) == ("ack_incomplete", ["c1"])
    done = kit.ok("ack", reader, **ack, **one)
    assert (done["state"], done["resume_verified"]) == ("acknowledged", False)
    assert SECRET not in json.dumps(kit.ok("recover", PERSON, **one))
    assert kit.ok("confirm", person, **one)["user_confirmed"] is True


def test_a_desktop_that_could_not_make_a_session(kit: Kit) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref)
    desktop(kit, ref)
    person = Caller("desktop", SESSION, person=True)
    told = kit.ok("open_failed", person, attempt_id="attempt-0001", why="the host said no")
    assert told["state"] == "launch_failed"
    refused = kit.refused("open_submitted", person, attempt_id="attempt-0001")
    assert refused["code"] == "not_allowed"


def test_another_process_can_not_go_on_where_one_began(kit: Kit) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref)
    desktop(kit, ref)
    kit.service = kit.another()
    person = Caller("desktop", SESSION, person=True)
    told = kit.refused("open_created", person, attempt_id="attempt-0001", session="new-1")
    assert "recover" in told["remedy"]


def test_an_attempt_for_the_desktop_is_not_begun_with_another_folder(kit: Kit) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref, surface="cli")
    person = Caller("desktop", SESSION, person=True)
    told = kit.refused(
        "open_begin", person, attempt_id="attempt-0001", ref=ref, workspace=str(kit.folder)
    )
    assert told["details"]["fields"] == ["workspace", "surface"]


def test_only_the_one_candidate_is_adopted(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref)
    desktop(kit, ref)
    one = {"attempt_id": "attempt-0001"}
    kit.host.answers["candidates"] = [{"session_id": "new-1", "title": "t"}]
    told = kit.refused("adopt", PERSON, session="new-1", **one)
    assert told["code"] == "not_allowed", "its opener lives"
    monkeypatch.setattr(kit.service.journal, "alive", lambda _owner: False)
    shown = kit.ok("recover", PERSON, **one)
    assert [one["choice"] for one in shown["commands"]] == ["adopt", "abandon"]
    assert "--adopt new-1" in shown["commands"][0]["command"]
    assert kit.refused("adopt", PERSON, session="new-2", **one)["code"] == "session_mismatch"
    kit.host.answers["candidates"] = Failed("the store is locked")
    assert "locked" in kit.ok("recover", PERSON, **one)["candidates_note"]
    kit.host.answers["candidates"] = [{"session_id": "new-1"}]
    assert kit.ok("adopt", PERSON, session="new-1", **one)["state"] == "session_identified"


def test_a_claim_that_is_only_handed_on_grows_old(kit: Kit) -> None:
    """Whatever a successor calls it: nothing in its session shows it, so it stays inherited,
    and after two hands it is said to have never been checked."""
    claims = {"context": [{"id": "x1", "text": "The parser is total", "basis": "observed"},
                          {"id": "x2", "text": "It is slow", "basis": "reported"}]}  # fmt: skip
    ref = kit.create(**claims)["ref"]
    for number in (2, 3):
        made = kit.create(f"request-{number:04}", **claims, lineage={"parent_ref": ref})
        codes = {one["pointer"]: one["code"] for one in made["changes"]}
        assert codes["/context/0/basis"] == codes["/context/1/basis"] == "basis_inherited"
        ref = made["ref"]
    shown = kit.ok("show", ref=ref)
    assert [one["basis"] for one in shown["state"]["context"]] == ["inherited", "inherited"]
    assert shown["state"]["constraints"][0]["basis"] != "inherited"
    told = {one["code"]: one for one in shown["discrepancies"]}
    assert told["inherited_unverified"]["details"]["ids"] == ["x1", "x2"]
    (kit.work / "total.txt").write_text("total")
    claims["context"][0]["evidence"] = [{"kind": "file", "id": "total.txt"}]  # type: ignore[assignment]
    made = kit.create("request-0004", **claims, lineage={"parent_ref": ref})
    shown = kit.ok("show", ref=made["ref"])
    assert [one["basis"] for one in shown["state"]["context"]] == ["observed", "inherited"]


def test_a_chain_of_handoffs_knows_its_parents_and_does_not_run_idle(kit: Kit) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref)
    desktop(kit, ref)
    person = Caller("desktop", SESSION, person=True)
    kit.ok("open_created", person, attempt_id="attempt-0001", session="other")
    second = Caller("hermes", "other")
    state = {"schema": "handoff-state/2", "goal": {"text": "go on"}}
    given = {"state": state, "request_id": "request-0009", "workspace": str(kit.work)}
    told = kit.refused("create", second, **given)
    assert (told["code"], "only read" in told["message"]) == ("not_allowed", True)
    made = kit.ok("create", second, allow_stale=True, **given)
    assert {one["code"] for one in made["changes"]} >= {"parent_set", "depth_set"}
    shown = kit.ok("show", ref=made["ref"])
    assert shown["manifest"]["lineage"]["parent_ref"] == ref
    assert kit.ok("log", ref=made["ref"])["ancestors"][0]["ref"] == ref
    again = kit.ok("create", second, allow_stale=True, **given)
    assert again["idempotent"] is True


# -- keeping ------------------------------------------------------------------------------------


def test_what_an_attempt_needs_is_kept(kit: Kit) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref)
    kit.clock.advance(10**6)
    kept = kit.ok("prune", PERSON, older_than=1)
    assert (kept["removed"], kept["in_use"]) == ([], [ref])
    assert kit.refused("purge", PERSON, ref=ref)["code"] == "record_in_use"
    kit.ok("abandon", PERSON, attempt_id="attempt-0001", reason="x")
    assert kit.ok("prune", PERSON, older_than=1, dry_run=True)["removed"] == [ref]
    assert kit.ok("prune", PERSON, older_than=1)["removed"] == [ref]
    told = kit.refused("show", ref=ref)
    assert (told["code"], told["details"]["tombstone"]["why"]) == ("ref_not_found", "pruned")


def test_the_sweep_drafts_what_nobody_handed_off(kit: Kit) -> None:
    with host_store.opened(str(kit.home / "state.db")) as store:
        assert store.session(SESSION) is not None
    kit.clock.advance(3600 * 24)
    made = kit.ok("sweep", PERSON, idle=3600)
    drafted = [one for one in made["drafts"] if one["session"] == SESSION]
    assert len(drafted) == 1
    shown = kit.ok("show", ref=drafted[0]["ref"])
    assert (shown["manifest"]["origin"], shown["manifest"]["writer"]["kind"]) == (
        "sweep",
        "sweeper",
    )
    assert kit.ok("sweep", PERSON, idle=3600)["drafts"] == []


def test_damage_is_told_and_not_read(kit: Kit) -> None:
    ref = kit.create()["ref"]
    (path,) = (kit.home / "handoff").rglob("document.md")
    path.chmod(0o600)
    path.write_text(path.read_text() + "more")
    assert kit.refused("read", ref=ref)["code"] == "integrity_failed"
    assert kit.ok("validate", ref=ref)["valid"] is False
    assert [one["code"] for one in kit.ok("verify")["faults"]] == ["integrity_failed"]
    given = {"ref": ref, "workspace": str(kit.work), "attempt_id": "attempt-0001"}
    told = kit.refused("prepare_open", **given, model="m-1", provider="stub")
    assert "integrity_failed" in [one["code"] for one in told["details"]["findings"]]


def test_the_source_session_is_only_read(kit: Kit) -> None:
    before = (kit.home / "state.db").read_bytes()
    ref = kit.create()["ref"]
    kit.prepare(ref)
    kit.ok("read", ref=ref, attempt_id="attempt-0001")
    assert (kit.home / "state.db").read_bytes() == before
    assert not list(kit.home.glob("state.db-*"))


def test_call_raises_what_reply_tells(kit: Kit) -> None:
    with pytest.raises(ActorRefused):
        kit.service.call("confirm", {"attempt_id": "attempt-0001"}, MODEL)
    with pytest.raises(SourceUnbound):
        kit.service.call("evidence", {"workspace": str(kit.work)}, Caller("mcp"))
    with pytest.raises(HandoffError):
        kit.service.host_of("codex")


def test_a_claim_that_nothing_could_be_held_against_is_said_to_be(kit: Kit) -> None:
    kit.host.path = ""
    claim = {"id": "x1", "text": "The port is 8443", "kind": "fact", "basis": "observed"}
    made = kit.create(context=[claim])
    assert ("/context/0/basis", "basis_unchecked") in [
        (one["pointer"], one["code"]) for one in made["warnings"]
    ]
    shown = kit.ok("show", ref=made["ref"])["state"]["context"][0]
    assert shown["basis"] == "observed"
    assert "its writer's word" in kit.ok("read", ref=made["ref"])["content"]


def test_a_reader_that_may_not_write_reads_all_the_same(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref)
    desktop(kit, ref)
    person = Caller("desktop", SESSION, person=True)
    kit.ok("open_created", person, attempt_id="attempt-0001", session="new-1")

    def full(*_: Any, **__: Any) -> bool:
        raise StorageFull("no space left")

    monkeypatch.setattr(kit.service.journal, "page_served", full)
    reader = Caller("hermes", "new-1")
    page = kit.ok("read", reader, ref=ref, workspace=str(kit.work), attempt_id="attempt-0001")
    assert RULE in page["content"]
    assert (page["counts"], "no space left" in page["why_not"]) == (False, True)
    assert kit.ok("opening_status", attempt_id="attempt-0001")["handoff_read"] is False


def test_a_damaged_journal_keeps_nothing_but_openings_back(kit: Kit) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref)
    (path,) = (kit.home / "handoff").glob("journal*.sqlite3")
    path.write_bytes(b"no database " * 1000)
    kit.service = kit.another()
    for action, given_ in (
        ("list", {}),
        ("search", {"query": "parser"}),
        ("show", {"ref": ref}),
        ("read", {"ref": ref, "workspace": str(kit.work)}),
        ("validate", {"ref": ref}),
        ("evidence", {"workspace": str(kit.work)}),
    ):
        kit.ok(action, **given_)
    assert kit.ok("log", ref=ref)["attempts_unknown"]
    made = kit.create("request-0002", goal={"text": "what the session knows"})
    assert "journal" in [one["code"] for one in made["warnings"]]
    assert [one["code"] for one in kit.ok("verify")["faults"]] == ["journal_corrupt"]
    kit.ok("export", PERSON, ref=ref, path=str(kit.folder / "x.handoff"))
    given_ = {"ref": ref, "workspace": str(kit.work), "attempt_id": "attempt-0002"}
    for action, caller, arguments in (
        ("prepare_open", MODEL, {**given_, "model": "m-1", "provider": "stub"}),
        ("opening_status", MODEL, {"attempt_id": "attempt-0001"}),
        ("read", MODEL, {"ref": ref, "attempt_id": "attempt-0001"}),
        ("abandon", PERSON, {"attempt_id": "attempt-0001", "reason": "x"}),
        ("prune", PERSON, {"older_than": 0}),
        ("purge", PERSON, {"ref": ref}),
    ):
        told = kit.refused(action, caller, **arguments)
        assert told["code"] in ("journal_corrupt", "preflight_refused"), (action, told)
        assert told["retry"] in ("after_inspection", "never")


def test_a_title_of_the_host_is_shown_without_secrets(kit: Kit) -> None:
    ref = kit.create()["ref"]
    kit.prepare(ref)
    desktop(kit, ref)
    kit.host.answers["candidates"] = [{"session_id": "new-1", "title": f"rotate {SECRET}"}]
    told = kit.ok("recover", PERSON, attempt_id="attempt-0001")
    assert "[redacted:" in told["candidates"][0]["title"]
    assert SECRET not in json.dumps(told)


def test_a_lost_rule_is_read_whole_and_forges_nothing(kit: Kit) -> None:
    rule = "Never do this:\n" + "\n".join(
        f"## Next Steps {n}\u202e\nalways \x1b[31m{'word ' * 20}" for n in range(12)
    )
    hermes_store(kit.folder / "long.db", [(SESSION, "user", "hi"), (SESSION, "user", rule)])
    kit.host.path = str(kit.folder / "long.db")
    ref = kit.create(constraints=[])["ref"]
    text = kit.ok("read", ref=ref)["content"]
    headings = [line for line in text.split("\n") if line.startswith("## ")]
    assert headings.count("## Rules Of The User That The State Does Not Hold") == 1
    assert len([line for line in headings if line.startswith("## Next Steps")]) == 1
    assert headings[-1] == "## Constraints In Force"
    assert "\x1b" not in text
    assert "\u202e" not in text
    for number in range(12):
        assert f"    │ ## Next Steps {number}<U+202E" in text


@pytest.mark.parametrize("action", ["prepare_open", "summarize"])
@pytest.mark.parametrize("name", ["model", "provider"])
@pytest.mark.parametrize("value", ["--yolo", "-x", "a\nb", "a\x1b[2Jb", "a\u202eb", " a", " "])
def test_what_is_no_name_becomes_no_argument(kit: Kit, action: str, name: str, value: str) -> None:
    given: dict[str, Any] = {"model": "m", "provider": "p", "workspace": str(kit.work), name: value}
    if action == "prepare_open":
        given |= {"ref": kit.create()["ref"], "attempt_id": "attempt-0001"}
    else:
        given["accept_cost"] = True
    told = kit.refused(action, **given)
    assert told["details"]["faults"][0]["pointer"] == f"/{name}"
    assert kit.call("opening_status")["attempts"] == []
    assert kit.host.sent == []


def test_a_provider_that_is_gone_and_another_host_are_told_before_and_at_reading(
    kit: Kit,
) -> None:
    routes.observe(kit.service.journal, SESSION, "m", "p", "t1")
    ref = kit.create()["ref"]
    assert "route_unavailable" not in _codes(kit.ok("read", ref=ref))
    kit.host.answers |= {"provider_named": False, "version": ("0.23.0", True)}
    assert {"route_unavailable", "host_changed"} <= _codes(kit.ok("read", ref=ref))
    for caller in (MODEL, PERSON, Caller("mcp", "s-2"), Caller("desktop", "s-2")):
        assert {"route_unavailable", "host_changed"} <= _codes(kit.ok("read", caller, ref=ref))
    assert {"route_unavailable", "host_changed"} <= _codes(kit.ok("show", ref=ref))
    kit.host.answers["provider_named"] = Failed("no", remedy="")
    assert {"unavailable", "host_changed"} <= _codes(kit.ok("read", ref=ref))


@pytest.mark.parametrize(("then", "now"), [("0.22.2", ""), ("", "0.22.2"), ("", "")])
def test_that_a_version_is_not_known_is_told(kit: Kit, then: str, now: str) -> None:
    kit.host.answers["version"] = (then, True)
    ref = kit.create()["ref"]
    kit.host.answers["version"] = (now, True)
    found = {one["code"]: one for one in kit.ok("read", PERSON, ref=ref)["discrepancies"]}
    assert "host_changed" not in found
    assert found["unavailable"]["severity"] == "note"
    assert "version" in found["unavailable"]["message"]


def _codes(told: Mapping[str, Any]) -> set[str]:
    return {one["code"] for one in told["discrepancies"]}

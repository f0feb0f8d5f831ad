"""What the pages may ask, and how the host gets at it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pathlib
import sqlite3
import sys
import types
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.sessions.test_service import SECRET, SESSION, Kit

from handoff.errors import ProfileMismatch
from handoff.plugins import hermes_handoff
from handoff.plugins.hermes_handoff.desk import ACTIONS, BODY_MAX, LOOKS, PRESSED, Desk
from handoff.plugins.hermes_handoff.runtime import Runtime
from handoff.sessions.actions import ACTIONS as ALL

REFUSAL = {"ok", "action", "code", "message", "retry", "remedy", "details"}


class Page:
    """A desk over real files."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        held: dict[str, Any] = {}

        def service(_given: Any = None) -> Any:
            made = kit.another()
            made.held = held
            return made

        runtime = Runtime()
        runtime.service = service  # type: ignore[method-assign]
        self.runtime = runtime
        self.desk = Desk(runtime)

    def raw(self, body: bytes) -> dict[str, Any]:
        found = self.desk.answer(body)
        json.dumps(found, allow_nan=False)
        return found

    def call(self, action: Any, **given: Any) -> dict[str, Any]:
        return self.raw(json.dumps({"action": action, "arguments": given}).encode())

    def ok(self, action: str, **given: Any) -> dict[str, Any]:
        found = self.call(action, **given)
        assert found["ok"], found
        return found

    def refused(self, action: Any, **given: Any) -> dict[str, Any]:
        found = self.call(action, **given)
        assert not found["ok"], found
        assert set(found) == REFUSAL
        return found


@pytest.fixture
def page(tmp_path: pathlib.Path) -> Page:
    return Page(Kit(tmp_path))


@pytest.fixture
def ref(page: Page) -> str:
    made = page.kit.create()["ref"]
    page.kit.prepare(made, surface="desktop")
    return str(made)


def begin(page: Page, ref: str) -> dict[str, Any]:
    given = {"attempt_id": "attempt-0001", "ref": ref, "workspace": str(page.kit.work)}
    return page.ok("open_begin", **given)


# -- what it may do -----------------------------------------------------------------------------------


def test_only_what_a_person_presses_is_a_persons() -> None:
    assert set(PRESSED) == {name for name in ACTIONS if name in ALL and ALL[name].who != "model"}
    assert all(ALL[name].who == "model" and not ALL[name].writes for name in LOOKS)
    assert not {"create", "prepare_open", "read", "ack", "summarize"} & set(ACTIONS)


@pytest.mark.parametrize("action", [name for name in ALL if name not in ACTIONS])
def test_other_actions_are_not_there(page: Page, action: str) -> None:
    assert page.refused(action)["code"] == "usage"


def test_a_desktop_opening_from_end_to_end(page: Page, ref: str) -> None:
    attempt = {"attempt_id": "attempt-0001"}
    told = page.ok("attempt", **attempt)
    assert told["status"]["state"] == "prepared"
    assert told["frozen"]["source_session"] == SESSION
    assert told["frozen"]["workspace"] == str(page.kit.work)
    assert told["frozen"]["route"] == {"model": "m-1", "provider": "stub", "origin": "explicit"} | {
        name: value
        for name, value in told["frozen"]["route"].items()
        if name not in ("model", "provider", "origin")
    }
    begun = begin(page, ref)
    assert "attempt-0001" in begun["prompt"]
    assert begun["status"]["requested"] is True
    again = page.refused("open_begin", **attempt, ref=ref, workspace=str(page.kit.work))
    assert again["retry"] == "after_inspection"
    seen = page.ok("open_created", **attempt, session="s-new")
    assert (seen["state"], seen["prompt"]) == ("session_identified", "prompt_uncertain")
    assert page.ok("open_submitted", **attempt)["prompt"] == "sent"
    assert page.ok("confirm", **attempt)["user_confirmed"] is True
    assert page.ok("opening_status", **attempt)["resume_verified"] is False
    events = [one["kind"] for one in page.ok("recover", **attempt)["events"]]
    assert events.count("launch_intent") == 1


def test_a_proof_that_nothing_was_made_ends_it(page: Page, ref: str) -> None:
    begin(page, ref)
    told = page.ok("open_failed", attempt_id="attempt-0001", why=f"full {SECRET}")
    assert told["state"] == "launch_failed"
    assert page.refused("open_created", attempt_id="attempt-0001", session="s")["code"]
    assert SECRET not in json.dumps(page.ok("recover", attempt_id="attempt-0001"))


def test_another_process_can_not_go_on_with_an_opening(page: Page, ref: str) -> None:
    begin(page, ref)
    other = Page(page.kit)
    refused = other.refused("open_created", attempt_id="attempt-0001", session="s-new")
    assert refused["code"] == "not_allowed"


def test_the_source_is_never_its_own_destination(page: Page, ref: str) -> None:
    begin(page, ref)
    refused = page.refused("open_created", attempt_id="attempt-0001", session=SESSION)
    assert refused["code"] == "session_mismatch"
    assert page.ok("attempt", attempt_id="attempt-0001")["status"]["state"] == "requested"


# -- the page's own questions ----------------------------------------------------------------------------


def test_a_chat_is_looked_up_in_the_profile(page: Page) -> None:
    link = page.kit.folder / "link"
    link.symlink_to(page.kit.work)
    told = page.ok("capture", session=SESSION, workspace=str(link))
    assert told["workspace"] == str(page.kit.work)
    assert (told["profile"], told["session"]) == ("default", SESSION)
    assert told["messages"] > 0
    assert told["writer"]["allowed"] is False
    assert all(".llm.allow_" in key for key in told["writer"]["keys"])


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"session": "nobody"}, "source_unbound"),
        ({"workspace": "w"}, "usage"),
        ({"workspace": "/no/such/folder"}, "workspace_missing"),
        ({"workspace": "/a\0b"}, "usage"),
        ({"workspace": "/a\nb"}, "usage"),
        ({"workspace": ""}, "usage"),
        ({"workspace": 7}, "usage"),
        ({"session": None}, "usage"),
        ({"session": "x" * 5000}, "usage"),
        ({"session": "\ud800"}, "usage"),
        ({"more": "x"}, "usage"),
    ],
)
def test_a_chat_or_folder_that_is_none(page: Page, given: dict[str, Any], code: str) -> None:
    whole = {"session": SESSION, "workspace": str(page.kit.work), **given}
    assert page.refused("capture", **whole)["code"] == code


@pytest.mark.parametrize("mark", ["source = 'bot_room'", "title = 'Bot Chat'"])
def test_a_chat_of_a_bot_is_refused(page: Page, mark: str) -> None:
    with contextlib.closing(sqlite3.connect(page.kit.profile.sessions)) as db, db:
        db.execute(f"UPDATE sessions SET {mark}")
    given = {"session": SESSION, "workspace": str(page.kit.work)}
    assert page.refused("capture", **given)["code"] == "not_allowed"


def test_a_profile_without_sessions_has_no_chat(page: Page) -> None:
    pathlib.Path(page.kit.profile.sessions).unlink()
    given = {"session": SESSION, "workspace": str(page.kit.work)}
    assert page.refused("capture", **given)["code"] == "source_unbound"
    page.kit.host.path = ""
    assert page.refused("capture", **given)["code"] == "source_unbound"


def test_facts_tell_profile_host_and_consent(page: Page) -> None:
    page.kit.host.answers["config"] = {
        "plugins": {
            "entries": {
                "hermes-handoff": {
                    "llm": {"allow_model_override": True, "allow_provider_override": True}
                }
            }
        }
    }
    told = page.ok("facts")
    assert told["profile"] == "default"
    assert (told["version"], told["verified"]) == ("0.22.2", True)
    assert told["writer"] == {"allowed": True, "keys": []}


def test_a_look_writes_nothing(page: Page) -> None:
    before = page.kit.files()
    page.ok("opening_status")
    page.ok("list", scope="all")
    page.ok("facts")
    assert page.refused("attempt", attempt_id="attempt-0009")["code"] == "unknown_attempt"
    assert page.kit.files() == before


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"action": "facts", "more": 1}',
        b'{"action": ["facts"]}',
        b'{"action": null}',
        b'{"action": "facts", "arguments": []}',
        b'{"action": "facts", "arguments": "x"}',
        b'{"action": "__class__"}',
        b'{"arguments": {}}',
        b'{"action": "facts"} x',
        b" " * (BODY_MAX + 1),
    ],
)
def test_what_is_no_request_is_refused(page: Page, body: bytes) -> None:
    before = page.kit.files()
    found = page.raw(body)
    assert set(found) == REFUSAL
    assert found["code"] in ("usage", "input_too_large")
    assert page.kit.files() == before


VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["attempt-0001", SESSION, "/", "handoff://a/b", "\ud800", "x\0y"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
NAMES = st.sampled_from(
    sorted({name for action in ALL.values() for name in action.args} | {"nonsense", ""})
)


@given(action=st.sampled_from(ACTIONS), given_=st.dictionaries(NAMES, VALUE, max_size=5))
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_arguments_get_a_typed_answer(page: Page, action: str, given_: dict[str, Any]) -> None:
    found = page.call(action, **given_)
    assert found["ok"] or set(found) == REFUSAL
    assert found.get("code") != "internal", found


@given(body=st.binary(max_size=200))
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_bytes_get_a_typed_answer(page: Page, body: bytes) -> None:
    assert set(page.raw(body)) == REFUSAL


def test_a_profile_that_is_not_known_is_told(page: Page) -> None:
    def service(_given: Any = None) -> Any:
        raise ProfileMismatch("which profile this is can't be told")

    page.runtime.service = service  # type: ignore[method-assign]
    assert page.refused("facts")["code"] == "profile_mismatch"


def test_a_fault_of_our_own_is_told_without_its_text(page: Page) -> None:
    def service(_given: Any = None) -> Any:
        raise RuntimeError(SECRET)

    page.runtime.service = service  # type: ignore[method-assign]
    refused = page.refused("facts")
    assert (refused["code"], refused["retry"]) == ("internal", "after_inspection")
    assert SECRET not in json.dumps(refused)


def test_a_secret_in_a_call_is_not_repeated(page: Page) -> None:
    assert SECRET not in json.dumps(page.refused("attempt", attempt_id=SECRET + "é"))


# -- how the host loads it -----------------------------------------------------------------------------------


class Router:
    """As much of a router as the file uses."""

    def __init__(self) -> None:
        self.routes: dict[str, Any] = {}

    def post(self, path: str) -> Callable[[Any], Any]:
        def keep(function: Any) -> Any:
            self.routes[path] = function
            return function

        return keep


class Request:
    """A request whose body comes in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.taken = 0

    async def stream(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            self.taken += 1
            yield piece


async def _run(function: Any, *args: Any) -> Any:
    return function(*args)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    fastapi = types.ModuleType("fastapi")
    fastapi.APIRouter, fastapi.Request = Router, Request  # type: ignore[attr-defined]
    threads = types.ModuleType("fastapi.concurrency")
    threads.run_in_threadpool = _run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fastapi", fastapi)
    monkeypatch.setitem(sys.modules, "fastapi.concurrency", threads)


def load(folder: pathlib.Path) -> Any:
    """The file as the host loads it: by its path alone."""
    path = folder / "dashboard" / "plugin_api.py"
    spec = importlib.util.spec_from_file_location("hermes_dashboard_plugin_x", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_route_answers_with_the_desk_of_the_loaded_plugin(host: None) -> None:
    del host
    folder = pathlib.Path(hermes_handoff.__file__).parent
    module = load(folder)
    assert module._package == "handoff.plugins.hermes_handoff"
    assert isinstance(module._desk, Desk)
    answer = await module.router.routes["/call"](Request(b'{"action": ', b'"nonsense"}'))
    assert answer["code"] == "usage"


async def test_a_body_without_end_is_not_read_to_its_end(host: None) -> None:
    del host
    module = load(pathlib.Path(hermes_handoff.__file__).parent)
    request = Request(*[b"x" * BODY_MAX] * 10)
    answer = await module.router.routes["/call"](request)
    assert answer["code"] == "input_too_large"
    assert request.taken == 2


def test_a_plugin_that_the_host_has_not_loaded_is_loaded(
    host: None, tmp_path: pathlib.Path
) -> None:
    del host
    root = pathlib.Path(__file__).parents[4]
    sys_before = set(sys.modules)
    maker = importlib.util.spec_from_loader("plugin_dir_script", loader=None)
    assert maker
    script = types.ModuleType("plugin_dir_script")
    script.__file__ = str(root / "scripts/plugin-dir")
    exec(
        compile((root / "scripts/plugin-dir").read_text(), script.__file__, "exec"), script.__dict__
    )
    script.__dict__["build"]("hermes_handoff", tmp_path / "p")
    try:
        module = load(tmp_path / "p")
        assert module._package == "hermes_handoff_page"
        assert type(module._desk).__module__ == "hermes_handoff_page.desk"
        assert load(tmp_path / "p")._package == "hermes_handoff_page"
    finally:
        for name in set(sys.modules) - sys_before:
            if name.split(".")[0] == "hermes_handoff_page":
                del sys.modules[name]


def test_the_manifest_names_what_is_there() -> None:
    folder = pathlib.Path(hermes_handoff.__file__).parent / "dashboard"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (folder / manifest["entry"]).is_file()
    assert (folder / manifest["api"]).is_file()
    plugin = (folder.parent / "plugin.yaml").read_text()
    assert f"name: {manifest['name']}\nversion: {manifest['version']}\n" in plugin
    desktop = (folder.parent / "desktop" / "plugin.js").read_text()
    assert f"id: '{manifest['name']}'" in desktop
    assert "defaultEnabled: false" in desktop


def test_the_desktop_file_imports_what_the_application_supplies() -> None:
    folder = pathlib.Path(hermes_handoff.__file__).parent
    lines = (folder / "desktop" / "plugin.js").read_text().splitlines()
    imports = [line for line in lines if line.startswith(("import ", "export "))]
    assert imports == [
        "import * as React from 'react';",
        "import * as sdk from '@hermes/plugin-sdk';",
        "export default {",
    ]

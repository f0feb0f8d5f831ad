"""The Desktop page in a real browser, against the real back end of both hosts."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.live.browser import Browser, Page
from tests.live.hermes_desk import Back, dashboard, with_harness
from tests.live.hermes_host import HermesHome
from tests.live.hermes_model import Answer, Asked, HermesModel
from tests.live.hermes_place import OPENING, RULE, TOOL, Mind, make_repository, state
from tests.support.waiting import until

ASKED = "Hand this session over, as the skill"
PREPARE, OPEN = "Prepare handoff from chat", "Open new session"


class DeskMind(Mind):
    """Also does what the page asks a source chat for. ``deaf``: it says something else."""

    deaf = False

    def _source(self, asked: Asked, told: dict[str, Any]) -> Answer:
        return super()._source(asked, told)

    def __call__(self, asked: Asked) -> Answer:
        if not asked.prompt.startswith(ASKED):
            return super().__call__(asked)
        if self.deaf:
            return "I would rather not."
        calls = [json.loads(line) for line in asked.prompt.splitlines() if line.startswith("{")]
        step = len(asked.results)
        if step and not asked.result()["ok"]:
            return f"REFUSED: {asked.results[-1]}"
        if step == len(calls):
            return f"DONE: {asked.results[-1]}"
        given = calls[step]
        if given["action"] == "create":
            given["state"] = state()
        if given["action"] == "prepare_open":
            given["ref"] = asked.result()["ref"]
        return [(TOOL, given)]


class Desk:
    """One back end and its window."""

    def __init__(self, host: HermesHome, mind: DeskMind, back: Back, browser: Browser) -> None:
        self.host, self.mind, self.back, self.browser = host, mind, back, browser
        self.workspace = str(host.work)
        self.page: Page = browser.page(f"{back.url}/handoff")
        self.page.until(
            "Boolean(window.__desk && document.getElementById('handoff-prepare'))", within=90
        )

    def reload(self) -> None:
        """The window is loaded anew, as after a crash of the renderer."""
        self.page.eval("window.__desk = null")
        self.page.call("Page.reload")
        self.page.until(
            "Boolean(window.__desk && document.getElementById('handoff-prepare'))", within=90
        )

    def forget(self) -> None:
        """A window that never saw a handoff."""
        self.page.eval("localStorage.clear()")
        self.reload()

    def chat(self) -> str:
        """A chat with one turn in it, focused and idle; its stored id."""
        made = self.page.eval(
            "(async () => { const made = await __desk.request('session.create', {cols: 80, cwd: "
            + json.dumps(self.workspace)
            + "}); __desk.focus(made.session_id, made.stored_session_id);"
            "await __desk.request('prompt.submit', {session_id: made.session_id, text: "
            + json.dumps(RULE)
            + "}); return made; })()"
        )
        runtime = json.dumps(made["session_id"])
        self.page.until(f"__desk.state.busyBySession.get()[{runtime}] === false", within=90)
        self.page.eval("__desk.sent.length = 0; localStorage.removeItem('desk.sent')")
        return str(made["stored_session_id"])

    def sent(self, method: str) -> int:
        """How often the window asked the host for that since the chat was made."""
        found: int = self.page.eval(
            "JSON.parse(localStorage.getItem('desk.sent') || '[]').filter((one) => one === "
            + json.dumps(method)
            + ").length"
        )
        return found

    def fault(self, name: str, how: dict[str, Any] | None) -> None:
        self.page.eval(f"__desk.faults[{json.dumps(name)}] = {json.dumps(how)}")

    def stage(self, *stages: str, within: float = 90) -> str:
        """Wait for one of these stages."""
        found = "document.getElementById('handoff-state').dataset.stage"
        told: str = self.page.until(f"{json.dumps(stages)}.includes({found}) && {found}", within)
        return told

    def shows(self, text: str) -> None:
        self.page.until(f"document.body.innerText.includes({json.dumps(text)})")

    def saved(self) -> dict[str, Any]:
        found: dict[str, Any] = self.page.eval(
            "JSON.parse(localStorage.getItem('hermes.plugin.hermes-handoff.flow'))"
        )
        return found

    def attempt(self) -> str:
        return str(self.saved()["ask"]["attempt"])

    def asked(self) -> list[Asked]:
        """The page's requests that reached the model, each counted once."""
        with self.host.model.heard:
            found = list(self.host.model.asked)
        return [one for one in found if one.prompt.startswith(ASKED) and not one.results]

    def openings(self, attempt: str) -> list[Asked]:
        with self.host.model.heard:
            found = list(self.host.model.asked)
        return [
            one
            for one in found
            if one.prompt.startswith(OPENING) and f'"{attempt}"' in one.prompt and not one.results
        ]

    def prepared(self) -> str:
        """A chat was handed over up to the frozen attempt; its id."""
        self.forget()
        self.chat()
        self.page.type("handoff-workspace", self.workspace)
        self.page.press(PREPARE)
        self.stage("prepared")
        return self.attempt()


@pytest.fixture(scope="module", params=["0.19", "0.22"])
def desk(
    request: pytest.FixtureRequest,
    hermes_plugin: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Desk]:
    mind = DeskMind()
    copy = with_harness(hermes_plugin, tmp_path_factory.mktemp("desk") / "hermes-handoff")
    with ExitStack() as stack:
        browser = stack.enter_context(Browser())
        model = stack.enter_context(HermesModel(mind))
        host = stack.enter_context(HermesHome(request.param, model))
        make_repository(host)
        host.install(copy)
        back = stack.enter_context(dashboard(host))
        yield Desk(host, mind, back, browser)


@pytest.fixture(autouse=True)
def no_faults(desk: Desk) -> Iterator[None]:
    desk.mind.deaf = False
    yield
    assert not desk.page.errors, desk.page.errors


def test_a_chat_is_handed_over_and_one_session_opens(desk: Desk) -> None:
    desk.forget()
    source = desk.chat()
    page = desk.page
    assert page.eval("__desk.plugin") == {"id": "hermes-handoff", "defaultEnabled": False}
    assert page.eval("__desk.registered.map((one) => [one.area, one.data.path])") == [
        ["routes", "/handoff"],
        ["sidebarNav", "/handoff"],
    ]
    turns = len(desk.asked())
    page.type("handoff-workspace", desk.workspace)
    page.press(PREPARE)
    desk.stage("prepared")
    assert len(desk.asked()) == turns + 1
    assert desk.sent("prompt.submit") == 1
    attempt = desk.attempt()
    bytes_before = desk.host.session_bytes(source)

    page.press(OPEN)
    desk.stage("opened")
    until(
        lambda: desk.back.call("attempt", attempt_id=attempt)["status"]["acknowledged"], within=90
    )
    page.until("document.body.innerText.includes('Confirm the new session')")
    found = desk.back.call("attempt", attempt_id=attempt)
    status = found["status"]
    assert status["state"] == "acknowledged"
    assert status["resume_verified"] is False
    assert status["destination"]["surface"] == "desktop"
    assert found["frozen"]["source_session"] == source != status["destination"]["session_id"]
    assert len(desk.openings(attempt)) == 1
    assert (desk.sent("session.create"), desk.sent("prompt.submit")) == (1, 2)
    assert desk.host.session_bytes(source) == bytes_before
    assert page.eval("__desk.opened") == [status["destination"]["session_id"]]

    page.press("Confirm the new session")
    until(lambda: desk.back.call("attempt", attempt_id=attempt)["status"]["user_confirmed"])
    desk.shows("None of these proves that the work went on.")

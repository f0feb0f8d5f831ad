"""The Desktop page in a real browser, against the real back end of both hosts."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.live.browser import Browser, Page
from tests.live.fence import children, end, fenced, namespace
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

    def said(self, session: str) -> list[tuple[str, str]]:
        """Who said what in a session, as the host has stored it."""
        path = self.host.home_of() / "state.db"
        with contextlib.closing(sqlite3.connect(path, timeout=20)) as db:
            return db.execute(
                "SELECT role, content FROM messages WHERE session_id = ? ORDER BY id", (session,)
            ).fetchall()

    def prepared(self) -> str:
        """A chat was handed over up to the frozen attempt; its id."""
        self.forget()
        self.chat()
        self.page.type("handoff-workspace", self.workspace)
        self.page.press(PREPARE)
        self.stage("prepared")
        return self.attempt()


@contextlib.contextmanager
def make_desk(release: str, plugin: pathlib.Path, folder: pathlib.Path) -> Iterator[Desk]:
    """One host of that release, with a window of its own."""
    mind = DeskMind()
    copy = with_harness(plugin, folder / "hermes-handoff")
    with ExitStack() as stack:
        browser = stack.enter_context(Browser())
        model = stack.enter_context(HermesModel(mind))
        host = stack.enter_context(HermesHome(release, model))
        make_repository(host)
        host.install(copy)
        back = stack.enter_context(dashboard(host))
        yield Desk(host, mind, back, browser)


@pytest.fixture(scope="module", params=["0.19", "0.22"])
def desk(
    request: pytest.FixtureRequest,
    hermes_plugin: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Desk]:
    with make_desk(request.param, hermes_plugin, tmp_path_factory.mktemp("desk")) as made:
        yield made


@pytest.fixture(params=["0.19", "0.22"])
def own_desk(
    request: pytest.FixtureRequest, hermes_plugin: pathlib.Path, tmp_path: pathlib.Path
) -> Iterator[Desk]:
    """For a test that ends its back end."""
    with make_desk(request.param, hermes_plugin, tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def no_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """The page throws nothing."""
    yield
    if "desk" in request.fixturenames:
        found = request.getfixturevalue("desk")
        found.mind.deaf = False
        assert not found.page.errors, found.page.errors


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
    runtime = json.dumps(desk.saved()["ask"]["runtime"])
    page.until(f"__desk.state.busyBySession.get()[{runtime}] === false", within=60)
    before = desk.said(source)
    assert [role for role, _ in before].count("user") == 2

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
    assert desk.said(source) == before  # opening adds nothing to the source
    assert page.eval("__desk.opened") == [status["destination"]["session_id"]]

    page.press("Confirm the new session")
    until(lambda: desk.back.call("attempt", attempt_id=attempt)["status"]["user_confirmed"])
    desk.shows("None of these proves that the work went on.")


def test_both_buttons_work_by_keyboard_and_say_why_not(desk: Desk) -> None:
    desk.forget()
    page = desk.page
    assert (
        page.eval(
            "['handoff-prepare', 'handoff-open'].map((id) => { const one = document.getElementById(id);"
            "return [one.getAttribute('aria-disabled'), one.disabled, one.tabIndex,"
            "document.getElementById(one.getAttribute('aria-describedby')) !== null]; })"
        )
        == [["true", False, 0, True]] * 2
    )
    desk.shows("Give the workspace as an absolute path.")
    page.type("handoff-workspace", desk.workspace)
    desk.shows("No chat is focused.")
    assert page.eval(
        "[...document.querySelectorAll('#handoff-title ~ form input')].every("
        "(one) => document.querySelector('label[for=\"' + one.id + '\"]') !== null)"
    )
    assert page.eval(
        "(() => { const one = document.getElementById('handoff-state');"
        "return [one.getAttribute('role'), one.getAttribute('aria-live')]; })()"
    ) == ["status", "polite"]

    desk.chat()
    page.until("document.getElementById('handoff-prepare').getAttribute('aria-disabled') === null")
    page.eval("document.getElementById('handoff-prepare').focus()")
    page.key("Enter", 13)
    desk.stage("prepared")
    page.until("document.getElementById('handoff-open').getAttribute('aria-disabled') === null")
    page.eval("document.getElementById('handoff-prepare').focus()")
    page.key("Tab", 9)
    assert page.eval("document.activeElement.id") == "handoff-open"
    page.key(" ", 32)
    desk.stage("opened")
    until(lambda: len(desk.openings(desk.attempt())) == 1, within=60)


#: what is set in the application, and what the page says to it
MISFITS = {
    "state.busyBySession.set({[desk.state.focusedSessionId.get()]: true})": "The chat is busy.",
    "state.focusedSessionOwner.set({connectionId: 'local', profile: 'bob'})": (
        "are of different profiles"
    ),
    "state.focusedSessionOwner.set({connectionId: 'far', profile: 'default'})": (
        "belongs to another connection"
    ),
    "state.gateway.set('connecting')": "no connection to the back end",
    "state.focusedStoredSessionId.set(null)": "it has no messages",
    "state.focusedSessionId.set(null)": "No chat is focused.",
    "routes = [{connectionId: 'local', profile: 'default', mode: 'remote'}]": "another computer",
    "routes = []": "is not known",
}


def test_a_chat_that_does_not_fit_is_not_asked(desk: Desk) -> None:
    desk.forget()
    desk.chat()
    page = desk.page
    page.type("handoff-workspace", desk.workspace)
    ready = "document.getElementById('handoff-prepare').getAttribute('aria-disabled') === null"
    page.eval(
        "void (__desk.kept = [__desk.routes,"
        "Object.entries(__desk.state).map(([name, atom]) => [name, atom.get()])])"
    )
    for change, text in MISFITS.items():
        page.until(ready)
        page.eval(
            f"((desk) => {{ desk.{change}; desk.state.cwd.set({json.dumps(text)}); }})(__desk)"
        )
        desk.shows(text)
        page.eval("document.getElementById('handoff-prepare').click()")
        page.eval("document.querySelector('form').requestSubmit()")
        assert desk.stage("idle") == "idle", change
        page.eval(
            "void (__desk.routes = __desk.kept[0],"
            "__desk.kept[1].forEach(([name, value]) => __desk.state[name].set(value)))"
        )
    assert desk.sent("prompt.submit") == 0


@pytest.mark.parametrize(
    ("session", "workspace", "text"),
    [
        ("20200101_000000_nobody", "", "is not one of this profile"),
        ("", "/no/such/folder", "is not there"),
    ],
)
def test_what_the_back_end_does_not_have_is_not_asked(
    desk: Desk, session: str, workspace: str, text: str
) -> None:
    desk.forget()
    desk.chat()
    if session:
        desk.page.eval(f"__desk.state.focusedStoredSessionId.set({json.dumps(session)})")
    desk.page.type("handoff-workspace", workspace or desk.workspace)
    desk.page.press(PREPARE)
    desk.shows(text)
    assert desk.stage("idle") == "idle"
    assert desk.sent("prompt.submit") == 0


def test_a_reload_while_the_chat_prepares_never_asks_again(desk: Desk) -> None:
    desk.forget()
    desk.chat()
    turns = len(desk.asked())
    desk.page.type("handoff-workspace", desk.workspace)
    desk.page.press(PREPARE)
    desk.stage("asked", "prepared")
    desk.reload()
    assert desk.stage("prepared") == "prepared"
    assert (len(desk.asked()), desk.sent("prompt.submit")) == (turns + 1, 1)


def test_an_answer_that_is_lost_blocks_until_a_person_looked(desk: Desk) -> None:
    """The turn went out, nobody knows; the chat prepares nothing."""
    desk.forget()
    desk.chat()
    desk.mind.deaf = True
    turns = len(desk.asked())
    desk.fault("prompt.submit", {"after": "socket closed"})
    desk.page.type("handoff-workspace", desk.workspace)
    desk.page.press(PREPARE)
    desk.stage("ask_uncertain")
    until(lambda: len(desk.asked()) == turns + 1, within=60)
    desk.fault("prompt.submit", None)
    for _ in range(2):
        assert desk.page.eval(
            "document.getElementById('handoff-prepare').getAttribute('aria-disabled')"
        )
        desk.reload()
        desk.stage("ask_uncertain")
    desk.shows("Inspect the source chat.")
    assert (len(desk.asked()), desk.sent("prompt.submit")) == (turns + 1, 1)
    desk.page.press("I have looked at the source chat: drop this request")
    assert desk.stage("idle") == "idle"


def test_a_turn_that_the_host_refuses_leaves_nothing(desk: Desk) -> None:
    desk.forget()
    desk.chat()
    desk.page.eval("__desk.state.focusedSessionId.set('00000000')")
    desk.page.type("handoff-workspace", desk.workspace)
    desk.page.press(PREPARE)
    desk.shows("The chat was not asked: the host refused.")
    assert desk.stage("idle") == "idle"
    assert desk.page.eval("localStorage.getItem('hermes.plugin.hermes-handoff.flow')") is None


def test_a_full_store_stops_both_buttons(desk: Desk) -> None:
    attempt = desk.prepared()
    desk.fault("storage", {"full": True})
    desk.page.press(OPEN)
    desk.shows("could not save what it is about to do")
    assert desk.back.call("attempt", attempt_id=attempt)["status"]["state"] == "prepared"
    assert desk.sent("session.create") == 0


@pytest.mark.parametrize(
    ("step", "how", "stage", "sessions", "prompts"),
    [
        ("open_begin", {"before": "gone"}, "prepared", 0, 0),
        ("open_begin", {"after": "gone"}, "open_uncertain", 0, 0),
        ("session.create", {"after": "gone"}, "open_uncertain", 1, 0),
        ("open_created", {"before": "gone"}, "open_uncertain", 1, 0),
        ("open_created", {"after": "gone"}, "prompt_uncertain", 1, 0),
        ("prompt.submit", {"before": "gone"}, "prompt_uncertain", 1, 0),
        ("prompt.submit", {"after": "gone"}, "opened", 1, 1),
        ("open_submitted", {"before": "gone"}, "opened", 1, 1),
    ],
)
def test_a_break_at_each_step_of_opening_opens_nothing_twice(
    desk: Desk, step: str, how: dict[str, str], stage: str, sessions: int, prompts: int
) -> None:
    attempt = desk.prepared()
    desk.fault(step, how)
    desk.page.press(OPEN)
    settled = [stage, "prompt_uncertain"] if stage == "opened" else [stage]
    desk.stage(*settled)
    for _ in range(2):
        desk.reload()
        desk.stage(stage)
        desk.page.eval(
            "document.getElementById('handoff-open').click()" if stage != "prepared" else "0"
        )
    rows = [row["id"] for row in desk.host.rows()]
    status = desk.back.call("attempt", attempt_id=attempt)["status"]
    assert len(desk.openings(attempt)) == prompts
    assert (desk.sent("session.create"), desk.sent("prompt.submit")) == (
        sessions,
        1 + (1 if step == "prompt.submit" or prompts else 0),
    )
    assert status["resume_verified"] is False
    events = desk.back.call("recover", attempt_id=attempt)["events"]
    assert [one["kind"] for one in events].count("launch_intent") == (stage != "prepared")
    assert len(set(rows)) == len(rows)


def test_a_prompt_that_is_missing_is_shown_to_be_pasted(desk: Desk) -> None:
    attempt = desk.prepared()
    desk.page.eval("__desk.faults['prompt.submit'] = {before: 'gone'}")
    desk.page.press(OPEN)
    desk.stage("prompt_uncertain")
    desk.reload()
    desk.stage("prompt_uncertain")
    desk.page.press("Inspect")
    desk.shows("Paste it into the new session yourself")
    prompt = desk.page.eval("[...document.querySelectorAll('pre')].at(-1).textContent")
    assert prompt.startswith(OPENING)
    assert attempt in prompt
    # The person pastes it into that session.
    runtime = desk.saved()["destination"]["runtime"]
    desk.page.eval(
        f"__desk.request('prompt.submit', {{session_id: {json.dumps(runtime)},"
        f"text: {json.dumps(prompt)}}})"
    )
    desk.stage("opened")
    until(
        lambda: desk.back.call("attempt", attempt_id=attempt)["status"]["acknowledged"], within=60
    )


def test_a_session_whose_record_was_lost_is_written_down(desk: Desk) -> None:
    attempt = desk.prepared()
    desk.fault("open_created", {"before": "gone"})
    desk.page.press(OPEN)
    desk.stage("open_uncertain")
    desk.reload()
    desk.page.press("Write down the session that was made")
    desk.stage("prompt_uncertain")
    status = desk.back.call("attempt", attempt_id=attempt)["status"]
    assert status["destination"]["session_id"] == desk.saved()["destination"]["session"]
    assert len(desk.openings(attempt)) == 0


def test_an_attempt_is_given_up_from_the_page(desk: Desk) -> None:
    attempt = desk.prepared()
    desk.page.type("handoff-reason", "changed my mind")
    desk.page.press("Give the attempt up")
    desk.stage("ended")
    assert desk.back.call("attempt", attempt_id=attempt)["status"]["state"] == "abandoned"
    desk.page.press("Begin anew")
    desk.stage("idle")


def test_the_record_can_be_looked_at_before(desk: Desk) -> None:
    desk.prepared()
    desk.page.press("Show the record")
    desk.shows("Make the parser in app.py total")
    desk.shows("SHA-256")


def test_the_new_session_gets_the_model_that_was_entered(desk: Desk) -> None:
    desk.forget()
    desk.chat()
    desk.page.type("handoff-workspace", desk.workspace)
    desk.page.type("handoff-model", "other-model")
    desk.shows("Give model and provider of the new session, or neither.")
    desk.page.type("handoff-provider", "custom")
    desk.page.press(PREPARE)
    desk.stage("prepared")
    attempt = desk.attempt()
    frozen = desk.back.call("attempt", attempt_id=attempt)["frozen"]
    assert (frozen["route"]["model"], frozen["route"]["origin"]) == ("other-model", "explicit")
    desk.page.press(OPEN)
    desk.stage("opened")
    until(lambda: len(desk.openings(attempt)) == 1, within=60)
    assert desk.openings(attempt)[0].body["model"] == "other-model"


def test_another_writer_without_consent_is_not_asked(desk: Desk) -> None:
    desk.forget()
    desk.chat()
    desk.page.type("handoff-workspace", desk.workspace)
    desk.page.type("handoff-writer-model", "writer")
    desk.page.type("handoff-writer-provider", "custom")
    desk.shows("Another writer may cost money")
    desk.page.eval("document.getElementById('handoff-cost').click()")
    desk.page.press(PREPARE)
    desk.shows("plugins.entries.hermes-handoff.llm.allow_model_override")
    assert desk.stage("idle") == "idle"
    assert desk.sent("prompt.submit") == 0


def test_in_italian_the_two_buttons_are_italian(desk: Desk) -> None:
    desk.forget()
    desk.page.eval("document.documentElement.lang = 'it'")
    desk.page.eval("Object.defineProperty(navigator, 'language', {value: 'it-IT'})")
    desk.page.eval(
        "history.pushState({}, '', '/config'); dispatchEvent(new PopStateEvent('popstate'))"
    )
    desk.page.until("document.getElementById('handoff-prepare') === null")
    desk.page.eval("document.documentElement.lang = 'it'")
    desk.page.eval(
        "history.pushState({}, '', '/handoff'); dispatchEvent(new PopStateEvent('popstate'))"
    )
    desk.page.until("document.getElementById('handoff-prepare') !== null")
    names = (
        "['prepare', 'open'].map((one) => document.getElementById('handoff-' + one).textContent)"
    )
    assert desk.page.eval(names) == ["Prepara handoff dalla chat", "Apri nuova sessione"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'{"action": "create"}',
        b'{"action": "attempt"}',
        b'{"action": "attempt", "arguments": {"attempt_id": 7}}',
        b'{"action": "capture", "arguments": {"session": "\\ud800", "workspace": "/"}}',
        b'{"action": "show", "arguments": {"ref": "../../etc/passwd"}}',
        b"[" * 60_000,
        b"x" * 1_000_000,
    ],
)
def test_bad_requests_get_a_typed_refusal(desk: Desk, body: bytes) -> None:
    status, answer = desk.back.post(body)
    assert (status, answer["ok"]) == (200, False)
    assert answer["code"] in ("usage", "input_too_large", "source_unbound")


def test_without_the_hosts_credential_there_is_no_answer(desk: Desk) -> None:
    status, _ = desk.back.post(b'{"action": "facts"}', token="another")
    assert status in (401, 403)


def test_what_a_test_starts_is_behind_a_fence(desk: Desk) -> None:
    """Browser and back end can neither see nor signal a process outside of their own."""
    for process in (desk.back.process, desk.browser.process):
        inside = children(process.pid)
        assert inside
        assert all(namespace(pid) != namespace(os.getpid()) for pid in inside)


def test_after_a_restart_what_was_lost_can_be_given_up(own_desk: Desk) -> None:
    """The host made a session, nobody heard which, and its back end ends."""
    desk = own_desk
    attempt = desk.prepared()
    desk.fault("session.create", {"after": "gone"})
    desk.page.press(OPEN)
    desk.stage("open_uncertain")
    status = desk.back.call("attempt", attempt_id=attempt)["status"]
    assert (status["certainty"], status["allowed_next"]) == ("certain", ["wait"])
    refused = desk.back.call("abandon", attempt_id=attempt, reason="x")
    assert (refused["code"], refused["retry"]) == ("already_reserved", "after_inspection")
    saved = desk.saved()
    end(desk.back.process)
    with dashboard(desk.host) as again:
        status = again.call("attempt", attempt_id=attempt)["status"]
        # Behind another fence nothing can tell whether the opener lives: a person has to.
        assert status["state"] == "requested"
        assert status["reservation"]["owner_alive"] is None
        given = {"attempt_id": attempt, "ref": status["ref"], "workspace": desk.workspace}
        assert again.call("open_begin", **given)["retry"] == "after_inspection"
        gone = {"attempt_id": attempt, "reason": "lost"}
        assert again.call("abandon", **gone)["code"] == "already_reserved"
        page = desk.browser.page(f"{again.url}/handoff")
        page.until("Boolean(window.__desk && document.getElementById('handoff-prepare'))", 90)
        kept = json.dumps(json.dumps(saved))
        page.eval(f"localStorage.setItem('hermes.plugin.hermes-handoff.flow', {kept})")
        page.call("Page.reload")
        page.type("handoff-reason", "lost")
        page.until("document.getElementById('handoff-gone') !== null")
        page.eval("document.getElementById('handoff-gone').click()")
        page.press("Give the attempt up")
        page.until("document.getElementById('handoff-state').dataset.stage === 'ended'")
        assert again.call("attempt", attempt_id=attempt)["status"]["state"] == "abandoned"
        assert not page.errors
    assert len(desk.openings(attempt)) == 0


def test_without_namespaces_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception), match="no user and process"):
        fenced(["hermes", "desktop"])

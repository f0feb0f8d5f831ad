"""The dashboard's page as the host itself loads it, in a real browser."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.live import hermes_desk
from tests.live.browser import Browser, Page
from tests.live.hermes_desk import Back, dashboard
from tests.live.hermes_place import Place, make_place
from tests.support.waiting import until


class Board:
    """A profile with a record, its back end, and a window."""

    def __init__(self, place: Place, back: Back, page: Page) -> None:
        self.place, self.back, self.page = place, back, page

    def shows(self, text: str) -> None:
        self.page.until(f"document.body.innerText.includes({json.dumps(text)})", within=90)


@pytest.fixture(scope="module", params=["0.19", "0.22"])
def board(request: pytest.FixtureRequest, hermes_plugin: pathlib.Path) -> Iterator[Board]:
    with ExitStack() as stack:
        browser = stack.enter_context(Browser())
        place = stack.enter_context(make_place(request.param, hermes_plugin))
        place.hand_off()
        back = stack.enter_context(dashboard(place.host))
        yield Board(place, back, browser.page(f"{back.url}/handoff"))


def test_attempts_are_shown_and_decided(board: Board) -> None:
    page = board.page
    board.shows("attempt-first")
    page.press("Show attempt-first")
    board.shows("The attempt is frozen; nothing was started.")
    board.shows("None of these proves that the work went on.")
    shown = page.eval("[...document.querySelectorAll('dt, dd')].map((one) => one.textContent)")
    facts = dict(zip(shown[::2], shown[1::2], strict=True))
    assert facts["resume_verified"] == "false"
    assert (facts["requested"], facts["certainty"]) == ("no", "certain")
    assert facts["Record"] == board.place.ref

    page.press("Inspect")
    board.shows("attempt_prepared")
    board.shows("You are a new session.")

    reasoned = "document.querySelector('[role=group] input')"
    assert page.eval(f"document.querySelector('label[for=' + {reasoned}.id + ']') !== null")
    page.type("handoff-reason", "no longer needed")
    page.press("Give the attempt up")
    until(lambda: board.place.status("attempt-first")["state"] == "abandoned", within=60)
    board.shows("A person has given the attempt up.")
    assert not page.errors


def test_a_refusal_is_told(board: Board) -> None:
    """The attempt was given up elsewhere meanwhile."""
    board.place.prepare("attempt-other")
    page = board.page
    page.press("Look again")
    page.press("Show attempt-other")
    assert board.back.call("abandon", attempt_id="attempt-other", reason="elsewhere")["ok"]
    page.type("handoff-reason", "too late")
    page.press("Give the attempt up")
    page.until("document.querySelector('[role=alert]') !== null")
    assert not page.errors


def test_files_of_the_back_end_are_not_served(board: Board) -> None:
    import urllib.error
    import urllib.request

    base = f"{board.back.url}/dashboard-plugins/hermes-handoff/"
    for name, served in (("flow.mjs", True), ("plugin_api.py", False), ("../plugin.yaml", False)):
        try:
            with urllib.request.urlopen(base + name, timeout=30) as answer:
                found = answer.headers.get_content_type() == "application/javascript"
        except urllib.error.HTTPError:
            found = False
        assert found is served, name


def test_where_plugins_run_in_a_process_of_their_own(
    hermes_plugin: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also there an opening goes on in the process that began it; and each profile has its own."""
    with make_place("0.22", hermes_plugin) as place:
        place.hand_off()
        place.host.run("profile", "create", "bob").ok()
        isolated = "plugins:\n  isolation: host\n  enabled:\n    - hermes-handoff\n"
        for profile in ("default", "bob"):
            place.host.configure(profile, more=isolated)
        place.host.install(hermes_plugin, "bob")
        attempt = {"attempt_id": "attempt-first"}
        with dashboard(place.host) as back:
            assert back.call("facts")["profile"] == "default"
            begun = back.call("open_begin", **attempt, ref=place.ref, workspace=place.workspace)
            assert begun["ok"], begun
            made = back.call("open_created", **attempt, session="20260101_000000_abcdef")
            assert made["state"] == "session_identified"
            assert back.post(b"[[")[1]["code"] == "usage"
            monkeypatch.setattr(hermes_desk, "PATH", f"{hermes_desk.PATH}?profile=bob")
            assert back.call("facts")["profile"] == "bob"
            assert back.call("attempt", **attempt)["code"] == "unknown_attempt"

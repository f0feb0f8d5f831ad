"""A headless Chromium, driven over its debugging socket.

with Browser() as browser:
    page = browser.page("http://127.0.0.1:1234/handoff")
    page.until("document.title")          the first true value of an expression
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import urllib.request
from typing import Any, Self

import pytest
from websockets.sync.client import connect

from tests.live.fence import end, fenced
from tests.support.waiting import until

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The browser; without one the test is skipped: it is the system's, not a package of ours."""
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("there is no Chromium (apt-get install chromium)")


class Browser:
    """One process with a profile of its own."""

    def __init__(self) -> None:
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="hb-"))
        argv = [
            chromium(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={self.home}/profile",
            "--window-size=1200,1400",
            "--lang=en",
            "about:blank",
        ]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}
        with (self.home / "out").open("wb") as out:
            self.process = subprocess.Popen(
                fenced(argv), env=env, stdout=out, stderr=out, start_new_session=True
            )
        self._pages: list[Page] = []

    def __enter__(self) -> Self:
        try:
            self.port = int(until(self._listening, "the browser listens", within=60))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _listening(self) -> str:
        path = self.home / "profile" / "DevToolsActivePort"
        assert self.process.poll() is None, (self.home / "out").read_text("utf-8", "replace")
        return path.read_text().partition("\n")[0] if path.exists() else ""

    def __exit__(self, *_: object) -> None:
        for page in self._pages:
            page.close()
        end(self.process)
        until(lambda: _gone(self.home), "the browser's folder is removed")

    def page(self, url: str) -> Page:
        """A new tab at that address."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/json/new?about:blank", method="PUT"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            target = json.load(answer)
        page = Page(target["webSocketDebuggerUrl"])
        self._pages.append(page)
        page.go(url)
        return page


def _gone(folder: pathlib.Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)  # a process that is ending may still write
    return not folder.exists()


class Page:
    """One tab."""

    def __init__(self, address: str) -> None:
        self._stack = contextlib.ExitStack()
        self._socket = self._stack.enter_context(
            connect(address, max_size=64 * 1024 * 1024, open_timeout=30)
        )
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._stack.close()

    def call(self, method: str, **params: Any) -> Any:
        """One command of the protocol; what the page throws meanwhile is kept."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("method") == "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                thrown = details.get("exception", {}).get("description") or details.get("text")
                self.errors.append(str(thrown))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def eval(self, expression: str) -> Any:
        """The JSON value of an expression; a promise is awaited."""
        done = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, expression: str, within: float = 60) -> Any:
        """The first true value of an expression."""

        def look() -> Any:
            try:
                return self.eval(expression)
            except AssertionError:  # the page is on its way from one document to another
                return None

        try:
            return until(look, expression, within=within)
        except AssertionError as error:
            seen = self.eval("document.body ? document.body.innerText : ''")
            raise AssertionError(f"{error}\n{seen}\n{self.errors}") from None

    def press(self, label: str) -> None:
        """Click the one button that can be used and has exactly this text."""
        quoted = json.dumps(label)
        found = (
            "[...document.querySelectorAll('button')].filter((one) => "
            f"one.textContent === {quoted} && one.getAttribute('aria-disabled') !== 'true')"
        )
        self.until(f"{found}.length === 1")
        self.eval(f"{found}[0].click()")

    def type(self, element: str, text: str) -> None:
        """Set the text of an input as typing does."""
        self.until(f"document.getElementById({json.dumps(element)}) !== null")
        self.eval(
            "(() => { const one = document.getElementById(" + json.dumps(element) + ");"
            "const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;"
            f"set.call(one, {json.dumps(text)});"
            "one.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )

    def key(self, name: str, code: int) -> None:
        """Press one key, for whatever has the focus."""
        common = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if name == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, path: pathlib.Path) -> None:
        """A screenshot, as PNG."""
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

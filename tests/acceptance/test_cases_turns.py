"""What an executor prints and whom it calls."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import Home
from tests.support.plans import fake_plan
from tests.support.repository import Repository


def test_lines_that_are_no_messages_are_counted(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"noise": {"lines": 7}}, "commit"))["id"]
    done = agentd.wait_event(task, "completed")
    assert done["payload"]["unrecognised"] == {"line not JSON": 7}
    told = [e["payload"] for e in agentd.events(task) if e["type"] == "unrecognised"]
    assert [t["what"] for t in told] == ["line not JSON"], "told once"
    assert "is no message" in told[0]["sample"]
    quiet = agentd.dispatch(git_repo, fake_plan("commit"))["id"]
    assert "unrecognised" not in agentd.wait_event(quiet, "completed")["payload"]


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """(URL, what was asked of it) of a proxy that refuses everything."""
    asked: list[str] = []

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(503)

        def do_CONNECT(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_only_the_executor_uses_the_proxy(
    isolated_home: Home, git_repo: Repository, proxy: tuple[str, list[str]]
) -> None:
    url, asked = proxy
    names = [
        n for key in ("http", "https", "all") for n in (f"{key}_proxy", f"{key}_PROXY".upper())
    ]
    home = Home(isolated_home.path, {**isolated_home.env, **dict.fromkeys(names, url)})
    with run_agentd(home) as agentd:
        task = agentd.dispatch(
            git_repo, '@@do env\n@@do net {"url": "http://example.invalid/x"}\n@@do commit'
        )["id"]
        agentd.wait_event(task, "completed")
        shown = agentd.cli("attach", task, "--no-follow").ok().out
        assert all(name in shown for name in names), "it has the variables"
        for words in (
            ("tasks",),
            ("status", "--agentd", str(agentd.endpoint()["url"])),
            ("doctor",),
        ):
            agentd.cli(*words)
        agentd.cli("done", task).ok()
        agentd.cli("wait", task, "--follow", timeout=20).ok()
    assert asked == ["http://example.invalid/x"]

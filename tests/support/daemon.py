"""A real ``handoff agentd`` of its own for a test."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.console import HANDOFF, Cli, Ran
from tests.support.home import Home
from tests.support.leftovers import describe, end_marked, marked
from tests.support.repository import Repository
from tests.support.waiting import until

CONFIG = """\
listen: 127.0.0.1:0
token: {token}
datadir: {data}
executor:
  default: fake
"""


class Agentd:
    """One daemon: its files, its command line, and ways to hurt it."""

    def __init__(self, home: Home, extra_config: str = "") -> None:
        self.home = home
        self.dir = home.path / ".handoff"
        self.data = self.dir / "data"
        self.token = "00112233445566778899aabbccddeeff"
        self.log_path = home.path / "agentd.out"
        self.cli = Cli(home)
        self.process: subprocess.Popen[bytes] | None = None
        self.dir.mkdir(mode=0o700, exist_ok=True)
        config = self.dir / "config.yaml"
        if not config.exists():
            config.write_text(CONFIG.format(token=self.token, data=self.data) + extra_config)
            config.chmod(0o600)

    # -- life ----------------------------------------------------------------------------

    def start(self, *, env: dict[str, str] | None = None, wait: bool = True) -> None:
        """Start it, and wait until it answers."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [HANDOFF, "agentd"],
                cwd=self.home.path,
                env={**self.home.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until agentd.json names this process and it answers."""
        process = self.process
        assert process is not None

        def ready() -> bool:
            assert process.poll() is None, f"agentd ended with {process.returncode}\n{self.log()}"
            endpoint = self.endpoint()
            return endpoint.get("pid") == process.pid and self.cli("status").code == 0

        try:
            until(ready, "agentd answers", within=20)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from error

    def kill(self) -> None:
        """kill -9 of the daemon alone; its shims and executors live on."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        return self._signal(signal.SIGTERM)

    def restart(self, *, hard: bool = False) -> None:
        """End it (hard: kill -9) and start it again on the same data."""
        if hard:
            self.kill()
        else:
            self.stop()
        self.start()

    def _signal(self, number: int) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=20)

    # -- facts ---------------------------------------------------------------------------

    def endpoint(self) -> dict[str, Any]:
        """agentd.json, or {} while there is none."""
        try:
            found: dict[str, Any] = json.loads((self.dir / "agentd.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return found

    @property
    def socket_path(self) -> str:
        """Path of its control socket."""
        return str(self.endpoint()["socket"])

    def log(self) -> str:
        """What it has said so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    # -- tasks ---------------------------------------------------------------------------

    def dispatch(self, repository: Repository, plan: str, *args: str) -> dict[str, Any]:
        """Dispatch a plan from a repository; the Task."""
        cli = self.cli.within(repository.path)
        task: dict[str, Any] = (
            cli("dispatch", "--json", "--prompt", "-", *args, stdin=plan).ok().json()
        )
        return task

    def show(self, task: str) -> dict[str, Any]:
        """The task as ``handoff show --json`` gives it."""
        shown: dict[str, Any] = self.cli("show", task, "--json").ok().json()
        return shown

    def state(self, task: str) -> str:
        """The task's state now."""
        return str(self.show(task)["task"]["state"])

    def wait_state(self, task: str, *states: str, within: float = 15.0) -> dict[str, Any]:
        """Wait until the task is in one of the states; what ``show`` gives then."""

        def there() -> dict[str, Any] | None:
            shown = self.show(task)
            assert shown["task"]["state"] in states, f"{task} is {shown['task']['state']}"
            return shown

        return until(there, f"{task} in {states}", within=within)

    def ticket(self, task: str, *, after: str = "", within: float = 15.0) -> dict[str, Any]:
        """The one open ticket, once there is one; ``after``: the ref of an earlier one."""

        def there() -> dict[str, Any] | None:
            found = [t for t in self.tickets(task) if t["ref"] != after]
            return found[0] if found else None

        return until(there, f"a ticket of {task}", within=within)

    def wait_event(self, task: str, *types: str, within: float = 15.0) -> dict[str, Any]:
        """The newest event of one of the types, once there is one."""

        def there() -> dict[str, Any] | None:
            found = [e for e in self.events(task) if e["type"] in types]
            return found[-1] if found else None

        return until(there, f"{types} of {task}", within=within)

    def tickets(self, task: str) -> list[dict[str, Any]]:
        """The tickets that wait."""
        found: list[dict[str, Any]] = self.show(task)["pending_tickets"]
        return found

    def events(self, task: str) -> list[dict[str, Any]]:
        """All events of a task, ascending."""
        found: list[dict[str, Any]] = self.get(f"/api/tasks/{task}/events?all=1")
        return found

    def reply(self, task: str, *args: str) -> Ran:
        """``handoff reply``."""
        return self.cli("reply", task, *args)

    # -- the API -------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        """GET over the control socket; the JSON body of a 200."""
        status, body = self.call("GET", path)
        assert status == 200, f"GET {path}: {status} {body!r}"
        return body

    def call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Any call over the control socket: (HTTP status, JSON body or text)."""
        link = _OverSocket(self.socket_path)
        try:
            payload = None if body is None else json.dumps(body).encode()
            link.request(method, path, payload, headers or {})
            answer = link.getresponse()
            raw = answer.read()
        finally:
            link.close()
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw.decode(errors="replace")


class _OverSocket(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("agentd", timeout=20)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@contextmanager
def run_agentd(home: Home, extra_config: str = "", *, start: bool = True) -> Iterator[Agentd]:
    """An agentd that is gone afterwards, with all that it started.

    Fails when a task that is over still has processes: nothing may outlive its task.
    """
    agentd = Agentd(home, extra_config)
    try:
        if start:
            agentd.start()
        yield agentd
        _check_over_means_gone(agentd)
    finally:
        if agentd.process is not None and agentd.process.poll() is None:
            os.kill(agentd.process.pid, signal.SIGKILL)
            agentd.process.wait(timeout=10)
        end_marked(home.mark)
        left = describe(marked(home.mark))
        assert not left, f"these could not be ended: {left}"
        remove_stray_socket(agentd)


def _check_over_means_gone(agentd: Agentd) -> None:
    if agentd.process is None or agentd.process.poll() is not None:
        return
    # Clean-up after done and stop is an effect that is carried out after the commit.
    until(
        lambda: (
            not [
                task
                for task in agentd.get("/api/status")["active"]
                if task["state"] in ("completed", "failed") and task.get("procs")
            ]
        ),
        "no process of a task that is over",
    )


def remove_stray_socket(agentd: Agentd) -> None:
    """A socket whose path was too long lives in a folder of its own in the temporary
    directory; a killed daemon can't take it along."""
    path = agentd.endpoint().get("socket", "")
    folder = pathlib.Path(str(path)).parent
    if path and not folder.is_relative_to(agentd.home.path) and folder.name.startswith("handoff-"):
        for entry in folder.glob("*"):
            entry.unlink()
        folder.rmdir()

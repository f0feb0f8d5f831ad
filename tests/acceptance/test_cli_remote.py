"""Another machine's agentd, reached through a tunnel: here a forwarder on this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.daemon import Agentd
from tests.support.plans import fake_plan
from tests.support.repository import Repository


class Tunnel:
    """Forwards a port of its own to another, as ``ssh -L`` does."""

    def __init__(self, port: int) -> None:
        self._there = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._links: list[socket.socket] = []
        self._spawn(self._accept)

    def _spawn(self, work: object, *args: object) -> None:
        self._threads.append(threading.Thread(target=work, args=args))  # type: ignore[arg-type]
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._there)
            self._links += [near, far]
            self._spawn(self._pump, near, far)
            self._spawn(self._pump, far, near)

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self) -> None:
        """Break every connection that there is; new ones are taken."""
        for link in list(self._links):
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended already

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)
        for link in self._links:
            link.close()


@pytest.fixture
def tunnel(agentd: Agentd) -> Iterator[Tunnel]:
    made = Tunnel(int(str(agentd.endpoint()["url"]).rpartition(":")[2]))
    yield made
    made.close()


@pytest.fixture
def far(agentd: Agentd, tunnel: Tunnel) -> Path:
    """A coordinator's own configuration with the machine as target ``far``."""
    config = agentd.home.path / "coordinator" / "config.yaml"
    config.parent.mkdir()
    config.write_text(
        f"token: {'f' * 32}\ntargets:\n  far: {{addr: '127.0.0.1:{tunnel.port}', token: {agentd.token}}}\n"
    )
    config.chmod(0o600)
    return config


def test_a_task_for_another_machine(agentd: Agentd, git_repo: Repository, far: Path) -> None:
    agentd.cli.within(git_repo.path)("project", "add").ok()
    clone = Repository(agentd.home.path / "clone", agentd.home)
    agentd.home.git("clone", "-q", str(git_repo.path), str(clone.path), cwd=agentd.home.path)
    clone.git("remote", "set-url", "origin", git_repo.git("remote", "get-url", "origin"))
    here = agentd.cli.within(clone.path)
    flags = ("--config", str(far), "--target", "far")

    (clone.path / "app.py").write_text("changed\n")
    refused = here("dispatch", *flags, "--prompt", "x")
    assert refused.code == 3
    assert "app.py" in refused.err
    clone.git("checkout", "-q", "app.py")

    (clone.path / "untracked").write_text("")
    sent = here("dispatch", *flags, "--prompt", "-", stdin=fake_plan({"run": {"command": "true"}}))
    task = sent.ok().json()
    assert "don't travel" in sent.err
    assert task["repo_path"] == str(git_repo.path)
    assert task["base_commit"] == clone.head()

    asked = here("wait", *flags, task["id"]).ok().json()
    assert asked["type"] == "permission_request"
    shown = here("done", *flags, task["id"])
    assert shown.code == 3
    assert f"--config {far} --target far" in shown.err
    here("reply", *flags, task["id"], "--approve").ok()
    here("wait", *flags, task["id"], "--until-done", "--timeout", "20s")
    here("stop", *flags, task["id"]).ok()


def test_the_same_agentd_by_its_url_knows_the_folder(agentd: Agentd, git_repo: Repository) -> None:
    url = str(agentd.endpoint()["url"])
    here = agentd.cli.within(git_repo.path)
    (git_repo.path / "app.py").write_text("changed\n")
    task = here("dispatch", "--agentd", url, "--prompt", fake_plan({"note": {}})).ok().json()
    assert task["repo_path"] == str(git_repo.path)


def test_a_follower_over_a_tunnel_that_breaks(
    agentd: Agentd, git_repo: Repository, far: Path, tunnel: Tunnel
) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    flags = ("--config", str(far), "--target", "far")
    assert agentd.cli("wait", *flags, task).ok().json()["type"] == "permission_request"
    follower = agentd.cli.start("wait", *flags, task, "--follow")
    while agentd.show(task)["task"]["watchers"] == 0:
        assert follower.poll() is None
    tunnel.cut()
    agentd.cli("reply", task, "--approve").ok()
    agentd.cli("wait", task, "--until-done", "--timeout", "20s")
    agentd.cli("stop", task).ok()
    out, err = follower.communicate(timeout=20)
    assert follower.returncode == 0, err
    assert '"type":"failed"' in out.splitlines()[-1]

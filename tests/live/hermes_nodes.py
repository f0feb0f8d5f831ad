"""A home of Hermes with the plugin for nodes, and real nodes that dial its brain."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.live.hermes_host import HermesHome
from tests.live.hermes_model import HermesModel
from tests.support.waiting import until

PLUGIN = "hermes-node-plugin"


def settings(more: str = "") -> str:
    """The part of a profile's configuration that enables the plugin."""
    return f"plugins:\n  enabled:\n    - {PLUGIN}\n{more}"


class Nodes:
    """``host`` with its brain, ``files``: what the nodes let it read and write."""

    def __init__(self, host: HermesHome) -> None:
        self.host = host
        self.files = host.top / "files"
        self.files.mkdir()
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def node(self, *words: str, profile: str = "default") -> Any:
        """``hermes node … --json``, which must succeed."""
        before = () if profile == "default" else ("-p", profile)
        return json.loads(self.host.run(*before, "node", *words, "--json").ok().out)

    def listed(self, name: str = "lab") -> Any:
        """The node's row of ``hermes node list``."""
        lines = self.host.run("node", "list", "--json").ok().out.splitlines()
        return next(row for row in map(json.loads, lines) if row["name"] == name)

    def program(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "handoff.cli.hermes_node", *words]

    def config(self, name: str) -> pathlib.Path:
        return self.host.top / "nodes" / name / "config.toml"

    def pair(self, name: str) -> None:
        code = self.node("pair", name)["code"]
        done = subprocess.run(
            self.program(
                "pair", "--config", str(self.config(name)), "--allow", str(self.files), "-"
            ),
            input=code.encode(),
            env=self.host.env,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr

    def start(self, name: str) -> None:
        with open(self.host.top / f"{name}.err", "ab") as errors:
            self._children[name] = subprocess.Popen(
                self.program("run", "--config", str(self.config(name))),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=self.host.env,
                cwd=self.host.top,
            )
        until(lambda: self.state(name) == "connected", f"{name} is connected", within=40)

    def state(self, name: str) -> str:
        try:
            text = (self.config(name).parent / "status.json").read_text()
            return str(json.loads(text)["state"])
        except (OSError, ValueError):
            return ""

    def stop(self, name: str) -> None:
        child = self._children.pop(name)
        child.terminate()
        child.wait(30)

    def policy(self, name: str, text: str) -> None:
        path = self.config(name).parent / "policy.toml"
        path.write_text(text)
        path.chmod(0o600)

    def close(self) -> None:
        for name in list(self._children):
            self.stop(name)
        with contextlib.suppress(Exception):
            self.host.run("node", "status")


@contextmanager
def make_nodes(
    release: str, directory: pathlib.Path, *, more: str = "", top: str = "", hidden: bool = False
) -> Iterator[Nodes]:
    """A home of that release whose profile has one node, ``lab``, that is connected."""
    with HermesModel() as model, HermesHome(release, model) as host:
        host.configure(more=top + settings(more), hidden=hidden)
        host.install(directory, name=PLUGIN)
        made = Nodes(host)
        try:
            port = made.node("restart", "--port", "0")["port"]
            made.node("restart", "--port", str(port))
            made.pair("lab")
            made.start("lab")
            yield made
            bugs = [request["bug"] for request in model.requests if "bug" in request]
            assert not bugs, bugs[0]
        finally:
            made.close()

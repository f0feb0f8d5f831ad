"""A brain and nodes as real processes, for tests of what people type."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

SECONDS = 40.0


class Place:
    """One test's brain and nodes. Every program has its own home and folders."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.home = root / "home"
        self.files = root / "files"
        for folder in (self.home, self.files):
            folder.mkdir(parents=True)
        self._children: list[subprocess.Popen[bytes]] = []

    def env(self, node: str = "n1", more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "HANDOFF_HOME": str(self.home / ".handoff"),
            "HANDOFF_NODES": str(self.root / "brain"),
            "HERMES_NODE_CONFIG": str(self.config(node)),
            **(more or {}),
        }

    def config(self, node: str = "n1") -> pathlib.Path:
        return self.root / "nodes" / node / "config.toml"

    def run(
        self,
        *words: str,
        data: bytes = b"",
        code: int | None = 0,
        program: str = "main",
        seconds: float = 120,
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [sys.executable, "-m", f"handoff.cli.{program}", *words],
            input=data,
            capture_output=True,
            env=self.env(),
            cwd=self.root,
            timeout=seconds,
        )
        if code is not None:
            assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr)
        return done

    def nodes(self, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        """``handoff nodes …``"""
        return self.run("nodes", *words, **more)

    def node(self, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        """``hermes-node …``"""
        return self.run(*words, program="hermes_node", **more)

    def asked(self, *words: str, **more: Any) -> Any:
        """``handoff nodes … --json`` as a value."""
        return json.loads(self.nodes(*words, "--json", **more).stdout)

    def serve(self, *words: str) -> subprocess.Popen[bytes]:
        child = self._start("main", "nodes", "serve", "--port", "0", *words)
        assert child.stdout is not None
        json.loads(child.stdout.readline())
        # the same port for the next one
        settings = self.root / "brain" / "brain.toml"
        status = self.asked("status")
        text = settings.read_text().replace("port = 0", f"port = {status['port']}")
        settings.write_text(text)
        return child

    def pair(self, name: str = "n1", *words: str) -> None:
        code = self.asked("pair", name)["code"]
        where = str(self.config(name))
        self.node(
            "pair", "--config", where, "--allow", str(self.files), "-", *words, data=code.encode()
        )

    def start_node(self, name: str = "n1", *, wait: bool = True) -> subprocess.Popen[bytes]:
        child = self._start("hermes_node", "run", "--config", str(self.config(name)))
        if wait:
            self.until(lambda: self.status(name) == "connected")
        return child

    def status(self, name: str = "n1") -> str:
        try:
            text = (self.config(name).parent / "status.json").read_text()
            return str(json.loads(text)["state"])
        except (OSError, ValueError):
            return ""

    def until(self, condition: Any, seconds: float = SECONDS) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.02)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.root.glob("*.err")))

    def _start(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        with open(self.root / f"{len(self._children)}.err", "wb") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", f"handoff.cli.{program}", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self.env(),
                cwd=self.root,
            )
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in reversed(self._children):
            if child.poll() is None:
                child.terminate()
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(20)
            if child.poll() is None:
                child.kill()
                child.wait()
            if child.stdout is not None:
                child.stdout.close()
        # a brain that another command has started
        with contextlib.suppress(OSError, ValueError, KeyError, AssertionError):
            self.run("nodes", "stop", code=None)


@contextlib.contextmanager
def running(root: pathlib.Path) -> Iterator[Place]:
    """A brain with one node, both up."""
    place = Place(root)
    try:
        place.serve()
        place.pair()
        place.start_node()
        yield place
    finally:
        place.close()

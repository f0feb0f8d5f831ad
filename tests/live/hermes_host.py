"""A real Hermes with a home of its own, offline, driven by a test.

with HermesHome("0.22", model) as host:
    host.install(directory)
    host.ask("CALL hermes_handoff {...}")     one turn, to its end
    with host.terminal("chat", "-q", "hi") as screen: ...   under a pseudo-terminal
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fcntl import ioctl
from typing import Any, Self

import pytest

from tests.live.conftest import WANTED
from tests.live.harness import LIVE
from tests.live.hermes_model import HermesModel
from tests.support.home import GITCONFIG
from tests.support.waiting import until

RELEASES = ("0.19", "0.22")
MODEL = "fake-model"
PLUGIN_DIR = pathlib.Path(__file__).parents[2] / "scripts" / "plugin-dir"
#: runs inside the host's own interpreter
DISPATCH = """
import json, sys
from hermes_cli.plugins import discover_plugins
discover_plugins()
from tools.registry import registry
calls = json.load(sys.stdin)
if any(name != "hermes_handoff" for name, _, _ in calls):
    import model_tools
for name, arguments, known in calls:
    print("@@" + registry.dispatch(name, arguments, **known))
"""
#: what a screen program asks its terminal, and what a plain one answers
QUESTIONS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?6c", b"\x1b]11;?": b""}


def venv(release: str) -> pathlib.Path:
    """The venv of that release; without it the test is skipped, except in CI."""
    path = LIVE / f"hermes-{release}"
    if (path / "stamp").exists():
        return path
    if WANTED:
        pytest.fail(f"HANDOFF_LIVE is set and {path} is not there: run scripts/live-install")
    pytest.skip(f"Hermes {release} is not in .live (scripts/live-install fetches it)")


def plugin_dir(name: str, dest: pathlib.Path) -> pathlib.Path:
    """The self-contained directory of a plugin, as a release has it."""
    done = subprocess.run(
        [sys.executable, PLUGIN_DIR, name, dest], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return dest


@dataclass(frozen=True)
class Ran:
    """How a command of the host ended."""

    code: int
    out: str
    err: str

    def ok(self) -> Ran:
        assert self.code == 0, f"{self.code}\n{self.out}\n{self.err}"
        return self

    def json(self) -> Any:
        """The JSON value in what a turn said, behind ``DONE: ``, or in the whole output."""
        text = self.out.partition("DONE: ")[2] or self.out
        return json.loads(text)


class HermesHome:
    """A home for one release. ``root``: its HERMES_HOME."""

    def __init__(self, release: str, model: HermesModel) -> None:
        self.release, self.model = release, model
        self.venv = venv(release)
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="hh-")).resolve()
        self.root = self.top / "hermes"
        self.work = self.top / "work"
        for folder in (self.root, self.work, self.top / "home"):
            folder.mkdir()
        (self.top / "home" / ".gitconfig").write_text(GITCONFIG)
        self.env = {
            "PATH": f"{self.venv / 'bin'}:{_node_path()}/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.top / "home"),
            "HERMES_HOME": str(self.root),
            "GIT_CONFIG_NOSYSTEM": "1",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "NO_COLOR": "1",
            "HERMES_DISABLE_LAZY_INSTALLS": "1",
            "TZ": "UTC",
        }
        self.configure()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(), "the host's processes have ended")
        shutil.rmtree(self.top, ignore_errors=True)

    def processes(self) -> list[int]:
        """Every process that has this home in its environment, but for ourselves."""
        mark = f"HOME={self.top}/home".encode()
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) in (1, os.getpid()):
                continue
            with contextlib.suppress(OSError):
                if mark in pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    state = pathlib.Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2]
                    if state.split()[0] not in "ZX":
                        found.append(int(entry))
        return found

    # -- setting up --------------------------------------------------------------------

    def home_of(self, profile: str = "default") -> pathlib.Path:
        return self.root if profile == "default" else self.root / "profiles" / profile

    def configure(self, profile: str = "default", more: str = "", hidden: bool = False) -> None:
        """Write a profile's configuration: the model server, nothing downloaded, our plugin
        enabled. ``hidden``: as by default, the host hides plugins' tools behind a search."""
        search = "" if hidden else "tools:\n  tool_search:\n    enabled: off\n"
        text = f"""\
model:
  provider: custom
  default: {MODEL}
  base_url: {self.model.url}/v1
  api_key: sk-fake
  context_length: 131072
{search}security:
  tirith_enabled: false
  allow_lazy_installs: false
updates:
  check: false
telemetry:
  shared_metrics:
    enabled: false
    send: false
    offer_version: 2
approvals:
  destructive_slash_confirm: false
auxiliary:
  title_generation:
    enabled: false
{more}"""
        if "\nplugins:" not in f"\n{more}":
            text += "plugins:\n  enabled:\n    - hermes-handoff\n"
        home = self.home_of(profile)
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.yaml").write_text(text)

    def install(
        self, directory: pathlib.Path, profile: str = "default", name: str = "hermes-handoff"
    ) -> None:
        """Copy a plugin's directory into a profile."""
        target = self.home_of(profile) / "plugins" / name
        shutil.copytree(directory, target)

    # -- running -----------------------------------------------------------------------

    def run(
        self, *args: str, timeout: float = 90, cwd: pathlib.Path | None = None, **env: str
    ) -> Ran:
        """``hermes ARGS`` without a terminal, to its end."""
        done = subprocess.run(
            [str(self.venv / "bin" / "hermes"), *args],
            cwd=cwd or self.work,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            start_new_session=True,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ask(self, text: str, *args: str, session: str = "", profile: str = "") -> Ran:
        """One turn of the model. ``session``: of that session."""
        before = ["-p", profile] if profile else []
        if session:
            done = self.run(*before, "chat", "-Q", "--resume", session, "-q", text, *args).ok()
        else:
            done = self.run(*before, "chat", "-Q", "-q", text, *args).ok()
        return done

    def dispatch(
        self, *calls: tuple[str, dict[str, Any], dict[str, Any]], profile: str = "default"
    ) -> list[Any]:
        """Call tools as the host does, (name, arguments, what it knows of the caller), in one
        process of it and without a model. The results, as JSON."""
        done = subprocess.run(
            [str(self.venv / "bin" / "python"), "-c", DISPATCH],
            cwd=self.work,
            env={**self.env, "HERMES_HOME": str(self.home_of(profile))},
            input=json.dumps(calls),
            capture_output=True,
            text=True,
            timeout=90,
        )
        lines = [line[2:] for line in done.stdout.splitlines() if line.startswith("@@")]
        assert len(lines) == len(calls), f"{done.stdout}\n{done.stderr}"
        return [json.loads(line) for line in lines]

    def session(self, ran: Ran) -> str:
        """The id of the session of a quiet turn."""
        found = re.search(r"session_id:\s*(\S+)", ran.out + ran.err)
        assert found, ran.out + ran.err
        return found[1]

    @contextlib.contextmanager
    def terminal(self, *args: str, cwd: pathlib.Path | None = None, **env: str) -> Iterator[Screen]:
        """``hermes ARGS`` under a terminal of its own; ended at the end."""
        argv = [str(self.venv / "bin" / "hermes"), *args]
        screen = Screen(argv, {**self.env, **env}, cwd or self.work)
        try:
            yield screen
        finally:
            screen.close()

    # -- looking -----------------------------------------------------------------------

    def rows(self, profile: str = "default") -> list[dict[str, Any]]:
        """The session rows of a profile, oldest first."""
        path = self.home_of(profile) / "state.db"
        if not path.exists():
            return []
        with contextlib.closing(sqlite3.connect(path, timeout=20)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute("SELECT * FROM sessions ORDER BY started_at")]

    def session_bytes(self, session: str, profile: str = "default") -> str:
        """A digest of everything that the store holds of a session."""
        path = self.home_of(profile) / "state.db"
        with contextlib.closing(sqlite3.connect(path, timeout=20)) as db:
            rows = db.execute("SELECT * FROM sessions WHERE id = ?", (session,)).fetchall()
            rows += db.execute(
                "SELECT * FROM messages WHERE session_id = ? ORDER BY id", (session,)
            ).fetchall()
        assert rows
        return hashlib.sha256(repr(rows).encode()).hexdigest()


class Screen:
    """A program under a pseudo-terminal, read all the time, as a person's window does."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: pathlib.Path) -> None:
        self.master, slave = pty.openpty()
        ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self.text = b""
        self._done = threading.Event()
        try:
            # setsid -c: a session of its own with this terminal as its controlling one
            self.process = subprocess.Popen(
                ["setsid", "-c", "-w", *argv],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=env,
                cwd=cwd,
                start_new_session=False,
            )
        finally:
            os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:
                break
            if not chunk:
                break
            self.text += chunk
            for question, answer in QUESTIONS.items():
                if question in chunk and answer:
                    with contextlib.suppress(OSError):
                        os.write(self.master, answer)
        self._done.set()

    @property
    def shown(self) -> str:
        """All that was written, without the terminal's own sequences."""
        plain = re.sub(
            rb"\x1b(\[[0-9;?<>=!]*[a-zA-Z@`]|\][^\x07\x1b]*(\x07|\x1b\\)|[()].|.)", b"", self.text
        )
        return plain.decode("utf-8", "replace")

    def expect(self, text: str, within: float = 60) -> None:
        """Wait until that stands on the screen."""

        def seen() -> bool:
            if text in self.shown:
                return True
            if self._done.is_set():
                pytest.fail(
                    f"it ended ({self.process.poll()}) without {text!r}: {self.shown[-3000:]}"
                )
            return False

        until(seen, f"it shows {text!r}", within=within)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def settle(self, quiet: float = 0.5, within: float = 6) -> None:
        """Wait until nothing new was written for a while: the program waits for keys. (A host
        takes keys that come together with Enter for a paste.)"""
        seen, since = len(self.text), time.monotonic()
        deadline = since + within

        def rests() -> bool:
            nonlocal seen, since
            now = time.monotonic()
            if len(self.text) != seen and now < deadline:
                seen, since = len(self.text), now
            return now - since >= quiet

        until(rests, "the screen rests", within=within + quiet + 5)

    def say(self, text: str, heard: Callable[[], bool]) -> None:
        """Type a line as a person does, with a pause before Enter; wait until it is heard. A
        program that was not ready yet may have dropped keys: then Enter alone sends the rest,
        and it is typed once more."""
        for _ in range(3):
            self.type(text)
            self.settle(quiet=1)
            self.type("\r")
            try:
                until(heard, f"{text!r} is heard", within=15)
            except AssertionError:
                continue
            self.settle(quiet=1)
            return
        pytest.fail(f"{text!r} was not heard: {self.shown[-2000:]}")

    def wait(self, within: float = 60) -> int:
        """The exit code, once it has ended."""
        return self.process.wait(within)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        # Closing our end hangs the terminal up for whoever still has the other. The reader
        # is woken by that once nobody has it.
        if not self._done.wait(2):
            self.hang_up()
        self._reader.join(20)
        assert not self._reader.is_alive(), "something still has the terminal"
        os.close(self.master)

    def hang_up(self) -> None:
        """End, by SIGHUP and then for good, whoever still has this terminal."""
        name = os.ptsname(self.master)
        for number in (signal.SIGHUP, signal.SIGKILL):
            for pid in _users(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if self._done.wait(3):
                return


def _users(terminal: str) -> list[int]:
    """The processes that have this terminal open. Never ourselves."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in (1, os.getpid()):
            continue
        with contextlib.suppress(OSError):
            fds = [os.readlink(one) for one in pathlib.Path(f"/proc/{entry}/fd").iterdir()]
            if terminal in fds:
                found.append(int(entry))
    return found


def _node_path() -> str:
    node = shutil.which("node")
    return f"{os.path.dirname(node)}:" if node else ""

"""The examples of the documents, run for real.

A fenced block marked ``console`` is a terminal: lines that begin with ``$ `` are typed
(lines that begin with ``> `` continue them), the others are what is printed. All blocks of
a document are one session, in a private home with the repository ``~/calc``. A comment
``<!-- examples: agentd; tasks: ID ... -->`` says whether agentd runs already (``fresh``:
nothing does) and under which ids the document knows the tasks that are dispatched in it. A brain that a document
starts listens on a free port, and ``hermes-node run`` is followed by waiting for its link.

What a run prints is translated into the document's terms (ids, home, user, port), and then
compared loosely: other commit ids, times, durations and sizes are no difference, and a line
``...`` stands for any lines.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from handoff.nodes.brain.main import Settings, save_settings
from tests.support.daemon import run_agentd
from tests.support.home import Home, make_home
from tests.support.leftovers import end_marked
from tests.support.repository import make_repository

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIRECTIVE = re.compile(r"<!-- examples: (?P<start>agentd|fresh)(?:; tasks: (?P<tasks>[^>]*?))? -->")
#: columns of the terminal in which the examples run
COLUMNS = 96
#: seconds for one command
LIMIT_S = 30.0
DOC_HOME = "/home/ada"
DOC_PORT = "127.0.0.1:7777"
DOC_BRAIN = "127.0.0.1:7000"


@dataclass
class Step:
    """One command and what the document says that it prints. ``first`` and ``after``: the
    document's lines of that output, from 0."""

    command: str
    expected: list[str]
    line: int
    first: int
    after: int
    actual: list[str] = field(default_factory=list)
    code: int = 0


@dataclass
class Document:
    """A document with its examples."""

    path: pathlib.Path
    lines: list[str]
    fresh: bool
    tasks: list[str]
    steps: list[Step]


def documents() -> list[pathlib.Path]:
    """Every document that has examples."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [p for p in found if p.is_file() and "```console" in p.read_text("utf-8")]


def parse(path: pathlib.Path) -> Document:
    """A document's examples, in their order."""
    text = path.read_text("utf-8")
    lines = text.split("\n")
    found = DIRECTIVE.search(text)
    assert found, f"{path}: it has console blocks and no <!-- examples: ... --> comment"
    tasks = (found["tasks"] or "").split()
    steps: list[Step] = []
    fence = ""
    for index, line in enumerate(lines):
        if fence and line.strip() == fence:
            fence = ""
        elif not fence and (opening := re.fullmatch(r"(`{3,})console", line)):
            fence = opening[1]
        elif fence:
            _read(line, index, steps, begins=lines[index - 1] == f"{fence}console")
    return Document(path, lines, found["start"] == "fresh", tasks, steps)


def _read(line: str, index: int, steps: list[Step], *, begins: bool) -> None:
    if line.startswith("$ "):
        steps.append(Step(line[2:], [], index + 1, index + 1, index + 1))
        return
    assert not begins, f"line {index + 1}: a console block begins with '$ '"
    step = steps[-1]
    if line.startswith(("> ", ">")) and not step.expected and _continues(step.command):
        step.command += "\n" + line[1:].removeprefix(" ")
        step.first = step.after = index + 1
    else:
        step.expected.append(line)
        step.after = index + 1


def _continues(command: str) -> bool:
    heredoc = re.search(r"<<'?(\w+)'?", command)
    return command.endswith("\\") or bool(
        heredoc and command.rsplit("\n", maxsplit=1)[-1] != heredoc[1]
    )


class Session:
    """A terminal in a private home."""

    def __init__(self, home: Home, document: Document) -> None:
        self.home = home
        self.document = document
        self.cwd = str(home.path)
        bin_dir = os.path.dirname(sys.executable)
        path = f"{bin_dir}:{home.env.get('PATH', '/usr/bin:/bin')}"
        self.env = {**home.env, "PATH": path, "TERM": "xterm", "GIT_PAGER": "cat"}
        self.tasks: dict[str, str] = {}
        #: refs of handoff records, as the document knows them
        self.refs: dict[str, str] = {}
        #: pairing codes, likewise
        self.codes: dict[str, str] = {}

    def run(self, step: Step) -> None:
        """Type a command and keep what it prints, in the document's terms."""
        command = step.command
        for known, real in self.tasks.items():
            command = command.replace(known, real).replace(known[:8], real[:8])
        for known, real in (*self.refs.items(), *self.codes.items()):
            command = command.replace(known, real)
        command = re.sub(r"\bhandoff agentd\b", "handoff agentd --listen 127.0.0.1:0", command)
        output, step.code = self._terminal(command)
        if "handoff dispatch" in command:
            self._learn_tasks()
        if "hermes-node run" in command:
            self._await_link()
        _learn(self.refs, _refs, step.expected, output)
        _learn(self.codes, _codes, step.expected, output)
        step.actual = self._translated(output)

    def _terminal(self, command: str) -> tuple[str, int]:
        """Run it in a terminal; (what it printed, its exit code)."""
        note = self.home.path / ".cwd"
        # A reader's terminal stays open, this one does not.
        kept = "trap '' HUP\n" if command.endswith("&") else ""
        script = f'{kept}cd -- "$1" || exit 99\n{command}\ncode=$?\npwd >"$2"\nexit $code\n'
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, COLUMNS, 0, 0))
        try:
            process = subprocess.Popen(
                ["bash", "--noprofile", "--norc", "-c", script, "bash", self.cwd, str(note)],
                env=self.env,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
            os.close(theirs)
            output = _until_end(ours, process)
        finally:
            os.close(ours)
        self.cwd = note.read_text().rstrip("\n")
        return output, process.returncode

    def _learn_tasks(self) -> None:
        listed = subprocess.run(
            ["handoff", "tasks", "--json"], env=self.env, capture_output=True, text=True, timeout=30
        )
        ids = [json.loads(line)["id"] for line in listed.stdout.splitlines()][::-1]
        assert len(ids) <= len(self.document.tasks), "name the task in the examples comment"
        self.tasks = dict(zip(self.document.tasks, ids, strict=False))

    def _await_link(self) -> None:
        """Wait until the node that was started serves its brain."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            told = subprocess.run(
                ["hermes-node", "status", "--json"],
                env=self.env,
                capture_output=True,
                text=True,
                timeout=30,
            )
            if told.returncode == 0 and json.loads(told.stdout)["state"] == "connected":
                return
            assert time.monotonic() < deadline, told.stdout + told.stderr
            time.sleep(0.05)

    def _translated(self, output: str) -> list[str]:
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07", "", output).replace(
            "\r\n", "\n"
        )
        for known, real in self.tasks.items():
            text = text.replace(real, known).replace(real[:8], known[:8])
        for known, real in (*self.refs.items(), *self.codes.items()):
            text = text.replace(real, known)
        text = text.replace(str(self.home.path), DOC_HOME)
        text = text.replace(f"{DOC_HOME}/.handoff/data", f"{DOC_HOME}/.handoff")
        text = text.replace(f"coordinator:{getpass.getuser()}", "coordinator:ada")
        text = re.sub(r"(?<=wss://)127\.0\.0\.1:\d+", DOC_BRAIN, text)
        text = re.sub(r"(?<!wss://)127\.0\.0\.1:\d+", DOC_PORT, text)
        lines = [line.rstrip() for line in text.split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def _refs(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"handoff://[a-z2-7]{32}/[a-z2-7]{32}", text)))


def _codes(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"\bhn1[a-z2-7]{40,}", text)))


def _learn(
    names: dict[str, str],
    find: Callable[[str], list[str]],
    expected: list[str],
    output: str,
) -> None:
    """Names that are new in the document's output are those that are new in this one."""
    known = [r for r in find("\n".join(expected)) if r not in names]
    real = [r for r in find(output) if r not in names.values()]
    names |= dict(zip(known, real, strict=False))


def _until_end(terminal: int, process: subprocess.Popen[bytes]) -> str:
    """Everything printed until the process has ended; what it left running is not waited
    for."""
    output = b""
    deadline = time.monotonic() + LIMIT_S
    while True:
        ended = process.poll() is not None
        ready, _, _ = select.select([terminal], [], [], 0.0 if ended else 0.05)
        if ready:
            try:
                data = os.read(terminal, 65536)
            except OSError:  # Linux: nobody holds the other end any more
                data = b""
            if not data:
                break
            output += data
        elif ended:
            break
        if time.monotonic() > deadline:
            os.killpg(process.pid, 9)
            process.wait()
            raise AssertionError(f"not over after {LIMIT_S:g} s: {output.decode(errors='replace')}")
    process.wait(timeout=10)
    return output.decode("utf-8", "replace")


@contextlib.contextmanager
def session(document: Document) -> Iterator[Session]:
    """A terminal for a document; nothing that it started is left afterwards."""
    with make_home() as home:
        make_repository(home)
        if any("handoff nodes" in step.command for step in document.steps):
            brain = home.path / ".handoff" / "nodes"
            brain.parent.mkdir(mode=0o700)
            brain.mkdir(mode=0o700)
            save_settings(str(brain), Settings(port=0))
        with contextlib.ExitStack() as stack:
            if not document.fresh:
                stack.enter_context(run_agentd(home))
            stack.callback(end_marked, home.mark)
            yield Session(home, document)


LOOSE = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b", "<id>"),
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b", "<hex>"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?\b", "<time>"),
    (r"\b\d{1,2}:\d\d(:\d\d)?\b", "<time>"),
    (r"\b\d+(\.\d+)? ?(ms|s|m|min|h|seconds?|minutes?)\b", "<span>"),
    (r"\b(just )?now\b", "<span>"),
    (r"\b\d+(\.\d+)? ?([KMG]i?)?B\b", "<size>"),
    (r"SHA256:[A-Za-z0-9+/]{43}", "<fingerprint>"),
    (r"\b(linux|darwin) (x86_64|aarch64|arm64) \S+", "<machine>"),
    (r"\b(pid|Python|version|git) [\d.]+\b", "<number>"),
    (r"\b(delivered|acknowledged)\b", "<delivery>"),
    (r"\b(handed to the executor|the executor has taken it)\b", "<delivery>"),
    (r"[─━-]{3,}", "---"),
    (r"\s+", " "),
)


def loosely(lines: list[str]) -> list[str]:
    """The lines without what differs from run to run."""
    found = []
    for line in lines:
        text = line
        for pattern, stand_in in LOOSE:
            text = re.sub(pattern, stand_in, text)
        if text.strip():
            found.append(text.strip())
    return found


def same(expected: list[str], actual: list[str]) -> bool:
    """Whether a run printed what the document says."""
    return _match(loosely(expected), loosely(actual))


def _match(expected: list[str], actual: list[str]) -> bool:
    if not expected:
        return not actual
    if expected[0] == "...":
        return any(_match(expected[1:], actual[n:]) for n in range(len(actual) + 1))
    return bool(actual) and expected[0] == actual[0] and _match(expected[1:], actual[1:])


def run(document: Document) -> None:
    """Run all steps of a document; their ``actual`` and ``code`` are filled in."""
    with session(document) as terminal:
        for step in document.steps:
            terminal.run(step)

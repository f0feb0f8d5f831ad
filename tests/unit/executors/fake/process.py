"""A real fake executor with the real driver, for tests."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from handoff.errors import NotAllowed
from handoff.executors.acp import AcpDriver
from handoff.executors.catalog import BUILT_IN
from handoff.executors.contract import (
    Allow,
    Answer,
    Deny,
    PermissionAsked,
    Prompt,
    QuestionAsked,
    Send,
    Session,
    SessionReady,
    StartFailed,
    Text,
    TurnEnded,
)
from handoff.wire.jsonrpc import LineSplitter

#: seconds that any single wait may take
DEADLINE = 15.0


class Fake:
    """The process, its driver and everything observed. Use as a context manager."""

    def __init__(self, cwd: Path, *options: str, resume=None, env=None):
        self.cwd = cwd
        self.observed = []
        self.driver = AcpDriver(BUILT_IN["fake"])
        self._splitter = LineSplitter()
        self._lines: list[bytes] = []
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "handoff.executors.fake", *options],
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
        self.take(self.driver.open(Session(cwd=str(cwd), new_id="n", resume=resume)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()

    def take(self, outputs):
        for output in outputs:
            if isinstance(output, Send):
                try:
                    self.process.stdin.write(output.data)
                except BrokenPipeError:
                    pass
            else:
                self.observed.append(output)
        return [o for o in outputs if not isinstance(o, Send)]

    def do(self, command):
        return self.take(self.driver.command(command))

    def step(self):
        """Feed the next line, or the end of the process; what it led to."""
        deadline = time.monotonic() + DEADLINE
        while not self._lines:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
            if not ready:
                raise AssertionError(f"nothing came within {DEADLINE} s: {self.observed[-5:]}")
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                stderr = self.process.stderr.read().decode()
                return self.take(self.driver.exited(self.process.wait(), stderr))
            self._lines += self._splitter.feed(data)
        return self.take(self.driver.feed(self._lines.pop(0)))

    def until(self, kind, handle=None):
        """Step until something of that kind is observed; it."""
        while True:
            for output in self.step():
                if handle is not None:
                    handle(output)
                if isinstance(output, kind):
                    return output

    def ready(self):
        return self.until((SessionReady, StartFailed))

    def turn(self, prompt: str, *, deny=(), answers=("left",)):
        """A whole turn in which everything is allowed but what ``deny`` names."""

        def handle(output):
            try:
                if isinstance(output, PermissionAsked):
                    denied = any(word in output.title for word in deny)
                    self.do(Deny(output.id) if denied else Allow(output.id))
                elif isinstance(output, QuestionAsked):
                    self.do(Answer(output.id, (tuple(answers),)))
            except NotAllowed:
                pass

        self.do(Prompt(prompt))
        return self.until(TurnEnded, handle)

    def said(self) -> str:
        return "".join(o.text for o in self.observed if isinstance(o, Text) and not o.thought)

"""One executor, driven by its real driver, under its real shim, against the stub model.

This is what agentd does with a run, without agentd: journal lines into the driver, the
driver's bytes into the shim as numbered input. :meth:`Run.leave` and :meth:`Run.again`
are what a killed and restarted agentd does: all that is kept is what the database keeps.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import uuid
from dataclasses import dataclass, field
from typing import Any, TypeVar

from handoff.executors import contract
from handoff.executors.contract import Launch, LaunchRequest, Output, Send, Session
from handoff.process import supervisor
from handoff.process.contract import Spec
from tests.live.recording import Recording
from tests.support.home import Home

LIVE = pathlib.Path(__file__).parents[2] / ".live"
BIN = LIVE / "node_modules" / ".bin"

T = TypeVar("T")


@dataclass
class Run:
    """One process of an executor. Use :func:`begin`, and :meth:`end` in the end."""

    executor: Any
    run_dir: pathlib.Path
    spec: Spec
    session: Session
    recording: Recording
    driver: Any = None
    handle: Any = None
    seen: list[Output] = field(default_factory=list)
    looked: int = 0
    sent: int = 0
    offset: int = 0
    rest: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    pump: asyncio.Task[None] | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def apply(self, outputs: list[Output]) -> None:
        # What was observed counts at once: while a line is being sent, the next may come in.
        self.seen += [output for output in outputs if not isinstance(output, Send)]
        self.news.set()
        async with self.sending:
            for output in outputs:
                if isinstance(output, Send):
                    self.sent += 1
                    self.recording.add("send", output.data)
                    await self.handle.send(self.sent, output.data)

    async def read(self) -> None:
        async for record in self.handle.records(self.offset):
            if record.kind == "stdout":
                *lines, self.rest = (self.rest + record.data).split(b"\n")
                for line in lines:
                    self.recording.add("recv", line)
                    await self.apply(self.driver.feed(line))
            elif record.kind == "stderr":
                self.stderr += record.data
            elif record.kind == "exited":
                self.exit_code = int(record.data)
                tail = self.stderr[-4000:].decode("utf-8", "replace")
                self.recording.add("exit", json.dumps([self.exit_code, tail]).encode())
                await self.apply(self.driver.exited(self.exit_code, tail))
            self.offset = record.end

    async def command(self, command: contract.Command) -> None:
        await self.apply(self.driver.command(command))

    async def prompt(self, text: str, script: list[Any] | None = None) -> None:
        """Begin a turn; the script is what the model will do."""
        if script is not None:
            text = f"{text}\n@@model {json.dumps(script)}"
        await self.command(contract.Prompt(text))

    async def prompt_after(self, kind: type[Any], text: str, script: list[Any]) -> None:
        """Wait for an observation, then begin the next turn."""
        await self.next(kind)
        await self.prompt(text, script)

    async def next(self, *kinds: type[T], within: float = 90.0) -> T:
        """The next observation of those kinds; others before it are passed over."""
        wanted = " or ".join(kind.__name__ for kind in kinds)
        try:
            async with asyncio.timeout(within):
                while True:
                    while self.looked < len(self.seen):
                        found = self.seen[self.looked]
                        self.looked += 1
                        if isinstance(found, kinds):
                            return found
                    await self._more(wanted)
        except TimeoutError:
            raise AssertionError(f"no {wanted} in {within:g} s: {self.tell()}") from None

    async def _more(self, wanted: str) -> None:
        assert self.pump is not None
        if self.pump.done():
            self.pump.result()
            raise AssertionError(f"it ended without {wanted}: {self.tell()}")
        self.news.clear()
        waiting = asyncio.create_task(self.news.wait())
        await asyncio.wait({waiting, self.pump}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    def all(self, kind: type[T]) -> list[T]:
        """Every observation of that kind so far."""
        return [output for output in self.seen if isinstance(output, kind)]

    def text(self) -> str:
        """What the model said, all turns."""
        return "".join(o.text for o in self.all(contract.Text) if not o.thought)

    def tell(self) -> str:
        """What was seen and said, for a failed assertion."""
        seen = "\n  ".join(repr(output)[:300] for output in self.seen[-30:])
        return f"\n  {seen}\nstderr: {self.stderr[-2000:].decode('utf-8', 'replace')}"

    async def leave(self) -> bytes:
        """Let go as a killed agentd does; the driver's committed state."""
        assert self.pump is not None
        self.pump.cancel()
        await asyncio.gather(self.pump, return_exceptions=True)
        await self.handle.close()
        state: bytes = self.driver.dump()
        return state

    async def again(self, state: bytes) -> None:
        """Take up the run where the committed state left it."""
        self.driver = self.executor.load_driver(state)
        self.handle = await supervisor.attach(self.run_dir, self.spec.run_id)
        self.pump = asyncio.create_task(self.read())

    async def end(self) -> None:
        """End the whole tree and check that nothing is left of it."""
        if self.pump is not None and not self.pump.done() and await self.handle.alive():
            left = await self.handle.end(3.0)
            assert not left, f"still alive: {left}"
        if self.pump is not None:
            self.pump.cancel()
            await asyncio.gather(self.pump, return_exceptions=True)
        await self.handle.close()
        self.recording.close()


async def begin(
    executor: Any,
    program: str,
    home: Home,
    worktree: pathlib.Path,
    run_dir: pathlib.Path,
    *,
    env: dict[str, str],
    resume: str | None = None,
    model: str | None = None,
    instructions: str = "",
) -> Run:
    """Start ``executor`` (what the registry gives) as a task's run and open its session."""
    scratch = run_dir.parent / f"{run_dir.name}-scratch"
    scratch.mkdir(mode=0o700)
    request = LaunchRequest(
        program=program,
        cwd=str(worktree),
        scratch=str(scratch),
        new_id=str(uuid.uuid4()),
        model=model,
        resume=resume,
        instructions=instructions,
        env=env,
    )
    launch: Launch = executor.launch(request)
    for name, content in launch.files.items():
        place = scratch / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    whole = {**home.env, "PATH": os.environ["PATH"], **env, **launch.env}
    for name in launch.unset:
        whole.pop(name, None)
    session = Session(
        cwd=str(worktree),
        new_id=request.new_id,
        resume=resume,
        model=model,
        instructions="" if launch.instructed else instructions,
    )
    places = {str(worktree): "/tree", str(home.path): "/h", str(run_dir.parent): "/d"}
    run = Run(
        executor=executor,
        run_dir=run_dir,
        spec=Spec(str(uuid.uuid4()), launch.argv, str(worktree), whole, grace_s=2.0),
        session=session,
        recording=Recording.named(run_dir.name, places),
        driver=executor.driver(),
    )
    run.handle = await supervisor.start(run_dir, run.spec)
    run.pump = asyncio.create_task(run.read())
    await run.apply(run.driver.open(session))
    return run

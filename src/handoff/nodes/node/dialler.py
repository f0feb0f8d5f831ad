"""The node dials its brain, serves it, and dials again when the link is lost.

Pauses grow with each failure and are drawn at random from nothing to their length, so that
many nodes do not come back at once; a link that held for a while starts the count anew. A
refusal that a person has to see to ends the node with its reason, instead of knocking for
ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import json
import os
import random
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from handoff.errors import ConfigError, PairingRefused, Unreachable
from handoff.link.ciphers import CIPHERS
from handoff.link.files import write_private
from handoff.link.keys import MachineKey, fingerprint
from handoff.link.pairing import PairingCode, check_answer, pair_message
from handoff.link.tls import Pin, client_context
from handoff.nodes.node.calls_journal import CALLS
from handoff.nodes.node.config import Config
from handoff.nodes.node.engine import Engine
from handoff.nodes.node.serving import Serving
from handoff.nodes.pump import WRITE_LIMIT, Pump
from handoff.nodes.websocket import ClientSocket
from handoff.process import facts
from handoff.wire.node.closing import Close
from handoff.wire.node.events import Ended, Event, Oddity, Opened, Paired
from handoff.wire.node.node import NodeLink
from handoff.wire.node.options import NodeOptions

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["Dialler", "Status", "pair", "pin_of"]

#: seconds that a link has to hold before pauses are short again
STABLE_S = 30.0
#: seconds that a brain counts messages over, after it found too many
RATE_S = 1.0
#: seconds of one attempt to connect
DIAL_S = 10.0
#: what dialling raises; ImportError: a proxy of a kind (SOCKS) that is not spoken here
_UNREACHED = (OSError, WebSocketException, ImportError, ValueError)
#: bytes of a frame before the brain is known
FIRST_FRAME = 64 * 1024


@dataclass(slots=True)
class Status:
    """What the node says of its link, in ``status.json``. ``state``: ``starting``,
    ``connecting``, ``connected``, ``waiting`` (to dial again), ``refused`` (a person has to
    see to it), ``stopped``. ``held``: commands that go on after the node's own end. ``clock_skew_ms``: how much the
    brain's clock is ahead of this machine's; None if the brain did not say. Times in milliseconds since 1970; 0 for never."""

    pid: int
    state: str
    name: str
    server_url: str
    version: str
    session_id: str = ""
    started_ms: int = 0
    connected_ms: int = 0
    attempts: int = 0
    retry_ms: int = 0
    last_error: str = ""
    held: int = 0
    clock_skew_ms: int | None = None


class Dialler:
    """Keeps a node linked to its brain.

    on_status: told whenever the status changes, after it was written to the file. take_over:
    where another node of this name is connected, take its place instead of being refused.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        clock: Clock,
        key: MachineKey | None,
        version: str,
        *,
        on_status: Callable[[Status], None] = lambda _: None,
        take_over: bool = False,
    ) -> None:
        self._config = config
        self._engine = engine
        self._clock = clock
        self._key = key
        self._version = version
        self._on_status = on_status
        self._take_over = take_over
        self._stop = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._pump: Pump | None = None
        self._instance = _instance(config.folder, clock)
        self.status = Status(
            os.getpid(),
            "starting",
            config.name,
            config.server_url,
            version,
            started_ms=clock.now_ms(),
        )

    async def run(self) -> Close | None:
        """Until the node is stopped (None), or refused for good (why)."""
        failures = 0
        while not self._stop.is_set():
            began = self._clock.monotonic()
            self._say(state="connecting", attempts=failures + 1)
            close = await self._once()
            if self._stop.is_set():
                break
            if close.final:
                self._say(state="refused", last_error=close.text)
                return close
            held = self._clock.monotonic() - began
            failures = 0 if self.status.session_id and held >= STABLE_S else failures + 1
            pause = self._pause(failures, close)
            self._say(
                state="waiting",
                session_id="",
                last_error=close.text,
                retry_ms=self._clock.now_ms() + round(pause * 1000),
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
        self._say(state="stopped", session_id="")
        return None

    def stop(self) -> None:
        """Leave the brain, and dial no more."""
        self._stop.set()
        if self._pump is not None:
            self._pump.link.close("node_stopping")
            self._pump.poke()

    def goes_on(self, held: int) -> None:
        """So many commands outlive this node."""
        self._say(held=held)

    async def drain(self) -> None:
        """Let go of the calls under way: their results are kept for a later start."""
        for task in list(self._calls):
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _once(self) -> Close:
        """One link, from dialling to its end."""
        link = NodeLink(self._options(), self._clock, CIPHERS, os.urandom)
        try:
            async with _dial(self._config, pin_of(self._config)) as socket:
                return await self._serve(socket, link)
        except ConfigError as error:
            return Close(1000, "bad_config", error.cause)
        except _UNREACHED as error:
            return Close(1006, "unreachable", _why(error))

    async def _serve(self, socket: Any, link: NodeLink) -> Close:
        brain = fingerprint(self._config.brain_key) if self._config.brain_key else ""
        pump: Pump

        def happened(event: Event) -> None:
            if isinstance(event, Opened):
                self._opened(event, link.brain_time)
            elif isinstance(event, Ended):
                serving.over()
            elif isinstance(event, Oddity):
                self._say(last_error=f"{event.what}: {event.detail}"[:300])
            else:
                serving.take(event)

        pump = Pump(socket, link, happened, self._clock)
        serving = Serving(
            self._engine,
            link,
            brain or self._config.server_url,
            self._clock,
            pump.poke,
            self._spawn,
        )
        self._pump = pump
        try:
            return await pump.run()
        finally:
            self._pump = None
            serving.over()

    def _opened(self, event: Opened, brain_time: tuple[str, int]) -> None:
        self._say(
            clock_skew_ms=_ahead(*brain_time),
            state="connected",
            session_id=event.session_id,
            connected_ms=self._clock.now_ms(),
            last_error="",
            retry_ms=0,
        )

    def _options(self) -> NodeOptions:
        config = self._config
        names = os.uname()
        try:
            policy = self._engine.policy().digest
        except ConfigError:
            policy = "broken"
        return NodeOptions(
            name=config.name,
            token=config.token,
            key=self._key.private if self._key is not None else b"",
            brain_key=config.brain_key,
            version=self._version,
            platform=names.sysname.lower(),
            arch=names.machine,
            instance=self._instance,
            policy=policy,
            # once: afterwards it is the one that is connected
            took_over=self._take_over and not self.status.connected_ms,
            plugin=config.plugin_compat,
            require=config.require,
        )

    def _pause(self, failures: int, close: Close) -> float:
        """Full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter")."""
        config = self._config
        longest = min(
            config.backoff_max, config.backoff_initial * config.backoff_factor ** min(failures, 64)
        )
        asked = close.retry_ms / 1000
        if close.reason == "rate_limit_exceeded":
            asked = max(asked, RATE_S)
        return asked + random.uniform(0.0, longest)  # noqa: S311 - it hides nothing

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _say(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self.status, name, value)
        text = json.dumps(asdict(self.status), indent=1) + "\n"
        with contextlib.suppress(Exception):  # a full disk must not end the link
            write_private(os.path.join(self._config.folder, "status.json"), text.encode())
        self._on_status(self.status)


async def pair(code: PairingCode, key: MachineKey, clock: Clock, name: str = "") -> str:
    """Redeem a code at the brain that showed it. Returns the node's name.

    Raises:
        PairingRefused: the brain says no, or is not the one that showed the code.
        Unreachable: it can't be reached.
    """
    from handoff.nodes.node.config import server_url

    config = Config("", server_url(code.address), name or code.name, brain_key=code.brain_key)
    message = pair_message(code, key.public, name)
    options = NodeOptions(name=message.node_name)
    link = NodeLink(options, clock, CIPHERS, os.urandom, pair=message)
    answers: list[Paired] = []

    def happened(event: Event) -> None:
        if isinstance(event, Paired):
            answers.append(event)

    try:
        async with _dial(config, Pin(key=code.brain_key)) as socket:
            assert isinstance(socket, ClientSocket)
            close = await Pump(socket, link, happened, clock).run()
    except _UNREACHED as error:
        raise Unreachable(
            f"{config.server_url}: {_why(error)}",
            remedy="check that the brain runs (handoff nodes serve) and can be reached from here",
        ) from error
    if not answers:
        raise PairingRefused(
            close.detail or close.text, remedy="ask for a new code: handoff nodes pair"
        )
    return check_answer(code, key.public, answers[0].answer)


def _dial(config: Config, pin: Pin | None) -> connect:
    context = None
    if config.secure:
        context = client_context(pin, config.ca_cert or None)
    return connect(
        config.server_url,
        ssl=context,
        compression=None,
        create_connection=ClientSocket,
        proxy=config.proxy_url or True,
        open_timeout=DIAL_S,
        ping_interval=None,
        max_size=FIRST_FRAME,
        write_limit=WRITE_LIMIT,
        user_agent_header=None,
        # what the last bytes of a link mean is the link's business
        close_timeout=2,
    )


def pin_of(config: Config) -> Pin | None:
    """What the server's certificate has to be; None: one that an authority vouches for."""
    if config.pinned_cert_sha256:
        return Pin.of_hex(config.pinned_cert_sha256)
    if config.brain_key and not config.ca_cert:
        return Pin(key=config.brain_key)
    return None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not accepted: {getattr(error, 'verify_message', '') or error}"
    return str(error) or type(error).__name__


def _ahead(said: str, here_ms: int) -> int | None:
    """Milliseconds from our clock to the one that was told as ISO 8601."""
    with contextlib.suppress(ValueError, OverflowError):
        told = dt.datetime.fromisoformat(said)
        if told.tzinfo is not None:
            return round(told.timestamp() * 1000) - here_ms
    return None


def _instance(folder: str, clock: Clock) -> str:
    """Which installation this is; since which start of the machine, and in which file its
    calls are noted, whose content a disk or a copy may have lost; and which process. See
    :mod:`handoff.nodes.brain.twins`."""
    boot = hashlib.sha256(facts.boot_id().encode()).hexdigest()[:8]
    file = ""
    with contextlib.suppress(OSError):
        found = os.stat(os.path.join(folder, CALLS))
        file = hashlib.sha256(f"{found.st_dev}:{found.st_ino}".encode()).hexdigest()[:8]
    return f"{_installation(folder, clock)}.{boot}.{file}.{os.urandom(4).hex()}"


def _installation(folder: str, clock: Clock) -> str:
    path = os.path.join(folder, "instance")
    with contextlib.suppress(OSError):
        with open(path, encoding="ascii") as file:
            found = file.read().strip()
        if found:
            return found[:36].replace(".", "-")
    made = clock.new_id()
    with contextlib.suppress(Exception):
        write_private(path, made.encode())
    return made

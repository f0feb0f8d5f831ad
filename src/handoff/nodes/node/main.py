"""The node's process: one a folder, in the foreground, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

from handoff.clock import SystemClock
from handoff.errors import AlreadyRunning, ConfigError
from handoff.link.files import make_folder
from handoff.link.keys import load_key
from handoff.nodes.audit import Audit
from handoff.nodes.descriptors import raise_limit
from handoff.nodes.heap import keep_freed
from handoff.nodes.node.config import Config, load
from handoff.nodes.node.dialler import Dialler, Status
from handoff.nodes.node.engine import Engine, Settings
from handoff.nodes.node.persons import node_audit
from handoff.process import facts
from handoff.process.signalling import send_signal

__all__ = ["living", "read_status", "run", "stop"]

LOCK = "node.json"
#: seconds between looks at what was kept long enough
CLEAN_S = 600.0


async def run(
    path: str, version: str, say: Callable[[str], None], *, take_over: bool = False
) -> int:
    """Serve the configured brain. say: told a line whenever the link changes. take_over: see
    :class:`Dialler`.

    Returns the exit code: 0 after it was stopped, 3 after the brain refused it for good.

    Raises:
        ConfigError, AlreadyRunning, StorageError.
    """
    config = load(path)
    for key in config.unknown:
        say(f"{path}: the key {key} has no meaning here")
    raise_limit()
    keep_freed()
    make_folder(config.folder)
    with owned(config.folder):
        return await _serve(config, version, say, take_over)


async def _serve(config: Config, version: str, say: Callable[[str], None], take_over: bool) -> int:
    clock = SystemClock()
    home = os.path.expanduser("~")
    key = None
    if config.brain_key:
        try:
            key = load_key(os.path.join(config.folder, "key.pem"))
        except FileNotFoundError as error:
            raise ConfigError(
                f"{config.folder}/key.pem is missing: pair this machine anew",
                remedy="hermes-node pair CODE",
            ) from error
    audit = node_audit(config.folder, clock)
    settings = Settings(
        config.folder,
        home,
        os.path.join(config.folder, "policy.toml"),
        config.allowed_paths,
        version,
    )
    engine = Engine(settings, audit, clock, os.environ)
    shown = ""

    def changed(status: Status) -> None:
        nonlocal shown
        error = f" ({status.last_error})" if status.last_error else ""
        line = f"{status.name}: {status.state}{error}"
        if line != shown and status.state != "connecting":
            shown = line
            say(line)

    dialler = Dialler(config, engine, clock, key, version, on_status=changed, take_over=take_over)
    # only who stops the node, or takes its right away, ends what runs on it
    ends = False

    def end(*, keeping: bool) -> None:
        nonlocal ends
        ends = not keeping
        dialler.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: end(keeping=False))
    loop.add_signal_handler(signal.SIGUSR1, lambda: end(keeping=True))
    try:
        await engine.open()
        cleaning = asyncio.create_task(_clean(engine, audit))
        try:
            close = await dialler.run()
            ends = ends or (close is not None and close.reason == "revoked")
        finally:
            cleaning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await cleaning
        await dialler.drain()
        if not ends:
            dialler.goes_on(engine.running())
    finally:
        await engine.close(stop=ends)
        audit.close()
    if close is None:
        return 0
    say(f"the brain refused this node: {close.text}")
    if dialler.status.held:
        say(f"{dialler.status.held} commands go on; `hermes-node lock` ends them")
    return 3


async def _clean(engine: Engine, audit: Audit) -> None:
    while True:
        await asyncio.sleep(CLEAN_S)
        with contextlib.suppress(Exception):  # a full disk must not end the node
            await engine.clean()
            audit.sync()


@contextlib.contextmanager
def owned(folder: str) -> Iterator[None]:
    """The folder's lock, for as long as the block lasts.

    Raises:
        AlreadyRunning: another node has it.
    """
    fd = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(
                f"a node runs in {folder} already", remedy="hermes-node status"
            ) from error
        me = facts.fact(os.getpid())
        info = {"pid": os.getpid(), "started": me.started if me else 0}
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(info).encode(), 0)
        yield
    finally:
        os.close(fd)


def living(folder: str) -> dict[str, int]:
    """The node that runs in a folder: pid and start stamp; empty if none does."""
    try:
        fd = os.open(os.path.join(folder, LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return {}
    except BlockingIOError:
        with contextlib.suppress(ValueError):
            found = json.loads(os.pread(fd, 4096, 0))
            return {"pid": int(found["pid"]), "started": int(found["started"])}
        return {}
    finally:
        os.close(fd)


def read_status(folder: str) -> dict[str, Any]:
    """The link as the node last told of it.

    Raises:
        ConfigError: no node has run there.
    """
    path = os.path.join(folder, "status.json")
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(f"no node has run in {folder}", remedy="hermes-node run") from error
    return found if isinstance(found, dict) else {}


def stop(folder: str, *, keep: bool) -> bool:
    """Ask the folder's node to end. keep: its commands go on. False: none runs."""
    found = living(folder)
    if not found:
        return False
    number = signal.SIGUSR1 if keep else signal.SIGTERM
    return send_signal(found["pid"], found["started"], number)

"""The daemon: takes the data directory, opens the store, listens, takes up the tasks."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import sqlite3
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from handoff import config
from handoff.agentd import http, listening, logs
from handoff.agentd.hub import Hub
from handoff.agentd.machine import Machine
from handoff.agentd.routes import review, streams, system, tasks
from handoff.agentd.services import Places, Services
from handoff.agentd.watchdog import Watchdog
from handoff.clock import SystemClock
from handoff.config import Config
from handoff.errors import AlreadyRunning, HandoffError, StorageError
from handoff.executors.registry import Registry
from handoff.process import envfile, pathenv
from handoff.redaction import Redactor
from handoff.store.engine import Store
from handoff.store.sql import Q

if TYPE_CHECKING:
    from handoff.clock import Clock

log = logging.getLogger("handoff.agentd")

#: seconds that open requests may take at the end; streams have no end of their own
GRACE_S = 2
#: seconds that a thread may hold the interpreter while another one waits
SWITCH_S = 0.001


def main(config_path: str, *, executor: str | None = None, listen: str | None = None) -> int:
    """Run agentd until SIGINT or SIGTERM; returns its exit code.

    The umask stays the user's: executors, git and commands work under it. What is ours
    is made with its own mode instead.

    Raises:
        HandoffError: it can't start: bad configuration, another agentd, no access.
    """
    settings, warnings = config.load(config_path)
    if executor:
        chosen = msgspec.structs.replace(settings.executor, default=executor)
        settings = msgspec.structs.replace(settings, executor=chosen)
    data_dir = _private_dir(Path(settings.datadir))
    with _ownership(data_dir):
        services = make_services(settings, config_path, SystemClock())
        services.warnings += [str(warning) for warning in warnings]
        logs.set_up(data_dir, settings.log.level, services.redact_text)
        for warning in warnings:
            log.warning("%s: %s", config_path, warning)
        # A thread that computes for long must not keep the store's writer from its commits.
        sys.setswitchinterval(SWITCH_S)
        try:
            with asyncio.Runner() as runner:
                runner.run(_serve(services, listen))
        finally:
            services.store.close()
            log.info("agentd ends", extra={"action": "agentd_ends"})
    return 0


async def _serve(services: Services, listen: str | None) -> None:
    machine = Machine(services)
    sockets, endpoint = listening.listeners(
        services.config.listen, listen, services.places.data_dir
    )
    endpoint["instance"] = services.instance
    machine.endpoint = endpoint
    machine.load()
    server = _Server(machine)
    serving = asyncio.create_task(server.serve(sockets=sockets), name="http")
    watching: asyncio.Task[None] | None = None
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.001)
        listening.publish(services.config_path, endpoint)
        log.info("agentd listens at %s", endpoint["socket"], extra={"action": "agentd_listens"})
        services.completing = asyncio.create_task(_complete_path(services))
        await machine.recover()
        await services.path()
        machine.ready()
        watching = asyncio.create_task(Watchdog(machine).watch(), name="watchdog")
        gc.collect()
        gc.freeze()  # what start-up made stays: later collections need not look at it
        await serving
    finally:
        server.end()
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await asyncio.gather(serving, return_exceptions=True)
        await machine.close()
        listening.withdraw(services.config_path, endpoint)


async def _complete_path(services: Services) -> None:
    """PATH as the user's own shell has it: a service starts with less."""
    found = await pathenv.complete(services.environ, services.config.path_dirs)
    services.search_path = found.path
    services.warnings += found.warnings


def make_services(settings: Config, config_path: str, clock: Clock) -> Services:
    """The services of a daemon on one data directory.

    Raises:
        StorageError: the database can't be used.
    """
    data_dir = Path(settings.datadir)
    where = Places(data_dir, Path(settings.worktrees_dir), Path(settings.repo_root))
    registry = Registry(settings.agents)
    store = Store.open(where.database, clock=clock)
    try:
        instance = store.write_sync(lambda conn: _instance(conn, clock))
    except BaseException:
        store.close()
        raise
    return Services(
        store=store,
        hub=Hub(),
        clock=clock,
        config=settings,
        config_path=config_path,
        places=where,
        executors=registry,
        instance=instance,
        search_path=os.environ.get("PATH", os.defpath),
        redactor=Redactor((settings.token + instance).encode(), known_secrets(settings, where)),
    )


def known_secrets(settings: Config, where: Places) -> dict[str, str]:
    """Values that must not be read by others: the token, and what the environment files
    give to executors. A file that can't be read is reported at dispatch, not here."""
    known = {"handoff-token": settings.token} if settings.token else {}
    for name in settings.env.values():
        with contextlib.suppress(HandoffError):
            known |= envfile.load(where.env_dir, name, {}).values
    return known


def _instance(conn: sqlite3.Connection, clock: Clock) -> str:
    """The identity of the data directory, made once."""
    row = conn.execute(Q["instance_get"]).fetchone()
    if row is not None:
        return str(row[0])
    new: dict[str, object] = {"id": clock.new_id(), "created_at": clock.now_ms()}
    conn.execute(Q["instance_add"], new)
    return str(new["id"])


def make_app(machine: Machine) -> http.Door:
    """The ASGI application."""
    routes = [
        *tasks.routes(machine),
        *streams.routes(machine),
        *review.routes(machine),
        *system.routes(machine),
    ]
    handlers: dict[Any, Any] = {
        HandoffError: http.on_error,
        HTTPException: http.on_no_route,
        ClientDisconnect: http.on_hang_up,
        Exception: http.on_fault,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    return http.Door(app, machine.services.config.token, os.getuid())


class _Server(uvicorn.Server):
    """uvicorn on our sockets. A signal ends the streams first: they would never end by
    themselves, and each of their clients resumes at its cursor."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(
            uvicorn.Config(
                make_app(machine),
                http=http.PeerProtocol,
                ws="websockets-sansio",
                ws_per_message_deflate=False,
                ws_ping_interval=20,
                ws_ping_timeout=60,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=GRACE_S,
                backlog=listening.BACKLOG,
            )
        )
        self._machine = machine
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for the end, instead of looking for it ten times a second."""
        await self.on_tick(0)
        await self._over.wait()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """The first signal asks, the second insists."""
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self.end)

    def end(self) -> None:
        """Stop serving."""
        self.should_exit = True
        self._machine.services.hub.end_streams()
        self._over.set()


def _private_dir(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o700)
        probe = path / ".writable"
        probe.touch(mode=0o600)
        probe.unlink()
    except OSError as error:
        raise StorageError(
            f"the data directory {path} can't be written: {error.strerror}",
            remedy="set 'datadir' in config.yaml to a folder of yours, or mend its permissions",
        ) from error
    return path


@contextlib.contextmanager
def _ownership(data_dir: Path) -> Iterator[None]:
    """Hold the data directory; only one agentd may.

    Raises:
        AlreadyRunning: another one does.
    """
    path = data_dir / "agentd.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            raise AlreadyRunning(
                f"another agentd (pid {holder or 'unknown'}) owns {data_dir}",
                remedy="handoff status",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)

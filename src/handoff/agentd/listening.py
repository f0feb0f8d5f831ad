"""Where agentd listens: the control socket, loopback TCP, and the file that tells both."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
from hashlib import sha256
from pathlib import Path

from handoff import __version__, places
from handoff.errors import AlreadyRunning, PathTooLong, StorageError, UsageError

#: longest path of a Unix socket that every supported system takes (sun_path)
SOCKET_PATH = 103
BACKLOG = 1024


def listeners(
    configured: str, given: str | None, data_dir: Path
) -> tuple[list[socket.socket], dict[str, object]]:
    """Open the sockets; returns them and the endpoint to publish.

    Raises:
        PathTooLong, StorageError, UsageError, AlreadyRunning
    """
    socket_path = control_socket_path(data_dir)
    found = [_unix_listener(socket_path)]
    endpoint: dict[str, object] = {
        "socket": socket_path,
        "url": "",
        "pid": os.getpid(),
        "data_dir": str(data_dir),
        "version": __version__,
    }
    wanted = given if given is not None else configured
    if wanted and wanted != "off":
        try:
            tcp = _tcp_listener(wanted)
        except BaseException:
            found[0].close()
            raise
        found.append(tcp)
        host, port = tcp.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        endpoint["url"] = f"http://{shown}:{port}"
    return found, endpoint


def control_socket_path(data_dir: Path) -> str:
    """Where the control socket goes: in the data directory, or, if that path is too long
    for a socket, in a private folder with a short name.

    Raises:
        PathTooLong: no folder is short enough.
    """
    plain = str(data_dir / "agentd.sock")
    if len(os.fsencode(plain)) <= SOCKET_PATH:
        return plain
    tag = sha256(os.fsencode(data_dir)).hexdigest()[:8]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    options = [os.path.join(runtime, f"handoff-{tag}")] if runtime else []
    options.append(f"/tmp/handoff-{os.getuid()}-{tag}")  # noqa: S108 - owner and mode are checked
    for folder in options:
        path = os.path.join(folder, "agentd.sock")
        if len(os.fsencode(path)) <= SOCKET_PATH and _own_private(folder):
            return path
    size = len(os.fsencode(plain))
    raise PathTooLong(
        f"the control socket {plain} has {size} bytes, the system takes {SOCKET_PATH}",
        remedy="set 'datadir' in config.yaml to a shorter path",
        length=size,
        limit=SOCKET_PATH,
    )


def _own_private(folder: str) -> bool:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    found = os.lstat(folder)
    mine = found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
    return mine and not stat.S_IMODE(found.st_mode) & 0o077


def _unix_listener(path: str) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # the lock is held: no living agentd listens there
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StorageError(f"the control socket {path} can't be made: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def _tcp_listener(wanted: str) -> socket.socket:
    host, _, port = wanted.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdigit():
        raise UsageError(
            f"'listen' is '{wanted}': it must be HOST:PORT", remedy="set 'listen: 127.0.0.1:7777'"
        )
    if host not in ("localhost", "::1") and not host.startswith("127."):
        raise UsageError(
            f"'listen' is '{wanted}': this version listens on this machine only",
            remedy="set 'listen: 127.0.0.1:7777' and reach it from elsewhere by an ssh tunnel",
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, int(port)))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        told = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise AlreadyRunning(
                f"{wanted} can't be listened on: {told}",
                remedy="set 'listen' in config.yaml to a free port, or to 'off' to use the Unix "
                "socket alone",
            ) from error
        raise UsageError(f"{wanted} can't be listened on: {told}") from error
    listener.setblocking(False)
    return listener


def publish(config_path: str, endpoint: dict[str, object]) -> None:
    """Tell clients where this agentd listens, beside its configuration."""
    path = places.endpoint_path(config_path)
    try:
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(endpoint, stream)
        os.replace(f"{path}.new", path)
    except OSError as error:
        raise StorageError(f"{path} can't be written: {error.strerror}") from error


def withdraw(config_path: str, endpoint: dict[str, object]) -> None:
    """Take back what :func:`publish` told, if it is still ours."""
    path = places.endpoint_path(config_path)
    with contextlib.suppress(OSError, ValueError):
        with open(path, encoding="utf-8") as stream:
            if json.load(stream).get("pid") == endpoint["pid"]:
                os.unlink(path)
    with contextlib.suppress(OSError):
        os.unlink(str(endpoint["socket"]))

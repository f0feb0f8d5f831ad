"""Where agentd is: from the file it writes, from ``--agentd URL``, or from a target's name.

The usual case reads one small JSON file and nothing else; the configuration (YAML) is
read only where a token or a target's address is needed.
"""

from __future__ import annotations

import json
import os

from handoff import places
from handoff.errors import NotFound, Unreachable, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

START = "handoff agentd --detach"


class Endpoint:
    """One agentd. Either ``socket_path`` or ``host`` and ``port`` is set.

    ``instance``: agentd's lasting identity, "" where only its address is known.
    ``remedy``: the command that helps when it does not answer.

    Raises:
        UsageError: the token can't be part of an HTTP header.
    """

    __slots__ = ("host", "instance", "pid", "port", "remedy", "socket_path", "tls", "token")

    def __init__(
        self,
        *,
        socket_path: str = "",
        host: str = "",
        port: int = 0,
        token: str = "",
        tls: bool = False,
        instance: str = "",
        pid: int = 0,
        remedy: str = START,
    ) -> None:
        if not (token.isascii() and token.isprintable()):
            raise UsageError(
                "the token holds characters that can't be sent",
                remedy="write the token of that agentd into the configuration",
            )
        self.socket_path = socket_path
        self.host = host
        self.port = port
        self.token = token
        self.tls = tls
        self.instance = instance
        self.pid = pid
        self.remedy = remedy

    def host_header(self) -> str:
        """The Host header; agentd refuses names that are not this machine's."""
        if self.socket_path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def where(self) -> str:
        """The address for people."""
        scheme = "https" if self.tls else "http"
        return self.socket_path or f"{scheme}://{self.host_header()}"


def is_loopback(host: str) -> bool:
    """Whether cleartext to host stays on this machine. Names other than ``localhost`` are
    not looked up: what they mean may change."""
    parts = host.split(".")
    in_127 = len(parts) == 4 and parts[0] == "127" and all(p.isdigit() for p in parts)
    return host in ("localhost", "::1") or in_127


def split_address(text: str, default_port: int = 0) -> tuple[str, int]:
    """``host:port``, ``[v6]:port`` or ``host`` as (host, port).

    Raises:
        UsageError: it is none of these.
    """
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    number = int(port) if port.isdigit() and port.isascii() else default_port if not port else 0
    if not host or not 0 < number < 65536:
        raise UsageError(f"'{text}' is not an address such as 127.0.0.1:7777")
    return host, number


def discover(config: str) -> Endpoint:
    """The local agentd, from the file it writes beside its configuration.

    Raises:
        Unreachable: there is no such file, or it can't be used.
    """
    path = places.endpoint_path(config)
    try:
        with open(path, "rb") as file:
            body = json.loads(file.read())
        socket_path = str(body["socket"] or "")
        if not socket_path:
            raise ValueError("it names no socket")
    except FileNotFoundError:
        raise Unreachable(
            f"agentd has not been started ({path} is not there)", remedy=START, where=path
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"{path} can't be used: {error}", remedy=START, where=path) from error
    pid = body.get("pid")
    return Endpoint(
        socket_path=socket_path,
        instance=str(body.get("instance") or ""),
        pid=pid if isinstance(pid, int) else 0,
    )


def refuse_cleartext(host: str, port: int, user: str = "") -> UsageError:
    """The error for http to another machine, with the tunnel that does work."""
    login = f"{user}@{host}" if user else host
    return UsageError(
        f"http to {host} would send the token and your code in clear; it is refused",
        remedy=f"ssh -N -L 17777:127.0.0.1:{port} {login}   "
        "(then use http://127.0.0.1:17777, or that address in 'targets')",
        host=host,
    )


def from_url(url: str, config: str) -> Endpoint:
    """The agentd at a URL: ``http://`` on this machine, ``https://`` anywhere, or
    ``unix:/path``. The token comes from the configuration: the machine's own for a loopback
    address, else that of the target with the same address; it is never sent elsewhere.

    Raises:
        UsageError: the URL can't be used, or no token is known for it.
        ConfigError: the configuration can't be read.
    """
    if url.startswith("unix:"):
        return Endpoint(socket_path=url.removeprefix("unix:").removeprefix("//"))
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in ("http", "https"):
        raise UsageError(f"'{url}' is not a URL such as http://127.0.0.1:7777")
    tls = scheme == "https"
    host, port = split_address(rest.partition("/")[0], 443 if tls else 7777)
    loopback = is_loopback(host)
    if not tls and not loopback:
        raise refuse_cleartext(host, port)
    from handoff.config import load

    settings = load(config)[0]
    for target in settings.targets.values():
        if target.addr and target_address(target.addr) == (tls, host, port):
            return Endpoint(host=host, port=port, tls=tls, token=target.token)
    if not loopback:
        raise UsageError(
            f"no token is known for {host}:{port}",
            remedy=f"add it under 'targets' in {config}",
        )
    return Endpoint(host=host, port=port, tls=tls, token=settings.token)


def same_place(url: str, config: str) -> bool:
    """Whether a URL is that of the agentd which runs with this configuration here."""
    try:
        with open(places.endpoint_path(config), "rb") as file:
            body = json.loads(file.read())
    except (OSError, ValueError):
        return False
    if not isinstance(body, dict):
        return False
    socket_url = url.removeprefix("unix:").removeprefix("//")
    return url.rstrip("/") == body.get("url") or socket_url == body.get("socket")


def target_address(text: str) -> tuple[bool, str, int]:
    """(whether TLS, host, port) of a target's ``addr``: ``host:port``, or a URL."""
    tls = text.startswith("https://")
    plain = text.removeprefix("https://").removeprefix("http://").rstrip("/")
    return tls, *split_address(plain, 443 if tls else 7777)


def from_target(name: str, config: str) -> Endpoint:
    """The agentd of a named target.

    Raises:
        NotFound: the configuration has no such target.
        UsageError: its address is on another machine without TLS.
    """
    from handoff.config import load

    settings = load(config)[0]
    target = settings.targets.get(name)
    if target is None:
        known = ", ".join(sorted(settings.targets)) or "none"
        raise NotFound(f"there is no target '{name}' in {config} (known: {known})", target=name)
    tls, host, port = target_address(target.addr)
    if not tls and not is_loopback(host):
        raise refuse_cleartext(host, port, target.user)
    return Endpoint(host=host, port=port, tls=tls, token=target.token, remedy="handoff doctor")


def locator(*, config: str, url: str = "", target: str = "") -> Callable[[], Endpoint]:
    """A function that finds agentd, now and again after it was lost."""
    if url:
        found = from_url(url, config)
        return lambda: found
    if target:
        named = from_target(target, config)
        return lambda: named
    return lambda: discover(config)


def pid_alive(pid: int) -> bool:
    """Whether a process with that id exists (it may be another program by now)."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

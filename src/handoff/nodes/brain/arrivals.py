"""Whoever comes to the port takes a descriptor before a word is said: how many may.

A connection is counted from the moment it is accepted until its node is known or it is
closed. Beyond the bounds it is closed unheard, so that strangers can keep out nodes for a
while, but neither end the links that there are nor keep this machine's own programs from the
brain.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

from handoff.nodes.descriptors import limit

__all__ = ["Arrivals", "listening"]

#: connections that are not known, of one address and of all, where descriptors are plenty; a
#: thousand nodes may come back from behind one address at once
ONE = 1024
ALL = 2048
#: what they may take of this process' descriptors at most
SHARE = 2
BACKLOG = 100


class Arrivals:
    """Counts them."""

    def __init__(self) -> None:
        #: the address of each, by its descriptor
        self._unknown: dict[int, str] = {}
        self._of: Counter[str] = Counter()

    def came(self, fd: int, address: str) -> bool:
        """One was accepted. False: there are too many."""
        most = min(ALL, limit() // SHARE)
        if len(self._unknown) >= most or self._of.get(address, 0) >= min(ONE, most // 2):
            return False
        self._unknown[fd] = address
        self._of[address] += 1
        return True

    def known(self, fd: int) -> None:
        """It is no stranger any more, or gone."""
        address = self._unknown.pop(fd, None)
        if address is not None:
            self._of[address] -= 1
            if not self._of[address]:
                del self._of[address]


class _Arrived(socket.socket):
    """A connection, which counts until it is closed."""

    arrivals: Arrivals

    def close(self) -> None:
        self.arrivals.known(self.fileno())
        super().close()


class _Doorway(socket.socket):
    """A socket that listens."""

    arrivals: Arrivals

    def accept(self) -> tuple[socket.socket, Any]:
        plain, address = super().accept()
        name = str(address[0]) if isinstance(address, tuple) else "local"
        if not self.arrivals.came(plain.fileno(), name):
            plain.close()
            raise ConnectionAbortedError("too many")  # asyncio goes on to other things
        made = _Arrived(self.family, self.type, self.proto, fileno=plain.detach())
        made.arrivals = self.arrivals
        return made, address


async def listening(host: str, port: int, arrivals: Arrivals) -> list[socket.socket]:
    """The sockets for a host's addresses, all with one port.

    Raises:
        OSError: an address can't be had.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[socket.socket] = []
    try:
        for family, kind, proto, _, address in dict.fromkeys(found):
            try:
                sock = _Doorway(family, kind, proto)
            except OSError:  # this machine has no such family
                continue
            made.append(sock)
            sock.arrivals = arrivals
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            taken = port or (made[0].getsockname()[1] if len(made) > 1 else 0)
            sock.bind((address[0], taken, *address[2:]))
        if not made:
            raise OSError(0, "it has no address")
        for one in made:
            one.setblocking(False)
            one.listen(BACKLOG)
    except BaseException:
        for one in made:
            one.close()
        raise
    return made

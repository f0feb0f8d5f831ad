"""Whether a brain's own port answers as it should, or could be had: for ``doctor``."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from handoff.errors import HandoffError

if TYPE_CHECKING:
    from handoff.nodes.brain.main import Settings

__all__ = ["answering", "port_to_be_had"]

#: seconds for the port to answer
REACH_S = 3.0
#: where a brain that listens everywhere is asked
_HERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - they are compared


def answering(folder: str, status: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the port that a brain names is served by it: with TLS, by its own key.

    status: what the brain says of itself.
    """
    from handoff.link.keys import load_key
    from handoff.link.tls import Pin, client_context

    host, port = _HERE.get(status["host"], status["host"]), int(status["port"])
    where = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), REACH_S) as plain:
            if not status["tls"]:
                return True, f"{where} answers, without TLS"
            key = load_key(os.path.join(folder, "key.pem"))
            with client_context(Pin(key=key.public)).wrap_socket(plain, server_hostname=host):
                return True, f"{where} answers with this brain's key"
    except ssl.SSLError as error:
        return False, f"{where} is not this brain, or has another key: {error.args[-1]}"
    except HandoffError as error:
        return False, f"{where}: {error.cause}"
    except OSError as error:
        return False, f"{where} does not answer: {error.strerror or error}"


def port_to_be_had(settings: Settings) -> tuple[bool, str]:
    """Whether a brain that does not run could listen where it is to."""
    where = f"{settings.host}:{settings.port}"
    if not settings.port:
        return True, f"{settings.host}: a free one is taken"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return False, f"{where} can't be had: {error.strerror or error}"
        if settings.fixed or settings.address:
            return False, f"{where} is in use by another program"
        return True, f"{where} is in use by another program: the next free one is taken"
    return True, f"{where} is free"

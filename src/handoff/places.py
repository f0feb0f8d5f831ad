"""Where Handoff keeps its files, for programs that must start quickly.

``HANDOFF_CONFIG`` names the configuration file, ``HANDOFF_HOME`` the folder that holds
it (default ``~/.handoff``). Standard library only; imports nothing but ``os``.
"""

from __future__ import annotations

import os

CONFIG_NAME = "config.yaml"
ENDPOINT_NAME = "agentd.json"


def home_dir() -> str:
    """The folder of Handoff's own files, absolute; it need not exist."""
    given = os.environ.get("HANDOFF_HOME")
    return os.path.abspath(os.path.expanduser(given or "~/.handoff"))


def config_path(given: str | None = None) -> str:
    """The configuration file, absolute: given, else ``HANDOFF_CONFIG``, else
    ``config.yaml`` in :func:`home_dir`."""
    path = given or os.environ.get("HANDOFF_CONFIG")
    if path:
        return os.path.abspath(os.path.expanduser(path))
    return os.path.join(home_dir(), CONFIG_NAME)


def endpoint_path(config: str) -> str:
    """The file in which agentd says where it listens, beside its configuration."""
    return os.path.join(os.path.dirname(config), ENDPOINT_NAME)

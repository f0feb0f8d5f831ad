"""Which brain a call goes to: the one of the profile that is active at that moment."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from handoff.errors import ConfigError, LaunchFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.nodes.client import BrainClient

__all__ = ["NAME", "Runtime"]

#: the plugin's name, under which its settings stand
NAME = "hermes-node-plugin"
#: what the brain sees of the host's environment: none of its keys
_KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("SYSTEMROOT", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)


class Runtime:
    """Makes what a call needs. ``ctx``: the host's plugin context."""

    def __init__(self, ctx: Any = None) -> None:
        self.ctx = ctx

    def home(self) -> str:
        """The folder of the active profile.

        Raises:
            ConfigError: it can't be told.
        """
        try:
            found = str(importlib.import_module("hermes_constants").get_hermes_home())
        except Exception:  # then the environment alone decides, as the host's launcher does
            found = os.environ.get("HERMES_HOME", "")
        if not os.path.isabs(found):
            raise ConfigError(
                "it can't be told which profile of Hermes this is",
                remedy="set HERMES_HOME to its folder, as an absolute path",
            )
        return found

    def profile(self) -> str:
        """The profile's name, for the audit; "" if the host does not tell."""
        try:
            return str(getattr(self.ctx, "profile_name", "") or "")
        except Exception:  # a host that can't answer
            return ""

    def folder(self) -> str:
        """The brain's folder. Raises as :meth:`home`."""
        return os.path.join(self.home(), "handoff", "nodes")

    def client(self, *, start: bool = True) -> BrainClient:
        """The brain; one is started at the first question if none runs, unless ``start`` is
        false.

        Raises:
            ConfigError: the profile can't be told.
            LaunchFailed: there is no interpreter to start one with.
        """
        from handoff.nodes.client import BrainClient

        if not start:
            return BrainClient(self.folder(), None)
        if not sys.executable:
            raise LaunchFailed("Hermes does not say which Python it runs in")
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "brain.py")
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return BrainClient(self.folder(), (sys.executable, "-I", program), env)

    def setting(self, key: str, default: str = "") -> str:
        """A setting of this plugin: ``plugins.entries.<id>.settings.<key>``; the environment's
        ``HERMES_NODES_<KEY>`` beats it."""
        given = os.environ.get(f"HERMES_NODES_{key.upper()}", "")
        if given:
            return given
        value: Any = None
        read = getattr(self.ctx, "get_config", None)
        try:
            value = read(key) if callable(read) else self._configured(key)
        except Exception:  # whatever a host throws: then it is not set
            value = None
        return value if isinstance(value, str) and value else default

    def _configured(self, key: str) -> Any:
        config = self.configuration()
        plugins = config.get("plugins")
        entries = plugins.get("entries") if isinstance(plugins, Mapping) else None
        mine = entries.get(NAME) if isinstance(entries, Mapping) else None
        settings = mine.get("settings") if isinstance(mine, Mapping) else None
        return settings.get(key) if isinstance(settings, Mapping) else None

    def configuration(self) -> Mapping[str, Any]:
        """The profile's configuration as the host loads it; empty if it can't be had."""
        try:
            found = importlib.import_module("hermes_cli.config").load_config()
        except Exception:  # an import of the host's may throw anything
            return {}
        return found if isinstance(found, Mapping) else {}

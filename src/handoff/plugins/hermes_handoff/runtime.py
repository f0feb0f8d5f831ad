"""The parts of Handoff that one process of the host uses, for whichever profile is active.

They are imported at their first use: registering the plugin is part of the start of almost
every command of the host.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from . import internals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.sessions.profile import Profile
    from handoff.sessions.service import Service

__all__ = ["Runtime"]


class Runtime:
    """Makes what a call needs, for the profile that is active at that moment: a gateway may
    serve several. ``ctx``: the host's plugin context, or None outside of a registration."""

    def __init__(self, ctx: Any = None) -> None:
        self.ctx = ctx
        self._lock = threading.Lock()
        #: reservations of openings on the Desktop, by profile: they outlive a call
        self._held: dict[str, dict[str, Any]] = {}

    def profile(self) -> Profile:
        """The active profile.

        Raises:
            ProfileMismatch, UsageError: it can't be told.
        """
        from handoff.sessions.profile import resolve

        reported = internals.active_profile()
        env = {**os.environ, "HERMES_HOME": internals.home()}
        name = "" if reported == "custom" else reported
        return resolve(env, _cwd(), name, reported)

    def service(self, arguments: Mapping[str, Any] | None = None) -> Service:
        """Sessions of the active profile. ``arguments``: of the call, for its workspace.

        Raises:
            ProfileMismatch, UsageError: the profile can't be told.
        """
        from handoff.sessions.service import Service

        from .host import HermesHost

        profile = self.profile()
        workspace = (arguments or {}).get("workspace")
        place = workspace if isinstance(workspace, str) and os.path.isabs(workspace) else ""
        service = Service(profile, HermesHost(self.ctx, profile, place))
        with self._lock:
            service.held = self._held.setdefault(profile.home, {})
        return service


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""

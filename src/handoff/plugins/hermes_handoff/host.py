"""Hermes Agent as Sessions sees it from inside one of its processes.

What the plugin API offers is used through the context; everything else through
:mod:`internals`. The host's session store is read as a file, and never written.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from handoff.errors import ConsentMissing, Failed, NotAllowed, NotFound
from handoff.sessions import host_store
from handoff.sessions.host import Opener
from handoff.sessions.host_store import HostStore, Session
from handoff.sessions.profile import Profile

from . import internals

__all__ = ["HermesHost", "plugin_id"]

#: what a session's row says of how it was started by us (an older host ignores that)
TAG = "handoff"
#: sessions that are looked through for candidates, youngest first
_CANDIDATES = 200
#: ms by which the host's clock for a new session may lie before ours: it rounds to seconds
CLOCK_SLACK = 2000


def plugin_id(ctx: Any) -> str:
    """The plugin's effective key, under which its owner's consent stands."""
    found = getattr(ctx, "plugin_id", None)
    if isinstance(found, str) and found:
        return found
    manifest = getattr(ctx, "manifest", None)
    return str(getattr(manifest, "key", "") or getattr(manifest, "name", "") or "hermes-handoff")


class HermesHost:
    """The host of the active profile (a :class:`~handoff.sessions.host.HostAdapter`).

    Args:
        ctx: the host's plugin context; None where none is at hand: then no other model can
            be asked.
        profile: whose sessions these are.
        workspace: where a session would open: some of the host's policies depend on it.
    """

    kind = "hermes"
    default_route = False

    def __init__(self, ctx: Any, profile: Profile, workspace: str = "") -> None:
        self._ctx, self._profile, self._workspace = ctx, profile, workspace
        self.entry_id = plugin_id(ctx)
        self.recipe = internals.recipe()

    def version(self) -> tuple[str, bool]:
        """The host's version, and whether tests/live drives exactly that one."""
        found = internals.version()
        return ("" if found == "unknown" else found), found in internals.VERIFIED

    def route(self, session_id: str) -> Mapping[str, Any] | None:
        """None: the host's store calls every endpoint of the user's by one name, so that
        only what the hook observed counts."""
        del session_id
        return None

    def provider_named(self, provider: str) -> bool:
        """Whether the profile configures a stable provider of that name."""
        return internals.provider_named(provider)

    def tools(self, platform: str) -> Collection[str]:
        """The tools that a new session of the profile has on ``cli`` or ``desktop``."""
        return internals.allowed_tools(platform, self._workspace)

    def config(self) -> Mapping[str, Any]:
        """The profile's configuration as the host loads it."""
        return internals.configuration()

    def complete(self, prompt: str, model: str, provider: str) -> str:
        """The answer of another model, through the host's own facade, which checks the
        owner's consent once more. There is no other try and no other model.

        Raises:
            NotAllowed: there is no facade here.
            ConsentMissing: the host refuses; its text names the key.
            Failed: the call failed.
        """
        facade = getattr(self._ctx, "llm", None)
        if facade is None:
            raise NotAllowed("another model can be asked only from within a session of Hermes")
        messages = [{"role": "user", "content": prompt}]
        try:
            answer = facade.complete(
                messages, model=model, provider=provider, purpose="summary of a session"
            )
        except PermissionError as error:  # the host's own class for a missing consent is one
            raise ConsentMissing(f"Hermes refuses another model: {error}") from error
        except Exception as error:  # whatever a provider throws
            raise Failed(
                f"{model} at {provider} gave no answer ({type(error).__name__})"
            ) from error
        text = getattr(answer, "text", None)
        if not isinstance(text, str) or not text.strip():
            raise Failed(f"{model} at {provider} gave an empty answer")
        return text

    def sessions(self) -> Opener | None:
        """How to look at the profile's sessions."""
        path = self._profile.sessions
        return lambda: host_store.opened(path)

    def candidates(self, frozen: Mapping[str, Any], since: int) -> Sequence[Mapping[str, Any]]:
        """The sessions that were started since and that can have come of the attempt: the
        opening prompt, which names it, is their first message; or they have none yet and
        carry our tag."""
        try:
            with host_store.opened(self._profile.sessions) as store:
                found = [
                    one
                    for one in store.started_since(since - CLOCK_SLACK, _CANDIDATES)
                    if one.id != frozen["source_session"] and _of(store, one, frozen["attempt_id"])
                ]
        except NotFound:
            return []
        return [
            {
                "session_id": one.id,
                "title": one.title,
                "started": one.started,
                "messages": one.messages,
                "source": one.source,
                "model": one.model,
            }
            for one in found
        ]

    def program(self) -> str:
        """The absolute path of the host's command.

        Raises:
            LaunchFailed: there is none, or this version needs Node.js and that is missing.
        """
        internals.require_opener(self.recipe)
        return os.path.abspath(internals.program())


def _of(store: HostStore, session: Session, attempt_id: str) -> bool:
    first = next(iter(store.messages([session.id], role="user")), None)
    return session.source == TAG if first is None else f'"{attempt_id}"' in first.text

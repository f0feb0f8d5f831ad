"""What the service asks of the program that a session runs in.

A *host* is Hermes Agent or another agent. One class knows one host; nothing else of
Sessions does. The one for use inside Hermes is part of its plugin; those for use from a
terminal are in :mod:`handoff.sessions.hosts`. What such a class can't find out it raises:
not to know is never an answer in favour of opening.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from handoff.sessions.host_store import Opener, SessionStore

__all__ = ["KINDS", "HostAdapter", "Opener", "SessionStore"]

#: the hosts that a session may come from and go to; ``other``: a person, or any other agent
KINDS = ("hermes", "claude", "codex", "opencode", "other")


class HostAdapter(Protocol):
    """One host, as seen from where this runs."""

    #: one of :data:`KINDS`
    kind: str
    #: the plugin's effective key in the host's configuration (``plugins.entries.<key>``);
    #: "" where there is no such thing, and then there is no consent for another writer
    entry_id: str
    #: whether a session may be opened without naming a model (the host then uses its own
    #: default). False for Hermes: there the model is the source's, or is given
    default_route: bool

    @property
    def recipe(self) -> str:
        """The key of :data:`handoff.sessions.launch.RECIPES` by which a session is opened.

        Raises:
            HandoffError: it can't be told.
        """
        ...

    def version(self) -> tuple[str, bool]:
        """The host's version ("" if it can't be told), and whether it was verified."""
        ...

    def route(self, session_id: str) -> Mapping[str, Any] | None:
        """``model``, ``provider``, ``observed_at`` (ms) as the host's own store has them for
        exactly that session; None if it has none. What the observer stored comes first."""
        ...

    def provider_named(self, provider: str) -> bool:
        """Whether the profile configures a stable provider of that name.

        Raises:
            HandoffError: it can't be told.
        """
        ...

    def tools(self, platform: str) -> Collection[str]:
        """The tools that the profile's policy allows on ``cli`` or ``desktop``.

        Raises:
            HandoffError: it can't be told (``policy_unknown`` in the preflight).
        """
        ...

    def config(self) -> Mapping[str, Any]:
        """The profile's configuration as the host loads it, for the consents of writer B.

        Raises:
            HandoffError: it can't be read.
        """
        ...

    def complete(self, prompt: str, model: str, provider: str) -> str:
        """The answer of another model; consent and cost were checked before.

        Raises:
            HandoffError: the host refused or failed. There is no fallback of ours.
        """
        ...

    def sessions(self) -> Opener | None:
        """How to look at the host's sessions; None where there is no way."""
        ...

    def candidates(self, frozen: Mapping[str, Any], since: int) -> Sequence[Mapping[str, Any]]:
        """The sessions that an attempt's start at ``since`` (ms) may have made: each with
        ``session_id`` and what a person knows it by (``title``, ``started``, ``messages``,
        ``source``). Empty where it can't be told."""
        ...

    def program(self) -> str:
        """The absolute path of the program that is started.

        Raises:
            LaunchFailed: there is none.
        """
        ...

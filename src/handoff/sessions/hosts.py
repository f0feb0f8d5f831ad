"""The hosts as seen from a terminal, outside any of them.

Of Hermes the terminal can't know what a profile allows: it asks the plugin in that very
profile, by the command ``hermes --profile P handoff-facts --workspace DIR --provider NAME``, which
answers with one line of JSON (:data:`FACTS`). Without an answer nothing is known, and nothing is
opened. Claude Code, Codex and opencode have no such profiles: their new sessions use their
own settings, ask for their own permissions, and reach a record by the tool
``hermes_handoff`` where the user has set it up, else by the command ``handoff session``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from handoff.errors import (
    Failed,
    HandoffError,
    LaunchFailed,
    NotAllowed,
    NotFound,
    TimedOut,
    UsageError,
)
from handoff.sessions import host_store, transcripts
from handoff.sessions.actions import TOOL
from handoff.sessions.environment import scrub
from handoff.sessions.host import KINDS, HostAdapter
from handoff.sessions.host_store import Opener
from handoff.sessions.profile import Profile

__all__ = ["FACTS", "Agent", "Hermes", "Nobody", "adapters", "surrounding"]

#: Keys of the answer of ``handoff-facts``: ``handoff_facts`` (1), ``version``, ``verified``,
#: ``profile``, ``tools`` {surface: [name]}, ``providers`` (those of the named ones that the
#: profile configures), ``recipe``, and ``errors`` {what: why} for what the plugin itself could
#: not find out (``tools.cli``, ``providers``)
FACTS = "handoff_facts"
#: seconds that a host has to answer: it starts a whole interpreter and its plugins
ANSWER = 60.0
_ANSWER_LIMIT = 1024 * 1024
#: the versions that were opened and followed to the end by tests
VERIFIED = {"claude": "2.1.332", "codex": "0.171.0", "opencode": "1.18.33"}
#: how a session of a host shows in the environment of what it starts: (name, kind)
_MARKS = (
    ("HERMES_SESSION_ID", "hermes"),
    ("CLAUDE_CODE_SESSION_ID", "claude"),
    ("CODEX_THREAD_ID", "codex"),
)


def surrounding(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """The sessions that this environment belongs to, each with its kind of host. More than
    one: an agent was started from within another one's session."""
    return [(env[name], kind) for name, kind in _MARKS if env.get(name)]


class _Outside:
    """What holds of every host that is seen from a terminal only."""

    entry_id = ""
    default_route = False

    def route(self, session_id: str) -> Mapping[str, Any] | None:
        """None: only what was observed from within counts."""
        del session_id
        return None

    def config(self) -> Mapping[str, Any]:
        """Empty: consents are looked at from within only."""
        return {}

    def complete(self, prompt: str, model: str, provider: str) -> str:
        """Raises NotAllowed: another writer is asked within Hermes only."""
        del prompt, model, provider
        raise NotAllowed(
            "another model can write the state only within a session of Hermes",
            remedy="let the session's own model write it, or do it in Hermes",
        )


class Agent(_Outside):
    """Claude Code, Codex or opencode (a :class:`~handoff.sessions.host.HostAdapter`)."""

    default_route = True

    def __init__(self, kind: str, env: Mapping[str, str], sessions: Opener | None = None) -> None:
        self.kind = self.recipe = kind
        self._env, self._sessions = env, sessions

    def version(self) -> tuple[str, bool]:
        """As its package says, without starting it; "" where there is no package."""
        try:
            path = os.path.dirname(os.path.realpath(self.program()))
        except LaunchFailed:
            return "", False
        for _ in range(6):
            try:
                with open(os.path.join(path, "package.json"), encoding="utf-8") as file:
                    found = json.loads(file.read(_ANSWER_LIMIT)).get("version", "")
                return str(found)[:64], found == VERIFIED[self.kind]
            except (OSError, ValueError, AttributeError):
                path = os.path.dirname(path)
        return "", False

    def provider_named(self, provider: str) -> bool:
        """True: which providers there are is in the agent's own settings, and it says so
        itself if there is no such one."""
        del provider
        return True

    def tools(self, platform: str) -> Collection[str]:
        """What a new session can reach: the tool, or the command that does the same."""
        if platform != "cli":
            raise NotAllowed(
                f"{self.kind} is opened in a terminal only", remedy="prepare it with --surface cli"
            )
        return (TOOL,)

    def sessions(self) -> Opener | None:
        """How to look at its sessions."""
        return self._sessions

    def candidates(self, frozen: Mapping[str, Any], since: int) -> Sequence[Mapping[str, Any]]:
        """The sessions that were started since and whose first message names the attempt."""
        if self._sessions is None:
            return []
        try:
            with self._sessions() as store:
                return _candidates(store, frozen, since)
        except NotFound:  # it has never kept a session
            return []

    def program(self) -> str:
        """The agent's command."""
        return _program(self.kind, self._env)


def _program(name: str, env: Mapping[str, str]) -> str:
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        raise LaunchFailed(f"there is no program '{name}' on PATH", remedy=f"which {name}")
    return os.path.abspath(found) if not os.path.isabs(found) else found


def _candidates(
    store: host_store.SessionStore, frozen: Mapping[str, Any], since: int
) -> list[Mapping[str, Any]]:
    """Sessions that began after the start was written down (a host's clock may round to
    seconds), whose first message is the opening prompt of this attempt."""
    wanted = f'"{frozen["attempt_id"]}"'
    found: list[Mapping[str, Any]] = []
    for one in store.started_since(since - 2000, 200):
        first = next(iter(store.messages([one.id], role="user")), None)
        tagged = one.source == "handoff"
        if one.id == frozen["source_session"] or not (
            wanted in first.text if first is not None else tagged
        ):
            continue
        found.append(
            {
                "session_id": one.id,
                "title": one.title,
                "started": one.started,
                "messages": one.messages,
                "source": one.source,
                "model": one.model,
            }
        )
    return found


class Hermes(_Outside):
    """Hermes Agent, asked through its command (a :class:`HostAdapter`).

    ``workspace``: where a session would open; some of the host's policies depend on it.
    """

    kind = "hermes"

    def __init__(self, profile: Profile, env: Mapping[str, str], workspace: str = "") -> None:
        self._profile, self._env, self._workspace = profile, env, workspace
        self._found: dict[str, Any] | HandoffError | None = None
        self._asked = ""

    @property
    def recipe(self) -> str:
        """As the plugin in that profile says."""
        return str(self._facts().get("recipe", ""))

    def version(self) -> tuple[str, bool]:
        """As the plugin says; "" where it does not answer."""
        try:
            found = self._facts()
        except HandoffError:
            return "", False
        return str(found.get("version", "")), found.get("verified") is True

    def provider_named(self, provider: str) -> bool:
        """Whether the profile configures that provider."""
        if self._asked != provider:
            self._found, self._asked = None, provider
        return provider in self._list("providers", self._facts().get("providers"))

    def tools(self, platform: str) -> Collection[str]:
        """The tools of a new session of the profile."""
        tools = self._facts().get("tools")
        value = tools.get(platform) if isinstance(tools, dict) else None
        return self._list(f"tools.{platform}", value)

    def sessions(self) -> Opener | None:
        """How to look at the profile's sessions."""
        path = self._profile.sessions
        return (lambda: host_store.opened(path)) if path else None

    def candidates(self, frozen: Mapping[str, Any], since: int) -> Sequence[Mapping[str, Any]]:
        """The sessions that may have come of the attempt."""
        with host_store.opened(self._profile.sessions) as store:
            return _candidates(store, frozen, since)

    def program(self) -> str:
        """The host's command."""
        return _program("hermes", self._env)

    def _list(self, what: str, value: object) -> list[str]:
        errors = self._facts().get("errors")
        why = errors.get(what) if isinstance(errors, dict) else None
        if why or not isinstance(value, list) or not all(isinstance(x, str) for x in value):
            raise Failed(f"Hermes can't say {what}: {why or 'there is no answer to that'}")
        return value

    def _facts(self) -> dict[str, Any]:
        """The plugin's answer, asked for once; so is none.

        Raises:
            LaunchFailed, TimedOut, Failed: there is none.
        """
        if self._found is None:
            try:
                self._found = self._ask()
            except HandoffError as error:
                self._found = error
        if isinstance(self._found, HandoffError):
            raise self._found
        return self._found

    def _ask(self) -> dict[str, Any]:
        name = self._profile.name
        argv = [self.program(), "--profile", name, "handoff-facts"]
        argv += ["--workspace", self._workspace] if self._workspace else []
        argv += ["--provider", self._asked] if self._asked else []
        env = {**scrub(self._env).env, "HERMES_HOME": self._profile.top}
        try:
            done = subprocess.run(
                argv,
                env=env,
                cwd=self._profile.home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ANSWER,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TimedOut(f"Hermes did not answer within {ANSWER:.0f} s") from error
        except (OSError, ValueError) as error:
            raise LaunchFailed(f"Hermes could not be asked: {error}") from error
        for line in reversed(done.stdout[-_ANSWER_LIMIT:].splitlines()):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and found.get(FACTS) == 1:
                if found.get("profile") != name:
                    raise Failed(f"Hermes answered for another profile than '{name}'")
                return found
        raise Failed(
            f"Hermes' profile '{name}' does not answer (exit {done.returncode}): "
            "is the plugin hermes-handoff enabled in it?",
            remedy=f"hermes --profile {name} plugins list",
        )


class Nobody(_Outside):
    """No agent: a person at a terminal, or an agent that Handoff does not know."""

    kind = "other"
    recipe = ""

    def version(self) -> tuple[str, bool]:
        """Not known."""
        return "", False

    def provider_named(self, provider: str) -> bool:
        """False."""
        del provider
        return False

    def tools(self, platform: str) -> Collection[str]:
        """Raises NotAllowed: there is nothing to open."""
        raise NotAllowed(f"no agent is known here that could be opened on {platform}")

    def sessions(self) -> Opener | None:
        """None."""
        return None

    def candidates(self, frozen: Mapping[str, Any], since: int) -> Sequence[Mapping[str, Any]]:
        """None."""
        del frozen, since
        return []

    def program(self) -> str:
        """Raises LaunchFailed."""
        raise LaunchFailed("no agent is known here that could be started")


def adapters(
    profile: Profile, env: Mapping[str, str], workspace: str = ""
) -> Callable[[str], HostAdapter]:
    """Each kind of host, for calls from a terminal in that profile."""

    def adapter(kind: str) -> HostAdapter:
        if kind == "hermes":
            return Hermes(profile, env, workspace)
        if kind in ("claude", "codex", "opencode"):
            return Agent(kind, env, transcripts.opener(kind, env))
        if kind in ("other", "terminal", ""):
            return Nobody()
        raise UsageError(f"there is no host '{kind}'", remedy="one of " + ", ".join(KINDS))

    made: dict[str, HostAdapter] = {}

    def remembered(kind: str) -> HostAdapter:
        if kind not in made:
            made[kind] = adapter(kind)
        return made[kind]

    return remembered

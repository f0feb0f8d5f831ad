"""What the Desktop page and the dashboard page may ask of Sessions, one JSON object at a time.

The host has checked already that the request comes from its own application. What a person
presses (:data:`PRESSED`) is a person's action; everything else only looks. No model's tool
leads here. What an entry of the page may not do is not in :data:`ACTIONS`: a record is made,
and an attempt prepared, by the source chat itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from handoff.errors import HandoffError, InputTooLarge, UsageError

from .runtime import Runtime
from .wording import in_hermes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.sessions.service import Caller, Service

__all__ = ["ACTIONS", "BODY_MAX", "PRESSED", "Desk"]

#: bytes of one request
BODY_MAX = 64 * 1024
#: actions of Sessions that a person decides or carries out by a press
PRESSED = (
    "recover",
    "confirm",
    "adopt",
    "abandon",
    "open_begin",
    "open_created",
    "open_submitted",
    "open_failed",
)
#: actions of Sessions that only look
LOOKS = ("opening_status", "list", "show", "log")
#: what a request's ``action`` may be
ACTIONS = ("facts", "capture", "attempt", *LOOKS, *PRESSED)
#: how Hermes marks the chats of its bots: the source of a room's session, and the title of the
#: one chat that each bot has
_BOT_SOURCES, _BOT_TITLE = ("bot_room",), "Bot Chat"
#: of a frozen attempt, what the page compares with what the person asked for
_FROZEN = (
    "document_sha256",
    "profile",
    "route",
    "source_session",
    "surface",
    "workspace_resolved",
)


class Desk:
    """Answers the page, for whichever profile is active. Called from any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._own: dict[str, Callable[[Service, Mapping[str, Any]], dict[str, Any]]] = {
            "facts": self._facts,
            "capture": self._capture,
            "attempt": self._attempt,
        }

    def answer(self, body: bytes) -> dict[str, Any]:
        """The reply to a request ``{"action": …, "arguments": {…}}``, as
        :func:`handoff.sessions.service.reply` has them. Never raises."""
        from handoff.sessions import retry

        action = ""
        try:
            action, given = _request(body)
            return self._answer(action, given)
        except HandoffError as error:
            return retry.to_json(error, action)
        except Exception as error:  # a fault of ours, or of a host's internals
            return {
                "ok": False,
                "action": action,
                "code": "internal",
                "message": f"an error of the plugin's own ({type(error).__name__})",
                "retry": retry.AFTER_INSPECTION,
                "remedy": "hermes handoff-status <attempt>",
                "details": {},
            }

    def _answer(self, action: str, given: Mapping[str, Any]) -> dict[str, Any]:
        from handoff.sessions.service import Caller, reply

        service = self._runtime.service(given)
        own = self._own.get(action)
        if own is not None:
            return {"ok": True, "action": action, **own(service, given)}
        caller: Caller = Caller("desktop", person=action in PRESSED)
        return in_hermes(reply(service, action, given, caller), service.profile)

    # -- the page's own questions --------------------------------------------------------

    def _facts(self, service: Service, given: Mapping[str, Any]) -> dict[str, Any]:
        """``profile``; ``version``, ``verified`` of the host; ``writer`` {allowed, keys}:
        whether the profile's owner consents to another writer, and what is missing."""
        _only(given, ())
        version, verified = service.host.version()
        return {
            "profile": service.profile.name,
            "version": version,
            "verified": verified,
            "writer": _consent(service),
        }

    def _capture(self, service: Service, given: Mapping[str, Any]) -> dict[str, Any]:
        """Whether this back end has that chat, and whether the folder is one: ``profile``,
        ``session``, ``messages``, ``workspace`` (resolved), ``writer``.

        Raises:
            SourceUnbound: this profile has no such chat, or an empty one.
            NotAllowed: it is a bot's.
            UsageError, WorkspaceMissing: the folder is none.
        """
        from handoff.errors import NotAllowed, SourceUnbound
        from handoff.sessions.workspace import resolve

        session, workspace = _only(given, ("session", "workspace"))
        resolved = resolve(workspace)
        opener = service.host.sessions()
        found = None
        if opener is not None and os.path.exists(service.profile.sessions):
            with opener() as store:
                found = store.session(session)
        if found is None or not found.messages:
            what = "has no messages" if found else "is not one of this profile"
            raise SourceUnbound(
                f"the chat {what}",
                remedy="select a chat of the active profile that has begun",
            )
        if found.source in _BOT_SOURCES or found.title == _BOT_TITLE:
            raise NotAllowed(
                "a bot's chat can't be handed over",
                remedy="select a chat of your own",
            )
        return {
            "profile": service.profile.name,
            "session": found.id,
            "messages": found.messages,
            "workspace": resolved,
            "writer": _consent(service),
        }

    def _attempt(self, service: Service, given: Mapping[str, Any]) -> dict[str, Any]:
        """``status``, as opening_status has it, and ``frozen``: what the attempt was made of."""
        from handoff.sessions.actions import check

        attempt = check("confirm", given)["attempt_id"]  # takes exactly that, too
        status = service.journal.status(attempt)
        frozen = service.journal.frozen(attempt)
        shown = {name: frozen[name] for name in _FROZEN}
        return {"status": status, "frozen": {**shown, "workspace": frozen["workspace_given"]}}


def _request(body: bytes) -> tuple[str, dict[str, Any]]:
    """The action and its arguments.

    Raises:
        InputTooLarge, UsageError: it is no such request.
    """
    if len(body) > BODY_MAX:
        raise InputTooLarge(f"a request has at most {BODY_MAX} bytes", limit=BODY_MAX)
    try:
        found = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError("the request is no JSON in UTF-8", remedy="use the page") from error
    if not isinstance(found, dict) or not set(found) <= {"action", "arguments"}:
        raise UsageError("a request is an object of action and arguments", remedy="use the page")
    action, given = found.get("action"), found.get("arguments", {})
    if not isinstance(action, str) or action not in ACTIONS:
        raise UsageError("the page has no such action", remedy="one of " + ", ".join(ACTIONS))
    if not isinstance(given, dict):
        raise UsageError("the arguments are an object", remedy="use the page")
    return action, given


def _only(given: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """The values of exactly these arguments, each a text.

    Raises:
        UsageError: others are there, or one of these is not a text that can be used.
    """
    if set(given) != set(names):
        raise UsageError(f"exactly these arguments are taken: {', '.join(names) or 'none'}")
    for name in names:
        value = given[name]
        if not isinstance(value, str) or not value or len(value) > 4096 or not _plain(value):
            raise UsageError(f"'{name}' is a text of one line, up to 4096 characters")
    return [given[name] for name in names]


def _plain(text: str) -> bool:
    return not any(sign < " " or "\ud800" <= sign <= "\udfff" for sign in text)


def _consent(service: Service) -> dict[str, Any]:
    from handoff.errors import ConsentMissing
    from handoff.sessions.writer import require_consent

    try:
        require_consent(service.host.entry_id, service.host.config(), accept_cost=True)
    except ConsentMissing as error:
        return {"allowed": False, "keys": error.details["keys"]}
    return {"allowed": True, "keys": []}

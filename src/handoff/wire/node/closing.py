"""Why a link is refused or ended: one table for both roles.

A WebSocket close carries a code and at most 123 bytes of text. The reason's name goes into
the last message (``hello_err``, ``auth_err``, ``bye``) and, with its sentence, into the
close frame, so that neither side has to guess. Codes 4001 to 4006 are those of the Go
programs; 4007 and above are ours.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["REASONS", "Close", "Reason", "close_text", "heard", "reason_of", "safe"]

NORMAL = 1000
GOING_AWAY = 1001
TOO_BIG = 1009
RESTARTING = 1012
AUTH = 4001
VERSION = 4002
ORDER = 4003
RATE = 4004
HANDSHAKE_TIMEOUT = 4005
REVOKED = 4006
NAME_IN_USE = 4007
PAIRING = 4008

#: bytes of a close frame's text (RFC 6455 section 5.5: 125 with the code)
CLOSE_TEXT = 123


class Reason(NamedTuple):
    """``code``: of the close frame. ``text``: one sentence. ``final``: coming back as the
    same node with the same credential can't help, a person has to do something."""

    code: int
    text: str
    final: bool = False


REASONS: dict[str, Reason] = {
    # before a session is open
    "handshake_timeout": Reason(HANDSHAKE_TIMEOUT, "the handshake took too long"),
    "expected_hello": Reason(ORDER, "the first message must be hello"),
    "expected_auth": Reason(ORDER, "the second message must be auth"),
    "unexpected_message": Reason(ORDER, "this message has no place in the handshake"),
    "bad_hello": Reason(ORDER, "the hello can't be used", final=True),
    "bad_auth": Reason(ORDER, "the auth can't be used", final=True),
    "malformed_frame": Reason(ORDER, "the frame is not a message"),
    "unsupported_protocol_version": Reason(
        VERSION, "the major version of the protocol differs", final=True
    ),
    "unknown_node": Reason(AUTH, "auth names another node than hello", final=True),
    "invalid_token": Reason(AUTH, "the credential is not valid for this name", final=True),
    "e2e_required": Reason(AUTH, "a sealed session is required", final=True),
    "server_unproven": Reason(AUTH, "the brain did not prove that it knows this node", final=True),
    "wrong_brain": Reason(AUTH, "the brain's key is not the pinned one", final=True),
    "revoked": Reason(REVOKED, "the node was revoked", final=True),
    "name_in_use": Reason(NAME_IN_USE, "another node of this name is connected", final=True),
    "pairing_refused": Reason(PAIRING, "the pairing code was not accepted", final=True),
    "paired": Reason(NORMAL, "pairing is done"),
    "not_now": Reason(RESTARTING, "the brain can't take nodes now"),
    # in an open session
    "plaintext_after_key": Reason(ORDER, "an unsealed message in a sealed session"),
    "bad_seal": Reason(ORDER, "a sealed message can't be opened"),
    "sequence_gap": Reason(ORDER, "a frame is missing, doubled or out of order"),
    "bad_stream": Reason(ORDER, "a stream breaks its offsets or its credit"),
    "session_exhausted": Reason(NORMAL, "the session's key was used often enough"),
    "rate_limit_exceeded": Reason(RATE, "too many messages a second"),
    "frame_too_big": Reason(TOO_BIG, "the frame is larger than allowed here"),
    "stale": Reason(NORMAL, "nothing was heard for too long"),
    "replaced": Reason(NORMAL, "the same node connected anew", final=False),
    "shutting_down": Reason(RESTARTING, "the other side restarts or ends"),
    "node_stopping": Reason(GOING_AWAY, "the node was told to stop"),
    "done": Reason(NORMAL, "nothing is left to do"),
}

#: close codes whose reason is not named in their text, as the Go programs send them
_BY_CODE = {
    NORMAL: "done",
    TOO_BIG: "frame_too_big",
    RESTARTING: "shutting_down",
    AUTH: "invalid_token",
    VERSION: "unsupported_protocol_version",
    ORDER: "malformed_frame",
    RATE: "rate_limit_exceeded",
    HANDSHAKE_TIMEOUT: "handshake_timeout",
    REVOKED: "revoked",
    NAME_IN_USE: "name_in_use",
    PAIRING: "pairing_refused",
}


class Close(NamedTuple):
    """How to close the WebSocket, or how it was closed. ``reason`` is a key of
    :data:`REASONS`, or another side's own word; ``detail`` says more. ``ours``: this side
    decided. ``retry_ms``: the other side asked not to come back before that long."""

    code: int
    reason: str
    detail: str = ""
    ours: bool = True
    retry_ms: int = 0

    @property
    def final(self) -> bool:
        """Whether coming back unchanged is of no use."""
        known = REASONS.get(self.reason)
        return known is not None and known.final

    @property
    def text(self) -> str:
        """The close frame's text."""
        return close_text(self.reason, self.detail)


def heard(code: int, reason: str, detail: str = "", retry_ms: int = 0) -> Close:
    """The end as the other side tells it: its words, safe to show, and no more of them than
    a person reads."""
    return Close(
        code, safe(reason, 64) or "lost", safe(detail), ours=False, retry_ms=max(0, retry_ms)
    )


def safe(text: str, limit: int = 300) -> str:
    """A text of the other side's, its control characters replaced."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:limit])


def close_text(reason: str, detail: str = "") -> str:
    """``reason: detail`` cut to what fits into a close frame, between characters."""
    known = REASONS.get(reason)
    said = detail or (known.text if known else "")
    if not said.startswith(f"{reason}:"):  # as it was heard, it may begin so
        said = f"{reason}: {said}" if said else reason
    raw = said.encode("utf-8", "replace")
    return raw[:CLOSE_TEXT].decode("utf-8", "ignore")


def reason_of(code: int, text: str) -> str:
    """The reason that a close frame names, or the one that its code stands for."""
    named = text.partition(":")[0].strip()
    if named in REASONS:
        return named
    return _BY_CODE.get(code, "lost")

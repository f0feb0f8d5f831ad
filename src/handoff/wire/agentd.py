"""The agentd API in data: event types with their wake class, and JSON helpers.

An event type has one meaning, everywhere. Whether it wakes a coordinator that waits is a
property of the type, decided here and sent with each event, so that no client keeps a list
of its own and a replay wakes exactly as the live stream did.
"""

from __future__ import annotations

from typing import NamedTuple


class EventType(NamedTuple):
    """``wakes``: whether ``handoff wait`` returns for it. ``meaning``: one sentence.
    ``action``: what a coordinator may do about it, "" if nothing."""

    wakes: bool
    meaning: str
    action: str = ""


EVENT_TYPES: dict[str, EventType] = {
    "dispatched": EventType(False, "The task was accepted and recorded."),
    "queue_changed": EventType(False, "The task waits for a free place on the machine."),
    "setup": EventType(False, "A set-up step of the fresh worktree began, ended or failed."),
    "executor_started": EventType(
        False, "An executor process runs and has a session (new, resumed, or context lost)."
    ),
    "progress": EventType(False, "Something that is worth a line but needs nobody."),
    "permission_request": EventType(
        True, "The executor may not go on before a permission is decided.", "handoff reply"
    ),
    "permission_allowed": EventType(
        False, "A rule allowed a permission (a write inside the task's worktree)."
    ),
    "permission_reuse": EventType(
        False, "An identical request was allowed by the coordinator before, in this task."
    ),
    "question": EventType(True, "The executor asks the coordinator something.", "handoff reply"),
    "ticket_answered": EventType(False, "An answer to a ticket was recorded."),
    "ticket_acknowledged": EventType(False, "The executor showed that it has taken an answer."),
    "delivery_failed": EventType(
        True,
        "A recorded answer could not be handed to the executor any more.",
        "handoff show, then continue",
    ),
    "deny_guidance_relayed": EventType(
        False, "The reason of a denial was sent to the executor as its next prompt."
    ),
    "deny_guidance_dropped": EventType(
        True, "The reason of a denial did not reach the executor.", "handoff continue"
    ),
    "tickets_voided": EventType(False, "Open tickets lost their meaning and were closed."),
    "verify": EventType(False, "A verify command began or ended."),
    "completed": EventType(
        True,
        "The executor says that the turn's work is done, and git and the verify commands agree.",
        "handoff diff, then continue or done",
    ),
    "turn_failed": EventType(
        True,
        "The turn ended without work that could be verified; the task can be continued.",
        "handoff show, then continue",
    ),
    "continued": EventType(False, "The coordinator sent further instructions."),
    "interrupted": EventType(False, "The coordinator asked to end the running turn."),
    "stalled": EventType(
        True, "Nothing was seen of the executor for longer than the limit.", "handoff attach"
    ),
    "resource_pressure": EventType(
        True, "The task's processes come near their limit.", "handoff footprint"
    ),
    "actor_refused": EventType(
        True, "A process inside the task tried to act as coordinator and was refused."
    ),
    "unrecognised": EventType(False, "The executor sent messages that its driver does not know."),
    "failed": EventType(True, "The task is over without being accepted.", "handoff dispatch"),
    "archived": EventType(True, "The coordinator accepted the task; it is over."),
}

#: what `wait --until-done` waits for: the turn is over, or the task is
RESTING_EVENTS = frozenset({"completed", "turn_failed", "failed", "archived"})


def wakes(event_type: str) -> bool:
    """The wake class of a known event type."""
    return EVENT_TYPES[event_type].wakes

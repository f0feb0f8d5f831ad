from __future__ import annotations

import json

import pytest

from handoff import errors
from handoff.errors import HandoffError, all_errors
from handoff.sessions.retry import AFTER_INSPECTION, NEVER, SAME_ID, retry_of, to_json


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (errors.UsageError, NEVER),
        (errors.PreflightRefused, NEVER),
        (errors.AttemptConflict, NEVER),
        (errors.SessionMismatch, NEVER),
        (errors.AckIncomplete, NEVER),
        (errors.LaunchFailed, NEVER),
        (errors.StorageFull, SAME_ID),
        (errors.TimedOut, SAME_ID),
        (errors.RepositoryLocked, SAME_ID),
        (errors.AlreadyReserved, AFTER_INSPECTION),
        (errors.OpeningUncertain, AFTER_INSPECTION),
        (errors.JournalCorrupt, AFTER_INSPECTION),
        (errors.OutcomeUnknown, AFTER_INSPECTION),
    ],
)
def test_rules(error: type[HandoffError], rule: str) -> None:
    assert retry_of(error()) == rule


@pytest.mark.parametrize("code", sorted(all_errors()))
def test_every_error_has_a_reply(code: str) -> None:
    reply = json.loads(json.dumps(to_json(all_errors()[code]("it broke", path="/x"), "read")))
    assert reply["ok"] is False
    assert (reply["action"], reply["code"], reply["message"]) == ("read", code, "it broke")
    assert reply["retry"] in (NEVER, SAME_ID, AFTER_INSPECTION)
    assert reply["details"] == {"path": "/x"}

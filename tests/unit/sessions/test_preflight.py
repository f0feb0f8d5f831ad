from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from handoff.errors import HandoffError, JournalCorrupt, NotFound, PreflightRefused
from handoff.sessions.journal import FROZEN
from handoff.sessions.preflight import CODES, Intent, preflight

REF = "handoff://project-1/abcdef"
INTENT = Intent("attempt-0001", REF, "/w", "bob", session="s-source")


class Fine:
    """Everything is as it should be."""

    def record(self, _ref: str) -> Mapping[str, Any]:
        return {
            "project_id": "project-1",
            "state_sha256": "a" * 64,
            "document_sha256": "d" * 64,
            "evidence_sha256": "e" * 64,
            "source": {"profile_id": "bob", "session_id": "s-source", "last_message": 7},
        }

    def workspace(self, path: str) -> Mapping[str, Any]:
        return {"project_id": "project-1", "resolved": path, "anchor": "f" * 64}

    def profile(self) -> str:
        return "bob"

    def route(self, _session: str) -> Mapping[str, Any] | None:
        return {"model": "m-1", "provider": "p-1", "observed_at": 5}

    def provider_named(self, provider: str) -> bool:
        return provider == "p-1"

    def tools(self, _platform: str) -> list[str]:
        return ["hermes_handoff", "read_file"]

    def host(self) -> tuple[str, bool]:
        return "0.22.5", True

    def live_attempts(self, _ref: str) -> list[str]:
        return []


def facts(**answers: Any) -> Any:
    """Fine, but for these: a value to return, or an exception to raise."""
    found = Fine()
    for name, answer in answers.items():

        def say(*_: Any, answer: Any = answer) -> Any:
            if isinstance(answer, BaseException):
                raise answer
            return answer

        setattr(found, name, say)
    return found


def codes(intent: Intent = INTENT, **answers: Any) -> list[str]:
    return [f.code for f in preflight(intent, facts(**answers)).findings]


def test_all_is_well() -> None:
    report = preflight(INTENT, Fine())
    report.refuse()
    assert report.findings == []
    frozen = report.frozen(INTENT, "1")
    assert set(frozen) == set(FROZEN)
    assert frozen["route"] == {
        "model": "m-1",
        "provider": "p-1",
        "origin": "observed",
        "observed_at": 5,
    }
    assert report.prompt.startswith("You are a new session.")


def manifest(**source: Any) -> dict[str, Any]:
    found = dict(Fine().record(REF))
    return {**found, "source": {**found["source"], **source}}


BROKEN = {
    "ref_not_found": {"record": NotFound("no such record")},
    "integrity_failed": {"record": HandoffError("digest differs")},
    "workspace_missing": {"workspace": NotFound("/w is gone")},
    "workspace_mismatch": {
        "workspace": {"project_id": "other", "resolved": "/w", "anchor": "f" * 64}
    },
    "source_mismatch": {"record": manifest(session_id="s-other")},
    "profile_mismatch": {"profile": "eve"},
    "route_unknown": {"route": None},
    "provider_not_configured": {"provider_named": False},
    "tool_not_allowed": {"tools": ["read_file"]},
    "policy_unknown": {"tools": ImportError("no module agent.coding_context")},
    "host_unverified": {"host": ("0.99", False)},
    "ref_already_opening": {"live_attempts": ["attempt-0007"]},
}


@pytest.mark.parametrize("code", BROKEN)
def test_each_check_can_fail(code: str) -> None:
    assert set(codes(**BROKEN[code])) == {code}


def test_a_model_without_a_provider_is_refused() -> None:
    assert codes(replace(INTENT, model="m-2")) == ["route_partial"]
    assert codes(replace(INTENT, provider="p-1")) == ["route_partial"]
    assert codes(replace(INTENT, model="m-2", provider="p-1"), route=None) == []


def test_an_explicit_route_needs_no_observed_one_but_a_configured_provider() -> None:
    report = preflight(replace(INTENT, model="m", provider="p-9"), Fine())
    assert [f.code for f in report.findings] == ["provider_not_configured"]
    assert report.found["route"]["origin"] == "explicit"


def test_the_prompt_has_to_fit() -> None:
    assert codes(replace(INTENT, workspace="/" + "x" * 3000)) == ["prompt_unfit"]


def test_all_failures_come_together_and_in_order() -> None:
    report = preflight(
        replace(INTENT, model="m"),
        facts(
            record=manifest(session_id="x"),
            workspace=NotFound("gone"),
            profile="eve",
            tools=[],
            host=("9", False),
            live_attempts=["attempt-0002"],
        ),
    )
    found = [f.code for f in report.findings]
    assert found == sorted(found, key=CODES.index)
    assert set(found) == {
        "workspace_missing",
        "source_mismatch",
        "profile_mismatch",
        "route_partial",
        "tool_not_allowed",
        "host_unverified",
        "ref_already_opening",
    }
    with pytest.raises(PreflightRefused) as caught:
        report.refuse()
    listed = caught.value.details["findings"]
    assert isinstance(listed, list)
    assert [f["code"] for f in listed] == found


@pytest.mark.parametrize("method", [name for name in vars(Fine) if not name.startswith("_")])
@pytest.mark.parametrize(
    "error", [OSError("secret /path"), KeyError("x"), JournalCorrupt("damaged"), TypeError()]
)
def test_not_to_know_is_a_failure(method: str, error: Exception) -> None:
    report = preflight(INTENT, facts(**{method: error}))
    assert report.findings
    blocks = bool(report.blocking())
    assert blocks or method == "host"
    assert "secret" not in str([f.to_json() for f in report.findings])


@pytest.mark.parametrize("answer", [{}, {"project_id": "project-1"}, None, 7])
def test_answers_of_another_shape_are_failures(answer: Any) -> None:
    assert "integrity_failed" in codes(record=answer)
    assert codes(workspace=answer) == ["workspace_mismatch"]


def test_warnings_alone_do_not_refuse() -> None:
    preflight(INTENT, facts(host=("0.99", False))).refuse()


def test_a_person_may_open_what_another_session_made() -> None:
    person = replace(INTENT, session="", any_source=True)
    assert codes(person) == []
    assert codes(replace(INTENT, session="")) == ["source_mismatch"]


def test_its_own_attempt_is_no_other_and_parallel_is_asked_for() -> None:
    assert codes(live_attempts=["attempt-0001"]) == []
    assert codes(replace(INTENT, allow_parallel=True), live_attempts=["attempt-0002"]) == []


def test_each_surface_is_asked_for_its_own_tools() -> None:
    def tools(platform: str) -> list[str]:
        return ["hermes_handoff"] if platform == "cli" else []

    found = Fine()
    found.tools = tools  # type: ignore[method-assign]
    assert [f.code for f in preflight(INTENT, found).findings] == ["tool_not_allowed"]
    assert preflight(replace(INTENT, surface="cli"), found).findings == []
    assert preflight(replace(INTENT, surface="desktop"), found).findings

"""May this record be opened from here, with this model, by this profile?

Ten checks in a fixed order, all of them made, all failures reported together. What can't
be found out counts as a failure: nothing is assumed in favour of opening. What a check
looks at comes through :class:`Facts`, whose methods may raise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from handoff.errors import HandoffError, NotFound, PreflightRefused
from handoff.sessions.history import digest
from handoff.sessions.prompt import command_of, opening_prompt, prompt_sha256

__all__ = ["CODES", "Facts", "Finding", "Intent", "Report", "preflight"]

#: in the order of the checks; all block but the ones in WARNINGS
CODES = (
    "ref_not_found",
    "integrity_failed",
    "workspace_missing",
    "workspace_mismatch",
    "source_mismatch",
    "profile_mismatch",
    "route_unknown",
    "route_partial",
    "provider_not_configured",
    "tool_not_allowed",
    "policy_unknown",
    "host_unverified",
    "ref_already_opening",
    "prompt_unfit",
)
WARNINGS = frozenset({"host_unverified"})
TOOL = "hermes_handoff"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that stands in the way (``block``) or has to be said (``warn``)."""

    code: str
    severity: str
    message: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """As a JSON object."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class Intent:
    """What is to be opened. session: who asks ("" for a person at a terminal, who then sets
    any_source). model and provider: both or neither. host: the kind of program that the new
    session runs in. surface: ``cli``, ``desktop``, ``any``."""

    attempt_id: str
    ref: str
    workspace: str
    profile: str
    session: str = ""
    any_source: bool = False
    model: str = ""
    provider: str = ""
    surface: str = "any"
    allow_parallel: bool = False
    supersedes: str = ""
    locale: str = "en"
    host: str = "hermes"


class Facts(Protocol):
    """What the checks look at. Every method may raise: that is a failed check."""

    def record(self, ref: str) -> Mapping[str, Any]:
        """The verified manifest: ``project_id``, ``state_sha256``, ``document_sha256``,
        ``evidence_sha256``, ``source`` {``profile_id``, ``session_id``, ``last_message``}.
        Raises NotFound if there is none, another HandoffError if it does not verify."""
        ...

    def workspace(self, path: str) -> Mapping[str, Any]:
        """``project_id``, ``resolved``, ``anchor`` of a folder. Raises NotFound if it is gone."""
        ...

    def profile(self) -> str:
        """The id of the profile that is active here."""
        ...

    def route(self, session_id: str) -> Mapping[str, Any] | None:
        """The last observed ``model``, ``provider``, ``observed_at`` of that session; where
        the new session's program may use a default of its own, ``origin`` ``default``."""
        ...

    def provider_named(self, provider: str) -> bool:
        """Whether the profile configures a stable provider of that name."""
        ...

    def tools(self, platform: str) -> Collection[str]:
        """The names of the tools that the profile's policy allows on that platform."""
        ...

    def host(self) -> tuple[str, bool]:
        """The host's version, and whether it is one that was verified."""
        ...

    def live_attempts(self, ref: str) -> Collection[str]:
        """The attempts of that record that are under way."""
        ...


@dataclass(slots=True)
class Report:
    """All findings in the order of the checks, and the fields that an attempt freezes."""

    findings: list[Finding] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    prompt: str = ""

    def blocking(self) -> list[Finding]:
        """The findings that forbid to open."""
        return [f for f in self.findings if f.severity == "block"]

    def refuse(self) -> None:
        """Raise PreflightRefused with every finding, if any of them blocks."""
        blocking = self.blocking()
        if blocking:
            raise PreflightRefused(
                "; ".join(f.message for f in blocking),
                remedy=next((f.remedy for f in blocking if f.remedy), ""),
                findings=[f.to_json() for f in self.findings],
            )

    def frozen(self, intent: Intent, version: str) -> dict[str, Any]:
        """The attempt to prepare. Call :meth:`refuse` first."""
        return {
            **self.found,
            "attempt_id": intent.attempt_id,
            "ref": intent.ref,
            "profile": intent.profile,
            "host": intent.host,
            "workspace_given": intent.workspace,
            "surface": intent.surface,
            "allow_parallel": intent.allow_parallel,
            "supersedes": intent.supersedes,
            "locale": intent.locale,
            "version": version,
            "prompt_sha256": prompt_sha256(self.prompt),
            "preflight_sha256": digest([f.to_json() for f in self.findings]),
        }


def preflight(intent: Intent, facts: Facts) -> Report:
    """Make all checks. Nothing is written and nothing raised; look at the report."""
    look = _Look(intent, facts)
    look.record()
    look.workspace()
    look.source()
    look.profile()
    look.route()
    look.tools()
    look.host()
    look.others()
    look.prompt()
    order = {code: position for position, code in enumerate(CODES)}
    look.report.findings.sort(key=lambda f: order[f.code])
    return look.report


class _Look:
    def __init__(self, intent: Intent, facts: Facts) -> None:
        self.intent, self.facts, self.report = intent, facts, Report()
        self.manifest: Mapping[str, Any] = {}

    def _add(self, code: str, message: str, remedy: str = "") -> None:
        severity = "warn" if code in WARNINGS else "block"
        self.report.findings.append(Finding(code, severity, message, remedy))

    def _ask(self, code: str, what: str, question: Callable[[], Any], gone: str = "") -> Any:
        """The answer, or None after a finding: not to know is a failure."""
        try:
            return question()
        except NotFound as error:
            self._add(gone or code, str(error), error.remedy)
        except HandoffError as error:
            self._add(code, f"{what} can't be told: {error}", error.remedy)
        except Exception as error:  # whatever a host's internals throw means: unknown
            self._add(code, f"{what} can't be told ({type(error).__name__})")
        return None

    def record(self) -> None:
        ref = self.intent.ref
        question = lambda: _manifest(self.facts.record(ref))  # noqa: E731
        found = self._ask("integrity_failed", f"record {ref}", question, gone="ref_not_found")
        if found is None:
            return
        self.manifest = found
        for key in ("state_sha256", "document_sha256", "evidence_sha256"):
            self.report.found[key] = found[key]
        self.report.found["source_session"] = found["source"]["session_id"]
        self.report.found["source_last_message"] = found["source"]["last_message"]

    def workspace(self) -> None:
        path = self.intent.workspace
        question = lambda: _place(self.facts.workspace(path))  # noqa: E731
        found = self._ask(
            "workspace_mismatch", f"the project of {path}", question, gone="workspace_missing"
        )
        if found is None:
            return
        self.report.found["workspace_resolved"] = found["resolved"]
        self.report.found["workspace_anchor"] = found["anchor"]
        if self.manifest and found["project_id"] != self.manifest["project_id"]:
            self._add(
                "workspace_mismatch",
                f"{path} belongs to another project than the record",
                "give a folder of the record's own project",
            )

    def source(self) -> None:
        if self.manifest and not self.intent.any_source:
            source = self.manifest["source"]["session_id"]
            if not self.intent.session or self.intent.session != source:
                self._add(
                    "source_mismatch",
                    "the record was made by another session than the one that asks",
                    "ask from that session, or open it yourself at a terminal",
                )

    def profile(self) -> None:
        active = self._ask("profile_mismatch", "the active profile", self.facts.profile)
        if active is None:
            return
        wanted = {self.intent.profile}
        if self.manifest:
            wanted.add(self.manifest["source"]["profile_id"])
        if wanted != {active}:
            self._add(
                "profile_mismatch",
                f"the record belongs to profile '{min(wanted - {active})}', this is '{active}'",
                "use the profile and HERMES_HOME of the record",
            )

    def route(self) -> None:
        model, provider = self.intent.model, self.intent.provider
        if bool(model) != bool(provider):
            self._add("route_partial", "model and provider go together: give both or neither")
            return
        route: dict[str, Any] = {"model": model, "provider": provider, "origin": "explicit"}
        if not model:
            session = self.manifest["source"]["session_id"] if self.manifest else ""
            question = lambda: self.facts.route(session) or {}  # noqa: E731
            seen = self._ask("route_unknown", "the source's model", question)
            if seen is None:
                return
            if seen.get("origin") == "default":
                route["origin"] = "default"
                self.report.found["route"] = route
                return
            if not seen.get("model") or not seen.get("provider"):
                self._add(
                    "route_unknown",
                    "no model was observed for the source session",
                    "give --model and --provider",
                )
                return
            route = {key: seen[key] for key in ("model", "provider")}
            route |= {"origin": "observed", "observed_at": seen.get("observed_at", 0)}
        self.report.found["route"] = route
        name = route["provider"]
        named = lambda: bool(self.facts.provider_named(name))  # noqa: E731
        if self._ask("provider_not_configured", f"provider '{name}'", named) is False:
            self._add(
                "provider_not_configured",
                f"the profile configures no provider named '{name}'",
                "configure it in the profile; temporary endpoints are not carried over",
            )

    def tools(self) -> None:
        surfaces = {"any": ("cli", "desktop")}.get(self.intent.surface, (self.intent.surface,))
        for surface in surfaces:
            question = lambda surface=surface: frozenset(self.facts.tools(surface))  # noqa: E731
            allowed = self._ask("policy_unknown", f"the tool policy for {surface}", question)
            if allowed is not None and TOOL not in allowed:
                self._add(
                    "tool_not_allowed",
                    f"the profile's tool policy for {surface} leaves out {TOOL}",
                    "enable it in the profile yourself; nothing here does",
                )

    def host(self) -> None:
        found = self._ask("host_unverified", "the host's version", self.facts.host)
        if found is not None and not found[1]:
            self._add("host_unverified", f"version {found[0]} of the host was never verified")

    def others(self) -> None:
        question = lambda: set(self.facts.live_attempts(self.intent.ref))  # noqa: E731
        found = self._ask("ref_already_opening", "what is being opened", question)
        others = (found or set()) - {self.intent.attempt_id}
        if others and not self.intent.allow_parallel:
            self._add(
                "ref_already_opening",
                f"attempt {min(others)} of this record is under way",
                f"recover {min(others)}",
            )

    def prompt(self) -> None:
        if not self.manifest:
            return
        given = self.intent

        def build() -> str:
            return opening_prompt(
                tool=TOOL,
                ref=given.ref,
                workspace=given.workspace,
                attempt_id=given.attempt_id,
                document_sha256=self.manifest["document_sha256"],
                locale=given.locale,
                command=command_of(given.host, given.profile),
            )

        self.report.prompt = self._ask("prompt_unfit", "the opening prompt", build) or ""


def _manifest(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The manifest, once all that is used of it is known to be there."""
    for key in ("project_id", "state_sha256", "document_sha256", "evidence_sha256"):
        found[key]
    for key in ("profile_id", "session_id", "last_message"):
        found["source"][key]
    return found


def _place(found: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("project_id", "resolved", "anchor"):
        found[key]
    return found

"""What the checks and the drift of an attempt look at, for one service and one destination."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from handoff.errors import HandoffError, NotFound, StorageError, WorkspaceMissing
from handoff.sessions import deliveries, drift, projects, routes
from handoff.sessions.host import KINDS, HostAdapter
from handoff.sessions.host_store import Opener
from handoff.sessions.preflight import Finding, Intent, Report, preflight
from handoff.sessions.records_view import Record
from handoff.sessions.service import Service
from handoff.sessions.workspace import bind

__all__ = ["Checked", "Here", "checks", "drift_of", "host_for", "opener_of"]

#: states in which a session has come of an attempt, or had
_IDENTIFIED = frozenset(
    {"session_identified", "handoff_read", "acknowledged", "user_confirmed", "closed"}
)


#: the kinds of host that are a program with a version
_PROGRAMS = frozenset(KINDS) - {"other"}


class Here:
    """The facts of the preflight (:class:`handoff.sessions.preflight.Facts`)."""

    def __init__(self, service: Service, host: HostAdapter) -> None:
        self._service, self._host = service, host

    def record(self, ref: str) -> Mapping[str, Any]:
        """The verified manifest."""
        return self._service.records.raw(ref)[0]

    def workspace(self, path: str) -> Mapping[str, Any]:
        """``project_id`` ("" for none), ``resolved``, ``anchor`` of a folder."""
        try:
            binding = bind(path)
        except WorkspaceMissing as error:
            remedy = (
                "prepare a new attempt for another folder of the same project "
                "(handoff session bind says that one belongs to it)"
            )
            raise NotFound(error.cause, remedy=remedy) from error
        return {
            "project_id": projects.find(self._service.records.root, binding),
            "resolved": binding.path,
            "anchor": binding.anchor_sha256,
        }

    def profile(self) -> str:
        """The id of the profile that is active here."""
        return self._service.profile.name

    def route(self, session_id: str) -> Mapping[str, Any] | None:
        """What the observer has seen of the session; a host with a default has that."""
        if self._host.default_route:
            return {"origin": "default"}
        return routes.last_route(self._service.journal, session_id) or self._host.route(session_id)

    def provider_named(self, provider: str) -> bool:
        """Whether the profile configures a provider of that name."""
        return self._host.provider_named(provider)

    def tools(self, platform: str) -> Collection[str]:
        """What the profile's policy allows."""
        return self._host.tools(platform)

    def host(self) -> tuple[str, bool]:
        """The host's version, and whether it was verified."""
        version, verified = self._host.version()
        return version or "(not known)", verified

    def live_attempts(self, ref: str) -> Collection[str]:
        """The attempts of that record that are under way."""
        return self._service.journal.live(ref)


class Checked:
    """A preflight and the drift that goes with it. ``report`` holds both, each code once;
    ``drift`` is None where the record could not be read."""

    def __init__(self, report: Report, found: drift.Drift | None, record: Record | None) -> None:
        self.report, self.drift, self.record = report, found, record

    @property
    def discrepancies(self) -> list[dict[str, Any]]:
        """What drift found, as JSON."""
        return [dict(one) for one in self.drift.findings] if self.drift else []

    @property
    def verdict(self) -> str:
        """Drift's verdict."""
        return self.drift.verdict if self.drift else "blocked"


def checks(service: Service, intent: Intent, host: HostAdapter) -> Checked:
    """All checks and all drift of an opening, as of now; nothing is written or raised."""
    report = preflight(intent, Here(service, host))
    try:
        record = service.records.read(intent.ref)
        found = drift_of(
            service,
            record,
            intent.workspace,
            host=host,
            parallel=intent.allow_parallel,
            but=(intent.attempt_id, intent.supersedes),
        )
    except HandoffError as error:
        if not report.blocking():
            report.findings.append(
                Finding("integrity_failed", "block", f"what changed can't be told: {error.cause}")
            )
        return Checked(report, None, None)
    known = {one.code for one in report.findings}
    for one in found.findings:
        if one["code"] not in known and one["severity"] != "note":
            report.findings.append(
                Finding(one["code"], one["severity"], one["message"], _remedy(one))
            )
    return Checked(report, found, record)


def _remedy(found: Mapping[str, Any]) -> str:
    """What can be done about something that has changed, where it is one thing."""
    if found["code"] == "already_opened":
        attempt = found["details"]["attempts"][-1]
        return f"prepare it with --supersedes {attempt} if that one is over"
    return str(found.get("details", {}).get("remedy", ""))


def drift_of(
    service: Service,
    record: Record,
    workspace: str = "",
    *,
    host: HostAdapter | None = None,
    parallel: bool = True,
    but: Sequence[str] = (),
) -> drift.Drift:
    """What of a record does not hold now. ``host``: where it opens, or was opened; another
    kind than the source's has nothing to be compared. ``but``: attempts that do not count as
    others."""
    opened, given, unknown = _opened(service, record.ref, but)
    source = record.manifest["source"]
    version, lost, more = _hosted(service, host, source)
    unknown = [*unknown, *more]
    return drift.compare_record(
        service.records,
        record,
        drift.Now(
            service.clock.now_ms(),
            workspace,
            service.profile.name,
            opener_of(service, source["host"]) or "",
            version,
            opened,
            parallel,
            lost,
            unknown,
            given,
        ),
    )


def host_for(service: Service, record: Record, kind: str = "") -> HostAdapter | None:
    """The host that a record is held against at reading: of that kind, or else the kind that it
    was made in. None where that is no program, or can't be asked from here."""
    kind = kind or record.manifest["source"]["host"]
    if kind not in _PROGRAMS:
        return None
    try:
        return service.host_of(kind)
    except HandoffError:
        return None


def _hosted(
    service: Service, host: HostAdapter | None, source: Mapping[str, Any]
) -> tuple[str, str, list[dict[str, str]]]:
    """The host's version, the provider that it names no more, and what can't be told."""
    if host is None or host.kind != source["host"]:
        return "", "", []
    lost, unknown = _lost_provider(service, host, source["session_id"])
    then, now = source["host_version"], host.version()[0]
    if not (then and now):
        what = f"it was {then}" if then else f"it is {now}" if now else "neither is known"
        message = f"whether {host.kind} is of another version now can't be told: {what}"
        unknown = [*unknown, {"code": "unavailable", "severity": "note", "message": message}]
    return now, lost, unknown


def _opened(
    service: Service, ref: str, but: Sequence[str]
) -> tuple[list[str], list[str], list[dict[str, str]]]:
    """The attempts of a record that reached a session, where it went besides, and what to say if
    that can't be told: a record is a file of its own, and can be read beside a journal that is
    damaged.

    Raises:
        StorageError: it can't be told, and the call is about an attempt.
    """
    journal = service.journal
    try:
        found = [
            attempt
            for attempt in journal.attempts(ref)
            if attempt not in but and journal.history(attempt).state in _IDENTIFIED
        ]
        given = [_given(one) for one in deliveries.listed(journal, ref) if one["state"] != "failed"]
    except StorageError as error:
        if any(but):
            raise
        message = f"whether it was opened already can't be told: {error.cause}"
        return [], [], [{"code": "unavailable", "severity": "warn", "message": message}]
    return found, given, []


def _given(delivery: Mapping[str, Any]) -> str:
    """A delivery in a few words."""
    to, came = delivery["to"], delivery["came_of_it"]
    if to.get("kind") == "task":
        where = f" on {to['target']}" if to.get("target") else ""
        what = f"task {came['task']}{where}" if came.get("task") else f"a task{where}"
    else:
        what = "something that this version does not know of"
    return what if delivery["state"] == "delivered" else f"perhaps {what}"


def _lost_provider(
    service: Service, host: HostAdapter, session_id: str
) -> tuple[str, list[dict[str, str]]]:
    """The provider of the source's last model, if the profile names it no more, or else "";
    and what to say if that can't be told. Where nothing was observed, nothing is said."""
    try:
        seen = routes.last_route(service.journal, session_id)
        if seen is None or host.provider_named(seen["provider"]):
            return "", []
    except HandoffError as error:
        message = f"whether the source's model can still be had can't be told: {error.cause}"
        return "", [{"code": "unavailable", "severity": "warn", "message": message}]
    return str(seen["provider"]), []


def opener_of(service: Service, kind: str) -> Opener | None:
    """How to look at the sessions of that kind of host, if there is a way from here."""
    try:
        return service.host_of(kind).sessions()
    except HandoffError:
        return None

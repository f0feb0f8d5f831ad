"""Every error that Handoff raises on purpose.

::

    HandoffError                       code                     http exit
    ├── UsageError                     usage                    400  2    the call itself is wrong
    │   ├── ConfigError                config_invalid           400  2
    │   ├── PathTooLong                path_too_long            400  2
    │   ├── ImportRefused              import_refused           400  2
    │   ├── BadRequest                 bad_request              400  2
    │   ├── InputTooLarge              input_too_large          413  2
    │   └── StateInvalid               state_invalid            400  2
    ├── NotAllowed                     not_allowed              409  3    right call, wrong moment
    │   ├── BadTransition              bad_transition           409  3
    │   ├── WrongKind                  wrong_ticket_kind        409  3
    │   ├── TicketSettled              ticket_settled           409  3
    │   ├── ChangedSinceAsked          changed_since_asked      409  3
    │   ├── WorkspaceBusy              workspace_busy           409  3
    │   ├── WorkspaceDirty             workspace_dirty          409  3
    │   ├── WorkspaceRefused           workspace_refused        409  3
    │   ├── ActorRefused               actor_refused            403  3
    │   ├── ConsentMissing             consent_missing          403  3
    │   ├── AttemptConflict            attempt_conflict         409  3
    │   ├── AlreadyReserved            already_reserved         409  3
    │   ├── OpeningUncertain           opening_uncertain        409  3
    │   ├── PreflightRefused           preflight_refused        409  3
    │   ├── SessionMismatch            session_mismatch         403  3
    │   ├── AckIncomplete              ack_incomplete           409  3
    │   ├── SourceUnbound              source_unbound           403  3
    │   ├── RequestConflict            request_conflict         409  3
    │   ├── WorkspaceMissing           workspace_missing        409  3
    │   ├── WorkspaceMismatch          workspace_mismatch       409  3
    │   ├── ProfileMismatch            profile_mismatch         409  3
    │   ├── RecordInUse                record_in_use            409  3
    │   ├── NotATerminal               not_a_terminal           409  3
    │   ├── PathNotAllowed             path_not_allowed         403  3
    │   ├── PolicyDenied               policy_denied            403  3
    │   ├── PolicyAsks                 policy_ask               409  3
    │   ├── PairingRefused             pairing_refused          403  3
    │   ├── NodeExists                 node_exists              409  3
    │   ├── UnsupportedByPeer          unsupported_by_peer      409  3
    │   ├── FileInTheWay               file_exists              409  3
    │   ├── FileChanged                if_match_failed          409  3
    │   ├── PortInUse                  port_in_use              409  3
    │   └── AlreadyRunning             already_running          409  3
    ├── NotFound                       not_found                404  4
    │   ├── UnknownTask                unknown_task             404  4
    │   ├── UnknownTicket              unknown_ticket           404  4
    │   ├── UnknownProject             unknown_project          404  4
    │   ├── UnknownRecord              ref_not_found            404  4
    │   ├── UnknownAttempt             unknown_attempt          404  4
    │   ├── UnknownNode                unknown_node             404  4
    │   ├── FileMissing                file_not_found           404  4
    │   ├── UnknownCall                unknown_call             404  4
    │   └── AmbiguousId                ambiguous_id             409  2
    ├── Unreachable                    unreachable              503  5
    │   ├── Unauthorized               unauthorized             401  5
    │   ├── NodeOffline                node_offline             503  5
    │   └── OutcomeUnknown             outcome_unknown          504  5
    └── Failed                         failed                   500  1    it was tried and did not work
        ├── Cancelled                  cancelled                409  1
        ├── ExecutorError              executor_failed          502  1
        │   ├── ExecutorMissing        executor_missing         400  1
        │   └── ExecutorGone           executor_gone            502  1
        ├── GitError                   git_failed               500  1
        │   ├── GitMissing             git_missing              400  1
        │   ├── GitTooOld              git_too_old              400  1
        │   ├── NotARepository         not_a_repository         400  1
        │   ├── EmptyRepository        empty_repository         409  1
        │   ├── DubiousOwnership       dubious_ownership        403  1
        │   └── RepositoryLocked       repository_locked        409  1
        ├── StorageError               storage_failed           507  1
        │   ├── StorageFull            storage_full             507  1
        │   ├── IntegrityFailed        integrity_failed         500  1
        │   ├── JournalCorrupt         journal_corrupt          500  1
        │   └── SchemaTooNew           schema_too_new           500  1
        ├── LaunchFailed               launch_failed            500  1
        ├── ReleaseRefused             release_refused          500  1
        ├── FileError                  io_error                 500  1
        │   └── NotARegularFile        not_a_regular_file       409  1
        ├── TooLarge                   too_large                413  1
        │   └── FileTooLarge           file_too_large           413  1
        ├── TimedOut                   timed_out                504  124
        └── ProtocolViolation          protocol_violation       502  1

An error carries a cause (one line, in ``str(error)``), a remedy (one line, often a
command that works as printed) and details (JSON values that a script may use).
``code`` is stable: scripts may match it. ``http`` and ``exit_code`` are data on the
class, so that the daemon and the CLI translate in one place each.
"""

from __future__ import annotations

__all__ = [
    "AckIncomplete",
    "ActorRefused",
    "AlreadyReserved",
    "AlreadyRunning",
    "AmbiguousId",
    "AttemptConflict",
    "BadRequest",
    "BadTransition",
    "Cancelled",
    "ChangedSinceAsked",
    "ConfigError",
    "ConsentMissing",
    "DubiousOwnership",
    "EmptyRepository",
    "ExecutorError",
    "ExecutorGone",
    "ExecutorMissing",
    "Failed",
    "FileChanged",
    "FileError",
    "FileInTheWay",
    "FileMissing",
    "FileTooLarge",
    "GitError",
    "GitMissing",
    "GitTooOld",
    "HandoffError",
    "ImportRefused",
    "InputTooLarge",
    "IntegrityFailed",
    "JournalCorrupt",
    "LaunchFailed",
    "NodeExists",
    "NodeOffline",
    "NotARegularFile",
    "NotARepository",
    "NotATerminal",
    "NotAllowed",
    "NotFound",
    "OpeningUncertain",
    "OutcomeUnknown",
    "PairingRefused",
    "PathNotAllowed",
    "PathTooLong",
    "PolicyAsks",
    "PolicyDenied",
    "PortInUse",
    "PreflightRefused",
    "ProfileMismatch",
    "ProtocolViolation",
    "RecordInUse",
    "ReleaseRefused",
    "RepositoryLocked",
    "RequestConflict",
    "SchemaTooNew",
    "SessionMismatch",
    "SourceUnbound",
    "StateInvalid",
    "StorageError",
    "StorageFull",
    "TicketSettled",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "UnknownAttempt",
    "UnknownCall",
    "UnknownNode",
    "UnknownProject",
    "UnknownRecord",
    "UnknownTask",
    "UnknownTicket",
    "Unreachable",
    "UnsupportedByPeer",
    "UsageError",
    "WorkspaceBusy",
    "WorkspaceDirty",
    "WorkspaceMismatch",
    "WorkspaceMissing",
    "WorkspaceRefused",
    "WrongKind",
    "all_errors",
    "from_json",
]


class HandoffError(Exception):
    """Base of all typed errors.

    Args:
        cause: one line that says what is wrong, with names and values.
        remedy: one line that says what to do, or "" where nothing can be said.
        details: JSON values for scripts (ids, paths, lists).
    """

    code = "internal"
    http = 500
    exit_code = 1

    def __init__(self, cause: str = "", *, remedy: str = "", **details: object) -> None:
        super().__init__(cause)
        self.cause = cause or (self.__doc__ or self.code).strip().splitlines()[0]
        self.remedy = remedy
        self.details = details

    def __str__(self) -> str:
        return self.cause

    def to_json(self) -> dict[str, object]:
        """The wire form: ``error`` text, ``code``, ``remedy``, ``details``."""
        body: dict[str, object] = {"error": self.cause, "code": self.code}
        if self.remedy:
            body["remedy"] = self.remedy
        if self.details:
            body["details"] = self.details
        return body


class UsageError(HandoffError):
    """The call itself is wrong."""

    code = "usage"
    http = 400
    exit_code = 2


class ConfigError(UsageError):
    """The configuration can't be used."""

    code = "config_invalid"


class PathTooLong(UsageError):
    """A path is longer than the operating system allows for a socket."""

    code = "path_too_long"


class ImportRefused(UsageError):
    """The bundle is not one that can be taken in."""

    code = "import_refused"


class BadRequest(UsageError):
    """The call has a field that is missing, of the wrong kind, or at odds with another."""

    code = "bad_request"


class InputTooLarge(UsageError):
    """A state, a document, a plan or a request has more bytes than are taken."""

    code = "input_too_large"
    http = 413


class StateInvalid(UsageError):
    """A session's state, or its document, breaks the rules of its format."""

    code = "state_invalid"


class NotAllowed(HandoffError):
    """Not allowed in this state."""

    code = "not_allowed"
    http = 409
    exit_code = 3


class BadTransition(NotAllowed):
    """The state machine has no such transition."""

    code = "bad_transition"


class WrongKind(NotAllowed):
    """The answer does not fit the kind of the ticket."""

    code = "wrong_ticket_kind"


class TicketSettled(NotAllowed):
    """The ticket was already answered, withdrawn or made void."""

    code = "ticket_settled"


class ChangedSinceAsked(NotAllowed):
    """What the command would use is not what it was when it was asked for."""

    code = "changed_since_asked"


class WorkspaceBusy(NotAllowed):
    """Another open task works in that place."""

    code = "workspace_busy"


class WorkspaceDirty(NotAllowed):
    """There are uncommitted changes in that place."""

    code = "workspace_dirty"


class WorkspaceRefused(NotAllowed):
    """The workspace can't be made or removed as asked."""

    code = "workspace_refused"


class ActorRefused(NotAllowed):
    """A process inside a task may not act as coordinator."""

    code = "actor_refused"
    http = 403


class ConsentMissing(NotAllowed):
    """The owner of the profile has not agreed to that."""

    code = "consent_missing"
    http = 403


class AttemptConflict(NotAllowed):
    """That attempt was frozen with something else."""

    code = "attempt_conflict"


class AlreadyReserved(NotAllowed):
    """Another opener holds the right to open that attempt, or a record's other attempt."""

    code = "already_reserved"


class OpeningUncertain(NotAllowed):
    """A session may have been started: a person has to look before anything else happens."""

    code = "opening_uncertain"


class PreflightRefused(NotAllowed):
    """A new session may not be opened as things stand."""

    code = "preflight_refused"


class SessionMismatch(NotAllowed):
    """That session is not the one that was opened."""

    code = "session_mismatch"
    http = 403


class AckIncomplete(NotAllowed):
    """The acknowledgement does not show that all of it was read."""

    code = "ack_incomplete"


class SourceUnbound(NotAllowed):
    """The call does not say which session it speaks for."""

    code = "source_unbound"
    http = 403


class RequestConflict(NotAllowed):
    """That request id was used for something else."""

    code = "request_conflict"


class WorkspaceMissing(NotAllowed):
    """The workspace is not there."""

    code = "workspace_missing"


class WorkspaceMismatch(NotAllowed):
    """The folder belongs to another project than the record."""

    code = "workspace_mismatch"


class ProfileMismatch(NotAllowed):
    """That is not the profile that the record belongs to."""

    code = "profile_mismatch"


class RecordInUse(NotAllowed):
    """An attempt to open the record is under way."""

    code = "record_in_use"


class NotATerminal(NotAllowed):
    """Standard input and output have to be a terminal."""

    code = "not_a_terminal"


class PathNotAllowed(NotAllowed):
    """The node's policy keeps this path from being read or written."""

    code = "path_not_allowed"
    http = 403


class PolicyDenied(NotAllowed):
    """The node's policy refuses the call."""

    code = "policy_denied"
    http = 403


class PolicyAsks(NotAllowed):
    """The node's policy wants a person at the node to agree first; nothing was done."""

    code = "policy_ask"


class PairingRefused(NotAllowed):
    """The pairing code is unknown, used, expired, or was not proven."""

    code = "pairing_refused"
    http = 403


class NodeExists(NotAllowed):
    """A node of that name is known already."""

    code = "node_exists"


class UnsupportedByPeer(NotAllowed):
    """The node at the other end is of a kind that can't do that."""

    code = "unsupported_by_peer"


class FileInTheWay(NotAllowed):
    """Something of that name exists already."""

    code = "file_exists"


class FileChanged(NotAllowed):
    """The file is not the one that the caller has seen."""

    code = "if_match_failed"


class PortInUse(NotAllowed):
    """The port that a brain was told to listen on, or has listened on, is another program's."""

    code = "port_in_use"


class AlreadyRunning(NotAllowed):
    """Another agentd owns this data directory, or the port is taken."""

    code = "already_running"


class NotFound(HandoffError):
    """There is no such thing."""

    code = "not_found"
    http = 404
    exit_code = 4


class UnknownTask(NotFound):
    """No task has that id."""

    code = "unknown_task"


class UnknownTicket(NotFound):
    """The task has no such ticket."""

    code = "unknown_ticket"


class UnknownProject(NotFound):
    """No registered project has that name."""

    code = "unknown_project"


class UnknownRecord(NotFound):
    """No handoff record has that ref here."""

    code = "ref_not_found"


class UnknownAttempt(NotFound):
    """No attempt to open a session has that id here."""

    code = "unknown_attempt"


class UnknownNode(NotFound):
    """No node has that name."""

    code = "unknown_node"


class FileMissing(NotFound):
    """There is no such file on the node."""

    code = "file_not_found"


class UnknownCall(NotFound):
    """The node does not know that call, job or output any more."""

    code = "unknown_call"


class AmbiguousId(NotFound):
    """The prefix fits more than one id."""

    code = "ambiguous_id"
    http = 409
    exit_code = 2


class Unreachable(HandoffError):
    """agentd does not answer."""

    code = "unreachable"
    http = 503
    exit_code = 5


class Unauthorized(Unreachable):
    """agentd refused the credential."""

    code = "unauthorized"
    http = 401


class NodeOffline(Unreachable):
    """The node is not connected; nothing was asked of it."""

    code = "node_offline"


class OutcomeUnknown(Unreachable):
    """The link was lost after the call was sent: it may or may not have been carried out."""

    code = "outcome_unknown"
    http = 504


class Failed(HandoffError):
    """It was tried and did not work."""

    code = "failed"


class Cancelled(Failed):
    """Whoever asked has ended the call before all of it had come."""

    code = "cancelled"
    http = 409


class ExecutorError(Failed):
    """The executor could not do it."""

    code = "executor_failed"
    http = 502


class ExecutorMissing(ExecutorError):
    """The executor is not installed, or its interpreter is not."""

    code = "executor_missing"
    http = 400


class ExecutorGone(ExecutorError):
    """The executor's process has ended."""

    code = "executor_gone"


class GitError(Failed):
    """A git command failed."""

    code = "git_failed"


class GitMissing(GitError):
    """There is no git program on PATH."""

    code = "git_missing"
    http = 400


class GitTooOld(GitError):
    """The git on PATH is older than Handoff needs."""

    code = "git_too_old"
    http = 400


class NotARepository(GitError):
    """That folder is not in a git repository."""

    code = "not_a_repository"
    http = 400


class EmptyRepository(GitError):
    """The repository has no commit yet."""

    code = "empty_repository"
    http = 409


class DubiousOwnership(GitError):
    """The repository belongs to another user, so git refuses to work in it."""

    code = "dubious_ownership"
    http = 403


class RepositoryLocked(GitError):
    """A lock file of git is in the way."""

    code = "repository_locked"
    http = 409


class StorageError(Failed):
    """The data directory can't be read or written."""

    code = "storage_failed"
    http = 507


class StorageFull(StorageError):
    """The disk that holds the data directory is full."""

    code = "storage_full"


class IntegrityFailed(StorageError):
    """A handoff record is not what it was when it was published."""

    code = "integrity_failed"
    http = 500


class JournalCorrupt(StorageError):
    """The opening journal is damaged or was changed: nothing is opened from it."""

    code = "journal_corrupt"
    http = 500


class SchemaTooNew(StorageError):
    """The database was written by a newer version of Handoff."""

    code = "schema_too_new"
    http = 500


class LaunchFailed(Failed):
    """The program could not be started, and nothing runs."""

    code = "launch_failed"


class ReleaseRefused(Failed):
    """The release is not what its manifest, or the digest that was given, says."""

    code = "release_refused"


class TooLarge(Failed):
    """More bytes than the documented limit."""

    code = "too_large"
    http = 413


class FileTooLarge(TooLarge):
    """The file is larger than the caller or the protocol can take in one piece."""

    code = "file_too_large"


class FileError(Failed):
    """The operating system refused to read or write a file."""

    code = "io_error"


class NotARegularFile(FileError):
    """A folder, pipe, socket or device stands where a file was expected."""

    code = "not_a_regular_file"
    http = 409


class TimedOut(Failed):
    """It did not end within its time limit."""

    code = "timed_out"
    http = 504
    exit_code = 124


class ProtocolViolation(Failed):
    """The peer sent something that its protocol does not allow."""

    code = "protocol_violation"
    http = 502


def all_errors() -> dict[str, type[HandoffError]]:
    """Every error class by its code, the base included. A class without a code of its own
    (one that a module raises and catches itself) goes over the wire as its base."""
    found: dict[str, type[HandoffError]] = {}
    queue = [HandoffError]
    while queue:
        cls = queue.pop()
        if "code" in vars(cls):
            found[cls.code] = cls
        queue.extend(cls.__subclasses__())
    return found


def from_json(body: dict[str, object], http: int = 500) -> HandoffError:
    """The error that a peer sent, as the class of its code.

    A code that this version does not know becomes the nearest base by its HTTP status,
    and keeps its own code.
    """
    code = str(body.get("code") or "")
    cls = all_errors().get(code)
    if cls is None:
        by_status = {400: UsageError, 401: Unauthorized, 404: NotFound, 409: NotAllowed}
        cls = by_status.get(http, Failed)
    details = body.get("details")
    error = cls(
        str(body.get("error") or f"agentd answered {http}"),
        remedy=str(body.get("remedy") or ""),
        **({str(k): v for k, v in details.items()} if isinstance(details, dict) else {}),
    )
    if code:
        error.code = code
    return error

"""What an executor's driver is given, and what it says.

A driver is sans-I/O: it is fed the executor's output line by line and the commands of the
task's actor, and returns *outputs*: bytes for the executor's standard input
(:class:`Send`) and observations in Handoff's own vocabulary. It has no clock, no file and
no socket. Its whole state is one JSON value (:meth:`Driver.dump`) that the actor commits
together with everything derived from it, so that after a crash the same driver continues
at the same byte.

Obligations of the caller: feed each line exactly once and in order; write every
:class:`Send` in order; commit ``dump()`` in the transaction that holds the observations.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an executor or a turn failed, as far as the executor told.

    ``code``: ``login`` (not logged in, expired), ``limit`` (quota, rate, usage),
    ``model`` (unknown model), ``network``, ``overloaded``, ``refused`` (the model
    declined), ``cut_short`` (token or turn limit), ``cancelled``, ``crash`` (the process
    ended), ``protocol`` (it broke its protocol), ``start`` (could not begin), ``other``.
    ``resets_at``: the executor's own words for when a limit ends, never a guess.
    """

    code: str
    message: str
    resets_at: str | None = None
    status: int | None = None


# -- outputs -----------------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True, tag=True):
    """Bytes for the executor's standard input: whole lines, newline included."""

    data: bytes


class SessionReady(msgspec.Struct, frozen=True, tag=True):
    """The executor has a session. ``context``: ``new``, ``resumed`` or ``lost`` (the old
    session could not be loaded and a new one was made)."""

    session_id: str
    context: Literal["new", "resumed", "lost"] = "new"
    model: str | None = None
    agent: str | None = None
    version: str | None = None


class StartFailed(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The executor will never be ready; its process should be ended. ``lost``: only
    because the session to resume is gone: a process without ``resume`` would start."""

    fault: Fault
    lost: bool = False


class PromptTaken(msgspec.Struct, frozen=True, tag=True):
    """The first sign that the executor works on the prompt last sent."""


class Text(msgspec.Struct, frozen=True, tag=True):
    """A piece of the model's text, as it streams. ``parent``: the tool call id of the
    sub-agent that speaks, or None for the main agent. ``thought``: reasoning, not said."""

    text: str
    thought: bool = False
    parent: str | None = None


class ToolCall(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A tool call, at its start and at each change (same ``id``).

    ``kind``: ``read``, ``edit``, ``write``, ``delete``, ``move``, ``search``,
    ``execute``, ``fetch``, ``think``, ``other``. Fields that a change does not mention
    are None.
    """

    id: str
    status: Literal["pending", "running", "completed", "failed"]
    kind: str | None = None
    title: str | None = None
    command: str | None = None
    paths: tuple[str, ...] = ()
    input: str | None = None
    output: str | None = None
    parent: str | None = None


class FileEdit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a write would do to one file, as far as the executor says.

    ``old`` None: the executor did not say (or the file is new); ``new`` None: unknown.
    ``whole``: old and new are the whole file, not an extract.
    """

    path: str
    old: str | None = None
    new: str | None = None
    whole: bool = False


class PermissionAsked(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The executor stops until it is allowed or denied.

    ``id``: the executor's own id, unique within its process. ``kind`` as in
    :class:`ToolCall`. ``text``: what the executor says it wants, in full. ``raw``: the
    tool's input as JSON text, in full.
    """

    id: str
    tool: str
    kind: str
    title: str
    text: str
    raw: str
    command: str | None = None
    cwd: str | None = None
    paths: tuple[str, ...] = ()
    edits: tuple[FileEdit, ...] = ()
    reason: str | None = None
    tool_call_id: str | None = None
    parent: str | None = None


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One offered answer."""

    label: str
    description: str = ""


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question of a :class:`QuestionAsked`. Free text is always a legal answer."""

    text: str
    header: str = ""
    choices: tuple[Choice, ...] = ()
    multiple: bool = False


class QuestionAsked(msgspec.Struct, frozen=True, tag=True):
    """The executor stops inside its turn until it is answered."""

    id: str
    questions: tuple[Question, ...]
    tool_call_id: str | None = None


class AskClosed(msgspec.Struct, frozen=True, tag=True):
    """A permission or question that nobody needs to answer any more.

    ``how``: ``acknowledged`` (the executor showed that it has our answer) or
    ``withdrawn`` (it no longer waits, whatever we say).
    """

    id: str
    how: Literal["acknowledged", "withdrawn"]
    why: str = ""


class Retrying(msgspec.Struct, frozen=True, tag=True):
    """The executor tries its model again by itself."""

    attempt: int
    limit: int | None
    delay_s: float | None
    reason: str


class PlanStep(msgspec.Struct, frozen=True):
    """One entry of the executor's own to-do list."""

    text: str
    status: str


class PlanChanged(msgspec.Struct, frozen=True, tag=True):
    """The executor's to-do list, whole."""

    steps: tuple[PlanStep, ...]


class UsageSeen(msgspec.Struct, frozen=True, tag=True):
    """Cumulative figures of this process as the executor reports them; None = not told."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


class TurnEnded(msgspec.Struct, frozen=True, tag=True):
    """The executor rests. ``text``: the tail of its last message (at most 16 KiB).

    ``fault`` None means that the executor itself reports no failure: whether the work is
    done is judged from the trailer and from git, not here.
    """

    text: str
    fault: Fault | None = None
    stop_reason: str = ""


class Noticed(msgspec.Struct, frozen=True, tag=True):
    """Something a person should be able to read about (a warning, a mode change)."""

    text: str


class Unrecognised(msgspec.Struct, frozen=True, tag=True):
    """A line or message that the driver does not know. Counted, never fatal.

    ``what``: a short name, without content. ``sample``: at most 200 characters.
    """

    what: str
    sample: str = ""


Output = (
    Send
    | SessionReady
    | StartFailed
    | PromptTaken
    | Text
    | ToolCall
    | PermissionAsked
    | QuestionAsked
    | AskClosed
    | Retrying
    | PlanChanged
    | UsageSeen
    | TurnEnded
    | Noticed
    | Unrecognised
)


# -- commands ----------------------------------------------------------------------------


class Prompt(msgspec.Struct, frozen=True, tag=True):
    """Begin a turn with that text (kept until the session is ready)."""

    text: str


class Allow(msgspec.Struct, frozen=True, tag=True):
    """Allow a pending permission, once. Never "always"."""

    id: str


class Deny(msgspec.Struct, frozen=True, tag=True):
    """Deny a pending permission. ``reason`` reaches the model if the protocol has a place
    for it (:attr:`Driver.carries_reason`)."""

    id: str
    reason: str = ""


class Answer(msgspec.Struct, frozen=True, tag=True):
    """Answer a pending question: one list of answers a question, in their order."""

    id: str
    answers: tuple[tuple[str, ...], ...]


class Interrupt(msgspec.Struct, frozen=True, tag=True):
    """End the running turn, keep the session. Pending asks are given up."""


Command = Prompt | Allow | Deny | Answer | Interrupt


class Session(msgspec.Struct, frozen=True):
    """What a driver needs to know when a process of its executor has started.

    ``resume``: the session to load, or None for a new one. ``new_id``: a fresh UUID for
    executors that want the caller to choose the id. ``instructions``: the standing
    instructions, "" if they were already given at launch (:attr:`Launch.instructed`).
    """

    cwd: str
    new_id: str
    resume: str | None = None
    model: str | None = None
    instructions: str = ""


class Driver(Protocol):
    """The translation between one executor's protocol and our vocabulary."""

    #: whether a :class:`Deny` reason reaches the model in the same turn
    carries_reason: bool

    def open(self, session: Session) -> list[Output]:
        """The process runs: begin the handshake."""
        ...

    def feed(self, line: bytes) -> list[Output]:
        """One line of the executor's standard output, without its newline."""
        ...

    def command(self, command: Command) -> list[Output]:
        """What the task's actor wants.

        Raises:
            handoff.errors.NotAllowed: the id is not pending (any more), or a prompt came
                while a turn runs.
        """
        ...

    def exited(self, code: int | None, stderr_tail: str) -> list[Output]:
        """The process has ended (``code`` negative: killed by that signal; None: not
        known). Closes what is pending; ends a running turn with a fault."""
        ...

    def dump(self) -> bytes:
        """The state as JSON, for :meth:`load` of the same class and version."""
        ...


class Launch(msgspec.Struct, frozen=True):
    """How to start one process of an executor.

    ``env``: added to the environment; ``unset``: taken out of it. ``files``: written
    0600 below ``scratch`` before the start, relative names. ``instructed``: the standing
    instructions are already in argv or files. No secret is in argv or files.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    unset: tuple[str, ...] = ()
    files: dict[str, str] = {}
    instructed: bool = False


class LaunchRequest(msgspec.Struct, frozen=True):
    """What a launch is made from. ``scratch``: a private directory of the task, outside
    the worktree. ``program``: absolute path of the executor's program."""

    program: str
    cwd: str
    scratch: str
    new_id: str
    model: str | None = None
    resume: str | None = None
    instructions: str = ""
    env: dict[str, str] = {}

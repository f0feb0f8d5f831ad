"""Sessions and tasks as one story: a record as a task's plan, a finished task as a record.

Both are made here, on the coordinator's side: records are kept per user and profile, where the
next session opens, while agentd keeps tasks, perhaps on another machine.
"""

from __future__ import annotations

from handoff.errors import HandoffError, InputTooLarge, NotAllowed, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from typing import Any

    from handoff.cli.context import Context
    from handoff.sessions.journal import Actor
    from handoff.sessions.service import Service


def profile_flag(made: ArgumentParser | Any) -> None:
    """The flag that says whose records are meant."""
    made.add_argument(
        "--profile",
        metavar="NAME",
        default="",
        help="whose records: a profile of Hermes, or 'handoff' for Handoff's own store",
    )


def sessions(args: Namespace) -> Service:
    """Sessions of the profile that the call means."""
    from argparse import Namespace as Made

    from handoff.cli.session_place import service

    return service(Made(profile=args.profile, host=""))


# -- a record as a plan -------------------------------------------------------------------


def plan_of(ref: str, args: Namespace, context: Context, limit: int) -> tuple[bytes, str, str]:
    """(plan, its name, a name for the task) of a record.

    Raises:
        UsageError, UnknownRecord, IntegrityFailed: there is no such record, or it is damaged.
        WorkspaceMismatch, NotAllowed: it is another project's.
        InputTooLarge: the plan would have more than ``limit`` bytes.
    """
    from handoff.sessions.task_prompt import task_plan
    from handoff.sessions.text import one_line

    made = sessions(args)
    place = _folder(args, context)
    given = {"ref": ref, **({"workspace": place} if place else {})}
    try:
        shown = _shown(made, given)
    except UsageError as error:
        error.remedy = "handoff session list --help"
        raise
    args.record = shown["ref"]  # a reference of an older format stands for this one
    blocking = [one for one in shown["discrepancies"] if one["severity"] == "block"]
    if blocking:
        raise NotAllowed(
            f"the record can't go on here: {blocking[0]['code']}: {blocking[0]['message']}",
            remedy=f"handoff session show {shown['ref']}",
            discrepancies=blocking,
        )
    if not place:
        context.say("the record was not compared with the project: it is not on this machine")
    plan = task_plan(shown, compared=bool(place), asked=bool(args.prompt or args.plan)).encode()
    if len(plan) > limit:
        raise InputTooLarge(
            f"the record makes a plan of {len(plan)} bytes; the limit is {limit}",
            remedy=f"handoff session show {shown['ref']}",
            bytes=len(plan),
            limit=limit,
        )
    name = one_line(shown["state"]["goal"]["text"], 60)
    return plan, f"handoff-{shown['manifest']['handoff_id'][:8]}.md", name


def _shown(made: Service, given: dict[str, Any]) -> dict[str, Any]:
    """The record as `show` has it. In which program it was made is nothing to a task."""
    from handoff.sessions.actions import check
    from handoff.sessions.service_read import shown

    return shown(made, check("show", given), hosted=False)


class Delivery:
    """That a record goes to a task, in the journal of its profile: written down before, and
    once more when it is known what came of it. A journal that can't be written to keeps nobody
    from going on: that is said."""

    def __init__(self, args: Namespace, context: Context) -> None:
        from handoff.clock import SystemClock

        self._context, self._made = context, sessions(args)
        self._id, self._begun = "d-" + SystemClock().new_id(), False
        ref, to = args.record, {"kind": "task", "target": context.target or ""}

        def begin() -> None:
            from handoff.sessions import deliveries

            deliveries.intend(self._made.journal, self._id, ref, to, _actor())
            self._begun = True

        self._noted(begin)

    def done(self, task: dict[str, Any]) -> None:
        """A task came of it."""
        self._settle("delivered", {"task": str(task["id"])})

    def failed(self, error: HandoffError) -> None:
        """It was refused; where the answer was lost, what came of it stays unknown."""
        from handoff.errors import OutcomeUnknown

        if not isinstance(error, OutcomeUnknown):
            self._settle("delivery_failed", {"why": error.cause})

    def _settle(self, kind: str, payload: dict[str, str]) -> None:
        from handoff.sessions import deliveries

        if self._begun:
            self._noted(
                lambda: deliveries.settle(self._made.journal, self._id, kind, payload, _actor())
            )

    def _noted(self, write: Callable[[], None]) -> None:
        try:
            write()
        except HandoffError as error:
            self._context.say(f"note: the journal of handoffs will not show this: {error.cause}")


def _actor() -> Actor:
    """Who dispatches: the session around this call, or a person."""
    import os

    from handoff.sessions.hosts import surrounding
    from handoff.sessions.journal import Actor
    from handoff.sessions.recover import user

    around = surrounding(os.environ)
    return Actor("source", around[0][0]) if around else Actor("person", user())


def _folder(args: Namespace, context: Context) -> str:
    """The checkout that the record is compared with; "" where there is none here."""
    from handoff.cli.session_place import here

    if not args.project:
        return args.worktree or here()
    if context.local:
        for one in context.client().get("/api/projects"):
            if one.get("name") == args.project:
                return str(one["path"])
    return ""


# -- a task as a record -------------------------------------------------------------------


def keep(task_id: str, args: Namespace, context: Context) -> dict[str, Any]:
    """Publish the record of a finished task: ``ref``, ``fresh``, ``redactions``.

    Raises:
        NotAllowed: the task is not finished.
        HandoffError: the record could not be made.
    """
    from handoff.cli.context import tasks_path
    from handoff.sessions.task_record import Finished, kept
    from handoff.sessions.task_record import keep as keep_record
    from handoff.sessions.workspace import bind

    client = context.client()
    found = client.get(tasks_path(task_id))
    task = found["task"]
    if task["state"] not in ("completed", "waiting_review", "failed"):
        raise NotAllowed(
            f"the task is {task['state']}: there is a record once it is finished",
            remedy=context.command("wait", task_id),
        )
    made = sessions(args)
    earlier = kept(made.records, made.profile.name, task["id"])
    if earlier:
        return {"ref": earlier, "fresh": False, "redactions": {}}
    done = Finished(
        task,
        found["turns"],
        client.get(tasks_path(task["id"], "tickets")),
        _files(task["id"], context),
    )
    binding = bind(_workspace(args, task, context))
    created = keep_record(made.records, made.profile.name, binding, done)
    if created is None:  # somebody else made it meanwhile
        return {
            "ref": kept(made.records, made.profile.name, task["id"]),
            "fresh": False,
            "redactions": {},
        }
    return {"ref": created.ref, "fresh": True, "redactions": created.redactions}


def _files(task_id: str, context: Context) -> list[dict[str, Any]]:
    """The files that the task changed; none, and a word on it, where git can't say."""
    from handoff.cli.context import tasks_path

    try:
        told = context.client().get(tasks_path(task_id, "diff"), {"format": "json", "stat": True})
    except HandoffError as error:
        context.say(f"the record will name no files: {error.cause}")
        return []
    return list(told["files"])


def _workspace(args: Namespace, task: dict[str, Any], context: Context) -> str:
    """Whose project the record belongs to: the folder that was named, the task's repository
    where that is on this machine, else the current folder."""
    from handoff.cli.session_place import here, workspace

    if args.workspace:
        return workspace(args)
    if not context.local:
        return here()
    path = str(task.get("repo_path") or "")
    if not path:
        raise UsageError("the task names no repository", remedy="give --workspace DIR")
    return path


def ref_of(task: dict[str, Any]) -> str:
    """The ref of a finished task's record in the profile of the surroundings, or "". A store
    that can't be read says nothing here: `handoff session verify` does."""
    from argparse import Namespace as Made

    if task.get("state") != "completed":
        return ""
    try:
        made = sessions(Made(profile=""))
        from handoff.sessions.task_record import kept

        return kept(made.records, made.profile.name, str(task["id"]))
    except HandoffError:
        return ""

"""``handoff reply``: approve, deny or answer a ticket."""

from __future__ import annotations

from handoff.errors import NotAllowed, UsageError
from handoff.ids import short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

    Json = dict[str, Any]


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "reply",
        "Approve or deny a permission, or answer a question. It says whether the answer has\n"
        "reached the executor.",
        examples="  handoff reply 1f3a --approve\n"
        "  handoff reply 1f3a --ticket g2 --deny --reason 'use the staging database'\n"
        "  handoff reply 1f3a --answer 'PostgreSQL 16'",
    )
    made.add_argument("task", help="task id or a unique prefix of it")
    made.add_argument("--ticket", metavar="REF", help="which ticket; not needed if one is open")
    choice = made.add_mutually_exclusive_group(required=True)
    choice.add_argument("--approve", action="store_true", help="allow it, once")
    choice.add_argument("--deny", action="store_true", help="refuse it")
    choice.add_argument(
        "--answer", metavar="TEXT", action="append", help="answer; once for each question"
    )
    made.add_argument("--reason", metavar="TEXT", help="with --deny: what the executor is told")
    return made


def pick(task: str, context: Context) -> Json:
    """The one open ticket.

    Raises:
        NotAllowed: none is open.
        UsageError: several are; they are named.
    """
    from handoff.cli.context import tasks_path
    from handoff.cli.render import ticket_line

    found = context.client().get(tasks_path(task))
    tickets: list[Json] = found["pending_tickets"]
    if not tickets:
        state = found["task"]["state"]
        raise NotAllowed(
            f"no ticket is open (the task is {state})", remedy=context.command("show", task)
        )
    if len(tickets) > 1:
        raise UsageError(
            "several tickets are open: " + "; ".join(ticket_line(t) for t in tickets),
            remedy=context.command("show", task, "--ticket", str(tickets[0]["ref"])),
            tickets=[t["ref"] for t in tickets],
        )
    return tickets[0]


def body_of(args: Namespace, ticket: Json | None, context: Context) -> Json:
    """The answer in the API's words."""
    if args.approve:
        return {"decision": "allow", "reason": ""}
    if args.deny:
        return {"decision": "deny", "reason": (args.reason or "").strip()}
    if len(args.answer) == 1:
        return {"answer": args.answer[0]}
    if ticket is None:
        from handoff.cli.context import tasks_path

        ticket = context.client().get(tasks_path(args.task, "tickets", args.ticket))
    questions = ticket["request"].get("questions") or []
    if len(questions) == 1 and questions[0].get("multiple"):
        return {"answers": [args.answer]}
    if ticket["kind"] == "ask" and len(questions) != len(args.answer):
        raise UsageError(
            f"ticket {ticket['ref']} has {len(questions)} question(s), {len(args.answer)} answers came",
            remedy=context.command("show", args.task, "--ticket", str(ticket["ref"])),
        )
    return {"answers": [[one] for one in args.answer]}


def run(args: Namespace, context: Context) -> int:
    """Send the answer and say how far it got."""
    from handoff.cli.context import tasks_path
    from handoff.cli.render import ticket_line

    if args.reason is not None and not args.deny:
        raise UsageError("--reason goes with --deny", remedy="handoff reply --help")
    path = tasks_path(args.task, "reply")
    ticket = None if args.ticket else pick(args.task, context)
    body = body_of(args, ticket, context)
    body["ticket_id"] = ticket["id"] if ticket else args.ticket
    look = context.command("show", args.task)
    if ticket:
        look = context.command("show", args.task, "--ticket", str(ticket["ref"]))
    result = context.client().post(path, body, look=look)
    if ticket and not context.json_wanted:  # chosen by us: say what it was that was answered
        context.say(f"ticket {ticket_line(ticket)}")
    if not context.human:
        context.emit(result)
    else:
        what = "approved" if args.approve else "denied" if args.deny else "answered"
        reach = {
            "acknowledged": "the executor has taken it",
            "delivered": "handed to the executor",
            "answered": "recorded, not handed over yet",
        }.get(str(result.get("state")), str(result.get("state")))
        named = ticket["ref"] if ticket else args.ticket
        context.show(f"{named} {what}: {reach}")
        context.show("  " + context.command("wait", short(args.task)))
    if not result.get("relayed", True):
        context.say(f"not delivered yet: {result.get('reason') or 'no reason was given'}")
        return 1
    return 0

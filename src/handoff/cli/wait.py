"""``handoff wait``: until the coordinator is needed."""

from __future__ import annotations

import time

from handoff.errors import TimedOut, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

    Json = dict[str, Any]

#: events asked for at once
PAGE = 1000
TERMINAL = ("completed", "failed")
#: events after which a turn rests or the task is over (wire.agentd.RESTING_EVENTS)
RESTING = ("completed", "turn_failed", "failed", "archived")
ASKING = ("permission_request", "question")


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser, duration

    made = Parser(
        "wait",
        "Wait until you are needed, and print why: a permission, a question, the end of a turn.\n"
        "Piped or with --json: one JSON object per line. What was printed is not printed again;\n"
        "after a crash at most one event comes twice, none is left out.\n\n"
        "Without a flag it ends after the first such event, exit 0. A task that is over ends it\n"
        "at once, exit 0. A lost connection is made again by itself.",
        examples="  handoff wait 1f3a\n"
        "  handoff wait 1f3a --until-done --timeout 30m\n"
        "  handoff wait 1f3a --follow --json | while read -r event; do ...; done",
    )
    made.add_argument("task", help="task id or a unique prefix of it")
    mode = made.add_mutually_exclusive_group()
    mode.add_argument(
        "--follow",
        action="store_true",
        help="print every event that needs you, until the task is over",
    )
    mode.add_argument(
        "--until-done",
        action="store_true",
        help="print every such event until the turn rests (completed, turn_failed, failed, archived); "
        "exit 0 if the work is done, 1 if it failed",
    )
    made.add_argument(
        "--timeout",
        metavar="DUR",
        type=duration,
        help="exit 124 after so long (with --follow: after so long without any event)",
    )
    made.add_argument("--notify", action="store_true", help="show a desktop notification too")
    made.add_argument(
        "--no-sync", action="store_true", help="accepted for compatibility; does nothing"
    )
    return made


class Waiting:
    """One call of ``wait``.

    First comes what happened since the last call, page by page, then the live stream.
    Obligation: an event counts as handed out only after it was printed and flushed.
    """

    def __init__(self, args: Namespace, context: Context) -> None:
        from handoff.cli.context import tasks_path
        from handoff.client.stream import Events

        self.args = args
        self.context = context
        self.client = context.client()
        found = self.client.get(tasks_path(args.task))
        self.task: Json = found["task"]
        self.recent: list[Json] = found["recent_events"]
        self.owed: list[Json] = found["pending_tickets"]
        self.id: str = self.task["id"]
        self.cursors = context.cursors()
        self.start: int = self.cursors.load(self.id)
        #: events up to here were in the past when we came
        self.known: int = max((event["seq"] for event in self.recent), default=0)
        self.many: bool = args.follow or args.until_done
        # An idle limit is pushed by every event; else only waking ones are of interest.
        quiet = not (args.follow and args.timeout is not None)
        self.stream = Events(
            self.client, self.id, self.start, wakes=quiet, summary=False, notify=context.say
        )
        self.stream.reached = True  # the task's id was asked for

    def hand_out(self, line: Json, *, seq: int | None) -> None:
        """Print and flush, then remember."""
        if self.context.human:
            from handoff.cli import render

            self.context.show(render.event_block(line, self.context))
        else:
            self.context.emit(line)
        if seq is not None:
            self.cursors.save(self.id, seq)
        if self.args.notify:
            from handoff.cli.notify import notify

            notify(self.id, line, self.context)

    def newest(self, kinds: tuple[str, ...]) -> Json | None:
        """The newest recent event of these types."""
        return next((e for e in reversed(self.recent) if e["type"] in kinds), None)

    def stale(self, event: Json) -> bool:
        """Whether a past event needs nobody any more: its ticket was settled, or another
        turn has begun since."""
        if event["seq"] > self.known:
            return False
        if event["type"] in ASKING:
            return event["payload"].get("ticket_id") not in {t["id"] for t in self.owed}
        if event["type"] in ("completed", "turn_failed"):
            return self.task["state"] not in ("waiting_review", *TERMINAL)
        return False

    def verdict(self, event: Json) -> int:
        """The exit code that goes with a last event."""
        return int(self.args.until_done and event["type"] in ("turn_failed", "failed"))

    def take(self, event: Json) -> int | None:
        """One event; the exit code if it was the last to wait for."""
        if not event.get("wakes") or (not self.args.follow and self.stale(event)):
            return None
        self.hand_out(event, seq=event["seq"])
        if not self.many:
            return 0
        if self.args.until_done and event["type"] in RESTING and event["seq"] > self.known:
            return self.verdict(event)
        return None

    def missed(self) -> Iterator[Json]:
        """Waking events between the last one handed out and now, in order."""
        query = {"wakes": True, "limit": PAGE}
        while self.stream.seq < self.known:
            page = self.client.get(
                f"/api/tasks/{self.id}/events", {**query, "from_seq": self.stream.seq}
            )
            for event in page:
                if event["seq"] > self.known:
                    return
                self.stream.seq = event["seq"]
                yield event
            if len(page) < PAGE:
                return

    def catch_up(self) -> int | None:
        """Hand out what happened before we came; the exit code if that was all.

        A task that is over is told by its last event, not by its history.
        """
        state = self.task["state"]
        if state in TERMINAL and not self.many:
            over = self.newest(("archived", "failed"))
            if over is not None:
                self.hand_out(over, seq=max(over["seq"], self.start))
                return 0
        count, stale, told, last = 0, 0, set(), None
        for event in self.missed():
            code = self.take(event)
            if code is not None:
                return code
            stale += event["type"] in ASKING and self.stale(event)
            if self.args.follow or not self.stale(event):
                count += 1
                told.add(event["payload"].get("ticket_id"))
                last = event
        if self.many:
            self.sum_up(count, stale, told)
        if self.args.until_done and state in ("waiting_review", *TERMINAL):
            rest = self.newest(RESTING)
            if rest is not None:
                if last is None or last["type"] not in RESTING:
                    self.hand_out(rest, seq=max(rest["seq"], self.stream.seq))
                return self.verdict(rest)
        return None

    def sum_up(self, count: int, stale: int, told: set[Any]) -> None:
        """One line about what was missed and is still owed, where the events themselves
        do not say it already."""
        silent = [ticket for ticket in self.owed if ticket["id"] not in told]
        if count < 2 and not silent:
            return
        line = {
            "type": "backlog_summary",
            "task_id": self.id,
            "from_seq": self.start,
            "to_seq": self.known,
            "state": self.task["state"],
            "missed": count,
            "missed_truncated": False,
            "stale": stale,
            "actionable": self.owed,
        }
        self.hand_out(line, seq=None)

    def say_what_holds(self) -> None:
        """A notice where the wait is for the caller itself: everything was handed out
        before, and the task does not go on without an answer."""
        task = self.args.task
        if self.owed and not self.many:
            refs = ", ".join(str(ticket.get("ref")) for ticket in self.owed)
            self.context.say(f"still open: {refs}.  {self.context.command('show', task)}")
        elif self.task["state"] == "waiting_review":
            self.context.say(
                "the task waits for your review; nothing comes before `handoff continue` or "
                "`handoff done`"
            )

    def push_deadline(self) -> None:
        """Begin the time limit (anew, with --follow)."""
        if self.args.timeout is not None:
            self.stream.deadline = time.monotonic() + self.args.timeout

    def loop(self) -> int:
        """Wait. Returns the exit code."""
        code = self.catch_up()
        if code is not None:
            return code
        self.say_what_holds()
        self.push_deadline()
        for item in self.stream:
            event = item.get("event")
            if event is None:
                continue
            if self.args.follow:
                self.push_deadline()
            code = self.take(event)
            if code is not None:
                return code
        return 0


def run(args: Namespace, context: Context) -> int:
    """Wait as asked."""
    if args.timeout is not None and args.timeout <= 0:
        raise UsageError("--timeout must be above 0", remedy="handoff wait --help")
    waiting = Waiting(args, context)
    try:
        return waiting.loop()
    except TimedOut:
        from handoff.cli.terminal import span

        what = "without any event" if args.follow else "and nothing needs you"
        raise TimedOut(
            f"{span(args.timeout)} {what}", remedy=context.command("show", args.task)
        ) from None
    finally:
        waiting.cursors.sweep()

"""Events, tickets and tasks as a person reads them, each with the command that follows.

Everything that came from elsewhere passes through :mod:`handoff.cli.terminal` here.
"""

from __future__ import annotations

import re
from itertools import groupby

from handoff.cli.terminal import (
    colour,
    indent,
    local_time,
    safe,
    safe_line,
    span,
    state,
)
from handoff.errors import HandoffError
from handoff.ids import short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from handoff.cli.context import Context

Json = dict[str, "Any"]


def _head(event: Json, title: str, tint: str) -> str:
    when = local_time(str(event.get("created_at", "")))
    place = colour(f"task {short(event['task_id'])}  {when}", "dim")
    return f"{colour(title, tint, 'bold')}  {place}"


def _shortness(payload: Json, full: str) -> list[str]:
    if not payload.get("short"):
        return []
    said = (
        f"shortened: {payload.get('characters', '?')} characters, {payload.get('lines', '?')} lines"
    )
    return [colour(f"  ({said}; in full: {full})", "yellow")]


def _asked(event: Json, full: str, context: Context) -> list[str]:
    """What a permission is wanted for. An event holds little; where it says that it is
    short, the ticket gives the start and the end of what would run or be changed."""
    payload = event["payload"]
    if payload.get("short"):
        try:
            ticket = context.client().get(
                f"/api/tasks/{event['task_id']}/tickets/{payload.get('ref')}"
            )
            return _ticket_text(ticket["request"], gate=True, whole=False, full=full)
        except HandoffError as error:
            context.say(f"the ticket can't be read now: {error}")
    return [indent(safe(payload.get("permission", "")), "  │ "), *_shortness(payload, full)]


def permission(event: Json, context: Context) -> str:
    """A permission request with the commands that answer it."""
    payload, task = event["payload"], short(event["task_id"])
    ref = str(payload.get("ref") or payload.get("ticket_id", ""))
    tool = safe_line(payload.get("tool") or payload.get("action") or "something")
    lines = [_head(event, f"Permission {ref} wanted: {tool}", "yellow")]
    lines += _asked(event, context.command("show", task, "--ticket", ref), context)
    lines += [f"  {colour('!', 'red')} {safe_line(p)}" for p in payload.get("problems") or []]
    if payload.get("why"):
        lines.append(colour(f"  why you are asked: {safe_line(payload['why'])}", "dim"))
    lines.append("  " + context.command("reply", task, "--ticket", ref, "--approve"))
    lines.append(
        "  " + context.command("reply", task, "--ticket", ref, "--deny", "--reason", "WHY")
    )
    return "\n".join(lines)


def question(event: Json, context: Context) -> str:
    """A question with the command that answers it."""
    payload, task = event["payload"], short(event["task_id"])
    ref = str(payload.get("ref") or payload.get("ticket_id", ""))
    lines = [_head(event, f"Question {ref}", "yellow")]
    lines.append(indent(safe(payload.get("question", "")), "  │ "))
    lines += _shortness(payload, context.command("show", task, "--ticket", ref))
    several = max(1, len(payload.get("questions") or []))
    answers = [word for _ in range(several) for word in ("--answer", "TEXT")]
    lines.append("  " + context.command("reply", task, "--ticket", ref, *answers))
    return "\n".join(lines)


def _dirt(found: Json) -> list[str]:
    dirt = found.get("dirt") or {}
    total = dirt.get("total") or 0
    if not total:
        return []
    entries = [f"{xy} {path}" for xy, path in (dirt.get("entries") or [])[:5]]
    rest = total - len(entries)
    more = f" and {rest} more" if rest > 0 else ""
    unsure = "" if dirt.get("complete", True) else " (the look was cut short)"
    return [
        f"  uncommitted: {total}{unsure}",
        *[f"    {safe_line(entry)}" for entry in entries],
        *([f"   {more}"] if more else []),
    ]


def _verify(payload: Json) -> list[str]:
    lines = []
    for ran in payload.get("verify") or []:
        good = ran.get("exit_code") == 0
        mark = colour(_verify_end(ran), "green" if good else "red")
        lines.append(
            f"  verify: {safe_line(ran.get('command', ''))}  {mark}  {ran.get('seconds', 0)} s"
        )
        if not good and ran.get("tail"):
            lines.append(indent(safe(str(ran["tail"])[-1500:]).rstrip(), "    │ "))
    return lines


def completed(event: Json, context: Context) -> str:
    """The end of a good turn: the claim and what git shows."""
    payload, task = event["payload"], short(event["task_id"])
    found = payload.get("found") or {}
    lines = [_head(event, f"Turn {payload.get('turn', '?')} is done", "green")]
    if payload.get("summary"):
        lines.append(indent(safe(payload["summary"]), "  │ "))
    commit = str(payload.get("commit") or "")[:10]
    said = safe_line(found.get("why") or found.get("code") or "")
    lines.append(
        f"  branch {safe_line(payload.get('branch') or '?')}  commit {commit or 'none'}  {said}"
    )
    lines += _dirt(found) + _verify(payload)
    lines.append("  " + context.command("diff", task))
    lines.append("  " + context.command("continue", task, "REMARKS"))
    lines.append("  " + context.command("done", task))
    return "\n".join(lines)


def turn_failed(event: Json, context: Context) -> str:
    """The end of a turn that brought nothing that could be verified."""
    payload, task = event["payload"], short(event["task_id"])
    found, fault = payload.get("found") or {}, payload.get("fault") or {}
    lines = [_head(event, f"Turn {payload.get('turn', '?')} failed", "red")]
    reason = payload.get("reason") or payload.get("fail_reason") or payload.get("code") or "?"
    lines.append(indent(safe(reason), "  │ "))
    if fault.get("message") and fault["message"] not in reason:
        lines.append(f"  {safe_line(fault.get('code', 'fault'))}: {safe_line(fault['message'])}")
    if fault.get("resets_at"):
        lines.append(f"  the executor says the limit ends: {reset_time(str(fault['resets_at']))}")
    commits = found.get("commits")
    if commits is not None:
        lines.append(f"  new commits since the turn began: {commits}")
    lines += _dirt(found) + _verify(payload)
    lines.append("  " + context.command("show", task))
    lines.append("  " + context.command("continue", task, "INSTRUCTIONS"))
    return "\n".join(lines)


def reset_time(text: str) -> str:
    """The executor's words; local time where they are an RFC 3339 time."""
    return local_time(text)


def stalled(event: Json, context: Context) -> str:
    """A long silence: what runs, since when, and which processes are waited for."""
    payload, task = event["payload"], short(event["task_id"])
    phase, detail = payload.get("phase"), safe_line(payload.get("detail") or "")
    doing = {"tool": "a tool runs", "model": "the model is waited for"}.get(phase, "it starts")
    since = local_time(str(payload.get("since") or ""))
    lines = [_head(event, f"Silent for {safe_line(payload.get('idle', '?'))}", "yellow")]
    lines.append(f"  {doing}{f': {detail}' if detail else ''}")
    lines.append(f"  nothing was heard since {since or '?'}; processes that are waited for:")
    for proc in payload.get("processes") or []:
        command = safe_line(proc.get("command", "?"))
        lines.append(f"    {proc.get('pid')}  {command}  {span(proc.get('age_s') or 0)}")
    lines.append("  " + context.command("attach", task))
    lines.append("  " + context.command("interrupt", task))
    return "\n".join(lines)


def summary(event: Json, context: Context) -> str:
    """What was missed and what is still owed, after a (re)connection."""
    lines = [
        colour(
            f"While you were away: {event.get('missed', 0)} events"
            f" ({event.get('stale', 0)} settled meanwhile), state {event.get('state', '?')}",
            "bold",
        )
    ]
    for ticket in event.get("actionable") or []:
        lines.append("  " + ticket_line(ticket))
        ref, task = str(ticket.get("ref", "")), short(ticket["task_id"])
        lines.append("    " + context.command("show", task, "--ticket", ref))
    return "\n".join(lines)


_TITLES = {
    "failed": ("Task is over without being accepted", "red"),
    "archived": ("Task was accepted", "green"),
    "delivery_failed": ("An answer could not be handed over", "red"),
    "deny_guidance_dropped": ("The reason of a denial did not reach the executor", "red"),
    "resource_pressure": ("Processes come near their limit", "yellow"),
    "actor_refused": ("A process inside the task tried to act as coordinator", "red"),
}
_NEXT = {
    "failed": ("show",),
    "delivery_failed": ("show",),
    "deny_guidance_dropped": ("continue", "INSTRUCTIONS"),  # its hint, with this call's flags
    "resource_pressure": ("show",),
    "actor_refused": ("show",),
}


def facts(payload: Json) -> list[str]:
    """A payload's scalar values, one a line."""
    lines = []
    for key, value in payload.items():
        if key == "hint" or isinstance(value, dict | list) or value in (None, ""):
            continue
        shown = "yes" if value is True else "no" if value is False else safe(str(value))
        lines.append(f"  {safe_line(key)}: {indent(shown, '    ').lstrip()}")
    return lines


def event_block(event: Json, context: Context) -> str:
    """Any event as a block of lines."""
    special = {
        "permission_request": permission,
        "question": question,
        "completed": completed,
        "turn_failed": turn_failed,
        "stalled": stalled,
        "backlog_summary": summary,
    }.get(event["type"])
    if special is not None:
        return special(event, context)
    title, tint = _TITLES.get(event["type"], (event["type"].replace("_", " "), "bold"))
    lines = [_head(event, safe_line(title), tint), *facts(event.get("payload") or {})]
    after = _NEXT.get(event["type"])
    if after:
        lines.append("  " + context.command(after[0], short(event["task_id"]), *after[1:]))
    return "\n".join(lines)


#: the keys of a payload that tell most, the best first
_TELLING = "summary", "reason", "permission", "question", "text", "why", "note", "answer", "command"


def _verify_end(ran: Json) -> str:
    """How a verify command ended, as far as it has."""
    if ran.get("timed_out"):
        return "timed out"
    if "exit_code" not in ran:
        return ""
    return "passed" if ran["exit_code"] == 0 else f"exit {ran['exit_code']}"


def _told(event: Json) -> str:
    """The one thing that tells most about an event, as one line."""
    payload = event.get("payload") or {}
    if payload.get("decision"):
        reason = f": {payload['reason']}" if payload.get("reason") else ""
        return safe_line(f"{payload['decision']}{reason}")
    if event["type"] == "executor_started":
        known = [payload.get(key) for key in ("agent", "version", "model", "context")]
        return safe_line(" ".join(str(value) for value in known if value))
    if event["type"] == "verify":
        return f"{safe_line(payload.get('command') or '')}  {_verify_end(payload)}".rstrip()
    if event["type"] == "permission_allowed" and payload.get("why"):
        return safe_line(payload["why"])  # the text of an edit begins with a diff's head
    for key in _TELLING:
        lines = [line for line in str(payload.get(key) or "").splitlines() if line.strip()]
        if lines:
            return safe_line(lines[1] if lines[0] == "command:" and len(lines) > 1 else lines[0])
    return ""


def event_line(event: Json) -> str:
    """Any event as one line, for lists."""
    payload = event.get("payload") or {}
    ref = f" {safe_line(payload['ref'])}" if payload.get("ref") else ""
    when = local_time(str(event.get("created_at", "")))
    actor = event.get("actor") or ""
    by = f" [{safe_line(actor)}]" if actor not in ("", "agentd", "executor") else ""
    return f"{when}  {safe_line(event['type'])}{ref}{by}  {_told(event)}".rstrip()


def ticket_line(ticket: Json) -> str:
    """A ticket as one line."""
    request = ticket.get("request") or {}
    kind = "permission" if ticket.get("kind") == "gate" else "question"
    text = request.get("command") or request.get("permission") or request.get("question") or ""
    first = safe_line(str(text).strip().split("\n")[0])
    return f"{ticket.get('ref', '')}  {kind}  {first}"


def clip(text: str, head: int, tail: int, width: int = 400) -> tuple[list[str], bool]:
    """Lines of a text with its start and its end, and whether anything was left out.

    Long lines lose their middle, runs of blanks and of blank lines are counted; each gap
    says how much. A text can't pretend to have gaps: its own marks are shown as code points.
    """
    whole = text.rstrip("\n").replace("[…", "⟨U+005B⟩…").split("\n")
    counted = list(_count_blank_lines(whole))
    short = len(counted) > head + tail + 1
    if short:
        left = sum(lines for _, lines in counted[head:-tail])
        gap = (f"[… {left} lines left out …]", left)
        counted = [*counted[:head], gap, *counted[-tail:]]
    shown = []
    for line, _ in counted:
        line = _BLANKS.sub(lambda run: f"[… {len(run.group())} blanks …]", line)
        if len(line) > width:
            part = width // 2
            left = len(line) - 2 * part
            line = f"{line[:part]}[… {left} characters left out …]{line[-part:]}"
        shown.append(line)
    return shown, short or shown != whole


#: what looks like nothing, often enough to push the rest of a line out of sight
_BLANK = "\\s\u2800\u3164\u115f\u1160\uffa0"
_BLANKS = re.compile(f"[{_BLANK}]{{41,}}")
_NOTHING = re.compile(f"[{_BLANK}]*")


def _count_blank_lines(lines: list[str]) -> Iterator[tuple[str, int]]:
    """What to print, and how many lines it stands for."""
    for blank, run in groupby(lines, lambda line: bool(_NOTHING.fullmatch(line))):
        found = list(run)
        if blank and len(found) > 2:
            yield f"[… {len(found)} blank lines …]", len(found)
        else:
            yield from ((line, 1) for line in found)


def ticket_full(ticket: Json, context: Context, *, whole: bool = True) -> str:
    """A ticket with every byte of its text; with ``whole`` False a long one as its start
    and its end, and the command that shows the rest."""
    request, gate = ticket.get("request") or {}, ticket.get("kind") == "gate"
    task, ref = short(ticket["task_id"]), str(ticket.get("ref", ""))
    head = colour(f"{'Permission' if gate else 'Question'} {ref}", "bold")
    asked = local_time(str(ticket.get("created_at", "")))
    lines = [f"{head}  {safe_line(ticket.get('state', ''))}  asked {asked}"]
    for key in ("tool", "action", "cwd", "reason"):
        if request.get(key):
            lines.append(f"  {key}: {safe_line(request[key])}")
    lines += [_path_line(path) for path in (request.get("paths") or [])[: None if whole else 10]]
    lines += _ticket_text(
        request, gate=gate, whole=whole, full=context.command("show", task, "--ticket", ref)
    )
    if ticket.get("answer") is not None:
        by = safe_line(ticket.get("answered_by") or "?")
        lines.append(f"  answer: {safe(str(ticket['answer']))}  (by {by})")
    if ticket.get("state") == "open":
        ways = [("--approve",), ("--deny", "--reason", "WHY")] if gate else [("--answer", "TEXT")]
        lines += ["  " + context.command("reply", task, "--ticket", ref, *way) for way in ways]
    return "\n".join(lines)


def _path_line(path: Json) -> str:
    marks = [name for name in ("inside", "protected") if path.get(name)]
    marks += [str(path["problem"])] if path.get("problem") else []
    told = f"  ({', '.join(marks)})" if marks else ""
    return f"  path: {safe_line(path.get('resolved') or path.get('given', ''))}{safe_line(told)}"


def _ticket_text(request: Json, *, gate: bool, whole: bool, full: str) -> list[str]:
    text = str(request.get("permission" if gate else "question") or "")
    if whole:
        return [indent(safe(text), "  │ ")]
    # What would run, or would be changed, comes first: the notes around it are one command away.
    text = str(request.get("command") or request.get("diff") or text)
    shown, cut_short = clip(text, 10, 6)
    lines = [indent(safe("\n".join(shown)), "  │ ")]
    if cut_short:
        size = f"{len(text)} characters, {text.rstrip(chr(10)).count(chr(10)) + 1} lines"
        lines.append(colour(f"  (shortened: {size}; in full: {full})", "yellow"))
    return lines


def activity(task: Json) -> str:
    """What the executor does now, and for how long nothing was heard of it."""
    now = task.get("activity") or {}
    if not now.get("phase"):
        return ""
    detail = f" {safe_line(now['detail'])}" if now.get("detail") else ""
    idle = now.get("idle_s")
    since = f" (silent for {span(idle)})" if isinstance(idle, int | float) and idle >= 5 else ""
    return f"{safe_line(now['phase'])}{detail}{since}"


def task_head(task: Json) -> list[str]:
    """A task's lines at the top of ``show`` and after ``dispatch``."""
    name = safe_line(task.get("name") or "")
    lines = [f"{colour(short(task['id']), 'bold')}  {state(task['state'])}  {name}".rstrip()]
    if task.get("queue_position"):
        lines.append(f"  in the queue: place {task['queue_position']}")
    doing = activity(task)
    if doing and task["state"] in ("running", "waiting_answer"):
        lines.append(f"  now: {doing}")
    executor = safe_line(task.get("executor") or "")
    model = f" ({safe_line(task['model'])})" if task.get("model") else ""
    version = f" {safe_line(task['executor_version'])}" if task.get("executor_version") else ""
    lines.append(f"  executor: {executor}{version}{model}")
    base = str(task.get("base_commit") or "")[:10]
    name_of = safe_line(task.get("base_name") or "")
    at = "" if base in name_of else f" {base}"  # a detached HEAD's name says where it is
    since = f" from {(name_of + at).strip()}" if base else ""
    lines.append(f"  branch: {safe_line(task.get('branch') or '')}{since}")
    lines.append(
        f"  folder: {safe_line(task.get('work_dir') or '')} ({task.get('workspace_kind', '?')})"
    )
    lines += [f"  note: {safe_line(note)}" for note in task.get("notes") or []]
    return lines


def _entry(one: Any) -> str:
    """An uncommitted path: agentd tells it as a line, an object or a pair."""
    if isinstance(one, dict):
        one = (one.get("status", ""), one.get("path", ""))
    return safe_line(one if isinstance(one, str) else " ".join(map(str, one)))


def removal(found: Json | None, context: Context, task: str) -> list[str]:
    """How the removal of a worktree ended."""
    if not found or found.get("reason") == "not_managed":
        return []
    action, where = found.get("action", ""), safe_line(found.get("work_dir", ""))
    if action == "pending":
        return [f"  {where}: clean-up goes on in the background"]
    if action != "kept":
        return [f"  {where}: {safe_line(action).replace('_', ' ')}"] if where else []
    note = safe_line(found.get("note") or "")
    lines = []
    if not (where and note.startswith(where)):  # else the note says it
        lines.append(f"  {where} was kept ({safe_line(found.get('reason') or 'see below')})")
    if note:
        lines.append(f"  {note}")
    entries = found.get("entries") or []
    lines += [f"    {_entry(one)}" for one in entries[:10]]
    if len(entries) > 10:
        lines.append(f"    and {len(entries) - 10} more")
    lines.append(
        "  " + safe_line(context.adapt(found.get("remedy") or context.command("reclaim", task)))
    )
    return lines

"""A finished task as a handoff record: what was asked, answered, done and verified.

No model is asked. Everything comes from what agentd recorded: prompts and answers are the
coordinator's words; what the executor said it did counts as reported, with the commits that
git showed as its evidence; verify commands are results of the commit they ran at. What does
not fit is named among the omissions, with the command that shows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from handoff.errors import HandoffError
from handoff.sessions import evidence, task_session, text
from handoff.sessions.canonical import dumps
from handoff.sessions.fields import Notes, read
from handoff.sessions.manifest import Source, Writer
from handoff.sessions.records import Created, Draft, Records
from handoff.sessions.schema import LISTS, STATE_HARD, Field
from handoff.sessions.state_v1 import split
from handoff.sessions.task_prompt import own_words, parent_of
from handoff.sessions.task_session import Finished, messages, prompt
from handoff.sessions.workspace import Binding

__all__ = ["HOST", "Finished", "keep", "kept", "state_of"]

#: the host that such a record names as its source
HOST = "task"
#: bytes of the plan, of another prompt, of one other text
PLAN_LIMIT, PROMPT_LIMIT, TEXT_LIMIT = 64 * 1024, 8 * 1024, 2 * 1024
_RULES = 64
_ROLES = {"added": "created", "deleted": "deleted"}
_NOT = re.compile(r"\b(?:never|not|don[’']?t|without|forbidden|avoid|mai|nie|kein)", re.IGNORECASE)


def kept(records: Records, profile: str, task_id: str) -> str:
    """The ref of a task's record in this profile, or "". Looking creates nothing."""
    made = records.by_request(profile, task_id, _request(task_id))
    return str(made["ref"]) if made else ""


def keep(records: Records, profile: str, binding: Binding, done: Finished) -> Created | None:
    """Publish the record of a finished task; None if there is one already.

    Raises:
        StateInvalid, TooLarge, StorageError: nothing was published.
    """
    if kept(records, profile, done.id):
        return None
    state = state_of(done)
    _inherit(records, state)
    paths = [item["path"] for item in state["files"]]
    opener = task_session.opener(done)
    guard = records.guard
    binding = replace(binding, label=guard.text(binding.label), branch=guard.text(binding.branch))
    got = evidence.gather(binding, guard, sessions=opener, session_id=done.id, paths=paths)
    grounded, _ = evidence.ground(_checked(state), opener, done.id, binding)
    return records.create(
        Draft(
            grounded,
            _request(done.id),
            binding,
            Source(profile, done.id, got.last_message, HOST),
            evidence=got.frozen,
            writer=Writer("task"),
            parent_ref=grounded["lineage"].get("parent_ref", ""),
            origin="task",
        )
    )


def _inherit(records: Records, state: dict[str, Any]) -> None:
    """Take over the constraints of the record that the task was made of, if it is here."""
    parent = state["lineage"].get("parent_ref", "")
    if not parent:
        return
    try:
        record = records.read(parent)
    except HandoffError:
        what = f"the constraints of {parent}"
        state["omissions"].append({"what": what, "why": "that record can't be read here"})
        return
    room = LISTS["constraints"].limit - len(state["constraints"])
    kept_: list[dict[str, Any]] = []
    for number, item in enumerate(record.state["constraints"], 1):
        one = {key: item[key] for key in ("text", "kind", "scope") if key in item}
        kept_.append({"id": f"i{number}", **one, "basis": "inherited"})
    if len(kept_) > room:
        what = f"constraints of {parent}"
        state["omissions"].append(
            {"what": what, "count": len(kept_) - room, "why": f"handoff session show {parent}"}
        )
    state["constraints"] += kept_[:room]
    state["lineage"] |= {
        "depth": min(record.state["lineage"]["depth"] + 1, 64),
        "inherited_ids": [item["id"] for item in kept_[:room]],
    }


def _request(task_id: str) -> str:
    return f"task-{task_id}"


def _checked(state: dict[str, Any]) -> dict[str, Any]:
    from handoff.sessions.state import check

    return check(state).state


# -- the state ----------------------------------------------------------------------------


@dataclass
class _Lost:
    """What is left out, and how often."""

    found: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, what: str, why: str, count: int = 1) -> None:
        self.found.setdefault(what, [0, why])[0] += count

    def items(self) -> list[dict[str, Any]]:
        return [
            {"what": what, "count": count, "why": why}
            for what, (count, why) in list(self.found.items())[:64]
        ]


def state_of(done: Finished) -> dict[str, Any]:
    """The state of a finished task (version 2, not yet checked)."""
    lost = _Lost()
    lost.add("what the executor did and said between its prompts", f"handoff show {done.id} --all")
    state: dict[str, Any] = {
        "schema": "handoff-state/2",
        "goal": _goal(done, lost),
        "constraints": _constraints(done, lost),
        "progress": {"done": _reported(done, lost), "in_progress": [], "pending": []},
        "decisions": _answers(done, lost),
        "rejected": _denials(done, lost),
        "verification": _verification(done, lost),
        "files": _files(done, lost),
        "context": _context(done, lost),
        "uncertainties": _uncertainties(done, lost),
        "next_steps": _next(done),
        "lineage": {},
    }
    parent = parent_of(prompt(done.turns[0])) if done.turns else ""
    if parent:
        state["lineage"] = {"parent_ref": parent, "depth": 1}
    for path, spec in LISTS.items():
        owner, _, name = path.rpartition("/")
        items = (state["progress"] if owner else state).get(name)
        if items is not None and len(items) > spec.limit:
            lost.add(f"items of {path}", f"handoff show {done.id} --all", len(items) - spec.limit)
            del items[spec.limit :]
    state["omissions"] = lost.items()
    return _within(state, done)


def _within(state: dict[str, Any], done: Finished) -> dict[str, Any]:
    """The state below the limit of a record: what agentd keeps anyway goes, the plan first,
    then what is oldest. Constraints stay."""
    over = len(dumps(state)) - (STATE_HARD - 8 * 1024)
    lists = {name: state[name] for name in ("context", "decisions", "rejected", "files")}
    lists["progress/done"] = state["progress"]["done"]
    for name, items in lists.items():
        gone = 0
        while over > 0 and items:
            over -= len(dumps(items.pop(-1 if name == "context" else 0))) + 1
            gone += 1
        if gone:
            why = f"no room in a record: handoff show {done.id} --all"
            more = {"what": f"items of {name}", "count": gone, "why": why}
            state["omissions"] = [*state["omissions"][:63], more]
    return state


def _goal(done: Finished, lost: _Lost) -> dict[str, Any]:
    task = done.task
    said = str(task.get("plan_summary") or "").lstrip("# ") or str(task.get("name") or "")
    goal = _plain(said or f"task {done.id}", TEXT_LIMIT - 64, lost)
    return {
        "text": goal or f"task {done.id}",
        "done_when": [
            _plain(f"`{command}` exits with 0", TEXT_LIMIT, lost)
            for command in list(task.get("verify") or [])[:16]
        ],
    }


def _constraints(done: Finished, lost: _Lost) -> list[dict[str, Any]]:
    """The lines of the coordinator that sound like rules. Those of a record that the plan
    was made of are in that record."""
    found: dict[str, dict[str, Any]] = {}
    for message in messages(done):
        if message.role != "user":
            continue
        for line in evidence.rules(message.text):
            line = _plain(line.strip().lstrip("-*# "), TEXT_LIMIT, lost)
            if line and line not in found:
                found[line] = {
                    "text": line,
                    "kind": "must_not" if _NOT.search(line) else "must",
                    "basis": "observed",
                    "evidence": [{"kind": "message", "id": message.id}],
                }
    if len(found) > _RULES:
        lost.add(
            "lines that sound like rules", f"handoff show {done.id} --plan", len(found) - _RULES
        )
    return _numbered("c", list(found.values())[:_RULES])


def _reported(done: Finished, lost: _Lost) -> list[dict[str, Any]]:
    made = []
    for turn in done.turns:
        outcome = turn.get("outcome") or {}
        summary = (outcome.get("claim") or {}).get("summary") or outcome.get("summary") or ""
        commits = (outcome.get("found") or {}).get("new_commits") or []
        if not summary and not commits:
            continue
        told = _plain(str(summary), TEXT_LIMIT, lost) or f"{len(commits)} commits, nothing said"
        made.append(
            {
                "text": f"turn {turn.get('number', '?')}: {told}",
                "basis": "reported",
                "evidence": [{"kind": "git", "id": str(one)} for one in commits[-32:]],
            }
        )
    return _numbered("p", made)


def _answers(done: Finished, lost: _Lost) -> list[dict[str, Any]]:
    made = []
    for ticket in done.tickets:
        if ticket.get("kind") == "ask" and ticket.get("answer"):
            question = _plain(str((ticket.get("request") or {}).get("question", "")), 1024, lost)
            answer = _plain(str(ticket["answer"]), TEXT_LIMIT, lost)
            made.append(
                {
                    "text": f"{question or 'a question'}\nAnswer: {answer or '(blank)'}",
                    "why": f"ticket {ticket.get('ref', '?')}, answered by "
                    + _plain(str(ticket.get("answered_by") or "nobody that is known"), 256, lost),
                }
            )
    return _numbered("d", made)


def _denials(done: Finished, lost: _Lost) -> list[dict[str, Any]]:
    made = []
    for ticket in done.tickets:
        if ticket.get("kind") != "gate":
            continue
        request = ticket.get("request") or {}
        if ticket.get("decision") != "deny":
            lost.add("permissions that were given", f"handoff show {done.id} --all")
            continue
        what = str(request.get("command") or request.get("title") or request.get("permission"))
        reason = _plain(str(ticket.get("reason") or ""), TEXT_LIMIT, lost)
        made.append(
            {
                "text": "not allowed: " + (_plain(what, TEXT_LIMIT, lost) or "(blank)"),
                "why": reason
                or f"denied by {ticket.get('source') or 'the coordinator'}, no reason",
            }
        )
    return _numbered("r", made)


def _verification(done: Finished, lost: _Lost) -> list[dict[str, Any]]:
    """The verify commands of the last turn that ran them, at its commit."""
    for turn in reversed(done.turns):
        outcome = turn.get("outcome") or {}
        if not outcome.get("verify"):
            continue
        found = outcome.get("found") or {}
        commit = str(found.get("head") or outcome.get("commit") or "")
        at = turn.get("ended_at")
        dirty = int((found.get("dirt") or {}).get("total") or 0)
        made = []
        for one in outcome["verify"]:
            command = _plain(str(one.get("command", "")), TEXT_LIMIT, lost)
            code = one.get("exit_code")
            item: dict[str, Any] = {
                "claim": f"`{command}` in turn {turn.get('number', '?')}",
                "command": command,
                "result": "fail",
            }
            if isinstance(code, int):
                item["exit_code"] = code
            if re.fullmatch(r"[0-9a-f]{7,64}", commit):
                item["commit"] = commit
            if isinstance(at, str):
                item["at"] = at
            if dirty:
                item["dirty_digest"] = f"{dirty} uncommitted entries"
            passed = code == 0 and not one.get("timed_out")
            if passed:
                # Without a commit it can't be said what passed.
                item["result"] = "pass" if {"commit", "at"} <= set(item) else "not_run"
            made.append(item)
        return _numbered("v", made)
    return []


def _files(done: Finished, lost: _Lost) -> list[dict[str, Any]]:
    made: dict[tuple[str, str], dict[str, Any]] = {}
    for one in done.files:
        roles = [(one.get("path"), _ROLES.get(str(one.get("status")), "modified"))]
        if one.get("status") == "renamed" and one.get("old_path"):
            roles = [(one["old_path"], "deleted"), (one.get("path"), "created")]
        for path, role in roles:
            notes = Notes()
            if read(path, Field("path", need=True, limit=4096), "", notes) is None:
                lost.add(
                    "changed files whose names can't stand in a record", f"handoff diff {done.id}"
                )
                continue
            made[str(path), role] = {"path": str(path), "role": role}
    return list(made.values())


def _context(done: Finished, lost: _Lost) -> list[dict[str, Any]]:
    task = done.task
    base = task.get("base_name") or "a commit"
    facts = [
        f"branch {task.get('branch') or '(none)'}, from {base} at {task.get('base_commit')}",
        f"executor {task.get('executor') or '(unknown)'}"
        + (f", model {task['model']}" if task.get("model") else ""),
    ]
    if task.get("done_note"):
        facts.append(f"accepted with: {task['done_note']}")
    for turn in done.turns:
        outcome = turn.get("outcome") or {}
        if outcome.get("reason"):
            facts.append(f"turn {turn.get('number', '?')} ended as {outcome.get('code')}: "
                         f"{outcome['reason']}")  # fmt: skip
    made: list[dict[str, Any]] = [
        {"id": f"x{n}", "text": _plain(fact, TEXT_LIMIT, lost), "basis": "observed",
         "evidence": [{"kind": "tool", "id": done.id}]}
        for n, fact in enumerate(facts, 1)
    ]  # fmt: skip
    for turn in done.turns:
        number = turn.get("number", 0)
        limit = PLAN_LIMIT if number == 1 else PROMPT_LIMIT
        own = own_words(prompt(turn))
        shown = _plain(own, limit, lost)
        for at, piece in enumerate(split(shown, 7 * 1024)):
            key = f"prompt{number}" + (f"-{at + 1}" if at else "")
            made.append({"id": key, "text": piece, "kind": "contract", "basis": "reported"})
    return made


def _uncertainties(done: Finished, lost: _Lost) -> list[dict[str, Any]]:
    made = []
    last = (done.turns[-1].get("outcome") or {}) if done.turns else {}
    if last.get("code") and last["code"] != "verified":
        made.append(
            {
                "text": _plain(f"the last turn was not verified ({last['code']})", 1024, lost),
                "check": f"handoff show {done.id} --all",
            }
        )
    dirt = ((last.get("found") or {}).get("dirt") or {}).get("total") or 0
    if dirt:
        made.append(
            {
                "text": f"{dirt} entries were not committed when the last turn ended",
                "check": f"handoff diff {done.id} --uncommitted",
            }
        )
    return _numbered("u", made)


def _next(done: Finished) -> list[dict[str, Any]]:
    task = done.task
    branch, base = task.get("branch"), task.get("base_commit")
    if not branch or not base:
        return []
    text_ = f"Look at what the task left on its branch: `git log {base}..{branch}`"
    return _numbered("n", [{"text": _plain(text_, TEXT_LIMIT, _Lost())}])


def _numbered(letter: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": f"{letter}{number}", **item} for number, item in enumerate(items, 1)]


def _plain(value: str, limit: int, lost: _Lost) -> str:
    """A text as a state can hold it; what is changed or cut is counted."""
    shown = text.normal(value).encode("utf-8", "replace").decode()
    signs = [at for at, _ in text.hidden(shown)]
    if signs:
        letters = list(shown)
        for at in signs:
            letters[at] = "\N{REPLACEMENT CHARACTER}"
        shown = "".join(letters)
        lost.add("hidden signs, each shown as a replacement", "they hide what is read", len(signs))
    raw = shown.encode()
    if len(raw) > limit:
        shown = raw[: limit - 3].decode("utf-8", "ignore") + "…"
        lost.add("ends of long texts", "handoff show TASK --all has them whole")
    return shown.strip()

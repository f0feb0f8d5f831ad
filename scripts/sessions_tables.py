"""The generated parts of docs/sessions/contract.md, made from the code (for gen-reference)."""

from __future__ import annotations

import re
from collections.abc import Callable

from handoff.errors import all_errors
from handoff.sessions import history, retry, schema, service
from handoff.sessions.actions import ACTIONS, Arg
from handoff.sessions.opening import EXIT

_WHO = {"model": "anyone", "keeper": "the command line, or a person", "person": "a person"}
_EXITS = {
    "ended": "the program ended normally; no proof that the work went on",
    "usage": "the call is wrong",
    "refused": "something stands against it; nothing was reserved",
    "taken": "it is being opened, or was opened",
    "uncertain": "a session may exist: `handoff session recover`",
    "store": "the store or the journal can't be used",
    "not_started": "nothing was started, and that is proved",
    "declined": "you said no",
    "no_terminal": "standard input or output is no terminal",
    "ended_badly": "the program ended with another code or by a signal (in the JSON)",
}


def table(head: list[str], rows: list[list[str]]) -> str:
    """A markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _argument(name: str, arg: Arg) -> str:
    kind = " or ".join(arg.choices) if arg.choices else arg.kind
    return f"`{name}`{'' if arg.need else '?'} ({kind})"


def actions() -> str:
    """Every action: who may call it, with what."""
    rows = [
        [f"`{name}`", _WHO[one.who], ", ".join(_argument(*pair) for pair in one.args.items()),
         one.about]
        for name, one in ACTIONS.items()
    ]  # fmt: skip
    return table(["action", "who", "arguments (`?`: may be left out)", "what it does"], rows)


def replies() -> str:
    """What each action answers, from the table in the service's own description."""
    text = (service.__doc__ or "").split("=" * 14)
    body = next(part for part in text if "evidence " in part)
    rows: list[list[str]] = []
    for line in body.split("\n"):
        if line[:1].strip() and not line.startswith("="):
            names, _, rest = line.partition("  ")
            rows.append([names.strip(), rest.strip()])
        elif line.strip() and not line.strip().startswith("=") and rows:
            rows[-1][1] += " " + line.strip()
    told = [
        [", ".join(f"`{n.strip()}`" for n in names.split(",") if n.strip()), what]
        for names, what in _joined(rows)
    ]
    return table(
        ["action", "reply, beside `ok` and `action`"], [[a, re.sub(r"``", "`", b)] for a, b in told]
    )


def _joined(rows: list[list[str]]) -> list[tuple[str, str]]:
    """Names that go on in the next line belong together."""
    found: list[tuple[str, str]] = []
    before = ""
    for names, what in rows:
        if not what or names.endswith(","):
            before += names + " "
            continue
        found.append((before + names, what))
        before = ""
    return found


def _field(name: str, field: schema.Field) -> str:
    kind = " / ".join(field.choices) if field.choices else field.kind
    bounded = field.kind in ("text", "line", "path", "texts", "ids", "evidence")
    limit = f", {field.limit}" if bounded else ""
    return f"`{name}`{'' if field.need else '?'} ({kind}{limit})"


def state() -> str:
    """Every part of a state."""
    parts = [("goal", "", schema.GOAL), ("lineage", "", schema.LINEAGE)]
    parts[1:1] = [(path, str(items.limit), items.fields) for path, items in schema.LISTS.items()]
    rows = [
        [f"`{name}`", entries, ", ".join(_field(*pair) for pair in fields.items())]
        for name, entries, fields in parts
    ]
    return table(
        ["part", "entries", "fields (`?`: may be left out; kind, limit in bytes or entries)"], rows
    )


def states() -> str:
    """Each state of an attempt in the words that a status uses."""
    rows = [[f"`{name}`", sentence] for name, sentence in history.EXPLAIN.items()]
    return table(["state", "what a status says of it"], [*rows, ["(uncertain)", history.UNCERTAIN]])


def exits() -> str:
    """The opener's exit codes."""
    rows = [[str(code), _EXITS[name]] for name, code in EXIT.items()]
    return table(["exit", "meaning"], sorted(rows, key=lambda row: int(row[0])))


def retries() -> str:
    """What may be tried again after which error."""
    by_rule: dict[str, list[str]] = {}
    for code, cls in sorted(all_errors().items()):
        by_rule.setdefault(retry.retry_of(cls("x")), []).append(code)
    meaning = {
        retry.NEVER: "the call is wrong, or refused as things stand: change something first",
        retry.SAME_ID: "nothing was done: the same call, with the same ids, may succeed",
        retry.AFTER_INSPECTION: "something may have been done: a person looks first",
    }
    rows = []
    for rule in (retry.SAME_ID, retry.AFTER_INSPECTION, retry.NEVER):
        codes = ", ".join(f"`{code}`" for code in by_rule[rule])
        rows.append(
            [f"`{rule}`", meaning[rule], codes if rule != retry.NEVER else "every other code"]
        )
    return table(["retry", "meaning", "error codes"], rows)


PARTS: dict[str, Callable[[], str]] = {
    "actions": actions,
    "replies": replies,
    "state": state,
    "states": states,
    "exits": exits,
    "retries": retries,
}

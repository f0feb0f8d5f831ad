"""How good a state is as a handoff: a list of what could be better, never a number.

Twelve rules, each deterministic and without a model. By default they warn; strictly, those
of :data:`STRICT` refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from handoff.errors import StateInvalid
from handoff.sessions import document
from handoff.sessions.fields import Note
from handoff.sessions.schema import STATE_SOFT, TEXT_SOFT
from handoff.sessions.state import State, every_item, items, state_bytes
from handoff.sessions.text import normal, one_line

#: the rules that refuse when asked for strictness
STRICT = frozenset({"L1", "L2", "L5", "L6", "L9", "L12"})
#: bytes of a document above which a note, and a warning, is due
DOCUMENT_NOTE, DOCUMENT_WARN = 4 * 1024, 16 * 1024

# Something that can be looked up or run: a path, a symbol, a number, a command, a quotation.
_CONCRETE = re.compile(
    r"`[^`\n]+`|[\"“«'‘][^\"”»'’\n]{2,}[\"”»'’]|\d|[\w-]+\.[A-Za-z]\w*|\w/\w|\w+\(\)|\w_\w|"
    r"[a-z][A-Z]|--?[a-z]\w+|(?<!\w)-[a-z]\b|(?<!\w)(?:run|git|npm|make|pytest|cargo|go|docker|pip|uv|python3?) \w"
)
_WRITER = re.compile(
    r"(?i)\b(?:generation[- ]only|as an ai\b|return only (?:the )?json|give one json object|"
    r"handoff-state/2|output (?:only|just) (?:the )?(?:json|state)|no (?:prose|commentary) outside|"
    r"do not call (?:any )?tools? while (?:writing|summari[sz]ing)|summari[sz]e (?:this|the) "
    r"(?:session|conversation)|you are (?:writing|asked to write) (?:a|the) (?:handoff|summary))"
)
_TO_AGENT = re.compile(
    r"(?im)(?:^|[.;:!]\s+)(?:please\s+)?(?:you (?:must|should|need to|have to|will)\b|ignore (?:all|any|the|your|"
    r"previous|prior)\b|disregard\b|forget (?:all|everything|your)\b|act as\b|from now on\b|"
    r"(?:now )?(?:run|execute|delete|send|upload|install|push|approve|open|fetch|download) "
    r"(?:the|this|all|every|it|your|these|that)\b|do not (?:tell|ask|mention|wait|stop)\b|"
    r"(?:assistant|agent|system)\s*:)"
)
_BLANKS = re.compile(r"\s+")


class Candidate(NamedTuple):
    """Something that the user said and that may be a constraint. ``source``: where."""

    text: str
    source: str


def lint(state: State, candidates: Iterable[Candidate] = ()) -> list[Note]:
    """What could be better, in the order of the rules. The codes are L1 to L12.

    Args:
        state: in its normal form.
        candidates: texts of the user that look like constraints, from the session.
    """
    return [
        *_goal(state),
        *_first_step(state),
        *_evidence(state),
        *_references(state),
        *_words(state),
        *_sizes(state),
        *_omissions(state),
        *_candidates(state, candidates),
    ]


def require_strict(notes: Iterable[Note]) -> None:
    """Refuse a state that breaks a rule of :data:`STRICT`.

    Raises:
        StateInvalid: ``details["faults"]`` holds the notes.
    """
    bad = [note for note in notes if note.code in STRICT]
    if bad:
        raise StateInvalid(
            f"the state breaks {len(bad)} of the strict rules: {bad[0].code}: {bad[0].message}",
            remedy="mend each place that is named, or create without strictness",
            faults=[note.to_json() for note in bad],
            count=len(bad),
        )


def _goal(state: State) -> Iterable[Note]:
    if not state["goal"]["done_when"]:
        yield Note("/goal/done_when", "L1", "nothing says when the goal is reached")


def _first_step(state: State) -> Iterable[Note]:
    steps = items(state, "next_steps")
    if not steps:
        yield Note("/next_steps", "L2", "there is no next step")
    elif not _CONCRETE.search(steps[0]["text"]):
        yield Note("/next_steps/0/text", "L2", "the first step names no path, symbol or command")


def _evidence(state: State) -> Iterable[Note]:
    for number, item in enumerate(items(state, "progress/done")):
        if not item["evidence"]:
            yield Note(f"/progress/done/{number}/evidence", "L3", "done, and nothing shows it")
    for number, item in enumerate(items(state, "verification")):
        if item["result"] == "pass" and not ("commit" in item and "command" in item):
            yield Note(f"/verification/{number}", "L4", "a pass of no commit, or of no command")


def _references(state: State) -> Iterable[Note]:
    """L5 and L6. A checked state breaks neither; one that came from elsewhere may."""
    known = {item["id"] for _, item in every_item(state) if "id" in item}
    decisions = items(state, "decisions")
    replaced = {old for item in decisions for old in item["supersedes"]}
    for pointer, item in every_item(state):
        for name in ("blocks", "supersedes"):
            for number, other in enumerate(item.get(name, [])):
                if other not in known:
                    yield Note(f"{pointer}/{name}/{number}", "L5", "no item has this id")
    for number, other in enumerate(state["lineage"]["inherited_ids"]):
        if other not in known:
            yield Note(f"/lineage/inherited_ids/{number}", "L5", "no item has this id")
    for number, item in enumerate(decisions):
        if (item["status"] == "superseded") != (item["id"] in replaced):
            yield Note(f"/decisions/{number}/status", "L6", "status and successors disagree")


def _words(state: State) -> Iterable[Note]:
    texts = [("/goal", {"text": state["goal"]["text"]}), *every_item(state)]
    for pointer, item in texts:
        for name, value in item.items():
            if isinstance(value, str) and _WRITER.search(value):
                yield Note(f"{pointer}/{name}", "L7", "words meant for the writer of the summary")
    for pointer, item in every_item(state):
        part = pointer.split("/")[1]
        if part in {"progress", "context", "next_steps"} and not _CONCRETE.search(item["text"]):
            yield Note(f"{pointer}/text", "L8", "no path, symbol, number, command or quotation")
        if part not in {"constraints", "next_steps", "files"}:
            for name in ("text", "claim", "what", "why"):
                if name in item and _TO_AGENT.search(item[name]):
                    yield Note(f"{pointer}/{name}", "L9", "speaks to the agent, outside of steps")


def _sizes(state: State) -> Iterable[Note]:
    size = len(document.render(state).encode("utf-8"))
    if size > DOCUMENT_NOTE:
        much = "far more" if size > DOCUMENT_WARN else "more"
        yield Note("", "L10", f"the document has {size} bytes, {much} than most sessions need")
    if len(state_bytes(state)) > STATE_SOFT:
        yield Note("", "L10", f"the state is over {STATE_SOFT} bytes")
    for pointer, item in every_item(state):
        for name, value in item.items():
            if isinstance(value, str) and len(value.encode("utf-8")) > TEXT_SOFT:
                yield Note(f"{pointer}/{name}", "L10", f"a text over {TEXT_SOFT} bytes")


def _omissions(state: State) -> Iterable[Note]:
    if "omissions" not in state:
        yield Note("/omissions", "L11", "nothing says whether something was left out")


def _candidates(state: State, candidates: Iterable[Candidate]) -> Iterable[Note]:
    for one in dropped(state, candidates):
        yield Note(
            "/constraints",
            "L12",
            f"left out, from {one_line(one.source, 80)}: {one_line(one.text)}",
        )


def dropped(state: State, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates that stand, word for word, neither among the constraints nor among the
    omissions. Case and blanks do not count."""
    held = [
        _plain(f"{item['text']} {item.get('scope', '')}") for item in items(state, "constraints")
    ] + [_plain(f"{item['what']} {item.get('why', '')}") for item in items(state, "omissions")]
    return [one for one in candidates if not _held(_plain(one.text), held)]


def _held(text: str, held: list[str]) -> bool:
    if not text:
        return True
    return any(text in other for other in held)


def _plain(text: str) -> str:
    return _BLANKS.sub(" ", normal(text)).strip().strip(".!").casefold()

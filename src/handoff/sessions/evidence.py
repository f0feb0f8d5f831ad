"""What a record's claims can be held against: bounded, redacted, computed by the tool.

Two things come of it. A *bundle* for whoever writes the state: the session's first words,
every user message that sounds like a rule, its last messages, git's facts. And the *frozen
facts* that are stored with the record: digests, branch, changed files, candidate rules, so
that drift can be told later. Message texts are not stored, but for the candidates.
Nothing leaves this module before it is redacted. The source session is only read.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from handoff.errors import HandoffError, NotFound
from handoff.sessions import claims, excerpts, host_store
from handoff.sessions.guard import Guard
from handoff.sessions.host_store import Message, Opener, SessionStore
from handoff.sessions.proofs import Proofs
from handoff.sessions.snapshot import snapshot
from handoff.sessions.workspace import Binding

KIB = 1024
#: of the last messages: how many, bytes of text, bytes of one tool result (head and tail)
LAST, TEXT_LIMIT, TOOL_LIMIT = 200, 64 * KIB, 256
#: of these, for lines from before the last messages: messages, bytes
EARLIER, EARLIER_LIMIT = 100, 24 * KIB
#: of candidate rules: how many, bytes of one
CANDIDATES, CANDIDATE_LIMIT = 256, 4 * KIB
#: words by which a rule of the user is known: English, Italian, German, Chinese
_MARKERS = re.compile(
    r"\b(?:must(?:n[o']t)?|never|do\s+not|don[’']?t|only|always|deadline|shall|required?|"
    r"forbidden|prohibited|avoid|without|unless|at\s+most|at\s+least|no\s+more\s+than|should|"
    r"ensure|make\s+sure|"
    r"deve|devi|devono|mai|sempre|solo|soltanto|vietato|obbligatorio|scadenza|evita(?:re)?|"
    r"muss|müssen|darf|dürfen|nie|niemals|immer|nur|verboten|frist|kein(?:e[nmrs]?)?|"
    r"auf\s+keinen\s+fall)\b|必须|不要|不能|不得|禁止|只能|总是|永远|截止|务必",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\w./:-]+")
_STRONG = re.compile(r"[\d/_.:]|[a-z][A-Z]")


@dataclass(frozen=True)
class Bundle:
    """What was gathered, redacted. ``frozen``: what a record stores (JSON).
    ``messages``: the window, for a writer: id, role, text, cut; ``excerpt`` where these are lines
    from before the last messages. ``last_message``: the freeze
    point. ``notes``: what could not be had, and why."""

    frozen: dict[str, Any]
    messages: list[dict[str, Any]]
    last_message: str
    notes: tuple[str, ...] = ()
    redactions: dict[str, int] = field(default_factory=dict)


def gather(
    binding: Binding,
    guard: Guard,
    *,
    sessions: str | Opener = "",
    session_id: str = "",
    paths: Iterable[str] = (),
) -> Bundle:
    """The evidence of one session in one workspace.

    ``sessions``: the host's session store (a path, or what opens it), "" for none. ``session_id``: exactly this one; it
    is never looked for. ``paths``: files of the state, relative to the workspace.

    Raises:
        NotFound: the store has no such session.
        StorageError: the store can't be read.
    """
    notes: list[str] = []
    frozen: dict[str, Any] = snapshot(binding, paths)
    window: list[dict[str, Any]] = []
    candidates: list[dict[str, Any]] = []
    last, first = "", ""
    if sessions and session_id:
        with host_store.look(sessions) as store:
            if store.session(session_id) is None:
                raise NotFound(
                    "the session store has no such session", remedy="call from within the session"
                )
            last = store.last_message(session_id)
            family = store.family(session_id)
            candidates = _candidates(store, family)
            window = _messages(store, family, {str(one["id"]) for one in candidates})
            first = next((one["id"] for one in window if "excerpt" not in one), "")
    else:
        notes.append("no session store: messages are unavailable")
    frozen["candidates"] = candidates
    frozen["window"] = {
        "first": first,
        "last": last,
        "messages": len(window),
        "bytes": sum(len(one["text"].encode()) for one in window),
        "sha256": hashlib.sha256(
            "\n".join(one["text"] for one in window).encode("utf-8", "surrogatepass")
        ).hexdigest(),
    }
    notes += [f"{name}: {why}" for name, why in frozen.get("unavailable", {}).items()]
    guarded = guard.value({"frozen": frozen, "messages": window})
    # Of a text that was redacted, the digest of what it was would be an oracle.
    shown = guarded.value["messages"]
    text = "\n".join(one["text"] for one in shown)
    guarded.value["frozen"]["window"]["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return Bundle(guarded.value["frozen"], shown, last, tuple(notes), guarded.counts)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def _candidates(store: SessionStore, family: list[str]) -> list[dict[str, Any]]:
    """The first user message and every one that sounds like a rule, word for word."""
    found: list[dict[str, Any]] = []
    for number, message in enumerate(store.messages(family, role="user")):
        text = _clean(message.text).strip()
        if not text or (number and not _MARKERS.search(text)):
            continue
        if len(found) >= CANDIDATES:
            found[-1]["more"] = int(found[-1].get("more", 0)) + 1
            continue
        whole = len(text.encode())
        one: dict[str, Any] = {"id": message.id, "at": message.at, "text": text}
        if whole > CANDIDATE_LIMIT:
            one |= {"text": _rules_of(text), "bytes": whole}
        found.append(one)
    return found


def rules(text: str) -> list[str]:
    """The lines of a text that sound like rules."""
    return [line for line in text.split("\n") if _MARKERS.search(line)]


def _rules_of(text: str) -> str:
    """Of a long message, the lines that sound like rules, and its head."""
    return _cut("\n".join([text[:512], *rules(text)]), CANDIDATE_LIMIT)


def _cut(text: str, limit: int) -> str:
    """Head and tail of a text that is over the limit, with a word on what is missing."""
    raw = text.encode()
    if len(raw) <= limit:
        return text
    half = limit // 2
    head, tail = raw[:half].decode("utf-8", "ignore"), raw[-half:].decode("utf-8", "ignore")
    return f"{head}\n[… {len(raw) - 2 * half} bytes left out …]\n{tail}"


def _messages(store: SessionStore, family: list[str], candidates: set[str]) -> list[dict[str, Any]]:
    """The last messages, and, where these are not all, lines of those before them; both within
    the one bound."""
    window = _window(store, family, LAST, TEXT_LIMIT)
    first = next(iter(store.messages(family)), None)
    if not window or first is None or window[0]["id"] == first.id:
        return window
    # What the lines take, the window loses: they are chosen from all that it might not show.
    kept = _window(store, family, LAST - EARLIER, TEXT_LIMIT - EARLIER_LIMIT)
    start = kept[0]["id"] if kept else ""
    earlier = itertools.takewhile(lambda one: one.id != start, store.messages(family))
    found = excerpts.pick(earlier, EARLIER_LIMIT, EARLIER, without=candidates)
    told = [_told(one.message, one.text, one.message.text) for one in found]
    size = sum(len(one["text"].encode()) for one in told)
    window = _window(store, family, LAST - len(told), TEXT_LIMIT - size)
    whole = {one["id"] for one in window}
    return [*({**one, "excerpt": True} for one in told if one["id"] not in whole), *window]


def _window(store: SessionStore, family: list[str], most: int, left: int) -> list[dict[str, Any]]:
    """The last messages within the bounds, oldest first."""
    picked: list[dict[str, Any]] = []
    for message in reversed(list(store.messages(family, last=most))):
        text = _clean(message.text)
        # What a host itself puts into a session is as long, and as telling, as a tool's result.
        limit = TOOL_LIMIT if message.role in ("tool", "system") else left
        shown = _cut(text, max(min(limit, left), 0))
        size = len(shown.encode())
        if size > left:
            break
        left -= size
        picked.append(_told(message, shown, text))
        if left <= 0:
            break
    return picked[::-1]


def _told(message: Message, shown: str, text: str) -> dict[str, Any]:
    one: dict[str, Any] = {"id": message.id, "role": message.role, "text": shown}
    if shown != text:
        one["cut"] = True
    if message.tool:
        one["tool"] = message.tool
    return one


# -- claims against evidence --------------------------------------------------------------


def dropped(state: Mapping[str, Any], candidates: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of candidate rules that neither the state nor its omissions hold: what was
    lost, to be shown word for word."""
    kept = [_words(text) for text in _texts(state)]
    lost = []
    for one in candidates:
        sentences = [s for s in re.split(r"(?<=[.!?。！？;])\s*|\n", one["text"]) if s.strip()]
        rules = [s for s in sentences if _MARKERS.search(s)]
        if any(not _held(_words(rule), kept) for rule in rules):
            lost.append(str(one["id"]))
    return lost


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _words(text: str) -> set[str]:
    found = set()
    for word in _WORD.findall(text):
        word = word.strip(".:-").casefold()
        if word.isascii() and len(word) < 3 and not word.isdigit():
            continue
        # Scripts without blanks: pairs of signs stand for words.
        if not word.isascii() and re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", word):
            found |= {word[at : at + 2] for at in range(max(len(word) - 1, 1))}
        elif word:
            found.add(word)
    return found


def _held(rule: set[str], kept: list[set[str]]) -> bool:
    """Whether one text of the state holds most words of a rule."""
    return not rule or any(len(rule & words) >= 0.6 * len(rule) for words in kept)


def ground(
    state: dict[str, Any],
    sessions: str | Opener,
    session_id: str,
    binding: Binding | None = None,
    parent: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The state with every basis lowered that its evidence does not bear, and what was
    lowered: pointer, code, message. ``parent``: the state that this session goes on from: what
    it held already, and nothing here bears, is inherited.

    A claim is borne by a message of this session that exists and speaks of the same, by a
    command that this session shows, or by a commit or file that is in the workspace. That the
    tool has verified something, no writer can say: it counts as observed. Where there is no
    session to look at (``session_id`` or ``sessions`` is ""), only that and what is in the
    workspace is looked at.

    Raises:
        StorageError: the store can't be read.
    """
    pointers = [
        pointer
        for name, item in _claims(state)
        if item.get("basis") in _SEEN
        for pointer in item.get("evidence", [])
    ]
    proofs = Proofs(binding, pointers)
    looked = bool(session_id and sessions) and not (
        isinstance(sessions, str) and not os.path.isfile(sessions)
    )
    if not looked:

        def seen(item: dict[str, Any]) -> bool:
            kinds = {one["kind"] for one in item.get("evidence", [])}
            return bool(kinds & {"git", "file"}) and not _unfounded(item, proofs)

        return _grounded(state, parent, seen, lambda item: _unfounded(item, proofs))
    with host_store.look(sessions) as store:
        said = _Said(store, store.family(session_id))

        def why_not(item: dict[str, Any]) -> str:
            return _unfounded(item, proofs) or _unsaid(item, said)

        return _grounded(state, parent, lambda item: not why_not(item), why_not)


def _grounded(
    state: dict[str, Any],
    parent: dict[str, Any] | None,
    borne: Callable[[dict[str, Any]], bool],
    why_not: Callable[[dict[str, Any]], str],
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    made, changes = claims.aged(state, parent, borne)
    made, lowered = _lowered(made, why_not)
    return made, [*(note.to_json() for note in changes), *lowered]


_SEEN = frozenset(("observed", "verified"))


def _claims(state: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    """The items that have a basis, each with its pointer."""
    for name in ("constraints", "context"):
        yield from ((f"/{name}/{n}", item) for n, item in enumerate(state.get(name, [])))
    for name, items in state.get("progress", {}).items():
        yield from ((f"/progress/{name}/{n}", item) for n, item in enumerate(items))


def _lowered(
    state: dict[str, Any], why_not: Callable[[dict[str, Any]], str]
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """A copy of the state; the bases of claims for which there is a reason are lowered."""
    state = copy.deepcopy(state)
    notes: list[dict[str, str]] = []
    for pointer, item in _claims(state):
        if item.get("basis") not in _SEEN:
            continue
        why, basis = why_not(item), "inferred"
        if not why and item["basis"] == "verified":
            why, basis = "only the tool itself says verified", "observed"
        if why:
            note = {"pointer": f"{pointer}/basis", "code": "basis_lowered", "message": why}
            notes.append(note)
            item["basis"] = basis
    return state, notes


def _unfounded(item: dict[str, Any], proofs: Proofs) -> str:
    """Why what a claim points to in the workspace bears nothing, or ""."""
    for number, one in enumerate(item.get("evidence", [])):
        if one["kind"] in ("git", "file") and (why := proofs.wrong(one)):
            return f"evidence {number}: {why}"
    return ""


class _Said:
    """A session's messages for many questions: their words are counted once."""

    def __init__(self, store: SessionStore, family: list[str]) -> None:
        self._store, self._family = store, family
        self._words: dict[bool, list[set[str]]] = {}

    def message(self, message_id: str) -> Message | None:
        """One message, by its id."""
        return next(self._store.messages(self._family, message_id=message_id), None)

    def words(self, *, by_user: bool) -> list[set[str]]:
        """The words of each message of the user, or of each other one with its calls."""
        if by_user not in self._words:
            self._words[by_user] = [
                _words(message.text if by_user else f"{message.text} {message.calls}")
                for message in self._store.messages(self._family)
                if (message.role == "user") == by_user
            ]
        return self._words[by_user]


def _unsaid(item: dict[str, Any], said: _Said) -> str:
    """Why a claim is not borne by this session, or "" if one of its pointers bears it."""
    pointers = item.get("evidence", [])
    why = "no evidence is named"
    for number, one in enumerate(pointers):
        if one["kind"] in ("git", "file"):
            return ""  # it was looked at
        if one["kind"] == "command":
            wanted = _words(one["id"])
            if wanted and any(wanted <= words for words in said.words(by_user=False)):
                return ""
            why = f"evidence {number}: this session shows no such command"
            continue
        found = said.message(one["id"])
        if found is None:
            why = f"evidence {number}: this session has no such message"
        elif "sha256" in one and _sha(found.text) != one["sha256"]:
            why = f"evidence {number}: that message has another digest"
        elif not _speaks_of(found.text, item["text"]):
            why = f"evidence {number}: that message speaks of something else"
        else:
            return ""
    if not pointers and "kind" in item and item["kind"] in ("must", "must_not", "prefer"):
        rule = _words(item["text"])  # rules come from the user
        if _held(rule, said.words(by_user=True)):
            return ""
        return "no message of the user says so"
    return why


def _speaks_of(text: str, claim: str) -> bool:
    """Whether a message shares the claim's hard words (paths, numbers, names), or, where it
    has none, half of its words."""
    words, said = _words(claim), _words(text)
    hard = {
        word.strip(".:-").casefold() for word in _WORD.findall(claim) if _STRONG.search(word)
    } & words
    if hard:
        return bool(hard & said)
    return len(words & said) * 2 >= len(words)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


#: messages after a record that are looked at; more than these are no handing off any more
TAIL = 64


def went_on(sessions: str | Opener, session_id: str, last: str) -> bool | None:
    """Whether the user has said something in the session since the message ``last``; None if
    that can't be told. What the session itself does to hand off, or says after it, is no
    going on: what it may have changed meanwhile, git shows."""
    try:
        with host_store.look(sessions) as store:
            if not store.last_message(session_id):
                return None
            tail = list(store.messages([session_id], last=TAIL))
    except HandoffError:
        return None
    for message in reversed(tail):
        if message.id == last:
            return False
        if message.role == "user":
            return True
    return True

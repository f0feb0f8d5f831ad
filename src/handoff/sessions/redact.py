"""Secrets out of a whole state (or any JSON value), before its bytes go anywhere.

Two modes: ``standard`` for what stays on this machine, ``strict`` for what leaves it and
for what another model is sent. Marks carry the kind of secret and a tag, by the key of the
profile: the same secret has the same mark everywhere in a profile, and nobody without the
key can try values. Nothing of a secret is kept: neither its text nor its length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from handoff.errors import Failed
from handoff.redaction import MARK, MODES, Redactor
from handoff.sessions.fields import Note, shown_key
from handoff.sessions.schema import EVIDENCE, GOAL, LINEAGE, LISTS, Field, Items
from handoff.sessions.state import State, check, invalid

#: names the rules; a record says by which it was redacted
RULES = "redaction/2"
SESSION_MODES = tuple(mode for mode in MODES if mode != "plain")
# Their grammar leaves no room for a secret (or, for ids, has it refused).
_SAFE_KINDS = frozenset({"choice", "integer", "flag", "hash", "time"})


class Finding(NamedTuple):
    """One secret that was taken out. ``pointer``: of its text in the value. ``kind``: its
    class. ``offset``: characters before it in the redacted text."""

    pointer: str
    kind: str
    offset: int


class Redacted(NamedTuple):
    """A value without its secrets. ``counts``: by class."""

    value: object
    findings: tuple[Finding, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many of which class."""
        return dict(sorted(Counter(finding.kind for finding in self.findings).items()))

    @property
    def pointers(self) -> tuple[str, ...]:
        """The places that are not as they were."""
        return tuple(sorted({finding.pointer for finding in self.findings}))


class SessionRedactor:
    """The redactor of one profile.

    Args:
        key: the profile's secret key.
        mode: ``standard`` or ``strict``.
        known: values that are secret for sure, by name.
        allow: keyed hashes of values that are none (:meth:`allowance`).
        facts: texts that the tool itself collected and that are no secrets (commit ids).

    Raises:
        ValueError: there is no such mode.
    """

    def __init__(
        self,
        key: bytes,
        mode: str = "standard",
        *,
        known: Mapping[str, str] | None = None,
        allow: Collection[str] = (),
        facts: Collection[str] = (),
    ) -> None:
        if mode not in SESSION_MODES:
            raise ValueError(f"the modes are {', '.join(SESSION_MODES)}")
        self.mode = mode
        self._redactor = Redactor(key, known, mode=mode, allow=allow, shield=facts)

    def allowance(self, value: str) -> str:
        """What to put on the allow list for this value; the value can't be read from it."""
        return self._redactor.allowance(value)

    def text(self, text: str) -> str:
        """One text without its secrets.

        Raises:
            Failed: a second pass would still change it; nothing is let through then.
        """
        return self._text(text, "")[0]

    def value(self, value: object) -> Redacted:
        """A JSON value without secrets, in its texts and its keys.

        Raises:
            Failed: as :meth:`text`.
        """
        findings: list[Finding] = []
        return Redacted(self._walk(value, "", findings), tuple(findings))

    def state(self, state: State) -> Redacted:
        """A checked state without secrets, checked again.

        Raises:
            StateInvalid: an id holds a secret, which can't be replaced where others refer
                to it; or a text became too long by its marks.
            Failed: as :meth:`text`.
        """
        findings: list[Finding] = []
        faults: list[Note] = []
        made = self._state(state, findings, faults)
        if faults:
            raise invalid(faults)
        return Redacted(check(made).state, tuple(findings))

    def clean(self, value: object) -> bool:
        """Whether redacting would change nothing: what is shown of a stored record by
        today's rules."""
        return not self.value(value).findings

    def _text(self, text: str, pointer: str) -> tuple[str, list[Finding]]:
        redacted = self._redactor.redact(text)
        if redacted == text:
            return text, []
        again = self._redactor.redact(redacted)
        if again != redacted:
            raise Failed(
                "redacting twice gave another text than redacting once; nothing was let through",
                remedy="leave that text out, and report where it stood",
                pointer=pointer,
            )
        return redacted, [Finding(pointer, kind, at) for kind, at in _new_marks(text, redacted)]

    def _walk(self, value: object, pointer: str, findings: list[Finding]) -> object:
        if isinstance(value, str):
            text, found = self._text(value, pointer)
            findings += found
            return text
        if isinstance(value, list | tuple):
            return [self._walk(one, f"{pointer}/{n}", findings) for n, one in enumerate(value)]
        if isinstance(value, dict):
            made: dict[str, object] = {}
            for number, (key, one) in enumerate(value.items()):
                here = f"{pointer}/{shown_key(str(key), number)}"
                name, found = self._text(str(key), here)
                findings += found
                made[name] = self._paired(str(key), one, here, findings)
            return made
        return value

    def _paired(self, key: str, value: object, pointer: str, findings: list[Finding]) -> object:
        """A value by itself, and beside its key: ``{"password": "…"}`` is a pair, too."""
        made = self._walk(value, pointer, findings)
        if not isinstance(made, str) or not made or MARK.search(made) or "\n" in made:
            return made
        head = f'"{key}": "'
        beside = self._redactor.redact(f'{head}{made}"')
        if beside.startswith(head) and beside.endswith('"') and beside != f'{head}{made}"':
            inner = beside[len(head) : -1]
            findings += [Finding(pointer, kind, at) for kind, at in _new_marks(made, inner)]
            return inner
        return made

    # -- by the schema ----------------------------------------------------------------

    def _state(self, state: State, findings: list[Finding], faults: list[Note]) -> State:
        def fields(owner: Mapping[str, object], spec: Mapping[str, Field], at: str) -> State:
            return {
                name: self._field(value, spec[name], f"{at}/{name}", findings, faults)
                for name, value in owner.items()
            }

        def listed(owner: Mapping[str, object], name: str, spec: Items, at: str) -> list[State]:
            given = owner[name]
            assert isinstance(given, list)
            return [fields(item, spec.fields, f"{at}/{n}") for n, item in enumerate(given)]

        made: State = {
            "schema": state["schema"],
            "goal": fields(state["goal"], GOAL, "/goal"),
            "progress": {},
            "lineage": fields(state["lineage"], LINEAGE, "/lineage"),
        }
        for path, spec in LISTS.items():
            owner, _, name = path.rpartition("/")
            source, target = (state[owner], made[owner]) if owner else (state, made)
            if name in source:
                target[name] = listed(source, name, spec, f"/{path}")
        return made

    def _field(
        self,
        value: object,
        field: Field,
        pointer: str,
        findings: list[Finding],
        faults: list[Note],
    ) -> object:
        if field.kind in _SAFE_KINDS:
            return value
        if field.kind in {"id", "ids", "commit"}:
            texts = value if isinstance(value, list) else [value]
            # By the standard rules: a commit id always looks random.
            for number, text in enumerate(texts):
                if field.kind != "commit" and self._redactor.redact(str(text)) != text:
                    where = f"{pointer}/{number}" if isinstance(value, list) else pointer
                    faults.append(Note(where, "secret_id", "an id must not look like a secret"))
            return value
        if field.kind == "evidence":
            assert isinstance(value, list)
            made = []
            for number, entry in enumerate(value):
                here = f"{pointer}/{number}"
                one = {
                    name: self._field(part, EVIDENCE[name], f"{here}/{name}", findings, faults)
                    for name, part in entry.items()
                }
                made.append(one)
            return made
        return self._walk(value, pointer, findings)


def _new_marks(before: str, after: str) -> list[tuple[str, int]]:
    """The marks of a text that were not in it before: (kind, place in the text)."""
    old = Counter(found.group() for found in MARK.finditer(before))
    new = []
    for found in MARK.finditer(after):
        if old[found.group()] > 0:
            old[found.group()] -= 1
        else:
            new.append((found.group().split(":")[1], found.start()))
    return new

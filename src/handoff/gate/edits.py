"""What a write would change, shown against the files as they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from handoff.executors.contract import FileEdit
from handoff.gate.contract import Target
from handoff.gate.diffs import MAX_DIFF, unified
from handoff.gate.marks import CantPin, as_text, read_regular, secret_name

#: bytes of a file, or of a new text, that are compared at most
MAX_COMPARED = 4 * 1024 * 1024
#: characters of all differences of one request
MAX_TOTAL = 4 * MAX_DIFF


@dataclass
class Difference:
    """``diff``: the unified differences of all edits, with notes where something can't be
    shown. ``unknown``: one line for each edit whose outcome the request does not tell."""

    diff: str = ""
    unknown: list[str] = field(default_factory=list)


@dataclass
class _File:
    """A file as it is, or as the edits before would have left it."""

    text: str | None
    there: bool
    note: str = ""


def difference(edits: tuple[FileEdit, ...], targets: dict[str, Target]) -> Difference:
    """The difference that the edits would make, one after the other."""
    result = Difference()
    files: dict[str, _File] = {}
    parts: list[str] = []
    size = 0
    for number, edit in enumerate(edits):
        place = targets[edit.path].resolved
        file = files.get(edit.path) or _read(place)
        files[edit.path] = file
        if edit.new is None:
            result.unknown.append(f"the executor did not say what it would write to {edit.path}")
        shown = _one(edit, file)
        parts.append(shown)
        size += len(shown)
        if size > MAX_TOTAL and number + 1 < len(edits):
            parts.append(
                f"[… the differences of {len(edits) - number - 1} more edits left out …]\n"
            )
            result.unknown += [
                f"the executor did not say what it would write to {later.path}"
                for later in edits[number + 1 :]
                if later.new is None
            ]
            break
    result.diff = "".join(parts)
    return result


def _read(path: str) -> _File:
    if not path:
        return _File(None, there=False, note="the path leads nowhere")
    if secret_name(path):
        return _File(
            None, there=True, note="what the file holds now is not shown: it may be secret"
        )
    try:
        data = read_regular(path, MAX_COMPARED)
    except CantPin as why:
        return _File(None, there=True, note=str(why))
    if data is None:
        return _File("", there=False)
    text = as_text(data)
    if text is None:
        return _File(None, there=True, note=f"a binary file of {len(data)} bytes is there now")
    return _File(text, there=True)


def _one(edit: FileEdit, file: _File) -> str:
    """The difference of one edit; moves file on to what it would be then."""
    path, new = edit.path, edit.new
    if new is None:
        return _note(path, "the executor did not say what it would write")
    if len(new) > MAX_COMPARED:
        file.text, file.note = None, "too large to be compared"
        return _note(path, f"{len(new)} characters: too large to be compared, see the input")
    if "\0" in new:
        file.text, file.note = None, "binary"
        return _note(path, f"would write {len(new)} characters of binary data")
    before, there = file.text, file.there
    if edit.whole or (edit.old is None and not there):
        note = file.note
        if edit.whole and edit.old is not None and before is not None and edit.old != before:
            note = "the file is not what the executor takes it for"
        file.text, file.there, file.note = new, True, ""
        if before is None:
            return _note(path, note) + unified("", new, path)
        if before == new and there:
            return _note(path, "no change")
        if not there and not new:
            return _note(path, "a new, empty file")
        return (_note(path, note) if note else "") + unified(before, new, path, new_file=not there)
    return _extract(edit, file, edit.old or "", new)


def _extract(edit: FileEdit, file: _File, old: str, new: str) -> str:
    path, before = edit.path, file.text
    if before is None:
        return _note(path, file.note) + unified(old, new, path)
    count = before.count(old) if old else 0
    if count == 1:
        file.text = before.replace(old, new, 1)
        return unified(before, file.text, path) or _note(path, "no change")
    file.text, file.note = None, "an edit before can't be told"
    if not old:
        why = "the executor did not say what this replaces"
    elif count:
        why = f"what it replaces is there {count} times"
    else:
        why = "what it replaces is not in the file as it is now"
    return _note(path, f"{why}; lines are counted from the extract") + unified(old, new, path)


def _note(path: str, why: str) -> str:
    return f"[{path}: {why}]\n"

"""Evidence that is no message: commits and files, looked up in the workspace.

A pointer that leads nowhere bears nothing. What could not be asked is not the writer's fault:
such evidence counts, and drift compares it again at reading.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from handoff.errors import HandoffError
from handoff.sessions.snapshot import FILE_LIMIT, blob_of
from handoff.sessions.workspace import Binding
from handoff.workspace import git

__all__ = ["Proofs"]

_OBJECT = re.compile(r"[0-9a-f]{7,64}\Z")
#: a line, or some, behind a path
_LINES = re.compile(r"(?::[0-9]+(?:-[0-9]+)?|#L[0-9]+(?:-L?[0-9]+)?)\Z")
_LIMIT = 3.0


class Proofs:
    """What a workspace knows of the ids that a state points to.

    ``pointers``: all of the state's; git is asked once for those that are its.
    """

    def __init__(self, binding: Binding | None, pointers: Iterable[Mapping[str, Any]]) -> None:
        self._binding = binding
        ids = {str(one["id"]) for one in pointers if one["kind"] == "git"}
        self._objects = self._known({one for one in ids if _OBJECT.match(one)})

    def _known(self, ids: set[str]) -> set[str] | None:
        """Those of these object ids that are here; None if git can't be asked."""
        if self._binding is None or self._binding.kind != "git" or not ids:
            return set() if self._binding is not None else None
        listed = sorted(ids)
        try:
            told = git.run(
                ("cat-file", "--batch-check=%(objecttype)"),
                self._binding.path,
                stdin="".join(f"{one}\n" for one in listed).encode(),
                limit=_LIMIT,
            )
        except HandoffError:
            return None
        lines = told.text.split("\n")
        if len(lines) != len(listed):
            return None
        kinds = ("commit", "tree", "blob", "tag")
        return {one for one, line in zip(listed, lines, strict=True) if line in kinds}

    def wrong(self, pointer: Mapping[str, Any]) -> str:
        """Why a pointer of kind git or file bears nothing; "" if it does, or can't be told."""
        if pointer["kind"] == "git":
            known = self._objects is None or pointer["id"] in self._objects
            return "" if known else "git has no such object here"
        if self._binding is None:
            return ""
        path = _LINES.sub("", str(pointer["id"]))
        found = blob_of(self._binding.path, path)
        if found == "missing":
            return "there is no such file"
        if found == "unavailable: not in the workspace":
            return "that is no file of the workspace"
        if "sha256" in pointer and not found.startswith("unavailable"):
            with open(os.path.join(self._binding.path, path), "rb") as file:
                data = file.read(FILE_LIMIT)
            if hashlib.sha256(data).hexdigest() != pointer["sha256"]:
                return "that file has another digest"
        return ""

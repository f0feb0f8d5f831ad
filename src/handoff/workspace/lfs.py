"""Telling a Git LFS file from a modified one without running Git LFS. Standard library only.

We look at worktrees with every filter switched off. Where the user's own git has put the
content of an LFS file in the place of its pointer, git would then call the file modified,
unless its index happens to vouch for it. The pointer names size and digest of the content,
so the comparison can be made here.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping

from handoff.workspace import git

#: bytes; the specification allows a pointer fewer than 1024
POINTER_LIMIT = 1024
#: files that are compared at one look
FILE_LIMIT = 1000

_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n"
    rb"(?:ext-\d-\w+ [^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)


def unchanged(work_dir: str, candidates: Mapping[str, str]) -> set[str]:
    """Those of the files (path -> id of the blob in the index) whose content is just what
    their pointer names."""
    chosen = dict(list(candidates.items())[:FILE_LIMIT])
    if not chosen or "lfs" not in git.filter_names(work_dir):
        return set()
    paths = b"".join(os.fsencode(path) + b"\0" for path in chosen)
    args = ["check-attr", "--stdin", "-z", "filter"]
    told = git.run(args, work_dir, stdin=paths).records
    filtered = [p for p, v in zip(told[::3], told[2::3], strict=True) if v == "lfs"]
    pointers = _pointers(work_dir, [chosen[path] for path in filtered])
    return {
        path
        for path in filtered
        if (pointer := pointers.get(chosen[path])) and _matches(work_dir, path, *pointer)
    }


def _pointers(work_dir: str, blobs: list[str]) -> dict[str, tuple[str, int]]:
    """Blob id -> (SHA-256, size) for the blobs that are pointers."""
    if not blobs:
        return {}
    lines = "".join(f"{blob}\n" for blob in dict.fromkeys(blobs)).encode("ascii")
    sizes = git.run(["cat-file", "--batch-check"], work_dir, stdin=lines).text.split("\n")
    facts = [line.split(" ") for line in sizes]
    small = [f[0] for f in facts if len(f) == 3 and f[1] == "blob" and int(f[2]) < POINTER_LIMIT]
    found: dict[str, tuple[str, int]] = {}
    for blob in small:
        match = _POINTER.fullmatch(git.run(["cat-file", "blob", blob], work_dir).out)
        if match:
            found[blob] = match[1].decode("ascii"), int(match[2])
    return found


def _matches(work_dir: str, path: str, digest: str, size: int) -> bool:
    try:
        descriptor = os.open(
            os.path.join(work_dir, path),
            os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
        )
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size != size:
            return False
        return hashlib.file_digest(file, "sha256").hexdigest() == digest

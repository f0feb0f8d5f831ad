"""Names of branches: which are valid, which are free, and what to offer instead.
Standard library only."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection

from handoff.errors import UsageError, WorkspaceRefused
from handoff.ids import short
from handoff.workspace import git
from handoff.workspace.explain import shell_quote
from handoff.workspace.state import is_name

#: bytes of one path component; git adds ".lock" and file systems stop at 255
COMPONENT_LIMIT = 250
#: bytes of the whole name, so that the files that git makes for it have a legal path
NAME_LIMIT = 1000
#: characters of a title that a branch is named after
SLUG_LIMIT = 40

_BAD = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]+|\.\.+|@\{|//+|/\.|\.lock(?=/|$)")


def branches(repo: str) -> list[str]:
    """The short names of all local branches."""
    out = git.run(["for-each-ref", "--format=%(refname)", "refs/heads/"], repo).text
    return [line.removeprefix("refs/heads/") for line in out.split("\n") if line]


def ignores_case(repo: str) -> bool:
    """Whether the file system of the repository takes ``A`` and ``a`` for one name."""
    return git.ask(["config", "--type=bool", "--get", "core.ignoreCase"], repo) == "true"


def why_invalid(name: str, repo: str) -> str:
    """Why a branch can't have that name, or ""."""
    if not name:
        return "it is empty"
    if name.startswith("-"):
        return "it starts with '-', which git takes for an option"
    if name in {"HEAD", "@"}:
        return f"'{name}' means something else to git"
    if name.startswith("refs/"):
        return "it starts with 'refs/': give the short name"
    if not is_name(name):
        return "it holds a NUL, or half a character"
    raw = os.fsencode(name)
    longest = max(len(part) for part in raw.split(b"/"))
    if longest > COMPONENT_LIMIT:
        return f"a part of it has {longest} bytes, {COMPONENT_LIMIT} are possible"
    if len(raw) > NAME_LIMIT:
        return f"it has {len(raw)} bytes, {NAME_LIMIT} are possible"
    check = git.run(["check-ref-format", f"refs/heads/{name}"], repo, ok=(0, 1))
    return "" if check.code == 0 else "git does not accept it (see: git help check-ref-format)"


def conflict(name: str, existing: Collection[str], *, fold: bool = False) -> str:
    """The existing branch that stands in the way of a new one, or "".

    ``release`` and ``release/1`` can't both exist. ``fold``: upper and lower case are one.
    """

    def key(text: str) -> str:
        return text.casefold() if fold else text

    wanted = key(name)
    for other in existing:
        have = key(other)
        if have == wanted or have.startswith(wanted + "/") or wanted.startswith(have + "/"):
            return other
    return ""


def slug(title: str) -> str:
    """A title as lower-case ASCII words joined by "-", at most 40 characters, or ""."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode("ascii")
    words = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    if len(words) <= SLUG_LIMIT:
        return words
    cut = words[: SLUG_LIMIT + 1].rpartition("-")[0]
    return cut or words[:SLUG_LIMIT]


def default_name(task_id: str, title: str, existing: Collection[str], *, fold: bool) -> str:
    """A free name of our own scheme: ``handoff/<title>-<id>``; where a branch called
    ``handoff`` makes that impossible, the same with "-"."""
    words = slug(title)
    tail = f"{words}-{short(task_id)}" if words else short(task_id)
    return free_name(f"handoff/{tail}", existing, fold=fold)


def free_name(wanted: str, existing: Collection[str], *, fold: bool = False) -> str:
    """The name nearest to ``wanted`` that is valid and free."""
    base = _mended(wanted)
    flat = base.replace("/", "-")
    candidates = [base, flat]
    candidates += [f"{root}-{n}" for n in range(2, len(existing) + 3) for root in (base, flat)]
    for candidate in candidates:
        if not conflict(candidate, existing, fold=fold):
            return candidate
    raise AssertionError("more candidates than branches, so one is free")


def _mended(name: str) -> str:
    text = name.encode("utf-8", "ignore").decode("utf-8")
    while text.startswith("refs/"):
        text = text.removeprefix("refs/").partition("/")[2]
    text = _BAD.sub("-", text)
    parts = []
    for part in text.split("/"):
        clean = part.strip("-.")
        if clean.endswith(".lock"):
            clean = clean[: -len(".lock")] + "-lock"
        room = COMPONENT_LIMIT - 10
        clean = clean.encode("utf-8")[:room].decode("utf-8", "ignore")
        if clean:
            parts.append(clean)
    text = "/".join(parts)
    while len(text.encode("utf-8")) > NAME_LIMIT - 10:
        text = text.rpartition("/")[0]
    return text if text not in {"", "HEAD", "@"} else "handoff-task"


def check_new(name: str, repo: str, existing: Collection[str]) -> None:
    """Make sure that a branch of that name can be made.

    Raises:
        UsageError: the name is no name for a branch; the remedy offers one.
        WorkspaceRefused: another branch is in the way; named, with a free name.
    """
    fold = ignores_case(repo)
    problem = why_invalid(name, repo)
    if problem:
        offer = free_name(name, existing, fold=fold)
        raise UsageError(
            f"{name!r} can't be the name of a branch: {problem}",
            remedy=f"--new-branch {shell_quote(offer)}",
            free_name=offer,
        )
    other = conflict(name, existing, fold=fold)
    if not other and git.ask(["symbolic-ref", "--quiet", f"refs/heads/{name}"], repo):
        other = name
    if not other:
        return
    offer = free_name(name, [*existing, other], fold=fold)
    if other == name:
        raise WorkspaceRefused(
            f"there is a branch '{name}' already",
            remedy=f"--new-branch {shell_quote(offer)}, or --branch {shell_quote(name)} "
            "to work on it",
            conflict=other,
            free_name=offer,
        )
    raise WorkspaceRefused(
        f"a branch '{name}' can't be made beside the branch '{other}'",
        remedy=f"--new-branch {shell_quote(offer)}",
        conflict=other,
        free_name=offer,
    )

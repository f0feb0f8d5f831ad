"""The last line of a turn: what the fake executor claims, true or not."""

from __future__ import annotations

import json
from typing import Any

from handoff.executors.fake.steps import identity
from handoff.executors.fake.turn import Turn


def closing(turn: Turn) -> str:
    """The text that ends a turn, "" if it ends without a claim.

    Without a ``trailer`` step it is the truth: branch and HEAD of the working directory.
    ``none``: no claim. ``text``: that text as it is. ``ask``: a question. ``commit``:
    ``head``, ``fabricated`` (there is no such object), ``sibling`` (a commit on another
    branch, which is made for it), ``other`` (a commit on no branch at all), ``base``
    (the parent of HEAD), or any text. ``branch`` and ``summary`` replace the true ones.
    """
    args = turn.trailer if turn.trailer is not None else {}
    claim = args.get("claim")
    if claim is not None:
        args = {"none": True} if claim in ("none", False) else {**args, "commit": claim}
    if args.get("none"):
        return ""
    if "text" in args:
        return str(args["text"])
    if "ask" in args:
        return json.dumps({"ask": str(args["ask"])}) + "\n"
    head = turn.git("rev-parse", "--verify", "-q", "HEAD", check=False)
    if not head and "commit" not in args:
        return ""
    body: dict[str, Any] = {
        "branch": str(args.get("branch") or turn.git("branch", "--show-current", check=False)),
        "commit": _commit(turn, str(args.get("commit", "head")), head),
        "summary": str(args.get("summary", "done as the script said")),
    }
    return json.dumps(body, ensure_ascii=False) + "\n"


def _commit(turn: Turn, wanted: str, head: str) -> str:
    if wanted == "head":
        return head
    if wanted == "short":
        return head[:9]
    if wanted == "fabricated":
        return "deadbeef" * 5
    if wanted == "base":
        return turn.git("rev-parse", "HEAD~1")
    if wanted in ("sibling", "other"):
        made = turn.git(
            *identity(turn), "commit-tree", "HEAD^{tree}", "-p", "HEAD", text=f"A {wanted} commit\n"
        )
        if wanted == "sibling":
            turn.git("branch", "-f", f"sibling-{made[:8]}", made)
        return made
    return wanted

"""What a coordinator tells an executor machine about its own checkout.

Files don't travel with a dispatch: the other machine has its own clone. So it is told
which project is meant and which commit the coordinator stands on, and changes that were
not committed are refused here, because the executor could not see them.
"""

from __future__ import annotations

import os

from handoff.errors import GitError, HandoffError, WorkspaceDirty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context


def baseline(args: Namespace, context: Context) -> dict[str, Any]:
    """``project_id`` (unless a project was named) and ``base_commit``.

    Raises:
        HandoffError: the folder is no repository, or has changes that don't travel.
    """
    from handoff.workspace.identity import identify

    here = os.getcwd()
    body: dict[str, Any] = {}
    if not args.project:
        project = identify(here)
        if not project.origin_url:
            raise GitError(
                f"{project.root} has no origin: the other machine can't know it",
                remedy="give --project NAME (a project registered there)",
            )
        body["project_id"] = project.project_id
    if args.no_sync_check:
        return body
    from handoff.workspace.state import tree_state

    try:
        state = tree_state(here)
    except HandoffError as error:
        if not args.project:
            raise
        context.say(f"no comparison with this folder: {error}")
        return body
    if not state.head:
        context.say("this repository has no commit yet: nothing to compare")
        return body
    tracked = [f"{xy} {path}" for xy, path in state.dirt.entries if xy.strip() != "??"]
    if tracked and not args.allow_dirty:
        shown = ", ".join(tracked[:5])
        raise WorkspaceDirty(
            f"changes here are not committed and would not travel: {shown}",
            remedy="commit them, or add --allow-dirty",
            entries=tracked[:20],
        )
    if state.dirt.total:
        context.say(f"note: {state.dirt.total} uncommitted change(s) here don't travel")
    body["base_commit"] = state.head
    return body

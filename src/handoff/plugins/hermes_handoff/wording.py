"""Commands that an answer names, as they are called in Hermes.

Sessions names what to do next as the command ``handoff session`` has it, or in short. Where
only the plugin is installed, that command is not there: the plugin's own are.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.sessions.profile import Profile

__all__ = ["in_hermes"]

_NAMED = re.compile(
    r"(?:handoff session )?(recover|status|confirm|abandon)(?: --profile \S+)?"
    r" ([A-Za-z0-9][A-Za-z0-9._-]{7,63})( .*)?"
)


def in_hermes(answer: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """The answer with its remedies and commands as a person types them there: its own, and
    those of its findings and of its details'."""
    changed = dict(answer)
    if isinstance(answer.get("remedy"), str):
        changed["remedy"] = _command(answer["remedy"], profile)
    for name, key in (("commands", "command"), ("findings", "remedy")):
        if isinstance(answer.get(name), list):
            changed[name] = [
                {**one, key: _command(str(one.get(key, "")), profile)}
                for one in answer[name]
                if isinstance(one, Mapping)
            ]
    if isinstance(answer.get("details"), Mapping):
        changed["details"] = in_hermes(answer["details"], profile)
    return changed


def _command(text: str, profile: Profile) -> str:
    found = _NAMED.fullmatch(text)
    if found is None:
        return text
    verb, attempt, rest = found[1], found[2], found[3] or ""
    if rest.startswith(" --abandon "):
        verb, rest = "abandon", " --reason " + rest.removeprefix(" --abandon ")
    home = ""
    if profile.top != os.path.realpath(os.path.expanduser("~/.hermes")):
        home = f"HERMES_HOME={shlex.quote(profile.top)} "
    return f"{home}hermes --profile {profile.name} handoff-{verb} {attempt}{rest}"

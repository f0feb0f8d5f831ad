"""Which profile of the host a call belongs to: found, or refused; never guessed.

A profile is a folder with its own configuration and session store: the home itself
(``default``), or ``<home>/profiles/<name>``. ``HERMES_HOME`` may name either, with a slash
at its end, relative, or through a link.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from handoff.errors import ProfileMismatch, UsageError
from handoff.sessions.environment import PROFILE
from handoff.sessions.text import one_line

DEFAULT = "default"
#: the profile that is Handoff's own store
OWN = "handoff"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z", re.IGNORECASE)


class Profile(NamedTuple):
    """``name``: what the host calls it. ``home``: its folder, absolute, links resolved.
    ``top``: the home that holds all profiles, which ``HERMES_HOME`` of a new process should
    name together with ``--profile <name>``. ``own``: it is no host's profile but the store
    of Handoff itself, for sessions of agents that have no profiles."""

    name: str
    home: str
    top: str
    own: bool = False

    @property
    def root(self) -> str:
        """Where handoff records and the journal of this profile are."""
        return self.home if self.own else os.path.join(self.home, "handoff")

    @property
    def sessions(self) -> str:
        """The host's session store; "" for none."""
        return "" if self.own else os.path.join(self.home, "state.db")


def own(home: str) -> Profile:
    """Handoff's own store in its folder (``handoff.places.home_dir()``)."""
    return Profile(OWN, os.path.join(home, "sessions"), home, own=True)


def choose(env: Mapping[str, str], cwd: str, home: str, name: str = "", host: str = "") -> Profile:
    """The profile whose records and journal a call outside Hermes uses.

    The first of these that says one: ``name`` (``handoff``: Handoff's own store; another: a
    profile of Hermes), ``HANDOFF_PROFILE`` (set in sessions that an opener has started),
    ``HERMES_HOME``, ``host`` being ``hermes``. Without any, it is Handoff's own store:
    that Hermes is installed decides nothing.

    ``home``: Handoff's own folder. The others: as for :func:`resolve`, and so are the errors.
    """
    name = name or env.get(PROFILE, "")
    if name == OWN or (not name and not env.get("HERMES_HOME") and host != "hermes"):
        return own(home)
    return resolve(env, cwd, name)


def resolve(env: Mapping[str, str], cwd: str, name: str = "", reported: str = "") -> Profile:
    """The profile of a call.

    ``env``: its environment (``HERMES_HOME``, ``HOME``). ``cwd``: what a relative home is
    relative to; may be "" if it is gone. ``name``: what ``--profile`` said. ``reported``:
    what the host itself says of its profile; ``custom`` says nothing.

    Raises:
        UsageError: the home is relative and there is no current folder; a name is none.
        ProfileMismatch: the folder is not there, or the host says another profile.
    """
    given = env.get("HERMES_HOME", "")
    if given:
        home = _absolute(given, env, cwd)
    else:
        user = env.get("HOME", "")
        if not os.path.isabs(user):
            raise UsageError("neither HERMES_HOME nor HOME is set", remedy="set HERMES_HOME")
        home = os.path.join(user, ".hermes")
    found = _split(home)
    if name:
        found = _named(found.top, name)
    elif not found.name:
        active = _active(found.top)
        found = _named(found.top, active or DEFAULT)
    if not os.path.isdir(found.home):
        raise _absent(found)
    if reported not in {"", "custom", found.name}:
        raise ProfileMismatch(
            f"HERMES_HOME leads to profile '{found.name}', the host says '{one_line(reported)}'",
            remedy="start the host with --profile, and without a foreign HERMES_HOME",
            profile=found.name,
        )
    return found


def _absent(found: Profile) -> ProfileMismatch:
    there = names(found.top) if os.path.isdir(found.top) else []
    return ProfileMismatch(
        f"there is no profile '{one_line(found.name)}' in {one_line(found.top)}",
        remedy=f"give --profile with one that is there: {', '.join(there[:8])}"
        if there
        else "set HERMES_HOME to the home of Hermes, or give --profile handoff for Handoff's own "
        "store",
        profile=found.name,
        profiles=there[:50],
    )


def names(top: str) -> list[str]:
    """The profiles of a home, ``default`` first."""
    try:
        found = sorted(os.listdir(os.path.join(top, "profiles")))
    except OSError:
        found = []
    return [DEFAULT, *(name for name in found if _NAME.match(name))]


def same(found: Profile, wanted: str) -> None:
    """Check that a call is made in the profile that a record or an attempt names.

    Raises:
        ProfileMismatch: it is not.
    """
    if found.name != wanted:
        raise ProfileMismatch(
            f"this is profile '{found.name}'; that belongs to '{one_line(wanted)}'",
            remedy=f"give --profile {one_line(wanted)} with the HERMES_HOME that prepared it",
            profile=wanted,
        )


def _absolute(path: str, env: Mapping[str, str], cwd: str) -> str:
    if "\0" in path or "\n" in path:
        raise UsageError("HERMES_HOME is no path", remedy="set HERMES_HOME to a folder")
    user = env.get("HOME", "")
    if path == "~" or path.startswith("~/"):
        path = user + path[1:]
    if not os.path.isabs(path):
        if not cwd:
            raise UsageError(
                "HERMES_HOME is relative, and the current folder is gone",
                remedy="set HERMES_HOME to an absolute path",
            )
        path = os.path.join(cwd, path)
    return path


def _split(home: str) -> Profile:
    """A folder as profile; no name if it is a home that holds profiles."""
    real = os.path.realpath(home)
    # The folder's own place decides; a link from among the profiles to elsewhere keeps the
    # name that it has there, as the host sees it.
    for path in (real, os.path.normpath(home)):
        above, name = os.path.split(path)
        if os.path.basename(above) == "profiles" and _NAME.match(name):
            return Profile(name, real, os.path.realpath(os.path.dirname(above)))
    return Profile("", real, real)


def _named(top: str, name: str) -> Profile:
    if name == DEFAULT:
        return Profile(DEFAULT, top, top)
    if _NAME.match(name) is None:
        raise UsageError(
            "a profile's name has letters, digits, '-' and '_'", remedy="hermes profile list"
        )
    found = _split(os.path.join(top, "profiles", name))
    return found._replace(top=top) if found.name else Profile(name, found.home, top)


def _active(top: str) -> str:
    """The profile that the user chose for calls without ``--profile``; "" for none."""
    try:
        with open(os.path.join(top, "active_profile"), encoding="utf-8") as file:
            text = file.read(256).strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileMismatch(
            f"the file active_profile in {one_line(top)} can't be read",
            remedy="give --profile",
        ) from error
    return text

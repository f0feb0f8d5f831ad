"""What is asked of Hermes beyond its public plugin API. All of it is here, nothing elsewhere.

Each name is looked up when it is needed. One that is missing, or answers in an unexpected
shape, is a refusal that names the host's version: what can't be known is never allowed.
Nothing here writes a configuration.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from handoff.errors import LaunchFailed, NotAllowed

__all__ = [
    "TEMPORARY",
    "VERIFIED",
    "active_profile",
    "allowed_tools",
    "configuration",
    "home",
    "isolated",
    "named",
    "program",
    "provider_named",
    "recipe",
    "require_opener",
    "version",
]

#: the versions that tests/live drives
VERIFIED = ("0.19.0", "0.22.2.post1")
#: what an endpoint is called that the profile does not name: no provider can have this name
TEMPORARY = "custom:(a temporary endpoint)"
#: which platform names the host itself uses for a surface of ours
_SURFACES = {"cli": ("cli", "tui"), "desktop": ("tui", "desktop")}
#: the platform whose saved list of toolsets the host applies to all of these
_LIST_OF = "cli"


def version() -> str:
    """The host's version; "unknown" if it does not tell."""
    try:
        found = getattr(importlib.import_module("hermes_cli"), "__version__", "")
    except Exception:  # whatever an import of the host's throws: it does not tell
        return "unknown"
    return str(found) or "unknown"


def _refuse(what: str) -> NotAllowed:
    host = version()
    return NotAllowed(
        f"Hermes {host} {what}",
        remedy=f"use a version that was verified: {', '.join(VERIFIED)}",
        host_version=host,
    )


def _need(module: str, name: str) -> Callable[..., Any]:
    """A function of the host's.

    Raises:
        NotAllowed: this version has none of that name.
    """
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # an import of the host's may throw anything
        raise _refuse(f"has no {module}.{name} ({type(error).__name__})") from error
    if not callable(found):
        raise _refuse(f"has no function {module}.{name}")
    return found  # type: ignore[no-any-return]


def _ask(module: str, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the host's; what it throws is a refusal."""
    function = _need(module, name)
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise _refuse(f"could not answer {module}.{name}: {type(error).__name__}") from error


def home() -> str:
    """The folder of the active profile, as the host has it."""
    try:
        return str(importlib.import_module("hermes_constants").get_hermes_home())
    except Exception:  # then the environment alone decides, as the host's launcher does
        return os.environ.get("HERMES_HOME", "")


def active_profile() -> str:
    """What the host calls the active profile: ``default``, a name, ``custom``; "" if unknown."""
    try:
        return str(importlib.import_module("hermes_cli.profiles").get_active_profile_name())
    except Exception:  # handoff.sessions.profile then tells it from the home alone
        return ""


def configuration() -> Mapping[str, Any]:
    """The profile's configuration, as the host loads it.

    Raises:
        NotAllowed: it can't be had.
    """
    found = _ask("hermes_cli.config", "load_config")
    if not isinstance(found, Mapping):
        raise _refuse(f"gave a configuration that is a {type(found).__name__}")
    return found


def isolated() -> bool:
    """Whether the profile runs plugins in a process of their own. Then the host has none of
    a plugin's commands; the tool and the hooks are there."""
    plugins = configuration().get("plugins")
    mode = plugins.get("isolation") if isinstance(plugins, Mapping) else None
    return str(mode or "").strip().lower() == "host"


def allowed_tools(surface: str, workspace: str) -> frozenset[str]:
    """The names of the tools that a new session of the profile has there.

    surface: ``cli`` or ``desktop``. workspace: the folder it opens in; some postures of the
    host depend on it. A tool counts as allowed only if it is so on every platform that the
    host may take the surface for.

    Raises:
        NotAllowed: the policy can't be told; that is no permission.
    """
    if surface not in _SURFACES:
        raise _refuse(f"has no surface '{surface}'")
    config = configuration()
    disabled = _tools_of(_disabled(config))
    found: frozenset[str] | None = None
    for platform in _SURFACES[surface]:
        names = _tools_of(_toolsets(config, platform, workspace)) - disabled
        found = names if found is None else found & names
    return found or frozenset()


def _toolsets(config: Mapping[str, Any], platform: str, workspace: str) -> list[str]:
    """The toolsets of a session: what its posture selects, or else what the profile lists."""
    selected = _ask(
        "agent.coding_context",
        "coding_selection",
        platform=platform,
        cwd=workspace or None,
        config=config,
    )
    if selected is None:
        selected = _ask("hermes_cli.tools_config", "_get_platform_tools", config, _LIST_OF)
    return _strings(selected, "toolsets")


def _disabled(config: Mapping[str, Any]) -> list[str]:
    """The toolsets that the profile takes away last, whatever else allows them."""
    agent = config.get("agent") or {}
    if not isinstance(agent, Mapping):
        raise _refuse("gave an 'agent' configuration of an unknown shape")
    value = agent.get("disabled_toolsets")
    if not value:
        return []
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return list(value)
    # written as text, which only a newer host reads as a list
    return _strings(_ask("agent.skill_utils", "parse_config_string_list", value), "toolsets")


def _tools_of(toolsets: Iterable[str]) -> frozenset[str]:
    names: set[str] = set()
    for toolset in toolsets:
        names.update(_strings(_ask("toolsets", "resolve_toolset", toolset), "tools"))
    return frozenset(names)


def _strings(value: object, what: str) -> list[str]:
    if isinstance(value, list | tuple | set | frozenset):
        found = [one for one in value if isinstance(one, str)]
        if len(found) == len(value):
            return found
    raise _refuse(f"gave {what} of an unknown shape")


def provider_named(provider: str) -> bool:
    """Whether the profile configures a stable provider of that name.

    Raises:
        NotAllowed: that can't be told.
    """
    name = provider.strip().lower()
    if not name or name in {"auto", TEMPORARY}:
        return False
    model = configuration().get("model")
    if isinstance(model, Mapping) and str(model.get("provider") or "").strip().lower() == name:
        return True
    if _ask("hermes_cli.runtime_provider", "has_named_custom_provider", name) is True:
        return True
    return _ask("hermes_cli.auth", "is_provider_explicitly_configured", name) is True


def named(provider: str, base_url: str) -> str:
    """The name under which the profile has the provider of a call.

    The host calls every endpoint of the user's ``custom``: the address tells which one it
    is. The address itself goes no further. One that the profile does not know gets
    :data:`TEMPORARY`.

    Raises:
        NotAllowed: that can't be told.
    """
    if provider.strip().lower() != "custom" or not base_url:
        return provider
    found = _ask("hermes_cli.runtime_provider", "canonical_custom_identity", base_url=base_url)
    if isinstance(found, str) and found:
        return found
    model = configuration().get("model")
    model = model if isinstance(model, Mapping) else {}
    own = str(model.get("base_url") or "").strip().rstrip("/").lower()
    return provider if own == base_url.strip().rstrip("/").lower() else TEMPORARY


def recipe() -> str:
    """How this version opens a session that stays with a first prompt; a key of
    :data:`handoff.sessions.launch.RECIPES`."""
    found = re.match(r"(\d+)\.(\d+)", version())
    stays = found and (int(found[1]), int(found[2])) >= (0, 22)
    return "hermes-0.22" if stays else "hermes-0.19"


def require_opener(recipe_name: str) -> None:
    """Check that a session can be opened that way. The plain chat of older versions answers
    its first prompt and ends; their full-screen one stays, and is a program for Node.js.

    Raises:
        LaunchFailed: it can't here, and why.
    """
    if recipe_name == "hermes-0.19" and shutil.which("node") is None:
        raise LaunchFailed(
            f"Hermes {version()} keeps a session with a first prompt open only with Node.js, "
            "and there is no node on PATH",
            remedy="install Node.js, or Hermes 0.22",
        )


def program() -> str:
    """The absolute path of the host's command.

    Raises:
        LaunchFailed: there is none.
    """
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "hermes")
    found = beside if os.access(beside, os.X_OK) else shutil.which("hermes")
    if not found:
        raise LaunchFailed("there is no hermes command", remedy="put hermes on PATH")
    return os.path.abspath(found)

"""``hermes node doctor`` and ``hermes node logs``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
from collections import deque
from collections.abc import Mapping
from typing import Any

from handoff.errors import HandoffError

from . import TOOLSET
from .runtime import Runtime

__all__ = ["doctor", "logs"]

_LEAST = {"websockets": 15, "cryptography": 43}


def doctor(runtime: Runtime, *, as_json: bool) -> int:
    """Check everything that nodes need here; 1 if something is wrong."""
    rows: list[dict[str, Any]] = []

    def check(name: str, good: bool, detail: str) -> None:
        rows.append({"check": name, "ok": good, "detail": detail})

    for name, least in _LEAST.items():
        good, found = _version(name, least)
        check(name, good, found)
    folder = runtime.folder()
    if os.path.isdir(folder):
        bits = os.stat(folder).st_mode & 0o077
        check("folder", not bits, folder if not bits else f"chmod 700 {folder}")
    else:
        check("folder", True, f"{folder} is made at the first use")
    settings = _settings(folder, check)
    _brain(runtime, settings, check)
    _toolset(runtime, check)
    node = runtime.setting("terminal_node")
    if node:
        check("terminal", True, f"terminal.backend hermes_node runs on {node}")
    good = all(row["ok"] for row in rows)
    if as_json:
        print(json.dumps({"ok": good, "checks": rows}))
    else:
        for row in rows:
            print(f"{'ok  ' if row['ok'] else 'FAIL'} {row['check']}: {row['detail']}")
    return 0 if good else 1


def _version(name: str, least: int) -> tuple[bool, str]:
    try:
        from importlib.metadata import version

        importlib.import_module(name)
        found = version(name)
    except Exception as error:  # an import may throw anything
        return False, f"it can't be imported ({type(error).__name__})"
    return int(found.split(".")[0]) >= least, found


def _settings(folder: str, check: Any) -> Any:
    """The brain's settings; None if they can't be read."""
    from handoff.nodes import audit
    from handoff.nodes.brain.main import load_settings

    settings = None
    try:
        settings = load_settings(folder)
        check("settings", True, f"{settings.host}:{settings.port}, TLS {settings.tls}")
    except HandoffError as error:
        check("settings", False, error.cause)
    where = os.path.join(folder, "audit")
    if not os.path.isdir(where):
        return settings
    try:
        report = audit.verify(where)
        found = [f"{one.file}:{one.line} {one.what}" for one in report.findings[:3]]
        check("audit", not found, "; ".join(found) or f"{report.rows} rows, unbroken")
    except HandoffError as error:
        check("audit", False, error.cause)
    return settings


def _brain(runtime: Runtime, settings: Any, check: Any) -> None:
    from handoff.nodes.brain import probing

    brain = runtime.client(start=False)
    if not brain.running():
        check("brain", True, "not running; the first use starts it")
        if settings is not None:
            check("port", *probing.port_to_be_had(settings))
        return
    try:
        status = brain.ask("status")
        check("brain", True, f"process {status['pid']}, {status['address']}")
        check("port", *probing.answering(brain.folder, status))
        for one in brain.ask("nodes")["nodes"]:
            good = one["state"] in {"connected", "revoked"}
            check(f"node {one['name']}", good, one["state"])
    except HandoffError as error:
        check("brain", False, error.cause)


def _toolset(runtime: Runtime, check: Any) -> None:
    """A toolset that a saved platform does not name is hidden, and nobody says so."""
    config = runtime.configuration()
    known, chosen = config.get("known_plugin_toolsets"), config.get("platform_toolsets")
    hidden = []
    if isinstance(known, Mapping) and isinstance(chosen, Mapping):
        for platform, names in known.items():
            if TOOLSET in (names or ()) and TOOLSET not in (chosen.get(platform) or ()):
                hidden.append(str(platform))
    agent = config.get("agent")
    if isinstance(agent, Mapping) and TOOLSET in (agent.get("disabled_toolsets") or ()):
        hidden.append("agent.disabled_toolsets")
    detail = f"hidden by {', '.join(hidden)}" if hidden else f"toolset {TOOLSET}"
    check("tools", not hidden, detail)


def logs(folder: str, args: argparse.Namespace) -> int:
    """Show the audit, or check it."""
    from handoff.nodes import audit

    where = os.path.join(folder, "audit")
    if args.verify:
        report = audit.verify(where)
        found = [f"{one.file}:{one.line}: {one.what}" for one in report.findings]
        if args.json:
            print(json.dumps({"rows": report.rows, "findings": found}))
        else:
            print("\n".join(found) or f"{report.rows} rows, unbroken")
        return 1 if found else 0
    last: deque[dict[str, Any]] = deque(maxlen=max(1, args.n))
    for row in audit.rows(where):
        if args.node and row.get("node") != args.node:
            continue
        if args.key and row.get("request_id") != args.key:
            continue
        last.append(row)
    for row in last:
        if args.json:
            print(json.dumps(row))
            continue
        told = [str(row.get(key) or "") for key in ("node", "op", "target", "status", "code")]
        line = f"{row.get('at', '')} {row.get('event', ''):<7} {' '.join(filter(None, told))}"
        print("".join(c if c.isprintable() else "?" for c in line))
    return 0

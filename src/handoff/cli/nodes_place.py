"""What the verbs of ``handoff nodes`` share: which brain, which nodes, how it is told."""

from __future__ import annotations

import getpass
import os

from handoff.cli.parsing import Parser
from handoff.errors import HandoffError, UnknownNode, UsageError, from_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping
    from typing import Any

    from handoff.cli.context import Context
    from handoff.nodes.client import BrainClient

#: names the folder of another brain
VARIABLE = "HANDOFF_NODES"


def parser(name: str, about: str, *, examples: str = "") -> Parser:
    """A verb's parser."""
    made = Parser(f"nodes {name}", about, examples=examples)
    made.add_argument(
        "--brain",
        metavar="DIR",
        default="",
        help="folder of the brain (default: HANDOFF_NODES, or ~/.handoff/nodes)",
    )
    return made


def folder(args: Namespace) -> str:
    """The brain's folder."""
    given = args.brain or os.environ.get(VARIABLE, "")
    if given:
        return os.path.abspath(os.path.expanduser(given))
    from handoff import places

    return os.path.join(places.home_dir(), "nodes")


def client(args: Namespace, *, start: bool = True) -> BrainClient:
    """The brain; one is started if none runs, unless ``start`` is false."""
    from handoff.nodes.client import BrainClient

    where = folder(args)
    return BrainClient(where, warn=_warn) if start else BrainClient(where, None, warn=_warn)


def _warn(line: str) -> None:
    import sys

    print(f"handoff: {line}", file=sys.stderr)


def by() -> dict[str, str]:
    """Who asks, for the audits."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.geteuid())
    return {"surface": "cli", "user": user}


def failed(value: Mapping[str, Any]) -> HandoffError:
    """A call's failure as the error that it stands for."""
    return from_json(dict(value))


def choose(brain: BrainClient, names: list[str], tags: list[str]) -> list[str]:
    """The nodes that are meant, by name, tag, or ``all``; each of them once.

    Raises:
        UsageError: none was named. UnknownNode: none has the tags, or there are none. For a
            name it comes with the call.
    """
    chosen = list(dict.fromkeys(name for name in names if name != "all"))
    if tags or "all" in names:
        listed = brain.ask("nodes")["nodes"]
        for one in listed:
            fits = "all" in names or set(tags) <= set(one["tags"])
            if fits and one["state"] != "revoked" and one["name"] not in chosen:
                chosen.append(one["name"])
    if not chosen and (tags or names):
        which = f"has the tag {' and '.join(tags)}" if tags else "is known"
        raise UnknownNode(f"no node {which}", remedy="handoff nodes list")
    if not chosen:
        raise UsageError("no node is named", remedy="handoff nodes list")
    return chosen


def text_of(value: Any) -> bytes:
    """Bytes that travelled as JSON: a text, or an object with ``b64``."""
    if isinstance(value, dict):
        from base64 import b64decode

        return b64decode(value["b64"])
    return str(value).encode("utf-8", "surrogateescape")


def argument(text: str) -> Any:
    """A name or an argument as JSON: marked where its bytes are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        from base64 import b64encode

        return {"b64": b64encode(os.fsencode(text)).decode()}
    return text


def variables(given: list[str]) -> dict[str, Any]:
    """``NAME=VALUE`` arguments as a call's ``env``.

    Raises:
        UsageError: one is none.
    """
    env = {}
    for one in given:
        key, sign, value = one.partition("=")
        if not sign or not key:
            raise UsageError(f"--env {one}: write NAME=VALUE", remedy="--env NAME=VALUE")
        env[key] = argument(value)
    return env


def progress(context: Context, label: str, total: int) -> Progress:
    """Told of bytes as they go; shows them where a person watches."""
    import sys

    from handoff.cli.terminal import is_tty

    return Progress(label, total, not context.json_wanted and is_tty(sys.stderr))


class Progress:
    """One line on standard error, renewed a few times a second."""

    def __init__(self, label: str, total: int, shown: bool) -> None:
        import time

        self._label = label
        self._total = total
        self._shown = shown
        self._clock = time.monotonic
        self._began = self._clock()
        self._next = self._began + 0.3
        self._drawn = False
        self.done = 0

    def add(self, count: int) -> None:
        """So many bytes more."""
        self.done += count
        if self._shown and self._clock() >= self._next:
            self._next = self._clock() + 0.2
            self._draw()

    def _draw(self) -> None:
        import sys

        from handoff.cli.terminal import safe_line, size

        speed = self.done / max(0.001, self._clock() - self._began)
        share = f" of {size(self._total)}" if self._total else ""
        line = f"{safe_line(self._label)}: {size(self.done)}{share}, {size(int(speed))}/s"
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
        self._drawn = True

    def end(self) -> None:
        """Take the line away."""
        import sys

        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def seconds(text: str) -> float:
    """A duration that was typed.

    Raises:
        UsageError: it is none.
    """
    import argparse

    from handoff.cli.parsing import duration

    try:
        return duration(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error), remedy="write 90s, 10m or 2h") from error


def tell(context: Context, value: Any, text: str) -> None:
    """The same for a program or for a person."""
    if context.human:
        from handoff.cli.terminal import safe

        context.show(safe(text))
    else:
        context.emit(value)

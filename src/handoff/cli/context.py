"""What every command is given: where agentd is, and how to print."""

from __future__ import annotations

import json
import os
import sys

from handoff import places
from handoff.cli import terminal
from handoff.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from handoff.client.cursor import Cursors
    from handoff.client.http import Client

#: commands that are about this machine whatever agentd a call named
HERE = ("agentd", "init", "demo")


class Context:
    """One call of the command line.

    ``rest``: the words after ``--`` where the command takes them, else None.
    """

    def __init__(
        self, *, config: str = "", agentd: str = "", target: str = "", json_wanted: bool = False
    ) -> None:
        self.given_config = config
        self.agentd = agentd
        self.target = target
        self.json_wanted = json_wanted
        self.rest: list[str] | None = None
        self.force_human = False
        self._client: Client | None = None
        if agentd and target:
            raise UsageError("--agentd and --target exclude each other", remedy="handoff --help")

    @property
    def config(self) -> str:
        """The configuration file's path; it need not exist."""
        return places.config_path(self.given_config)

    @property
    def local(self) -> bool:
        """Whether agentd is known to share this machine's files: no other was named, or the
        one that was named is the one that runs here. The near end of a tunnel is not."""
        if self.target:
            return False
        if not self.agentd:
            return True
        from handoff.client.endpoint import same_place

        return same_place(self.agentd, self.config)

    @property
    def human(self) -> bool:
        """Whether to print for a person: stdout is a terminal and no JSON was asked for."""
        return not self.json_wanted and (self.force_human or terminal.is_tty(sys.stdout))

    def client(self) -> Client:
        """The connection to agentd (made once).

        Raises:
            Unreachable: no agentd has said where it is.
        """
        if self._client is None:
            from handoff.client.endpoint import locator
            from handoff.client.http import Client

            self._client = Client(locator(config=self.config, url=self.agentd, target=self.target))
        return self._client

    def cursors(self) -> Cursors:
        """The places in the event streams of this agentd."""
        from handoff.client.cursor import Cursors

        endpoint = self.client().endpoint
        instance = endpoint.instance
        if not instance:
            status = self.client().get("/api/status")
            instance = str(status.get("instance") or endpoint.where())
        return Cursors(os.path.dirname(self.config), instance, self.say)

    def command(self, *words: str) -> str:
        """A handoff command that works as printed: with the global flags of this call."""
        flags: list[str] = []
        if self.given_config:
            flags += ["--config", self.config]
        if words[0] not in HERE:
            flags += ["--agentd", self.agentd] if self.agentd else []
            flags += ["--target", self.target] if self.target else []
        return " ".join(["handoff", *map(terminal.shell_quote, [*words[:1], *flags, *words[1:]])])

    def adapt(self, remedy: str) -> str:
        """A remedy from elsewhere, with this call's global flags put in."""
        if not remedy.startswith("handoff ") or not (
            self.given_config or self.agentd or self.target
        ):
            return remedy
        name, _, rest = remedy.removeprefix("handoff ").partition(" ")
        return self.command(name) + (f" {rest}" if rest else "")

    def say(self, line: str) -> None:
        """A notice on stderr; lost where there is none (it must not reach stdout)."""
        if sys.stderr is None:
            return
        shown = terminal.safe(line) if terminal.is_tty(sys.stderr) else line
        print(shown, file=sys.stderr, flush=True)

    def emit(self, value: Any) -> None:
        """One JSON value as one line on stdout, flushed."""
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        try:
            text.encode()
        except UnicodeEncodeError:  # bytes that are not UTF-8 travel as lone surrogates
            text = json.dumps(value, separators=(",", ":"))
        if terminal.is_tty(sys.stdout):
            text = terminal.json_safe(text)
        sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()

    def show(self, text: str) -> None:
        """Lines for a person on stdout, flushed. The caller has made foreign text safe."""
        print(text, flush=True)


def tasks_path(task: str, *more: str) -> str:
    """The API path of a task; refuses what can't be an id before anything is sent."""
    from handoff.client.http import quote
    from handoff.ids import check_prefix

    return "/".join(["/api/tasks", check_prefix(task), *map(quote, more)])

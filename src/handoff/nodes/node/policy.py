"""What may be done to this machine: a file on it decides, and the brain can't change that.

``policy.toml`` beside the node's configuration; every key is optional::

    enabled = true              # false: nothing is done for anybody
    read_only = false           # true: no writes; only commands whose rule says reads = true
    read  = ["/srv/app", "~/project/**"]
    write = ["/srv/app/data"]
    deny  = ["**/*.key"]        # on top of the built-in list below
    deny_defaults = true

    [exec]
    default = "ask"             # allow | ask | deny, for what no rule names
    shell = true                # false: commands as argument lists only
    cwd = ["/srv/app"]          # where commands may start; empty: anywhere
    run_as = ""                 # a user's name; needs a node that runs as root

    [[exec.rules]]
    match = "git status *"      # words; * and ? within a word, a last ** for any rest
    verdict = "allow"
    reads = true

A pattern is judged on the path that remains after every link is followed. What is denied is
denied whatever allows it. A file that can't be understood refuses everything.

An ``allow`` rule counts only for a command that is one program with its arguments: no
shell syntax that could start another, and no variables from the brain but those of language,
time zone and terminal. It names a program by its path, or by a name that is looked up in
the node's own ``PATH``, never in the folder that a brain chooses. A ``deny`` or ``ask`` rule looks at every part of a
command line and past the usual wrappers; it is a help against mistakes. The boundary is
``default = "deny"`` with allow rules, and what the user whom the node runs as may do.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from handoff.errors import ConfigError, PathNotAllowed, PolicyDenied
from handoff.nodes.node.bases import Bases
from handoff.nodes.node.commands import Rule, harmless, judge, parse_rule
from handoff.nodes.node.globs import Pattern, compile_pattern, place

__all__ = ["DENIED", "LIMIT", "LOCK", "Decision", "Policy", "load", "parse"]

#: a file of this name beside the policy switches the node off at once
LOCK = "locked"
#: bytes of a policy file
LIMIT = 256 * 1024
#: kept from every brain unless ``deny_defaults = false``: credentials, and what is no file
DENIED = (
    "~/.ssh",
    "~/.gnupg",
    "~/.aws",
    "~/.azure",
    "~/.kube",
    "~/.config/gh",
    "~/.config/gcloud",
    "~/.docker/config.json",
    "~/.netrc",
    "~/.pgpass",
    "~/.git-credentials",
    "~/.hermes-node",
    "~/.hermes/.env",
    "**/.env",
    "**/id_rsa",
    "**/id_ecdsa",
    "**/id_ed25519",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/proc",
    "/sys",
    "/dev",
)
NOTHING: Mapping[str, str] = {}
_VERDICTS = ("allow", "ask", "deny")


class Decision(NamedTuple):
    """``verdict``: allow, ask or deny. ``rule``: the pattern or key that decided, as written.
    ``reason``: one line for people and for the audit. ``named``: a rule allows this very
    program."""

    verdict: str
    rule: str
    reason: str
    named: bool = False

    @property
    def allowed(self) -> bool:
        """Whether it may be done now."""
        return self.verdict == "allow"


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy file, understood. ``digest``: SHA-256 of its bytes, which the node announces,
    so that a brain sees when it changed; "" for the built-in one."""

    read: tuple[Pattern, ...] = ()
    write: tuple[Pattern, ...] = ()
    deny: tuple[Pattern, ...] = ()
    enabled: bool = True
    read_only: bool = False
    exec_default: str = "allow"
    shell: bool = True
    cwd: tuple[Pattern, ...] = ()
    rules: tuple[Rule, ...] = ()
    run_as: str = ""
    digest: str = field(default="", compare=False)
    _bases: Bases = field(default_factory=Bases, compare=False, repr=False)

    def may_read(self, real: str) -> Decision:
        """Whether a path, absolute and without links, may be read, listed or looked at."""
        return self._path(real, self.read, "read")

    def readable_in(self, folder: str) -> Callable[[str], bool]:
        """Which names of a folder :meth:`may_read` allows at this moment. Where the policy's
        folders lead is found out once, and those that lie elsewhere are not asked."""
        return self._in(folder, self.read)

    def writable_in(self, folder: str) -> Callable[[str], bool]:
        """The same of :meth:`may_write`."""
        return self._in(folder, () if self.read_only else self.write)

    def _in(self, folder: str, patterns: tuple[Pattern, ...]) -> Callable[[str], bool]:
        if not self.enabled:
            return lambda _: False
        same, here = self._bases.now(self._named), folder.casefold()

        def near(patterns: tuple[Pattern, ...]) -> list[Pattern]:
            plain = [(one, same.get(one.base)) for one in patterns]
            return [
                one
                for one, base in plain
                if base is None or base.startswith(here) or here.startswith(base)
            ]

        deny, named = near(self.deny), near(patterns)

        def may(name: str) -> bool:
            real = os.path.join(folder, name)
            return _first(deny, real, same) is None and _first(named, real, same) is not None

        return may

    def may_write(self, real: str) -> Decision:
        """Whether that path may be made, changed, moved or deleted."""
        if self.enabled and self.read_only:
            return Decision("deny", "read_only", "this node is read-only")
        return self._path(real, self.write, "write")

    def may_start_in(self, real: str) -> Decision:
        """Whether a command may start in that folder."""
        if not self.cwd:
            return Decision("allow", "exec.cwd", "commands may start anywhere")
        return self._path(real, self.cwd, "exec.cwd")

    def may_run(self, command: str | Sequence[str], env: Mapping[str, str] = NOTHING) -> Decision:
        """Whether a command may run: a line for the shell, or a list of arguments. env: the
        variables that the brain sets for it."""
        if not self.enabled:
            return _OFF
        if isinstance(command, str) and not self.shell:
            return Decision("deny", "exec.shell", "this node takes argument lists only")
        found = judge(command, self.rules)
        if found is not None and found.verdict == "allow" and not harmless(env):
            found = None  # with these variables it may be another program that runs
        if found is None:
            verdict = "deny" if self.read_only else self.exec_default
            key = "read_only" if self.read_only else "exec.default"
            return Decision(verdict, key, f"no rule names the command, and {key} is {verdict}")
        if self.read_only and found.verdict != "deny" and not found.reads:
            return Decision("deny", "read_only", f"the rule {found.text!r} does not say reads")
        named = found.verdict == "allow"
        return Decision(found.verdict, found.text, f"the rule {found.text!r}", named)

    def may_open_shell(self, env: Mapping[str, str]) -> Decision:
        """Whether a shell session may be opened: each line in it is judged then, but what
        the shell itself reads because of its variables is not."""
        if not self.enabled:
            return _OFF
        if not self.shell:
            return Decision("deny", "exec.shell", "this node takes argument lists only")
        if harmless(env) or (self.exec_default == "allow" and not self.read_only):
            return Decision("allow", "exec.default", "each line is judged")
        names = ", ".join(sorted(env))
        return Decision("deny", "exec.default", f"it may not be given variables ({names})")

    def require_read(self, real: str, shown: str) -> Decision:
        """:meth:`may_read`, or the refusal. ``shown``: the path as it was asked for.

        Raises:
            PathNotAllowed: the policy keeps it.
            PolicyDenied: the node is switched off.
        """
        return self._require(self.may_read(real), shown, "read")

    def require_write(self, real: str, shown: str) -> Decision:
        """:meth:`may_write`, or the refusal, as :meth:`require_read`."""
        return self._require(self.may_write(real), shown, "written")

    def _path(self, real: str, patterns: tuple[Pattern, ...], key: str) -> Decision:
        if not self.enabled:
            return _OFF
        same = self._bases.now(self._named)
        found = _first(self.deny, real, same)
        if found is not None:
            return Decision("deny", found.text, f"{found.text} is kept from every brain")
        found = _first(patterns, real, same)
        if found is not None:
            return Decision("allow", found.text, f"{key} names {found.text}")
        return Decision("deny", key, f"{key} does not name it")

    def _named(self) -> list[str]:
        groups = (self.deny, self.read, self.write, self.cwd)
        return [pattern.base for group in groups for pattern in group]

    def _require(self, decision: Decision, shown: str, verb: str) -> Decision:
        if decision is _OFF:
            raise PolicyDenied(
                "this node is switched off by its policy",
                remedy="ask a person at the node to set enabled = true in its policy.toml",
            )
        if not decision.allowed:
            raise PathNotAllowed(
                f"{shown} may not be {verb}: {decision.reason}",
                remedy="hermes-node policy",
                path=shown,
                rule=decision.rule,
            )
        return decision


_OFF = Decision("deny", "enabled", "the node is switched off by its policy")


def _first(patterns: Sequence[Pattern], real: str, same: Mapping[str, str]) -> Pattern | None:
    """The first that names a path. same: see :meth:`Bases.now`."""
    folded = real.casefold()
    for pattern in patterns:
        base = pattern.base
        plain = same.get(base)
        if plain is None:
            if pattern.matches(real):
                return pattern
        # most are elsewhere, and that is seen at once
        elif folded.startswith(plain) and pattern.matches(real, base):
            return pattern
    return None


def load(path: str, home: str, fallback: Sequence[str] = ()) -> Policy:
    """The policy of a node.

    path: its file; if there is none, ``fallback`` (the configuration's ``allowed_paths``)
    may be read and written, and commands may run. The folder it is in is kept from every
    brain in any case. home: the node's user's.

    Raises:
        ConfigError: it can't be read or understood, or others may write to it.
    """
    made = _load(path, home, fallback)
    own = place(os.path.dirname(os.path.abspath(path)))
    return replace(made, deny=(own, *made.deny))


def _load(path: str, home: str, fallback: Sequence[str]) -> Policy:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return default(home, fallback)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", remedy=f"ls -l {path}") from error
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if found.st_mode & 0o022 or found.st_uid not in {os.geteuid(), 0}:
            raise ConfigError(
                f"{path} may be changed by others", remedy=f"chmod go-w {path}", path=path
            )
        data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise ConfigError(f"{path} is larger than {LIMIT} bytes", remedy=f"edit {path}")
    return parse(data, home, path)


def default(home: str, allowed: Sequence[str]) -> Policy:
    """What holds without a policy file.

    Raises:
        ConfigError: one of the allowed paths is no pattern.
    """
    made = {"read": list(allowed), "write": list(allowed)}
    return _build(made, home, "allowed_paths", "")


def parse(data: bytes, home: str, path: str = "policy.toml") -> Policy:
    """A policy file's bytes.

    Raises:
        ConfigError: with the key that is wrong; unknown keys are.
    """
    try:
        value = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}", remedy=f"edit {path}", path=path) from error
    return _build(value, home, path, hashlib.sha256(data).hexdigest())


def _build(value: Mapping[str, Any], home: str, path: str, digest: str) -> Policy:
    reader = _Reader(path)
    top = {"enabled", "read_only", "read", "write", "deny", "deny_defaults", "exec"}
    reader.known(value, top, "")
    run = value.get("exec", {})
    if not isinstance(run, Mapping):
        raise reader.wrong("exec", "must be a table")
    reader.known(run, {"default", "shell", "cwd", "run_as", "rules"}, "exec.")
    defaults = DENIED if reader.flag(value, "deny_defaults", True) else ()
    denied = [*reader.texts(value, "deny"), *defaults]
    verdict = run.get("default", "allow" if not digest else "ask")
    if verdict not in _VERDICTS:
        raise reader.wrong("exec.default", f"must be one of {', '.join(_VERDICTS)}")
    run_as = run.get("run_as", "")
    if not isinstance(run_as, str):
        raise reader.wrong("exec.run_as", "must be a text")
    return Policy(
        read=reader.patterns("read", reader.texts(value, "read"), home),
        write=reader.patterns("write", reader.texts(value, "write"), home),
        deny=reader.patterns("deny", denied, home, fold=True),
        enabled=reader.flag(value, "enabled", True),
        read_only=reader.flag(value, "read_only", False),
        exec_default=verdict,
        shell=reader.flag(run, "shell", True, "exec."),
        cwd=reader.patterns("exec.cwd", reader.texts(run, "cwd", "exec."), home),
        rules=reader.rules(run.get("rules", [])),
        run_as=run_as,
        digest=digest,
    )


class _Reader:
    """Checks the types of one file, and names the key that is wrong."""

    def __init__(self, path: str) -> None:
        self._path = path

    def wrong(self, key: str, why: str) -> ConfigError:
        return ConfigError(
            f"{self._path}: {key} {why}", remedy=f"edit {self._path}", path=self._path, key=key
        )

    def known(self, value: Mapping[str, Any], keys: set[str], before: str) -> None:
        for key in value:
            if key not in keys:
                raise self.wrong(before + key, f"is not one of {', '.join(sorted(keys))}")

    def flag(self, value: Mapping[str, Any], key: str, default: bool, before: str = "") -> bool:
        found = value.get(key, default)
        if not isinstance(found, bool):
            raise self.wrong(before + key, "must be true or false")
        return found

    def texts(self, value: Mapping[str, Any], key: str, before: str = "") -> list[str]:
        found = value.get(key, [])
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self.wrong(before + key, "must be a list of texts")
        return found

    def patterns(
        self, key: str, texts: Sequence[str], home: str, *, fold: bool = False
    ) -> tuple[Pattern, ...]:
        try:
            return tuple(compile_pattern(text, home, fold=fold) for text in texts)
        except ValueError as error:
            raise self.wrong(key, str(error)) from error

    def rules(self, found: Any) -> tuple[Rule, ...]:
        if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
            raise self.wrong("exec.rules", "must be tables: [[exec.rules]]")
        made = []
        for number, one in enumerate(found):
            try:
                made.append(parse_rule(one))
            except ValueError as error:
                raise self.wrong(f"exec.rules[{number}]", str(error)) from error
        return tuple(made)

"""Suite A, the stages at both ends: what of a session reaches the evidence (A1), which changed
files are listed (A8), and what the opening prompt, arguments and environment give away (A10).

Sessions are made up: planted facts at seven places between 8,000 and a million tokens of
noise (four bytes a token), the first part of each in a session that compression has ended.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from handoff.errors import Failed
from handoff.sessions import evidence, host_store, launch, prompt, workspace
from handoff.sessions.actions import TOOL
from handoff.sessions.bench import Metric, scratch
from handoff.sessions.bench.chance import Chance
from handoff.sessions.bench.formats import RULES, made
from handoff.sessions.bench.preservation import oracle
from handoff.sessions.environment import scrub
from handoff.sessions.guard import RedactorGuard
from handoff.workspace import git

#: tokens of a session, and where in it facts are planted, in hundredths
SIZES = (8_000, 40_000, 80_000, 200_000, 1_000_000)
PLACES = (1, 10, 30, 50, 70, 90, 99)
BLOCK = 2_000

RULES_SAID = (
    "You must keep {} as it is.", "Never touch {}.", "Please do not rename {}; only add to it.",
    "Always run {} before you commit.", "The deadline for {} is Friday.",
    "Non devi mai cambiare {}.", "Auf keinen Fall {} anfassen.", "不要更改 {}。",
    "No, wait: from now on {} must stay below 40 ms.",
)  # fmt: skip
#: (role, what carries the fact)
OTHERS = (
    ("assistant", "I decided to use {} because it is faster."),
    ("assistant", "Rejected {}: it was stale."),
    ("tool", "E4711: {} is closed"),
    ("tool", "tests: {} failed"),
    ("user", "By the way, {} is on port 8080."),
)
_NOISE = "the build printed nothing new and the loop went on "


class Planted(NamedTuple):
    """One fact: its anchor, whether it is a rule of the user, where it stands (hundredths)."""

    anchor: str
    rule: bool
    place: int


class _Count:
    def __init__(self) -> None:
        self.hits = self.total = 0

    def add(self, hit: bool) -> None:
        self.hits += hit
        self.total += 1


class Memory:
    """A host's sessions in memory: ``old``, which compression has ended, and ``new``."""

    def __init__(self) -> None:
        self.kept: list[host_store.Message] = []

    def add(self, session: str, role: str, text: str) -> None:
        """One more message."""
        number = len(self.kept) + 1
        tool = "bash" if role == "tool" else ""
        self.kept.append(host_store.Message(str(number), session, role, text, number, tool))

    def session(self, session_id: str) -> host_store.Session | None:
        """A session by its id."""
        if session_id not in ("old", "new"):
            return None
        parent = "old" if session_id == "new" else ""
        return host_store.Session(
            session_id, parent, "m", "p", "/", "cli", 1, 0, len(self.kept), ""
        )

    def family(self, session_id: str) -> list[str]:
        """The session and what it continues."""
        return ["new", "old"] if session_id == "new" else [session_id]

    def messages(
        self, sessions: list[str], *, role: str = "", last: int = 0, message_id: str = ""
    ) -> Iterator[host_store.Message]:
        """Their messages, in order."""
        found = [
            one
            for one in self.kept
            if one.session_id in sessions and role in ("", one.role) and message_id in ("", one.id)
        ]
        return iter(found[-last:] if last else found)

    def last_message(self, session_id: str) -> str:
        """The id of its last message."""
        return next((m.id for m in reversed(self.kept) if m.session_id == session_id), "")

    def idle_since(self, before: int, limit: int) -> list[host_store.Session]:
        """None."""
        del before, limit
        return []

    def started_since(self, since: int, limit: int) -> list[host_store.Session]:
        """None."""
        del since, limit
        return []


def opened(memory: Memory) -> contextlib.AbstractContextManager[host_store.SessionStore]:
    """The sessions, to be looked at."""
    return contextlib.nullcontext(memory)


def _anchor(chance: Chance, count: int) -> str:
    return f"src/{chance.pick(('lexer', 'store', 'router'))}/part_{count}_{chance.below(9000)}.py"


def _naming(chance: Chance) -> str:
    """A block of noise in which every line names a path and numbers of its own."""
    lines = [
        f"GET /assets/{chance.below(90_000)}/page_{chance.below(90_000)}.js 200 in {chance.below(90)} ms"
        for _ in range(BLOCK // 50)
    ]
    return "\n".join(lines)[:BLOCK]


def session_of(chance: Chance, tokens: int, *, names: bool = False) -> tuple[Memory, list[Planted]]:
    """A session of that size, and what was planted in it. ``names``: its noise names things,
    too."""
    memory = Memory()
    planted: list[Planted] = []
    memory.add("old", "user", "Make the parser total, and fast.")
    size = tokens * 4
    left = list(PLACES)
    at = 0
    while at < size or left:
        session = "old" if at * 3 < size else "new"
        while left and at * 100 >= left[0] * size:
            place = left.pop(0)
            for pattern in (chance.pick(RULES_SAID), chance.pick(RULES_SAID)):
                anchor = _anchor(chance, len(planted))
                memory.add(session, "user", pattern.format(anchor))
                planted.append(Planted(anchor, True, place))
            for role, pattern in OTHERS:
                anchor = _anchor(chance, len(planted))
                memory.add(session, role, pattern.format(anchor))
                planted.append(Planted(anchor, False, place))
        noise = _naming(chance) if names else (_NOISE * BLOCK)[:BLOCK]
        memory.add(session, "tool" if chance.below(2) else "assistant", noise)
        at += BLOCK
    return memory, planted


def metrics(seed: int) -> list[Metric]:
    """The rows of these stages."""
    chance = Chance(seed, "gathering")
    with scratch.folder() as folder:
        rows = _recall(chance, folder)
        rows.append(_trail(chance, os.path.join(folder, "repository")))
    return [*rows, *_quiet(chance)]


def _recall(chance: Chance, folder: str) -> list[Metric]:
    place = os.path.join(folder, "plain")
    os.mkdir(place)
    binding = workspace.bind(place)
    said, among = _Count(), _Count()
    every = {tokens: _Count() for tokens in SIZES}
    for tokens in SIZES:
        memory, planted = session_of(chance, tokens)
        shown = _shown(memory, binding)
        for fact in planted:
            hit = fact.anchor in shown
            every[tokens].add(hit)
            if fact.rule:
                said.add(hit)
    for tokens in SIZES:
        memory, planted = session_of(chance, tokens, names=True)
        shown = _shown(memory, binding)
        for fact in planted:
            (said if fact.rule else among).add(fact.anchor in shown)
    return [
        Metric("A1 rules of the user, at any place", said.hits, said.total, 9800),
        *(
            Metric(f"A1 all facts, a session of {tokens:,} tokens", found.hits, found.total, 9000)
            for tokens, found in every.items()
        ),
        Metric("A1 other facts, among noise that names as much", among.hits, among.total, None),
    ]


def _shown(memory: Memory, binding: workspace.Binding) -> str:
    """All that a writer is given of a session."""
    opener = functools.partial(opened, memory)
    bundle = evidence.gather(binding, RedactorGuard(b"bench"), sessions=opener, session_id="new")
    every = [*bundle.messages, *bundle.frozen["candidates"]]
    return "\n".join(one["text"] for one in every)


def _trail(chance: Chance, folder: str) -> Metric:
    """A repository with changed, new, renamed and removed files."""
    os.mkdir(folder)

    def run(*args: str) -> None:
        name = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
        git.run((*name, *args), folder, access=git.WRITE)

    root = pathlib.Path(folder)
    run("init", "-q")
    names = [f"part_{number}_{chance.below(900)}.py" for number in range(24)]
    (root / "src").mkdir()
    for name in names:
        (root / "src" / name).write_text(f"# {name}\n")
    run("add", "-A")
    run("commit", "-qm", "begin")
    changed = set()
    for number, name in enumerate(names[:20]):
        path = root / "src" / name
        changed.add(f"src/{name}")
        if number % 4 == 0:
            path.unlink()
        elif number % 4 == 1:
            path.rename(root / f"moved_{name}")
            changed.add(f"moved_{name}")
        else:
            path.write_text("changed\n")
    (root / "new file.txt").write_text("new\n")
    changed.add("new file.txt")
    got = evidence.gather(workspace.bind(folder), RedactorGuard(b"bench"))
    listed = {one["path"] for one in got.frozen["git"]["changed"]}
    return Metric("A8 changed files that are listed", len(changed & listed), len(changed), 10_000)


def _quiet(chance: Chance) -> list[Metric]:
    """What goes to the new program: no text of the handoff, no secret of the source."""
    hits = total = 0
    for number in range(12):
        state = oracle(chance, 2)
        texts = [state["goal"]["text"], *(one["text"] for one in state["constraints"])]
        secret = made(chance, chance.pick(RULES))
        asked = prompt.opening_prompt(
            tool=TOOL,
            ref=f"handoff://{'a' * 32}/{'b' * 32}",
            workspace="/projects/one",
            attempt_id=f"attempt-{number:04}",
            document_sha256="d" * 64,
            locale=prompt.LOCALES[number % 2],
            command=prompt.command_of("claude" if number % 3 else "hermes", "bob"),
        )
        frozen = {"profile": "bob", "workspace_resolved": "/projects/one",
                  "route": {"model": "m-1", "provider": "p-1"}}  # fmt: skip
        left = {"HERMES_SESSION_ID": secret, "GIT_DIR": secret, "CLAUDE_CODE_SESSION_ID": secret}
        for recipe in launch.RECIPES:
            argv = launch.child_argv(recipe, "/bin/program", frozen, asked)
            env = scrub({**left, "HERMES_YOLO_MODE": "1", "PATH": "/bin"}).env
            given = "\0".join([*argv, *(f"{k}={v}" for k, v in env.items())])
            total += 1
            hits += not any(text in given for text in [*texts, secret]) and set(env) == {"PATH"}
    if not total:
        raise Failed("no prompt was made")
    return [
        Metric("A10 nothing of the handoff in prompt, arguments, environment", hits, total, 10_000)
    ]

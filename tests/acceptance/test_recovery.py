"""docs/sessions/recovery.md, played: each crash point is made on the disk that the installed
command uses, and then the page's own commands are typed at a terminal."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import re
import shlex
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.acceptance.pty_console import Terminal
from tests.acceptance.test_session import Place, state
from tests.support.agents import Agents, hermes_store
from tests.support.console import Cli
from tests.support.home import Home
from tests.support.markdown import ROOT

from handoff.clock import SystemClock
from handoff.sessions import owner, private, profile
from handoff.sessions.journal import Journal
from handoff.sessions.owner import Owner
from handoff.sessions.records import Records

PAGE = ROOT / "docs" / "sessions" / "recovery.md"
ATTEMPT, NEW = "attempt-0001", "attempt-0002"
NONCE = "n-1"
SECTIONS = {
    match[1]: match[2]
    for match in re.finditer(r"(?ms)^## (K\d+): .*?\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"))
}
Reach = Callable[[str], None]


class Scene:
    """One crash point: a home, a record, perhaps an attempt, and what the page's words mean."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.env: dict[str, str] = {}
        self.words: dict[str, str] = {"ATTEMPT": ATTEMPT, "NEW": NEW, "SESSION": "s-new"}
        (place.work / "state.json").write_text(json.dumps(state()))
        self.root = profile.own(str(place.home.path / ".handoff")).root
        if "HANDOFF_HOME" in place.home.env:
            self.root = profile.own(place.home.env["HANDOFF_HOME"]).root

    def create(self) -> str:
        made = self.place.session(
            "create", "--workspace", str(self.place.work), "--request-id", "case-0001",
            "state.json", env=self.env,
        ).ok().json()  # fmt: skip
        self.words["REF"], self.words["DIGEST"] = made["ref"], made["document_sha256"]
        self.words["JOURNAL"] = os.path.join(self.root, "journal.sqlite3")
        return str(made["ref"])

    def prepare(self, *more: str) -> None:
        self.place.prepare(self.create(), "--host", "claude", *more, env=self.env)

    def journal(self, reach: Reach = lambda _name: None) -> Journal:
        return Journal(self.root, clock=SystemClock(), redact=lambda text: text, reach=reach)

    def opener(self, *steps: str, me: Owner | None = None) -> None:
        """An opener that does these steps and is killed."""
        dies(lambda: self._open(steps, me or owner.me("t")))

    def _open(self, steps: tuple[str, ...], me: Owner) -> None:
        import hashlib

        book = self.journal()
        held = book.reserve(ATTEMPT, me, "desktop" if "desktop" in steps else "cli")
        mark = hashlib.sha256(NONCE.encode()).hexdigest()
        if "intend" in steps:
            book.intend(held, {"nonce_sha256": mark})
        if "start" in steps:
            book.child_started(held, Owner(2**22 + 5, 1, owner.boot_id(), owner.host_id()))
        if "see" in steps:
            named = book.frozen(ATTEMPT)["profile"]
            book.session_seen(ATTEMPT, "s-new", named, nonce=NONCE)

    def status(self, attempt: str = ATTEMPT) -> Any:
        return self.place.session("status", attempt, env=self.env).ok().json()


def dies(act: Callable[[], object]) -> None:
    """Do it in a process that is killed at the end, if it lives so long."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def kill_at(point: str) -> Reach:
    return lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == point else None


# -- how each point is made --------------------------------------------------------------------


def cut_create(scene: Scene, point: str) -> None:
    """The real ``create``, killed inside of the store."""

    def act() -> None:
        os.environ.update(scene.place.home.env)
        os.chdir(scene.place.work)
        real = Records.__init__

        def made(self: Records, *args: Any, **more: Any) -> None:
            real(self, *args, **more)
            self._reach = kill_at(point)

        Records.__init__ = made  # type: ignore[method-assign]
        from handoff.cli.main import main

        words = ["session", "create", "--workspace", ".", "--request-id", "case-0001", "state.json"]
        main(words)
        os._exit(1)

    dies(act)


def k1(scene: Scene) -> None:
    cut_create(scene, "records.staged")
    assert scene.place.session("list").ok().json()["records"] == []
    assert any(pathlib.Path(scene.root).rglob("staging/*"))


def k2(scene: Scene) -> None:
    cut_create(scene, "records.published")
    assert len(scene.place.session("list").ok().json()["records"]) == 1


def k3(scene: Scene) -> None:
    scene.create()


def k4(scene: Scene) -> None:
    scene.prepare()


def k5(scene: Scene) -> None:
    scene.prepare()
    scene.opener()
    assert scene.status()["state"] == "reserved"


def k6(scene: Scene) -> None:
    scene.prepare()
    scene.opener("intend")
    assert (scene.status()["state"], scene.status()["certainty"]) == ("requested", "uncertain")


def k7(scene: Scene) -> None:
    """In a profile of Hermes, whose sessions can be looked at."""
    top = scene.place.home.path / "hermes"
    (top / "profiles" / "bob").mkdir(parents=True)
    store = top / "profiles" / "bob" / "state.db"
    hermes_store(store, [("s-source", "user", "hello")], str(scene.place.work))
    scene.env = {"HERMES_HOME": str(top / "profiles" / "bob")}
    scene.root = str(top / "profiles" / "bob" / "handoff")
    ref = scene.create()
    scene.place.prepare(ref, "--host", "hermes", "--model", "m-1", "--provider", "stub",
                        env=scene.env)  # fmt: skip
    scene.opener("intend", "start")
    prompt = scene.place.session("recover", ATTEMPT, env=scene.env).ok().json()["prompt"]
    with sqlite3.connect(store) as db:
        db.execute("INSERT INTO sessions VALUES ('s-new', NULL, 'm-1', 'stub', '/', 'handoff',"
                   " ?, NULL, 1, NULL)", (time.time(),))  # fmt: skip
        db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES"
                   " ('s-new', 'user', ?, ?)", (prompt, time.time()))  # fmt: skip
    db.close()
    assert scene.status()["certainty"] == "uncertain"


def k8(scene: Scene) -> None:
    scene.prepare()
    scene.opener("intend", "start", "see")
    status = scene.status()
    assert (status["state"], status["certainty"]) == ("session_identified", "certain")


def _long(scene: Scene) -> None:
    made = state(context=[{"id": f"x{n}", "text": f"line {n} of `a.py` " + "x" * 300}
                          for n in range(18)])  # fmt: skip
    (scene.place.work / "state.json").write_text(json.dumps(made))


def k9(scene: Scene) -> None:
    _long(scene)
    k8(scene)
    first = scene.place.session("read", scene.words["REF"], "--attempt-id", ATTEMPT, "--workspace",
                                str(scene.place.work), "--json", env={"CODEX_THREAD_ID": "s-new"})  # fmt: skip
    assert first.ok().json()["pages"] == 2
    assert scene.status()["handoff_read"] is False


def k10(scene: Scene) -> None:
    k9(scene)
    scene.place.session("read", scene.words["REF"], "--attempt-id", ATTEMPT, "--page", "2",
                        "--workspace", str(scene.place.work),
                        env={"CODEX_THREAD_ID": "s-new"}).ok()  # fmt: skip
    assert scene.status()["state"] == "handoff_read"


def k12(scene: Scene) -> None:
    scene.prepare()
    scene.opener("desktop", "intend", "see")
    assert scene.status()["prompt"] == "prompt_uncertain"


def k13(scene: Scene) -> None:
    scene.env = {"CLAUDE_CODE_SESSION_ID": "s-new"}
    scene.prepare()


def k14(scene: Scene) -> None:
    scene.prepare()
    path = pathlib.Path(scene.words["JOURNAL"])
    data = bytearray(path.read_bytes())
    data[len(data) // 4 : len(data) // 2] = b"\xff" * (len(data) // 2 - len(data) // 4)
    path.write_bytes(bytes(data))


def k15(scene: Scene) -> None:
    def act() -> None:
        os.environ.update(scene.place.home.env)
        os.chdir(scene.place.work)

        def write(_fd: int, _data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        private.os.write = write
        from handoff.cli.main import main

        words = ["session", "create", "--workspace", ".", "--request-id", "case-0001", "state.json"]
        assert main(words) == 1

    dies(act)
    assert scene.place.session("list").ok().json()["records"] == []


def k16(scene: Scene) -> None:
    scene.prepare()
    me = owner.me("t")
    scene.opener("intend", me=Owner(me.pid, me.started, "another-boot ns", me.host, "t"))


MAKE: dict[str, Callable[[Scene], None]] = {
    "K1": k1, "K2": k2, "K3": k3, "K4": k4, "K5": k5, "K6": k6, "K7": k7, "K8": k8, "K9": k9,
    "K10": k10, "K11": k8, "K12": k12, "K13": k13, "K14": k14, "K15": k15, "K16": k16,
}  # fmt: skip

#: what is known afterwards: (attempt, its state), or None where there is no attempt
AFTER = {
    "K1": None, "K2": None, "K3": None, "K4": (ATTEMPT, "prepared"), "K5": (ATTEMPT, "closed"),
    "K6": (NEW, "closed"), "K7": (ATTEMPT, "session_identified"), "K8": (ATTEMPT, "abandoned"),
    "K9": (ATTEMPT, "handoff_read"), "K10": (ATTEMPT, "acknowledged"), "K11": (NEW, "prepared"),
    "K12": (ATTEMPT, "session_identified"), "K13": (ATTEMPT, "prepared"), "K14": (NEW, "prepared"),
    "K15": None, "K16": (NEW, "closed"),
}  # fmt: skip


@pytest.fixture
def scene(isolated_home: Home) -> Iterator[Scene]:
    work = isolated_home.path / "work"
    work.mkdir()
    isolated_home.git("init", "-q", cwd=work)
    (work / "lexer.py").write_text("x = 1\n")
    isolated_home.git("add", "-A", cwd=work)
    isolated_home.git("commit", "-qm", "first", cwd=work)
    agents = Agents(isolated_home.path / "agents")
    yield Scene(Place(isolated_home, Cli(isolated_home, work), agents, work))


def commands(body: str) -> list[tuple[str, tuple[int, ...], bool]]:
    """(command, its exit codes, whether it is typed in the new session) of a section."""
    found = []
    inside = "# in the new session" in body
    for line in re.findall(r"(?m)^\$ (.*)$", body):
        command, _, note = line.partition("#")
        codes = tuple(int(code) for code in re.findall(r"\d+", note)) or (0,)
        found.append((command.strip(), codes, inside))
    return found


def typed(scene: Scene, command: str, *, inside: bool) -> tuple[int, str]:
    """Type a command of the page at a terminal; its exit code and what it printed."""
    for word, meaning in scene.words.items():
        command = re.sub(rf"\b{word}\b", meaning, command)
    words = shlex.split(command)
    if words[0] == "mv":
        os.rename(words[1], words[2])
        return 0, ""
    assert words[:2] == ["handoff", "session"], command
    if inside:
        ran = scene.place.session(*words[2:], env={**scene.env, "CODEX_THREAD_ID": "s-new"})
        return ran.code, ran.out + ran.err
    env = {k: v for k, v in scene.env.items() if k != "CLAUDE_CODE_SESSION_ID"}
    whole = {**scene.place.home.env, "PATH": scene.place.agents.path(), **env}
    terminal = Terminal(*words[1:], cwd=scene.place.work, env=whole)
    try:
        code = terminal.end(30)
        return code, terminal.seen.decode("utf-8", "replace").replace("\r\n", "\n")
    finally:
        terminal.close()


def test_the_page_has_every_crash_point() -> None:
    assert list(SECTIONS) == [f"K{number}" for number in range(1, 17)] == list(MAKE) == list(AFTER)
    for body in SECTIONS.values():
        assert "- On the disk: " in body
        assert "- Why this is right: " in body
        assert commands(body)


@pytest.mark.parametrize("point", MAKE)
def test_the_remedy_works_as_it_is_printed(scene: Scene, point: str) -> None:
    MAKE[point](scene)
    launches = len(scene.place.agents.launches())
    remedies = []
    for command, wanted, inside in commands(SECTIONS[point]):
        code, said = typed(scene, command, inside=inside)
        assert code in wanted, f"{point}: $ {command}\nexit {code}\n{said}"
        assert "Traceback" not in said, said
        remedies += re.findall(r"(?m)^ *try: (handoff session .*)$", said)
    for remedy in remedies:  # what the program itself says is to be done works as well
        code, said = typed(scene, remedy.strip(), inside=False)
        assert code == 0, f"{point}: try: {remedy}\n{said}"
    opened = sum(" open " in c and codes == (0,) for c, codes, _ in commands(SECTIONS[point]))
    assert len(scene.place.agents.launches()) - launches == opened, "each opening starts one"
    records = scene.place.session("list", env=scene.env).ok().json()["records"]
    assert len(records) == 1
    assert not any(pathlib.Path(scene.root).rglob("staging/*"))
    after = AFTER[point]
    if after is not None:
        assert scene.status(after[0])["state"] == after[1]
        scene.journal().verify()


def test_a_remedy_that_does_nothing_would_be_noticed(scene: Scene) -> None:
    k6(scene)
    code, _ = typed(scene, "handoff session open REF --workspace . --attempt-id ATTEMPT --yes",
                    inside=False)  # fmt: skip
    assert code == 5
    code, _ = typed(scene, "handoff session prepare REF --workspace . --host claude"
                    " --attempt-id NEW", inside=False)  # fmt: skip
    assert code == 3

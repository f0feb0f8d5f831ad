"""``handoff demo``: one task from dispatch to acceptance, in a scratch folder.

Everything in it is real: a daemon of its own, a git repository, a child process that asks
for permission, and the commands that a user types. Only the thinking is left out, because
the default executor plays a script.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

from handoff.cli import terminal
from handoff.errors import Failed, HandoffError, UsageError
from handoff.ids import short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

    Json = dict[str, Any]

REMARK = "Split on any white space; an empty text has no words. Test both."
CHECK = 'echo "two   words" | python3 -B wordcount.py'
PLAN = """\
# Count the words

Write `wordcount.py` with a function `count(text)` that returns how many words a text
holds (run as a program it counts standard input), and `test_wordcount.py` with a unittest
for it. Run the test, then commit.
"""
#: seconds in which the private agentd has to end
END_S = 10.0


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "demo",
        "Play one task through in a scratch folder, with a daemon of its own: dispatch, a\n"
        "permission that you decide, review, a remark, acceptance. No account is needed and\n"
        "nothing of yours is touched; everything is removed at the end.",
        examples="  handoff demo\n  handoff demo --yes --keep",
    )
    made.add_argument("--yes", action="store_true", help="approve by itself, ask nothing")
    made.add_argument("--executor", metavar="NAME", default="fake", help="a real one instead")
    made.add_argument("--keep", action="store_true", help="keep the scratch folder")
    return made


class Demo:
    """One run. ``typed``: the commands in the order in which they were run."""

    def __init__(self, args: Namespace) -> None:
        import tempfile

        self.args = args
        self.folder = tempfile.mkdtemp(prefix="handoff-demo-")
        self.project = os.path.join(self.folder, "wordcount")
        self.home = os.path.join(self.folder, "home")
        self.config = os.path.join(self.home, "config.yaml")
        self.typed: list[str] = []
        self.task = ""
        self.seen = -1

    # -- telling -------------------------------------------------------------------------

    def title(self, text: str) -> None:
        """A heading."""
        print("\n" + terminal.colour(f"■ {text}", "blue", "bold"), flush=True)

    def command(self, *words: str) -> int:
        """Print a command, then run it as the console script would."""
        from handoff.cli.main import main

        line = " ".join(["handoff", *map(terminal.shell_quote, words)])
        self.typed.append(line)
        print(terminal.colour(f"$ {line}", "bold"), flush=True)
        return main(list(words), human=True)

    def must(self, *words: str) -> None:
        """A command that has to succeed.

        Raises:
            Failed: it did not.
        """
        code = self.command(*words)
        if code:
            raise Failed(f"`{self.typed[-1]}` ended with {code}", remedy="handoff demo --keep")

    # -- the parts -----------------------------------------------------------------------

    def git(self, *words: str) -> str:
        """Run git in the scratch project."""
        env = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
        done = subprocess.run(
            ["git", *words],
            cwd=self.project,
            capture_output=True,
            text=True,
            env=env,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise Failed(f"git {words[0]}: {done.stderr.strip()}", remedy="handoff doctor")
        return done.stdout.strip()

    def prepare(self) -> None:
        """The repository, the plan and the configuration."""
        from handoff.config import create_default
        from handoff.workspace import git

        git.require_version()
        os.makedirs(self.project)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "handoff demo")
        self.git("config", "user.email", "demo@localhost")
        self.git("config", "commit.gpgsign", "false")
        with open(os.path.join(self.project, "README.md"), "w", encoding="utf-8") as file:
            file.write("# wordcount\n")
        self.git("add", "README.md")
        self.git("commit", "-q", "-m", "Begin")
        plan = PLAN
        if self.args.executor == "fake":
            from handoff.executors.fake import demo_plan

            plan = demo_plan()
        with open(os.path.join(self.folder, "plan.md"), "w", encoding="utf-8") as file:
            file.write(plan)
        create_default(self.config, executor=self.args.executor, listen="off")

    def client(self) -> Any:
        """A client of the private agentd."""
        from handoff.client.endpoint import locator
        from handoff.client.http import Client

        return Client(locator(config=self.config))

    def find_task(self) -> None:
        """The task that was just dispatched."""
        self.task = self.client().get("/api/tasks", {"limit": 1})[0]["id"]

    def watch(self) -> None:
        """The live view until the turn rests; open tickets are decided on the way."""
        from handoff.cli.attach import View
        from handoff.cli.context import Context
        from handoff.client.stream import Frames

        context = Context()
        context.force_human = True
        view = View(context, self.task)
        stream = Frames(self.client(), self.task, follow=True, tail=None)
        stream.n = self.seen if self.seen >= 0 else None
        for item in stream:
            frame = item.get("frame")
            if frame is None:
                continue
            self.seen = frame["n"]
            view.frame(frame)
            if frame["kind"] == "ticket":
                view.close()
                self.decide(frame["data"])
            elif frame["kind"] == "turn_end":
                break
        view.close()

    def decide(self, data: Json) -> None:
        """Answer a ticket: by the user, or with --yes by itself."""
        ref = str(data["ref"])
        found = self.client().get(f"/api/tasks/{self.task}")
        if ref not in {ticket["ref"] for ticket in found["pending_tickets"]}:
            return
        words = ["reply", short(self.task), "--ticket", ref]
        if data.get("kind") == "ask":
            answer = "as you think best" if self.args.yes else input("your answer: ")
            self.command(*words, "--answer", answer)
            return
        answer = "y"
        if not self.args.yes:
            print(terminal.colour("The executor waits. Nothing runs before you decide.", "yellow"))
            answer = input("allow it? [y = yes, n = no, or the reason for a no]: ").strip()
        if answer.lower() in ("y", "yes"):
            self.command(*words, "--approve")
        elif answer.lower() in ("n", "no", ""):
            self.command(*words, "--deny")
        else:
            self.command(*words, "--deny", "--reason", answer)

    def play(self) -> None:
        """The whole story."""
        self.title("A daemon of its own, in the background")
        self.must("agentd", "--detach")
        self.title("Hand over a plan")
        self.must("dispatch", os.path.join(self.folder, "plan.md"), "--detach")
        self.find_task()
        task = short(self.task)
        self.title("Watch it work (handoff attach), and decide what it asks")
        self.watch()
        self.title("What it claims, and what git shows")
        self.command("wait", task, "--until-done")
        self.title("Review")
        self.must("diff", task)
        self.command("run", task, "python3 -B -m unittest -q")
        self.command("run", task, CHECK)
        self.title("A remark: three blanks are not two more words")
        self.must("continue", task, REMARK)
        self.watch()
        self.command("run", task, CHECK)
        self.must("diff", task, "--stat")
        self.title("Accept: the worktree goes, the branch stays in your repository")
        self.must("done", task, "--note", "seen and tested")
        branch = self.client().get(f"/api/tasks/{self.task}")["task"]["branch"]
        print(terminal.colour(f"$ git log --oneline main..{branch}", "bold"))
        print(self.git("log", "--oneline", f"main..{branch}"))

    # -- the end -------------------------------------------------------------------------

    def end(self) -> None:
        """End the task, the daemon and the folder. Says what could not be ended."""
        from handoff.client.endpoint import discover

        try:
            if self.task:
                path = f"/api/tasks/{self.task}"
                if self.client().get(path)["task"]["state"] not in ("completed", "failed"):
                    self.client().post(f"{path}/stop")
        except HandoffError as error:
            print(f"the task could not be ended: {error}", file=sys.stderr)
        try:
            end_process(discover(self.config).pid)
        except HandoffError:
            pass  # it never came up: there is nothing to end
        if self.args.keep:
            print(f"\nkept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def end_process(pid: int) -> None:
    """End the daemon, whose parent we are, and wait for it."""
    if pid <= 0:
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    until = time.monotonic() + END_S
    while time.monotonic() < until:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
        except ChildProcessError:
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def run(args: Namespace, context: Context) -> int:
    """Play it."""
    if not args.yes and not terminal.is_tty(sys.stdin):
        raise UsageError(
            "the demo asks you to decide: it needs a terminal", remedy="handoff demo --yes"
        )
    before = {key: os.environ.get(key) for key in ("HANDOFF_HOME", "HANDOFF_CONFIG")}
    stood = os.getcwd()
    demo = Demo(args)
    started = time.monotonic()
    try:
        print(f"scratch folder: {demo.folder}")
        print(f"the commands below use it by HANDOFF_HOME={terminal.shell_quote(demo.home)}")
        demo.prepare()
        os.environ["HANDOFF_HOME"] = demo.home
        os.environ.pop("HANDOFF_CONFIG", None)
        os.chdir(demo.project)
        demo.play()
        demo.title(f"That was all, in {time.monotonic() - started:.1f} s. The commands were:")
        print("\n".join(f"  {line}" for line in demo.typed))
    except EOFError:
        context.say("\nno answer came; the demo ends here")
        return 1
    finally:
        os.chdir(stood)
        demo.end()
        for key, value in before.items():
            os.environ.pop(key, None)
            if value is not None:
                os.environ[key] = value
    return 0

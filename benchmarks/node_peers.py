"""What else runs commands and moves files on another machine, measured as our nodes are.

OpenSSH with a master connection that is open, asyncssh and execnet over one connection, scp,
sftp and rsync. All of them talk to a private sshd of the same user: its own host key, its own
configuration, keys only, a port of its own, gone afterwards. The client asks for AES-GCM,
which is what their machines are best at. asyncssh and execnet live in an environment of their
own (``scripts/bench --peers``), in which this file is run as a program and prints one object;
so it imports the standard library alone.

What is missing is told with its reason and counts as not measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

PLACE = pathlib.Path(__file__).resolve().parent.parent / ".live" / "peers"
CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com"
#: a program that says when it wrote what it says, and stays a while
STAMP = (
    "import os, time; time.sleep(0.05); os.write(1, b'%d\\n' % time.monotonic_ns()); "
    "time.sleep(0.1)"
)
#: the programs that print a stamp, a command each
STAMPS = 10


def stamp_argv() -> list[str]:
    """The command of :data:`STAMP`."""
    return [getattr(sys, "_base_executable", sys.executable), "-I", "-S", "-c", STAMP]


def delay(first: bytes, came_ns: int) -> float:
    """Milliseconds from the write of a stamp to its arrival."""
    return (came_ns - int(first.split()[0])) / 1e6


def median(call: Callable[[], object], times: int) -> float:
    """Milliseconds, p50."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent)


def fastest(call: Callable[[], object], size: int) -> float:
    """MiB a second, the best of three."""
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        call()
        best = max(best, size / (time.perf_counter() - began) / 2**20)
    return best


class Sshd:
    """A private server, and a master connection to it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.user = getpass.getuser()
        self.master = str(root / "m")
        for name in ("host", "user"):
            self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name))
        shutil.copy(root / "user.pub", root / "allowed")
        (root / "known").write_text(
            f"[127.0.0.1]:{self.port} {(root / 'host.pub').read_text()}", "utf-8"
        )
        self._server_config()
        self._client_config()
        self._child: subprocess.Popen[bytes] | None = None

    def _run(self, *words: str) -> None:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            raise OSError(f"{words[0]}: {done.stderr.decode(errors='replace').strip()[-200:]}")

    def _server_config(self) -> None:
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.root}/host",
            f"AuthorizedKeysFile {self.root}/allowed",
            "AuthenticationMethods publickey",
            "PermitRootLogin prohibit-password",
            "StrictModes no",
            "UsePAM no",
            "PidFile none",
            "MaxSessions 64",
            "MaxStartups 64",
            # else the files of a shell that starts would be part of each figure
            f"SetEnv HOME={self.root}",
            "PrintMotd no",
            "LogLevel ERROR",
            "Subsystem sftp internal-sftp",
        ]
        (self.root / "sshd_config").write_text("\n".join(lines) + "\n", "utf-8")

    def _client_config(self) -> None:
        lines = [
            "Host peer",
            "  HostName 127.0.0.1",
            f"  Port {self.port}",
            f"  User {self.user}",
            f"  IdentityFile {self.root}/user",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {self.root}/known",
            "  StrictHostKeyChecking yes",
            "  BatchMode yes",
            f"  Ciphers {CIPHERS}",
            "  Compression no",
            f"  ControlPath {self.master}",
            "  LogLevel ERROR",
        ]
        (self.root / "config").write_text("\n".join(lines) + "\n", "utf-8")

    def ssh(self, *words: str) -> list[str]:
        """``ssh`` over the master connection."""
        return ["ssh", "-F", str(self.root / "config"), *words]

    def start(self) -> None:
        """Start it, and the master connection."""
        program = shutil.which(
            "sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
        )
        if program is None:
            raise OSError("sshd is not installed")
        if os.geteuid() == 0:  # where its unprivileged half has its root
            pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with open(self.root / "log", "wb") as log:
            self._child = subprocess.Popen(
                [program, "-D", "-e", "-f", str(self.root / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                break
            if self._child.poll() is not None or time.monotonic() > until:
                said = (self.root / "log").read_text(errors="replace").strip()[-200:]
                raise OSError(f"sshd does not listen: {said}")
            time.sleep(0.02)
        self._run(*self.ssh("-M", "-N", "-f", "peer"))

    def close(self) -> None:
        """End both, and whatever they started."""
        with contextlib.suppress(OSError):
            self._run(*self.ssh("-O", "exit", "peer"))
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(20)


@contextlib.contextmanager
def sshd() -> Iterator[Sshd]:
    """A running one. OSError: with the reason why there is none."""
    for program in ("ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            raise OSError(f"{program} is not installed")
    with tempfile.TemporaryDirectory(prefix="peer") as name:
        server = Sshd(pathlib.Path(name))
        try:
            server.start()
            yield server
        finally:
            server.close()


def first_byte(argv: list[str]) -> float:
    """Milliseconds from a program's write to our read, p50, a command each."""
    found = []
    for _ in range(STAMPS):
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            first = os.read(child.stdout.fileno(), 100)
            found.append(delay(first, time.monotonic_ns()))
    return statistics.median(found)


def at_once(argv: list[str], count: int) -> None:
    """So many programs at the same time, until the last is over."""
    running = [
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for _ in range(count)
    ]
    codes = [child.wait() for child in running]
    if any(codes):
        raise OSError(f"{argv[0]} failed")


def done(argv: list[str], data: bytes | None = None) -> None:
    """Run a program to its end; OSError if it fails."""
    over = subprocess.run(argv, input=data, capture_output=True, check=False)
    if over.returncode:
        raise OSError(f"{argv[0]}: {over.stderr.decode(errors='replace').strip()[-200:]}")


def shell_quoted(argv: list[str]) -> str:
    """One line for the shell of the other side."""
    import shlex

    return shlex.join(argv)


def openssh(server: Sshd, times: int, parallel: int) -> dict[str, float]:
    """``exec``, ``first``, ``parallel`` of ssh over its open master connection."""
    true = server.ssh("peer", "true")
    return {
        "exec": median(lambda: done(true), times),
        "first": first_byte(server.ssh("peer", shell_quoted(stamp_argv()))),
        "parallel": median(lambda: at_once(true, parallel), 5),
    }


def copies(server: Sshd, work: pathlib.Path, big: str, small: str) -> dict[str, dict[str, float]]:
    """``read``, ``write``, ``small`` of scp, sftp and rsync: MiB/s and seconds.

    big, small: a file, a folder of files. Both sides are in ``work``; each copy has a new
    target.
    """
    size = os.stat(big).st_size
    config = ["-F", str(server.root / "config")]
    rsync = ["rsync", "-a", "--whole-file", "-e", shell_quoted(server.ssh())]
    count = 0

    def fresh() -> str:
        nonlocal count
        count += 1
        return str(work / f"copy{count}")

    def sftp(line: str) -> None:
        done(["sftp", "-q", *config, "-b", "-", "peer"], line.encode())

    ways: dict[str, dict[str, Callable[[], object]]] = {
        "scp": {
            "read": lambda: done(["scp", "-q", *config, f"peer:{big}", fresh()]),
            "write": lambda: done(["scp", "-q", *config, big, f"peer:{fresh()}"]),
            "small": lambda: done(["scp", "-q", "-r", *config, small, f"peer:{fresh()}"]),
        },
        "sftp": {
            "read": lambda: sftp(f"get {big} {fresh()}\n"),
            "write": lambda: sftp(f"put {big} {fresh()}\n"),
            "small": lambda: sftp(f"put -R {small} {fresh()}\n"),
        },
        "rsync": {
            "read": lambda: done([*rsync, f"peer:{big}", fresh()]),
            "write": lambda: done([*rsync, big, f"peer:{fresh()}"]),
            "small": lambda: done([*rsync, f"{small}/", f"peer:{fresh()}"]),
        },
    }
    found: dict[str, dict[str, float]] = {}
    for name, way in ways.items():
        if shutil.which(name) is None:
            continue
        found[name] = {
            "read": fastest(way["read"], size),
            "write": fastest(way["write"], size),
            "small": median(way["small"], 3) / 1000,
        }
        for copy in work.glob("copy*"):
            shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
    return found


def library(name: str, server: Sshd, request: dict[str, Any]) -> dict[str, float]:
    """The figures of ``asyncssh`` or ``execnet``. OSError: with the reason why there are none."""
    python = PLACE / "bin" / "python"
    if not python.exists():
        raise OSError("not installed; scripts/bench --peers installs it")
    asked = {
        **request,
        "root": str(server.root),
        "port": server.port,
        "user": server.user,
        "ssh": server.ssh("peer"),
    }
    over = subprocess.run(
        [str(python), __file__, name, json.dumps(asked)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )
    if over.returncode:
        last = over.stderr.decode(errors="replace").strip().splitlines() or ["no word"]
        raise OSError(last[-1][:200])
    found: dict[str, float] = json.loads(over.stdout)
    return found


async def asyncssh_figures(asked: dict[str, Any]) -> dict[str, float]:
    """In the environment of the peers: one connection of asyncssh."""
    import asyncssh

    root, times = asked["root"], asked["times"]
    big, small, work = asked["big"], asked["small"], asked["work"]
    size = os.stat(big).st_size
    found: dict[str, float] = {}

    async def p50(make: Callable[[], Any], count: int) -> float:
        spent = []
        for _ in range(count):
            began = time.perf_counter()
            await make()
            spent.append((time.perf_counter() - began) * 1000)
        return statistics.median(spent)

    async def mib_s(make: Callable[[], Any]) -> float:
        best = 0.0
        for _ in range(3):
            began = time.perf_counter()
            await make()
            best = max(best, size / (time.perf_counter() - began) / 2**20)
        return best

    async def first() -> float:
        async with connection.create_process(shell_quoted(stamp_argv()), encoding=None) as process:
            said = await process.stdout.read(100)
            return delay(said, time.monotonic_ns())

    async with asyncssh.connect(
        "127.0.0.1",
        asked["port"],
        username=asked["user"],
        client_keys=[f"{root}/user"],
        known_hosts=f"{root}/known",
        encryption_algs=CIPHERS.split(","),
        config=None,
    ) as connection:
        found["exec"] = await p50(lambda: connection.run("true", check=True), times)
        found["first"] = statistics.median([await first() for _ in range(STAMPS)])
        found["parallel"] = await p50(
            lambda: asyncio.gather(
                *(connection.run("true", check=True) for _ in range(asked["parallel"]))
            ),
            5,
        )
        async with connection.start_sftp_client() as sftp:
            found["stat"] = await p50(lambda: sftp.stat(small), times)
            found["list"] = await p50(lambda: sftp.readdir(asked["listed"]), times)
            found["read"] = await mib_s(lambda: sftp.get(big, f"{work}/copy1"))
            found["write"] = await mib_s(lambda: sftp.put(big, f"{work}/copy2"))
            began = time.perf_counter()
            await sftp.put(small, f"{work}/copy3", recurse=True)
            found["small"] = time.perf_counter() - began
    return found


#: what execnet runs on the other side: one request after the other
SERVE = """
import os, subprocess
for what, value in channel:
    if what == "exec":
        channel.send(subprocess.call(value))
    elif what == "stat":
        channel.send(tuple(os.stat(value))[:10])
    elif what == "list":
        channel.send([(e.name, tuple(e.stat(follow_symlinks=False))[:10]) for e in os.scandir(value)])
    elif what == "read":
        with open(value, "rb") as file:
            while block := file.read(1 << 18):
                channel.send(block)
        channel.send(b"")
    elif what == "write":
        with open(value, "wb") as file:
            while block := channel.receive():
                file.write(block)
        channel.send(0)
    elif what == "stamp":
        child = subprocess.Popen(value, stdout=subprocess.PIPE)
        channel.send(os.read(child.stdout.fileno(), 100))
        child.wait()
        channel.send(0)
"""
EXECS = """
import subprocess
channel.send(subprocess.call(["true"]))
"""


def execnet_figures(asked: dict[str, Any]) -> dict[str, float]:
    """In the environment of the peers: one gateway of execnet, through the same ssh."""
    import execnet

    big, times, work = asked["big"], asked["times"], asked["work"]
    size = os.stat(big).st_size
    python = getattr(sys, "_base_executable", sys.executable)
    spec = f"ssh=-F {asked['root']}/config peer//python={python}//execmodel=thread"
    gateway = execnet.makegateway(spec)
    channel = gateway.remote_exec(SERVE)

    def ask(what: str, value: object) -> object:
        channel.send((what, value))
        return channel.receive(60)

    def first() -> float:
        said = ask("stamp", stamp_argv())
        came = time.monotonic_ns()
        channel.receive(60)
        return delay(said, came)  # type: ignore[arg-type]

    def read() -> None:
        channel.send(("read", big))
        with open(f"{work}/copy1", "wb") as file:
            while block := channel.receive(60):
                file.write(block)

    def write() -> None:
        channel.send(("write", f"{work}/copy2"))
        with open(big, "rb") as file:
            while block := file.read(1 << 18):
                channel.send(block)
        channel.send(b"")
        channel.receive(60)

    def at_once_() -> None:
        for one in [gateway.remote_exec(EXECS) for _ in range(asked["parallel"])]:
            one.receive(60)

    found = {
        "exec": median(lambda: ask("exec", ["true"]), times),
        "first": statistics.median([first() for _ in range(STAMPS)]),
        "stat": median(lambda: ask("stat", big), times),
        "list": median(lambda: ask("list", asked["listed"]), times),
        "parallel": median(at_once_, 5),
        "read": fastest(read, size),
        "write": fastest(write, size),
    }
    gateway.exit()
    return found


def main() -> None:
    """The figures of one library, as JSON."""
    name, asked = sys.argv[1], json.loads(sys.argv[2])
    if name == "asyncssh":
        found = asyncio.run(asyncssh_figures(asked))
    else:
        found = execnet_figures(asked)
    print(json.dumps(found), flush=True)
    if name == "execnet":
        os._exit(0)  # its threads are daemons that say so as they end


if __name__ == "__main__":
    main()

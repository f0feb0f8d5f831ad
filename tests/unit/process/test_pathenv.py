from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from tests.support.runs import lives

from handoff.process import facts, pathenv
from handoff.process.pathenv import complete, login_shell_path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home"
    found.mkdir()
    return found


def environ(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", **more}


def shell(home: Path, text: str) -> str:
    """A program that passes for the user's shell."""
    path = home.parent / "shell"
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def test_inherited_first_then_path_dirs_known_and_node(home: Path):
    for name in (".local/bin", "tools", ".nvm/versions/node/v9.11.2/bin", ".cargo/bin"):
        (home / name).mkdir(parents=True)
    (home / ".nvm/versions/node/v22.3.0/bin").mkdir(parents=True)
    (home / ".nvm/versions/node/v100").mkdir()  # half installed
    found = await complete(environ(home), ["~/tools", "/usr/bin", "~/gone", "relative"])
    own = [folder for folder in found.path.split(":") if folder.startswith(str(home))]
    assert found.path.startswith("/usr/bin:/bin:")
    assert own == [
        f"{home}/tools",
        f"{home}/.local/bin",
        f"{home}/.cargo/bin",
        f"{home}/.nvm/versions/node/v22.3.0/bin",
    ]
    assert found.sources["/usr/bin"] == "inherited"
    assert found.sources[f"{home}/tools"] == "path_dirs"
    assert found.sources[own[-1]] == "node"
    assert [warning.split(":")[1].split()[0] for warning in found.warnings] == [
        "~/gone",
        "relative",
    ]


async def test_relative_and_empty_entries_are_dropped_and_none_comes_twice(home: Path):
    found = await complete({"HOME": str(home), "PATH": ":.:bin:/usr/bin/:/usr/bin::/bin"})
    folders = found.path.split(":")
    assert folders[:2] == ["/usr/bin", "/bin"]
    assert len(set(folders)) == len(folders) and all(one.startswith("/") for one in folders)


async def test_the_login_shells_own_path(home: Path):
    (home / ".bash_profile").write_text("export PATH=$PATH:/from/profile\n. ~/.bashrc\n")
    (home / ".bashrc").write_text("export PATH=$PATH:/from/rc\n")
    found = await complete(environ(home, SHELL="/bin/bash"))
    assert found.sources["/from/profile"] == found.sources["/from/rc"] == "shell"
    assert not found.warnings
    without = await complete(environ(home, SHELL="/bin/bash"), shell=False)
    assert "/from/rc" not in without.path


async def test_a_loud_shell_is_not_taken_for_path(home: Path):
    (home / ".bash_profile").write_text(
        "echo 'Welcome to /evil/bin:/worse'\nprintf '\\e[31m'\nexport PATH=/quiet:$PATH\n"
        "trap 'echo bye /evil/bin' EXIT\ncd /\n"
    )
    found, warning = await login_shell_path(environ(home, SHELL="/bin/bash"))
    assert found.startswith("/quiet:/usr/") and "evil" not in found and not warning
    assert all(folder.startswith("/") for folder in found.split(":"))


async def test_a_slow_shell_has_a_limit_and_all_of_it_is_ended(home: Path):
    note = home / "pids"
    (home / ".bash_profile").write_text(
        f"(trap '' TERM HUP; echo $BASHPID >> {note}; while :; do sleep 30; done) &\n"
        f"echo $$ >> {note}; sleep 30\n"
    )
    began = time.monotonic()
    found, warning = await login_shell_path(environ(home, SHELL="/bin/bash"), timeout_s=0.5)
    assert time.monotonic() - began < 8
    assert found == "" and "did not start within 0.5 s" in warning
    started = [int(word) for word in note.read_text().split()]
    assert started and not any(lives(pid) for pid in started)


async def test_a_shell_that_waits_for_input_gets_none(home: Path):
    (home / ".bash_profile").write_text("read -p 'agree? ' answer\n")
    found, _ = await login_shell_path(environ(home, SHELL="/bin/bash"))
    assert "/usr/bin" in found.split(":")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 3", "told no PATH (exit code 3)"),
        ("kill -9 $$", "told no PATH (signal 9)"),
        ("echo /a:/b", "told no PATH (exit code 0)"),
    ],
)
async def test_a_shell_that_tells_nothing(home: Path, script: str, says: str):
    found, warning = await login_shell_path(environ(home, SHELL=shell(home, script)))
    assert found == "" and says in warning
    full = await complete(environ(home, SHELL=shell(home, script)))
    assert full.warnings == (warning,) and full.path.startswith("/usr/bin:/bin")


async def test_no_shell_and_one_that_is_not_there(home: Path):
    assert await login_shell_path(environ(home)) == ("", "")
    found, warning = await login_shell_path(environ(home, SHELL="/nope/zsh"))
    assert found == "" and "/nope/zsh can't be executed" in warning


async def test_fish_has_a_list(home: Path, monkeypatch: pytest.MonkeyPatch):
    """No fish is needed: what matters is what it is asked."""
    fake = home.parent / "fish"
    fake.write_text('#!/bin/sh\nprintf "%s" "$4" > "$HOME/asked"\n')
    fake.chmod(0o755)
    await login_shell_path(environ(home, SHELL=str(fake)))
    assert "(string join : $PATH)" in (home / "asked").read_text()


async def test_a_flood_is_cut_and_the_path_behind_it_is_found(home: Path):
    (home / ".bash_profile").write_text("head -c 3000000 /dev/zero | tr '\\0' x\n")
    found, warning = await login_shell_path(environ(home, SHELL="/bin/bash"))
    assert "/usr/bin" in found.split(":") and "x" not in found and not warning


async def test_cancelled_it_leaves_nothing(home: Path):
    note = home / "pid"
    (home / ".bash_profile").write_text(f"echo $$ > {note}.new; mv {note}.new {note}; sleep 30\n")
    asking = asyncio.create_task(login_shell_path(environ(home, SHELL="/bin/bash")))
    while not note.exists():
        await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not lives(int(note.read_text()))


def test_versions_are_compared_as_numbers():
    names = ["v9.11.2", "v22.3.0", "v22.12.0", "lts"]
    assert max(names, key=pathenv._version) == "v22.12.0"


def test_what_the_daemon_imports_from_here():
    assert pathenv.find_program("sh", "/bin").endswith("/sh")
    pathenv.check_program("/bin/sh", "/bin")
    assert facts.fact(os.getpid())

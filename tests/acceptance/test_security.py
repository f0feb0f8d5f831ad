"""Who may do what, and what stays private: SECURITY.md, line by line."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import stat
import subprocess
import sys

import pytest
from tests.support.console import HANDOFF
from tests.support.daemon import CONFIG, Agentd, run_agentd
from tests.support.home import Home
from tests.support.plans import fake_plan
from tests.support.repository import Repository, make_repository


def over_tcp(agentd: Agentd, path: str, *headers: str, method: str = "GET") -> tuple[int, bytes]:
    """(status, whole answer) of a raw HTTP call to the loopback listener."""
    host, port = agentd.endpoint()["url"].removeprefix("http://").rsplit(":", 1)
    lines = [f"{method} {path} HTTP/1.1", "Connection: close", "Content-Length: 0", *headers]
    if not any(h.lower().startswith("host:") for h in headers):
        lines.append(f"Host: {host}:{port}")
    with socket.create_connection((host, int(port)), timeout=10) as link:
        link.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = b""
        while data := link.recv(65536):
            answer += data
    return int(answer.split()[1]), answer


# -- who gets in -------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/status", "/api/tasks", "/ws/events?task=x&from_seq=0"])
@pytest.mark.parametrize("given", [[], ["Authorization: Bearer wrong"], ["Authorization: Bearer "]])
def test_tcp_needs_the_token(agentd: Agentd, path: str, given: list[str]) -> None:
    status, answer = over_tcp(agentd, path, *given)
    assert status in (401, 403)
    assert agentd.token.encode() not in answer


def test_tcp_with_the_token_and_a_foreign_name_is_refused(agentd: Agentd) -> None:
    token = f"Authorization: Bearer {agentd.token}"
    assert over_tcp(agentd, "/api/status", token)[0] == 200
    assert over_tcp(agentd, "/api/status", token, "Host: evil.example:80")[0] == 401


def test_the_listener_is_on_loopback_only(isolated_home: Home) -> None:
    with run_agentd(isolated_home, start=False) as agentd:
        path = agentd.dir / "config.yaml"
        path.write_text(path.read_text().replace("127.0.0.1:0", "0.0.0.0:0"))
        ran = agentd.cli("agentd")
        assert ran.code == 2
        assert "0.0.0.0" in ran.err
        assert "Traceback" not in ran.err


def test_without_a_listener_there_is_only_the_socket(isolated_home: Home) -> None:
    with run_agentd(isolated_home, start=False) as agentd:
        path = agentd.dir / "config.yaml"
        path.write_text(path.read_text().replace("127.0.0.1:0", "off"))
        agentd.start()
        assert not agentd.endpoint().get("url")
        assert agentd.cli("status").ok()


# -- files -------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_what_is_ours_is_private_and_the_work_keeps_the_users_umask(
    isolated_home: Home, umask: int
) -> None:
    before = os.umask(umask)
    try:
        with run_agentd(isolated_home) as agentd:
            repository = make_repository(isolated_home)
            plan = fake_plan(
                {"run": {"command": "umask; touch made", "ask": False}},
                {"write": {"path": "f.txt", "text": "x"}},
                {"run": {"command": "true"}},
            )
            task = agentd.dispatch(repository, plan)
            agentd.ticket(task["id"])
            worktrees = pathlib.Path(task["work_dir"]).parent
            for path in [agentd.dir, *agentd.dir.rglob("*")]:
                mode = path.lstat().st_mode
                inside = path != worktrees and worktrees in path.parents
                if not stat.S_ISLNK(mode) and not inside:
                    assert not mode & 0o077, f"{path} is {oct(mode)}"
            agentd.cli("run", task["id"], "touch by-run").ok()
            for name in ("made", "by-run", "app.py"):  # by the executor, by `run`, by git
                made = pathlib.Path(task["work_dir"]) / name
                assert stat.S_IMODE(made.stat().st_mode) == 0o666 & ~umask, name
    finally:
        os.umask(before)


# -- an executor is not its coordinator --------------------------------------------------

TRY = """\
import json, os, socket, subprocess, sys
handoff, task, token, url = sys.argv[1:5]
out = {}
for name, args in {
    "reply": ["reply", task, "--ticket", "g1", "--approve"],
    "done": ["done", task],
    "stop": ["stop", task],
    "continue": ["continue", task, "more"],
    "dispatch": ["dispatch", "--prompt", "child"],
    "run": ["run", task, "true"],
    "interrupt": ["interrupt", task],
    "tcp": ["--agentd", url, "stop", task],
}.items():
    ran = subprocess.run([handoff, *args, "--json"], capture_output=True, text=True)
    out[name] = [ran.returncode, ran.stdout + ran.stderr]
out["look"] = [subprocess.run([handoff, "show", task], capture_output=True).returncode, ""]
print(json.dumps(out))
open("tried.json", "w").write(json.dumps(out))
"""


@pytest.mark.parametrize("how", ["plain", "detached"])
def test_a_process_of_a_task_can_look_and_not_act(
    agentd: Agentd, git_repo: Repository, how: str
) -> None:
    script = git_repo.home.path / "try.py"
    script.write_text(TRY)
    url = agentd.endpoint()["url"]
    call = f"{sys.executable} {script} {HANDOFF} TASK {agentd.token} {url}"
    if how == "detached":  # its parents end; only the shim is left above it
        call = f"(setsid sh -c '{call}' >/dev/null 2>&1 </dev/null &) ; while [ ! -s tried.json ]; do sleep 0.05; done"
    plan = fake_plan({"wait_file": {"path": "go"}}, {"run": {"command": "sh go", "ask": False}})
    task = agentd.dispatch(git_repo, plan)
    tree = pathlib.Path(task["work_dir"])
    (tree / "go.tmp").write_text(call.replace("TASK", task["id"]))
    (tree / "go.tmp").rename(tree / "go")
    agentd.wait_event(task["id"], "completed", "turn_failed", within=30)
    tried = json.loads((tree / "tried.json").read_text())
    assert tried.pop("look")[0] == 0
    for name, (code, text) in tried.items():
        assert code == 3, f"{name}: {code} {text}"
        assert "may not act as its coordinator" in text, name
    told = [e for e in agentd.events(task["id"]) if e["type"] == "actor_refused"]
    assert len(told) >= len(tried) - 1
    assert all(e["wakes"] for e in told)
    assert len(agentd.cli("tasks", "--json").lines()) == 1


# -- reading results ---------------------------------------------------------------------


def test_fetch_never_leaves_the_worktree(agentd: Agentd, git_repo: Repository) -> None:
    secret = git_repo.home.path / "secret.txt"
    secret.write_text("secret\n")
    plan = fake_plan(
        {
            "run": {
                "command": f"ln -s {secret} link; ln -s {secret.parent} dir; ln -s link two; "
                "mkfifo pipe; ln /etc/hostname hard 2>/dev/null; echo fine > plain",
                "ask": False,
            }
        },
        {"run": {"command": "true"}},
    )
    task = agentd.dispatch(git_repo, plan)["id"]
    agentd.ticket(task)
    assert agentd.cli("fetch", task, "plain").ok().out == "fine\n"
    for path in (
        "link",
        "two",
        "dir/secret.txt",
        "../secret.txt",
        str(secret),
        "pipe",
        ".",
        ".git",
    ):
        ran = agentd.cli("fetch", task, path, timeout=10)
        assert ran.code != 0, path
        assert "secret\n" not in ran.out, path


# -- git of ours -------------------------------------------------------------------------


def test_a_repository_can_run_nothing_through_our_git_calls(
    agentd: Agentd, git_repo: Repository
) -> None:
    """Hooks, filters, helpers, diff programs and monitors that note that they ran."""
    note = git_repo.home.path / "ran.log"
    program = git_repo.home.path / "trap.sh"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >>{note}\ncat\n')
    program.chmod(0o755)
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        path = git_repo.path / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho hook {hook} >>{note}\n")
        path.chmod(0o755)
    for key, value in {
        "core.fsmonitor": str(program),
        "core.pager": str(program),
        "diff.external": str(program),
        "diff.trap.textconv": str(program),
        "filter.trap.clean": str(program),
        "filter.trap.smudge": str(program),
        "credential.helper": str(program),
        "core.sshCommand": str(program),
        "alias.status": f"!{program}",
    }.items():
        git_repo.git("config", key, value)
    (git_repo.path / ".git" / "info" / "attributes").write_text("*.txt diff=trap filter=trap\n")
    note.unlink(missing_ok=True)
    plan = fake_plan({"write": {"path": "a.txt", "text": "a\n"}}, {"run": {"command": "true"}})
    task = agentd.dispatch(git_repo, plan)["id"]
    agentd.ticket(task)
    for args in (["diff"], ["diff", "--stat"], ["diff", "--uncommitted"], ["fetch"], ["show"]):
        extra = ["app.py"] if args == ["fetch"] else []
        agentd.cli(args[0], task, *extra, *args[1:])
    agentd.cli("stop", task).ok()
    assert not note.exists() or not note.read_text(), note.read_text()


# -- secrets -----------------------------------------------------------------------------


def test_secrets_are_in_no_argument_log_event_or_status(isolated_home: Home) -> None:
    secret = "sk-test-0123456789abcdefSECRET"
    with run_agentd(isolated_home, "env:\n  fake: fake.env\n", start=False) as agentd:
        folder = agentd.data / "env"
        folder.mkdir(parents=True, mode=0o700)
        (folder / "fake.env").write_text(f"API_KEY={secret}\n")
        (folder / "fake.env").chmod(0o600)
        agentd.start()
        repository = make_repository(isolated_home)
        plan = fake_plan(
            {"run": {"command": 'test -n "$API_KEY" && touch has-it', "ask": False}},
            {"run": {"command": "true"}},
        )
        task = agentd.dispatch(repository, plan)
        agentd.ticket(task["id"])
        assert (pathlib.Path(task["work_dir"]) / "has-it").exists(), "the executor has it"
        listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True)
        told = {
            "ps": listed.stdout,
            "log": agentd.log(),
            "events": json.dumps(agentd.events(task["id"])),
            "show": json.dumps(agentd.show(task["id"])),
            "status": json.dumps(agentd.get("/api/status")),
        }
        for name, text in told.items():
            assert secret not in text, name
            assert agentd.token not in text, name
        for path in agentd.dir.rglob("*"):
            if path.is_file() and path.name not in ("fake.env", "config.yaml"):
                data = path.read_bytes()
                assert secret.encode() not in data, path
                assert agentd.token.encode() not in data, path


def test_a_broken_token_line_shows_no_token(isolated_home: Home) -> None:
    with run_agentd(isolated_home, start=False) as agentd:
        text = CONFIG.format(token="[0123456789abcdefSECRET", data=agentd.data)
        (agentd.dir / "config.yaml").write_text(text)
        ran = agentd.cli("agentd")
        assert ran.code == 2
        assert "SECRET" not in ran.err + ran.out
        assert "Traceback" not in ran.err


def test_the_token_goes_to_no_other_machine_in_clear(cli) -> None:  # type: ignore[no-untyped-def]
    ran = cli("--agentd", "http://192.0.2.1:7777", "status", timeout=10)
    assert ran.code == 2
    assert "refused" in ran.err
    assert "ssh -N -L" in ran.err


def test_proxy_settings_change_nothing(isolated_home: Home) -> None:
    """A proxy that nobody answers at: whoever used it would hang or fail."""
    dead = dict.fromkeys(
        ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), "http://127.0.0.1:9"
    )
    with run_agentd(isolated_home, start=False) as agentd:
        agentd.start(env=dead)
        url = agentd.endpoint()["url"]
        assert agentd.cli("status", env=dead).code == 0
        assert agentd.cli("--agentd", url, "status", env=dead).code == 0

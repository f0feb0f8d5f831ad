from __future__ import annotations

import os
import subprocess
import time

import pytest
from tests.unit.workspace.repos import living_members, plain, run_git, script, write

from handoff.errors import (
    DubiousOwnership,
    GitError,
    GitMissing,
    GitTooOld,
    NotARepository,
    RepositoryLocked,
    StorageFull,
    TimedOut,
    TooLarge,
)
from handoff.workspace import child, git
from handoff.workspace.explain import explain, shell_quote, without_credentials
from handoff.workspace.pinned import environment


def fake_git(tmp_path, monkeypatch, body):
    """A git that does what the shell script says; the real one is $REAL."""
    real = subprocess.run(["which", "git"], capture_output=True, check=True, text=True).stdout
    script(tmp_path / "bin" / "git", f"REAL={real.strip()}\n{body}")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")


def test_git_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitMissing) as caught:
        git.run(["status"], str(tmp_path))
    assert "install git" in caught.value.remedy


def test_git_too_old(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, "echo git version 2.20.1\n")
    with pytest.raises(GitTooOld, match=r"2\.20"):
        git.require_version()


def test_git_of_a_vendor(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, "echo 'git version 2.39.5 (Apple Git-154)'\n")
    git.require_version()
    assert git.version() == (2, 39)


def test_not_a_repository_and_no_folder(tmp_path):
    with pytest.raises(NotARepository, match="not in a git repository"):
        git.run(["status"], str(tmp_path))
    with pytest.raises(NotARepository, match="does not exist"):
        git.run(["status"], str(tmp_path / "gone"))


def test_time_limit_ends_the_whole_group(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, f'echo $$ >"{tmp_path}/pid"\nsleep 1000 & sleep 1000\n')
    began = time.monotonic()
    with pytest.raises(TimedOut):
        git.run(["status"], str(tmp_path), limit=0.3)
    assert time.monotonic() - began < 5
    assert living_members(int((tmp_path / "pid").read_text())) == []


def test_a_git_that_ignores_term_is_killed(tmp_path, monkeypatch):
    fake_git(
        tmp_path,
        monkeypatch,
        f'trap "" TERM\necho $$ >"{tmp_path}/pid"\nwhile :; do sleep 1; done\n',
    )
    with pytest.raises(TimedOut):
        git.run(["status"], str(tmp_path), limit=0.3)
    assert living_members(int((tmp_path / "pid").read_text())) == []


def test_a_held_pipe_delays_only_for_a_moment(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, f"echo out\nsetsid sleep 30 & echo $! >'{tmp_path}/held'\n")
    began = time.monotonic()
    assert git.run(["status"], str(tmp_path)).text == "out"
    assert time.monotonic() - began < 5
    os.kill(int((tmp_path / "held").read_text()), 9)


def test_silent_stream_times_out(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, "echo first\nsleep 1000\n")
    stream = git.stream(["log"], str(tmp_path), idle_limit=0.3)
    assert next(stream) == b"first\n"
    with pytest.raises(TimedOut):
        next(stream)


def test_stream_reports_failure_after_its_chunks(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, "echo some\necho 'fatal: broken' >&2\nexit 3\n")
    stream = git.stream(["log"], str(tmp_path))
    assert next(stream) == b"some\n"
    with pytest.raises(GitError, match="git log: broken"):
        next(stream)


def test_too_much_output(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, "yes\n")
    with pytest.raises(TooLarge):
        git.run(["log"], str(tmp_path), max_bytes=100_000)


def test_much_stderr_is_drained_and_cut(tmp_path, monkeypatch):
    fake_git(
        tmp_path, monkeypatch, "yes noise | head -c 1000000 >&2\necho 'fatal: end' >&2\nexit 1\n"
    )
    with pytest.raises(GitError, match="end") as caught:
        git.run(["log"], str(tmp_path))
    assert len(str(caught.value.details["stderr"])) <= child.STDERR_LIMIT


def test_stdin_is_closed_and_given_whole(tmp_path):
    repo = plain(tmp_path)
    assert git.run(["hash-object", "--stdin"], str(repo)).text == run_git(
        repo, "hash-object", "/dev/null"
    )
    big = b"x" * 1_000_000
    write(repo, "big", big)
    assert git.run(["hash-object", "--stdin"], str(repo), stdin=big).text == run_git(
        repo, "hash-object", "big"
    )


def test_environment_of_the_caller_does_not_leak(tmp_path, monkeypatch):
    repo, other = plain(tmp_path / "one"), plain(tmp_path / "two")
    run_git(other, "commit", "-q", "--allow-empty", "-m", "else")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", "/nonexistent")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.pager=evil'")
    monkeypatch.delenv("GIT_CONFIG_COUNT", raising=False)
    assert git.run(["rev-parse", "--show-toplevel"], str(repo)).text == str(repo)
    env = environment()
    assert "GIT_DIR" not in env
    assert "GIT_CONFIG_PARAMETERS" not in env


def test_the_users_settings_are_read_only_when_asked_for(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    config = tmp_path / "config"
    config.write_text("[user]\n\tname = Somebody\n[core]\n\thooksPath = ~/hooks\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert git.ask(["config", "user.name"], str(repo)) == ""
    assert git.user_setting("user.name", str(repo)) == "Somebody"
    assert git.user_setting("core.hooksPath", str(repo), "path") == f"{tmp_path}/hooks"
    assert git.user_setting("user.nothing", str(repo)) == ""


def test_filters_with_any_name_are_silenced(tmp_path):
    repo = plain(tmp_path)
    log = tmp_path / "ran.log"
    for name in ("a.b", "with blank", "UPPER", "eq=ual", "ä"):
        run_git(repo, "config", f"filter.{name}.clean", f"echo {name} >>'{log}'; cat")
        run_git(repo, "config", f"filter.{name}.required", "true")
    attributes = "".join(f"{n}.txt filter={n}\n" for n in ("a.b", "UPPER", "eq=ual", "ä"))
    write(repo, ".gitattributes", attributes)
    for name in ("a.b", "UPPER", "eq=ual", "ä"):
        write(repo, f"{name}.txt", "x\n")
    run_git(repo, "add", "-A")
    run_git(repo, "commit", "-qm", "x")
    log.unlink(missing_ok=True)
    for name in ("a.b", "UPPER", "eq=ual", "ä"):
        os.utime(repo / f"{name}.txt", (1, 1))
    assert git.run(["status", "--porcelain"], str(repo), content=True).out == b""
    assert not log.exists()


def test_an_argument_with_a_nul_is_a_typed_error(tmp_path):
    with pytest.raises(GitError):
        git.run(["log", "a\0b"], str(plain(tmp_path)))


@pytest.mark.parametrize(
    ("err", "kind", "words"),
    [
        ("fatal: not a git repository (or any parent): .git", NotARepository, "not in a git"),
        (
            "fatal: Unable to create '/r/.git/index.lock': File exists.\n\nAnother git process",
            RepositoryLocked,
            "/r/.git/index.lock",
        ),
        ("fatal: write error: No space left on device", StorageFull, "disk is full"),
        ("fatal: detected dubious ownership in repository at '/r'", DubiousOwnership, "/r"),
        ("error: Permission denied", GitError, "Permission denied"),
        ("", GitError, "exit code 128"),
    ],
)
def test_explanations(err, kind, words):
    error = explain(["commit"], "/r", 128, err)
    assert type(error) is kind
    assert words in str(error)
    if kind is not GitError or "Permission" in err:
        assert error.remedy


def test_credentials_never_reach_an_error():
    error = explain(["fetch"], "/r", 128, "fatal: can't access 'https://me:tok3n@host/x.git/'")
    assert "tok3n" not in str(error) + str(error.details)
    assert without_credentials("ssh://u@h/x https://a:b@c/d") == "ssh://h/x https://c/d"


@pytest.mark.parametrize(
    "text", ["plain", "with blank", "it's", 'a"b', "new\nline\x07", "ä", "-x", "\udcff'"]
)
def test_shell_quote_gives_the_same_word_back(text):
    line = f"printf '%s' {shell_quote(text)}"
    assert "\n" not in line
    out = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
    assert out == os.fsencode(text)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a repository away")
def test_dubious_ownership_names_the_owner_and_the_users_trust_is_obeyed(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    subprocess.run(["chown", "-R", "65534:65534", str(repo)], check=True)
    monkeypatch.setenv("SUDO_UID", "65534")
    with pytest.raises(DubiousOwnership) as caught:
        git.run(["rev-parse", "HEAD"], str(repo))
    assert "nobody" in str(caught.value)
    assert f"safe.directory {repo}" in caught.value.remedy
    with pytest.raises(DubiousOwnership):
        list(git.stream(["log"], str(repo)))
    config = tmp_path / "config"
    config.write_text(f"[safe]\n\tdirectory = {repo}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert git.run(["rev-parse", "HEAD"], str(repo)).text
    assert list(git.stream(["log"], str(repo)))

"""A node's policy: what it can't name it does not allow."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handoff.errors import ConfigError, PathNotAllowed, PolicyDenied
from handoff.nodes.node.commands import find_program, fixed_path, plain
from handoff.nodes.node.globs import compile_pattern
from handoff.nodes.node.policy import DENIED, LIMIT, Policy, load, parse
from handoff.nodes.node.treecalls import _Reads, _Writes

HOME = "/home/user"


def policy(text: str) -> Policy:
    return parse(text.encode(), HOME)


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("/srv/app", "/srv/app", True),
        ("/srv/app", "/srv/app/x/y", True),
        ("/srv/app", "/srv/application", False),
        ("/srv/app/", "/srv/app/x", True),
        ("/srv/app/**", "/srv/app", True),
        ("/srv/*/data", "/srv/one/data/f", True),
        ("/srv/*/data", "/srv/one/two/data", False),
        ("/srv/**/data", "/srv/one/two/data", True),
        ("/srv/**/data", "/srv/data", True),
        ("/srv/*.txt", "/srv/a.txt", True),
        ("/srv/*.txt", "/srv/a.txt.bak", False),
        ("/srv/[ab]", "/srv/b", True),
        ("/srv/[!ab]", "/srv/b", False),
        ("/srv/[!ab]x", "/srv//x", False),
        ("~/p", "/home/user/p/q", True),
        ("~", "/home/user/x", True),
        ("**/.env", "/any/where/.env", True),
        ("**/.env", "/any/where/.env.example", False),
        ("**", "/", True),
        ("/", "/etc/passwd", True),
        ("/s?v", "/srv", True),
        ("/s?v", "/s/v", False),
    ],
)
def test_a_pattern_names_a_place_and_what_is_below(pattern: str, path: str, found: bool) -> None:
    assert compile_pattern(pattern, HOME).matches(path) is found


@pytest.mark.parametrize("pattern", ["", "srv", "./a", "/a/../b", "/a//b", "/a/./b", "/a\0b", "~x"])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError):
        compile_pattern(pattern, HOME)


def test_a_pattern_through_a_link_is_where_it_leads(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    assert compile_pattern(f"{tmp_path}/alias/**", HOME).matches(f"{tmp_path}/real/x")


@pytest.mark.parametrize("path", ["/home/user/.ssh/id", "/home/user/.SSH/id", "/x/.env", "/proc/1"])
def test_credentials_are_kept_whatever_allows_them(path: str) -> None:
    decision = policy('read = ["/**"]\nwrite = ["/**"]').may_read(path)
    assert not decision.allowed
    assert decision.rule in DENIED
    assert policy('read = ["/**"]\ndeny_defaults = false').may_read(path).allowed


RULES = """
read = ["/srv"]
[exec]
default = "ask"
[[exec.rules]]
match = "git status **"
verdict = "allow"
reads = true
[[exec.rules]]
match = "make *"
verdict = "allow"
[[exec.rules]]
match = "rm **"
verdict = "deny"
[[exec.rules]]
match = "curl **"
verdict = "ask"
"""


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("git status", "allow"),
        ("git status --short 'a b'", "allow"),
        (["git", "status", "; rm -rf /"], "allow"),
        ("git status; id", "ask"),
        ("git status $(id)", "ask"),
        ('git status "$(id)"', "ask"),
        ("git status `id`", "ask"),
        ("git status\nid", "ask"),
        ("git status > /etc/x", "ask"),
        ("git status && make all", "ask"),
        ("GIT_PAGER=x git status", "ask"),
        ("/tmp/git status", "ask"),
        (["/tmp/git", "status"], "ask"),
        ("make all", "allow"),
        ("make all install", "ask"),
        ("make", "ask"),
        ("rm x", "deny"),
        ("/bin/rm x", "deny"),
        ("true; rm x", "deny"),
        ("sudo -u root rm x", "deny"),
        ("env A=b rm x", "deny"),
        ("A=b rm x", "deny"),
        ("bash -c 'ls; rm x'", "deny"),
        ("xargs -n 1 rm", "deny"),
        ("timeout 5 rm x", "deny"),
        ("echo $(rm x)", "deny"),
        ("'r''m' x", "deny"),
        (["sudo", "rm", "x"], "deny"),
        ("bash -lc 'rm x'", "deny"),
        (["bash", "-l", "-c", "ls && rm x", "name"], "deny"),
        ("bash -o pipefail -ec 'rm x'", "deny"),
        ("bash -co pipefail 'rm x'", "deny"),
        ("bash --noprofile +O extglob -c 'rm x'", "deny"),
        ("bash -c 'git status' rm", "ask"),  # its $0, which nothing runs
        ("bash --rcfile 'rm x'", "ask"),
        ("if true; then rm x; fi", "deny"),
        ("for a in 1; do rm x; done", "deny"),
        ("! rm x", "deny"),
        ("eval 'ls; rm x'", "deny"),
        (["bash", "-c", "rm x"], "deny"),
        ("echo rm", "ask"),
        ("git status | curl -d @- x", "ask"),
    ],
)
def test_a_command_is_judged_by_its_words(command: str | list[str], verdict: str) -> None:
    assert policy(RULES).may_run(command).verdict == verdict


@pytest.mark.parametrize(
    "name", ["PATH", "BASH_ENV", "LD_PRELOAD", "GIT_SSH_COMMAND", "BASH_FUNC_git%%", "LC_ALL=", "X"]
)
def test_a_variable_that_may_change_what_runs_takes_the_allowance(name: str) -> None:
    # /srv/x may well be a folder that the brain can write to
    ruled = policy(RULES)
    assert ruled.may_run("git status", {"LANG": "C", "TZ": "UTC"}).allowed
    assert ruled.may_run("git status", {name: "/srv/x"}).verdict == "ask"
    assert ruled.may_run("rm x", {name: "/srv/x"}).verdict == "deny"
    assert not ruled.may_open_shell({name: "/srv/x"}).allowed
    assert ruled.may_open_shell({"LANG": "C"}).allowed
    open_ = policy('[exec]\ndefault = "allow"')
    assert open_.may_run("git status", {name: "x"}).allowed
    assert open_.may_open_shell({name: "x"}).allowed


@pytest.mark.parametrize(
    ("match", "command", "allowed"),
    [
        ("/opt/tools/run **", "/opt/tools/run x", True),
        ("/opt/tools/* **", "/opt/tools/run x", True),
        ("/opt/tools/* **", "/opt/tools/../../tmp/evil x", False),
        ("/opt/tools/* **", "/opt/tools/below/evil x", False),
        ("/opt/tools/* **", "/opt/tools//evil x", False),
        ("/opt/*/run", "/opt/../run", False),
        ("* --version", "git --version", True),
        ("* --version", "/tmp/evil --version", False),
        ("* --version", "./evil --version", False),
        ("git **", "./git status", False),
        ("g[hi]t **", "git status", True),
        ("**", "./anything at all", True),
    ],
)
def test_an_allowed_program_is_the_one_that_is_named(
    match: str, command: str, allowed: bool
) -> None:
    rules = f'[exec]\ndefault = "deny"\n[[exec.rules]]\nmatch = "{match}"\nverdict = "allow"'
    for words in (command, command.split()):
        ruled = policy(rules).may_run(words)
        assert (ruled.verdict == "allow", ruled.named) == (allowed, allowed)


@pytest.mark.parametrize("match", ["./run **", "bin/run", "../x", "/srv/../x", "~/run", "/srv//x"])
def test_a_program_that_each_folder_has_can_t_be_allowed(match: str) -> None:
    rule = f'[[exec.rules]]\nmatch = "{match}"\nverdict = '
    with pytest.raises(ConfigError, match="an allowed program"):
        policy(rule + '"allow"')
    assert policy(rule + '"deny"').rules


def test_a_name_means_a_file_of_the_node(tmp_path: pathlib.Path) -> None:
    for name in ("first/x", "second/x", "second/y"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / "first" / "x").chmod(0o644)
    (tmp_path / "second" / "x").chmod(0o755)
    assert fixed_path(f".:{tmp_path}/first::bin:{tmp_path}/second:") == (
        f"{tmp_path}/first:{tmp_path}/second"
    )
    assert fixed_path(":.:bin") == os.defpath
    path = f"{tmp_path}/first:{tmp_path}/second"
    assert find_program("x", path) == f"{tmp_path}/second/x"
    assert find_program("y", path) == ""
    assert find_program("./x", path) == ""
    assert find_program("/bin/none", path) == "/bin/none"


def test_read_only_runs_only_what_a_rule_says_reads() -> None:
    closed = policy("read_only = true" + RULES)
    assert closed.may_run("git status").allowed
    assert closed.may_run("make all").verdict == "deny"
    assert closed.may_run("id").verdict == "deny"
    assert not closed.may_write("/srv/x").allowed


def test_switched_off_is_off() -> None:
    off = policy("enabled = false" + RULES)
    assert off.may_run("git status").verdict == "deny"
    assert off.may_read("/srv/x").verdict == "deny"


def test_no_shell_means_argument_lists() -> None:
    closed = policy('[exec]\nshell = false\ndefault = "allow"')
    assert closed.may_run(["id"]).allowed
    assert not closed.may_run("id").allowed


@pytest.mark.parametrize(
    "text",
    [
        "reed = []",
        "read = 'x'",
        "read = [1]",
        "read = ['relative']",
        "read = ['/srv/[z-a]']",
        "enabled = 1",
        "exec = 1",
        "[exec]\ndefault = 'maybe'",
        "[exec]\nrules = 1",
        "[[exec.rules]]\nmatch = 'x'",
        "[[exec.rules]]\nmatch = ''\nverdict = 'allow'",
        "[[exec.rules]]\nmatch = \"it's\"\nverdict = 'allow'",
        "[[exec.rules]]\nmatch = 'x'\nverdict = 'allow'\nmore = 1",
        "not toml",
        "\xff",
    ],
)
def test_a_file_that_is_wrong_refuses_and_names_the_key(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text.encode("latin-1"), HOME, "policy.toml")
    assert "policy.toml" in str(raised.value)


def test_a_file_that_others_may_change_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("read_only = true")
    path.chmod(0o666)
    with pytest.raises(ConfigError):
        load(str(path), HOME)
    path.chmod(0o644)
    assert load(str(path), HOME).read_only


def test_without_a_file_the_configured_paths_count(tmp_path: pathlib.Path) -> None:
    made = load(str(tmp_path / "none"), HOME, ["/srv"])
    assert made.may_read("/srv/x").allowed
    assert not made.may_read("/etc/x").allowed
    assert made.may_run("id").allowed
    assert not load(str(tmp_path / "none"), HOME).may_read("/srv/x").allowed


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.text(st.sampled_from("ab \t'\"\\$`;&|<>(){}[]*?~#!=-\n\r/.,:%^@+é\0"), max_size=8),
        min_size=1,
        max_size=4,
    ).map(" ".join)
)
@example("a 'b;c' d")
@example('a "b c"')
@example("a 'it'\"'\"'s'")
def test_what_counts_as_plain_is_what_a_shell_runs(line: str) -> None:
    words = plain(line)
    if words is None or "\0" in line:
        return
    shown = subprocess.run(
        ["bash", "--norc", "-c", "printf '%s\\0' " + line],
        capture_output=True,
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        cwd="/",
        check=True,
    ).stdout
    assert shown == b"".join(os.fsencode(word) + b"\0" for word in words)


@pytest.mark.parametrize("text", ["", "deny_defaults = false", "enabled = true"])
def test_the_nodes_own_folder_is_kept_wherever_it_is(tmp_path: pathlib.Path, text: str) -> None:
    own = tmp_path / "own [1]"
    own.mkdir()
    path = own / "policy.toml"
    if text:
        path.write_text(f'read = ["{tmp_path}"]\nwrite = ["{tmp_path}"]\n{text}\n')
    (tmp_path / "link").symlink_to(own)
    for place in (path, tmp_path / "link" / "policy.toml"):
        made = load(str(place), HOME, [str(tmp_path)])
        assert made.may_write(f"{tmp_path}/x").allowed
        for name in ("", "/policy.toml", "/locked", "/config.toml", "/calls/x"):
            assert not made.may_read(f"{own}{name}").allowed
            assert not made.may_write(f"{own}{name}").allowed


def test_a_command_starts_where_the_policy_says() -> None:
    assert policy("").may_start_in("/anywhere").allowed
    kept = policy('[exec]\ncwd = ["/srv/app"]')
    assert kept.may_start_in("/srv/app/x").allowed
    assert not kept.may_start_in("/srv").allowed
    assert not kept.may_start_in("/anywhere").allowed


def test_what_may_not_be_read_or_written_is_refused() -> None:
    made = policy('read = ["/srv"]\nwrite = ["/srv"]\ndeny = ["/srv/kept"]')
    made.require_read("/srv/x", "x")
    made.require_write("/srv/x", "x")
    for require in (made.require_read, made.require_write):
        with pytest.raises(PathNotAllowed) as refused:
            require("/srv/kept/x", "kept/x")
        assert refused.value.details["rule"] == "/srv/kept"
        with pytest.raises(PathNotAllowed):
            require("/etc/x", "/etc/x")


def test_a_policy_that_is_too_large_is_none(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(b"#" * LIMIT)
    path.chmod(0o600)
    load(str(path), HOME)
    path.write_bytes(b"#" * (LIMIT + 1))
    with pytest.raises(ConfigError, match="larger than"):
        load(str(path), HOME)


def test_a_tree_is_ruled_on_by_the_policy_of_the_moment() -> None:
    allows = policy('read = ["/srv"]\nwrite = ["/srv"]')
    for ruling in (_Reads, _Writes):
        now = [allows]
        may = ruling(lambda now=now: now[0])
        may("/srv/t/a")
        with pytest.raises(PathNotAllowed):
            may("/etc/a")
        now[0] = policy('deny = ["/srv/t"]\nread = ["/srv"]\nwrite = ["/srv"]')
        with pytest.raises(PathNotAllowed):
            may("/srv/t/b")
        now[0] = Policy(enabled=False)
        with pytest.raises(PolicyDenied):
            may("/srv/t/c")
        now[0] = allows
        may("/srv/t/d")
    with pytest.raises(PathNotAllowed):
        _Writes(lambda: policy('read_only = true\nwrite = ["/srv"]'))("/srv/t/a")


_NAMES = st.sampled_from(["a", "A", "b", "ab", "link", ".env", "x"])
_PLACES = st.lists(_NAMES, max_size=3).map(lambda names: "/".join(["", "top", *names]))
_PATTERNS = st.lists(
    st.one_of(
        _PLACES,
        _PLACES.map(lambda one: one + "/*"),
        _PLACES.map(lambda one: one + "/**"),
        st.sampled_from(["/", "**", "**/a", "**/.env", "/top/*/b", "/t*/a", "/elsewhere"]),
    ),
    max_size=4,
)


@given(read=_PATTERNS, deny=_PATTERNS, folder=_PLACES, name=_NAMES, on=st.booleans())
def test_a_folder_is_ruled_on_as_each_of_its_names(
    tmp_path_factory: pytest.TempPathFactory,
    read: list[str],
    deny: list[str],
    folder: str,
    name: str,
    on: bool,
) -> None:
    root = os.path.realpath(tmp_path_factory.getbasetemp() / "ruled")
    os.makedirs(f"{root}/top/a/b", exist_ok=True)
    if not os.path.lexists(f"{root}/top/link"):
        os.symlink("a", f"{root}/top/link")

    def below(patterns: list[str]) -> list[str]:
        return [one if one.startswith("**") else root + one for one in patterns]

    made = policy(f"enabled = {str(on).lower()}\nread = {below(read)}\ndeny = {below(deny)}")
    here = root + folder
    expected = made.may_read(os.path.join(here, name)).allowed
    assert made.readable_in(here)(name) is expected

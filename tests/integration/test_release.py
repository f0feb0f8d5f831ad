"""The releases of the plugins, made by the script that people call."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib
from typing import Any

import pytest
from tests.support.home import Home
from tests.support.repository import Repository

from handoff.sessions import release

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLUGINS = tomllib.loads((ROOT / "packaging" / "plugins.toml").read_text("utf-8"))
NAME = "hermes-handoff"
SUFFIXES = (".py", ".md", ".yaml", ".json", ".js", ".mjs", ".css", ".sql")
PLUGIN = "src/handoff/plugins/hermes_handoff"

#: a directory loaded as a host loads one: under a name of the host's, beside another Handoff
LOAD = """
import importlib.util, pathlib, sys, types
sys.modules["host_plugins"] = types.ModuleType("host_plugins")
sys.modules["host_plugins"].__path__ = []
home, other = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, str(other))
spec = importlib.util.spec_from_file_location(
    "host_plugins.one__of_them", home / "__init__.py", submodule_search_locations=[str(home)])
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
before = set(sys.modules)
spec.loader.exec_module(module)
import importlib, pkgutil
for found in pkgutil.walk_packages(module.__path__, spec.name + "."):
    if not found.name.split(".")[2].startswith(("dashboard", "mcp")):
        importlib.import_module(found.name)
assert callable(module.register)
assert "handoff" not in sys.modules
import handoff
assert handoff.__version__ == "0.0.0-other"
outside = {name.split(".")[0] for name in set(sys.modules) - before}
outside -= {"host_plugins", "handoff"} | set(sys.stdlib_module_names)
print(sorted(outside))
"""


def git(folder: pathlib.Path, home: Home, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", folder, *words], env=home.env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def commit() -> str:
    """What HEAD was when these tests began."""
    done = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: pathlib.Path, isolated_home: Home, commit: str) -> pathlib.Path:
    """Another checkout of the same commit."""
    made = tmp_path / "another place"
    source = ["clone", "--quiet", "--no-checkout", "--no-local", str(ROOT), str(made)]
    git(tmp_path, isolated_home, "-c", "safe.directory=*", *source)
    git(made, isolated_home, "checkout", "--quiet", "--detach", commit)
    return made


def run(root: pathlib.Path, out: pathlib.Path, *flags: str, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, root / "scripts" / "release", *flags, out],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def made(root: pathlib.Path, out: pathlib.Path, *flags: str, **env: str) -> dict[str, bytes]:
    code, _, told = run(root, out, *flags, **env)
    assert code == 0, told
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def archive_in(out: pathlib.Path, name: str = NAME) -> str:
    return str(next(out.glob(f"{name}-*/*.tar.gz")))


def test_the_same_commit_gives_the_same_bytes_anywhere(
    clone: pathlib.Path, commit: str, tmp_path: pathlib.Path
) -> None:
    first = made(ROOT, tmp_path / "one", "--commit", commit)
    (clone / PLUGIN / "untracked.py").write_text("evil = 1\n")
    (clone / PLUGIN / "tool.py").write_text("changed = 1\n")
    for path in clone.rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o777)
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    before = os.umask(0o077)
    try:
        second = made(
            clone,
            tmp_path / "two",
            LC_ALL="C.UTF-8",
            TZ="Pacific/Auckland",
            TMPDIR=str(elsewhere),
            PYTHONHASHSEED="7",
            SOURCE_DATE_EPOCH="1",
            COLUMNS="20",
        )
    finally:
        os.umask(before)
    assert first == second
    assert not os.listdir(elsewhere)


def test_an_archive_holds_what_is_allowed_and_can_be_verified(
    commit: str, tmp_path: pathlib.Path
) -> None:
    made(ROOT, tmp_path / "out", "--commit", commit)
    sums = dict(
        reversed(line.split("  "))
        for line in (tmp_path / "out/SHA256SUMS").read_text().splitlines()
    )
    assert len(sums) == len(PLUGINS)
    for name in PLUGINS:
        archive = archive_in(tmp_path / "out", name)
        found = release.verify(archive, sha256=sums[os.path.relpath(archive, tmp_path / "out")])
        assert found.name == name
        assert found.digest_given
        paths = [one.path.removeprefix(f"{name}/") for one in found.members]
        for wanted in ("LICENSE", "NOTICE", "README.md", "plugin.yaml", "__init__.py"):
            assert wanted in paths
        for path in paths:
            words = path.lower().split("/")
            assert not {"tests", "test", "package.json", "node_modules", ".env"} & set(words), path
            assert path.endswith(SUFFIXES) or path.isupper()
        assert all(one.mode == 0o644 for one in found.members)
        for line in subprocess.run(
            ["sha256sum", "--check", "SHA256SUMS"],
            cwd=tmp_path / "out",
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines():
            assert line.endswith("OK")


def test_the_directory_needs_nothing_and_meets_no_other_handoff(
    commit: str, tmp_path: pathlib.Path, isolated_home: Home
) -> None:
    made(ROOT, tmp_path / "out", "--commit", commit)
    home = release.extract(release.verify(archive_in(tmp_path / "out")), str(tmp_path))
    other = tmp_path / "site"
    (other / "handoff").mkdir(parents=True)
    (other / "handoff" / "__init__.py").write_text('__version__ = "0.0.0-other"\n')
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", LOAD, home, other],
        env=isolated_home.env,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_directory_serves_mcp_by_itself(
    commit: str, tmp_path: pathlib.Path, isolated_home: Home, git_repo: Repository
) -> None:
    """Every action finds its parts, also those that are imported by name."""
    made(ROOT, tmp_path / "out", "--commit", commit)
    home = release.extract(release.verify(archive_in(tmp_path / "out")), str(tmp_path))
    state = {"schema": "handoff-state/2", "goal": {"text": "Make the parser total"}}
    there = {"workspace": str(git_repo.path)}
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", pathlib.Path(home) / "mcp" / "server.py"],
        env=isolated_home.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout

    def ask(method: str, params: dict[str, Any]) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())["result"]

    def call(action: str, **arguments: Any) -> dict[str, Any]:
        given = {"name": "hermes_handoff", "arguments": {"action": action, **arguments}}
        reply = ask("tools/call", {**given, "_meta": {"threadId": "thread-1"}})
        found: dict[str, Any] = reply["structuredContent"]
        assert found.get("code") != "internal", found
        return found

    try:
        client = {"name": "codex-mcp-client", "version": "1"}
        ask("initialize", {"protocolVersion": "2025-11-25", "clientInfo": client})
        assert call("evidence", **there)["session"] == "thread-1"
        ref = call("create", request_id="request-0001", state=state, **there)["ref"]
        prepared = call("prepare_open", ref=ref, attempt_id="attempt-0001", host="claude", **there)
        assert prepared["ok"], prepared
        for action in ("show", "validate", "log", "verify", "opening_status", "read"):
            assert call(action, ref=ref)["ok"], action
        assert call("list")["total"] == 1
        assert call("search", query="parser")["records"]
        call("summarize", model="m", provider="p", accept_cost=True, **there)
        call("ack", attempt_id="attempt-0001", ref=ref, digest="x", constraint_ids=[])
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def test_the_plugin_for_nodes_needs_what_its_host_has(
    commit: str, tmp_path: pathlib.Path, isolated_home: Home
) -> None:
    made(ROOT, tmp_path / "out", "--commit", commit)
    archive = archive_in(tmp_path / "out", "hermes-node-plugin")
    home = release.extract(release.verify(archive), str(tmp_path))
    other = tmp_path / "site"
    (other / "handoff").mkdir(parents=True)
    (other / "handoff" / "__init__.py").write_text('__version__ = "0.0.0-other"\n')
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", LOAD, home, other],
        env=isolated_home.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    needs = {name.strip("'") for name in done.stdout.strip("[]\n").split(", ")}
    # what begins with an underscore is a part of cryptography's own
    assert {name for name in needs if name[0] != "_"} == {"cryptography", "websockets"}


def test_credits_for_media_stand_apart_from_the_licence(
    commit: str, tmp_path: pathlib.Path
) -> None:
    """And as long as there are none, there are no media."""
    made(ROOT, tmp_path / "out", "--commit", commit)
    for name in PLUGINS:
        found = release.verify(archive_in(tmp_path / "out", name)).members
        texts = {one.path.removeprefix(f"{name}/"): one.content.decode() for one in found}
        licence, lineage, media = (texts["NOTICE"].index(f"\n{x}") for x in ("Lic", "Lin", "Media"))
        assert licence < lineage < media
        assert "Apache License" in texts["LICENSE"]
        assert "Media" not in texts["LICENSE"]
        if "No images, sounds, videos or fonts are contained." in texts["NOTICE"]:
            assert all(path.endswith(SUFFIXES) or path.isupper() for path in texts)


def test_nothing_is_written_over(commit: str, tmp_path: pathlib.Path) -> None:
    before = made(ROOT, tmp_path / "out", "--commit", commit)
    code, _, told = run(ROOT, tmp_path / "out", "--commit", commit)
    assert code == 1
    assert "is there already" in told
    out = tmp_path / "out"
    assert before == {
        p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()
    }


@pytest.mark.parametrize("commit", ["no-such-commit", "-x", "--output=/tmp/x"])
def test_what_is_no_commit_is_refused(commit: str, tmp_path: pathlib.Path) -> None:
    code, _, told = run(ROOT, tmp_path / "out", f"--commit={commit}")
    assert code == 1
    assert told.startswith("release: ")
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        ("package.json", "{}", "package.json: no pattern"),
        ("tests/test_x.py", "", "tests/test_x.py: no pattern"),
        (".env", "A=1", ".env: no pattern"),
        ("notes.md", "x", "notes.md: no pattern"),
        ("skills/x/SKILL.md", "key: sk-ant-" + "api03-" + "aB3dE5" * 16, "looks like a secret"),
        ("skills/x/SKILL.md", "name: \xff", "it is no text"),
        ("plugin.yaml", f"name: {NAME}\nversion: 9.9.9\n", "does not say hermes-handoff"),
    ],
)
def test_what_does_not_belong_in_stops_the_release(
    path: str,
    text: str,
    told: str,
    clone: pathlib.Path,
    tmp_path: pathlib.Path,
    isolated_home: Home,
) -> None:
    target = clone / PLUGIN / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text.encode("latin-1"))
    git(clone, isolated_home, "add", "--force", str(target))
    git(clone, isolated_home, "commit", "--quiet", "--message=More")
    code, _, said = run(clone, tmp_path / "out")
    assert code == 1
    assert told in said
    assert not (tmp_path / "out").exists()
    shutil.rmtree(clone)


def test_each_plugin_says_what_the_table_says() -> None:
    for name, entry in PLUGINS.items():
        folder = ROOT / "src" / "handoff" / "plugins" / entry["package"]
        assert f"name: {name}\n" in (folder / "plugin.yaml").read_text("utf-8")
        for manifest in (*folder.glob("plugin.json"), *folder.glob(".*/plugin.json")):
            assert json.loads(manifest.read_text("utf-8"))["name"] == name

"""Repositories to test with, each built by real git, without anybody's configuration.

``build(name, folder)`` makes one of :data:`BUILDERS` in a new folder and returns its path.
"""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

GIT_ENV = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada Test",
    "GIT_AUTHOR_EMAIL": "ada@example.invalid",
    "GIT_COMMITTER_NAME": "Ada Test",
    "GIT_COMMITTER_EMAIL": "ada@example.invalid",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def run_git(cwd: Path | str, *args: str, check: bool = True, **env: str) -> str:
    """Plain git, as a person would run it; returns its output without the last newline."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    done = subprocess.run(
        ["git", *args],
        cwd=cwd,
        env={**clean, **GIT_ENV, **env},
        capture_output=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"git {args}: {done.stderr.decode('utf-8', 'replace')}")
    return os.fsdecode(done.stdout).removesuffix("\n")


def init(folder: Path) -> Path:
    """An empty repository on branch main."""
    folder.mkdir(parents=True, exist_ok=True)
    run_git(folder, "init", "-q", "-b", "main")
    return folder


def commit(repo: Path, message: str = "change", **files: str) -> str:
    """Write files (``__`` in a name is a slash, ``_dot_`` a dot) and commit everything."""
    for name, text in files.items():
        write(repo, name.replace("__", "/").replace("_dot_", "."), text)
    run_git(repo, "add", "-A")
    run_git(repo, "commit", "-q", "--allow-empty", "-m", message)
    return run_git(repo, "rev-parse", "HEAD")


def write(repo: Path, name: str, text: str | bytes) -> Path:
    """One file with its folders."""
    path = repo / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return path


def script(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


def plain(folder: Path) -> Path:
    """Two commits on main."""
    repo = init(folder / "plain")
    commit(repo, "first", a_dot_txt="a\n", src__b_dot_py="print(1)\n")
    commit(repo, "second", a_dot_txt="a\nb\n")
    return repo


def submodule(folder: Path) -> Path:
    """``super`` with the submodule ``vendor/lib`` (populated in the main worktree)."""
    lib = init(folder / "lib")
    commit(lib, "lib", lib_dot_h="#define LIB 1\n")
    repo = init(folder / "super")
    commit(repo, "first", main_dot_c="int main;\n")
    run_git(
        repo, "-c", "protocol.file.allow=always", "submodule", "-q", "add", str(lib), "vendor/lib"
    )
    commit(repo, "add vendor/lib")
    return repo


def lfs(folder: Path) -> Path:
    """A pointer ``model.bin`` with a filter in the repository's own configuration that
    would log (and fail) if it were run."""
    repo = init(folder / "lfs")
    write(repo, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    pointer = (
        "version https://git-lfs.github.com/spec/v1\n"
        "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
    )
    write(repo, "model.bin", pointer)
    commit(repo, "model")
    log = folder / "ran.log"
    for purpose in ("smudge", "clean", "process"):
        run_git(repo, "config", f"filter.lfs.{purpose}", f"echo {purpose} >>'{log}'; exit 1")
    run_git(repo, "config", "filter.lfs.required", "true")
    return repo


def branch_prefix(folder: Path) -> Path:
    """Branches ``release/1.0`` and ``topic``: ``release`` and ``topic/x`` are impossible."""
    repo = plain(folder)
    run_git(repo, "branch", "release/1.0")
    run_git(repo, "branch", "topic")
    return repo


NAMES = [
    b"plain.txt",
    b"with blank.txt",
    b" lead and trail ",
    b"-rf",
    b"--output=x",
    b"*.txt",
    b":(glob)star.txt",
    b"!bang",
    b"quote'single",
    b'quote"double',
    b"back\\slash",
    b"tab\there",
    b"new\nline",
    b"bell\x07",
    "umlaut-ä.txt".encode(),
    "emoji-🚀.txt".encode(),
    "bidi-\u202etxt.exe".encode(),
    b"raw-\xff\xfe.bin",
    b"dir with blank/inner file",
    b"#hash",
]


def names(folder: Path) -> Path:
    """Branch ``work`` adds :data:`NAMES` and renames ``old name.txt`` to ``new name.txt``."""
    repo = init(folder / "names")
    commit(repo, "first", **{"old name_dot_txt": "".join(f"line {n}\n" for n in range(40))})
    run_git(repo, "switch", "-q", "-c", "work")
    for raw in NAMES:
        path = os.path.join(os.fsencode(repo), raw)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"content of " + raw.replace(b"\n", b" ") + b"\n")
    run_git(repo, "mv", "old name.txt", "new name.txt")
    commit(repo, "names")
    run_git(repo, "switch", "-q", "main")
    return repo


def hostile_config(folder: Path) -> Path:
    """``gitconfig`` beside the files names a program in every place that runs one, and
    changes every output; each program writes ``ran.log`` beside the repository. The same
    settings stand in the repository's own configuration."""
    repo = init(folder / "hostile-config")
    log = folder / "ran.log"
    write(repo, "a.txt", "one\ntwo\nthree\n")
    write(repo, ".gitattributes", "*.txt filter=evil diff=evil merge=evil\n")
    commit(repo, "first")
    run_git(repo, "switch", "-q", "-c", "work")
    commit(repo, "work", a_dot_txt="one\nTWO\nthree\n", new_dot_txt="new\n")
    run_git(repo, "mv", "new.txt", "moved.txt")
    commit(repo, "moved")
    run_git(repo, "switch", "-q", "main")
    program = script(folder / "evil.sh", f'echo "$0 $*" >>"{log}"\ncat 2>/dev/null\nexit 0\n')
    hooks = folder / "evil-hooks"
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
        script(hooks / hook, f'echo "hook {hook}" >>"{log}"\n')
    config = hostile_settings(program, hooks)
    (repo / "gitconfig").write_text(config)
    with (repo / ".git" / "config").open("a") as file:
        file.write(config)
    with (repo / ".git" / "info" / "exclude").open("a") as file:
        file.write("gitconfig\n")
    return repo


def hostile_settings(program: Path, hooks: Path) -> str:
    """A configuration file in which everything is a trap."""
    return f"""
[core]
\thooksPath = {hooks}
\tfsmonitor = {program}
\tpager = {program}
\teditor = {program}
\taskPass = {program}
\tsshCommand = {program}
\tquotePath = true
\texcludesFile = {hooks.parent}/hide-all
[diff]
\texternal = {program}
\tnoprefix = true
\tmnemonicPrefix = true
\trenames = false
\tcontext = 0
\talgorithm = histogram
\tcolorMoved = zebra
\tsubmodule = diff
\trelative = true
[diff "evil"]
\ttextconv = {program}
\tcommand = {program}
[filter "evil"]
\tclean = {program}
\tsmudge = {program}
\trequired = true
[merge "evil"]
\tdriver = {program}
[color]
\tui = always
[status]
\tshowUntrackedFiles = no
\tshort = true
\tbranch = true
[credential]
\thelper = !{program}
[alias]
\tstatus = !{program}
\tdiff = !{program}
[commit]
\tgpgSign = true
[gpg]
\tprogram = {program}
[log]
\tshowSignature = true
[submodule]
\trecurse = true
[interactive]
\tdiffFilter = {program}
"""


def sparse(folder: Path) -> Path:
    """160 files, of which a cone-mode sparse checkout shows ``app`` only."""
    repo = init(folder / "sparse")
    for part in ("app", "docs", "web", "data"):
        for number in range(40):
            write(repo, f"{part}/f{number}.txt", f"{part} {number}\n")
    commit(repo, "many")
    run_git(repo, "sparse-checkout", "set", "--cone", "app")
    return repo


def bare_hub(folder: Path) -> Path:
    """``hub/.bare`` with ``hub/.git`` pointing at it and the worktree ``hub/main``."""
    source = plain(folder / "source")
    hub = folder / "hub"
    hub.mkdir()
    run_git(folder, "clone", "-q", "--bare", str(source), str(hub / ".bare"))
    (hub / ".git").write_text("gitdir: ./.bare\n")
    run_git(hub, "worktree", "add", "-q", str(hub / "main"), "main")
    return hub


def bare_plain(folder: Path) -> Path:
    """``hub.git`` is the bare repository itself and holds the worktree ``main``."""
    source = plain(folder / "source")
    hub = folder / "hub.git"
    run_git(folder, "clone", "-q", "--bare", str(source), str(hub))
    run_git(hub, "worktree", "add", "-q", str(hub / "main"), "main")
    return hub


def huge_line(folder: Path) -> Path:
    """Branch ``work`` adds a 24 MiB line and changes one line of ``app.py``."""
    repo = init(folder / "huge-line")
    commit(repo, "first", app_dot_py="".join(f"x = {n}\n" for n in range(50)))
    run_git(repo, "switch", "-q", "-c", "work")
    write(repo, "bundle.js", "var a=" + "0123456789abcdef" * (24 * 1024 * 64) + ";\n")
    write(repo, "app.py", "".join(f"x = {'new' if n == 25 else n}\n" for n in range(50)))
    commit(repo, "work")
    run_git(repo, "switch", "-q", "main")
    return repo


def hooks(folder: Path) -> Path:
    """Hooks that log to ``ran.log`` beside the repository and sleep as ``slow`` says."""
    repo = plain(folder)
    body = f"echo $0 >>'{folder}/ran.log'; read s <'{repo}/slow' && sleep $s\n"
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        script(repo / ".git" / "hooks" / name, body)
    with (repo / ".git" / "info" / "exclude").open("a") as file:
        file.write("slow\n")
    return repo


def signing(folder: Path) -> Path:
    """Commits are to be signed by a program that never ends."""
    repo = plain(folder)
    helper = script(folder / "asking.sh", f"echo asked >>'{folder}/asked.log'\nsleep 86400\n")
    run_git(repo, "config", "commit.gpgSign", "true")
    run_git(repo, "config", "gpg.program", str(helper))
    return repo


def moved_main(folder: Path) -> Path:
    """``clone`` of ``origin.git``; :func:`advance` adds a commit to the origin's main."""
    source = plain(folder / "seed")
    origin = folder / "origin.git"
    run_git(folder, "clone", "-q", "--bare", str(source), str(origin))
    run_git(folder, "clone", "-q", str(origin), str(folder / "clone"))
    return folder / "clone"


def advance(folder: Path, name: str = "theirs.txt") -> str:
    """One more commit on the main of :func:`moved_main`'s origin."""
    other = folder / f"other-{name}"
    run_git(folder, "clone", "-q", str(folder / "origin.git"), str(other))
    write(other, name, f"{name}\n")
    head = commit(other, f"add {name}")
    run_git(other, "push", "-q", "origin", "main")
    return head


def symlinks(folder: Path) -> Path:
    """Links out of the repository, into it, in a loop; a FIFO; ``outside`` beside it."""
    (folder / "outside").mkdir()
    (folder / "outside" / "secret").write_text("secret\n")
    repo = init(folder / "symlinks")
    write(repo, "real/ok.txt", "ok\n")
    for name, target in {
        "in": "real",
        "in-file": "real/ok.txt",
        "out": "../outside",
        "out-file": "../outside/secret",
        "out-new": "../outside/new",
        "abs": str(folder / "outside" / "secret"),
        "up": "..",
        "loop-a": "loop-b",
        "loop-b": "loop-a",
        "two-hop": "out/secret",
    }.items():
        (repo / name).symlink_to(target)
    commit(repo, "links")
    os.mkfifo(repo / "pipe")
    return repo


BUILDERS: dict[str, Callable[[Path], Path]] = {
    "plain": plain,
    "submodule": submodule,
    "lfs": lfs,
    "branch-prefix": branch_prefix,
    "names": names,
    "hostile-config": hostile_config,
    "sparse": sparse,
    "bare-hub": bare_hub,
    "bare-plain": bare_plain,
    "huge-line": huge_line,
    "hooks": hooks,
    "signing": signing,
    "moved-main": moved_main,
    "symlinks": symlinks,
}


def build(name: str, folder: Path) -> Path:
    """Make the named repository below ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    return BUILDERS[name](folder)


def living_members(group: int, patience: float = 5.0) -> list[int]:
    """Processes of a process group that still run after ``patience`` seconds (a zombie
    does not run)."""
    deadline = time.monotonic() + patience
    while (found := _members(group)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def _members(group: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            facts = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(facts[2]) == group and facts[0] not in "ZX":
            found.append(int(entry))
    return found

from __future__ import annotations

import json
import os
import subprocess
import time
import tracemalloc

import pytest
from tests.unit.workspace.repos import (
    NAMES,
    commit,
    hostile_config,
    huge_line,
    init,
    living_members,
    names,
    plain,
    run_git,
    script,
    sparse,
    submodule,
    write,
)

from handoff.errors import NotFound, TooLarge, UsageError
from handoff.workspace import git
from handoff.workspace.contract import Range
from handoff.workspace.own import raw_range
from handoff.workspace.review import Change, change_json, diff_stream, files


def between(repo, base="main", head="work"):
    return raw_range(str(repo), base, head)


def text_of(repo, span, *paths, mode="patch"):
    return b"".join(diff_stream(str(repo), span, paths, mode=mode))


def test_names_come_exactly_as_they_are(tmp_path):
    repo = names(tmp_path)
    found = files(str(repo), between(repo))
    by_path = {os.fsencode(change.path): change for change in found}
    assert set(by_path) == {*NAMES, b"new name.txt"}
    renamed = by_path[b"new name.txt"]
    assert (renamed.status, renamed.old_path) == ("renamed", "old name.txt")
    assert json.loads(text_of(repo, between(repo), mode="json"))["files"]


def test_json_is_valid_for_every_name(tmp_path):
    repo = names(tmp_path)
    shown = [change_json(c) for c in files(str(repo), between(repo))]
    json.dumps(shown, ensure_ascii=False).encode("utf-8")
    raw = next(c for c in shown if "path_b64" in c)
    assert raw["path"] == "raw-\\xff\\xfe.bin"
    assert sum("path_b64" in c for c in shown) == 1


@pytest.mark.parametrize("raw", NAMES)
def test_a_path_means_itself(tmp_path, raw):
    repo = names(tmp_path)
    path = os.fsdecode(raw)
    assert [c.path for c in files(str(repo), between(repo), [path])] == [path]
    patch = text_of(repo, between(repo), path)
    assert patch.count(b"diff --git ") == 1
    assert b"content of" in patch


def test_rename_by_either_name_shows_both(tmp_path):
    repo = names(tmp_path)
    for path in ("old name.txt", "new name.txt"):
        patch = text_of(repo, between(repo), path)
        assert b"rename from old name.txt\nrename to new name.txt" in patch


def test_folder_names_what_is_below_it(tmp_path):
    repo = names(tmp_path)
    for path in ("dir with blank", "dir with blank/"):
        assert len(files(str(repo), between(repo), [path])) == 1


@pytest.mark.parametrize("path", ["nothing", "*", "plain.tx", "", "/plain.txt", "../x"])
def test_path_that_names_nothing_is_not_found(tmp_path, path):
    repo = names(tmp_path)
    with pytest.raises(NotFound):
        diff_stream(str(repo), between(repo), [path])


def test_same_bytes_as_plain_git_with_an_empty_configuration(tmp_path):
    repo = hostile_config(tmp_path)
    (tmp_path / "ran.log").unlink(missing_ok=True)
    span = between(repo)
    got = text_of(repo, span)
    assert not (tmp_path / "ran.log").exists()
    clean = init(tmp_path / "clean")
    objects = repo / ".git" / "objects"
    want = subprocess.run(
        ["git", "diff-tree", "-r", "-M", "-p", "--full-index", span.base, span.head],
        cwd=clean,
        env={**os.environ, "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects)},
        capture_output=True,
        check=True,
    ).stdout
    assert got == want
    assert b"--- a/a.txt" in got
    assert text_of(repo, span, mode="name_only") == b"a.txt\nmoved.txt\n"
    assert b" 2 files changed" in text_of(repo, span, mode="stat")


def test_attributes_can_not_hide_a_text(tmp_path):
    repo = plain(tmp_path)
    write(repo, ".gitattributes", "* -diff\n")
    write(repo, "evil.py", "steal()\n")
    commit(repo, "hide")
    assert b"+steal()" in text_of(repo, between(repo, "HEAD~1", "HEAD"))


def test_submodule_commit_is_shown(tmp_path):
    repo = submodule(tmp_path)
    change = files(str(repo), between(repo, "HEAD~1", "HEAD"), ["vendor/lib"])[0]
    assert change.submodule
    assert b"+Subproject commit" in text_of(repo, between(repo, "HEAD~1", "HEAD"), "vendor/lib")


def test_binary_and_counts(tmp_path):
    repo = plain(tmp_path)
    write(repo, "b.bin", b"\0\1\2")
    write(repo, "a.txt", "a\nB\nc\n")
    commit(repo, "more")
    by_path = {c.path: c for c in files(str(repo), between(repo, "HEAD~1", "HEAD"))}
    assert by_path["b.bin"] == Change("b.bin", "", "added", None, None, binary=True)
    assert (by_path["a.txt"].added, by_path["a.txt"].removed) == (2, 1)


def test_sparse_worktree_has_no_part_in_it(tmp_path):
    repo = sparse(tmp_path)
    commit(repo, "x", app__f1_dot_txt="y\n")
    assert [c.path for c in files(str(repo), between(repo, "HEAD~1", "HEAD"))] == ["app/f1.txt"]


def test_first_byte_of_a_huge_line_comes_at_once_and_memory_is_bounded(tmp_path):
    repo = huge_line(tmp_path)
    span = between(repo)
    began = time.monotonic()
    stream = diff_stream(str(repo), span)
    next(stream)
    assert time.monotonic() - began < 5
    stream.close()
    tracemalloc.start()
    try:
        total = sum(len(chunk) for chunk in diff_stream(str(repo), span))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total > 24 * 1024 * 1024
    assert peak < 2 * 1024 * 1024


def test_closing_the_stream_ends_git(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    real = subprocess.run(["which", "git"], capture_output=True, check=True).stdout.decode().strip()
    pids = tmp_path / "pids"
    script(
        tmp_path / "bin" / "git",
        f'case "$*" in *diff-tree*) echo $$ >"{pids}"; yes; esac\nexec {real} "$@"\n',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    stream = diff_stream(str(repo), between(repo, "HEAD~1", "HEAD"))
    assert next(stream).startswith(b"y\n")
    pid = int(pids.read_text())
    stream.close()
    assert living_members(pid) == []


def test_no_ranges_by_option_and_no_unknown_mode(tmp_path):
    repo = plain(tmp_path)
    with pytest.raises(NotFound):
        raw_range(str(repo), "--output=/tmp/x", "HEAD")
    head = run_git(repo, "rev-parse", "HEAD")
    with pytest.raises(UsageError):
        diff_stream(str(repo), Range(head, head, head), mode="html")  # type: ignore[arg-type]


def test_name_only_has_both_names_of_a_rename(tmp_path):
    repo = names(tmp_path)
    lines = text_of(repo, between(repo), mode="name_only").split(b"\n")
    assert {b"old name.txt", b"new name.txt"} <= set(lines)
    assert b'"new\\nline"' in lines


def test_replaced_objects_and_grafts_do_not_deceive(tmp_path):
    repo = plain(tmp_path)
    write(repo, "evil.py", "steal()\n")
    real = commit(repo, "evil")
    run_git(repo, "switch", "-q", "--detach", "HEAD~1")
    innocent = commit(repo, "innocent", nice_dot_py="nice()\n")
    run_git(repo, "switch", "-q", "main")
    run_git(repo, "replace", real, innocent)
    (repo / ".git" / "info" / "grafts").write_text(f"{real}\n")
    assert "nice" in run_git(repo, "show", "HEAD")
    assert b"+steal()" in text_of(repo, between(repo, "main~1", "main"))


def test_folder_of_many_long_names(tmp_path):
    repo = plain(tmp_path)
    for number in range(3_000):
        write(repo, f"deep/{'x' * 250}/{'y' * 250}/{'z' * 250}/{number}", "")
    commit(repo, "many")
    span = between(repo, "HEAD~1", "HEAD")
    assert text_of(repo, span, "deep", mode="name_only").count(b"\n") == 3_000


def test_too_many_paths_is_a_typed_error(tmp_path):
    repo = plain(tmp_path)
    with pytest.raises(TooLarge):
        git.run(["log", "--", *(["x" * 1000] * 5000)], str(repo))


def test_folder_with_a_rename_out_of_it(tmp_path):
    repo = names(tmp_path)
    run_git(repo, "switch", "-q", "work")
    (repo / "sub").mkdir()
    run_git(repo, "mv", "new name.txt", "sub/inner.txt")
    commit(repo, "into a folder")
    patch = text_of(repo, between(repo, "work~1", "work"), "sub/")
    assert b"rename from new name.txt\nrename to sub/inner.txt" in patch

"""Copying what a fresh worktree lacks: files that git ignores, such as ``.env``. Standard
library only.

Nothing is read from outside the project's main worktree and nothing is written outside
the new one, whatever symbolic links stand in either; nothing that is there is replaced.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from handoff.errors import ConfigError, HandoffError, StorageFull, TooLarge, WorkspaceRefused
from handoff.workspace.reading import open_beneath
from handoff.workspace.state import printable

#: files that one set-up may copy: a list of settings, not a build tree
FILE_LIMIT = 10_000


@dataclass(frozen=True)
class SetupPlan:
    """``copies``: relative paths, by exact name, that will be copied. ``present``: those
    that the worktree has already. ``unmatched``: patterns that fit nothing. ``refused``:
    (path, why) for what is no file within the project."""

    copies: tuple[str, ...]
    present: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


def plan_setup(root: str, work_dir: str, patterns: Sequence[str]) -> SetupPlan:
    """What :func:`copy_files` would do; changes nothing.

    ``patterns``: relative to ``root``; ``*``, ``?``, ``[...]`` and ``**`` as in a shell; a
    folder stands for all files below it.

    Raises:
        ConfigError: a pattern is absolute or leads upwards.
        TooLarge: more than :data:`FILE_LIMIT` files.
    """
    copies: dict[str, None] = {}
    present: list[str] = []
    unmatched: list[str] = []
    refused: list[tuple[str, str]] = []
    for pattern in patterns:
        found = _matches(root, pattern)
        if not found:
            unmatched.append(pattern)
        for path in found:
            if path in copies:
                continue
            if os.path.lexists(os.path.join(work_dir, path)):
                present.append(path)
                continue
            try:
                with open_beneath(root, path):
                    copies[path] = None
            except (HandoffError, OSError) as error:
                refused.append((printable(path), str(error)))
            if len(copies) > FILE_LIMIT:
                raise TooLarge(
                    f"set-up would copy more than {FILE_LIMIT} files",
                    remedy="narrow setup.copy, or fetch them with setup.command",
                )
    return SetupPlan(tuple(copies), tuple(present), tuple(unmatched), tuple(refused))


def copy_files(root: str, work_dir: str, patterns: Sequence[str]) -> list[str]:
    """Copy what the patterns name from ``root`` into ``work_dir``, with permissions.
    Returns the paths copied, as text to show. Safe to repeat.

    Raises:
        ConfigError, TooLarge: as :func:`plan_setup`.
        WorkspaceRefused: a link in the worktree leads out.
        StorageFull: the disk is full; the file being copied is taken away again.
    """
    plan = plan_setup(root, work_dir, patterns)
    for path in plan.copies:
        _copy(root, work_dir, path)
    return [printable(path) for path in plan.copies]


def _matches(root: str, pattern: str) -> list[str]:
    parts = pattern.split("/")
    if not pattern or pattern.startswith("/") or ".." in parts or "\0" in pattern:
        raise ConfigError(
            f"setup.copy: {pattern!r} is not a path within the project",
            remedy="give it relative to the project's main folder",
        )
    found = glob.glob(pattern.rstrip("/"), root_dir=root, recursive=True, include_hidden=True)
    files: list[str] = []
    for path in sorted(found):
        full = os.path.join(root, path)
        if path.split("/")[0].lower() == ".git":
            continue
        if os.path.isdir(full) and not os.path.islink(full):
            files += _below(root, path)
        else:
            files.append(path)
        if len(files) > 2 * FILE_LIMIT:
            raise TooLarge(
                f"setup.copy: {pattern!r} names more than {FILE_LIMIT} files",
                remedy="narrow it, or fetch the files with setup.command",
            )
    return files


def _below(root: str, folder: str) -> list[str]:
    found: list[str] = []
    for top, folders, names in os.walk(os.path.join(root, folder)):
        folders[:] = sorted(name for name in folders if name.lower() != ".git")
        relative = os.path.relpath(top, root)
        found += [os.path.join(relative, name) for name in sorted(names)]
        if len(found) > 2 * FILE_LIMIT:
            break
    return found


def _copy(root: str, work_dir: str, path: str) -> None:
    """One file, opened beneath its root and made beneath the other."""
    *folders, name = path.split("/")
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(open_beneath(root, path))
        mode = stat.S_IMODE(os.fstat(source).st_mode) & 0o777
        folder = os.open(work_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, folder)
        for part in folders:
            folder = _enter(stack, folder, part, path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            target = os.open(name, flags, 0o600, dir_fd=folder)
        except FileExistsError:
            return
        try:
            with os.fdopen(os.dup(source), "rb") as reader, os.fdopen(target, "wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                os.fchmod(writer.fileno(), mode)
        except OSError as error:
            os.unlink(name, dir_fd=folder)
            raise StorageFull(
                f"can't copy {printable(path)}: {error.strerror}",
                remedy=f"free some space for {work_dir}",
            ) from error


def _enter(stack: contextlib.ExitStack, folder: int, part: str, path: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, 0o777, dir_fd=folder)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        inner = os.open(part, flags, dir_fd=folder)
    except OSError as error:
        raise WorkspaceRefused(
            f"{printable(path)} can't be copied: '{printable(part)}' is no plain folder there"
        ) from error
    stack.callback(os.close, inner)
    return inner

"""The files of an audit: how a row is written, how rows are read, and whether the chain holds.

:mod:`handoff.nodes.audit` says what is in them. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from handoff.errors import StorageError

__all__ = ["Finding", "Report", "rows", "verify"]

NAME = "audit.jsonl"
HEAD = "audit.head"
START = "0" * 64


class Finding(NamedTuple):
    """``file`` and ``line`` (from 1) of what is wrong, and what."""

    file: str
    line: int
    what: str


class Report(NamedTuple):
    """``rows``: that were looked at; ``first``: the number of the first, more than 1 if older
    files were dropped by age or size; ``findings``: empty if the chain holds."""

    rows: int
    first: int
    findings: list[Finding]


def rows(folder: str) -> Iterator[dict[str, Any]]:
    """Every row, the oldest first; a line that is none is left out.

    Raises:
        StorageError: a file can't be read.
    """
    for _, _, line in _lines(folder):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found


def verify(folder: str) -> Report:
    """Whether the chain holds, from the oldest file that is kept to the head.

    Raises:
        StorageError: a file can't be read.
    """
    findings: list[Finding] = []
    count, first, number = 0, 0, 0
    prev = ""
    for name, at, line in _lines(folder):
        count += 1
        found, why = _row(line)
        if found is None:
            findings.append(Finding(name, at, why))
            prev = ""
            continue
        if first == 0:
            first = found["n"]
            if first == 1 and found["prev"] != START:
                findings.append(Finding(name, at, "the first row does not start the chain"))
        elif prev and found["prev"] != prev:
            findings.append(Finding(name, at, "a row before this one was changed or removed"))
        if number and found["n"] != number + 1:
            findings.append(Finding(name, at, f"row {number + 1} is missing"))
        number, prev = found["n"], found["hash"]
    findings += _head(folder, first, number, prev)
    return Report(count, first, findings)


def _row(line: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        found = json.loads(line)
        mark = found.pop("hash")
        text = dumps(found)
        whole = text[:-1] + f',"hash":"{mark}"}}'
        if whole.encode() != line or digest(text) != mark:
            return None, "this row was changed"
        return {**found, "hash": mark, "n": int(found["n"]), "prev": str(found["prev"])}, ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, "this is no row"


def _head(folder: str, first: int, number: int, mark: str) -> list[Finding]:
    try:
        with open(os.path.join(folder, HEAD), "rb") as file:
            head = json.loads(file.read(400).rstrip(b"\0\n ") or b"{}")
        noted, wanted = int(head.get("n", 0)), str(head.get("hash", ""))
        start = int(head.get("first", first))
    except FileNotFoundError:
        return [Finding(HEAD, 0, "the head is missing")] if number else []
    except (ValueError, AttributeError, TypeError):
        return [Finding(HEAD, 1, "the head is damaged")]
    if start != first and first:
        return [Finding(HEAD, 1, f"the rows from {start} to {first - 1} are missing")]
    if noted > number:
        return [Finding(HEAD, 1, f"the rows after {number} are missing, up to {noted}")]
    if noted == number and number and mark and wanted != mark:
        return [Finding(HEAD, 1, "the last row is not the one that was written")]
    return []


def _lines(folder: str) -> Iterator[tuple[str, int, bytes]]:
    for name in [*older(folder), NAME]:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                for at, line in enumerate(file, 1):
                    if line.endswith(b"\n"):  # what is half is being written
                        yield name, at, line[:-1]
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(
                f"{folder}/{name}: {error.strerror}", remedy=f"ls -l {folder}"
            ) from error


def older(folder: str) -> list[str]:
    """The names of the files before the one that is written, the oldest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(one for one in names if one.startswith("audit-") and one.endswith(".jsonl"))


def whole_end(fd: int, size: int) -> int:
    """Where the last whole line ends."""
    end = size
    while end:
        start = max(0, end - 65536)
        at = os.pread(fd, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def last_line(fd: int, end: int) -> bytes:
    """The line that ends at ``end``, without its line end."""
    data, start = b"", end - 1
    while start:
        step = min(65536, start)
        data = os.pread(fd, step, start - step) + data
        start -= step
        at = data.rfind(b"\n")
        if at >= 0:
            return data[at + 1 :]
    return data


def first_line(path: str) -> bytes:
    """The first line of a file."""
    with open(path, "rb") as file:
        return file.readline()


def dumps(value: Mapping[str, Any]) -> str:
    """A row as it is hashed and written."""
    return _ENCODER.encode(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def digest(text: str) -> str:
    """A row's hash."""
    return hashlib.sha256(text.encode()).hexdigest()

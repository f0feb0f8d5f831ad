"""What is shown of a command's output."""

from __future__ import annotations

import pytest

from handoff.cli.nodes_exec import _code, whole

DATA = bytes(range(97, 123))


def result(head: int, tail: int, spill: str = "") -> dict[str, object]:
    told: dict[str, object] = {"bytes_total": len(DATA), "head": DATA[:head].decode()}
    if tail:
        told["tail"] = DATA[-tail:].decode()
    if spill:
        told["spill"] = spill
    return {"stdout": told}


@pytest.mark.parametrize("had", range(27))
def test_what_was_shown_is_not_shown_again(had: int) -> None:
    assert DATA[:had] + whole(result(26, 0), "stdout", had) == DATA
    assert DATA[:had] + whole(result(10, 16), "stdout", had) == DATA
    shown = DATA[:had] + whole(result(10, 6), "stdout", had)
    left = 20 - max(10, had)
    if left > 0:
        assert shown == DATA[: max(10, had)] + f"\n[{left} bytes left out]\n".encode() + DATA[-6:]
    else:
        assert shown == DATA


def test_where_the_rest_is_is_said_if_it_is_anywhere() -> None:
    assert b"[10 bytes left out; read_output a.out]" in whole(result(10, 6, "a.out"), "stdout")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"status": "ok", "exit_code": 0}, 0),
        ({"status": "error", "exit_code": 7}, 7),
        ({"status": "error", "signal": 9}, 137),
        ({"status": "timeout", "exit_code": 0}, 124),
        ({"status": "cancelled", "exit_code": 0}, 143),
        ({"status": "cancelled", "exit_code": 3}, 3),
        ({"status": "cancelled", "signal": 9}, 137),
        ({"status": "unknown_outcome"}, 1),
        ({"status": "refused"}, 1),
    ],
)
def test_what_did_not_end_well_has_no_exit_code_0(value: dict[str, object], code: int) -> None:
    assert _code(value) == code

"""The page of the protocol says what the code does."""

from __future__ import annotations

import dataclasses
import re

from tests.support.markdown import ROOT, rows

from handoff.wire.node import frames, pacing, streams
from handoff.wire.node.calls import CALLS
from handoff.wire.node.closing import REASONS
from handoff.wire.node.messages import CAPABILITIES, MESSAGES

PAGE = (ROOT / "docs" / "protocols" / "node.md").read_text("utf-8")


def part(name: str) -> str:
    return PAGE.partition(f"<!-- begin {name} -->")[2].partition(f"<!-- end {name} -->")[0]


def documented(*names: str) -> dict[str, str]:
    """First cell -> row, of generated tables."""
    found = {}
    for name in names:
        for row in rows(part(name), "| "):
            found[row[0].strip("`")] = " | ".join(row)
    return found


def test_every_message_and_field_is_documented_and_no_other() -> None:
    found = documented("node-handshake", "node-old", "node-ours")
    assert set(found) == set(MESSAGES)
    for name, cls in MESSAGES.items():
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            assert f"`{field.name}`" in found[name], (name, field.name)


def test_every_operation_and_field_is_documented_and_no_other() -> None:
    found = documented("node-operations")
    assert set(found) == set(CALLS)
    answers = documented("node-answers")
    for op, cls in CALLS.items():
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            assert f"`{field.name}`" in found[op], (op, field.name)
        assert f"`{cls.result.__name__}`" in found[op]
        row = answers[cls.result.__name__]
        for field in dataclasses.fields(cls.result):  # type: ignore[arg-type]
            assert f"`{field.name}`" in row, (cls.result.__name__, field.name)


def test_every_reason_with_its_code_and_every_capability_is_documented() -> None:
    found = documented("node-reasons")
    assert set(found) == set(REASONS)
    for name, reason in REASONS.items():
        assert f"| {reason.code} |" in found[name]
        assert ("| yes |" in found[name]) is reason.final
    assert set(documented("node-capabilities")) == set(CAPABILITIES)


def test_the_limits_in_the_text_are_those_of_the_code() -> None:
    said = {
        "8 KiB before": frames.GREETING_LIMIT,
        "16 MiB of text": frames.OLD_LIMIT,
        "24 MiB sealed": frames.SEALED_LIMIT,
        "2 MiB |": frames.MESSAGE_LIMIT,
        "256 KiB and begins": frames.PIECE_LIMIT,
        "64 KiB, that of": streams.FIRST_WINDOW,
        "32 KiB and 8 MiB": pacing.LEAST,
        "8 MiB: what is urgent": pacing.MOST,
    }
    for text, value in said.items():
        assert text in PAGE, text
        number, unit = text.split()[:2]
        assert int(number) * {"KiB": 1024, "MiB": 1024**2}[unit.strip(":,")] == value


def test_the_bytes_of_a_frame_are_those_of_the_code() -> None:
    assert frames._HEAD.size == 5
    assert frames._PIECE.size == 18
    assert re.search(r"\| 1 to 4 \|", PAGE)
    assert re.search(r"\| 10 to 17 \|", PAGE)
    for code, name in enumerate(frames.STREAMS):
        assert f"{code} `{name}`" in PAGE

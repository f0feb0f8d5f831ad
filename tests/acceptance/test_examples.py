"""The examples of the documents print what the documents say."""

from __future__ import annotations

import pathlib

import pytest
from tests.support import examples


@pytest.mark.parametrize(
    "path",
    [p for p in examples.documents() if p.name != "README.md"],
    ids=lambda p: str(p.relative_to(examples.ROOT)),
)
def test_examples_print_what_the_document_says(path: pathlib.Path) -> None:
    check(path)


def check(path: pathlib.Path) -> None:
    document = examples.parse(path)
    assert document.steps
    examples.run(document)
    for step in document.steps:
        assert examples.same(step.expected, step.actual), (
            f"{path.name}:{step.line}: $ {step.command}\n"
            f"exit {step.code}; the document says:\n" + "\n".join(step.expected) + "\n"
            "it printed:\n" + "\n".join(step.actual) + "\n(scripts/gen-examples renews it)"
        )
        assert step.code == 0, f"{path.name}:{step.line}: exit {step.code}: {step.actual}"


def test_a_different_output_is_noticed() -> None:
    said = ["g1  open  python3 greet.py", "approve: handoff reply 3c9d1e70 --approve"]
    assert examples.same(said, list(said))
    assert not examples.same(said, said[:1])
    assert not examples.same(said, [*said, "and more"])
    assert not examples.same(said, ["g1  open  python3 other.py", said[1]])


def test_ids_times_and_sizes_make_no_difference() -> None:
    assert examples.same(
        ["started 12:04 (1.2 s), commit 1f0c2b9e", "...", "2 KiB"],
        ["started 09:31 (340 ms), commit 9e8d7c6b5a", "a", "b", "14.2 MiB"],
    )
    assert examples.same(["a", "..."], ["a"])
    assert not examples.same(["a", "..."], ["b", "a"])

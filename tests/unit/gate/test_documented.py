from __future__ import annotations

from pathlib import Path

from handoff.gate.paths import PROTECTED_DIRS, PROTECTED_FILES, PROTECTED_PAIRS
from handoff.gate.uses import MAX_FILES

PAGE = Path(__file__).parents[3] / "docs" / "permissions.md"


def test_every_protected_name_is_documented() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = {*PROTECTED_DIRS, *PROTECTED_FILES, *("/".join(pair) for pair in PROTECTED_PAIRS)}
    assert {name for name in names if f"`{name}`" not in text} == set()
    assert f"more than {MAX_FILES} files" in text

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from tests.unit.agentd.harness import Box


@pytest.fixture
def box(tmp_path: pathlib.Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()

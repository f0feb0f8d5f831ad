from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.runs import Runs, running


@pytest.fixture
async def runs(tmp_path: Path) -> AsyncIterator[Runs]:
    async with running(tmp_path) as all_runs:
        yield all_runs

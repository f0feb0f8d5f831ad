from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.client.served import Served


@pytest.fixture
def served() -> Iterator[Served]:
    peer = Served()
    yield peer
    peer.close()

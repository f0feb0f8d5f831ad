from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from tests.unit.cli.calling import Caller
from tests.unit.client.served import Served


@pytest.fixture
def served() -> Iterator[Served]:
    peer = Served()
    yield peer
    peer.close()


@pytest.fixture
def call(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Caller:
    monkeypatch.chdir(tmp_path)
    return Caller(served, monkeypatch)

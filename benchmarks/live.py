"""A running agentd for the benchmarks, and calls to it."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from common import ROOT  # noqa: F401  (puts the sources on the path)
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import make_home
from tests.support.plans import fake_plan
from tests.support.repository import Repository, make_repository


@contextmanager
def running(extra_config: str = "") -> Iterator[tuple[Agentd, Repository]]:
    """agentd with a home and a registered repository of its own; gone afterwards."""
    with make_home() as home:
        home.env.pop("PYTHONDONTWRITEBYTECODE", None)
        repository = make_repository(home)
        with run_agentd(home, extra_config) as agentd:
            post(agentd, "/api/projects", {"path": str(repository.path)})
            yield agentd, repository


def post(agentd: Agentd, path: str, body: dict[str, object] | None = None) -> dict[str, object]:
    """POST under a fresh idempotency key; the JSON of a 200."""
    status, answer = agentd.call(
        "POST",
        path,
        body or {},
        {"Handoff-Request": str(uuid.uuid4()), "content-type": "application/json"},
    )
    if status != 200:
        raise SystemExit(f"POST {path}: {status} {answer}")
    assert isinstance(answer, dict)
    return answer


def request(repository: Repository, *steps: dict[str, object] | str) -> dict[str, object]:
    """The body of a dispatch of that script."""
    plan = fake_plan(*steps)
    return {
        "start_dir": str(repository.path),
        "plan_b64": base64.b64encode(plan.encode()).decode(),
        "plan_name": "plan.md",
        "executor": "fake",
    }

"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str = "", *, within: float = 15.0) -> T:
    """The first true value of condition(); AssertionError if none comes within seconds.

    An AssertionError raised by condition counts as "not yet" and is shown at the end.
    """
    deadline = time.monotonic() + within
    pause = 0.002
    last: AssertionError | None = None
    while True:
        try:
            value = condition()
            if value:
                return value
        except AssertionError as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what or condition}") from last
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)

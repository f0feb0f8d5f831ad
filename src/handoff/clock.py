"""Time and randomness, handed in so that tests decide both.

Times are integers: milliseconds since 1970 UTC for what is stored and shown, and a
monotonic float in seconds for what is measured. Nothing else in Handoff reads a clock.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Clock(Protocol):
        """Where time and randomness come from."""

        def now_ms(self) -> int:
            """Milliseconds since 1970 UTC; may jump, also backwards."""
            ...

        def monotonic(self) -> float:
            """Seconds that never run backwards; only differences mean something."""
            ...

        def new_id(self) -> str:
            """A fresh UUIDv4 as text."""
            ...


def uuid4_text(raw: bytes) -> str:
    """Sixteen random bytes as the text of a UUIDv4 (RFC 9562 section 5.4)."""
    value = bytearray(raw)
    value[6] = (value[6] & 0x0F) | 0x40
    value[8] = (value[8] & 0x3F) | 0x80
    text = value.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class SystemClock:
    """The machine's clock and its random source."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def new_id(self) -> str:
        """A UUIDv4 from the operating system's random source."""
        return uuid4_text(os.urandom(16))


class FakeClock:
    """A clock that moves only when told to, with ids that count up."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms
        self._monotonic = 0.0
        self._count = 0

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by seconds."""
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds

    def set_back(self, seconds: float) -> None:
        """Move only the wall clock, backwards, as an administrator would."""
        self._now_ms -= round(seconds * 1000)

    def now_ms(self) -> int:
        """The wall clock in milliseconds."""
        return self._now_ms

    def monotonic(self) -> float:
        """The monotonic clock in seconds."""
        return self._monotonic

    def new_id(self) -> str:
        """The next id: valid UUIDv4 text whose first digits count up."""
        self._count += 1
        return uuid4_text(self._count.to_bytes(4, "big") + bytes(12))


def iso(ms: int) -> str:
    """RFC 3339 text in UTC with milliseconds, for JSON."""
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


def _second(seconds: int) -> str:
    found = _SECONDS.get(seconds)
    if found is None:
        found = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        _SECONDS.clear()
        _SECONDS[seconds] = found
    return found


#: the last one that was written: times come many a second
_SECONDS: dict[int, str] = {}

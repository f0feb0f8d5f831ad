from __future__ import annotations

import datetime
import time
import uuid

from hypothesis import given
from hypothesis import strategies as st

from handoff.clock import FakeClock, SystemClock, iso, uuid4_text

# year 1970 to 9999
MILLISECONDS = st.integers(0, 253_402_300_799_999)


@given(st.binary(min_size=16, max_size=16))
def test_any_sixteen_bytes_make_a_valid_uuid4(raw: bytes) -> None:
    parsed = uuid.UUID(uuid4_text(raw))
    assert parsed.version == 4
    assert parsed.variant == uuid.RFC_4122
    assert str(parsed) == uuid4_text(raw)
    assert parsed == uuid.UUID(bytes=raw, version=4)


@given(MILLISECONDS)
def test_iso_is_rfc_3339_in_utc_with_milliseconds(ms: int) -> None:
    text = iso(ms)
    assert len(text) == 24
    assert text.endswith("Z")
    parsed = datetime.datetime.fromisoformat(text)
    assert parsed.utcoffset() == datetime.timedelta(0)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert (parsed - epoch) // datetime.timedelta(milliseconds=1) == ms


@given(MILLISECONDS, MILLISECONDS)
def test_iso_sorts_as_time_does(first: int, second: int) -> None:
    assert (first < second) == (iso(first) < iso(second))


def test_the_system_clock_is_the_systems() -> None:
    clock = SystemClock()
    before = time.time_ns() // 1_000_000
    now = clock.now_ms()
    assert before <= now <= time.time_ns() // 1_000_000
    assert clock.monotonic() <= clock.monotonic()
    made = {clock.new_id() for _ in range(100)}
    assert len(made) == 100
    assert all(uuid.UUID(text).version == 4 for text in made)


def test_the_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(start_ms=1000)
    assert clock.now_ms() == clock.now_ms() == 1000
    clock.advance(1.5)
    assert (clock.now_ms(), clock.monotonic()) == (2500, 1.5)
    clock.set_back(2)
    assert (clock.now_ms(), clock.monotonic()) == (500, 1.5)


def test_fake_ids_are_valid_differ_and_are_told_apart_by_their_first_eight() -> None:
    clock = FakeClock()
    made = [clock.new_id() for _ in range(300)]
    assert made[0].startswith("00000001-")
    assert len({text[:8] for text in made}) == 300
    assert all(uuid.UUID(text).version == 4 for text in made)
    assert FakeClock().new_id() == made[0]

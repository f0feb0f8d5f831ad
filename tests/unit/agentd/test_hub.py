from __future__ import annotations

import json
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from handoff.agentd.hub import RECENT_BYTES, RECENT_ROWS, Hub, Recent


def event(seq: int, **payload: object) -> dict[str, object]:
    return {
        "seq": seq,
        "task_id": "t",
        "type": "progress",
        "actor": "agentd",
        "wakes": 0,
        "payload": json.dumps(payload),
        "created_at": 0,
    }


@given(
    numbers=st.lists(st.integers(1, 10_000), unique=True, max_size=600).map(sorted),
    sizes=st.sampled_from([1, 100, 40_000]),
    after=st.integers(0, 10_001),
)
def test_recent_rows_are_all_after_a_number_or_it_says_so(
    numbers: Iterable[int], sizes: int, after: int
) -> None:
    recent, kept = Recent(), 0
    line = b"x" * sizes
    for number in numbers:
        recent.add(number, False, line)
    numbers = list(numbers)
    found = recent.after(after)
    if found is not None:
        assert [n for n, _, _ in found] == [n for n in numbers if n > after]
        kept = len(found)
    else:
        assert not numbers or after < numbers[-1]
    assert kept <= RECENT_ROWS
    assert kept * sizes <= RECENT_BYTES


def test_what_is_published_wakes_every_subscriber_of_that_task_alone() -> None:
    hub = Hub()
    flags = [hub.channel("a").subscribe() for _ in range(3)]
    other = hub.channel("b").subscribe()
    hub.publish("a", [event(1, text="x")], [], ended=False)
    assert all(flag.is_set() for flag in flags)
    assert not other.is_set()
    rows = hub.channel("a").events.after(0)
    assert rows is not None
    assert json.loads(rows[0][2])["payload"] == {"text": "x"}


def test_a_watched_channel_is_not_forgotten() -> None:
    hub = Hub()
    flag = hub.channel("a").subscribe()
    channel = hub.channel("a")
    hub.forget("a")
    assert hub.channel("a") is channel
    channel.unsubscribe(flag)
    hub.forget("a")
    assert hub.channel("a") is not channel


def test_watchers_are_counted() -> None:
    hub = Hub()
    hub.watch("a")
    hub.watch("a")
    hub.unwatch("a")
    assert hub.watchers("a") == 1
    hub.unwatch("a")
    hub.unwatch("a")
    assert hub.watchers("a") == 0


def test_the_end_wakes_all() -> None:
    hub = Hub()
    flags = [hub.channel(name).subscribe() for name in "ab"]
    hub.end_streams()
    assert hub.closing
    assert all(flag.is_set() for flag in flags)

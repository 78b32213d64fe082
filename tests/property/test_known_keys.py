"""What a partition knows of dedup keys is what a list of all messages says, through seals, checkpoints and clocks."""

from __future__ import annotations

from typing import NamedTuple
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from tidemill_broker import known_keys
from tidemill_broker.known_keys import Known, KnownKeys
from tidemill_wire.deduplication import NO_KEY

WINDOW_MS = 100

# Few keys, and few halves of keys: so that one half is often that of another key, too.
halves = st.sampled_from([bytes(8), b"\1" * 8, b"\2" * 8, b"\xff" * 8])
keys = st.builds(lambda low, high: low + high, halves, halves)


class Batch(NamedTuple):
    """So much later, or earlier after a restart with another clock, a batch with these keys is stored."""

    later_ms: int
    keys: list[bytes]
    sources: bool


steps = st.one_of(
    st.builds(Batch, st.integers(0, 60), st.lists(keys, min_size=1, max_size=20), st.booleans()),
    st.builds(Batch, st.integers(-300, 300), st.lists(keys, min_size=1, max_size=3), st.booleans()),
    st.just("checkpoint"),
)


@given(st.lists(steps, max_size=40), st.integers(1, 12))
def test_a_key_is_known_exactly_within_its_window(taken: list[Batch | str], fresh_max: int) -> None:
    known, now_ms, latest_ms, first = KnownKeys(), 1000, 0, 0
    model: list[tuple[bytes, Known]] = []
    with patch.object(known_keys, "FRESH_MAX", fresh_max):
        for number, step in enumerate(taken):
            if isinstance(step, str):
                known = KnownKeys.from_list(known.to_list())
                continue
            now_ms = max(1000, now_ms + step.later_ms)
            batch_id = number.to_bytes(16, "big")
            indexes = [2 * row for row in range(len(step.keys))] if step.sources else range(len(step.keys))
            message = first, now_ms, batch_id
            known.note(b"".join(step.keys), message, indexes if step.sources else None, WINDOW_MS)
            model += [
                (key, Known(first + row, now_ms, indexes[row], batch_id))
                for row, key in enumerate(step.keys)
                if key != NO_KEY
            ]
            first += len(step.keys)
            asked = [key for key in dict(model) for _ in range(3)]
            newest = dict(model)
            latest_ms = max(latest_ms, now_ms)
            for key, found in zip(asked, known.find(asked, now_ms - WINDOW_MS), strict=True):
                counts = newest[key].stored_at_ms > now_ms - WINDOW_MS
                gone = newest[key].stored_at_ms <= latest_ms - WINDOW_MS  # by a clock that was ahead then
                if found is None:
                    assert gone or not counts
                elif not gone:
                    assert found == newest[key]
                assert found is None or (key, found) in model
                assert found is None or found.stored_at_ms > now_ms - WINDOW_MS
            assert known.find([b"never" * 3 + b"!"], 0) == [None]


@given(st.lists(st.integers(0, 30), min_size=50, max_size=200))
def test_what_is_held_is_no_more_than_a_window_and_a_share(pauses: list[int]) -> None:
    known, now_ms = KnownKeys(), 0
    times: list[int] = []
    for number, pause in enumerate(pauses):
        now_ms += pause
        known.note(number.to_bytes(16, "little")[::-1], (number, now_ms, bytes(16)), None, WINDOW_MS)
        times.append(now_ms)
        oldest_ms = now_ms - WINDOW_MS - WINDOW_MS // known_keys.SLICES - max(pauses)
        assert len(known) <= sum(time > oldest_ms for time in times)

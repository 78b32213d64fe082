"""The wheel beside a sorted list, marks beside a set, pages beside all rows at once."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemill_delay.hours import Hour, Marks, Numbers, ranges_of
from tidemill_delay.loading import Page
from tidemill_delay.rows import decode_rows, encode_rows, length_of, pack_piece, place_of
from tidemill_delay.settings import DelaySettings
from tidemill_delay.wheel import SPOKE_ROWS, Entries, Wheel

TICK_MS = 500
HOUR_MS = 300_000
HOURS = (0, HOUR_MS, 7 * HOUR_MS)


def entries_of(hour: int, due: list[int], first: int) -> Entries:
    count = len(due)
    numbers = np.arange(first, first + count, dtype=np.int64)
    return Entries(hour, np.array(due, np.int64), np.zeros(count, np.uint64), numbers)


MOVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(HOURS), st.lists(st.integers(0, 50_000), max_size=20)),
        st.integers(0, 9_000),
    ),
    max_size=40,
)


@given(MOVES)
def test_the_wheel_gives_what_is_due_in_whole_ticks_and_nothing_twice(
    moves: list[tuple[int, list[int]] | int],
) -> None:
    wheel = Wheel(TICK_MS)
    waiting: set[tuple[int, int, int]] = set()
    counts = dict.fromkeys(HOURS, 0)
    now_ms = 0
    for move in moves:
        if isinstance(move, tuple):
            hour, due = move
            wheel.add(entries_of(hour, due, counts[hour]))
            waiting |= {(hour, at, counts[hour] + index) for index, at in enumerate(due)}
            counts[hour] += len(due)
        else:
            now_ms += move
            found = {
                (one.hour, at, number)
                for one in wheel.take(now_ms)
                for at, number in zip(one.due.tolist(), one.numbers.tolist(), strict=True)
            }
            assert found == {entry for entry in waiting if entry[1] <= now_ms // TICK_MS * TICK_MS}
            waiting -= found
        wheel.check()
        assert wheel.size == len(waiting)
        due_next = min((at for _, at, _ in waiting), default=None)
        assert wheel.next_ms() == (None if due_next is None else -(-due_next // TICK_MS) * TICK_MS)


@given(st.randoms(use_true_random=False))
def test_many_that_come_late_are_few_spokes_and_what_is_left_holds_little_for_nothing(rng: Random) -> None:
    wheel, count = Wheel(TICK_MS), 600
    for number in range(count):
        wheel.add(entries_of(0, [rng.randrange(0, 100_000)], number))
        assert len(wheel._spokes[0]) <= 10
    for now_ms in range(0, 100_000, 2_500):
        wheel.take(now_ms)
        wheel.check()
        held = sum(_held(spoke.numbers) for spokes in wheel._spokes.values() for spoke in spokes)
        assert held <= 2 * wheel.size


def _held(column: Numbers) -> int:
    """Rows in memory, those among them that left included."""
    return len(column.base) if isinstance(column.base, np.ndarray) else len(column)


@given(st.lists(st.lists(st.integers(0, 3_000), max_size=30), max_size=12))
def test_marks_are_a_set(rounds: list[list[int]]) -> None:
    marks, known = Marks(), set[int]()
    for numbers in rounds:
        fresh = set(numbers) - known
        assert marks.add(ranges_of(np.array(sorted(set(numbers)), np.int64))) == len(fresh)
        known |= fresh
        again = Marks.from_bytes(marks.to_bytes())
        for one in (marks, again):
            assert one.count == len(known)
            assert one.without(np.arange(3_100)).tolist() == [number not in known for number in range(3_100)]
            assert all(one.has(number) for number in known)


@given(st.integers(0, (1 << 40) - 1), st.integers(0, (1 << 21) - 1), st.lists(st.integers(0, 1 << 50)))
def test_a_row_holds_its_place_length_and_time(place: int, length: int, due: list[int]) -> None:
    piece = pack_piece(8 * place, 8 * length)
    assert (place_of(piece), length_of(piece)) == (8 * place, 8 * length)
    rows = decode_rows(encode_rows(np.array(due, np.int64), piece))
    assert rows["due"].tolist() == due
    assert set(rows["piece"].tolist()) <= {piece}


def pages_of(hour: Hour, data: bytes, room: int) -> Iterator[tuple[int, Page]]:
    """All pages of an hour whose index is ``data``, each with where the one before has ended."""
    low_ms = -1
    while low_ms < hour.start_ms + HOUR_MS:
        page = Page(hour, DelaySettings(hour_ms=HOUR_MS, tick_ms=TICK_MS), low_ms, room)
        while (piece := page.next()) is not None:
            page.loaded(data[piece.position : piece.position + piece.size])
        assert page.high_ms is not None
        assert page.high_ms > low_ms
        assert page.high_ms % TICK_MS == 0
        yield low_ms, page
        low_ms = page.high_ms


@given(
    st.lists(st.integers(-1, HOUR_MS - 1), min_size=1, max_size=300),
    st.integers(1, 100),
    st.sets(st.integers(0, 299)),
)
def test_pages_give_every_message_that_waits_once_and_part_no_tick(
    ahead: list[int], room: int, done: set[int]
) -> None:
    """-1 is what was due when it was stored."""
    start_ms = 1000 * HOUR_MS
    due = [0 if one < 0 else start_ms + one for one in ahead]
    hour = Hour(start_ms)
    hour.place(len(due), 8)
    numbers = [number for number in sorted(done) if number < len(due)]
    hour.done.add(ranges_of(np.array(numbers, np.int64)))
    data = encode_rows(np.array(due, np.int64), pack_piece(0, 8))
    found = list[tuple[int, int]]()
    for low_ms, page in pages_of(hour, data, room):
        for one in page.take():
            assert all(low_ms < at <= page.high_ms for at in one.due.tolist())
            found += zip(one.due.tolist(), one.numbers.tolist(), strict=True)
    assert sorted(found) == sorted((at, number) for number, at in enumerate(due) if number not in done)


@given(
    st.lists(st.integers(-4 * HOUR_MS, HOUR_MS - 1), min_size=1, max_size=300),
    st.lists(st.integers(0, 1000 * HOUR_MS), max_size=30),
    st.integers(1, 100),
)
def test_pages_are_no_larger_than_their_room_whenever_the_messages_of_an_hour_are_due(
    near: list[int], far: list[int], room: int
) -> None:
    """Hours before it were closed by a clock that ran ahead; all of one tick come together, whatever the room is."""
    start_ms = 1000 * HOUR_MS
    due = [*(start_ms + one for one in near), *far]
    hour = Hour(start_ms)
    hour.place(len(due), 8)
    data = encode_rows(np.array(due, np.int64), pack_piece(0, 8))
    found = list[int]()
    for _, page in pages_of(hour, data, room):
        taken = [at for one in page.take() for at in one.due.tolist()]
        assert len(taken) <= room or len({-(-at // TICK_MS) for at in taken}) == 1
        found += sorted(taken)
    assert found == sorted(due)


def test_a_page_of_what_was_cancelled_while_it_was_counted_ends_before_what_was_not_looked_at() -> None:
    start_ms = 1000 * HOUR_MS
    due = [*range(start_ms - HOUR_MS, start_ms, 1_000), start_ms + 1_000]
    hour = Hour(start_ms)
    hour.place(len(due), 8)
    data = encode_rows(np.array(due, np.int64), pack_piece(0, 8))
    page = Page(hour, DelaySettings(hour_ms=HOUR_MS, tick_ms=TICK_MS), -1, 10)
    while (piece := page.next()) is not None:
        page.loaded(data[piece.position : piece.position + piece.size])
        hour.done.add([0, len(due) - 2])
    assert page.high_ms is not None
    assert page.high_ms < start_ms + 1_000
    assert not any(len(one.due) for one in page.take())


def test_a_large_page_is_parts_that_are_sorted_and_the_wheel_does_not_sort_all_of_it_again() -> None:
    """Whoever sorts a million rows at once keeps everybody else waiting."""
    start_ms, count = 1000 * HOUR_MS, 3 * SPOKE_ROWS
    hour = Hour(start_ms)
    hour.place(count, 8)
    due = start_ms + np.random.default_rng(7).integers(0, HOUR_MS, count)
    [(_, page)] = pages_of(hour, encode_rows(due, pack_piece(0, 8)), count)
    wheel, spokes = Wheel(TICK_MS), page.take()
    assert all(0 < len(spoke.due) <= SPOKE_ROWS for spoke in spokes)
    for spoke in spokes:
        wheel.add(spoke)
    wheel.check()
    assert max(len(spoke.due) for spoke in wheel._spokes[start_ms]) <= SPOKE_ROWS
    found = np.concatenate([one.numbers for one in wheel.take(start_ms + HOUR_MS)])
    assert (np.sort(found) == np.arange(count)).all()

"""What is due, taken apart a little at a time, beside all of it at once; what is kept of a piece beside the piece."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples.delays import NOW_MS, later
from tidemill_delay import due as due_module
from tidemill_delay.due import Due, entries_of, units_of
from tidemill_delay.parcels import Unit
from tidemill_delay.pieces import Addressed
from tidemill_delay.rows import pack_piece
from tidemill_delay.wheel import Entries, merged
from tidemill_wire.batch import read_header, stamp
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content

TICK_MS = 500
FIRST, PLACE = 40, 4096
Said = tuple[int, int, int, list[int]]

PIECES = st.lists(st.lists(st.integers(0, 4 * TICK_MS), min_size=1, max_size=12), min_size=1, max_size=12)
"""Of each piece when its messages are due."""


@pytest.fixture(autouse=True)
def a_few_at_a_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(due_module, "CUT_ROWS", 5)
        yield


def rows(pieces: list[list[int]]) -> Entries:
    """As they lie in the wheel."""
    counts = [len(piece) for piece in pieces]
    places = np.repeat(np.array([pack_piece(8 * at, 8) for at in range(len(pieces))], np.uint64), counts)
    due = np.concatenate([np.array(piece, np.int64) for piece in pieces])
    return merged([Entries(0, due, places, np.arange(len(due), dtype=np.int64))])


def said(unit: Unit) -> Said:
    return unit.due_ms, unit.hour, unit.piece, unit.numbers.tolist()


def drained(due: Due) -> list[Said]:
    found: list[Said] = []
    while (unit := due.head()) is not None:
        assert due.pop() is unit
        found.append(said(unit))
    assert not due
    return found


@given(PIECES, st.lists(st.integers(0, 50), max_size=4))
def test_units_are_whole_and_come_tick_by_tick_in_the_order_of_the_file(
    pieces: list[list[int]], cuts: list[int]
) -> None:
    """However the rows are put in: what would be another unit would be taken for another batch, or for a repetition."""
    entries, due = rows(pieces), Due(TICK_MS)
    due.add(entries)
    assert due.messages() == len(entries.due)
    numbers = {pack_piece(8 * at, 8): list[int]() for at in range(len(pieces))}
    expected: dict[tuple[int, int], list[int]] = {}
    for piece, number, at in zip(
        entries.pieces.tolist(), entries.numbers.tolist(), entries.due.tolist(), strict=True
    ):
        numbers[piece].append(number)
        expected.setdefault((-(-at // TICK_MS) * TICK_MS, piece), []).append(number)
    found = drained(due)
    assert found == [(tick, 0, piece, sorted(some)) for (tick, piece), some in sorted(expected.items())]
    assert found == [said(unit) for unit in units_of(entries, TICK_MS)]
    again = Due(TICK_MS)
    again.extend(units_of(entries_of(list(units_of(entries, TICK_MS))), TICK_MS))
    again.put_first(list(units_of(entries.take(0, 1), TICK_MS)))
    assert drained(again)[1:] == found


def test_what_a_former_life_may_have_sent_is_looked_for_where_it_went() -> None:
    due = Due(TICK_MS, begun_ms=TICK_MS)
    due.add(rows([[1, 400, 600], [400]]))
    versions = []
    while (unit := due.pop()) is not None:
        versions.append((unit.due_ms, unit.version))
    assert versions == [(TICK_MS, 0), (TICK_MS, 0), (2 * TICK_MS, None)]


@st.composite
def contents(draw: st.DrawFn) -> tuple[Content, Codec]:
    count = draw(st.integers(2, 12))

    def some(of: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        return st.one_of(st.none(), st.lists(of, min_size=count, max_size=count))

    texts = st.text(st.sampled_from("abc"), min_size=1, max_size=3)
    content = Content(
        draw(st.lists(st.binary(max_size=40), min_size=count, max_size=count)),
        keys=draw(some(texts)),  # type: ignore[arg-type]
        tags=draw(some(st.lists(texts, max_size=3, unique=True))),  # type: ignore[arg-type]
        order_keys=draw(some(texts)),  # type: ignore[arg-type]
        timer_keys=draw(some(texts)),  # type: ignore[arg-type]
        sources=draw(st.one_of(st.none(), st.just([3 * index for index in range(count)]))),
    )
    return content, draw(st.sampled_from((Codec.NONE, Codec.LZ4)))


def told(data: bytearray) -> list[object]:
    """Whose batch it is, and what it says: columns that say nothing may be left out."""
    batch, header = Batch(data), read_header(data)
    batch.check()
    some = header.messages
    return [
        header.producer_id, header.producer_sequence, header.batch_id, header.flags, batch.partition,
        batch.bodies(), batch.keys() or [""] * some, batch.tags() or [[]] * some, batch.order_keys() or [""] * some,
        batch.timer_keys() or [""] * some, batch.numbers(Column.SOURCES, "i", some),
    ]  # fmt: skip


@given(contents(), st.data())
def test_what_is_sent_of_what_was_kept_is_what_is_sent_of_the_piece(
    drawn: tuple[Content, Codec], data: st.DataObject
) -> None:
    """A restart forgets what was kept: a broker must take both for the same."""
    content, codec = drawn
    count = len(content.bodies)
    batch = later(content.bodies, [NOW_MS + index for index in range(count)], codec=codec, content=content)
    stamp(batch, 0, len(batch), FIRST, PLACE, NOW_MS, 1)
    whole = Addressed(batch, PLACE)
    rows = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=count - 1)))
    wanted = sorted(data.draw(st.sets(st.sampled_from(rows), min_size=1)))
    numbers = np.array(wanted, np.int64) + FIRST
    kept = whole.excerpt(np.array(rows, np.int64))
    assert kept.holds(numbers)
    assert [kept.holds(np.array([FIRST + row], np.int64)) for row in range(count)] == [
        row in rows for row in range(count)
    ]
    assert told(kept.send(numbers)) == told(whole.send(numbers))
    assert told(kept.send_to("p0", numbers)) == told(whole.send_to("p0", numbers))
    assert (kept.subject, kept.ordered) == (whole.subject, whole.ordered)
    if whole.ordered:
        assert kept.logical(numbers) == whole.logical(numbers)
    assert read_header(kept.data).batch_id == whole.header.batch_id

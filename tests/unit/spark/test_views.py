"""Values that stay where they lie, and are given in any order."""

from __future__ import annotations

import mmap
import random

import numpy as np
import pyarrow as pa
import pytest

from tidemill_spark.views import BUFFER_BYTES_MAX, BUFFERS_MAX, INLINE_BYTES, sizes_of, taken, views_of

SIZES = [0, 1, 3, 4, 5, INLINE_BYTES - 1, INLINE_BYTES, INLINE_BYTES + 1, 300]


def some(count: int, pieces: int) -> tuple[list[bytes], pa.Array]:
    """Values of all sizes, and the same as views into so many pieces of memory, some of them empty."""
    chance = random.Random(count)
    values = [chance.randbytes(chance.choice(SIZES)) for _ in range(count)]
    cuts = sorted(chance.choices(range(count + 1), k=pieces - 1))
    data = [
        memoryview(b"".join(values[first:end])) for first, end in zip([0, *cuts], [*cuts, count], strict=True)
    ]
    return values, views_of(np.array([len(one) for one in values], np.int32), data)


@pytest.mark.parametrize("pieces", [1, 2, 30, BUFFERS_MAX + 1])
def test_views_are_the_values_whatever_memory_they_lie_in(pieces: int) -> None:
    values, made = some(500, pieces)
    made.validate(full=True)

    assert made.cast(pa.binary()).to_pylist() == values
    assert made.null_count == 0
    assert len(made.buffers()) - 2 <= BUFFERS_MAX


def test_pieces_of_one_memory_are_one_buffer() -> None:
    """As the batches of an answer are, between whose bodies other columns lie; one was unpacked elsewhere."""
    chance = random.Random(3)
    values = [chance.randbytes(chance.choice(SIZES)) for _ in range(300)]
    answer, data = bytearray(), list[tuple[int, int]]()
    for first in range(0, 300, 3):
        answer += b"another column"
        data.append((len(answer), len(answer) + sum(map(len, values[first : first + 3]))))
        answer += b"".join(values[first : first + 3])
    whole = memoryview(bytes(answer))
    pieces = [whole[first:end] for first, end in data]
    pieces[50] = memoryview(bytes(pieces[50]))
    made = views_of(np.array([len(one) for one in values], np.int32), pieces)
    made.validate(full=True)

    assert made.cast(pa.binary()).to_pylist() == values
    assert len(made.buffers()) - 2 == 3


def test_memory_whose_places_have_no_number_is_not_pointed_into() -> None:
    """A view wraps there, and would show other bytes."""
    with mmap.mmap(-1, BUFFER_BYTES_MAX + 1) as large, memoryview(large) as data:
        with pytest.raises(AssertionError, match="bounds"):
            views_of(np.array([1], np.int32), [data])


def test_nothing_is_an_empty_column() -> None:
    made = views_of(np.zeros(0, np.int32), [])

    assert made.to_pylist() == []


def test_rows_are_taken_in_any_order_of_any_part_of_a_table() -> None:
    values, made = some(200, 7)
    table = pa.table({"body": made, "at": pa.array(range(200))})
    order = random.Random(1).sample(range(50), 40)
    part = taken(table.slice(100, 50), np.array(order))
    part.validate(full=True)

    assert part["at"].to_pylist() == [100 + at for at in order]
    assert part["body"].to_pylist() == [values[100 + at] for at in order]
    assert sizes_of(part["body"]).tolist() == [len(values[100 + at]) for at in order]

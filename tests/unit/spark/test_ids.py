"""Lists of batch ids beside the files of a lake."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tidemill_spark.errors import LakeDamaged
from tidemill_spark.ids import build_ids, holds


def test_what_was_put_in_is_found_and_nothing_else() -> None:
    chance = random.Random(1)
    batches = [bytes([7 * same]) * 8 + chance.randbytes(8) for same in range(5) for _ in range(40)]
    batches += [chance.randbytes(16) for _ in range(300)]
    ids = [f"{batch.hex()}-{index}" for batch in batches for index in (0, 12, 65_000)]
    chance.shuffle(ids)
    data, (first, last) = build_ids(pa.array(ids))
    assert (first, last) == (min(batches).hex(), max(batches).hex())
    assert all(holds(data, batch) for batch in batches)
    others = [chance.randbytes(16) for _ in range(300)] + [batches[0][:8] + bytes(8), bytes(16), b"\xff" * 16]
    assert not any(holds(data, batch) for batch in others)


@pytest.mark.parametrize("broken", [b"", b"TMI1", b"TMI2" + bytes(12), b"TMI1" + bytes(4) + b"\1" + bytes(8)])
def test_list_that_is_cut_or_something_else_is_refused(broken: bytes) -> None:
    with pytest.raises(LakeDamaged):
        holds(broken, bytes(16))

"""Dedup keys as batches have them, and what is told of duplicates."""

from __future__ import annotations

import pytest

from samples.batches import full, origin
from tidemill_wire.batch import Flags
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content, build_batch
from tidemill_wire.deduplication import (
    NO_KEY,
    Duplicate,
    check_dedup_key,
    digest_of,
    digests_of,
    packed_rows,
    read_rows,
    some_of,
)
from tidemill_wire.errors import Refused
from tidemill_wire.limits import KEY_BYTES_MAX


def test_a_digest_is_that_of_a_keys_utf8_for_ever() -> None:
    assert digest_of("o-1").hex() == "50c389e67ee3a44c02dbe7395db66643"
    assert digest_of("ö").hex() == "6a0208e522a83047116dfc51ff224072"


def test_rows_of_duplicates_survive_their_bytes() -> None:
    rows = [Duplicate(0, 1 << 19, 1 << 61, bytes(range(16))), Duplicate(7, 0, 0, bytes(16))]

    assert read_rows(packed_rows(rows)) == rows
    assert read_rows(b"") == []


@pytest.mark.parametrize("key", ["", "x" * (KEY_BYTES_MAX + 1), "ö" * (KEY_BYTES_MAX // 2 + 1)])
def test_a_key_beyond_its_limits_is_refused(key: str) -> None:
    with pytest.raises(Refused, match="dedup key"):
        check_dedup_key(key)
    assert check_dedup_key("x" * KEY_BYTES_MAX)


@pytest.mark.parametrize("codec", Codec)
def test_some_messages_of_a_batch_keep_all_that_belongs_to_them(codec: Codec) -> None:
    content = full()
    content.bodies = [b"first " * 200, b"", b"third " * 200]
    content.dedup_keys = [digest_of("a"), NO_KEY, digest_of("c")]
    batch = Batch(build_batch(origin(codec, Flags.ORDERED | Flags.DEDUPLICATED, 3), content))

    part = Batch(some_of(batch, [0, 2]))

    part.check()
    assert part.bodies() == [content.bodies[0], content.bodies[2]]
    assert (part.keys(), part.tags()) == (["o-1", "\u00f6-3"], [["vip", "eu"], ["vip"]])
    assert (part.order_keys(), digests_of(part)) == (["customer-1", ""], [digest_of("a"), digest_of("c")])
    assert part.numbers(Column.DELIVER_DELTAS, "q", 2) == [0, 63_072_000_000]
    assert (part.origins(), part.numbers(Column.SOURCES, "i", 2)) == (["", "\u6f6e"], [0, 2])
    same = (
        "producer_id",
        "producer_sequence",
        "batch_id",
        "created_at_ms",
        "flags",
        "priority",
        "codec",
        "bloom",
    )
    assert all(getattr(part.header, name) == getattr(batch.header, name) for name in same)
    again = Batch(some_of(part, [1]))
    assert again.numbers(Column.SOURCES, "i", 1) == [2]


def test_a_batch_without_keys_says_so() -> None:
    assert digests_of(Batch(build_batch(origin(), Content([b"x"])))) is None

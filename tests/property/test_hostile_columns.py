"""Nobody looks at texts, properties and packed columns when a batch is stored: whatever a producer wrote there, with
the right sum, readers say what they cannot read, and fall over nothing; they count on nothing that was looked at.
"""

from __future__ import annotations

import json
import struct
from array import array
from typing import Any

import msgpack
from hypothesis import example, given, settings
from hypothesis import strategies as st

from samples.batches import full, origin, stamped
from tidemill_broker.doors.gateway_rows import render
from tidemill_broker.doors.queries import message_value
from tidemill_broker.messages import Rows
from tidemill_wire import limits
from tidemill_wire.batch import encode_batch
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content, build_batch, lay_out
from tidemill_wire.commands import Grant, Pulled
from tidemill_wire.errors import CorruptBatch

COUNT = 3
GOOD = Batch(build_batch(origin(), full()))
KINDS = [kind for kind in Column if GOOD.column(kind) is not None]
OTHERS = [Column.SOURCES, Column.INDEXES]
NUMBERS = st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 12), max_size=COUNT + 2).map(
    lambda numbers: array("i", numbers).tobytes()
)
TIME = b"\x81\xa1t\xc7\x0c\xff" + struct.pack(">Iq", 0, 2**62)
DEEP = b"\x81\xa1d" + b"\x91" * 1000 + b"\xc0"
WRITTEN = st.binary(max_size=40) | NUMBERS


def batch_with(changed: dict[Column, bytes]) -> bytearray:
    """The good batch, but for what somebody wrote into these columns."""
    columns = [
        (kind, [changed.get(kind, bytes(GOOD.column(kind) or b""))])
        for kind in Column
        if kind in {*KINDS, *changed}
    ]
    return stamped(encode_batch(origin(), COUNT, len(columns), lay_out(columns, Codec.NONE)))


def properties(packed: bytes) -> dict[Column, bytes]:
    return {
        Column.PROPERTY_OFFSETS: array("i", [0, len(packed), len(packed), len(packed)]).tobytes(),
        Column.PROPERTIES: packed,
    }


def pulled(*batches: bytearray, count: int = COUNT) -> Pulled:
    grants = [Grant("order.created", 100 * at, 17, count, 1, 1) for at in range(len(batches))]
    return Pulled(grants, 1000, memoryview(b"".join(batches)))


def in_json(value: Any) -> None:
    json.dumps(value, allow_nan=False)


@settings(max_examples=300)
@given(changed=st.dictionaries(st.sampled_from([*KINDS, *OTHERS]), WRITTEN, min_size=1, max_size=3))
@example(changed=properties(TIME))
@example(changed=properties(DEEP))
@example(changed={Column.TAG_COUNTS: b"seven.."})
@example(changed={Column.KEY_OFFSETS: b"seven.."})
@example(changed={Column.TAG_COUNTS: array("i", [0, 2**31 - 1, 2, 3]).tobytes()})
@example(changed={Column.TAG_COUNTS: array("i", [-3, -1, 2, 3]).tobytes()})
@example(changed={Column.KEYS: b"\xff" * 6})
def test_readers_say_what_they_cannot_read_and_fall_over_nothing(changed: dict[Column, bytes]) -> None:
    data = batch_with(changed)

    given_out = render(pulled(data), "g", "ann")
    assert len(given_out.rows) + len(given_out.undecodable) == COUNT
    assert given_out.left == []
    in_json(given_out.rows)

    rows = Rows(bytes(data))
    for index in range(COUNT):
        found = rows.message(index)
        in_json(message_value(found))
        rows.buried(index)
        rows.row_of(index)
    assert all(0 <= index < COUNT for index in rows.with_key("o-1"))


@given(changed=st.dictionaries(st.sampled_from(KINDS), WRITTEN, min_size=1, max_size=3))
def test_whole_columns_are_read_or_refused(changed: dict[Column, bytes]) -> None:
    batch = Batch(batch_with(changed))
    for read in (batch.keys, batch.tags, batch.bodies, batch.properties, batch.order_keys, batch.origins):
        try:
            read()
        except CorruptBatch:
            continue


def test_messages_beside_one_that_cannot_be_read_are_shown_with_what_is_wrong() -> None:
    rows = Rows(bytes(batch_with({Column.TAGS: b"\xff" * 9, Column.CREATED_DELTAS: b"odd"})))
    found = rows.message(0)

    assert (found.body, found.key, found.tags) == (b"first", "o-1", ())
    assert found.problem is not None
    assert "TAGS" in found.problem
    assert "CREATED_DELTAS" in found.problem


def test_what_unpacks_to_more_than_an_answer_may_hold_is_left_for_the_next_one() -> None:
    """A kilobyte of them each, and a thousand fit into what is read for one answer."""
    size = limits.HTTP_UNPACKED_BYTES // 3
    packed = stamped(build_batch(origin(Codec.ZSTD), Content([bytes(size)])))
    assert len(packed) < 2048

    found = render(pulled(*[packed] * 8, count=1), "g", "ann")

    assert len(found.rows) == 2
    assert found.left == [("order.created", 100 * at) for at in range(2, 8)]


def test_one_batch_is_given_however_much_it_unpacks_to() -> None:
    bodies = [bytes(limits.MIB)] * 8
    found = render(pulled(stamped(build_batch(origin(Codec.ZSTD), Content(bodies))), count=8), "g", "ann")

    assert (len(found.rows), found.left) == (8, [])


def test_times_that_no_calendar_has_are_unreadable_here_and_shown_there() -> None:
    data = batch_with(properties(TIME))
    assert len(render(pulled(data), "g", "ann").undecodable) == COUNT
    assert message_value(Rows(bytes(data)).message(0))["properties"] is not None
    assert msgpack.unpackb(TIME) is not None

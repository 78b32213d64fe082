"""Archived messages as batches again."""

from __future__ import annotations

from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_spark.decode import Place, decode
from tidemill_spark.encode import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    chunks,
    encode,
    places_of,
    with_properties,
    with_property,
)
from tidemill_wire.batch import SINGLES_FROM, BatchIds, Flags, Origin, stamp
from tidemill_wire.columns import Batch, Content, build_batch
from tidemill_wire.fields import REPLAYED_PROPERTY
from tidemill_wire.limits import PROPERTIES_BYTES_MAX
from tidemill_wire.ordering import Chart
from tidemill_wire.routes import Partition, PartitionSet

AT_MS = 1_800_000_000_000


def archived(content: Content, flags: Flags = Flags(0), priority: int = 0, first: int = 0) -> Any:
    origin = Origin(b"order.paid", 7, 1, BatchIds(7).next(AT_MS), AT_MS, flags=flags, priority=priority)
    batch = build_batch(origin, content)
    stamp(batch, 0, len(batch), first, 0, AT_MS + 5, 1)
    return pa.Table.from_batches([decode([bytes(batch)], Place("order.paid", "g0", "order.paid"))])


def test_what_a_message_had_it_has_again_and_its_id_goes_along() -> None:
    content = Content(
        [b"one", b"", b"three"],
        keys=["k", None, "l"],
        tags=[["a", "b"], [], ["c"]],
        order_keys=["x", "x", "y"],
        properties=[msgpack.packb({"n": 1}), b"", msgpack.packb({})],
        created_deltas=[0, 7, 3],
        dedup_keys=[b"d" * 16] * 3,
    )
    table = archived(content, Flags.ORDERED | Flags.DEDUPLICATED, priority=3)
    batch = Batch(encode(table, "run", "again", marked=True))
    batch.check()
    assert batch.bodies() == [b"one", b"", b"three"]
    assert batch.keys() == ["k", "", "l"]
    assert batch.tags() == [["a", "b"], [], ["c"]]
    assert batch.order_keys() == ["x", "x", "y"]
    assert batch.origins() == table["id"].to_pylist()
    assert batch.flags == Flags.REPLAYED | Flags.ORDERED
    assert (batch.partition, batch.header.priority, batch.header.created_at_ms) == ("again", 3, AT_MS)
    again = pa.Table.from_batches([decode([stamped(batch)], Place("again", "g0", "again"))])
    assert again["created_at"].equals(table["created_at"])
    assert again["replayed"].to_pylist() == [True] * 3
    properties = [msgpack.unpackb(one) for one in batch.properties() or ()]
    assert properties == [
        {"n": 1, REPLAYED_PROPERTY: table["id"][0].as_py()},
        {REPLAYED_PROPERTY: table["id"][1].as_py()},
        {REPLAYED_PROPERTY: table["id"][2].as_py()},
    ]
    as_they_were = Batch(encode(table, "run", "again", marked=False))
    assert as_they_were.flags == Flags.ORDERED
    assert as_they_were.properties() == [msgpack.packb({"n": 1}), b"", msgpack.packb({})]


def stamped(batch: Batch) -> bytes:
    data = bytearray(batch._buffer)
    stamp(data, 0, len(data), 0, 0, AT_MS, 1)
    return bytes(data)


def test_same_rows_make_the_same_bytes_and_other_rows_another_producer() -> None:
    table = archived(Content([b"%d" % number for number in range(20)]))
    one, same = (encode(table, "run", "again", marked=True) for _ in range(2))
    assert one == same
    assert Batch(one).header.producer_id >= SINGLES_FROM
    others = [
        encode(table.slice(0, 19), "run", "again", marked=True),
        encode(table.slice(1), "run", "again", marked=True),
        encode(table, "other", "again", marked=True),
        encode(table, "run", "again#1", marked=True),
    ]
    producers = {Batch(one).header.producer_id for one in others}
    assert len(producers) == 4
    assert Batch(one).header.producer_id not in producers


def test_replayed_message_that_is_archived_and_sent_again_keeps_its_first_id() -> None:
    table = archived(Content([b"x"], origins=[f"{'ab' * 16}-3"]))
    assert Batch(encode(table, "run", "again", marked=True)).origins() == [f"{'ab' * 16}-3"]


def test_chunks_hold_all_rows_in_order_within_their_limits() -> None:
    bodies = [b"x" * (300_000 if number % 50 == 0 else 10) for number in range(2500)]
    table = archived(Content(bodies, created_deltas=[0] * 1200 + [2**31 - 1] * 1300))
    found = list(chunks(table))
    assert pa.concat_tables(found).equals(table)
    assert len(found) > 3
    for chunk in found:
        assert chunk.num_rows <= CHUNK_ROWS
        assert sum(map(len, chunk["body"].to_pylist())) <= CHUNK_BYTES + 300_000
        encode(chunk, "run", "again", marked=True)
    assert list(chunks(table.slice(0, 0))) == []


def test_order_keys_go_where_their_route_says_and_the_rest_is_spread() -> None:
    keys = [f"k{number}" if number % 2 else None for number in range(4000)]
    table = archived(Content([b"x"] * 4000, order_keys=keys), Flags.ORDERED)
    places = (Partition("g0", "s", ((0, 300), (900, 1024))), Partition("g1", "s", ((300, 900),)))
    chart = Chart(PartitionSet(1, places))
    wanted = places_of(table, places).tolist()
    for key, index in zip(keys, wanted, strict=True):
        if key is not None:
            assert chart.of(key) == places[index]
    assert {index for key, index in zip(keys, wanted, strict=True) if key is None} == {0, 1}
    assert set(places_of(table, places[:1]).tolist()) == {0}


@pytest.mark.parametrize(
    "known", [{}, {"a": 1}, {str(number): number for number in range(15)}, {REPLAYED_PROPERTY: "x"}]
)
def test_property_is_added_to_maps_of_every_size(known: dict[str, object]) -> None:
    packed = msgpack.packb(known) if known else None
    assert msgpack.unpackb(with_property(packed, "id-1")) == {**known, REPLAYED_PROPERTY: "id-1"}


OTHERS = [b"\xc1", msgpack.packb([1, 2]), b"\xde\x00", msgpack.packb({str(n): n for n in range(40)})]
PROPERTIES = st.one_of(
    st.none(), st.just(b""), st.sampled_from(OTHERS),
    st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=20).map(msgpack.packb),
    st.just(msgpack.packb({REPLAYED_PROPERTY: "x"})), st.just(msgpack.packb({"a": REPLAYED_PROPERTY})),
)  # fmt: skip


@given(st.lists(st.tuples(PROPERTIES, st.text("0123456789abcdef-", max_size=45)), min_size=1, max_size=12))
def test_properties_of_a_column_are_those_of_one_after_the_other(
    rows: list[tuple[bytes | None, str]],
) -> None:
    packed, ids = (list(column) for column in zip(*rows, strict=True))
    made = with_properties(pa.array(packed, pa.binary()), pa.array(ids, pa.string()))
    assert made.to_pylist() == [with_property(*row) for row in rows]


TEXTS = st.one_of(st.none(), st.text(max_size=6))
MESSAGE = st.tuples(
    st.binary(max_size=20), TEXTS, st.lists(st.text(min_size=1, max_size=3), max_size=3, unique=True), TEXTS,
    st.one_of(st.just(b""), st.sampled_from(OTHERS)), st.integers(0, 5),
)  # fmt: skip


@given(st.lists(MESSAGE, min_size=1, max_size=10), st.booleans(), st.integers(0, 3))
def test_batch_of_columns_is_that_of_its_messages(
    messages: list[tuple[bytes, str | None, list[str], str | None, bytes, int]], marked: bool, cut: int
) -> None:
    """What is made without looking at a message is, byte for byte, what a client makes of one after the other."""
    bodies, keys, tags, order_keys, properties, deltas = (
        list(column) for column in zip(*messages, strict=True)
    )
    content = Content(
        bodies, keys, [sorted(row) for row in tags], order_keys, properties, created_deltas=deltas
    )
    table = archived(content).slice(min(cut, len(messages) - 1))
    data = encode(table, "run", "again", marked=marked)
    rows = table.to_pylist()
    at_ms = min(round(row["created_at"].timestamp() * 1000) for row in rows)
    own = [round(row["created_at"].timestamp() * 1000) - at_ms for row in rows]
    packed = [with_property(row["properties"], row["id"]) if marked else row["properties"] for row in rows]
    expected = Content(
        [row["body"] for row in rows],
        [row["key"] for row in rows] if any(row["key"] for row in rows) else None,
        [row["tags"] or [] for row in rows] if any(row["tags"] for row in rows) else None,
        [row["order_key"] for row in rows] if any(row["order_key"] for row in rows) else None,
        [one or b"" for one in packed] if any(packed) else None,
        created_deltas=own if any(own) else None,
        origins=[row["id"] for row in rows],
    )
    flags = Flags.ORDERED if expected.order_keys else Flags(0)
    flags |= Flags.REPLAYED if marked else Flags(0)
    producer = Batch(data).header.producer_id
    origin = Origin(b"again", producer, 1, Batch(data).header.batch_id, at_ms, flags=flags)
    assert data == build_batch(origin, expected)


@pytest.mark.parametrize("theirs", [b"\xc1", msgpack.packb([1, 2]), b"\xde\x00"])
def test_properties_that_are_no_map_stay_as_they_are(theirs: bytes) -> None:
    assert with_property(theirs, "id-1") == theirs


def test_large_properties_and_odd_times_make_batches_that_brokers_take() -> None:
    """A thousand messages of a byte each, with all that properties and keys may hold."""
    content = Content(
        [b"x"] * CHUNK_ROWS,
        keys=["k" * 1000] * CHUNK_ROWS,
        properties=[msgpack.packb({"p": "v" * 60_000})] * CHUNK_ROWS,
    )
    parts = [
        Content(content.bodies[at : at + 100], content.keys[:100], properties=content.properties[:100])
        for at in range(0, CHUNK_ROWS, 100)
        if content.keys is not None and content.properties is not None
    ]
    table = pa.concat_tables([archived(one, first=at * 100) for at, one in enumerate(parts)])
    made = [encode(one, "run", "again", marked=True) for one in chunks(table)]
    assert sum(Batch(one).header.messages for one in made) == CHUNK_ROWS
    assert max(map(len, made)) < 2 * CHUNK_BYTES

    origin = Origin(b"order.paid", 7, 1, BatchIds(7).next(AT_MS), AT_MS * 1000)
    odd = build_batch(origin, Content([b"a"]))
    stamp(odd, 0, len(odd), 0, 0, AT_MS, 1)
    rows = pa.Table.from_batches([decode([bytes(odd)], Place("order.paid", "g0", "order.paid"))])
    Batch(encode(rows, "run", "again", marked=True)).check()


def test_properties_that_have_no_room_for_one_more_stay_as_they_are() -> None:
    """Brokers would refuse the message, and the replay would end at it each time; its origin says the same."""
    packed = msgpack.packb({"p": b"v" * (PROPERTIES_BYTES_MAX - 8)})
    assert len(packed) <= PROPERTIES_BYTES_MAX
    table = archived(Content([b"a", b"b"], properties=[packed, msgpack.packb({"n": 1})]))
    made = Batch(encode(table, "run", "again", marked=True)).properties()
    assert made[0] == packed
    assert REPLAYED_PROPERTY in msgpack.unpackb(made[1])

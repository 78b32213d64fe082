"""Batches become Arrow with all that a client would have read out of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_spark.decode import Place, decode, portioned, split
from tidemill_spark.schema import COLUMNS, SCHEMA, properties_of, schema_of, spark_schema
from tidemill_wire.batch import Flags, Origin, stamp
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Content, build_batch
from tidemill_wire.errors import CorruptBatch

PLACE = Place("order", "g0", "order")
AT_MS = 1_795_140_000_123


def batch(content: Content, first: int = 0, origin: Origin | None = None) -> bytes:
    made = build_batch(origin or Origin(b"order", 7, 1, bytes(range(16)), AT_MS), content)
    stamp(made, 0, len(made), first, 4096, AT_MS + 5, 3)
    return bytes(made)


def origin_of(codec: Codec) -> Origin:
    return Origin(b"order", 7, 1, bytes(range(16)), AT_MS, codec)


def full(first: int = 0, codec: Codec = Codec.NONE, count: int = 3) -> bytes:
    content = Content(
        [b"x" * 300 + str(i).encode() for i in range(count)],
        keys=[None if i % 3 == 1 else f"k{i}" for i in range(count)],
        tags=[["a", "ü"][: i % 3] for i in range(count)],
        order_keys=[None if i % 2 else f"o{i}" for i in range(count)],
        properties=[msgpack.packb({"n": i}) if i % 2 else b"" for i in range(count)],
        created_deltas=[-i for i in range(count)],
        deliver_deltas=[1000 * i for i in range(count)],
        attempts=list(range(count)),
        origins=["" if i else "there-1" for i in range(count)],
        dedup_keys=[bytes(16) if i % 2 else bytes([i + 1]) * 16 for i in range(count)],
    )
    flags = Flags.ORDERED | Flags.REPLAYED
    return batch(content, first, Origin(b"order", 7, 1, bytes(range(16)), AT_MS, codec, flags, priority=5))


@pytest.mark.parametrize("codec", list(Codec))
def test_all_that_a_batch_holds_is_in_the_rows(codec: Codec) -> None:
    rows = decode([full(10, codec)], PLACE)
    rows.validate(full=True)

    assert rows.schema.equals(SCHEMA)
    assert rows.column("id").to_pylist() == [f"{bytes(range(16)).hex()}-{i}" for i in range(3)]
    assert rows.column("sequence").to_pylist() == [10, 11, 12]
    assert rows.column("key").to_pylist() == ["k0", None, "k2"]
    assert rows.column("order_key").to_pylist() == ["o0", None, "o2"]
    assert rows.column("tags").to_pylist() == [None, ["a"], ["a", "ü"]]
    assert [properties_of(one) for one in rows.column("properties").to_pylist()] == [{}, {"n": 1}, {}]
    assert rows.column("body").to_pylist() == [b"x" * 300 + str(i).encode() for i in range(3)]
    assert rows.column("attempts").to_pylist() == [0, 1, 2]
    assert rows.column("origin").to_pylist() == ["there-1", None, None]
    assert rows.column("dedup_key").to_pylist() == [b"\x01" * 16, None, b"\x03" * 16]
    made = datetime.fromtimestamp(AT_MS / 1000, UTC)
    assert rows.column("created_at")[0].as_py() == made
    assert (rows.column("created_at")[2].as_py() - made).total_seconds() == -0.002
    assert (rows.column("deliver_at")[2].as_py() - made).total_seconds() == 2
    stored = datetime.fromtimestamp((AT_MS + 5) / 1000, UTC)
    assert rows.column("stored_at").to_pylist() == [stored] * 3
    assert (rows.column("date")[0].as_py(), rows.column("hour")[0].as_py()) == (stored.date(), stored.hour)
    first = {name: rows.column(name)[0].as_py() for name in ("priority", "producer", "producer_sequence")}
    assert first == {"priority": 5, "producer": f"{7:016x}", "producer_sequence": 1}
    last = {name: rows.column(name)[2].as_py() for name in ("replayed", "ordered", "epoch", "position")}
    assert last == {"replayed": True, "ordered": True, "epoch": 3, "position": 4096}
    where = {name: rows.column(name)[1].as_py() for name in ("subject", "broker_group", "partition")}
    assert where == {"subject": "order", "broker_group": "g0", "partition": "order"}


def test_plain_batches_beside_full_ones_have_nulls_where_they_say_nothing() -> None:
    rows = decode([batch(Content([b"", b"b"]), 0), full(2), batch(Content([b"c"]), 5)], PLACE)
    rows.validate(full=True)

    assert rows.column("body").to_pylist()[:2] == [b"", b"b"]
    assert rows.column("body").to_pylist()[-1] == b"c"
    assert rows.column("key").to_pylist() == [None, None, "k0", None, "k2", None]
    assert rows.column("tags").to_pylist() == [None, None, None, ["a"], ["a", "ü"], None]
    assert rows.column("deliver_at").is_null().to_pylist() == [True, True, False, False, False, True]
    assert rows.column("sequence").to_pylist() == list(range(6))


@pytest.mark.parametrize("codec", list(Codec))
def test_bodies_that_stay_in_place_are_the_same_when_they_are_long(codec: Codec) -> None:
    batches = [full(10, codec, 5), full(15, codec, 2)]
    views = decode(batches, PLACE, COLUMNS, 11, 16, in_place=True)
    views.validate(full=True)

    assert views.schema.field("body").type == pa.binary_view()
    assert views.to_pylist() == decode(batches, PLACE, COLUMNS, 11, 16).to_pylist()
    short = decode([batch(Content([b"a", b"b"]))], PLACE, COLUMNS, in_place=True)
    assert short.schema.equals(SCHEMA)


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_portioned_by_what_they_are_when_they_are_unpacked(codec: Codec) -> None:
    batches = [memoryview(batch(Content([b"log " * 250] * 10), 0, origin_of(codec))) for _ in range(7)]
    assert (len(batches[0]) < 1_000) == (codec is not Codec.NONE)

    assert [len(one) for one in portioned(batches, 25_000)] == [2, 2, 2, 1]
    assert [one for portion in portioned(batches, 1) for one in portion] == batches
    assert list(portioned(batches)) == [batches]
    assert list(portioned([])) == []


def test_nothing_is_an_empty_table_with_all_columns() -> None:
    rows = decode([], PLACE)

    assert rows.num_rows == 0
    assert rows.schema.equals(SCHEMA)


def test_only_what_is_asked_for_is_made_and_only_of_the_range() -> None:
    rows = decode([full(10), full(13)], PLACE, ("sequence", "key"), 12, 15)

    assert rows.schema.equals(schema_of(("sequence", "key")))
    assert rows.to_pydict() == {"sequence": [12, 13, 14], "key": ["k2", "k0", None]}
    assert decode([full(10)], PLACE, ("sequence",), 20, 30).num_rows == 0


def test_ids_are_those_that_clients_print() -> None:
    many = batch(Content([b""] * 11_000))
    ids = decode([many], PLACE, ("id",)).column("id").to_pylist()
    opened = Batch(many)

    assert ids == [opened.message_id(index) for index in range(11_000)]
    part = batch(Content([b"", b""], sources=[9, 100]))
    assert decode([part], PLACE, ("id",)).column("id").to_pylist() == [
        f"{bytes(range(16)).hex()}-9",
        f"{bytes(range(16)).hex()}-100",
    ]


def test_a_copy_has_the_id_of_its_original() -> None:
    copy = Origin(b"order", 7, 1, bytes(range(16)), AT_MS, flags=Flags.REDELIVERED)
    rows = decode(
        [batch(Content([b"a", b"b"], origins=["ef" * 16 + "-1", ""]), 0, copy), full(2)], PLACE, ("id",)
    )

    assert rows.column("id").to_pylist()[:3] == [
        "ef" * 16 + "-1",
        f"{bytes(range(16)).hex()}-1",
        f"{bytes(range(16)).hex()}-0",
    ]


def test_a_key_that_is_no_text_is_shown_as_well_as_it_can_be() -> None:
    data = bytearray(batch(Content([b"a"], keys=["kk"])))
    at = data.rindex(b"kk")
    data[at] = 0xFF
    whole = Batch(data).header
    from crc32c import crc32c

    data[40:44] = crc32c(memoryview(data)[44 : whole.length]).to_bytes(4, "little")

    assert decode([bytes(data)], PLACE, ("key",)).column("key").to_pylist() == ["\ufffdk"]


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_damage_is_found_and_never_decoded(place: int, value: int) -> None:
    whole = full(0)
    at = place % len(whole)
    if whole[at] == value:
        return
    damaged = bytearray(whole)
    damaged[at] = value

    with pytest.raises(CorruptBatch):
        decode([bytes(damaged)], PLACE)


def test_whole_batches_are_split_off_wherever_the_bytes_end() -> None:
    three = [full(0), full(3), batch(Content([b"z"]), 6)]
    data = b"".join(three)
    ends = {0, len(three[0]), len(three[0]) + len(three[1]), len(data)}
    for size in random.Random(1).sample(range(len(data) + 1), 200):
        found, used = split(data[:size])
        assert used == max(end for end in ends if end <= size)
        assert b"".join(found) == data[:used]
    with pytest.raises(CorruptBatch):
        split(bytes(8))


def test_spark_and_arrow_have_the_same_columns() -> None:

    assert spark_schema().count("`") == 2 * len(COLUMNS)
    assert spark_schema(["tags", "stored_at"]) == "`tags` ARRAY<STRING>, `stored_at` TIMESTAMP"


@pytest.mark.parametrize("origin", ["hello", "z" * 32 + "-1", "ab" * 16 + "-1\n", "", "ü" * 40])
def test_a_copy_whose_origin_is_no_id_keeps_its_own(origin: str) -> None:
    """Whoever sends says what is a copy, and of what: an archive that stumbled over it would never get past it."""
    copy = Origin(b"order", 7, 1, bytes(range(16)), AT_MS, flags=Flags.REDELIVERED)
    there = "ab" * 16 + "-7"
    rows = decode([batch(Content([b"a", b"b"], origins=[origin, there]), origin=copy)], PLACE)

    assert rows.column("id").to_pylist() == [f"{bytes(range(16)).hex()}-0", there]
    assert rows.column("origin").to_pylist() == [origin or None, there]


@pytest.mark.parametrize("made_ms", [1 << 62, -(1 << 62), AT_MS * 1000, 253_402_300_800_000])
def test_times_that_no_table_knows_are_the_last_or_the_first_one_that_is_known(made_ms: int) -> None:
    """As from a program that took microseconds for milliseconds."""
    odd = Origin(b"order", 7, 1, bytes(range(16)), made_ms)
    rows = decode([batch(Content([b"a", b"b"], deliver_deltas=[0, 5]), origin=odd)], PLACE)

    for name in ("created_at", "deliver_at"):
        assert {one.year for one in rows.column(name).to_pylist()} == {9999 if made_ms > 0 else 1}

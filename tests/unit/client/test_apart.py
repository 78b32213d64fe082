"""A spooled batch is taken apart by its order keys: all of it is there, once, and the same when it is done again."""

from __future__ import annotations

import pytest

from tidemill.apart import take_apart
from tidemill_wire.batch import SINGLES_FROM, Flags, Origin
from tidemill_wire.columns import Batch, Content, build_batch
from tidemill_wire.ordering import logical_partition
from tidemill_wire.routes import Partition, PartitionSet

LOW = [key for key in map(str, range(100)) if logical_partition(key) < 512][:2]
HIGH = [key for key in map(str, range(100)) if logical_partition(key) >= 512][:2]
ALL = PartitionSet(1, (Partition("g0", "a", ((0, 1024),)),))
HALVES = PartitionSet(2, (Partition("g0", "a", ((0, 512),)), Partition("g1", "a#1", ((512, 1024),))))
GONE = PartitionSet(3, (Partition("g2", "a#2", ((0, 1024),)),))


def spooled(*order_keys: str | None) -> bytes:
    count = len(order_keys)
    content = Content(
        [b"%d" % row for row in range(count)],
        keys=[f"id-{row}" if row % 2 else None for row in range(count)],
        tags=[("red",) if row else () for row in range(count)],
        order_keys=list(order_keys),
        properties=[b"\x81\xa1x\x01" if row else b"" for row in range(count)],
    )
    origin = Origin(b"a", 7, 3, bytes(range(16)), 5, flags=Flags.ORDERED, priority=2)
    return bytes(build_batch(origin, content))


def test_each_message_goes_with_all_that_belongs_to_it_to_where_its_key_lies() -> None:
    data = spooled(LOW[0], HIGH[0], LOW[1], HIGH[0], None)

    pieces = [(group, Batch(piece)) for group, piece in take_apart(data, "g0", HALVES)]

    assert [(group, one.partition, one.bodies()) for group, one in pieces] == [
        ("g0", "a", [b"0", b"2", b"4"]),
        ("g1", "a#1", [b"1", b"3"]),
    ]
    _, moved = pieces[1]
    moved.check()
    assert (moved.keys(), moved.order_keys()) == (["id-1", "id-3"], [HIGH[0], HIGH[0]])
    assert (moved.tags(), moved.properties()) == ([["red"]] * 2, [b"\x81\xa1x\x01"] * 2)
    assert (moved.header.priority, moved.header.created_at_ms, moved.flags) == (2, 5, Flags.ORDERED)
    assert len({one.header.batch_id for _, one in pieces}) == 2
    assert len({one.header.producer_id for _, one in pieces} | {7}) == 3
    assert all(one.header.producer_id >= SINGLES_FROM for _, one in pieces), "they would push out producers"


def test_a_batch_that_goes_to_one_place_keeps_its_id() -> None:
    data = spooled(LOW[0], HIGH[0])

    [(group, piece)] = take_apart(data, "g0", GONE)

    moved = Batch(piece)
    moved.check()
    assert (group, moved.partition, moved.message_id(1)) == ("g2", "a#2", Batch(data).message_id(1))
    assert moved.header.producer_sequence == 1


@pytest.mark.parametrize("route", [HALVES, GONE], ids=["halves", "gone"])
def test_done_again_the_pieces_are_the_same(route: PartitionSet) -> None:
    data = spooled(*LOW, *HIGH)

    assert take_apart(data, "g0", route) == take_apart(data, "g0", route) != []


@pytest.mark.parametrize("keys", [LOW, [None]], ids=["keyed", "without"])
def test_what_lies_where_it_was_refused_is_left(keys: list[str | None]) -> None:
    assert take_apart(spooled(*keys), "g0", ALL) == []
    assert take_apart(spooled(*keys), "g0", HALVES) == []

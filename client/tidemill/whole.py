"""Whole messages out of a delivery, for who has none of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.delivery import Delivery
from tidemill_wire.columns import Content
from tidemill_wire.limits import MIB
from tidemill_wire.ranges import pairs

OFFER_MESSAGES = 1000
OFFER_BYTES = MIB


def content_of(delivery: Delivery, indexes: Sequence[int]) -> Content:
    """Whole messages, as somebody who has none of them is told."""
    keys, order_keys = (
        [read(index) for index in indexes] for read in (delivery.key_of, delivery.order_key_of)
    )
    properties = [delivery.packed_of(index) for index in indexes]
    return Content(
        [delivery.bodies[index] for index in indexes],
        keys if any(keys) else None,
        [sorted(delivery.tags_of(index)) for index in indexes],
        order_keys if any(order_keys) else None,
        properties if any(properties) else None,
        origins=[delivery.id_of(index) for index in indexes],
    )


def runs_of(delivery: Delivery, ranges: Sequence[int]) -> Iterator[list[int]]:
    """Indexes of messages whose sequences have no gap, a bounded number and size at once."""
    run: list[int] = []
    size = 0
    for first, last in pairs(ranges):
        for index in range(first - delivery.pull_sequence, last - delivery.pull_sequence + 1):
            size += len(delivery.bodies[index])
            follows = run and delivery.sequence_of(index) == delivery.sequence_of(run[-1]) + 1
            if run and (not follows or len(run) >= OFFER_MESSAGES or size > OFFER_BYTES):
                yield run
                run, size = [], len(delivery.bodies[index])
            run.append(index)
    if run:
        yield run

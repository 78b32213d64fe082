"""Takes a spooled batch apart whose order keys lie in other partitions: by now, or since nobody knew where. Pure.

Each piece is the only batch of a producer of its own (``SINGLES_FROM``), whose id is drawn from the batch's and the
partition: who is interrupted and does it again makes the same pieces, and the broker recognises what it has. A batch
that goes to one place as a whole keeps its id, and so do its messages.

What was spooled before it had a route is for a partition of its subject's name, which need not be in the route: then it
goes as a whole to one that is, drawn from its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from tidemill.encode import renamed, renumbered
from tidemill_wire.batch import SINGLES_FROM, Flags, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, build_batch
from tidemill_wire.deduplication import picked
from tidemill_wire.ordering import logical_partition
from tidemill_wire.routes import Partition, PartitionSet

BATCH_ID_TIME_BYTES = 8


def take_apart(data: bytes, group: str, route: PartitionSet) -> list[tuple[str, bytes]]:
    """The pieces with their broker groups, in the order of the messages; nothing, when by this route all order keys lie
    in the partition of that group for which the batch is. ``group`` is empty for what has none yet.
    """
    batch = Batch(data)
    rows = _rows(batch, route)
    if not (group or rows):
        rows = _drawn_place(batch, route)
    if [(place.group, place.name) for place in rows] in ([(group, batch.partition)], []):
        return []
    whole = len(rows) == 1
    return [
        (place.group, _whole(batch, data, place) if whole else _piece(batch, place, mine))
        for place, mine in rows.items()
    ]


def _rows(batch: Batch, route: PartitionSet) -> dict[Partition, list[int]]:
    """Of each partition the messages that go there; one without an order key goes with the first that has one."""
    keys = batch.order_keys() or []
    homes = [route.of(logical_partition(key)) if key else None for key in keys]
    first = next((home for home in homes if home is not None), None)
    rows: dict[Partition, list[int]] = {}
    for row, home in enumerate(homes):
        place = home or first
        if place is not None:
            rows.setdefault(place, []).append(row)
    return rows


def _drawn_place(batch: Batch, route: PartitionSet) -> dict[Partition, list[int]]:
    """Of what has no order key; nothing, when the route has partitions of the name it bears."""
    if any(place.name == batch.partition for place in route.partitions):
        return {}
    place = max(route.partitions, key=lambda one: _drawn(batch, one))
    return {place: list(range(batch.header.messages))}


def _whole(batch: Batch, data: bytes, place: Partition) -> bytes:
    producer_id, _ = _drawn(batch, place)
    return bytes(renumbered(renamed(data, place.name.encode()), 1, producer_id))


def _piece(batch: Batch, place: Partition, rows: Sequence[int]) -> bytes:
    header, (producer_id, batch_id) = batch.header, _drawn(batch, place)
    origin = Origin(
        place.name.encode(), producer_id, 1, batch_id, header.created_at_ms, Codec(header.codec),
        Flags(header.flags), priority=header.priority,
    )  # fmt: skip
    return bytes(build_batch(origin, picked(batch, rows)))


def _drawn(batch: Batch, place: Partition) -> tuple[int, bytes]:
    """A producer id and a batch id, always the same for the same batch and partition."""
    drawn = blake2b(batch.header.batch_id + place.key.encode(), digest_size=16).digest()
    batch_id = batch.header.batch_id[:BATCH_ID_TIME_BYTES] + drawn[BATCH_ID_TIME_BYTES:]
    return int.from_bytes(drawn[:8], "little") | SINGLES_FROM, batch_id

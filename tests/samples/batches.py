"""Batches by name, built from plain values, and one read back into plain values."""

from __future__ import annotations

from array import array
from typing import Any

import msgpack
import numpy as np

from tidemill_ledger.excerpts import Excerpt
from tidemill_ledger.gathering import part
from tidemill_wire.batch import Flags, Origin, encode_batch, stamp
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content, build_batch, lay_out, offsets_of
from tidemill_wire.deduplication import NO_KEY, digest_of, digests_of

ID = bytes(range(16))
CREATED_MS = 1_780_000_000_000
TEXT = b"the tide turns the mill, the mill turns the tide; " * 20


def origin(codec: Codec = Codec.NONE, flags: Flags = Flags(0), priority: int = 0) -> Origin:
    return Origin(b"order.created", 77, 5, ID, CREATED_MS, codec, flags, priority)


def stamped(batch: bytearray) -> bytearray:
    stamp(batch, 0, len(batch), 17, 4096, CREATED_MS + 3, 2)
    return batch


def full() -> Content:
    """Three messages and every column."""
    return Content(
        bodies=[b"first", b"", b"third"],
        keys=["o-1", None, "\u00f6-3"],
        tags=[["vip", "eu"], [], ["vip"]],
        order_keys=["customer-1", "customer-2", None],
        properties=[msgpack.packb({"trace": "abc"}), b"", msgpack.packb({"n": 1})],
        created_deltas=[0, 1, -2],
        deliver_deltas=[0, 30_000, 63_072_000_000],
        attempts=[0, 1, 32],
        origins=["", "%dead%order.created%billing", "\u6f6e"],
    )


def gathered() -> bytearray:
    """Messages 0 and 2 of three, as a broker gathers them."""
    columns: list[tuple[Column, list[bytes]]] = [
        (Column.BODY_OFFSETS, [offsets_of([b"one", b"three"])]),
        (Column.BODIES, [b"one", b"three"]),
        (Column.INDEXES, [array("i", [0, 2]).tobytes()]),
    ]
    return encode_batch(origin(flags=Flags.GATHERED), 2, len(columns), lay_out(columns, Codec.NONE))


def timed() -> Content:
    """Two messages for later, one of which can be found by a timer key."""
    return Content([b"remind", b"report"], deliver_deltas=[90_000, 3_600_000], timer_keys=["order-17", None])


def recurring() -> Content:
    """A message that recurs, and is due first in an hour and a half."""
    said = b"1779998400000 0000000000000000 once Europe/Berlin 0 9 * * mon-fri"
    return Content([b"report"], deliver_deltas=[5_400_000], timer_keys=["report"], cron=said)


def deduplicated() -> Content:
    """The second and third of three messages, the others of which were stored before."""
    return Content(
        bodies=[b"second", b"third"],
        order_keys=["o-2", "customer-1"],
        dedup_keys=[digest_of("o-2"), NO_KEY],
        sources=[1, 2],
    )


BATCHES: dict[str, bytearray] = {
    "single": build_batch(origin(), Content([b"hello"])),
    "several": build_batch(origin(), Content([b"one", b"", b"three"])),
    "full": build_batch(origin(flags=Flags.ORDERED | Flags.DELAYED, priority=3), full()),
    "stamped": stamped(build_batch(origin(), Content([b"hello"]))),
    "gathered": stamped(gathered()),
    "timed": build_batch(origin(flags=Flags.DELAYED), timed()),
    "recurring": build_batch(origin(flags=Flags.DELAYED), recurring()),
    "deduplicated": build_batch(origin(flags=Flags.ORDERED | Flags.DEDUPLICATED), deduplicated()),
}
PACKED: dict[str, bytearray] = {
    "lz4": build_batch(origin(Codec.LZ4), Content([TEXT, b"short", TEXT], keys=["a", "b", "c"])),
    "zstd": build_batch(origin(Codec.ZSTD), Content([TEXT, b"short", TEXT], keys=["a", "b", "c"])),
}


def values(batch: Batch) -> dict[str, Any]:
    """All that a batch says, as values. Everything is read, so everything that may be wrong is found."""
    header = batch.header
    count = header.messages
    batch.check()
    said = {
        "header": {**header._asdict(), "batch_id": header.batch_id.hex()},
        "partition": batch.partition,
        "bodies": [body.hex() for body in batch.bodies()],
        "keys": batch.keys(),
        "tags": batch.tags(),
        "order_keys": batch.order_keys(),
        "properties": read_properties(batch),
        "created_deltas": batch.numbers(Column.CREATED_DELTAS, "i", count),
        "deliver_deltas": batch.numbers(Column.DELIVER_DELTAS, "q", count),
        "attempts": batch.numbers(Column.ATTEMPTS, "i", count),
        "origins": batch.origins(),
    }
    dedup_keys = digests_of(batch)
    more = {
        "timer_keys": batch.timer_keys(),
        "indexes": batch.numbers(Column.INDEXES, "i", count),
        "sources": batch.numbers(Column.SOURCES, "i", count),
        "dedup_keys": None if dedup_keys is None else [one.hex() for one in dedup_keys],
    }
    return said | {name: value for name, value in more.items() if value is not None}


def read_properties(batch: Batch) -> list[str] | None:
    rows = batch.properties()
    return None if rows is None else [row.hex() for row in rows]


def part_of(batch: bytearray, *rows: int) -> bytearray:
    """Some messages of a batch, as a delay service sends them."""
    whole = stamped(bytearray(batch))
    excerpt = Excerpt(Batch(whole).header.position, len(whole))
    excerpt.arrived(0, bytes(whole))
    excerpt.open()
    header = Batch(whole).header
    name = Batch(whole).partition.encode()
    return part(excerpt, np.asarray(rows), Origin(name, 7, 1, header.batch_id, header.created_at_ms))

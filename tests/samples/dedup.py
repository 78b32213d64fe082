"""Batches with dedup keys, and what is answered to them."""

from __future__ import annotations

from collections.abc import Sequence

from samples.batches import CREATED_MS
from samples.brokers import SUBJECT, Rig, files_of, read_file
from tidemill_wire.batch import Flags, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Content, build_batch, split_batches
from tidemill_wire.commands import SendBatches, Sent
from tidemill_wire.deduplication import NO_KEY, digest_of, read_rows


def id_of(producer: int, number: int) -> bytes:
    """That of a producer's batch."""
    return producer.to_bytes(8, "big") + number.to_bytes(8, "big")


def keyed(
    *keys: str | None,
    producer: int = 1,
    number: int = 1,
    subject: str = SUBJECT,
    priority: int = 0,
    codec: Codec = Codec.NONE,
) -> bytearray:
    """A batch of a message for each key; its body says who sends it."""
    bodies = [f"{key}/{producer}.{number}".encode() for key in keys]
    digests = [NO_KEY if key is None else digest_of(key) for key in keys]
    origin = Origin(
        subject.encode(), producer, number, id_of(producer, number), CREATED_MS, codec,
        Flags.ORDERED | Flags.DEDUPLICATED, priority=priority,
    )  # fmt: skip
    return build_batch(origin, Content(bodies, order_keys=list(keys), dedup_keys=digests))


def take(rig: Rig, batches: bytes | bytearray) -> Sent:
    answer = rig.ask(SendBatches(bytearray(batches)))
    assert isinstance(answer, Sent), answer
    return answer


def told(sent: Sent, batch: int = 0) -> list[tuple[int, int, bytes, int]]:
    """Of the duplicates in a batch: row, sequence, batch id, index."""
    rows: Sequence[bytes] = [data for index, data in sent.duplicates if index == batch]
    return [(one.row, one.sequence, one.batch_id, one.number) for data in rows for one in read_rows(data)]


def stored(rig: Rig) -> list[Batch]:
    return [
        batch for name in files_of(rig.disk, "message") for batch in split_batches(read_file(rig.disk, name))
    ]


def bodies_of(rig: Rig) -> list[bytes]:
    """All that the log holds."""
    return [body for batch in stored(rig) for body in batch.bodies()]

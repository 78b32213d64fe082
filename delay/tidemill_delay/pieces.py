"""A piece of an hour's file as a broker takes it: the same batch, said by another producer.

Who sends it is derived from the batch, and so is the sequence: whenever it is sent again, after whatever restart, a
broker that has it recognises it. The batch keeps its id, so a message keeps the id that its sender was told.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
from crc32c import crc32c

from tidemill_delay.hours import Numbers
from tidemill_delay.rows import Times
from tidemill_delay.scatter import AT_ONCE, due_of, opened, timer_keys_of
from tidemill_host.machine import Buffer
from tidemill_ledger.excerpts import Excerpt
from tidemill_ledger.gathering import Rows, part, source_of
from tidemill_wire.batch import (
    CHECKED_FROM,
    SINGLES_FROM,
    STAMP_BYTES,
    STAMP_CRC,
    Flags,
    Header,
    check_said,
    check_stamp,
    message_id,
    origin_of,
    partition_name,
    read_header,
    stamp,
)
from tidemill_wire.columns import Batch, Column, Entry, hash_text, read_entries
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.fields import parse_again
from tidemill_wire.ordering import logical_partition
from tidemill_wire.recurrence import Recurrence, parse_recurrence
from tidemill_wire.timing import TimerRow

OURS = frozenset({Column.REPLACES, Column.CRON, Column.FOLLOWS})
"""What no broker is told of."""
_FLAGS_AT, _PRODUCER_AT = 46, 56
_FLAGS = struct.Struct("<H")
_PRODUCER = struct.Struct("<QQ")


class Addressed:
    """A piece that was read, and whose bytes are good."""

    def __init__(self, data: Buffer, place: int) -> None:
        self.data = memoryview(data)
        self.header: Header = read_header(self.data)
        check_stamp(self.data, 0, self.header)
        check_said(self.data, 0, self.header)
        if self.header.position != place:
            raise CorruptBatch(f"the piece says it stands at {self.header.position}")
        self._numbers: Numbers | None = None
        """Of some of a piece; the others have numbers without a gap."""

    @property
    def subject(self) -> str:
        """By whose route it goes."""
        name = partition_name(self.data, 0, self.header).decode()
        found = parse_again(name)
        return name if found is None else found[0]

    def send(self, numbers: Rows) -> bytearray:
        """The batch of these numbers of the hour, which are in the piece."""
        rows = self._rows(numbers)
        if len(rows) == self.header.messages and not OURS & self._entries.keys():
            return self._whole()
        producer, sequence = producer_of(self.header.batch_id, source_of(self._opened, int(rows[0])))
        origin = replace(
            origin_of(self.header, partition_name(self.data, 0, self.header)),
            producer_id=producer,
            producer_sequence=sequence,
            flags=Flags(self.header.flags) & ~Flags.DELAYED,
        )
        return part(self._opened, rows, origin)

    @property
    def ordered(self) -> bool:
        """Whether there are order keys, and a partition of the subject may refuse them."""
        if self.header.column_count <= len((Column.BODY_OFFSETS, Column.BODIES)):
            return False
        name = partition_name(self.data, 0, self.header).decode()
        return Column.ORDER_KEYS in self._entries and parse_again(name) is None

    def logical(self, numbers: Rows) -> list[int | None]:
        """Of each of these numbers the logical partition of its order key; ``None`` when it has none."""
        keys = Batch(self.data).order_keys() or []
        rows: list[int] = self._rows(numbers).tolist()
        places = {key: logical_partition(key) for key in {keys[row] for row in rows} if key}
        return [places.get(keys[row]) for row in rows]

    def send_to(self, partition: str, numbers: Rows) -> bytearray:
        """The batch of these numbers, for a partition. Its producer is drawn from all of its messages: what begins with
        the same one and has fewer, as keys of it have moved, is another batch.
        """
        rows = self._rows(numbers)
        sources = self._sources[rows]
        said = self.header.batch_id + sources.astype("<i4").tobytes()
        drawn = int.from_bytes(blake2b(said, digest_size=8).digest(), "little")
        origin = replace(
            origin_of(self.header, partition.encode()),
            producer_id=drawn | SINGLES_FROM,
            producer_sequence=int(sources[0]),
            flags=Flags(self.header.flags) & ~Flags.DELAYED,
        )
        return part(self._opened, rows, origin)

    def resend(self, partition: str, numbers: Rows) -> bytearray:
        """What was made for a partition, or for none, once more."""
        return self.send_to(partition, numbers) if partition else self.send(numbers)

    def retimed(self, hour: int, numbers: Rows, due_ms: int) -> bytearray:
        """These messages of an hour for another time, as the message log keeps it: the batch says what it replaces."""
        rows = self._rows(numbers)
        count = len(rows)
        replaced = np.stack((np.full(count, hour, np.int64), np.asarray(numbers, np.int64)), axis=1)
        said = {
            Column.DELIVER_DELTAS: np.full(count, due_ms - self.header.created_at_ms, "<i8").tobytes(),
            Column.REPLACES: replaced.astype("<i8").tobytes(),
        }
        if self.recurrence is not None:
            said[Column.CRON] = self.recurrence.encode()
        origin = origin_of(self.header, partition_name(self.data, 0, self.header))
        return part(self._opened, rows, origin, said)

    @cached_property
    def recurrence(self) -> Recurrence | None:
        """How its one message comes again."""
        column = Batch(self.data).column(Column.CRON) if Column.CRON in self._entries else None
        return None if column is None else parse_recurrence(bytes(column))

    @property
    def series(self) -> int:
        """The series of which it is the first occurrence."""
        return hash_text(self.header.batch_id)

    def following(self, place: tuple[int, int], said: Recurrence, *, replaces: bool) -> bytearray:
        """The occurrence after the one at this hour and number, as the message log keeps it. Its batch id follows from
        the series and its time, so no other one has it, and it has the same however often it is made.
        """
        at = np.array(place, "<i8").tobytes()
        batch_id = (said.planned_ms << 16).to_bytes(8, "big") + said.series.to_bytes(8, "big")
        producer, sequence = producer_of(batch_id, 0)
        origin = replace(
            origin_of(self.header, partition_name(self.data, 0, self.header)), batch_id=batch_id,
            producer_id=producer, producer_sequence=sequence, created_at_ms=said.planned_ms,
        )  # fmt: skip
        columns = {
            Column.DELIVER_DELTAS: np.zeros(1, "<i8").tobytes(), Column.CRON: said.encode(), Column.FOLLOWS: at,
        }  # fmt: skip
        if replaces:
            columns[Column.REPLACES] = at
        return part(self._opened, np.zeros(1, np.int64), origin, columns)

    def number_of(self, index: int) -> int | None:
        """The number in its hour of the message with this index in its id; ``None``: it is in another piece."""
        rows = np.flatnonzero(self._sources == index)
        return self.header.first_sequence + int(rows[0]) if len(rows) else None

    def due_of(self, number: int) -> int:
        """When a message is due; ``AT_ONCE`` when that was past as it was stored."""
        due_ms = int(self.due[number - self.header.first_sequence])
        return AT_ONCE if due_ms <= self.header.stored_at_ms else due_ms

    def asked_ms(self, number: int) -> int:
        """The time that was asked for."""
        return int(self.due[number - self.header.first_sequence])

    def timer_key_of(self, number: int) -> str:
        """What a message is found by; nothing when it has no such key."""
        keys = self._timer_keys
        return keys[number - self.header.first_sequence] if keys is not None else ""

    def row(self, number: int, body_bytes: int = 0) -> TimerRow:
        """What there is to see of a message; with its body, when that is not larger."""
        index = number - self.header.first_sequence
        body, said = self._bodies[index], self.recurrence
        return TimerRow(
            message_id(self.header.batch_id, int(self._sources[index])), self.subject, self.timer_key_of(number),
            int(self.due[index]), self.header.stored_at_ms, len(body), body if len(body) <= body_bytes else None,
            "" if said is None else f"{said.expression} {said.zone}",
        )  # fmt: skip

    def excerpt(self, rows: Rows) -> Addressed:
        """Some of its messages, as a piece of the same place: whoever sends them sends the same batches."""
        origin = origin_of(self.header, partition_name(self.data, 0, self.header))
        batch = part(self._opened, rows, origin)
        header = self.header
        stamp(batch, 0, len(batch), header.first_sequence, header.position, header.stored_at_ms, header.epoch)
        some = Addressed(batch, header.position)
        some._numbers = header.first_sequence + rows
        return some

    def holds(self, numbers: Rows) -> bool:
        """Whether all of these are here."""
        mine = self._numbers
        if mine is None:
            return True
        at = np.minimum(np.searchsorted(mine, numbers), len(mine) - 1)
        return bool((mine[at] == numbers).all())

    def _rows(self, numbers: Rows) -> Rows:
        """Where they are."""
        if self._numbers is None:
            return np.asarray(numbers, np.int64) - self.header.first_sequence
        return np.searchsorted(self._numbers, numbers).astype(np.int64)

    @cached_property
    def _opened(self) -> Excerpt:
        return opened(self.data, self.header)

    @cached_property
    def due(self) -> Times:
        """When each is due, as its sender says."""
        return due_of(self.data, 0, self.header)

    @cached_property
    def _timer_keys(self) -> list[str] | None:
        return timer_keys_of(self.data, self.header)

    @cached_property
    def _bodies(self) -> list[bytes]:
        return Batch(self.data).bodies()

    @cached_property
    def _entries(self) -> dict[int, Entry]:
        return read_entries(self.data, 0, self.header)

    @cached_property
    def _sources(self) -> Rows:
        """Which message of the batch that was sent each one is."""
        entry = self._entries.get(Column.SOURCES)
        if entry is None:
            return np.arange(self.header.messages, dtype=np.int64)
        return np.frombuffer(self.data, "<i4", self.header.messages, entry[1]).astype(np.int64)

    def _whole(self) -> bytearray:
        header = self.header
        batch = bytearray(self.data)
        batch[8:STAMP_BYTES] = bytes(STAMP_BYTES - 8)
        _FLAGS.pack_into(batch, _FLAGS_AT, header.flags & ~Flags.DELAYED)
        _PRODUCER.pack_into(batch, _PRODUCER_AT, *producer_of(header.batch_id, int(self._sources[0])))
        with memoryview(batch) as view:
            STAMP_CRC.pack_into(batch, STAMP_BYTES, crc32c(view[CHECKED_FROM:]))
        return batch


def producer_of(batch_id: bytes, first: int) -> tuple[int, int]:
    """Who sends a part of a batch that begins with this index, and as which of its batches."""
    return hash_text(batch_id) | SINGLES_FROM, first

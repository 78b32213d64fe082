"""What dead letters are made of: the messages that died, all that they came with, and what is known of their death.

Pure: a batch goes in, the batches of their copies come out. Nothing of what goes in is believed to be more than bytes:
a message that cannot be copied would be read, and fail to be copied, in every life of every replica from then on. What
nobody can read is kept as it came where there is room for it, and the copy says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgpack

from tidemill_broker.actions import FailureDetail
from tidemill_broker.failures import Failure
from tidemill_host.machine import Buffer, Unread
from tidemill_ledger.gathering import ids_of
from tidemill_wire import limits
from tidemill_wire.adopting import ATTEMPTS_MAX
from tidemill_wire.batch import Flags
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content
from tidemill_wire.errors import CorruptBatch, Refused
from tidemill_wire.fields import DEAD_PREFIX, DEAD_PROPERTY, DEAD_UNREAD, read_properties
from tidemill_wire.lanes import SEQUENCES_END, priority_of

T = TypeVar("T")
ROOM_BYTES = 64 * limits.KIB
"""For all that a batch of one message holds besides its body and its properties."""
KNOWN_BYTES = 256
"""Of what is known of a death, but for its texts."""

Known = dict[str, Any]


class Copy(NamedTuple):
    """Dead letters to be written."""

    content: Content
    created_at_ms: int
    codec: Codec
    flags: Flags
    priority: int


class Messages:
    """Those of one batch, read once for all of them that died."""

    def __init__(self, batch: Batch, *, by_origin: bool) -> None:
        """``by_origin``: where they are copies themselves, each has the id of what it is a copy of."""
        self.header = batch.header
        self._batch = batch
        self._bodies = batch.bodies()
        self._properties = batch.properties() or [b""] * batch.header.messages
        self._keys, self._tags, self._order_keys = batch.keys(), batch.tags(), batch.order_keys()
        self._origins = batch.origins() if by_origin else None
        self._deltas = batch.numbers(Column.CREATED_DELTAS, "i", batch.header.messages)

    def fitting(self, first: int, count: int, overhead: int) -> int:
        """How many rows, from one on, are small enough together; one at least."""
        total = 0
        for row in range(first, first + count):
            total += overhead + self._size(row)
            if row > first and total > limits.DEAD_LETTER_BYTES:
                return row - first
        return count

    def copy(self, first: int, count: int, attempts: int, known: Known) -> Copy:
        """So many rows from one on; ``known`` has the sequence of the first."""
        rows = slice(first, first + count)
        bodies, sequence = self._bodies[rows], known["sequence"]
        content = Content(
            bodies,
            _some(self._keys, rows),
            _some(self._tags, rows),
            _some(self._order_keys, rows),
            [
                with_death(packed, known | {"sequence": sequence + at}, len(bodies[at]))
                for at, packed in enumerate(self._properties[rows])
            ],
            created_deltas=_some(self._deltas, rows),
            attempts=[min(attempts, ATTEMPTS_MAX)] * count,
            origins=_some(self._origins, rows) or ids_of(self._batch, first, count),
        )
        header, flags = self.header, Flags.REDELIVERED | self._batch.flags & Flags.ORDERED
        return Copy(content, header.created_at_ms, Codec(header.codec), flags, header.priority)

    def _size(self, row: int) -> int:
        size = len(self._bodies[row]) + len(self._properties[row])
        for texts in (self._keys, self._order_keys, self._origins):
            size += len(texts[row].encode()) if texts else 0
        return size + (sum(len(tag.encode()) for tag in self._tags[row]) if self._tags else 0)


def messages_of(data: Buffer | Unread, subject: str) -> Messages:
    """The messages of a batch that was read from the partition ``subject``, or ``CorruptBatch``."""
    if isinstance(data, Unread):
        raise CorruptBatch(str(data))
    batch = Batch(data)
    batch.check()
    return Messages(batch, by_origin=subject.startswith(DEAD_PREFIX))


def copy_of(messages: Messages, failure: Failure, count: int, known: Known) -> Copy:
    """As many of the failed messages as are small enough together, with all that they came with."""
    index = failure.first - messages.header.first_sequence
    if not 0 <= index <= messages.header.messages - count:
        raise CorruptBatch(f"sequence {failure.first} is not in the batch that lies there")
    count = messages.fitting(index, count, _overhead(known))
    return messages.copy(index, count, failure.attempts, known | {"sequence": failure.first})


class Adopted:
    """Messages of another broker, which become dead letters of the subject and group of those ``names`` says them: with
    their ids, and with their numbers where they came from. They are cut into pieces, the same ones whenever they come.
    """

    def __init__(self, batch: Batch, failure: Failure, names: tuple[str, str], detail: FailureDetail) -> None:
        if failure.first + failure.messages > SEQUENCES_END:
            raise CorruptBatch(
                f"a batch whose messages had sequences from {failure.first} on, which no message has"
            )
        self._messages, self._failure = Messages(batch, by_origin=True), failure
        self._known: Known = {
            "subject": names[0], "group": names[1], "attempts": failure.attempts, "since": failure.since_ms,
            "failed_at": failure.due_ms, **detail._asdict(), "adopted": True,
        }  # fmt: skip

    def pieces(self) -> Iterator[tuple[int, int]]:
        """First row and count of each. What a few bytes of a frame are copied to has a bound."""
        overhead, total = _overhead(self._known), self._messages.header.messages
        if overhead * total > limits.ADOPTED_BYTES_MAX:
            raise Refused(
                "batch_too_large",
                f"{total} messages, each with {overhead} bytes of what they failed of,"
                f" {limits.ADOPTED_BYTES_MAX} are allowed",
            )
        row = 0
        while row < total:
            count = self._messages.fitting(row, total - row, overhead)
            yield row, count
            row += count

    def copy(self, row: int, count: int) -> Copy:
        """One piece."""
        known = self._known | {"sequence": self._failure.first + row}
        copy = self._messages.copy(row, count, self._failure.attempts, known)
        copy.content.created_deltas = None
        return copy


def remains(failure: Failure, count: int, known: Known, now_ms: int) -> Copy:
    """Dead letters without a body, for messages that nobody can read any more."""
    count = max(1, min(count, limits.DEAD_LETTER_BYTES // _overhead(known)))
    said = [with_death(b"", known | {"sequence": failure.first + at}, 0) for at in range(count)]
    attempts = min(failure.attempts, ATTEMPTS_MAX)
    content = Content([b""] * count, properties=said, attempts=[attempts] * count)
    return Copy(content, now_ms, Codec.NONE, Flags.REDELIVERED, priority_of(failure.first))


def with_death(packed: bytes, known: Known, body_size: int) -> bytes:
    """A message's properties and what is known of its death. Its own give way when the batch would be too large, and
    are kept as they came when they cannot be read, or cannot be packed again.
    """
    own = read_properties(packed) if packed else {}
    before: object = (own or {}).get(DEAD_PROPERTY)
    said = cast("Known", before) if isinstance(before, dict) else {}
    original, raw = said.get("original"), said.get(DEAD_UNREAD)
    proven = type(original) is int and 0 <= original < SEQUENCES_END
    known = known | {"original": original if proven else known["sequence"]}
    if own is not None and type(raw) is bytes:
        known[DEAD_UNREAD] = raw  # it died before: what nobody could read then is here still
    tries: list[dict[Any, Any]] = [] if own is None else [{**own, DEAD_PROPERTY: known}]
    for one in (*tries, {DEAD_PROPERTY: known | {DEAD_UNREAD: packed}} if packed else {}):
        found = _packed(one) if one else None
        if found is not None and body_size + len(found) + ROOM_BYTES <= limits.BATCH_BYTES_MAX:
            return found
    known.pop(DEAD_UNREAD, None)
    return cast("bytes", msgpack.packb({DEAD_PROPERTY: known}))


def _packed(properties: dict[Any, Any]) -> bytes | None:
    """``None``: they are nested deeper than can be packed, though they could be unpacked."""
    try:
        return cast("bytes", msgpack.packb(properties))
    except (ValueError, RecursionError):
        return None


def _overhead(known: Known) -> int:
    """What is known of a death takes so much of each copy, roughly, and whenever it is said."""
    return KNOWN_BYTES + sum(len(text.encode()) for text in known.values() if isinstance(text, str))


def _some(values: Sequence[T] | None, rows: slice) -> Sequence[T] | None:
    return values[rows] if values else None

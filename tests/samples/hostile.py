"""Commands as nobody writes them who means well: of the right shape, their values at the bounds, their columns junk.

Each goes through its own bytes, so what the wire refuses never gets to a broker. Sums are right: senders make them.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

import msgpack
from crc32c import crc32c

from samples.brokers import NOW_MS, SUBJECT
from samples.graves import GRAVE
from tidemill_wire import limits
from tidemill_wire.batch import (
    CHECKED_FROM,
    SINGLES_FROM,
    STAMP_BYTES,
    STAMP_CRC,
    Flags,
    Origin,
    encode_batch,
)
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Column, hash_text, lay_out
from tidemill_wire.commands import (
    Ack,
    Adopt,
    Command,
    Extend,
    Grant,
    Nack,
    Ping,
    Pull,
    Purge,
    Redrive,
    Release,
    SendBatches,
    encode_command,
    parse_command,
)
from tidemill_wire.errors import WireError
from tidemill_wire.fields import DEAD_PROPERTY, again_for
from tidemill_wire.filters import TagFilter
from tidemill_wire.frame import FrameDecoder
from tidemill_wire.kinds import Mode, Place
from tidemill_wire.steering import Seek, Suspend
from tidemill_wire.transacting import Check, Decide, Half, Verdict
from tidemill_wire.yielding import Yield

I31, I63, U64 = (1 << 31) - 1, (1 << 63) - 1, (1 << 64) - 1
SUBJECTS = (SUBJECT, SUBJECT, "paid", "shipped")
NAMES = (
    *SUBJECTS,
    *SUBJECTS,
    again_for(SUBJECT, "g"),
    again_for(SUBJECT, "g"),
    GRAVE,
    "paid#2",
    "%half%",
    "",
    "\xff",
)
GROUPS = ("g", "g", "g", "h", "ordered")
KEYS = ("", "k", "\xff", "order 7")
TEXTS = (Column.KEYS, Column.ORDER_KEYS, Column.ORIGINS, Column.TIMER_KEYS)
PAIRS = {
    Column.KEYS: Column.KEY_OFFSETS,
    Column.ORDER_KEYS: Column.ORDER_KEY_OFFSETS,
    Column.ORIGINS: Column.ORIGIN_OFFSETS,
    Column.TIMER_KEYS: Column.TIMER_KEY_OFFSETS,
    Column.PROPERTIES: Column.PROPERTY_OFFSETS,
    Column.BODIES: Column.BODY_OFFSETS,
}
NUMBERS = {
    Column.CREATED_DELTAS: ("i", -I31 - 1, I31),
    Column.DELIVER_DELTAS: ("q", -I63 - 1, I63),
    Column.ATTEMPTS: ("i", -I31 - 1, I31),
    Column.SOURCES: ("i", -I31 - 1, I31),
}
JUNK = (
    b"\xc1", b"\x81\xa1a", b"\x81\xa1a\xa1\xff", b"\x81\x90\x01", b"\x91" * 2000,
    b"\x81\xa1a" + b"\x91" * 900 + b"\x01", b"\x07", b"\x81\x01\x02", b"\xd7\xff" + b"\xff" * 8,
    b"\xdd\xff\xff\xff\xff",
)  # fmt: skip
"""Properties that nobody can read, or that are no map with texts as its keys."""


class Hostile:
    """Draws commands. What the broker has given out it is told, so that some of what it says is of real deliveries."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.held: list[Grant] = []

    def command(self) -> Command | None:
        """``None``: the wire has refused it."""
        draw = self.random.choice(COMMANDS)
        try:
            return over_wire(draw(self))
        except WireError:
            return None

    def number(self, low: int, high: int) -> int:
        """At a bound more often than not."""
        inside = self.random.randint(low, min(high, low + 5))
        return self.random.choice((low, high, min(low + 1, high), max(high - 1, low), inside, inside))

    def ranges(self) -> list[int]:
        if self.held and self.random.random() < 0.8:
            grant = self.random.choice(self.held[-6:])
            first = grant.pull_sequence + self.random.randrange(grant.count)
            last = min(grant.pull_sequence + grant.count - 1, first + self.random.randrange(3))
            return self.random.choice(
                ([first, last], [first, last], [first, last, first, last], [first, I63, 0, last])
            )
        return self.random.choice(
            ([], [0, 0], [0, I63], [0, I63] * 40, [I63, I63], [9, 9, 1, 2], [5, 9, 5, 9])
        )

    def batch(self, names: Sequence[str] = NAMES, flags: int | None = None) -> bytearray:
        chance, count = self.random.random, self.random.choice((1, 1, 2, 3, 5))
        if flags is None:
            flags = self.random.choice((0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 64, 65, 1 << 15))
        columns = [*self._texts(Column.BODIES, [self.random.choice((b"", b"body"))] * count)]
        for kind in TEXTS:
            if chance() < 0.4:
                texts = [self.random.choice(KEYS).encode("latin1") for _ in range(count)]
                columns += self._texts(kind, texts)
                if kind is Column.KEYS:
                    columns.append((Column.KEY_HASHES, [array("Q", map(hash_text, texts)).tobytes()]))
        if chance() < 0.5:
            columns += self._texts(Column.PROPERTIES, [self._properties() for _ in range(count)])
        for kind, (code, low, high) in NUMBERS.items():
            if chance() < 0.4:
                numbers = [self.random.choice((0, self.number(low, high))) for _ in range(count)]
                columns.append((kind, [array(code, numbers).tobytes()]))
        if flags & Flags.DEDUPLICATED:
            digests = (bytes(16), b"\1" * 16, b"\2" * 16, self.random.randbytes(16))
            columns.append((Column.DEDUP_KEYS, [self.random.choice(digests) for _ in range(count)]))
        codec = self.random.choice((*[Codec.NONE] * 4, Codec.LZ4, Codec.ZSTD))
        origin = Origin(
            self.random.choice(names).encode("latin1"), self._producer(), self.number(0, U64),
            self.random.randbytes(16), self.random.choice((NOW_MS, NOW_MS, self.number(-I63 - 1, I63))), codec,
            Flags(flags), self.random.choice((0, 0, 0, 1, 7, 8, 255)), self.random.getrandbits(64),
        )  # fmt: skip
        batch = encode_batch(origin, count, len(columns), lay_out(columns, codec))
        struct.pack_into("<Q", batch, 8, self.random.choice((7, self.number(0, U64))))
        if chance() < 0.1:
            at = self.random.randrange(CHECKED_FROM, len(batch))
            batch[at] = self.random.choice((0, 255, self.random.randrange(256)))
        return resealed(batch)

    def _texts(self, kind: Column, texts: list[bytes]) -> list[tuple[Column, Sequence[bytes]]]:
        offsets = array("i", accumulate(map(len, texts), initial=0)).tobytes()
        return [(PAIRS[kind], [offsets]), (kind, texts)]

    def _properties(self) -> bytes:
        said = {
            "reason": "r",
            "error": "e",
            "place": "p",
            "since": self.number(0, U64),
            "sequence": self.number(0, U64),
        }
        said["original"] = self.random.choice((7, self.number(-I63 - 1, U64), "x" * 100, None))
        dead = msgpack.packb({DEAD_PROPERTY: said})
        return self.random.choice((b"", msgpack.packb({"a": 1}), dead, dead, *JUNK))

    def _producer(self) -> int:
        return self.random.choice((1, 2, 1 << 62, SINGLES_FROM + self.random.randrange(4), U64))


def over_wire(command: Command) -> Command:
    """As the other side understands it."""
    [frame] = FrameDecoder().feed(encode_command(command, 1))
    return parse_command(frame)


def resealed(batch: bytearray) -> bytearray:
    """The same with the sum of what it holds now."""
    STAMP_CRC.pack_into(batch, STAMP_BYTES, crc32c(bytes(batch[CHECKED_FROM:])))
    return batch


def _send(h: Hostile) -> Command:
    batches = [h.batch() for _ in range(h.random.choice((1, 1, 2, 18)))]
    return SendBatches(bytearray(b"".join(batches)))


def _adopt(h: Hostile) -> Command:
    flags = h.random.choice((0, 1, 8, 8, 16))
    said = h.random.choice(("no amount", "r" * limits.DETAIL_CHARS_MAX))
    return Adopt(
        "g", SUBJECT, h.number(0, I31), h.number(-1, limits.NACK_DELAY_MS_MAX), said, "e", "p",
        h.random.random() < 0.3, memoryview(h.batch((SUBJECT,), flags)),
    )  # fmt: skip


def _pull(h: Hostile) -> Command:
    subjects = [h.random.choice((*SUBJECTS, "s*", "*"))]
    wanted = h.random.choice((*[TagFilter((), every=False)] * 3, TagFilter(("vip",), every=False)))
    start = h.random.choice((-1, -2, 0, NOW_MS, I63))
    modes = (*[Mode.AS_DECLARED] * 4, *Mode)
    return Pull(
        h.random.choice(GROUPS), h.random.choice("cd"), subjects, h.number(1, limits.PULL_MESSAGES_MAX),
        h.number(1, limits.PULL_BYTES_MAX), h.random.choice((0, 0, 5, limits.PULL_WAIT_MS_MAX)), start,
        h.random.choice((None, None, [], h.ranges())), h.random.random() < 0.3, h.random.random() < 0.1,
        h.random.choice(modes), "", wanted, h.random.choice((0, 0, 0, 1, I63)),
    )  # fmt: skip


def _settle(h: Hostile) -> Command:
    group, consumer, subject = (
        h.random.choice(GROUPS),
        h.random.choice("cd"),
        h.random.choice((*SUBJECTS, GRAVE)),
    )
    match h.random.randrange(8):
        case 0 | 1:
            until_ms = h.random.choice((0, 0, limits.DOOMED_MS))
            return Ack(group, consumer, subject, h.ranges(), until_ms)
        case 2 | 3 | 4 | 5:
            delay_ms = h.number(-1, limits.NACK_DELAY_MS_MAX)
            return Nack(
                group, consumer, subject, h.ranges(), delay_ms, "r", "e", "p", h.random.random() < 0.7
            )
        case 6:
            return Extend(group, consumer, subject, h.ranges(), h.number(-1, limits.NACK_DELAY_MS_MAX))
        case _:
            return Release(group, consumer, subject, h.ranges())


def _steer(h: Hostile) -> Command:
    subject = h.random.choice(SUBJECTS)
    match h.random.randrange(6):
        case 0 | 1:
            return h.random.choice((Redrive, Purge))(
                SUBJECT, "g", h.random.choice(([], [0, I63], [0, 0], [1, 2]))
            )
        case 2:
            value = h.random.choice((0, 1, NOW_MS, 1 << 60, I63))
            return Seek(
                h.random.choice(GROUPS), subject, h.random.choice(list(Place)), value, h.random.random() < 0.3
            )
        case 3:
            return Suspend(h.random.choice(GROUPS), subject, h.random.random() < 0.5)
        case 4:
            return Yield(h.random.choice(GROUPS), "c", [subject])
        case _:
            return Ping()


def _transact(h: Hostile) -> Command:
    match h.random.randrange(3):
        case 0:
            return Half("pg", memoryview(h.batch(SUBJECTS, h.random.choice((2, 2, 3, 66)))))
        case 1:
            return Decide(SINGLES_FROM + h.random.randrange(4), h.random.choice(list(Verdict)))
        case _:
            return Check("pg", h.random.choice((0, 60_000)))


COMMANDS: Sequence[Callable[[Hostile], Command]] = (
    *[_send] * 5, *[_adopt] * 2, *[_pull] * 4, *[_settle] * 5, _steer, _transact,
)  # fmt: skip

"""What a consumer is given: grants, the batches they are in, and which messages of them.

A grant names messages in one of three ways:

    whole     ``count`` messages from ``first_sequence`` on, in one batch or several back to back
    masked    those of one batch whose bits are set, from ``first_sequence`` on
    gathered  all of one batch that the broker built of the wanted messages of another (flag GATHERED): it has the
              other's id and first sequence, and its column INDEXES says where each message was

The pull sequences of a grant have no gap, whatever gaps its messages have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_wire import limits
from tidemill_wire.batch import GATHERED, check_stamp, read_header
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.fields import Fields, malformed

_I63 = 0x7FFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Grant:
    """Messages that a consumer may handle now: ``count`` of them from ``first_sequence`` on, under a lease."""

    subject: str
    pull_sequence: int
    first_sequence: int
    count: int
    attempts: int
    batches: int
    """How many of the batches that follow hold them; messages of those batches outside the range are not granted."""
    mask: bytes = b""
    """When not all of one batch from ``first_sequence`` on are granted: a bit for each, the lowest first."""

    def row(self) -> tuple[Any, ...]:
        said = (
            self.subject,
            self.pull_sequence,
            self.first_sequence,
            self.count,
            self.attempts,
            self.batches,
        )
        return (*said, self.mask) if self.mask else said


@dataclass(frozen=True, slots=True)
class Piece:
    """The granted messages of one batch."""

    batch: memoryview
    rows: Sequence[int]
    """Their places in the batch that came, which a gathered one's INDEXES translates."""
    pull_sequence: int


def read_grants(f: Fields) -> list[Grant]:
    """The grants of a PULLED."""
    grants: list[Grant] = []
    for row in f.items("grants", limits.GRANTS_MAX):
        match row:
            case [str(subject), int(pull), int(first), int(count), int(attempts), int(batches)]:
                mask = b""
            case [str(subject), int(pull), int(first), int(count), int(attempts), int(batches), bytes(mask)]:
                if batches != 1 or int.from_bytes(mask, "little").bit_count() != count:
                    raise malformed("a grant whose mask does not fit its count")
            case _:
                raise malformed("field 'grants' holds something else than grants")
        if (
            min(pull, first, count, attempts, batches) < 0
            or max(pull, first, count, attempts, batches) > _I63
        ):
            raise malformed("a grant with a number below zero, or beyond 63 bits")
        grants.append(Grant(subject, pull, first, count, attempts, batches, mask))
    return grants


def add_pieces(grant: Grant, batches: memoryview, at: int, into: list[Piece]) -> int:
    """Add the pieces of a grant whose first batch begins ``at`` a place; where the batches of the next grant begin.

    They hold fewer messages than were granted when the batches do. ``CorruptBatch`` when a batch cannot be read.
    """
    found = 0
    for number in range(grant.batches):
        header = read_header(batches, at)
        end = at + header.length
        if end > len(batches):
            raise CorruptBatch(f"a batch of {header.length} bytes of which {len(batches) - at} are there")
        check_stamp(batches, at, header)  # the sum of the bodies is checked when it is opened
        first = max(0, grant.first_sequence - header.first_sequence) if number == 0 else 0
        rows: Sequence[int]
        if header.flags & GATHERED:
            rows = range(min(header.messages, grant.count - found))
        elif grant.mask:
            rows = [first + bit for bit in set_bits(grant.mask) if first + bit < header.messages]
        else:
            rows = range(first, max(first, min(header.messages, first + grant.count - found)))
        if rows:
            into.append(Piece(batches[at:end], rows, grant.pull_sequence + found))
            found += len(rows)
        at = end
    return at


def set_bits(mask: bytes) -> list[int]:
    """The bits of a mask that are set, from the lowest on."""
    bits = bin(int.from_bytes(mask, "little"))[:1:-1]
    return [place for place, bit in enumerate(bits) if bit == "1"]

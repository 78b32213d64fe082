"""What of the batches in front of a group its filter wants, found by reading as little as possible.

    row of the consume log --tag word lacks a tag--> passed over, unread
                           --it may hold some------> head --> tag columns --> nothing is wanted: passed over
                                                                          --> few: their bodies, gathered
                                                                          --> many: the batch, with a mask

Reads are asked for and waited for (``Sifting``); a few batches are read ahead. A group that reads has a *seat*, and
seats are few, so what is held of batches is bounded; who finds none free waits in line, and is served when one is.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from tidemill_broker.consume_log import ConsumeLog, Loading
from tidemill_broker.groups import Group
from tidemill_broker.logs import Logs
from tidemill_broker.sieve import Sieve, sieve_of
from tidemill_broker.statistics import Counters
from tidemill_host.machine import Buffer, Read, Slice, Unread
from tidemill_journal.entries import Rows, row_length
from tidemill_ledger.excerpts import Excerpt, Span
from tidemill_ledger.gathering import Rows as Indexes
from tidemill_ledger.gathering import can_gather, gather, plan, spans_of_tags, tags_of
from tidemill_wire import limits
from tidemill_wire.errors import CorruptBatch

SEATS = 16
AHEAD_BATCHES = 16
AHEAD_BYTES = 4 * limits.MIB
KEPT_BATCHES = 64
FIRST_TOKEN = 1 << 62  # the consume log's are small


class Sifting(Loading):
    """It goes on when bytes have come, or in the next turn; other groups of the same pull may have something now."""


@dataclass(slots=True)
class Match:
    """What is wanted of one batch: the places of its messages. ``None``: it cannot be told, so all of it."""

    rows: Indexes | None
    gatherable: bool = False
    unread: str = ""
    """What of it the disk refuses."""


@dataclass(slots=True, eq=False)
class Seat:
    """What a group has read."""

    group: int
    sieve: Sieve
    excerpts: dict[int, Excerpt] = field(default_factory=dict[int, Excerpt])
    matches: dict[int, Match] = field(default_factory=dict[int, Match])
    awaited: int = 0


class Seats:
    """Reads batches in parts, for groups that filter."""

    def __init__(self, logs: Logs, consume_log: ConsumeLog, counters: Counters) -> None:
        self._logs = logs
        self._consume_log = consume_log
        self._counters = counters
        self._seats: OrderedDict[int, Seat] = OrderedDict()
        self._line: dict[int, None] = {}  # groups that wait for a seat
        self._tokens: dict[int, tuple[Seat, Excerpt, Span]] = {}
        self._next_token = FIRST_TOKEN

    def match(self, group: Group, rows: Rows, row: int, stop: int) -> Match:
        """What is wanted of a row's batch. Asks for the tags of those behind it, too; raises ``Sifting``."""
        seat = self._seat(group)
        position = rows.positions[row]
        found = seat.matches.get(position)
        if found is not None:
            return found
        self._forget(seat, position)
        for _ in range(AHEAD_BATCHES):
            self._advance(seat, rows.positions[row], row_length(rows.sizes[row]))
            if position in seat.matches:
                return seat.matches[position]
            row = seat.sieve.next_row(rows.blooms, row + 1, stop)
            if row == stop or sum(excerpt.size for excerpt in seat.excerpts.values()) > AHEAD_BYTES:
                break
        raise Sifting

    def gathered(self, group: Group, place: tuple[int, int], rows: Indexes) -> bytearray | None:
        """A batch of these messages; ``None`` when it has to be given as it is. Raises ``Sifting``."""
        seat = self._seat(group)
        position, length = place
        excerpt = seat.excerpts.setdefault(position, Excerpt(position, length))
        parts = excerpt.head()
        if not parts:
            try:
                excerpt.open()
                if not can_gather(excerpt):
                    return None
                parts = plan(excerpt, rows)
                if not parts:
                    return gather(excerpt, rows)
            except (CorruptBatch, ValueError, IndexError):
                return None  # whoever is given all of it finds that its sum is wrong, and says so
        self._ask(seat, excerpt, parts)
        raise Sifting

    def loaded(self, token: int, data: Buffer | Unread) -> int | None:
        """Bytes came; the group that can go on, when all have come that it asked for: the answer is the larger."""
        seat, excerpt, (start, size) = self._tokens.pop(token)
        seat.awaited -= 1
        if isinstance(data, Unread):
            self._refused(seat, excerpt.position, str(data))
        elif len(data) < size:
            seat.excerpts.pop(
                excerpt.position, None
            )  # retention has removed its segment: the group is further on now
        else:
            excerpt.arrived(start, bytes(data))
            if not excerpt.awaited and excerpt.sought and seat.excerpts.get(excerpt.position) is excerpt:
                self._advance(seat, excerpt.position, excerpt.length)
        return seat.group if not seat.awaited and self._seats.get(seat.group) is seat else None

    def refused(self, group: Group, position: int) -> str:
        """What the disk refuses of a batch, as far as the group has met it."""
        found = self._seat(group).matches.get(position)
        return found.unread if found is not None else ""

    def _refused(self, seat: Seat, position: int, problem: str) -> None:
        """A part cannot be read: what the batch says is not to be had; what is wanted of it may be known."""
        found = seat.matches.get(position)
        seat.matches[position] = Match(found.rows if found is not None else None, unread=problem)
        seat.excerpts.pop(position, None)

    def holds(self, token: int) -> bool:
        """Whether a read was asked for here."""
        return token in self._tokens

    def next_in_line(self) -> int | None:
        """A group that waits for a seat, when one is free."""
        if not self._line or (len(self._seats) >= SEATS and all(s.awaited for s in self._seats.values())):
            return None
        group = next(iter(self._line))
        del self._line[group]
        return group

    def _seat(self, group: Group) -> Seat:
        settings = group.settings
        sieve = sieve_of(settings.tags, settings.all_tags)
        seat = self._seats.get(group.identity)
        if seat is not None and seat.sieve is sieve:
            self._seats.move_to_end(group.identity)
            return seat
        if seat is None and len(self._seats) >= SEATS:
            idle = next((one for one in self._seats.values() if not one.awaited), None)
            if idle is None:
                self._line[group.identity] = None
                raise Sifting
            del self._seats[idle.group]
        seat = self._seats[group.identity] = Seat(group.identity, sieve)
        return seat

    def _advance(self, seat: Seat, position: int, length: int) -> None:
        """Find out what is wanted of a batch, as far as what was read says; ask for what is needed next."""
        if position in seat.matches:
            return
        excerpt = seat.excerpts.setdefault(position, Excerpt(position, length))
        excerpt.sought = True
        if excerpt.awaited:
            return
        try:
            parts = excerpt.head()
            if not parts:
                excerpt.open()
                parts = excerpt.need(spans_of_tags(excerpt))
            if not parts:
                tags = tags_of(excerpt)
                rows = seat.sieve.rows(*tags) if tags is not None else np.zeros(0, np.int64)
                seat.matches[position] = Match(rows, can_gather(excerpt))
        except (CorruptBatch, ValueError, IndexError):
            seat.matches[position] = Match(None)
            parts = []
        if position in seat.matches:
            self._counters.batches_sifted += 1
            found = seat.matches[position].rows
            if found is None or not len(found):
                del seat.excerpts[position]
            return
        self._ask(seat, excerpt, parts)

    def _ask(self, seat: Seat, excerpt: Excerpt, parts: list[Span]) -> None:
        file, place = self._logs.messages.locate(excerpt.position)
        for start, size in parts:
            if start in excerpt.awaited:
                continue
            excerpt.awaited.add(start)
            seat.awaited += 1
            self._tokens[self._next_token] = seat, excerpt, (start, size)
            self._consume_log.reads.append(Read(self._next_token, Slice(file, place + start, size)))
            self._next_token += 1
            self._counters.bytes_sifted += size

    def _forget(self, seat: Seat, position: int) -> None:
        """What lies before a batch that the group looks at is over."""
        for old in [one for one in seat.excerpts if one < position and not seat.excerpts[one].awaited]:
            del seat.excerpts[old]
        if len(seat.matches) > KEPT_BATCHES:
            seat.matches = {one: match for one, match in seat.matches.items() if one >= position}

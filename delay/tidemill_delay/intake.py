"""What a batch must be to be kept for later, and its places: in the message log, and in the hours it falls into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tidemill_delay.bounds import BoundOf, any_time, check_moved, check_sent
from tidemill_delay.hours import file_of, names_of, rows_of
from tidemill_delay.names import encode_names
from tidemill_delay.rows import Times, encode_rows, pack_piece
from tidemill_delay.scatter import PLAIN, Piece, check_packed, due_of, scatter, timer_keys_of
from tidemill_delay.series import ENDED, OPEN, Follower
from tidemill_delay.state import State
from tidemill_delay.wheel import Entries
from tidemill_host.machine import Buffer
from tidemill_ledger.columns import check_bodies
from tidemill_ledger.logs import Logs
from tidemill_wire import limits
from tidemill_wire.batch import (
    HEADER_BYTES,
    NOT_TAKEN,
    Flags,
    Header,
    check_said,
    partition_name,
    read_header,
    stamp,
)
from tidemill_wire.columns import Batch, Column, Entry, read_directory
from tidemill_wire.cron import Zones
from tidemill_wire.errors import CorruptBatch, Refused, WireError
from tidemill_wire.fields import parse_again, parse_subject
from tidemill_wire.lanes import lane_name, parse_priority
from tidemill_wire.quotas import Meter, check_quota
from tidemill_wire.recurrence import only_utc, parse_recurrence

OTHERS = NOT_TAKEN & ~int(Flags.DELAYED)


@dataclass(slots=True)
class Taken:
    """What became of the batches of one SEND."""

    firsts: list[int] = field(default_factory=list[int])
    refused: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    entries: list[Entries] = field(default_factory=list[Entries])
    messages: int = 0
    waits: list[int] = field(default_factory=list[int])
    """Of refused ones that are to wait: an index and milliseconds, and so on."""


class Intake:
    """Takes batches into the message log and the calendar."""

    def __init__(self, state: State, logs: Logs, hour_ms: int, horizon_ms: int) -> None:
        self._state = state
        self._logs = logs
        self._hour_ms = hour_ms
        self._horizon_ms = horizon_ms
        self.refusal: WireError | None = None
        """Set while nothing may be written, with the reason."""
        self.zones: Zones = only_utc
        """Set by whoever knows more of them."""
        self.bound_of: BoundOf = any_time
        """Set by whoever knows what is declared of subjects."""

    def take(
        self,
        buffer: bytearray,
        now_ms: int,
        forbidden: Mapping[int, WireError] | None = None,
        payer: Meter | None = None,
    ) -> Taken:
        """Store what can be stored. A batch that is refused harms no other batch of the frame; some may be refused
        already, by their place. Who has a quota pays for what is stored.
        """
        taken = Taken()
        view = memoryview(buffer)
        at = 0
        came_ms = now_ms
        now_ms = max(now_ms, self._state.closed_ms)  # an hour that is closed gets nothing more
        while at < len(view):
            try:
                header = read_header(view, at)
                if len(taken.firsts) >= limits.SEND_BATCHES_MAX:
                    raise CorruptBatch(f"a SEND of more than {limits.SEND_BATCHES_MAX} batches")
                if header.length > len(view) - at:
                    raise CorruptBatch(
                        f"a batch of {header.length} bytes of which {len(view) - at} are there"
                    )
            except CorruptBatch as error:
                self._refuse(taken, Refused("corrupt_batch", str(error)))
                break  # without a length nobody knows where the next one begins
            try:
                if forbidden and len(taken.firsts) in forbidden:
                    raise forbidden[len(taken.firsts)]
                due = self._admit(view, at, header, now_ms)
                senders = self._state.senders(lane_of(view, at, header))
                first = senders.repeated(header.producer_id, header.producer_sequence, header.flags)
                if first is None and self.refusal is not None:
                    raise self.refusal
                if first is None:
                    check_sent(self.bound_of, subject_of(view, at, header), int(due.max()) - came_ms)
                if first is None and payer is not None and not is_own(view, at):
                    check_quota(payer, header.messages, header.length, came_ms)
                taken.firsts.append(
                    self._store(view, at, header, due, now_ms, taken) if first is None else first
                )
            except WireError as error:
                self._refuse(taken, error)
            at += header.length
        return taken

    def _refuse(self, taken: Taken, error: WireError) -> None:
        taken.firsts.append(-1)
        taken.refused.append((len(taken.firsts) - 1, error.kind.number, error.detail))
        if error.wait_ms:
            taken.waits += (len(taken.firsts) - 1, error.wait_ms)

    def _admit(self, view: memoryview, at: int, header: Header, now_ms: int) -> Times:
        """When the messages of a batch are due, if it may enter."""
        try:
            check_said(view, at, header)
            if not header.flags & Flags.DELAYED:
                raise Refused("unsupported_flag", "a batch that is not for later, sent to a delay service")
            if header.flags & OTHERS:
                raise Refused("unsupported_flag", f"a batch with the flags {header.flags:#x}")
            name = partition_name(view, at, header).decode("ascii", "replace")
            parse_subject(name) if parse_again(name) is None else None
            entries = read_directory(view, at, header)
            if Column.REPLACES in entries or Column.FOLLOWS in entries:
                raise Refused(
                    "malformed_command", "a batch that replaces another one, or follows one, from outside"
                )
            if header.priority:
                parse_priority(header.priority)
            check_bodies(view, at, header, limits.MESSAGE_BYTES_MAX)
            batch = view[at : at + header.length]
            check_packed(batch, header)
            timer_keys_of(batch, header)
            due = due_of(view, at, header)
            if Column.CRON in entries:
                self._check_recurrence(batch, header, int(due[0]))
        except CorruptBatch as error:
            raise Refused("corrupt_batch", str(error)) from error
        self.check_time(int(due.max()), now_ms)
        return due

    def _check_recurrence(self, batch: memoryview, header: Header, due_ms: int) -> None:
        """One message, which comes again as other messages, so none has a dedup key; the first of its series."""
        if header.messages != 1 or header.flags & Flags.DEDUPLICATED:
            raise Refused("malformed_command", "what recurs is one message in a batch, without a dedup key")
        try:
            said = parse_recurrence(bytes(Batch(batch).column(Column.CRON) or b""))
            self.zones(said.zone)
            if said.planned_ms != due_ms or said.series:
                raise ValueError("a message that recurs, and is planned for another time than it is due")
        except ValueError as error:
            raise Refused("malformed_command", str(error)) from None

    def check_time(self, due_ms: int, now_ms: int) -> None:
        """``Refused`` when it is too far ahead."""
        if due_ms - now_ms > self._horizon_ms:
            days = (due_ms - now_ms) / 86_400_000
            raise Refused(
                "limit_exceeded",
                f"a message for {days:.1f} days ahead, {self._horizon_ms // 86_400_000} are allowed",
            )

    def check_moved(self, subject: str, ahead_ms: int) -> None:
        """``Refused`` when a subject lets no message of it wait so much longer."""
        check_moved(self.bound_of, subject, ahead_ms)

    def put(self, batch: bytearray, now_ms: int) -> list[Entries]:
        """Store messages that have another time, made of those that are here; nothing while nothing may be written."""
        if self.refusal is not None:
            raise self.refusal
        taken = Taken()
        header = read_header(batch)
        due = due_of(memoryview(batch), 0, header)
        self._store(memoryview(batch), 0, header, due, max(now_ms, self._state.closed_ms), taken)
        return taken.entries

    def _store(self, view: memoryview, at: int, header: Header, due: Times, now_ms: int, taken: Taken) -> int:
        logs, state = self._logs, self._state
        place = logs.place_batch(header.length)
        first = state.messages
        stamp(view, at, header.length, first, place.position, now_ms, logs.epoch)
        batch = view[at : at + header.length]
        logs.append(place.file, batch, header.length)
        for entries, appends in scattered(state, batch, due, (self._hour_ms, logs.epoch)):
            for file, buffers in appends:
                for buffer in buffers:
                    logs.append(file, buffer, len(buffer), apart=True)
            taken.entries.append(entries)
        note_sent(state, batch, read_header(batch))
        taken.messages += header.messages
        return first


def subject_of(view: memoryview, at: int, header: Header) -> str:
    """The subject whose messages a batch holds, for all groups or for one."""
    name = partition_name(view, at, header).decode()
    again = parse_again(name)
    return name if again is None else again[0]


def is_own(view: memoryview, at: int) -> bool:
    """Of what failed, and comes back: it was paid for when it was sent."""
    return view[at + HEADER_BYTES] == ord("%")


def lane_of(view: memoryview, at: int, header: Header) -> str:
    """Where a producer counts its batches."""
    return lane_name(partition_name(view, at, header).decode(), header.priority)


def note_sent(state: State, batch: memoryview, header: Header) -> None:
    """A batch that is stored, and its place among all: its producer may send it again; what stands for others, which
    have another time now, nobody has sent.
    """
    entries = more_than_plain(batch, header)
    entry = entries.get(Column.REPLACES)
    if entry is None and Column.FOLLOWS in entries:
        return
    if entry is None:
        state.senders(lane_of(batch, 0, header)).remember(
            header.producer_id, header.producer_sequence, header.first_sequence
        )
        return
    for start_ms, number in (
        np.frombuffer(batch, "<i8", 2 * header.messages, entry[1]).reshape(-1, 2).tolist()
    ):
        state.moved(start_ms, number)


def more_than_plain(batch: memoryview, header: Header) -> Mapping[int, Entry]:
    """The columns of a batch that is for later, when it has others than each of them has."""
    return read_directory(batch, 0, header) if header.column_count > PLAIN else {}


Appends = list[tuple[str, list[Buffer]]]


def scattered(
    state: State, batch: memoryview, due: Times, terms: tuple[int, int]
) -> list[tuple[Entries, Appends]]:
    """Place a batch that the message log has: its numbers in each hour, and what is to be written there. Hours that are
    closed have had theirs. ``terms`` are the length of an hour and the epoch.
    """
    hour_ms, epoch = terms
    header = read_header(batch)
    state.messages += header.messages
    placed: list[tuple[Entries, Appends]] = []
    follower, said = ENDED, (partition_name(batch, 0, header), epoch)
    for piece in scatter(batch, header, due, hour_ms):
        if state.is_closed(piece.hour):
            continue
        placed.append(_place(state, piece, header, said))
        entries = placed[-1][0]
        follower = Follower(piece.hour, int(entries.numbers[0]), int(entries.due[0]))
    note_series(state, batch, header, follower)
    return placed


def note_series(state: State, batch: memoryview, header: Header, placed: Follower) -> None:
    """A message that recurs was placed, and has none after it; what it follows has that."""
    entries = more_than_plain(batch, header)
    if Column.CRON in entries and placed is not ENDED:
        state.hour(placed.hour).series.setdefault(placed.number, OPEN)
    if Column.FOLLOWS in entries:
        start_ms, number = np.frombuffer(batch, "<i8", 2, entries[Column.FOLLOWS][1]).tolist()
        state.follow(start_ms, number, placed)


def placed_again(state: State, batch: memoryview, hour_ms: int) -> list[tuple[Entries, Appends]]:
    """What a batch of the message log brings about, whenever it is read: at the same places, for the same producer."""
    header = read_header(batch)
    note_sent(state, batch, header)
    return scattered(state, batch, due_of(batch, 0, header), (state.hour_ms or hour_ms, header.epoch))


def _place(state: State, piece: Piece, header: Header, said: tuple[bytes, int]) -> tuple[Entries, Appends]:
    """``said`` are the subject and the epoch."""
    subject, epoch = said
    count = len(piece.due)
    hour = state.hour(piece.hour)
    first, place = hour.place(count, piece.length)
    packed = pack_piece(place, piece.length)
    head = piece.stamp(first, place, header.stored_at_ms, epoch)
    names, added = encode_names((subject, header.batch_id), piece.keys, (first, packed))
    hour.names += added
    appends: Appends = [
        (file_of(piece.hour), [head, piece.said]),
        (rows_of(piece.hour), [encode_rows(piece.due, packed)]),
        (names_of(piece.hour), [names]),
    ]
    numbers = np.arange(first, first + count, dtype=np.int64)
    entries = Entries(piece.hour, piece.due, np.full(count, packed, np.uint64), numbers)
    return entries, appends

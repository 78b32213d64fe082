"""Who wants messages that wait, and what becomes of those that are found.

*Gone* is what is due at a tick that has begun: by this clock, or by that of any former life as far as the log knows
(``State.gone_ms``). Before anything of a tick leaves, the log has it on the disk that the tick has begun; so what is
not gone has never left, and is cancelled for good when the record of that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tidemill_delay.actions import Action, Cancelled, Ended
from tidemill_delay.finding import Stretch
from tidemill_delay.hours import Hour, ranges_of
from tidemill_delay.names import BATCH, KEY, Names
from tidemill_delay.pieces import Addressed
from tidemill_delay.series import OPEN
from tidemill_delay.state import State
from tidemill_host.machine import Peer
from tidemill_wire import limits
from tidemill_wire.batch import parse_message_id
from tidemill_wire.columns import hash_text
from tidemill_wire.commands import Command, Failed
from tidemill_wire.errors import Refused, Unavailable, WireError
from tidemill_wire.timing import Cancel, Changed, ListTimers, Reschedule, Show, TimerRow, Waiting

MOVED_BYTES = 8 * 1024 * 1024
"""Messages of a larger piece are moved one by one: with what is said of them they might not fit a batch."""
LIST_BYTES = 32 * 1024 * 1024
"""Read for one page of a list."""

Change: TypeAlias = Cancel | Reschedule | Show


@dataclass(frozen=True, slots=True)
class Hands:
    """What is done with messages that were found."""

    state: State
    tick_ms: int
    act: Callable[[Action, int], None]
    move: Callable[[bytearray, int], None]
    """Store messages for another time; it may refuse."""
    check: Callable[[str, int], None]
    """Whether messages of a subject may be given a time so far ahead; it may refuse."""


@dataclass(slots=True, eq=False)
class Question:
    """One command about some messages, and what was found so far."""

    peer: Peer
    correlation: int
    command: Change
    changed: int = 0
    before: int = 0
    """They were cancelled before."""
    gone: int = 0
    rows: list[TimerRow] = field(default_factory=list[TimerRow])
    room: int = limits.TIMERS_BODIES_BYTES
    error: WireError | None = None
    walked: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Occurrences of series, by hour and number, behind which everything was looked at."""

    @property
    def batch(self) -> tuple[bytes, int] | None:
        """Batch id and index, of one by id."""
        target = self.command.target
        return parse_message_id(target.id) if target.id else None

    @property
    def key(self) -> tuple[str, str]:
        """Subject and timer key, of the others."""
        return self.command.target.subject, self.command.target.timer_key

    @property
    def hash(self) -> int:
        """As it stands in the names."""
        batch = self.batch
        return hash_text(self.key[1].encode() if batch is None else batch[0])

    def answer(self) -> Command:
        """What became of it. Who cancels by id what is cancelled is told yes: an answer before this one got lost."""
        if self.error is not None:
            return Failed(self.error.kind.number, self.error.detail)
        if isinstance(self.command, Show):
            return Waiting(self.rows)
        again = self.before if isinstance(self.command, Cancel) and self.command.target.id else 0
        return Changed(self.changed + again, self.gone)


class Questions:
    """Several questions that are answered by one look."""

    full = False

    def __init__(self, questions: Sequence[Question], hands: Hands) -> None:
        self.questions = questions
        self._hands = hands
        self._by_batch: dict[bytes, list[tuple[Question, int]]] = {}
        self._by_key: dict[tuple[str, str], list[Question]] = {}
        for question in questions:
            batch = question.batch
            if batch is None:
                self._by_key.setdefault(question.key, []).append(question)
            else:
                self._by_batch.setdefault(batch[0], []).append((question, batch[1]))
        self._hashes = np.array(sorted({question.hash for question in questions}), np.uint64)

    def stretches(self) -> list[Stretch]:
        """All that is there now; what is placed later came after the questions."""
        hours = sorted(self._hands.state.hours.values(), key=lambda hour: hour.start_ms)
        return [Stretch(hour.start_ms, 0, hour.names) for hour in hours if hour.names]

    def spent(self, size: int) -> None:
        """However much it is, they are answered."""

    def wanted(self, names: Names) -> npt.NDArray[np.bool_]:
        return np.isin(np.ascontiguousarray(names["hash"]), self._hashes)

    def met(self, hour: Hour, piece: Addressed, names: Names, now_ms: int) -> int:
        for question, numbers in self._numbers(piece, names):
            self._settle(question, hour, (piece, numbers), now_ms)
        return len(names)

    def missed(self, names: Names, error: Exception) -> None:
        hashes = set(names["hash"].tolist())
        for question in self.questions:
            if question.hash in hashes:
                question.error = Unavailable("read_failed", str(error))

    def failed(self, error: WireError) -> None:
        """None of them can be answered."""
        for question in self.questions:
            question.error = error

    def _numbers(self, piece: Addressed, names: Names) -> Iterable[tuple[Question, list[int]]]:
        """Who asks for which messages of a piece, in the order in which they asked."""
        found: dict[Question, list[int]] = {}
        for kind, number in zip(names["kind"].tolist(), names["number"].tolist(), strict=True):
            if kind == BATCH:
                for question, index in self._by_batch.get(piece.header.batch_id, ()):
                    mine = piece.number_of(index)
                    if mine is not None:
                        found.setdefault(question, []).append(mine)
            elif kind == KEY:
                for question in self._by_key.get((piece.subject, piece.timer_key_of(number)), ()):
                    found.setdefault(question, []).append(number)
        for question in found:
            may = question.command.may
            if may is not None and not may(piece.subject):
                question.error = Refused(
                    "forbidden", "a message with that id is of a subject that was not granted"
                )
        return (
            (question, found[question])
            for question in self.questions
            if question in found and (question.error is None or question.error.kind.name != "forbidden")
        )

    def _settle(
        self, question: Question, hour: Hour, found: tuple[Addressed, list[int]], now_ms: int
    ) -> None:
        piece, numbers = found
        gone_ms = self._hands.state.gone_ms(now_ms, self._hands.tick_ms)
        waiting: list[int] = []
        for number in numbers:
            left = hour.done.has(number) or piece.due_of(number) <= gone_ms
            if left and number in hour.series and isinstance(question.command, Cancel):
                question.changed += end_series(self._hands, question.walked, (hour, number), now_ms)
            if hour.moved.has(number):
                continue
            if hour.cancelled.has(number):
                question.before += 1
            elif hour.done.has(number):
                question.gone += 1
            elif isinstance(question.command, Show):
                self._show(question, piece, number)
            elif piece.due_of(number) <= gone_ms:
                question.gone += 1
            else:
                waiting.append(number)
        if waiting and question.error is None:
            self._change(question, hour, (piece, waiting), now_ms)

    def _show(self, question: Question, piece: Addressed, number: int) -> None:
        if len(question.rows) < limits.TIMERS_PAGE_MAX:
            row = piece.row(number, question.room)
            question.room -= len(row.body or b"")
            question.rows.append(row)

    def _change(
        self, question: Question, hour: Hour, found: tuple[Addressed, list[int]], now_ms: int
    ) -> None:
        piece, numbers = found
        if isinstance(question.command, Cancel):
            self._hands.act(Cancelled(hour.start_ms, ranges_of(np.array(numbers, np.int64))), now_ms)
            question.changed += len(numbers)
            return
        assert isinstance(question.command, Reschedule)
        parts = [numbers] if piece.header.length <= MOVED_BYTES else [[number] for number in numbers]
        try:
            self._hands.check(piece.subject, question.command.due_ms - now_ms)
            for part in parts:
                batch = piece.retimed(hour.start_ms, np.array(part, np.int64), question.command.due_ms)
                self._hands.move(batch, now_ms)
                question.changed += len(part)
        except WireError as error:
            question.error = error


def end_series(hands: Hands, walked: set[tuple[int, int]], met: tuple[Hour, int], now_ms: int) -> int:
    """Of a series whose occurrence was met, nothing more comes; 1 if one that waits was cancelled for that, which may
    have been placed when a look had begun. The one that was met is not touched.
    """
    gone_ms = hands.state.gone_ms(now_ms, hands.tick_ms)
    hour, number = met
    follower = hour.series[number]
    while follower.number >= 0 and (follower.hour, follower.number) not in walked:
        walked.add((follower.hour, follower.number))
        found = hands.state.hours.get(follower.hour)
        if found is None or found.cancelled.has(follower.number):
            return 0  # it was ended
        hour, number = found, follower.number
        if not hour.done.has(number) and follower.due_ms > gone_ms:
            hands.act(Cancelled(hour.start_ms, [number, number]), now_ms)
            return 1
        follower = hour.series[number]
    if follower == OPEN and not hour.moved.has(number) and not hour.cancelled.has(number):
        hands.act(Ended(hour.start_ms, [number, number]), now_ms)
    return 0


class Listing:
    """One page of a subject's messages that wait under timer keys."""

    def __init__(self, peer: Peer, correlation: int, command: ListTimers, hands: Hands) -> None:
        self.peer = peer
        self.correlation = correlation
        self._command = command
        self._hands = hands
        self._subject = crc32c(command.subject.encode())
        self._left = LIST_BYTES
        self._rows: list[TimerRow] = []
        self._error: WireError | None = None

    def stretches(self, hour_ms: int, after: tuple[int, int]) -> list[Stretch]:
        """From where the page before ended."""
        command = self._command
        hours = sorted(self._hands.state.hours.values(), key=lambda hour: hour.start_ms)
        closed_ms = self._hands.state.closed_ms  # the hour behind it may have what is due before it
        return [
            Stretch(hour.start_ms, after[1] if hour.start_ms == after[0] else 0, hour.names)
            for hour in hours
            if hour.start_ms >= after[0]
            and hour.names
            and command.since_ms - hour_ms < hour.start_ms < max(command.until_ms, closed_ms + 1)
        ]

    @property
    def full(self) -> bool:
        return len(self._rows) >= self._command.limit or self._left <= 0

    def spent(self, size: int) -> None:
        self._left -= size

    def wanted(self, names: Names) -> npt.NDArray[np.bool_]:
        kinds: npt.NDArray[np.uint32] = names["kind"]
        subjects: npt.NDArray[np.uint32] = names["subject"]
        return np.asarray((kinds == KEY) & (subjects == self._subject), np.bool_)

    def met(self, hour: Hour, piece: Addressed, names: Names, now_ms: int) -> int:
        command = self._command
        if piece.subject != command.subject:
            return len(names)
        for index, number in enumerate(names["number"].tolist()):
            if len(self._rows) >= command.limit:
                return index
            if not hour.done.has(number) and piece.timer_key_of(number).startswith(command.prefix):
                row = piece.row(number)
                if command.since_ms <= row.due_ms < command.until_ms:
                    self._rows.append(row)
        return len(names)

    def missed(self, names: Names, error: Exception) -> None:
        self._error = Unavailable("read_failed", str(error))

    def failed(self, error: WireError) -> None:
        """It cannot be shown."""
        self._error = error

    def answer(self, end: Stretch | None) -> Command:
        """The page, and where the next one begins."""
        if self._error is not None:
            return Failed(self._error.kind.number, self._error.detail)
        return Waiting(self._rows, "" if end is None else f"{end.hour}.{end.first}")

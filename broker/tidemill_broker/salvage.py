"""Answers to pulls of which the disk does not give all: what can be read is sent, and the rest dies.

Batches leave as slices, bytes that no machine sees. When the disk refuses a slice, the frame did not leave, and the
host says so. The batches of that answer are then read one by one.

    sent      --a slice cannot be read-->  searched: each batch is read
    searched  --a batch came------------>  sent, in the answer that the pull gets now
              --it cannot be read------->  its messages die, as those do that cannot be decoded
              --it is gone-------------->  nothing: when its lease ends, it is known that retention has taken it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tidemill_broker.actions import FailedDeliveries, FailureDetail, Reason
from tidemill_broker.desk import Desk
from tidemill_broker.failures import fingerprint_of
from tidemill_broker.members import probed
from tidemill_broker.pull_log import Consumer
from tidemill_broker.pulls import Given, ParkedPull, Stored
from tidemill_host.machine import Buffer, Durability, Send, Slice, Unread
from tidemill_journal.entries import row_count, row_length
from tidemill_wire.commands import Pulled, encode_command
from tidemill_wire.grants import Grant
from tidemill_wire.limits import DOOMED_MS


@dataclass(slots=True, eq=False)
class Wreck:
    """An answer that did not leave, and what was read of it since."""

    parked: ParkedPull
    given: Given
    answer: Pulled
    level: Durability
    found: dict[int, Buffer | Unread] = field(default_factory=dict[int, Buffer | Unread])


class Salvage:
    """Sends what pulls are given."""

    def __init__(self, desk: Desk, serve_group: Callable[[int, int], None]) -> None:
        self._desk = desk
        self._serve_group = serve_group

    def send(self, parked: ParkedPull, given: Given, answer: Pulled, level: Durability) -> None:
        """An answer, its gathered batches, and behind them what the host reads."""
        trailing = sum(piece.size for piece in given.slices)
        head = encode_command(answer, parked.correlation, trailing)
        search = partial(self._search, Wreck(parked, given, answer, level)) if trailing else None
        self._desk.sends.append(Send(parked.peer, head, given.slices, level, search))

    def _search(self, wreck: Wreck, unread: Unread, now_ms: int) -> None:
        """All batches are read, also those of other slices: this answer must not fail again."""
        del unread  # it names a slice, and what matters is which of its batches
        messages = self._desk.logs.messages
        for number, stored in enumerate(wreck.given.places):
            then = partial(self._came, wreck, number)
            if stored.position < messages.start:
                then(b"", now_ms)
            else:
                file, place = messages.locate(stored.position)
                self._desk.read(Slice(file, place, row_length(stored.size)), then)

    def _came(self, wreck: Wreck, number: int, data: Buffer | Unread, now_ms: int) -> None:
        wreck.found[number] = data
        if len(wreck.found) == len(wreck.given.places):
            self._answer(wreck, now_ms)

    def _answer(self, wreck: Wreck, now_ms: int) -> None:
        whole: list[Grant] = []
        parts: list[Buffer] = [wreck.answer.batches]
        for grant, stored, data in _by_batch(wreck):
            if stored is None:  # it was gathered, and is in memory
                whole.append(grant)
            elif isinstance(data, Unread):
                self._doom(wreck, grant, str(data), now_ms)
            elif len(data) == row_length(stored.size):
                whole.append(grant)
                parts.append(data)
        answer = replace(wreck.answer, grants=whole, batches=memoryview(b"".join(parts)))
        self._desk.say(wreck.parked.peer, wreck.parked.correlation, answer, wreck.level)
        self._serve_group(wreck.given.consumer.group.identity, now_ms)  # what dies makes room

    def _doom(self, wreck: Wreck, grant: Grant, problem: str, now_ms: int) -> None:
        consumer = wreck.given.consumer
        group, ranges = consumer.group, [grant.pull_sequence, grant.pull_sequence + grant.count - 1]
        was_probe = probed(consumer, ranges)
        if wreck.parked.pull.once:  # it was acked when it was given out, and no lease is left that could end
            self._desk.counters.dead_dropped += grant.count
        else:
            self._desk.act(unreadable(consumer, ranges, problem, now_ms), now_ms)
        if was_probe:
            group.health.probe_failed(now_ms)
        self._desk.wake(now_ms)  # ``ticked`` buries them


def unreadable(consumer: Consumer, ranges: Sequence[int], problem: str, now_ms: int) -> FailedDeliveries:
    """Nobody can tell what these messages say: they go where goes what cannot be decoded."""
    detail = FailureDetail(problem, "", "", fingerprint_of(problem, "", ""))
    counted = 0 if consumer.group.paused is not None else 1
    return FailedDeliveries(consumer.identity, DOOMED_MS, Reason.NACK, ranges, now_ms, counted, detail)


def _by_batch(wreck: Wreck) -> list[tuple[Grant, Stored | None, Buffer | Unread]]:
    """The grants of an answer, one for each batch, in its order; gathered batches come first."""
    found: list[tuple[Grant, Stored | None, Buffer | Unread]] = []
    number = -len(wreck.given.gathered)
    for grant in wreck.answer.grants:
        for _ in range(grant.batches):
            if number < 0:
                found.append((grant, None, b""))
            else:
                stored = wreck.given.places[number]
                found.append((_within(grant, stored), stored, wreck.found[number]))
            number += 1
    assert number == len(wreck.given.places)
    return found


def _within(grant: Grant, stored: Stored) -> Grant:
    """What of a grant is in one batch. One with a mask is in no other."""
    if grant.batches == 1:
        return grant
    first = max(grant.first_sequence, stored.first)
    end = min(grant.first_sequence + grant.count, stored.first + row_count(stored.size))
    pull = grant.pull_sequence + first - grant.first_sequence
    return replace(grant, pull_sequence=pull, first_sequence=first, count=end - first, batches=1)

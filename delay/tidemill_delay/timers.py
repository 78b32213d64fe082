"""Questions about messages that wait: they queue up, are looked for together, and answered.

    asked ──► queue ──► where to look is settled ──► the disk has all of that: a look ──► answers

One look at a time. It is for the questions at the head of the queue: a page of a list alone; several that change times
together, as long as they cannot mean the same message, for what has another time is somewhere else and was not looked
at; all others together. So every question is answered as if it had been the only one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tidemill_delay.asking import Change, Hands, Listing, Question, Questions
from tidemill_delay.finding import Look, Stretch, look
from tidemill_host.machine import Buffer, Peer, Read, Unread
from tidemill_wire import limits
from tidemill_wire.commands import Command
from tidemill_wire.errors import Refused, Unavailable, WireError
from tidemill_wire.timing import ListTimers, Reschedule

Answer = tuple[Peer, int, Command]


class Timers:
    """See the module. ``settled`` calls a step when the disk has all that was placed so far."""

    def __init__(
        self, hands: Hands, hour_ms: int, settled: Callable[[Callable[[int], None], int], None]
    ) -> None:
        self.reads: list[Read] = []
        """Their tokens are negative."""
        self.answers: list[Answer] = []
        self._hands = hands
        self._hour_ms = hour_ms
        self._settled = settled
        self._queue: deque[Question | tuple[Listing, ListTimers]] = deque()
        self._at_work: Questions | Listing | None = None
        self._look: Look
        self._awaited: dict[int, int] = {}
        """Tokens, and which of the reads they are."""
        self._read: list[Buffer | Unread] = []
        self._token = 0
        self._beginning = False

    def asked(self, peer: Peer, correlation: int, command: Change | ListTimers, now_ms: int) -> None:
        """It is answered later, when everything before it has been."""
        if len(self._queue) >= limits.TIMERS_ASKED_MAX:
            raise Unavailable(
                "too_many_requests", f"{len(self._queue)} questions about timers wait to be answered"
            )
        if isinstance(command, ListTimers):
            _place_of(command.after)
            self._queue.append((Listing(peer, correlation, command, self._hands), command))
        else:
            self._queue.append(Question(peer, correlation, command))
        self._next(now_ms)

    def loaded(self, token: int, data: Buffer | Unread, now_ms: int) -> None:
        """What was to be read, or that it cannot be."""
        self._read[self._awaited.pop(token)] = data
        if not self._awaited:
            self._go_on((now_ms, self._read), now_ms)

    def _next(self, now_ms: int) -> None:
        """Begin with whoever is next, if nobody is at work. One that ends at once calls this again, from within."""
        if self._beginning:
            return
        self._beginning = True
        while self._queue and self._at_work is None:
            self._begin(now_ms)
        self._beginning = False

    def _begin(self, now_ms: int) -> None:
        head = self._queue[0]
        stretches: Sequence[Stretch]
        if isinstance(head, tuple):
            self._queue.popleft()
            self._at_work, command = head
            stretches = self._at_work.stretches(self._hour_ms, _place_of(command.after))
        else:
            self._at_work = Questions(self._together(), self._hands)
            stretches = self._at_work.stretches()
        self._look = look(self._hands.state, self._at_work, stretches)
        self._settled(lambda now_ms: self._go_on(None, now_ms), now_ms)

    def _together(self) -> list[Question]:
        """Those at the head of the queue that one look can answer."""
        first = self._queue[0]
        assert isinstance(first, Question)
        moving, targets = isinstance(first.command, Reschedule), {first.command.target}
        found = [first]
        self._queue.popleft()
        while self._queue:
            other = self._queue[0]
            if isinstance(other, tuple) or isinstance(other.command, Reschedule) is not moving:
                break
            target = other.command.target
            if moving and (target in targets or bool(target.id) is not bool(first.command.target.id)):
                break
            targets.add(target)
            found.append(other)
            self._queue.popleft()
        return found

    def _go_on(self, read: tuple[int, Sequence[Buffer | Unread]] | None, now_ms: int) -> None:
        assert self._at_work is not None
        try:
            slices = next(self._look) if read is None else self._look.send(read)
        except StopIteration as over:
            self._end(over.value, now_ms)
            return
        except WireError as error:
            self._at_work.failed(error)
            self._end(None, now_ms)
            return
        self._read = [b""] * len(slices)
        for index, piece in enumerate(slices):
            self._token -= 1
            self._awaited[self._token] = index
            self.reads.append(Read(self._token, piece))

    def _end(self, where: Stretch | None, now_ms: int) -> None:
        done, self._at_work = self._at_work, None
        if isinstance(done, Listing):
            self.answers.append((done.peer, done.correlation, done.answer(where)))
        elif done is not None:
            self.answers += [(one.peer, one.correlation, one.answer()) for one in done.questions]
        self._next(now_ms)


def _place_of(after: str) -> tuple[int, int]:
    """Hour and row where a page begins."""
    if not after:
        return 0, 0
    hour, _, row = after.partition(".")
    if not (hour.isdecimal() and row.isdecimal() and after.isascii()):
        raise Refused("malformed_command", f"{after!r} is not where a page of timers ended")
    return int(hour), int(row)

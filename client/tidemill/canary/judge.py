"""What a canary concludes of one broker group, from what it sent, what it was answered and what it saw. Pure.

Two kinds of probes: those that are to come at once, which have an order, and those that are sent for later. How
one becomes lost is said in ``stream.py``, what a change of the master is in ``failovers.py``.

When another canary of the same name is at work, both are given a part of what each of them expects; what is expected
then is forgotten and not judged, for as long as a probe may need.

Where nothing is sent on purpose nothing comes, and that is no silence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidemill.canary.failovers import Failovers, Interruptions
from tidemill.canary.stream import Came, Probe, Stream
from tidemill_wire.metrics.powers import Powers

SECONDS_BOUNDS = (0.001, 17)
"""Histograms count from a millisecond to a minute."""
LOST_MAX = 20
"""Ids that are told of."""
DOUBLED = (Came.STORED_TWICE, Came.ACKNOWLEDGED, Came.REDELIVERED)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A probe came."""

    later: bool
    number: int
    sequence: int
    epoch: int
    attempts: int


class Judge:
    """See the module. Times are ``now_ms`` of a clock that does not jump."""

    def __init__(
        self, now_ms: int, *, patience_ms: int, slow_ms: int, gaps_ms: tuple[int, int], kept_ms: int
    ) -> None:
        self._patience_ms = patience_ms
        self.early = 0
        """Of probes for later, those that came before their time."""
        self.stored_out_of_order = 0
        self.delivered_out_of_order = 0
        self.doubled = dict.fromkeys(DOUBLED, 0)
        self.lost_of_late: list[str] = []
        """Their ids, for who asks what became of them."""
        self.now = Stream(patience_ms, gaps_ms[0], kept_ms)
        self.later = Stream(patience_ms, gaps_ms[1], kept_ms)
        self.interruptions = Interruptions(slow_ms)
        self.failovers = Failovers()
        self.answering = Powers(*SECONDS_BOUNDS)
        """How long a send waited for its answer, in seconds."""
        self.end_to_end = Powers(*SECONDS_BOUNDS)
        """From the send to the handler."""
        self.delay_error = Powers(*SECONDS_BOUNDS)
        """How long after its time a probe for later came."""
        self._began_ms = now_ms
        self._crowded_until_ms = 0
        self._rests = False

    # -- what happens ------------------------------------------------------------------------------------------

    def send(self, now_ms: int, due_ms: int | None = None) -> int | None:
        """The number of a new probe; ``None``: nothing is sent now."""
        stream = self.now if due_ms is None else self.later
        probe = stream.send(now_ms, now_ms if due_ms is None else due_ms)
        if probe is None:
            return None
        if due_ms is None:
            self.interruptions.sent(probe.number, now_ms)
        return probe.number

    def answered(self, number: int, now_ms: int, identity: str, *, later: bool) -> None:
        """It is stored, or kept for later."""
        if later:
            self.later.answered(number, now_ms, identity)
        else:
            self.answering.add(self.interruptions.answered(number, now_ms) / 1000)
            self.now.answered(number, now_ms, identity)

    def failed(self, number: int, now_ms: int, *, later: bool) -> None:
        """Its send raised."""
        if later:
            self.later.failed(number, now_ms)
        else:
            self.interruptions.failed(number)
            self.now.failed(number, now_ms)

    def seen(self, one: Sighting, now_ms: int) -> None:
        """A probe of this canary came."""
        stream = self.later if one.later else self.now
        came, probe = stream.seen(one.number, one.sequence, now_ms)
        if came in self.doubled:
            self.doubled[came] += 1
        if probe is None:
            return
        if came is Came.FOUND and probe.answered_ms is not None:
            self.failovers.lost(probe.answered_ms, -1)
        if one.later:
            self.early += now_ms < probe.due_ms
            self.delay_error.add(max(0, now_ms - probe.due_ms) / 1000)
            return
        self.end_to_end.add((now_ms - probe.sent_ms) / 1000)
        stored, delivered = stream.is_out_of_order(one.number, one.sequence)
        self.stored_out_of_order += stored
        self.delivered_out_of_order += delivered and not one.attempts and came is Came.FIRST
        if one.epoch > self.failovers.epoch:
            interrupted_ms = self.interruptions.tell(now_ms)
            ended_ms = now_ms if probe.answered_ms is None else probe.answered_ms
            rto_ms = ended_ms - probe.sent_ms if interrupted_ms is None else interrupted_ms
            self.failovers.begun(one.epoch, now_ms, rto_ms)

    def acked(self, number: int, *, later: bool) -> None:
        """The broker has noted that it was handled."""
        (self.later if later else self.now).acked(number)

    def crowded(self, now_ms: int) -> None:
        """A probe of another canary of this name came, that was sent after this one began."""
        self._crowded_until_ms = now_ms + self._patience_ms
        self.now.forget()
        self.later.forget()

    def rest(self, now_ms: int, *, rests: bool) -> None:
        """Whether nothing is sent, on purpose. Silence is counted from the end of it."""
        if self._rests and not rests:
            self._began_ms = now_ms
        self._rests = rests

    def look(self, now_ms: int) -> list[Probe]:
        """To be called now and then: what is lost from now on."""
        if self.is_crowded(now_ms):
            self.now.forget()
            self.later.forget()
        for stream in (self.now, self.later):
            stream.outlive(now_ms)
        lost = [*self.now.give_up(), *self.later.give_up()]
        for probe in lost:
            assert probe.answered_ms is not None
            self.failovers.lost(probe.answered_ms)
        self.lost_of_late = [*self.lost_of_late, *(probe.identity for probe in lost)][-LOST_MAX:]
        for one in self.failovers.recent:
            if not one.settled:
                one.settled = not self.now.expects_from_before(one.at_ms)
        return lost

    # -- how it stands -----------------------------------------------------------------------------------------

    def is_crowded(self, now_ms: int) -> bool:
        """Another canary of this name is at work."""
        return now_ms < self._crowded_until_ms

    def silent_ms(self, now_ms: int) -> int:
        """For how long nothing came."""
        if self._rests:
            return 0
        return now_ms - max(self._began_ms, self.now.last_seen_ms or self._began_ms)

    def interrupted_ms(self, now_ms: int) -> int:
        """For how long nobody has been answered; 0: somebody is."""
        since_ms = self.interruptions.since(now_ms)
        return 0 if since_ms is None else now_ms - since_ms

    def to_map(self, now_ms: int) -> dict[str, Any]:
        """For a page."""
        kinds = {"now": self.now, "later": self.later}
        return {
            "probes": {kind: {**asdict(one.tally), "expected": one.expected} for kind, one in kinds.items()},
            "lost_of_late": self.lost_of_late,
            "doubled": {kind.value: count for kind, count in self.doubled.items()},
            "out_of_order": {"stored": self.stored_out_of_order, "delivered": self.delivered_out_of_order},
            "early": self.early,
            "p99_ms": {
                "answer": _p99_ms(self.answering),
                "end_to_end": _p99_ms(self.end_to_end),
                "delay_error": _p99_ms(self.delay_error),
            },
            "silent_ms": self.silent_ms(now_ms),
            "interrupted_ms": self.interrupted_ms(now_ms),
            "crowded": self.is_crowded(now_ms),
            "epoch": self.failovers.epoch,
            "failovers": [one.to_map(now_ms) for one in self.failovers.recent],
        }


def _p99_ms(times: Powers) -> int | None:
    """A power of two that 99 of 100 do not exceed, since it began."""
    found = times.quantile(0.99)
    return None if found is None else round(1000 * found)

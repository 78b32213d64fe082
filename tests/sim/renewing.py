"""An experiment for crash points: leases that are renewed in time, and others that nobody renewed until they were over.

What is over is over, whether the broker hears of time first or of the consumer: a renewal that comes too late is
answered as lost, and the message is given to somebody else. A renewal that was answered holds until its time.
"""

from __future__ import annotations

from sim.autopsy import NOW_MS, recovered_twice
from sim.crashpoints import first_problem
from sim.disk import Mount
from sim.sending import LIFE_MS, STORM, TINY
from sim.straight import Straight
from tidemill_broker.partitions import SubjectSettings
from tidemill_wire.batch import Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Ack, Done, Extend, Pull, Pulled, SendBatches, Sent

SUBJECT, GROUP = "high", "group"
HANGING, OTHER = "hanging", "other"
ROUNDS = 4
LEASE_MS = TINY.lease_ms


class Renewing:
    """See the module."""

    def __init__(self) -> None:
        self._problems: list[str] = []

    def live(self, life: int, disk: Mount) -> None:
        host = Straight(disk, TINY, NOW_MS + LIFE_MS * life)
        host.broker.intake.declare(SUBJECT, SubjectSettings("high", 1 << 30, 0, 1 << 20), host.now_ms)
        host.turn()
        self._clear(host)
        for number in range(ROUNDS):
            identity = (life, number + 1, b"%08d%08d" % (life, number), host.now_ms)
            batch = build_batch(Origin(SUBJECT.encode(), *identity), Content([b"%d.%d" % (life, number)] * 2))
            assert isinstance(host.ask(SendBatches(bytearray(batch))), Sent)
            self._round(host, number)

    def _clear(self, host: Straight) -> None:
        """What an earlier life has left is given out and acked, when its leases and then its backoff are over."""
        host.pass_time(LIFE_MS // 4)
        host.pass_time(LIFE_MS // 4)
        while pulls := self._pull(host, OTHER):
            host.ask(Ack(GROUP, OTHER, SUBJECT, [pulls[0], pulls[-1]]))

    def _round(self, host: Straight, number: int) -> None:
        held = self._pull(host, HANGING)
        if len(held) != 2:
            self._problems.append(f"held: {len(held)} of 2 messages were given")
            return
        ranges = [held[0], held[-1]]
        host.pass_time(LEASE_MS - 1)
        self._renew(host, ranges, lost=[], what="in time")
        host.pass_time(LEASE_MS - 1)
        if self._pull(host, OTHER):
            self._problems.append("ended: a lease that was renewed was over before its time")
        if number % 2:
            host.pass_time(1)
        else:  # the renewal is heard before the time is
            host.now_ms += 1
        self._renew(host, ranges, lost=ranges, what="late")
        given = self._pull(host, OTHER)
        if len(given) != 2:
            self._problems.append(f"kept: {2 - len(given)} of 2 messages stayed with whom nobody heard of")
        if given:
            host.ask(Ack(GROUP, OTHER, SUBJECT, [given[0], given[-1]]))

    def _renew(self, host: Straight, ranges: list[int], lost: list[int], what: str) -> None:
        answer = host.ask(Extend(GROUP, HANGING, SUBJECT, ranges))
        if not isinstance(answer, Done) or list(answer.lost) != lost:
            self._problems.append(f"renewed {what}: {answer}, expected {lost} to be lost")

    def _pull(self, host: Straight, consumer: str) -> list[int]:
        """The pull sequences of what was given."""
        answer = host.ask(Pull(GROUP, consumer, [SUBJECT], 8, 1 << 20, 0))
        assert isinstance(answer, Pulled), answer
        return [
            pull
            for grant in answer.grants
            for pull in range(grant.pull_sequence, grant.pull_sequence + grant.count)
        ]

    def check(self, disk: Mount) -> list[str]:
        """What the last life has left."""
        broker = recovered_twice(disk, TINY, self._problems)
        group = broker.state.group_of(SUBJECT, GROUP)
        if group is None or group.in_flight or group.failed:
            self._problems.append("forgotten: acks that were answered")
        return self._problems


if __name__ == "__main__":
    raise SystemExit(first_problem(Renewing, STORM, draws=1) or None)

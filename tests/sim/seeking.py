"""An experiment for crash points: a group that is moved while it holds messages, life after life.

What was given out before a seek is void after it: its acks are answered as lost, and no restart brings its lease back.
A seek that was answered is not forgotten.
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
from tidemill_wire.commands import Ack, Done, Nack, Pull, Pulled, SendBatches, Sent
from tidemill_wire.kinds import Place
from tidemill_wire.steering import Seek, Sought

SUBJECT, GROUP, CONSUMER = "high", "moved", "consumer"
PLACES = (Place.LATEST, Place.EARLIEST, Place.SEQUENCE, Place.LATEST, Place.TIME)


class Seeking:
    """See the module."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._void_below = 0
        """Pull sequences below it were given out before a seek that was answered."""
        self._floor = 0
        """The group is there, or has gone on from there; 0 while nobody knows."""
        self._highest = 0

    def live(self, life: int, disk: Mount) -> None:
        host = Straight(disk, TINY, NOW_MS + LIFE_MS * life)
        host.broker.intake.declare(SUBJECT, SubjectSettings("high", 1 << 30, 0, 1 << 20), host.now_ms)
        host.turn()
        try:
            for number, place in enumerate(PLACES):
                self._round(host, life, number, place)
        except AssertionError as error:
            self._problems.append(f"broken: {error or 'an invariant of the broker'}")

    def check(self, disk: Mount) -> list[str]:
        """What the last life has left."""
        broker = recovered_twice(disk, TINY, self._problems)
        group = broker.state.group_of(SUBJECT, GROUP)
        if group is None:
            if self._floor:
                self._problems.append("forgotten: the group that was moved")
            return self._problems
        if group.cursor < self._floor:
            self._problems.append(f"forgotten: a seek to {self._floor}, the group is at {group.cursor}")
        for consumer in group.consumers.values():
            for held in consumer.held():
                if held.pull < self._void_below:
                    self._problems.append(f"void: the lease of pull {held.pull} came back")
        return self._problems

    def _round(self, host: Straight, life: int, number: int, place: Place) -> None:
        bodies = [b"%d.%d.%d" % (life, number, index) for index in range(3)]
        identity = (life, number + 1, b"%08d%08d" % (life, number), host.now_ms)
        batch = build_batch(Origin(SUBJECT.encode(), *identity), Content(bodies))
        assert isinstance(host.ask(SendBatches(bytearray(batch))), Sent)
        held = self._pull(host)
        if held and number % 2:
            host.ask(Nack(GROUP, CONSUMER, SUBJECT, [held[0], held[0]], 10))
            held = held[1:]
        self._floor = 0
        value = {Place.SEQUENCE: 2, Place.TIME: host.now_ms - 60}.get(place, 0)
        sought = host.ask(Seek(GROUP, SUBJECT, place, value))
        assert isinstance(sought, Sought), sought
        self._floor, self._void_below = sought.sequence, self._highest + 1
        for pull in held:
            answer = host.ask(Ack(GROUP, CONSUMER, SUBJECT, [pull, pull]))
            if not isinstance(answer, Done) or list(answer.lost) != [pull, pull]:
                self._problems.append(f"void: the ack of pull {pull}, given out before a seek, was taken")
        host.pass_time(40)
        for pull in self._pull(host)[:2]:
            host.ask(Ack(GROUP, CONSUMER, SUBJECT, [pull, pull]))

    def _pull(self, host: Straight) -> list[int]:
        """The pull sequences of what was given."""
        answer = host.ask(Pull(GROUP, CONSUMER, [SUBJECT], 4, 1 << 20, 0))
        assert isinstance(answer, Pulled), answer
        if answer.grants and answer.grants[0].attempts == 0:
            first = answer.grants[0].first_sequence
            if first < self._floor:
                self._problems.append(f"forgotten: message {first} was given after a seek to {self._floor}")
        pulls = [
            pull
            for grant in answer.grants
            for pull in range(grant.pull_sequence, grant.pull_sequence + grant.count)
        ]
        self._highest = max([self._highest, *pulls])
        return pulls


if __name__ == "__main__":
    raise SystemExit(first_problem(Seeking, STORM, draws=2) or None)

"""An experiment for crash points: a few messages sent, pulled, acked and failed, life after life, on tiny limits.

The group gives up soon, so what fails becomes a dead letter; some dead letters are redriven.
"""

from __future__ import annotations

from samples.searches import Search
from sim.autopsy import NOW_MS, read_batches, read_log, recovered_twice
from sim.crashpoints import first_problem
from sim.disk import Mount
from sim.graveyard import Letter, alive, letters_in, sums, waits
from sim.straight import Straight
from sim.weather import Weather
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.machine import Broker
from tidemill_broker.partitions import SubjectSettings
from tidemill_broker.settings import BrokerSettings
from tidemill_wire.batch import Origin, read_header
from tidemill_wire.columns import Batch, Content, build_batch
from tidemill_wire.commands import Ack, Command, Done, Failed, Nack, Pull, Pulled, Redrive, SendBatches, Sent

STORM = Weather(torn_pages=0.5, ordered_names=False, short_io=0.2)
SUBJECTS = ("high", "normal")
ATTEMPTS = {"high": 2, "normal": 1}
GROUP, CONSUMER = "group", "consumer"
KEYS = (None, "key", "another")
ROUNDS = 6
ROUND_MS = 40
LIFE_MS = 10_000
TINY = BrokerSettings(
    segment_bytes=700,
    segment_batches=3,
    action_segment_bytes=400,
    checkpoint_events=9,
    checkpoint_pause_ms=50,
    sync_interval_ms=100,
    lease_ms=150,
    consumer_gone_ms=300,
)
Key = tuple[str, int]


class Sending:
    """See the module. ``answered``, ``acked`` and ``granted`` are what the peer has been told."""

    def __init__(self, settings: BrokerSettings = TINY) -> None:
        self._settings = settings
        self._sent: dict[bytes, str] = {}
        self._answered: dict[Key, bytes] = {}
        self._granted: dict[Key, bytes] = {}
        self._acked: set[Key] = set()
        self._acked_now: set[Key] = set()
        """In the last life, which no power cut follows."""
        self._given_up: set[Key] = set()
        self._pulls: set[int] = set()
        self._problems: list[str] = []
        self._host: Straight
        self._powered = True
        """No power cut has happened: whatever was answered must be there."""

    def live(self, life: int, disk: Mount) -> None:
        self._powered = disk.disk.on_crash == disk.disk.kill
        self._acked_now = set()
        self._host = Straight(disk, self._settings, NOW_MS + LIFE_MS * life)
        for subject in SUBJECTS:
            settings = SubjectSettings(subject, 1 << 30, 0, 1 << 20)
            self._host.broker.intake.declare(subject, settings, self._host.now_ms)
            self._declare_group(subject)
        self._host.turn()
        for number in range(ROUNDS):
            self._send(life, number, SUBJECTS[number % 2])
            if number == 4:
                self._redrive("normal")
            self._pull(number)
            self._host.pass_time(ROUND_MS)

    def _declare_group(self, subject: str) -> None:
        broker = self._host.broker
        lease_ms, attempts = self._settings.lease_ms, ATTEMPTS[subject]
        settings = GroupSettings(lease_ms=lease_ms, attempts_max=attempts, retry_ms_min=0, backoff_ms=(20,))
        partition = broker.state.by_name[subject.encode()]
        broker.members.declare_group(partition, GROUP, (0, 0), settings, self._host.now_ms)

    def _redrive(self, subject: str) -> None:
        answer = self._host.ask(Redrive(subject, GROUP, []))
        assert isinstance(answer, Done | Failed), answer

    def check(self, disk: Mount) -> list[str]:
        """What the last life has left."""
        broker = recovered_twice(disk, self._settings, self._problems)
        there: dict[Key, bytes] = {}
        for subject, sequence, body in read_log(disk, broker):
            if self._sent.get(body) != subject:
                self._problems.append(f"invented: {body!r} of {subject}")
            if body in there.values():
                self._problems.append(f"twice: {body!r}")
            there[subject, sequence] = body
        for key, body in self._answered.items():
            if self._kept(key) and there.get(key) != body:
                self._problems.append(f"lost: {body!r} of {key}, there is {there.get(key)!r}")
        letters = [letter for batch in read_batches(disk, broker) for letter in letters_in(batch)]
        self._problems += [
            f"forgotten: {subject}/{sequence} is with nobody, and was not acked"
            for subject, sequence in there
            if not self._accounted(broker, letters, subject, sequence)
        ]
        self._problems += self._buried_wrongly(broker, letters)
        self._problems += sums(letters, broker.state, exact=self._powered, purges=False)
        for subject, sequence in self._acked:
            group = broker.state.group_of(subject, GROUP)
            if self._kept((subject, sequence)) and (group is None or sequence >= group.cursor):
                self._problems.append(f"forgotten: the ack of {subject}/{sequence}")
        return self._problems + Search(broker, disk).problems(briefly=True)

    def _buried_wrongly(self, broker: Broker, letters: list[Letter]) -> list[str]:
        """A dead letter that waits is the only one of its message, whole, and nobody has acked the message."""
        waiting = [letter for letter in letters if waits(letter, broker.state)]
        bodies = [letter.body for letter in waiting]
        return [
            f"wrongly buried: {letter}"
            for letter in waiting
            if bodies.count(letter.body) > 1
            or self._sent.get(letter.body) != alive(letter.subject, GROUP)
            or (letter.subject, letter.source) in self._acked_now
            or (self._kept((letter.subject, 0)) and (letter.subject, letter.source) in self._acked)
            or is_to_come(broker, letter)
        ]

    def _accounted(self, broker: Broker, letters: list[Letter], subject: str, sequence: int) -> bool:
        """A message is still to come, in somebody's hands, due again, acked, or a dead letter that is one of these
        or waits.
        """
        if any(
            waits(letter, broker.state) or self._accounted(broker, letters, letter.grave, letter.sequence)
            for letter in letters
            if (letter.subject, letter.source) == (subject, sequence)
        ):
            return True
        group = broker.state.group_of(subject, GROUP)
        if group is None or sequence >= group.cursor or (subject, sequence) in self._given_up:
            return True
        spans = [(failure.first, failure.messages) for failure in group.failed.values()]
        spans += [(held.first, held.count) for one in group.consumers.values() for held in one.held()]
        return any(first <= sequence < first + count for first, count in spans)

    def _kept(self, key: Key) -> bool:
        return alive(key[0], GROUP) == "high" or self._powered

    def _send(self, life: int, number: int, subject: str) -> None:
        bodies = [b"%d.%d.%d " % (life, number, index) * (8 * number + 1) for index in range(1 + number % 3)]
        self._sent |= dict.fromkeys(bodies, subject)
        identity = (life, number + 1, b"%08d%08d" % (life, number), self._host.now_ms)
        batch = build_batch(
            Origin(subject.encode(), *identity), Content(bodies, [KEYS[number % 3]] * len(bodies))
        )
        for _ in range(2):  # Sent again, as after a lost answer: it must be recognised.
            answer = self._host.ask(SendBatches(bytearray(batch)))
            assert isinstance(answer, Sent), answer
            assert not answer.refused, answer
            for index, body in enumerate(bodies):
                key = subject, answer.first_sequences[0] + index
                if self._kept(key) and self._answered.get(key, body) != body:
                    self._problems.append(f"reused: {key} held {self._answered[key]!r}")
                self._answered[key] = body

    def _pull(self, number: int) -> None:
        answer = self._host.ask(Pull(GROUP, CONSUMER, SUBJECTS, 4, 1 << 20, 0))
        assert isinstance(answer, Pulled), answer
        at = 0
        for grant in answer.grants:
            bodies: dict[int, bytes] = {}
            for _ in range(grant.batches):
                size = read_header(answer.batches, at).length
                batch = Batch(answer.batches[at : at + size])
                bodies |= dict(enumerate(batch.bodies(), batch.header.first_sequence))
                at += size
            for sequence in range(grant.first_sequence, grant.first_sequence + grant.count):
                self._take((grant.subject, sequence), bodies[sequence])
            pulls = range(grant.pull_sequence, grant.pull_sequence + grant.count)
            if not self._pulls.isdisjoint(pulls):
                self._problems.append(f"reused: pull {grant.pull_sequence}")
            self._pulls |= set(pulls)
            self._settle(number, grant.subject, [pulls[0], pulls[-1]], grant.first_sequence)

    def _take(self, key: Key, body: bytes) -> None:
        if self._sent.get(body) != alive(key[0], GROUP):
            self._problems.append(f"altered: {key} is {body!r}")
        if self._kept(key) and key in self._acked:
            self._problems.append(f"again: {key} after its ack was answered")
        if self._kept(key) and self._granted.get(key, body) != body:
            self._problems.append(f"reused: {key} was {self._granted[key]!r}, is {body!r}")
        self._granted[key] = body

    def _settle(self, number: int, subject: str, ranges: list[int], first: int) -> None:
        command: Command
        match number % 4:
            case 1:
                command = Nack(GROUP, CONSUMER, subject, ranges, 20, "not now")
            case 3:
                return  # Its lease ends.
            case _:
                command = Ack(GROUP, CONSUMER, subject, ranges)
        keys = {(subject, first + index) for index in range(ranges[1] - ranges[0] + 1)}
        if isinstance(command, Ack):
            self._given_up |= keys
        answer = self._host.ask(command)
        assert isinstance(answer, Done), answer
        if isinstance(command, Ack) and not answer.lost:
            self._acked |= keys
            self._acked_now |= keys
            again = self._host.ask(command)  # As after a lost answer: there is nothing left of it to ack.
            assert again == Done(ranges), again


def is_to_come(broker: Broker, letter: Letter) -> bool:
    """Whether the message of a dead letter will be given out as well."""
    group = broker.state.group_of(letter.subject, GROUP)
    if group is None or letter.source >= group.cursor:
        return group is not None
    return any(
        failure.first <= letter.source < failure.first + failure.messages
        for first, failure in group.failed.items()
        if first not in group.doomed
    )


if __name__ == "__main__":
    raise SystemExit(first_problem(Sending, STORM, draws=2) or None)

"""An experiment for crash points: messages that are rejected one at a time, so that each copy stands alone.

A copy is in the message log and what it was made for in the other one: the power may keep the first and take all of
the second. Then the message is given out again, and a copy that waits beside it would be a second life.
"""

from __future__ import annotations

from sim.autopsy import NOW_MS, read_batches, recovered_twice
from sim.crashpoints import first_problem
from sim.disk import Mount
from sim.graveyard import letters_in, waits
from sim.sending import LIFE_MS, STORM, TINY, is_to_come
from sim.straight import Straight
from tidemill_broker.partitions import SubjectSettings
from tidemill_wire.batch import Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Ack, Done, Nack, Pull, Pulled, SendBatches, Sent

SUBJECT, GROUP, CONSUMER = "normal", "group", "consumer"
ROUNDS = 4
SYNCED_MS = TINY.sync_interval_ms + 1


class Burying:
    """See the module."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._acked_now: set[int] = set()
        """Sequences, in the last life, which no power cut follows."""

    def live(self, life: int, disk: Mount) -> None:
        self._acked_now = set()
        host = Straight(disk, TINY, NOW_MS + LIFE_MS * life)
        host.broker.intake.declare(SUBJECT, SubjectSettings("normal", 1 << 30, 0, 1 << 20), host.now_ms)
        host.turn()
        for number in range(ROUNDS):
            body = b"%d.%d" % (life, number)
            identity = (life, number + 1, b"%08d%08d" % (life, number), host.now_ms)
            batch = build_batch(Origin(SUBJECT.encode(), *identity), Content([body]))
            assert isinstance(host.ask(SendBatches(bytearray(batch))), Sent)
            host.pass_time(SYNCED_MS)
            self._handle(host, body)

    def _handle(self, host: Straight, fresh: bytes) -> None:
        """Reject what is new, and ack what came again."""
        answer = host.ask(Pull(GROUP, CONSUMER, [SUBJECT], 8, 1 << 20, 0))
        assert isinstance(answer, Pulled), answer
        host.pass_time(SYNCED_MS)
        for grant in answer.grants:
            last = grant.first_sequence + grant.count - 1
            for sequence, pull in enumerate(
                range(grant.pull_sequence, grant.pull_sequence + grant.count), grant.first_sequence
            ):
                if sequence == last and grant is answer.grants[-1] and fresh in bytes(answer.batches):
                    host.ask(Nack(GROUP, CONSUMER, SUBJECT, [pull, pull], 0, "never", reject=True))
                elif host.ask(Ack(GROUP, CONSUMER, SUBJECT, [pull, pull])) == Done([]):
                    self._acked_now.add(sequence)

    def check(self, disk: Mount) -> list[str]:
        """What the last life has left."""
        broker = recovered_twice(disk, TINY, self._problems)
        letters = [letter for batch in read_batches(disk, broker) for letter in letters_in(batch)]
        waiting = [letter for letter in letters if waits(letter, broker.state)]
        bodies = [letter.body for letter in waiting]
        for letter in waiting:
            if bodies.count(letter.body) > 1 or letter.source in self._acked_now:
                self._problems.append(f"wrongly buried: {letter}, which was handled, or buried again")
            if is_to_come(broker, letter):
                self._problems.append(f"wrongly buried: {letter}, which is to be given out")
        return self._problems


if __name__ == "__main__":
    raise SystemExit(first_problem(Burying, STORM, draws=3) or None)

"""An experiment for crash points: transactions of two batches, committed, rolled back or left, among ordinary messages.

A commit is copies in one log and an action in the other, and the power may take any end of each. What was answered is
so; what was said and not answered is done as a whole, or not at all; and what is not decided is pending still.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from samples.halves import commit, half_of, rollback
from sim.autopsy import NOW_MS, read_log, recovered_twice
from sim.crashpoints import first_problem
from sim.disk import Mount
from sim.sending import LIFE_MS, STORM, TINY
from sim.straight import Straight
from tidemill_broker.partitions import SubjectSettings
from tidemill_wire.batch import SINGLES_FROM, Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Done, SendBatches, Sent

SETTINGS = replace(TINY, transaction_check_after_ms=3_600_000)
SUBJECTS = ("normal", "low")
ROUNDS = 4


@dataclass(slots=True)
class Told:
    """One transaction, as its producer knows it."""

    bodies: tuple[bytes, ...]
    kept: int = 0
    """Half messages whose answer came."""
    said: str = ""
    answered: bool = False


class Halving:
    """See the module."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._told: dict[int, Told] = {}
        self._sends = 0

    def live(self, life: int, disk: Mount) -> None:
        host = Straight(disk, SETTINGS, NOW_MS + LIFE_MS * life)
        for name in SUBJECTS:
            host.broker.intake.declare(name, SubjectSettings(name, 1 << 30, 0, 1 << 20), host.now_ms)
        host.turn()
        for number, told in self._told.items():  # what was said and not answered is said again
            if told.said and not told.answered:
                self._decide(host, number, told, told.said)
        for round_number in range(ROUNDS):
            self._trade(host, life, round_number)

    def _trade(self, host: Straight, life: int, round_number: int) -> None:
        number = SINGLES_FROM + (life << 16) + round_number
        bodies = tuple(b"%d.%d.%d" % (life, round_number, index) for index in range(2))
        told = self._told[number] = Told(bodies)
        for index, body in enumerate(bodies):
            half = half_of(body, transaction=number, index=index, subject=SUBJECTS[index])
            if not isinstance(host.ask(half), Done):
                return
            told.kept += 1
            self._send(host)
        end = ("commit", "rollback", "commit", "")[round_number]
        if end:
            self._decide(host, number, told, end)
        self._send(host)
        if round_number % 2:
            host.pass_time(SETTINGS.sync_interval_ms + 1)

    def _decide(self, host: Straight, number: int, told: Told, end: str) -> None:
        told.said = end
        answer = host.ask(commit(number) if end == "commit" else rollback(number))
        if not isinstance(answer, Done):
            self._problems.append(f"{end} of {told.bodies} was answered with {answer}")
        told.answered = True

    def _send(self, host: Straight) -> None:
        """Something else, which comes between and behind."""
        self._sends += 1
        body = b"other %d" % self._sends
        identity = (7, self._sends, b"%016d" % self._sends, host.now_ms)
        batch = build_batch(Origin(b"low", *identity), Content([body]))
        assert isinstance(host.ask(SendBatches(bytearray(batch))), Sent)

    def check(self, disk: Mount) -> list[str]:
        """What the last life has left, when a start has finished what was half done."""
        recovered_twice(disk, SETTINGS, self._problems)
        host = Straight(disk, SETTINGS, NOW_MS + LIFE_MS * 100)
        host.pass_time(1)
        host.turn()
        stored = Counter(body for _, _, body in read_log(disk, host.broker))
        transactions = host.broker.state.transactions
        for number, told in self._told.items():
            there = [stored[body] for body in told.bodies]
            if there not in ([0, 0], [1, 1]):
                self._problems.append(f"in part, or twice: {told} lies there {there} times")
            if told.answered and told.said == "commit" and there != [1, 1]:
                self._problems.append(f"commit lost: {told} lies there {there} times")
            if told.said != "commit" and there != [0, 0]:
                self._problems.append(f"not committed: {told} lies there {there} times")
            decided = number in transactions.decided
            if told.kept == len(told.bodies) and not decided and number not in transactions.pending:
                self._problems.append(f"forgotten: {told}")
            if there == [1, 1] and not decided:
                self._problems.append(f"not noted: {told}")
        return self._problems


if __name__ == "__main__":
    raise SystemExit(first_problem(Halving, STORM, draws=3) or None)

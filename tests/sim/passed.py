"""An experiment with a producer that has as many frames on its way as it may, of which a broker refuses some and takes
others; then the connection ends, before it has heard of any, and it says all of them again in their order.

Whatever is answered as stored then is in the log, once, and was not stored again when it was there. All there is to
try: which of the frames are refused the first time, which the second, and whether the broker dies in between.
"""

from __future__ import annotations

import random
from itertools import product

from sim.autopsy import NOW_MS, read_batches
from sim.disk import SimDisk
from sim.sending import LIFE_MS, TINY
from sim.straight import Straight
from tidemill_broker.gate import Told
from tidemill_broker.partitions import SubjectSettings
from tidemill_wire.batch import Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import SendBatches, Sent
from tidemill_wire.limits import PRODUCER_BATCHES_REMEMBERED

SUBJECT = "high"
PRODUCER = 7
BEFORE = (0, 2, PRODUCER_BATCHES_REMEMBERED)
"""Batches that were stored and answered before."""


class Passed:
    """One way."""

    def __init__(self, before: int) -> None:
        self._before = before
        self._disk = SimDisk(random.Random(0))
        self._lives = 0
        self._host = self._begin()
        self.said: dict[int, int] = {}
        """Batch -> first sequence, as it was answered."""
        for number in range(1, before + 1):
            self._send(number, is_taken=True)

    def run(self, first: tuple[bool, ...], second: tuple[bool, ...], *, dies: bool) -> str:
        """What is wrong, if anything is."""
        numbers = range(self._before + 1, self._before + 1 + len(first))
        for number, is_taken in zip(numbers, first, strict=True):
            self._send(number, is_taken=is_taken)
        self.said = {
            number: at for number, at in self.said.items() if number <= self._before
        }  # nobody heard it
        if dies:
            self._host = self._begin()
        for number, is_taken in zip(numbers, second, strict=True):
            self._send(number, is_taken=is_taken)
        return self._problem()

    def _begin(self) -> Straight:
        self._lives += 1
        host = Straight(self._disk.mount(), TINY, NOW_MS + LIFE_MS * self._lives)
        host.broker.intake.declare(SUBJECT, SubjectSettings("high", 1 << 30, 0, 1 << 20), host.now_ms)
        host.turn()
        return host

    def _send(self, number: int, *, is_taken: bool) -> None:
        self._host.broker.intake.gate.obey(Told(state="RW" if is_taken else "R"))
        identity = (PRODUCER, number, b"%016d" % number, NOW_MS)
        batch = build_batch(Origin(SUBJECT.encode(), *identity), Content([b"%d" % number]))
        answer = self._host.ask(SendBatches(bytearray(batch)))
        assert isinstance(answer, Sent), answer
        if not answer.refused:
            self.said[number] = answer.first_sequences[0]

    def _problem(self) -> str:
        there: dict[int, list[int]] = {}
        for batch in read_batches(self._disk.mount(), self._host.broker):
            there.setdefault(batch.header.producer_sequence, []).append(batch.header.first_sequence)
        for number, places in there.items():
            if len(places) > 1:
                return f"stored twice: batch {number} at {places}"
        for number, sequence in self.said.items():
            if there.get(number) != [sequence]:
                return f"answered and not stored: batch {number} at {sequence}, which lies at {there.get(number)}"
        return ""


def first_problem() -> str:
    """Of all ways, the first that goes wrong; empty when none does."""
    masks = list(product((True, False), repeat=PRODUCER_BATCHES_REMEMBERED))
    everything, nothing = masks[0], masks[-1]
    for before, first, dies in product(BEFORE, masks, (False, True)):
        for second in (everything, nothing, first, tuple(not one for one in first)):
            problem = Passed(before).run(first, second, dies=dies)
            if problem:
                return (
                    f"Cut(behind {before}: taken {first}, then {second}, a death between: {dies}): {problem}"
                )
    return ""


if __name__ == "__main__":
    raise SystemExit(first_problem() or None)

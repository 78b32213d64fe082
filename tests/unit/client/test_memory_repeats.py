"""What the broker in memory takes for a repetition is what a broker takes for one."""

from __future__ import annotations

import random

from tidemill.memory import MemoryBroker
from tidemill_ledger.producers import Remembering
from tidemill_wire.batch import Flags, Origin
from tidemill_wire.columns import Content, build_batch


def test_a_number_that_later_ones_have_passed_is_taken_as_brokers_take_it() -> None:
    """It was refused, or is not stored for another reason, and its producer says it again with its number."""
    chance = random.Random(7)
    for _ in range(30):
        memory, broker, end = MemoryBroker(), Remembering(), 0
        for number in chance.choices(range(1, 13), k=40):
            flags = chance.choice((Flags(0), Flags.ORDERED))
            first = broker.repeated(7, number, flags)
            origin = Origin(b"a", 7, number, b"%016d" % number, 0, flags=flags)
            keys: list[str | None] | None = ["k"] if flags else None
            answer = memory.store(build_batch(origin, Content([b"x"], order_keys=keys)))
            assert answer.first_sequences[0] == (end if first is None else first)
            if first is None:
                broker.remember(7, number, end)
                end += 1

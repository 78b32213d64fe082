"""An experiment: a master answers after it wished a slave in, and loses its power before meta has granted that.

Two real brokers; who decides has stored a set of the master alone. At each moment from the wish on the master's power
fails with all syncs held back or done, and it is appointed again, for nobody else is in the set. What was answered must
be there then.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from samples.replicas import Group

MASTER, SLAVE = "a", "b"
SENDS = 3


def problem(sends: int, synced: Sequence[int]) -> str:
    """So many sends after the wish, and behind which of them the disk has all."""
    group = Group(MASTER, SLAVE)
    group.appoint(1, MASTER, [MASTER])
    group.run()
    group.tick(1000)
    master = group[MASTER]
    assert master.stand(asks=True).wish == (MASTER, SLAVE)
    master.holds_syncs = True
    asked: list[int] = []
    for number in range(1, sends + 1):
        asked.append(master.send(b"tide", number=number))
        group.run()
        if number in synced:
            master.sync()
            master.pump()
    answered = sum(master.sent_at(number) is not None for number in asked)
    group.restart(MASTER, power=True)
    group.appoint(2, MASTER, [MASTER], to=MASTER)
    partition = next(iter(group[MASTER].broker.state.by_name.values()), None)
    kept = partition.next_sequence if partition is not None else 0
    return f"{answered} were answered, {kept} are there" if kept < answered else ""


def first_problem() -> str:
    """Of all courses, the first that loses something; empty when none does."""
    for sends, synced in product(range(1, SENDS + 1), [(), (1,), (2,), (1, 2)]):
        found = problem(sends, synced)
        if found:
            return f"Cut({sends} sends, synced after {synced}): {found}"
    return ""


if __name__ == "__main__":
    raise SystemExit(first_problem() or None)

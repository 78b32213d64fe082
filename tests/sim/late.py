"""An experiment with a group whose message log has lost its beginning: what was remembered of the producers of what is
gone, every replica goes on to remember, wherever its life ends.

A slave begins with nothing, and dies after each of the frames that its master sends it; then it begins again. A master
dies after each of the moments at which it looks for what is to go, and begins again on what it has on its disk.
"""

from __future__ import annotations

from samples.replicas import Group, Replica
from tidemill_broker.snapshots import pack_partition

MASTER, SLAVE = "a", "b"
GONE, KEPT = 30, 10
"""Messages that retention takes, and that it leaves."""
LOOKS = 8


def group_of(messages: int) -> Group:
    """A master with so many messages, and a slave that nobody reaches yet."""
    group = Group(
        MASTER,
        SLAVE,
        segment_bytes=1024,
        retention_seconds=60,
        checkpoint_interval_ms=10**9,
        checkpoint_pause_ms=25_000,
    )
    group.cut.add(SLAVE)
    group.appoint(1, MASTER, [MASTER])
    send(group, 0, messages)
    return group


def send(group: Group, first: int, count: int) -> None:
    for number in range(first, first + count):
        group[MASTER].send(b"tide", number=number, producer=number // 10 + 1)


def memory_of(replica: Replica) -> list[bytes]:
    """What it knows of its partitions: who sent what, and which sequences are used."""
    return [pack_partition(partition) for partition in replica.broker.state.partitions.values()]


def slave_that_dies(after: int) -> tuple[str, bool]:
    """What it breaks that a slave dies after so many frames of its copy, and whether there are so many."""
    group = group_of(GONE)
    for _ in range(LOOKS):
        group[MASTER].tick(20_000)
    send(group, GONE, KEPT)
    assert group[MASTER].broker.logs.messages.start > 0
    assert group[MASTER].broker.logs.actions.start == 0
    seen = group.break_off(after)
    group.cut.clear()
    group.run()
    group.passes = lambda _target, _command: True
    group.restart(SLAVE)
    group.appoint(1, MASTER, [MASTER], version=1)
    group[MASTER].send(b"last", number=100)
    group.run()
    if memory_of(group[SLAVE]) != memory_of(group[MASTER]):
        return "a slave that began late remembers other producers than its master", True
    if group[SLAVE].log("message") != group[MASTER].log("message"):
        return "the slave's message log is not that of its master", True
    return "", len(seen) > after


def master_that_dies(looks: int) -> str:
    """What it breaks that a master dies after so many looks."""
    group = group_of(GONE)
    for _ in range(looks):
        group[MASTER].tick(20_000)
    before = memory_of(group[MASTER])
    group.restart(MASTER)
    group.appoint(2, MASTER, [MASTER])
    return "" if memory_of(group[MASTER]) == before else "a start forgot the producers of what is gone"


def first_problem() -> str:
    """Of all places, the first that breaks a promise; empty when none does."""
    for looks in range(LOOKS):
        problem = master_that_dies(looks)
        if problem:
            return f"Cut(the master after {looks} looks): {problem}"
    after, more = 0, True
    while more:
        problem, more = slave_that_dies(after)
        if problem:
            return f"Cut(the slave after {after} frames): {problem}"
        after += 1
    assert after > 3, "it did not die in the middle of its message log"
    return ""


if __name__ == "__main__":
    raise SystemExit(first_problem() or None)

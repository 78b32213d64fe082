"""Which consumer of a group in order has which partition: even, and nobody moves without need; or one has them all.

A partition that moves has a *former* consumer until it is sure that this one handles none of its messages any more:
it said that it let go, or the time for which it was authorised is over. Only then the new one is granted it. So no
two consumers are ever authorised for one partition; the broker's lock makes the hand-over exact besides.

| partition | event | becomes |
|---|---|---|
| granted to A | A joins, leaves or dies, and it is B's now | owned by B, with former A |
| owned by B, with former A | A says that it applied this version, or left | granted to B |
| the same | A left, or its authorisation is over, and every replica knows that it is B's | granted to B |
| any | the store had gone back (``anew.py``) | owned as it is stored, with a former that is not known |

An exclusive consumer makes it *alone*: all partitions are one consumer's, who stays it while it is there, and is
granted none of them before every former of any is gone. Else two would be at work, each in another broker group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tidemill_meta.values import NOBODY, Allocation, Former


def shared_out(
    partitions: Sequence[str], consumers: Collection[str], owners: Mapping[str, str]
) -> dict[str, str]:
    """Owners of all partitions: even within one, and as few as possible are moved."""
    if not consumers:
        return {}
    held: dict[str, list[str]] = {name: [] for name in sorted(consumers)}
    for partition in partitions:
        if owners.get(partition) in held:
            held[owners[partition]].append(partition)
    base, extra = divmod(len(partitions), len(held))
    richest = sorted(held, key=lambda name: (-len(held[name]), name))
    quota = {name: base + (place < extra) for place, name in enumerate(richest)}
    shared = {partition: name for name in held for partition in held[name][: quota[name]]}
    waiting = [partition for partition in partitions if partition not in shared]
    for name in sorted(held):
        for _ in range(quota[name] - min(len(held[name]), quota[name])):
            shared[waiting.pop(0)] = name
    assert not waiting
    return shared


def given_to_one(
    partitions: Sequence[str], consumers: Collection[str], owners: Mapping[str, str]
) -> dict[str, str]:
    """One owner of all partitions: who has most of them, so that nobody who has all is moved; of equals the first by
    name, so that consumers of several subjects that come together are the same one for all of them.
    """
    if not consumers:
        return {}
    held = Counter(owners.values())
    one = min(consumers, key=lambda name: (-held[name], name))
    return dict.fromkeys(partitions, one)


def rebalanced(
    allocation: Allocation, partitions: Sequence[str], consumers: Collection[str], *, alone: bool = False
) -> Allocation:
    """The allocation among those consumers. What a partition was taken from is its former, whoever it is: a replica
    of meta that has not heard of it may authorise that one yet.
    """
    owners = dict(allocation.owners)
    shared = (given_to_one if alone else shared_out)(partitions, consumers, owners)
    if shared == owners and alone == allocation.alone:
        return allocation
    since = allocation.version + 1
    moved = [
        Former(partition, owner, since)
        for partition, owner in owners.items()
        if shared.get(partition) != owner
    ]
    ordered = tuple((partition, shared[partition]) for partition in partitions if partition in shared)
    return replace(allocation, owners=ordered, formers=_merged([*allocation.formers, *moved]), alone=alone)


def released(allocation: Allocation, applied: Mapping[str, int], over: Collection[Former]) -> Allocation:
    """Without the formers that have applied the version that took the partition, and without those that are over."""
    formers = tuple(
        one for one in allocation.formers if applied.get(one.consumer, 0) < one.since and one not in over
    )
    return allocation if formers == allocation.formers else replace(allocation, formers=formers)


def doubted(allocation: Allocation, partitions: Iterable[str], since: int) -> Allocation:
    """Somebody who is not known may handle messages of these."""
    nobody = [Former(partition, NOBODY, since) for partition in partitions]
    return replace(allocation, formers=_merged([*allocation.formers, *nobody]))


def granted(allocation: Allocation, consumer: str) -> tuple[str, ...]:
    """The partitions whose messages a consumer may handle."""
    awaited = {one.partition for one in allocation.formers if one.consumer != consumer}
    if allocation.alone and awaited:
        return ()
    return tuple(
        partition for partition, owner in allocation.owners if owner == consumer and partition not in awaited
    )


def _merged(formers: Iterable[Former]) -> tuple[Former, ...]:
    """One for each partition and consumer: the latest."""
    latest: dict[tuple[str, str], Former] = {}
    for one in formers:
        latest[one.partition, one.consumer] = one
    return tuple(latest.values())

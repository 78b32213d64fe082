"""Order keys that go from one partition to another: in two steps, so that nobody sees a key out of its order. Pure.

    settled  --prepared-->  moving   the partitions that lose order keys are told to take none of these any more, by a
                                     fence with a number; the route is as before, and sends of them wait
    moving   --one of them has closed-->   moving
    moving   --the last one has closed-->  settled, and the next version of the route is in force: sends go on
    moving   --a person gives it up-->     settled, and those partitions are told by another fence to take them again

Who takes order keys over is always a partition that has never been: its *heir* to one that loses them. So an heir holds
nothing older than the fence, and whether a group may begin with it is one question: has it settled, in each partition
that the heir has keys of, all that lay before the fence? (``shut``.) An heir of an heir waits for both.

Invariants: a fence has a number of its own, which grows also when the subject is removed and made again; the route that
is in force changes only when nobody takes messages by the former one; a partition never gains order keys.

What a crash leaves: a move is stored with the route, so any replica of meta goes on with it. A broker is told again
until it has said that it closed; it says so when no failover can take that back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidemill_meta.errors import Denied
from tidemill_meta.values import Move, Route, Succession
from tidemill_wire.ordering import moved
from tidemill_wire.routes import Partition, PartitionSet


def check_settled(route: Route) -> None:
    """One move at a time."""
    if route.move is not None:
        raise Denied(
            "conflict", f"order keys of {route.subject} are moving: wait until they have moved, or give it up",
            {"version": route.version},
        )  # fmt: skip


def prepared(route: Route, to: PartitionSet, fence: int) -> Route:
    """The first step to the next version."""
    check_settled(route)
    assert fence > route.fence
    used = {one.key for former in route.sets for one in former.partitions}
    assert not any(heir in used for heir in moved(route.current, to)), (
        "a partition that was there gains order keys"
    )
    fenced = dict(route.fences) | dict.fromkeys(losers(route.current, to), fence)
    return replace(route, move=Move(to), fence=fence, fences=tuple(fenced.items()))


def closed(route: Route, partition: str, fence: int) -> Route:
    """A partition knows its ranges by that fence; when it was the last one, the move is made."""
    if (
        fence > route.fence
    ):  # what meta stored was lost, or the subject was another one: brokers know later numbers
        number = fence + 1
        again = dict.fromkeys((*dict(route.fences), partition), number)
        heirs = tuple(replace(one, fence=min(one.fence, number)) for one in route.successions)
        return replace(route, fence=number, fences=tuple(again.items()), successions=heirs)
    move = route.move
    if move is None or dict(route.fences).get(partition) != fence or partition in move.closed:
        return route
    awaited = losers(route.current, move.to)
    if partition not in awaited:
        return route
    done = replace(move, closed=(*move.closed, partition))
    return replace(route, move=done) if set(awaited) - set(done.closed) else _made(route, move.to)


def _made(route: Route, to: PartitionSet) -> Route:
    numbers = dict(route.fences)
    heirs = [
        Succession(heir, former, numbers[former])
        for heir, formers in moved(route.current, to).items()
        for former in formers
    ]
    return replace(route, sets=(*route.sets, to), move=None, successions=(*route.successions, *heirs))


def given_up(route: Route, fence: int) -> Route:
    """Everything stays where it is, and who has closed takes its order keys again."""
    if route.move is None:
        raise Denied("conflict", f"no order keys of {route.subject} are moving", {"version": route.version})
    again = dict(route.fences) | dict.fromkeys(losers(route.current, route.move.to), fence)
    return replace(route, move=None, fence=fence, fences=tuple(again.items()))


def fences_of(route: Route, group: str) -> Iterator[list[object]]:
    """What a broker group is to be told: partition, number, and the edges of the ranges that it takes."""
    target = {one.key: one for one in route.current.partitions}
    if route.move is not None:
        target |= {one.key: one for one in route.move.to.partitions}
    for key, number in route.fences:
        place, _, name = key.partition("/")
        if place == group:
            partition = target.get(key, Partition(place, name, ()))  # it is in no route any more
            yield [name, number, [edge for pair in partition.ranges for edge in pair]]


def shut(route: Route, passed: Mapping[str, int]) -> frozenset[str]:
    """The heirs that a group which has passed these fences may not handle yet. What is in no route any more is waited
    for no more: whoever took it out saw that all was consumed.

    A former partition stands in front of its heirs: it was one itself in an earlier move, if ever. So one look at each
    is enough, and this is asked with every heartbeat of a consumer.
    """
    there = {one.key for one in route.current.partitions}
    found: set[str] = set()
    for one in route.successions:
        if one.former in there and (one.former in found or passed.get(one.former, 0) < one.fence):
            found.add(one.heir)
    return frozenset(found)


def losers(current: PartitionSet, to: PartitionSet) -> list[str]:
    """The partitions that have order keys now which they have no more then."""
    return list(dict.fromkeys(former for formers in moved(current, to).values() for former in formers))

"""Where subjects lie: the default route, its expansions, and what may be done there now.

A route is made once, of broker groups that are available then, and never changes by itself: no restart, no failure and
no new broker group moves a message. A person expands it, which makes its next version: every logical partition that
does not have to move stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import attrgetter

from tidemill_meta.errors import Denied
from tidemill_wire.counted import counted
from tidemill_wire.routes import LOGICAL_PARTITIONS, Partition, PartitionSet, Ranges
from tidemill_wire.specs import Placement

LOAD_STEPS = 10
"""Loads are compared in tenths: a heartbeat's noise does not decide, the number of partitions does."""
PARTITIONS_MAX = 256
"""Of one subject: a consumer of an ordered group has one at least, and 1,024 logical ones are shared out."""


@dataclass(frozen=True, slots=True)
class Site:
    """A broker group as a place for subjects. ``open``: it takes new ones now."""

    name: str
    labels: frozenset[tuple[str, str]]
    load: float
    partitions: int
    open: bool
    rank: tuple[int, int, str] = field(init=False)
    """Smaller is better; worked out once, for it is looked at for every subject that is placed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", (int(self.load * LOAD_STEPS), self.partitions, self.name))


def default_route(
    subject: str, sites: Iterable[Site], placement: Placement | None, count: int
) -> PartitionSet:
    """The first version: one partition on each of ``count`` broker groups, or as the placement says."""
    sites = list(sites)
    if placement is not None and placement.broker_groups:
        chosen = [_named(name, sites) for name in placement.broker_groups]
    else:
        allowed = _allowed(sites, placement)
        least = placement.min_broker_groups if placement is not None else None
        chosen = nsmallest(least or count, allowed, key=attrgetter("rank"))
        if not chosen:
            raise Denied(
                "no_broker_group", f"no broker group takes new subjects now, {subject} cannot be placed"
            )
        if least is not None and len(chosen) < least:
            there = "there is 1" if len(chosen) == 1 else f"there are {len(chosen)}"
            raise Denied(
                "placement", f"{subject} wants {counted(least, 'broker group')} that fit, and {there}"
            )
    return PartitionSet(1, tuple(_shared_out([Partition(site.name, subject, ()) for site in chosen])))


def expanded(
    subject: str,
    current: PartitionSet,
    sites: Iterable[Site],
    placement: Placement | None,
    more: int | Sequence[str],
    former: Iterable[PartitionSet] = (),
) -> PartitionSet:
    """The next version: so many partitions more, or one on each of the named broker groups. No partition of a former
    version comes back: a new one has a name that was never used. One that gave all its order keys away gets none.
    """
    sites = list(sites)
    if isinstance(more, int):
        added = _emptiest(current, _allowed(sites, placement), more)
    else:
        added = [_named(name, sites) for name in more]
    if not added:
        raise Denied("no_broker_group", f"no broker group takes new partitions now, {subject} stays as it is")
    if len(current.partitions) + len(added) > PARTITIONS_MAX:
        raise Denied("placement", f"{subject} would have more than {PARTITIONS_MAX} partitions")
    partitions, used = list(current.partitions), _used(current, former)
    for site in added:
        partitions.append(_new(subject, site, used))
        used.append(partitions[-1])
    added_ones = partitions[len(current.partitions) :]
    shared = iter(_shared_out([one for one in partitions if one.ranges or one in added_ones]))
    return PartitionSet(
        current.version + 1,
        tuple(next(shared) if one.ranges or one in added_ones else one for one in partitions),
    )


def vacated(
    subject: str,
    current: PartitionSet,
    sites: Iterable[Site],
    placement: Placement | None,
    group: str,
    former: Iterable[PartitionSet] = (),
) -> PartitionSet:
    """The next version: order keys that lie on a broker group go to new partitions elsewhere, those of each partition
    to one. What lay on the group is still consumed from it.
    """
    leaving = [one for one in current.partitions if one.group == group and one.ranges]
    elsewhere = _emptiest(current, _allowed(sites, placement), len(leaving))
    if len(elsewhere) < len(leaving):
        raise Denied("no_broker_group", f"no other broker group takes {subject} now")
    partitions, used = list(current.partitions), _used(current, former)
    for one, site in zip(leaving, elsewhere, strict=True):
        heir = _new(subject, site, used)
        used.append(heir)
        partitions[partitions.index(one)] = Partition(one.group, one.name, ())
        partitions.append(Partition(heir.group, heir.name, one.ranges))
    return PartitionSet(current.version + 1, tuple(partitions))


def withdrawn(
    subject: str, current: PartitionSet, sites: Iterable[Site], placement: Placement | None, group: str
) -> PartitionSet:
    """The next version: without the partitions of a broker group, and on another one when there are no others."""
    partitions = [one for one in current.partitions if one.group != group]
    if not partitions:
        taken = [Partition(site.name, _next_name(subject, current.partitions), ()) for site in _emptiest(
            current, _allowed(sites, placement), 1)]  # fmt: skip
        if not taken:
            raise Denied("no_broker_group", f"no other broker group takes {subject} now")
        partitions = taken
    return PartitionSet(current.version + 1, tuple(_shared_out(partitions)))


def without(current: PartitionSet, group: str) -> PartitionSet:
    """The next version: without the partitions of a broker group, none of which has order keys any more."""
    kept = tuple(one for one in current.partitions if one.group != group)
    assert not any(one.ranges for one in current.partitions if one.group == group)
    return PartitionSet(current.version + 1, kept)


def _used(current: PartitionSet, former: Iterable[PartitionSet]) -> list[Partition]:
    return [*current.partitions, *(one for version in former for one in version.partitions)]


def _new(subject: str, site: Site, used: Iterable[Partition]) -> Partition:
    """A partition that has never been, of the subject's own name where it can."""
    used = list(used)
    taken = any(one.group == site.name and one.name == subject for one in used)
    return Partition(site.name, _next_name(subject, used) if taken else subject, ())


def _emptiest(current: PartitionSet, allowed: list[Site], more: int) -> list[Site]:
    """Where partitions go, one after the other: where the subject has fewest, then by rank."""
    counts = {site.name: sum(one.group == site.name for one in current.partitions) for site in allowed}
    added: list[Site] = []
    for _ in range(more if allowed else 0):
        best = min(allowed, key=lambda site: (counts[site.name], site.rank))
        counts[best.name] += 1
        added.append(best)
    return added


def _next_name(subject: str, partitions: Iterable[Partition]) -> str:
    """``subject#3`` has never been used by the subject, on whatever broker group."""
    numbers = [int(one.name.rpartition("#")[2]) for one in partitions if one.name != subject]
    return f"{subject}#{max(numbers, default=0) + 1}"


def _allowed(sites: Iterable[Site], placement: Placement | None) -> list[Site]:
    selector = placement.broker_group_selector if placement is not None else None
    wanted = frozenset(selector.match_labels) if selector is not None else frozenset[tuple[str, str]]()
    return [site for site in sites if site.open and wanted <= site.labels]


def _named(name: str, sites: Iterable[Site]) -> Site:
    site = next((site for site in sites if site.name == name), None)
    if site is None:
        raise Denied("placement", f"there is no broker group {name}")
    if not site.open:
        raise Denied("no_broker_group", f"the broker group {name} takes no new partitions now")
    return site


def _shared_out(partitions: Sequence[Partition]) -> list[Partition]:
    """Equal parts of the logical partitions, within one; whoever has some keeps as many of them as it may."""
    base, extra = divmod(LOGICAL_PARTITIONS, len(partitions))
    richest = sorted(range(len(partitions)), key=lambda index: (-partitions[index].size, index))
    quota = {index: base + (place < extra) for place, index in enumerate(richest)}
    kept = [_cut(partition.ranges, quota[index]) for index, partition in enumerate(partitions)]
    free = _gaps(sorted(pair for ranges in kept for pair in ranges))
    shared: list[Partition] = []
    for index, partition in enumerate(partitions):
        ranges = list(kept[index])
        missing = quota[index] - sum(end - first for first, end in ranges)
        while missing:
            first, end = free.pop(0)
            taken = min(missing, end - first)
            ranges.append((first, first + taken))
            if first + taken < end:
                free.insert(0, (first + taken, end))
            missing -= taken
        shared.append(Partition(partition.group, partition.name, _joined(ranges)))
    assert not free
    return shared


def _cut(ranges: Ranges, size: int) -> list[tuple[int, int]]:
    """The first so many of some logical partitions."""
    kept: list[tuple[int, int]] = []
    for first, end in ranges:
        taken = min(size, end - first)
        if taken:
            kept.append((first, first + taken))
        size -= taken
    return kept


def _gaps(taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    edges = [0, *(edge for pair in taken for edge in pair), LOGICAL_PARTITIONS]
    return [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if first < end]


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if joined and joined[-1][1] == first:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((first, end))
    return tuple(joined)

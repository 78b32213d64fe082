"""Where messages with order keys go: by the versions of a subject's route, so that none is stored in two partitions.

What is for one partition is one batch. As long as no key of it moves, a broker knows it again whatever the newest
version is; when one has moved away, the broker refuses it, unless it has it. So what may have been sent in a former
life is asked for version by version, the oldest first, and what is refused by one version is asked for by the next.

    version 1       3 5 9 in A                  refused
    version 2       3 in A, 5 and 9 in B

For that, the batches of a version must be parts of those of the version before. They are made by all homes that a key
has had: what came into one partition from two stays two batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

from tidemill_wire.ordering import Chart
from tidemill_wire.routes import Partition, PartitionSet


class Part(NamedTuple):
    """Rows that are one batch."""

    partition: Partition
    version: int
    rows: list[int]


@dataclass(frozen=True)
class Ways:
    """A subject's route; ``version`` is an index in here."""

    sets: tuple[PartitionSet, ...]
    """All versions there were, the newest last."""
    listed: frozenset[str]
    """Broker groups that there are. One that is forgotten is asked for nothing."""

    @property
    def newest(self) -> int:
        return len(self.sets) - 1

    def parts(self, logical: Sequence[int | None], version: int) -> Iterator[Part]:
        """What goes where by a version, or by a later one when nobody is there any more who could be asked; of each
        message its logical partition. One without an order key goes with the first that has one.
        """
        first = next(one for one in logical if one is not None)
        found: dict[tuple[int, ...], list[int]] = {}
        for row, one in enumerate(logical):
            place = first if one is None else one
            found.setdefault(tuple(chart.place(place) for chart in self._charts[: version + 1]), []).append(
                row
            )
        for homes, rows in found.items():
            partition = self.sets[version].partitions[homes[-1]]
            if version == self.newest or partition.group in self.listed:
                yield Part(partition, version, rows)
                continue
            for part in self.parts([logical[row] for row in rows], version + 1):
                yield part._replace(rows=[rows[row] for row in part.rows])

    def takers(self, subject: str) -> list[str]:
        """Who takes what has no order key by the newest version, and is there."""
        return [
            one.group for one in self.sets[-1].partitions if one.name == subject and one.group in self.listed
        ]

    @cached_property
    def _charts(self) -> list[Chart]:
        return [Chart(one) for one in self.sets]


def home_of(batch_id: bytes, groups: Sequence[str]) -> str:
    """The broker group of what has no order keys. It follows from the batch alone: so another delay group that was sent
    the same one brings it to the same broker, and who comes or goes takes with it no more than its own share.
    """
    if len(groups) == 1:
        return groups[0]
    return max(groups, key=lambda group: blake2b(batch_id + group.encode(), digest_size=8).digest())

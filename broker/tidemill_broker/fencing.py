"""What meta says of order keys that move: fences are put up, and who has done with what lay before them is told.

The answer is as durable as can be. What it says was decided on the state at this moment, so it leaves behind every
batch and every ack that it speaks of, on all in-sync replicas: whoever is master next has the fence, and has the acks.

A partition that cannot be made is not fenced, as long as nobody can send to it either; the others are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from tidemill_broker.actions import FencePut
from tidemill_broker.desk import Desk
from tidemill_broker.group_settings import ORDERED
from tidemill_broker.intake import Intake
from tidemill_broker.partitions import Partition
from tidemill_wire.errors import WireError
from tidemill_wire.fencing import REFUSED_MAX, Fenced, FenceRow, Passed
from tidemill_wire.limits import FENCES_MAX


class Fencing:
    """Puts fences up, and says what has become of them."""

    def __init__(self, desk: Desk, intake: Intake) -> None:
        self._desk = desk
        self._state = desk.state
        self._intake = intake

    def put(self, rows: Sequence[FenceRow], now_ms: int) -> Fenced:
        """Each fence once, however often it is said; one that a later one has followed changes nothing."""
        partitions: list[Partition] = []
        refused = ""
        for row in rows:
            try:
                partitions.append(self._put(row, now_ms))
            except WireError as error:
                refused = refused or f"partition {row.partition!r}: {error}"[:REFUSED_MAX]
        closed = [(one.name, self._state.fences.number(one)) for one in partitions]
        return Fenced(closed, list(islice(self._passed(partitions), FENCES_MAX)), refused)

    def _put(self, row: FenceRow, now_ms: int) -> Partition:
        partition = self._intake.found(row.partition, now_ms)
        if self._state.fences.number(partition) < row.number:
            lanes = self._state.lanes.get(partition.identity, {}).values()
            ends = [number for one in (partition, *lanes) for number in (one.identity, one.next_sequence)]
            edges = [edge for pair in row.ranges for edge in pair]
            self._desk.act(FencePut(partition.identity, row.number, edges, ends), now_ms)
        return partition

    def _passed(self, partitions: Sequence[Partition]) -> Iterator[Passed]:
        for partition in partitions:
            for name, identity in partition.groups.items():
                group = self._state.groups[identity]
                if group.settings.consumption == ORDERED:
                    number = self._state.fences.passed(self._state, partition, group)
                    if number:
                        yield Passed(partition.name, name, number)

"""Priorities in a simulated cluster: what is sent with which, and whether each group is given its lanes as promised.

Judged at the moment at which the broker decides, from what it has then, and by counting alone:

- who is given something while a higher lane waits has its share: of ``LANE_SHARE`` messages of others, one at most;
- who waits is not passed over for long: at most for twice a share and the largest answer.

What is owed is in the broker's memory, so the counts are those of one life.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from tidemill_broker.actions import Pulled
from tidemill_broker.groups import Group
from tidemill_broker.lanes import IDENTITY_BITS
from tidemill_broker.partitions import Partition
from tidemill_broker.state import State
from tidemill_wire.limits import LANE_SHARE, PRIORITY_MAX


def draw_priorities(seed: str) -> tuple[int, ...]:
    """Those that producers use, each as often as it is named; many worlds know none."""
    rng = random.Random(f"{seed}/priorities")
    if rng.random() < 0.5:
        return (0,)
    return rng.choice(
        ((0, 7), (0, 0, 0, 0, 3), (0, 7, 7, 7, 7, 7, 7, 7), (1, 2), tuple(range(PRIORITY_MAX + 1)))
    )


def draw_priority(priorities: tuple[int, ...], message: str) -> int:
    """That of one message; it takes nothing from other draws."""
    return random.Random(f"{message}/priority").choice(priorities)


@dataclass(slots=True)
class Tally:
    """What the lanes of one group were given in a life of the broker."""

    given: int = 0
    early: Counter[int] = field(default_factory=Counter)
    """Group in a lane -> messages that it was given while a higher one waited."""
    passed: Counter[int] = field(default_factory=Counter)
    """Group in a lane -> messages that others were given since it began to wait."""
    largest: int = 0


class LaneWatch:
    """One life of the broker."""

    def __init__(self, state: State, problems: list[str], probes: Counter[str]) -> None:
        self._state = state
        self._problems = problems
        self._probes = probes
        self._tallies: dict[int, Tally] = {}
        self.shown: Mapping[int, int] = {}
        """Partition -> end of what is shown now, all of it at once: nobody is to be served in between."""

    def grants(self, action: Pulled, now_ms: int, at_s: float) -> None:
        """The broker is about to apply a PULL."""
        group = self._state.consumers[action.consumer].group
        kin = self._state.kin.get(group.identity)
        if kin is None or group.settings.tags:
            return
        tally = self._tallies.setdefault(kin.head.identity, Tally())
        messages = sum(run.messages for run in action.runs)
        waiting = [one for one in kin.groups if self._waits(one, now_ms)]
        where = f"{group.name} of {self._state.partitions[group.partition].name} at {at_s:.6f} s"
        tally.given += messages
        tally.largest = max(tally.largest, messages)
        if group.paused is not None or any(one.start_ms for one in kin.groups):
            tally.passed.clear()  # probes, and lanes that have nothing young enough
            return
        if waiting and waiting[0].identity >> IDENTITY_BITS > group.identity >> IDENTITY_BITS:
            self._probes["lane_shares"] += 1
            tally.early[group.identity] += messages
            if tally.early[group.identity] * LANE_SHARE > tally.given:
                self._problems.append(
                    f"lanes: {where} was given {tally.early[group.identity]} early of {tally.given}"
                )
        for one in kin.groups:
            if one is group or one not in waiting:
                tally.passed[one.identity] = 0
                continue
            self._probes["lane_waits"] += 1
            tally.passed[one.identity] += messages
            if tally.passed[one.identity] > 2 * (LANE_SHARE + tally.largest) and one is not waiting[0]:
                self._problems.append(
                    f"starved: {self._state.partitions[one.partition].name} waited while {where} got "
                    f"{tally.passed[one.identity]}"
                )

    def _waits(self, group: Group, now_ms: int) -> bool:
        """Whether it can be given something: what a power cut took lies in no batch, and what is beyond that hole may
        not be shown yet.
        """
        if group.ordered and group.failed:
            first = group.first_due()
            return first is not None and first.due_ms <= now_ms
        partition = self._state.partitions[group.partition]
        visible = max(partition.visible, self.shown.get(partition.identity, 0))
        failure = group.next_failure()
        return first_stored(partition, group.reached) < visible or (
            failure is not None and failure.due_ms <= now_ms
        )


def first_stored(partition: Partition, sequence: int) -> float:
    """The first message from a sequence on that is there; of a run of which only the directory is in memory, the first
    that may be.
    """
    stored = partition.run_for(sequence)
    if stored is not None and stored.rows is None:
        return max(sequence, stored.run.first_sequence)
    rows = partition.recent if stored is None else stored.rows
    index = rows.find(sequence) if rows else 0
    return max(sequence, rows.firsts[index]) if rows and index < len(rows) else inf

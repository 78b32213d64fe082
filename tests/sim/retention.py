"""What retention drops in a simulated broker, and whether it was time: judged by the history, not by stamps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sim.checkers import History
from tidemill_broker.machine import Broker
from tidemill_broker.partitions import Partition, StoredRun
from tidemill_wire.lanes import lane_name, priority_of

if TYPE_CHECKING:
    from sim.world import Env

SLACK_S = 0.001  # the broker's time is in whole milliseconds


class Retention:
    """Watches each life of the broker. A drop is in time when the messages are old by the clock of the node, whose
    steps so far are known; and when no group has them in hand.
    """

    def __init__(self, history: History, problems: list[str]) -> None:
        self.floors: dict[str, int] = {}
        self.probes: Counter[str] = Counter()
        self._history = history
        self._problems = problems
        self._least_offset_s = float("inf")

    def watch(self, broker: Broker, env: Env) -> None:
        offset_s = env.clock.offset_ms / 1000
        self._least_offset_s = min(self._least_offset_s, offset_s)
        ahead_s = offset_s - self._least_offset_s
        keeping: Any = broker.keeping
        count = keeping._count_expired

        def judge(partition: Partition, stored: StoredRun) -> None:
            self.probes["retention_drops"] += 1
            self._judge(broker, partition, stored, env.loop.now + ahead_s)
            count(partition, stored)

        keeping._count_expired = judge

    def _judge(self, broker: Broker, partition: Partition, stored: StoredRun, now_s: float) -> None:
        run, name = stored.run, partition.name
        before = self.floors.get(name, 0)
        self.floors[name] = max(before, run.end_sequence)
        for identity in partition.groups.values():
            group = broker.state.groups[identity]
            held = [
                (delivery.first, delivery.count)
                for one in group.consumers.values()
                for delivery in one.held()
            ]
            held += [(failure.first, failure.messages) for failure in group.failed.values()]
            if any(first < run.end_sequence for first, _ in held):
                self._problems.append(
                    f"dropped: {name} up to {run.end_sequence}, of which {group.name} has some"
                )
        for send in self._history.sends.values():
            subject, _, sequence = send.place.rpartition("/")
            if not sequence or lane_name(subject, priority_of(int(sequence))) != name:
                continue
            if not before <= int(sequence) < run.end_sequence:
                continue
            age_s = now_s - send.invoked_s
            if age_s + SLACK_S < partition.settings.retention_seconds:
                self._problems.append(f"dropped: {send.message} at {send.place} was {age_s:.3f} s old")

"""The cluster with consumers that all have a spool, and a broker that is away while they close, die and come back.

Leases outlast the run, and a consumer that is away is waited for: so nothing that was acked may come again, be the ack
told or kept. What is kept reaches the broker in the end, by whatever process.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from sim.cluster import LONG_LEASE_MS, Cluster
from sim.faults import Kind
from sim.world import World

GONE_MS = 60_000
DRAIN_MAX_S = 400.0
"""What a process that was killed had taken and not acked comes again when its consumer counts as gone."""


class WithSpools(Cluster):
    """Faults that take nothing from a disk, which would excuse."""

    kinds = (
        *(Kind.KILL, Kind.KILL_AT_OPERATION, Kind.PARTITION, Kind.CLOG, Kind.RESET, Kind.RESET_AT_SEGMENT),
        *(Kind.CLIENT_KILL, Kind.PAUSE, Kind.SLOW_CPU),
    )
    probes = ("acks_spooled", "acks_told_by_another_client")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.phases = replace(self.phases, drain_max_s=DRAIN_MAX_S)
        self.settings = replace(
            self.settings,
            lease_ms=LONG_LEASE_MS,
            consumer_gone_ms=GONE_MS,
            retention_seconds=72 * 3600,
            free_space_min_percent=0,
        )
        self.policies, self.outages = {}, {}

    def has_spool(self, consumer: str) -> bool:
        del consumer
        return True

    def check(self, world: World) -> list[str]:
        return super().check(world) + self._again()

    def _again(self) -> list[str]:
        """Given out after the ack was in the spool."""
        asked_s: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        for one in self.history.deliveries:
            asked_s[one.group, one.place, one.message].append(one.asked_s)
        return [
            f"again: {ack.group} got {ack.message} by a pull of {at_s:.6f} s, though its ack was kept at {kept_s:.6f} s"
            for ack, kept_s in self.acks_kept
            for at_s in asked_s[ack.group, ack.place, ack.message]
            if at_s > kept_s
        ]


def make(seed: str) -> WithSpools:
    return WithSpools(seed)

"""Which planner looks after which kind: one row each. A new kind is a planner and a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidemill_operator import (
    archives,
    broker_groups,
    clusters,
    consumer_groups,
    draining,
    grants,
    observed,
    replays,
    subjects,
)
from tidemill_operator.desired.locks import SecretKey
from tidemill_operator.kinds import (
    ARCHIVE,
    BROKER_GROUP,
    CONSUMER_GROUP,
    GRANT,
    QUEUE_CLUSTER,
    REPLAY,
    SUBJECT,
)
from tidemill_operator.steps import Manifest, Plan, Seen

Decide: TypeAlias = Callable[[Seen, int], Plan]
Asks: TypeAlias = Callable[[Manifest, tuple[Manifest, ...]], tuple[str, ...]]
"""The paths at meta whose answers a planner wants to see, by its object and what is around it."""


@dataclass(frozen=True, slots=True)
class Planner:
    """A row."""

    decide: Decide
    asks: Asks
    declared: bool = False
    """Whether meta keeps what it is about: then a failure leaves in doubt whether meta's is as the spec says."""
    wants_lag: bool = False
    secrets: Callable[[Manifest], tuple[SecretKey, ...]] = lambda _: ()
    """Those whose tokens' digests it wants to see."""


PLANNERS: Mapping[str, Planner] = {
    QUEUE_CLUSTER.kind: Planner(clusters.plan, observed.asks),
    BROKER_GROUP.kind: Planner(broker_groups.plan, draining.asks),
    SUBJECT.kind: Planner(subjects.plan, subjects.asks, declared=True),
    CONSUMER_GROUP.kind: Planner(consumer_groups.plan, consumer_groups.asks, declared=True, wants_lag=True),
    ARCHIVE.kind: Planner(archives.plan, archives.asks),
    REPLAY.kind: Planner(replays.plan, replays.asks),
    GRANT.kind: Planner(grants.plan, grants.asks, declared=True, secrets=grants.secrets),
}
"""By kind: each of ours has one."""

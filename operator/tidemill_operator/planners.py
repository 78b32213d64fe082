"""Which planner looks after which kind: one row each. A new kind is a planner and a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidemill_operator import broker_groups, clusters, consumer_groups, marks, subjects
from tidemill_operator.kinds import BROKER_GROUP, CONSUMER_GROUP, QUEUE_CLUSTER, SUBJECT
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


def master_of(resource: Manifest, meta: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Of a broker group that goes: its master, the address of the master's HTTP port, and the path that says what is
    left there.
    """
    if resource["kind"] != BROKER_GROUP.kind or not marks.goes(resource):
        return None
    delays = marks.spec(resource).get("kind") == "Delay"
    listed: Sequence[Mapping[str, Any]] = meta.get("/v1/delays" if delays else "/v1/brokers") or ()
    name = marks.spec(resource).get("groupName", marks.metadata(resource)["name"])
    for group in listed:
        for broker in group["brokers"]:
            if group["group"] == name and broker["name"] == group["master"]:
                return broker["name"], broker["addresses"]["control"], "/metrics" if delays else "/v1/groups"
    return None


PLANNERS: Mapping[str, Planner] = {
    QUEUE_CLUSTER.kind: Planner(clusters.plan, clusters.asks),
    BROKER_GROUP.kind: Planner(broker_groups.plan, broker_groups.asks),
    SUBJECT.kind: Planner(subjects.plan, subjects.asks, declared=True),
    CONSUMER_GROUP.kind: Planner(consumer_groups.plan, consumer_groups.asks, declared=True, wants_lag=True),
}
"""By kind: each of ours has one."""

"""A broker group that goes, and a broker that goes: nothing that anybody has not consumed is taken away with them.

A BrokerGroup that was deleted, while its cluster stays:

| state | how it is seen | what is done |
|---|---|---|
| in use | meta does not say that it drains | meta is asked to drain it: clients send elsewhere, order keys move |
| draining | its master says that something is left, or says nothing | nothing; ``DrainBlocked`` says what is left |
| quiet | nothing is left, and something came in the last half minute | nothing: late senders are waited for |
| empty | nothing is left, and nothing came | meta is asked to drain it again, and to retire it: out of all routes |
| retired | meta says so | its StatefulSet is scaled to nothing |
| stopped | no pod is left | meta is asked to forget its brokers |
| forgotten | meta does not know it | the finalizer is taken away, and Kubernetes removes the rest |

*Left* is what ``tidemill_wire/leftovers.py`` says, and what its master says in the epoch that meta knows; who does not
answer is not empty. The second drain is for subjects that have come, or are in order, since the first: it moves what
the first did not need to, and ``retire`` is refused until that has moved.

What becomes of the volumes, ``storage.retention`` says, and it says Retain when nobody wrote anything.
With the annotation ``skip-drain-check`` nothing is waited for: what is left there is given up.

When the whole cluster goes there is nowhere to move anything to: then volumes that are retained are reason enough to
let go, and those that are to be deleted wait until nothing is left on them. When the namespace goes, or the cluster is
gone, nobody is there to ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tidemill_operator.desired.wanted import Group, Service, service_of
from tidemill_operator.kinds import BROKER_GROUP
from tidemill_operator.marks import SKIP_DRAIN, goes, is_on, moment, part, timestamp
from tidemill_operator.names import group_name
from tidemill_operator.observed import Broker, Observed, leader_of, listing_of, replicas_of, row_of
from tidemill_operator.observed import asks as meta_asks
from tidemill_operator.rollout import rollout_of
from tidemill_operator.steps import Ask, Event, Hold, Manifest, Seen, Step
from tidemill_wire.errors import Refused
from tidemill_wire.leftovers import PATH, groups_by_subject, parse_leftovers

QUIET_MS = 30_000
"""A client that follows no stream of meta hears so late that it is to send elsewhere."""
LOOK_MS = 3_000
GROUPS = "/v1/groups"
"""At meta: all consumer groups that there are."""
WAITING_METRIC = "tidemill_delay_waiting"
MASTER_PATHS: Mapping[Service, str] = {"broker": PATH, "delay": "/metrics"}
"""What is asked of a master, to know what is left."""
SHOWN_MAX = 5
DRAINING = "Draining"
"""The stage in the status, with the position of the message log: it moves when something comes."""


@dataclass(frozen=True, slots=True)
class Farewell:
    """What comes next for a group that goes."""

    said: str
    steps: tuple[Step, ...] = ()
    blocked: bool = False
    """Something is left."""
    scale_to: int | None = None
    """How many pods there are to be; None: as many as there are."""
    stage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The status' ``rollout``: what has come so far, and since when nothing came."""
    again_ms: int | None = LOOK_MS
    events: tuple[Event, ...] = ()


def farewell(seen: Seen, group: Group | None, observed: Observed | None, now_ms: int) -> Farewell:
    """The next step of a deleted BrokerGroup. Without ``group`` its cluster is not there, or its spec cannot be."""
    released = Farewell("it may go", (Hold(held=False),), again_ms=None)
    if seen.namespace_goes or seen.cluster is None or group is None or observed is None:
        return released
    forced = is_on(seen.resource, SKIP_DRAIN) or is_on(seen.cluster, SKIP_DRAIN)
    if goes(seen.cluster):
        if forced or group.storage.when_deleted == "Retain":
            return released
        left = left_on(seen, group, observed)
        return released if left == () else _blocked(left)
    if not observed.heard:
        return released if forced else Farewell("meta was not heard")
    if observed.row is None:
        return _leaving_unknown(observed, released, forced=forced)
    if not observed.draining:
        ask = Ask("POST", f"/v1/groups/{group.group}/drain", {})
        return Farewell("meta is asked to drain it", (ask,))
    if not observed.retired and not _is_stopped(observed):
        return _drained(seen, group, observed, now_ms, forced=forced)
    return _stopped(group, observed)


def master_of(resource: Manifest, meta: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Of a BrokerGroup that goes: its master, the address of the master's HTTP port, and the path that says what is
    left there.
    """
    if resource["kind"] != BROKER_GROUP.kind or not goes(resource):
        return None
    service = service_of(resource)
    master = leader_of(row_of(listing_of(meta, service), group_name(resource)))
    return (master["name"], master["addresses"]["control"], MASTER_PATHS[service]) if master else None


def asks(resource: Manifest, objects: Sequence[Manifest] = ()) -> tuple[str, ...]:
    """The paths at meta that a plan of a broker group wants to see."""
    leaves = resource["kind"] == BROKER_GROUP.kind and goes(resource)
    return (*meta_asks(resource, objects), *([GROUPS] if leaves else []))


def left_on(seen: Seen, group: Group, observed: Observed) -> tuple[str, ...] | None:
    """What nobody is done with, a sentence each; None: who knows it did not say."""
    master = observed.master
    answered: object = part(seen.brokers, master.name if master is not None else "").get(
        MASTER_PATHS[group.service]
    )
    if group.service == "delay":
        waiting = _waiting(answered) if isinstance(answered, str) else None
        if waiting is None:
            return None
        return (f"{waiting:,} messages for later",) if waiting else ()
    known: object = (seen.meta or {}).get(GROUPS)
    try:
        epoch, rows = parse_leftovers(answered)
    except Refused:
        return None
    if not isinstance(known, (list, tuple)) or epoch != part(observed.row).get("epoch"):
        return None
    groups = groups_by_subject(cast("Sequence[Mapping[str, Any]]", known))
    return tuple(said for row in rows for said in (*row.sentences(), *row.late(groups.get(row.subject, ()))))


def _waiting(page: str) -> int | None:
    """The number on a page of metrics."""
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        if name.partition("{")[0] == WAITING_METRIC:
            return int(float(value))
    return None


def _leaving_unknown(observed: Observed, released: Farewell, *, forced: bool) -> Farewell:
    """Meta does not know the group: it was forgotten, or never registered. One that serves is known in a second."""
    if not forced and any(one.ready_since_ms is not None for one in observed.brokers):
        return Farewell("meta does not know the group, and its pods serve: it is waited until it does")
    if any(one.is_there for one in observed.brokers):
        return Farewell("its pods are stopped", scale_to=0)
    return released


def _drained(seen: Seen, group: Group, observed: Observed, now_ms: int, *, forced: bool) -> Farewell:
    """Wait until nothing is left, and nothing came for a while; then take it out of the routes."""
    left = left_on(seen, group, observed)
    position = max((one.messages for one in observed.brokers), default=0)
    former = rollout_of(seen.resource)
    stage = f"{DRAINING} {position}"
    since = moment(former.get("since")) if former.get("stage") == stage else None
    quiet = left == () and since is not None and now_ms - since >= QUIET_MS
    if forced or quiet:
        if group.service == "delay":
            return Farewell("nothing is left, and its pods are stopped", scale_to=0, stage=former)
        asks = tuple(Ask("POST", f"/v1/groups/{group.group}/{what}", {}) for what in ("drain", "retire"))
        return Farewell("meta is asked to retire it", asks, stage=former)
    if left != ():
        return _blocked(left)
    noted = {"stage": stage, "since": timestamp(now_ms if since is None else since)}
    return Farewell("nothing is left; it is waited for late senders", stage=noted)


def _blocked(left: tuple[str, ...] | None) -> Farewell:
    if left is None:
        return Farewell("its master does not say what is left", blocked=True)
    more = f" and {len(left) - SHOWN_MAX} more" if len(left) > SHOWN_MAX else ""
    said = f"not empty ({'; '.join(left[:SHOWN_MAX])}{more}): let it be consumed, or give it up with {SKIP_DRAIN}"
    return Farewell(said, blocked=True)


def _is_stopped(observed: Observed) -> bool:
    """Whether a delay group, which nobody retires, has been scaled to nothing."""
    return observed.workload is not None and replicas_of(observed.workload) == 0


def _stopped(group: Group, observed: Observed) -> Farewell:
    if any(one.is_there for one in observed.brokers):
        return Farewell("its pods are stopped", scale_to=0)
    dead = tuple(_forget(group, one, "?force=1") for one in observed.brokers if _is_dead(one))
    return Farewell("meta is asked to forget its brokers", dead, scale_to=0)


def forgotten(group: Group, observed: Observed) -> tuple[Ask, ...]:
    """Brokers too many that have no pod and get none, and are dead for meta: it need not wait for them. One that leads,
    or is in sync, may be the only one that has what is committed, and is waited for.
    """
    run = replicas_of(observed.workload) if observed.workload is not None else len(observed.brokers)
    return tuple(
        _forget(group, one)
        for one in observed.brokers[max(group.replicas, run) :]
        if _is_dead(one) and not one.is_in_sync and one is not observed.master
    )


def _is_dead(one: Broker) -> bool:
    return not one.is_there and one.row is not None and not one.is_alive


def _forget(group: Group, one: Broker, how: str = "") -> Ask:
    return Ask("DELETE", f"/v1/groups/{group.group}/brokers/{one.name}{how}")

"""The numbers of a broker in a group. Labels are bounded: roles, the two logs, and the replicas of one group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidemill_broker.machine import Broker
from tidemill_ledger.following import Follower
from tidemill_ledger.membership import Role
from tidemill_ledger.replication import Master
from tidemill_wire.replication import Ends, Log

ROLES = (Role.FENCED, Role.SLAVE, Role.MASTER)


class Sample(NamedTuple):
    """One number, and what tells it from others of its name."""

    value: int
    labels: Mapping[str, str] = {}


class Family(NamedTuple):
    """What has one name."""

    name: str
    kind: str
    text: str
    samples: list[Sample]


def group_families(machine: Broker | Master[Broker] | Follower[Broker]) -> Iterator[Family]:
    """Nothing of a lone broker."""
    if isinstance(machine, Broker):
        return
    stood, role = machine.stand(), machine.part.role
    yield _gauge(
        "role",
        "What this broker is in its group",
        [Sample(one is role, {"role": one.value}) for one in ROLES],
    )
    yield _gauge("epoch", "Epoch that it was appointed for", [Sample(stood.epoch)])
    if machine.part.appoint is not None:
        appointment = machine.part.appoint.appointment
        yield _gauge("replicas", "Replicas of the group", [Sample(len(appointment.replicas))])
        yield _gauge("in_sync", "Replicas in sync", [Sample(len(appointment.in_sync))])
    behind = "Bytes at the end of a log that are not committed, as far as this broker knows"
    yield _gauge("uncommitted_bytes", behind, _by_log(stood.ends, stood.committed))
    if isinstance(machine, Master):
        lag = "Bytes that a slave has not said it has; all of the log when it has said nothing yet"
        slaves = [name for name in machine.appointment.replicas if name != machine.name]
        nothing = Ends(0, 0)
        samples = [
            sample
            for name in slaves
            for sample in _by_log(stood.ends, stood.slaves.get(name, nothing), slave=name)
        ]
        yield _gauge("slave_lag_bytes", lag, samples)
        paces = dict.fromkeys(slaves, 0) | {feed.name: feed.pace.rate for feed in machine.feeds.values()}
        pace = "Bytes a second that a slave is sent while it copies; 0 as long as nothing holds it back"
        yield _gauge(
            "slave_pace_bytes", pace, [Sample(rate, {"slave": name}) for name, rate in paces.items()]
        )
        yield _gauge("slaves_connected", "Slaves that fetch from this master", [Sample(len(machine.feeds))])
    else:
        fetched = "Bytes of a log that came from the master"
        logs = {"message": Log.MESSAGES, "action": Log.ACTIONS}
        samples = [Sample(machine.fetched_bytes[log], {"log": name}) for name, log in logs.items()]
        yield Family("replication_fetched_bytes_total", "counter", fetched, samples)
        refused = "Pieces of a log that did not fit, and were fetched again"
        yield Family("replication_refused_chunks_total", "counter", refused, [Sample(machine.refused_chunks)])


def _gauge(name: str, text: str, samples: list[Sample]) -> Family:
    return Family(f"replication_{name}", "gauge", text, samples)


def _by_log(ends: Ends, reached: Ends, **labels: str) -> list[Sample]:
    pairs = zip(ends._asdict().items(), reached, strict=True)
    return [Sample(max(0, end - at), {**labels, "log": log}) for (log, end), at in pairs]

"""The numbers of a service in a group, as Prometheus text. Labels are bounded: roles, the two logs, and the replicas of
one group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tidemill_ledger.following import Follower
from tidemill_ledger.membership import Role
from tidemill_ledger.replicated import Replicated
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


def group_lines(
    machine: Master[Any] | Follower[Any] | Replicated, service: str, prefix: str
) -> Iterator[str]:
    """What stands on the page of a ``service``, whose names begin with the prefix; nothing of one that is alone."""
    if not isinstance(machine, Master | Follower):
        return
    for family in _families(machine, service):
        name = f"{prefix}_replication_{family.name}"
        yield f"# HELP {name} {family.text}"
        yield f"# TYPE {name} {family.kind}"
        for value, labels in family.samples:
            yield f"{name}{_labels(labels)} {int(value)}"


def _labels(labels: Mapping[str, str]) -> str:
    """As they stand behind a name; what a label's value cannot hold is escaped."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    said = ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items())
    return f"{{{said}}}" if said else ""


def _families(machine: Master[Any] | Follower[Any], service: str) -> Iterator[Family]:
    stood, role = machine.stand(), machine.part.role
    yield _gauge(
        "role",
        f"What this {service} is in its group",
        [Sample(one is role, {"role": one.value}) for one in ROLES],
    )
    yield _gauge("epoch", "Epoch that it was appointed for", [Sample(stood.epoch)])
    if machine.part.appoint is not None:
        appointment = machine.part.appoint.appointment
        yield _gauge("replicas", "Replicas of the group", [Sample(len(appointment.replicas))])
        yield _gauge("in_sync", "Replicas in sync", [Sample(len(appointment.in_sync))])
    behind = "Bytes at the end of a log that are not committed, as far as it knows"
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
        unfed = "Slaves that are not sent what comes next, for the disk refuses it"
        yield _gauge("slaves_unfed", unfed, [Sample(machine.unfed.count(stood.at_ms))])
        yield _gauge("slaves_connected", "Slaves that fetch from this master", [Sample(len(machine.feeds))])
    else:
        fetched = "Bytes of a log that came from the master"
        logs = {"message": Log.MESSAGES, "action": Log.ACTIONS}
        samples = [Sample(machine.fetched_bytes[log], {"log": name}) for name, log in logs.items()]
        yield Family("fetched_bytes_total", "counter", fetched, samples)
        refused = "Pieces of a log that did not fit, and were fetched again"
        yield Family("refused_chunks_total", "counter", refused, [Sample(machine.refused_chunks)])


def _gauge(name: str, text: str, samples: list[Sample]) -> Family:
    return Family(name, "gauge", text, samples)


def _by_log(ends: Ends, reached: Ends, **labels: str) -> list[Sample]:
    pairs = zip(ends._asdict().items(), reached, strict=True)
    return [Sample(max(0, end - at), {**labels, "log": log}) for (log, end), at in pairs]

"""The numbers of a service's two logs, and of its part in a group, on its metrics page. Labels are bounded: roles, the
two logs, and the replicas of one group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidemill_ledger.following import Follower
from tidemill_ledger.logs import Logs
from tidemill_ledger.membership import Role
from tidemill_ledger.replicated import Replicated
from tidemill_ledger.replication import Master
from tidemill_wire.metrics.page import Page
from tidemill_wire.replication import Ends, Log

ROLES = (Role.FENCED, Role.SLAVE, Role.MASTER)
LOGS = {"message": Log.MESSAGES, "action": Log.ACTIONS}


class Begun(NamedTuple):
    """What it cost to read what lies on the disk, to begin."""

    seconds: float = 0.0
    actions: int = 0
    batches: int = 0
    cut_bytes: int = 0


def put_logs(page: Page, logs: Logs, begun: Begun) -> None:
    """What is kept, what was ever written, and what it took to begin with it."""
    both = {"message": logs.messages, "action": logs.actions}
    for name, segments in both.items():
        page.put("log_bytes", segments.end - segments.start, name)
    for name, segments in both.items():
        page.put("log_segments", len(segments.bases), name)
        page.put("log_appended_bytes_total", segments.end, name)
    for name, value in begun._asdict().items():
        page.put(f"recovery_{name}", value)


def put_group(page: Page, machine: Master[Any] | Follower[Any] | Replicated) -> None:
    """Its part in a group; nothing of one that is alone."""
    if not isinstance(machine, Master | Follower):
        return
    stood, role = machine.stand(), machine.part.role
    for one in ROLES:
        page.put("replication_role", one is role, one.value)
    page.put("replication_epoch", stood.epoch)
    if machine.part.appoint is not None:
        appointment = machine.part.appoint.appointment
        page.put("replication_replicas", len(appointment.replicas))
        page.put("replication_in_sync", len(appointment.in_sync))
    _put_by_log(page, "uncommitted_bytes", stood.ends, stood.committed)
    if isinstance(machine, Master):
        _put_slaves(page, machine)
    else:
        for name, log in LOGS.items():
            page.put("replication_fetched_bytes_total", machine.fetched_bytes[log], name)
        page.put("replication_refused_chunks_total", machine.refused_chunks)


def _put_slaves(page: Page, machine: Master[Any]) -> None:
    stood, nothing = machine.stand(), Ends(0, 0)
    slaves = [name for name in machine.appointment.replicas if name != machine.name]
    for slave in slaves:
        _put_by_log(page, "slave_lag_bytes", stood.ends, stood.slaves.get(slave, nothing), slave)
    paces = dict.fromkeys(slaves, 0) | {feed.name: feed.pace.rate for feed in machine.feeds.values()}
    for slave, rate in paces.items():
        page.put("replication_slave_pace_bytes", int(rate), slave)
    page.put("replication_slaves_unfed", machine.unfed.count(stood.at_ms))
    page.put("replication_slaves_connected", len(machine.feeds))


def _put_by_log(page: Page, name: str, ends: Ends, reached: Ends, *labels: str) -> None:
    for (log, end), at in zip(ends._asdict().items(), reached, strict=True):
        page.put(f"replication_{name}", max(0, end - at), *labels, log)

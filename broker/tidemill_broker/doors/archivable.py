"""Up to where the logs of a broker may be archived: what is committed, and on its disk."""

from __future__ import annotations

from tidemill_broker.doors.service import Service
from tidemill_broker.machine import Broker
from tidemill_host.refusals import HttpRefused
from tidemill_ledger.following import Follower
from tidemill_ledger.membership import Role
from tidemill_wire.replication import Ends


def archivable(service: Service) -> Ends:
    """What is read once is never asked for again, so it must not vanish; refused by who serves nobody."""
    machine, logs = service.machine, service.broker.logs
    synced = Ends(logs.synced_message_position, logs.synced_action_position)
    if isinstance(machine, Broker):
        return synced
    if isinstance(machine, Follower) and machine.part.role is not Role.SLAVE:
        raise HttpRefused(503, "not_master", "this broker serves nobody now", "ask the others of its group")
    return Ends(*map(min, machine.committed, synced))


def who(service: Service) -> dict[str, str]:
    """The broker; a slave's clock of what is committed may be behind."""
    name, machine = service.broker.settings.name, service.machine
    role, group = Role.LONE, name.partition("-")[0]
    if not isinstance(machine, Broker):
        role = machine.part.role
        appoint = machine.part.appoint
        group = appoint.appointment.group if appoint is not None else group
    return {"broker": name, "group": group, "role": role.value}

"""Whether a server of a group is ready, as a supervisor of processes means it: what it is there for, it does.

| it is | ready when |
|---|---|
| fenced | never: it waits to be told what it is |
| a slave | it is fed by its master, and in sync: it could take over |
| a master | it takes work: it does not hand over, and its lease is not over |
"""

from __future__ import annotations

from typing import Any

from tidemill_ledger.following import Follower
from tidemill_ledger.membership import Role
from tidemill_ledger.replication import Master


def why_not_ready(machine: Master[Any] | Follower[Any]) -> str:
    """In words; empty when it is."""
    if isinstance(machine, Master):
        return f"{machine.name} takes no work now" if machine.halted else ""
    part = machine.part
    if part.role is Role.FENCED or part.appoint is None:
        return f"{machine.name} waits to be told what it is in its group"
    master = part.appoint.appointment.master
    if not machine.is_fed:
        return f"{machine.name} has no connection to its master {master}"
    if machine.name not in part.appoint.appointment.in_sync:
        return f"{machine.name} is not in sync with {master} yet"
    return ""

"""The control plane of a standalone queue: routes, subjects, groups, health, and the page that describes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

from tidemill_broker.doors.openapi import assemble
from tidemill_broker.doors.service import Service
from tidemill_broker.doors.status import OVER_QUOTA, group_rows, subject_rows
from tidemill_broker.machine import Broker
from tidemill_host.health import ready_when
from tidemill_host.openapi import Part, process_paths, reading, record, ref, whole
from tidemill_host.system import system_paths
from tidemill_ledger.following import Follower
from tidemill_ledger.membership import Role
from tidemill_ledger.readiness import why_not_ready
from tidemill_wire.addresses import split_address


def routes_of(service: Service, port: int) -> dict[str, Any]:
    """Where clients find the brokers. Host null is the host that the client used for asking."""
    name = service.broker.settings.name
    broker = {"group": name.partition("-")[0], "name": name, "host": None, "port": port, "state": "RW"}
    if isinstance(service.machine, Follower):
        return {"version": 1, "brokers": _master_of(service.machine)}
    return {"version": 1, "brokers": [broker]}


def _master_of(follower: Follower[Broker]) -> list[dict[str, Any]]:
    """Where a slave's clients find the master, if it was told."""
    part = follower.part
    host, port = split_address(part.master_address)
    if part.appoint is None or part.role is not Role.SLAVE or not port.isdigit():
        return []
    one = part.appoint.appointment
    return [{"group": one.group, "name": one.master, "host": host, "port": int(port), "state": "RW"}]


def process_of(service: Service) -> dict[str, Any]:
    """What this process is; a lone broker is master of itself."""
    name, machine = service.broker.settings.name, service.machine
    role, epoch = Role.LONE, service.broker.logs.epoch
    if not isinstance(machine, Broker):
        role, epoch = machine.part.role, machine.part.epoch
    return {"name": name, "role": role.value, "epoch": epoch, "pid": os.getpid()}


def _why_not_ready(service: Service) -> str:
    """In words; empty when it is."""
    if service.is_stopping:
        return f"{service.broker.settings.name} is about to stop"
    return "" if isinstance(service.machine, Broker) else why_not_ready(service.machine)


def values_of(service: Service, routes: Callable[[], dict[str, Any]]) -> dict[str, Callable[[], Any]]:
    """Paths and what they answer."""
    return {
        "/healthz": lambda: {"status": "ok"},
        "/readyz": ready_when(lambda: _why_not_ready(service)),
        "/v1/process": lambda: process_of(service),
        "/v1/routes": routes,
        "/v1/subjects": lambda: subject_rows(service.broker.state),
        "/v1/groups": lambda: group_rows(service.broker.state),
        "/openapi.json": lambda: page(grouped=not isinstance(service.machine, Broker)),
    }


@cache
def page(*, grouped: bool) -> Part:
    """What the HTTP port can do; made when somebody asks, for its doors import the web server.

    ``grouped``: that of a broker in a group, which has a few paths more.
    """
    from tidemill_broker.doors import (
        dead,
        gateway_page,
        gateway_steering,
        leftovers,
        overview,
        queries_page,
        replicas_page,
        stretches_page,
        telling_page,
        timers_page,
        transactions,
        why,
    )

    more = (replicas_page,) if grouped else ()
    doors = (
        queries_page,
        gateway_page,
        gateway_steering,
        dead,
        why,
        transactions,
        timers_page,
        overview,
        leftovers,
        stretches_page,
        telling_page,
        *more,
    )
    return assemble(
        (paths(), *(door.paths() for door in doors)), (schemas(), *(door.schemas() for door in doors)), "1"
    )


def paths() -> dict[str, Part]:
    """This door's part of the OpenAPI page."""
    subject = {"name": "order.created", "messages": 3, "first_sequence": 0, "next_sequence": 3, "durability": "high",
               "groups": 1}  # fmt: skip
    group = {"group": "billing", "subject": "order.created", "lag": 2, "in_flight": 1, "failed": 0, "dead": 0,
             "paused": None, "acked": 0, "consumption": "shared", "suspended": False,
             "over_quota": None, "consumers": 1}  # fmt: skip
    process = {"name": "g0-0", "role": "lone", "epoch": 1, "pid": 4711}
    broker = {"group": "b1", "name": "b1-0", "host": None, "port": 7400, "state": "RW"}
    return {
        **process_paths("Whether the broker serves"),
        **system_paths(),
        "/v1/routes": reading(
            "routes", "Where brokers are", ref("Routes"), {"version": 1, "brokers": [broker]}
        ),
        "/v1/process": reading("process", "What this broker is", ref("Process"), process),
        "/v1/subjects": reading("subjects", "Subjects there are", _rows("SubjectStatus"), [subject]),
        "/v1/groups": reading("groups", "Consumer groups there are", _rows("GroupStatus"), [group]),
    }


def _rows(name: str) -> Part:
    return {"type": "array", "items": ref(name)}


def schemas() -> dict[str, Part]:
    """What those paths answer."""
    text: Part = {"type": "string"}
    broker = record(
        {
            "group": text,
            "name": text,
            "host": {"type": ["string", "null"], "description": "null: the host that was asked"},
            "port": whole(0, 65535),
            "state": text,
        }
    )
    return {
        "Process": record(
            {
                "name": text,
                "role": {"enum": [role.value for role in Role]},
                "epoch": whole(0),
                "pid": whole(1, description="its process id, on the machine that it runs on"),
            }
        ),
        "Routes": record(
            {
                "version": whole(1),
                "brokers": {"type": "array", "items": broker},
                "delays": {"type": "array", "items": broker, "description": "who takes messages for later"},
            },
            ("delays",),
        ),
        "SubjectStatus": record(
            {
                "name": text,
                "messages": whole(0),
                "first_sequence": whole(0),
                "next_sequence": whole(0),
                "durability": {"enum": ["high", "normal", "low"]},
                "groups": whole(0),
            }
        ),
        "GroupStatus": record(
            {
                "group": text,
                "subject": text,
                "lag": whole(0, description="messages that no consumer has, and that did not fail"),
                "in_flight": whole(0),
                "failed": whole(0, description="messages that wait for another attempt"),
                "dead": whole(0, description="dead letters that were neither redriven nor purged"),
                "paused": {
                    "type": ["string", "null"],
                    "description": "the mark of what every delivery fails of, while the group is only probed",
                },
                "acked": whole(0),
                "consumption": {"enum": ["shared", "ordered", "broadcast"]},
                "suspended": {"type": "boolean", "description": "the group is given nothing"},
                "over_quota": OVER_QUOTA,
                "consumers": whole(0),
            }
        ),
    }

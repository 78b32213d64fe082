"""What clients see: brokers with what they take now, and routes. Values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidemill_meta.moving import losers
from tidemill_meta.promotion import Member, problem_of
from tidemill_meta.registry import View
from tidemill_meta.senses import Senses
from tidemill_meta.stopping import Stopping, stopping
from tidemill_meta.values import (
    Allocation,
    Broker,
    BrokerGroup,
    ConsumerGroupRecord,
    Route,
    Service,
    SubjectRecord,
    broker_key,
)
from tidemill_wire.addresses import split_address


def broker_row(view: View, senses: Senses, group: BrokerGroup, now_ms: int) -> dict[str, Any] | None:
    """Where the master of a broker group is, and what it takes; ``None`` while there was never one.

    A broker in meta's own process registers without a host: it is where meta is, which clients know better than it.
    """
    broker = view.get(Broker, broker_key(group.name, group.master))
    if broker is None:
        return None
    host, port = split_address(broker.data)
    return {
        "group": group.name, "name": broker.name, "host": host or None, "port": int(port),
        "state": senses.state(group, now_ms), "epoch": group.epoch, "control": broker.control,
    }  # fmt: skip


def broker_rows(
    view: View, senses: Senses, now_ms: int, service: Service = "broker"
) -> dict[str, dict[str, Any]]:
    """All masters of such groups, by group."""
    groups = (group for group in view.all(BrokerGroup) if group.service == service)
    rows = ((group.name, broker_row(view, senses, group, now_ms)) for group in groups)
    return {name: row for name, row in rows if row is not None}


def route_row(route: Route, record: SubjectRecord) -> dict[str, Any]:
    """A subject's route: its newest version, and the versions before; and for producers with order keys what a failure
    does to those.
    """
    best_tried = record.declared is not None and record.declared.best_tried
    return {
        "subject": route.subject,
        "version": route.version,
        "state": record.state,
        "order_strategy": "BestTried" if best_tried else "Strict",
        "partitions": [partition.to_map() for partition in route.current.partitions],
        "former": [one.to_map() for one in route.sets[:-1]],
    } | ({"moving": moving_row(route)} if route.move is not None else {})


def moving_row(route: Route) -> dict[str, Any]:
    """A next version that is not in force yet, and which partitions have not closed to what leaves them."""
    assert route.move is not None
    return {
        "partitions": [one.to_map() for one in route.move.to.partitions],
        "waits_for": [one for one in losers(route.current, route.move.to) if one not in route.move.closed],
    }


def group_rows(
    view: View, senses: Senses, now_ms: int, service: Service = "broker"
) -> Iterator[dict[str, Any]]:
    """Broker groups, or delay groups, as people look at them."""
    groups = (group for group in view.all(BrokerGroup) if group.service == service)
    for group in sorted(groups, key=lambda one: one.name):
        members, sure = senses.members(group, now_ms), senses.fresh(now_ms)
        yield {
            "group": group.name,
            "epoch": group.epoch,
            "version": group.version,
            "state": senses.state(group, now_ms),
            "allowed": group.state,
            "draining": group.draining,
            "retired": group.retired,
            "master": group.master if group.seated else "",
            "in_sync": [name for name, _ in group.in_sync],
            "problem": "" if group.retired else problem_of(group, members),
            "brokers": [
                _member_row(view, group, members[name], stopping(group, members, name, sure=sure))
                for name, _ in group.replicas
            ],
        }


def group_state_row(group: BrokerGroup) -> dict[str, Any]:
    """What people made of a broker group."""
    return {
        "group": group.name, "state": group.state, "draining": group.draining, "retired": group.retired,
        "version": group.version,
    }  # fmt: skip


def _member_row(view: View, group: BrokerGroup, member: Member, said: Stopping) -> dict[str, Any]:
    name = member.name
    broker = view.get(Broker, broker_key(group.name, name))
    assert broker is not None
    return {
        "name": name,
        "role": "master" if group.seated and name == group.master else "slave",
        "alive": member.alive,
        "in_sync": name in dict(group.in_sync),
        "safe_to_stop": said.safe,
        "why_not": said.why_not,
        "hand_over_to": said.hand_over_to,
        "restarts_in_place": said.restarts_in_place,
        "boot": member.boot,
        "epoch": member.epoch,
        "positions": {"messages": max(0, member.messages), "actions": max(0, member.actions)},
        "addresses": {"data": broker.data, "control": broker.control},
        "labels": dict(broker.labels),
    }


def subject_row(view: View, record: SubjectRecord) -> dict[str, Any]:
    """A subject as people look at it."""
    route = view.get(Route, record.name)
    return {
        "name": record.name,
        "state": record.state,
        "version": record.version,
        "made": record.made_ms,
        "declared": record.declared.to_map() if record.declared is not None else None,
        "route": route_row(route, record) if route is not None else None,
    }


def allocation_row(allocation: Allocation, closed: Sequence[str] = ()) -> dict[str, Any]:
    """Who has what. ``closed``: what the group may not begin with before it has settled what lay before."""
    return {
        "subject": allocation.subject,
        "group": allocation.group,
        "closed": list(closed),
        "version": allocation.version,
        "owners": {partition: owner.partition(" ")[2] for partition, owner in allocation.owners},
        "waiting": [
            {"partition": one.partition, "for": one.consumer.partition(" ")[2], "since": one.since}
            for one in allocation.formers
        ],
    }


def client_rows(senses: Senses, now_ms: int) -> Iterator[dict[str, Any]]:
    """Client processes that were heard of late."""
    clients = senses.clients
    for key in clients.peers():
        beat = clients.beat(key)
        if beat is not None:
            yield {
                "client": beat.client,
                "silent_ms": max(0, now_ms - (clients.heard_ms(key) or 0)),
                "produces": list(beat.produces),
                "consumes": [
                    {"subject": one.subject, "group": one.group, "consumer": one.consumer}
                    for one in beat.consumes
                ],
            }


def consumer_group_rows(registry: View) -> list[dict[str, Any]]:
    """Consumer groups, as people see them."""
    return [
        {
            "group": one.name,
            "subject": one.subject,
            "consumption": one.consumption,
            "declared": one.declared.to_map() if one.declared is not None else None,
            "version": one.version,
        }
        for one in sorted(registry.all(ConsumerGroupRecord), key=lambda one: one.key)
    ]

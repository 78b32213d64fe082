"""What the `list` and `show` commands of subjects, consumer groups, brokers, clients and routes tell, as values."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tidemill.cli.asking import PortRefused, ask
from tidemill.cli.failures import CommandFailed
from tidemill.cli.picture import Node, Picture, group_sums, pace_of
from tidemill.cli.reading import read_picture
from tidemill.cli.screen import paced
from tidemill_wire.fields import living_subject

Fields = dict[str, Any]


async def from_meta(server: str, path: str) -> Any:
    """What meta says; ``None`` when there is none, or it does not know the thing."""
    try:
        return await ask(server.partition(",")[0], "GET", path)
    except PortRefused as error:
        if error.status == 404:
            return None
        raise


async def subject_fields(server: str, subject: str) -> Fields:
    """A subject with its partitions, its groups, and what was declared of it."""
    picture = await read_picture(server, clients=False)
    known = await from_meta(server, f"/v1/subjects/{subject}")
    rows: list[Fields] = [
        {"partition": row["name"], "broker": node.group, **{name: row[name] for name in ROW}}
        for node in picture.masters
        for row in node.subjects
        if living_subject(str(row["name"])) == subject
    ]
    if not rows and known is None:
        raise CommandFailed(f"there is no subject {subject!r}: `tidemill subjects` lists them")
    groups = sorted(group for name, group in group_sums(picture) if name == subject)
    declared: Mapping[str, Any] = known or {}
    route: Mapping[str, Any] = declared.get("route") or {}
    return {
        "name": subject,
        "state": declared.get("state", "RW"),
        "messages": sum(row["messages"] for row in rows),
        "durability": rows[0]["durability"] if rows else None,
        "groups": groups,
        "order_strategy": route.get("order_strategy"),
        "moving": "moving" in route,
        "partitions": rows,
        "declared": declared.get("declared"),
    }


ROW = ("messages", "first_sequence", "next_sequence", "durability")


async def group_fields(server: str, names: tuple[str, str], over: float) -> Fields:
    """A consumer group, who is in it, and by two looks how long it needs to have done all."""
    picture = await read_picture(server, subjects=False)
    before = _group_of(picture, names)
    now, seconds = before, 0.0
    if over:
        await asyncio.sleep(over)
        later = await read_picture(server, subjects=False)
        now, seconds = _group_of(later, names), later.at_s - picture.at_s
        picture = later
    pace = pace_of(before, now, seconds) if over else None
    subject, group = names
    known = [
        row
        for row in await from_meta(server, "/v1/groups") or ()
        if row["group"] == group and row["subject"] == subject and "declared" in row
    ]
    return {
        **{name: now[name] for name in now if name != "acked"},
        **paced(pace),
        "members": members_of(picture, names),
        "allocation": await _allocation(server, names, str(now["consumption"]), picture),
        "declared": known[0]["declared"] if known else None,
    }


def _group_of(picture: Picture, names: tuple[str, str]) -> Fields:
    found = group_sums(picture).get(names)
    if found is None:
        away = [node.name for node in picture.brokers if node.role == "master" and node.system is None]
        hint = f"{', '.join(away)} cannot be asked now" if away else "`tidemill groups` lists them"
        raise CommandFailed(f"there is no group {names[1]!r} of {names[0]!r}: {hint}")
    return found


def members_of(picture: Picture, names: tuple[str, str]) -> list[Fields]:
    """Its consumers, as the processes they are in say."""
    return [
        {"consumer": one["consumer"], "client": row["client"], "silent_ms": row["silent_ms"]}
        for row in picture.clients
        for one in row["consumes"]
        if (one["subject"], one["group"]) == names
    ]


async def _allocation(server: str, names: tuple[str, str], consumption: str, picture: Picture) -> Any:
    """Which partitions which consumer has; of a group that shares them nothing is allotted."""
    if consumption == "shared" or not picture.has_meta:
        return None
    said = await from_meta(server, f"/v1/subjects/{names[0]}/groups/{names[1]}/allocation")
    return None if said is None else {"owners": said["owners"], "waiting": said["waiting"]}


def server_rows(picture: Picture) -> list[Fields]:
    """Every process that serves."""
    return [_server(picture, node) for node in picture.nodes]


def server_fields(picture: Picture, name: str) -> Fields:
    """One process with all that it says."""
    node = next((one for one in picture.nodes if name in {one.name, one.http}), None)
    if node is None:
        known = ", ".join(one.name for one in picture.nodes)
        raise CommandFailed(f"there is no broker {name!r}: there is {known}")
    row = _server(picture, node)
    of_group = [
        group
        for group in (*picture.groups, *picture.delays)
        if group["group"] == node.group and group["brokers"]
    ]
    said: Mapping[str, Any] = next(
        (one for group in of_group for one in group["brokers"] if one["name"] == node.name), Fields()
    )
    more = {
        "positions": said.get("positions"),
        "labels": said.get("labels"),
        "safe_to_stop": said.get("safe_to_stop"),
        "why_not": said.get("why_not"),
        "state": of_group[0]["state"] if of_group else None,
        "draining": of_group[0]["draining"] if of_group else None,
        "epoch": of_group[0]["epoch"] if of_group else None,
        "disk_free_bytes": node.number("tidemill_disk_free_bytes"),
        "disk_total_bytes": node.number("tidemill_disk_total_bytes"),
        "connections": node.number("tidemill_connections"),
        "refused": {reason: int(count) for reason, count in node.by_reason("tidemill_refused_total").items()},
    }
    return {**row, **more}


def _server(picture: Picture, node: Node) -> Fields:
    system = node.system
    return {
        "name": node.name,
        "service": node.service,
        "group": node.group,
        "role": node.role if node.service != "meta" else None,
        "alive": node.alive,
        "in_sync": node.in_sync,
        "http": node.http,
        "version": system.version if system else None,
        "pid": system.pid if system else None,
        "up_s": max(0, (picture.at_ms - system.began_ms) // 1000) if system else None,
        "memory_bytes": system.memory_bytes if system else None,
        "files_open": system.files_open if system else None,
    }


async def client_rows(server: str) -> list[Fields]:
    """Programs that were heard of late, as meta knows them."""
    found = await from_meta(server, "/v1/clients")
    if found is None:
        raise CommandFailed(
            f"{server} is a broker and not meta, which knows the clients: name meta with --server"
        )
    return [
        {
            "client": row["client"],
            "silent_ms": row["silent_ms"],
            "produces": row["produces"],
            "consumes": [f"{one['subject']} as {one['group']}" for one in row["consumes"]],
            "consumers": [one["consumer"] for one in row["consumes"]],
        }
        for row in found
    ]


async def route_rows(server: str, subject: str = "") -> list[Fields]:
    """Where subjects lie: of each partition its broker group, and how many order keys it has."""
    known = await from_meta(server, f"/v1/subjects/{subject}" if subject else "/v1/subjects")
    if known is None:
        if subject:
            raise CommandFailed(f"meta knows no subject {subject!r}: `tidemill subjects` lists them")
        return []
    found: list[Fields] = [known] if subject else known
    routed = [row for row in found if row.get("route")]
    return [
        {
            "subject": row["name"],
            "partition": one["name"],
            "group": one["group"],
            "order_keys": sum(end - first for first, end in one["ranges"]),
            "state": row["state"],
            "version": row["route"]["version"],
            "moving": "moving" in row["route"],
        }
        for row in routed
        for one in row["route"]["partitions"]
    ]

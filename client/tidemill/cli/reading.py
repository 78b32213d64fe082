"""Reads a picture (``picture.py``) from the HTTP ports of meta and of the brokers that it names, all at once."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from tidemill.cli.asking import PortRefused, Unanswered, ask, ask_text, control_of
from tidemill.cli.failures import CommandFailed
from tidemill.cli.picture import Node, Picture, Row, System, numbers_of, rows_of
from tidemill_wire.fields import living_subject

LOOK_SECONDS = 3.0
"""Whoever does not answer in that time is away, for a person who waits."""
ERRORS_MAX = 20


async def read_picture(server: str, *, subjects: bool = True, clients: bool = True) -> Picture:
    """How all stands. Who does not answer is in it as such; only ``server`` itself has to."""
    began = time.monotonic()
    groups, delays, lone = await _registered(server)
    found = [
        *(_node("broker", group, one, server) for group in groups for one in group["brokers"]),
        *(_node("delay", group, one, server) for group in delays for one in group["brokers"]),
    ]
    if not lone:
        found += [Node("meta", "meta", one, one) for one in server.split(",")]
    else:
        found.append(await _lone(server))
    from tidemill.looking import gathered

    nodes = await gathered(_filled(node, subjects=subjects) for node in found)
    known, has_meta = await _from_meta(server, "/v1/clients") if clients else ([], not lone)
    at_ms = time.time_ns() // 1_000_000
    return Picture(server, began, at_ms, nodes, groups, delays, known, is_lone=lone, has_meta=has_meta)


async def errors_of(picture: Picture) -> dict[tuple[str, str], list[Row]]:
    """Of what groups fail that are paused, or whose messages wait after a failure; of so many as a person reads."""
    from tidemill.looking import gathered

    asked = [(node, row) for node, row in rows_of(picture) if row["paused"] or row["failed"]][:ERRORS_MAX]

    async def look(node: Node, row: Row) -> list[Row]:
        path = f"/v1/subjects/{quote(str(row['subject']), safe='')}/groups/{quote(str(row['group']), safe='')}/dead"
        said = await _or_none(lambda: ask(node.http, "GET", path, timeout_s=LOOK_SECONDS))
        return [] if said is None else list(said["errors"])

    found: dict[tuple[str, str], list[Row]] = {}
    for (_, row), errors in zip(asked, await gathered(look(*one) for one in asked), strict=True):
        found.setdefault((living_subject(str(row["subject"])), str(row["group"])), []).extend(errors)
    return found


async def _registered(server: str) -> tuple[list[Row], list[Row], bool]:
    """Broker groups and delay groups as meta says them, and whether there is no meta but a queue by itself."""
    groups, answered = await _from_meta(server, "/v1/brokers")
    if not answered:
        return [], [], True
    process = await _or_none(lambda: ask(_first(server), "GET", "/v1/process", timeout_s=LOOK_SECONDS))
    if process is not None and process.get("role") == "lone":
        return [], [], True
    delays, _ = await _from_meta(server, "/v1/delays")
    return groups, delays, False


async def _from_meta(server: str, path: str) -> tuple[list[Row], bool]:
    """Rows, and whether who was asked has such a path at all. Of several addresses the first that answers."""
    failure: CommandFailed | None = None
    for one in server.split(","):
        try:
            return await ask(one, "GET", path), True
        except PortRefused as refused:
            if refused.status == 404:
                return [], False
            failure = refused
        except Unanswered as unanswered:
            failure = unanswered
    assert failure is not None
    raise failure


def _first(server: str) -> str:
    return server.partition(",")[0]


def _node(service: str, group: Row, one: Row, server: str) -> Node:
    return Node(
        service, group["group"], one["name"], control_of(one, _first(server)), one["role"], one["alive"],
        one["in_sync"],
    )  # fmt: skip


async def _lone(server: str) -> Node:
    said = await ask(_first(server), "GET", "/v1/process")
    role = "master" if said["role"] == "lone" else said["role"]
    return Node("broker", said["name"].partition("-")[0], said["name"], _first(server), role)


async def _filled(node: Node, *, subjects: bool) -> Node:
    """With all that the process says of itself."""
    if not node.alive:
        return node
    system = await _system(node.http)
    if system is None:
        return node
    page = await _or_none(lambda: ask_text(node.http, "/metrics", LOOK_SECONDS))
    filled = replace(node, system=system, numbers=numbers_of(page or ""))
    if node.service != "broker" or node.role != "master":
        return filled
    groups = await _or_none(lambda: ask(node.http, "GET", "/v1/groups", timeout_s=LOOK_SECONDS))
    rows = (
        await _or_none(lambda: ask(node.http, "GET", "/v1/subjects", timeout_s=LOOK_SECONDS))
        if subjects
        else ()
    )
    return replace(filled, groups=groups or (), subjects=rows or ())


async def _system(address: str) -> System | None:
    before, sent = time.time_ns(), time.monotonic_ns()
    said = await _or_none(lambda: ask(address, "GET", "/v1/system", timeout_s=LOOK_SECONDS))
    if said is None:
        return None
    passed_ms = (time.monotonic_ns() - sent) // 1_000_000
    ours_ms = before // 1_000_000 + passed_ms // 2
    return System(
        said["version"], said["pid"], said["files"]["open"], said["files"]["max"], said["memory_bytes"],
        said["began_ms"], said["clock_ms"] - ours_ms, passed_ms, said["cpu_ms"],
    )  # fmt: skip


async def _or_none(question: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await question()
    except (Unanswered, PortRefused):
        return None

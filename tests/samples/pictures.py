"""Pictures of a cluster that is well, to be made ill one thing at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemill.cli.findings import Case
from tidemill.cli.picture import Node, Picture, System

DISK = {"tidemill_disk_free_bytes": 50.0, "tidemill_disk_total_bytes": 100.0}
SYSTEM = System(
    "0.1.0", 10, files_open=60, files_max=1 << 20, memory_bytes=80 << 20, began_ms=0, ahead_ms=0, unsure_ms=3
)
NOW_MS = 10_000_000


def member(name: str, role: str = "master", **more: Any) -> dict[str, Any]:
    return {
        "name": name, "role": role, "alive": True, "in_sync": True, "positions": {"messages": 1, "actions": 1},
        "addresses": {"data": "127.0.0.1:1", "control": "127.0.0.1:2"}, "labels": {}, **more,
    }  # fmt: skip


def broker_group(name: str, **more: Any) -> dict[str, Any]:
    return {
        "group": name, "epoch": 1, "state": "RW", "allowed": "RW", "draining": False, "retired": False,
        "master": f"{name}-0", "in_sync": [f"{name}-0", f"{name}-1"], "problem": "",
        "brokers": [member(f"{name}-0"), member(f"{name}-1", "slave")], **more,
    }  # fmt: skip


def consumer_group(group: str = "billing", subject: str = "orders", **more: Any) -> dict[str, Any]:
    return {
        "group": group, "subject": subject, "lag": 0, "in_flight": 0, "failed": 0, "dead": 0, "acked": 0,
        "paused": None, "suspended": False, "over_quota": None, "consumers": 1, "consumption": "shared", **more,
    }  # fmt: skip


def archive(*states: str, name: str = "lake", **more: Any) -> dict[str, Any]:
    """As meta has one, by the states of its runs, the first one first."""
    runs = [{"run": f"run-{number}", "state": state} for number, state in enumerate(states, 1)]
    if runs and runs[-1]["state"] == "Failed":
        runs[-1]["error"] = "OSError: no room"
    return {
        "name": name,
        "subjects": ["orders"],
        "state": "Active",
        "watermarks": {},
        "runs": runs,
        "version": 1,
        **more,
    }


def node(name: str, role: str = "master", service: str = "broker", **more: Any) -> Node:
    group = name.partition("-")[0]
    return Node(service, group, name, "127.0.0.1:2", role, **{"system": SYSTEM, "numbers": DISK, **more})


def picture(**more: Any) -> Picture:
    """Two broker groups with a slave each, a subject, and a group that consumes it."""
    nodes = [
        node(
            "g0-0",
            groups=[consumer_group()],
            subjects=[{"name": "orders", "messages": 3, "groups": 1, "durability": "high"}],
        ),
        node("g0-1", "slave"),
        node("g1-0"),
        node("g1-1", "slave"),
        node("meta-0", service="meta", numbers={}),
    ]
    known = {"nodes": nodes, "groups": [broker_group("g0"), broker_group("g1")], **more}
    return Picture("meta:7401", known.pop("at_s", 100.0), NOW_MS, **known)


def with_nodes(changed: dict[str, Any], base: Picture | None = None) -> Picture:
    """The same, but for some fields of some nodes, by name."""
    base = base or picture()
    return replace(base, nodes=[replace(one, **changed.get(one.name, {})) for one in base.nodes])


def with_numbers(name: str, base: Picture | None = None, **numbers: float) -> Picture:
    base = base or picture()
    old = next(one for one in base.nodes if one.name == name)
    return with_nodes({name: {"numbers": {**old.numbers, **numbers}}}, base)


def with_groups(*rows: dict[str, Any], at_s: float = 100.0) -> Picture:
    return replace(with_nodes({"g0-0": {"groups": rows}}), at_s=at_s)


def case(now: Picture, before: Picture | None = None) -> Case:
    return Case(now, before)


def canary_page(**more: Any) -> dict[str, Any]:
    """What a canary says of one broker group, that is well but for what is given."""
    tally = {
        "sent": 9,
        "answered": 9,
        "failed": 0,
        "held_back": 0,
        "seen": 9,
        "lost": 0,
        "found": 0,
        "unjudged": 0,
    }
    group = {
        "group": "g0", "subject": "tidemill.canary.g0", "problem": "", "probes": {"now": tally, "later": tally},
        "lost_of_late": [], "doubled": {"stored": 0, "acknowledged": 0, "redelivered": 0},
        "out_of_order": {"stored": 0, "delivered": 0}, "early": 0, "silent_ms": 300, "interrupted_ms": 0,
        "crowded": False, "epoch": 1, "failovers": [], **more,
    }  # fmt: skip
    return {"name": "canary", "problem": "", "groups": [group]}

"""`tidemill status`: the brokers, who leads, who is in sync, and what is wrong, in words.

Exit codes: 0 all is well, 1 something is not, or nobody answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.cli.archive_checks import archives_of, failures
from tidemill.cli.asking import PortRefused, Unanswered, ask, control_of, is_local
from tidemill.cli.canary_checks import CanaryOption, ask_canary, findings
from tidemill.cli.failures import FAILURE
from tidemill.cli.picture import after_death
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, perform
from tidemill.cli.tables import print_rows, print_value
from tidemill.cli.troubles import troubles

COLUMNS = ("group", "name", "role", "state", "epoch", "in_sync", "messages", "actions", "pid", "http")
CANARY_COLUMNS = ("canary", "seen", "lost", "twice", "p99_ms", "silent_ms", "failovers", "rto_ms", "rpo")
NO_PAGE: Mapping[str, Any] = {"problem": "", "groups": []}
LOOK_SECONDS = 3.0


def status(
    canary: CanaryOption = "", server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
) -> int:
    """Show the brokers, and what is wrong. Ask meta, or the queue on this machine."""
    problems: list[str] = []

    async def run() -> None:
        brokers = await look(server, problems)
        delays = await look_at_delays(server, problems)
        page = await ask_canary(canary, server)
        found = [*failures(await archives_of(server)), *findings(page or NO_PAGE)]
        problems.extend(f"{one.about}: {one.what}: {one.advice}" for one in found)
        if output is not Output.TABLE:
            told = {"brokers": brokers, "delays": delays, "problems": problems}
            print_value(told if page is None else {**told, "canary": page}, output)
            return
        print_rows(
            [_row(one) for one in (*brokers, *delays)], COLUMNS, output, "No broker has registered yet."
        )
        if page is not None:
            print()
            print_rows([row_of_canary(one) for one in page["groups"]], CANARY_COLUMNS, output, "No probes.")
        print("\n".join(["", *problems] if problems else ["", "All is well."]))

    perform(run(), server)
    return FAILURE if problems else 0


async def look(server: str, problems: list[str]) -> list[dict[str, Any]]:
    """All brokers; what is wrong goes into ``problems``."""
    try:
        groups: list[dict[str, Any]] = await ask(server, "GET", "/v1/brokers")
    except PortRefused as error:
        if error.status != 404:
            raise
        return [await _one_broker(server, problems)]
    if not groups:
        problems.append("no broker has registered at meta: start one with TIDEMILL_META, or `tidemill up`")
    rows = await _rows(groups, server, problems)
    problems += await troubles(
        [(row["group"], row["http"]) for row in rows if row["alive"] and row["role"] == "master"]
    )
    return rows


async def look_at_delays(server: str, problems: list[str]) -> list[dict[str, Any]]:
    """All delay services of a cluster; a lone broker has its own in its process."""
    try:
        groups: list[dict[str, Any]] = await ask(server, "GET", "/v1/delays")
    except PortRefused as error:
        if error.status != 404:
            raise
        return []
    return await _rows(groups, server, problems)


async def _rows(
    groups: Sequence[Mapping[str, Any]], server: str, problems: list[str]
) -> list[dict[str, Any]]:
    """The servers of some groups, and what is wrong with them."""
    rows = [_broker(group, one, server) for group in groups for one in group["brokers"]]
    for group in groups:
        problems += problems_of(group)
    processes = await asyncio.gather(*(_process(row["http"]) for row in rows if row["alive"]))
    for row, process in zip([row for row in rows if row["alive"]], processes, strict=True):
        if process is None:
            problems.append(
                f"{row['name']} is alive, and does not answer at {row['http']}: look whether that address is reached "
                "from here"
            )
        elif is_local(row["http"]):
            row["pid"] = process["pid"]
    return rows


async def _one_broker(server: str, problems: list[str]) -> dict[str, Any]:
    """What does not answer as meta: a broker by itself."""
    process = await ask(server, "GET", "/v1/process")
    routes = await ask(server, "GET", "/v1/routes")
    name, is_lone = process["name"], process["role"] == "lone"
    if is_lone:
        problems += await troubles([(name, server)])
    else:
        problems.append(f"{name} is one broker of a group: ask meta for all of them, with --server")
    state = routes["brokers"][0]["state"] if routes["brokers"] else "NRW"
    return {
        "group": name.partition("-")[0], "name": name, "role": "master" if is_lone else process["role"],
        "alive": True, "state": state, "epoch": process["epoch"], "in_sync": is_lone, "positions": None,
        "draining": False, "retired": False, "http": server,
        "pid": process["pid"] if is_local(server) else None,
    }  # fmt: skip


def _broker(group: Mapping[str, Any], one: Mapping[str, Any], server: str) -> dict[str, Any]:
    return {
        "group": group["group"], "name": one["name"], "role": one["role"], "alive": one["alive"],
        "state": group["state"], "epoch": group["epoch"], "in_sync": one["in_sync"], "positions": one["positions"],
        "draining": group["draining"], "retired": group.get("retired", False), "http": control_of(one, server),
        "pid": None,
    }  # fmt: skip


async def _process(address: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = await ask(address, "GET", "/v1/process", timeout_s=LOOK_SECONDS)
    except (Unanswered, PortRefused):
        return None
    return found


def problems_of(group: Mapping[str, Any]) -> list[str]:
    """What is wrong with a broker group, and what to do."""
    if group.get("retired"):
        return []
    name = group["group"]
    found = [f"{name} has no master: {group['problem']}"] if group["problem"] else []
    wanted = "R" if group["draining"] else group.get("allowed", "")
    if not group["problem"] and set(wanted) - set(group["state"]):
        found.append(
            f"{name} is {group['state']}, and nobody said that it should be, so its disk may be full: `tidemill "
            "doctor` says more"
        )
    for one in group["brokers"]:
        if not one["alive"]:
            found.append(
                f"{one['name']} is dead, meta has not heard of it for seconds: {after_death(group, one['name'])}"
            )
        elif not one["in_sync"]:
            found.append(
                f"{one['name']} is not in sync, and cannot take over: it catches up by itself; when this stays, look "
                "at what it says, and at its disk and network"
            )
    return found


def _row(broker: Mapping[str, Any]) -> dict[str, Any]:
    """For a person."""
    said: str = broker["state"] if broker["alive"] else "dead"
    words: Sequence[str] = [word for word in ("draining", "retired") if broker[word]][-1:]
    positions: Mapping[str, Any] = broker["positions"] or {}
    return {
        "group": broker["group"], "name": broker["name"], "role": broker["role"], "state": ", ".join([said, *words]),
        "epoch": broker["epoch"], "in_sync": broker["in_sync"], "messages": positions.get("messages"),
        "actions": positions.get("actions"), "pid": broker["pid"], "http": broker["http"],
    }  # fmt: skip


def row_of_canary(group: Mapping[str, Any]) -> dict[str, Any]:
    """What a canary sees of a broker group, for a person."""
    probes, failovers = group["probes"], group["failovers"]
    last = failovers[-1] if failovers else {"rto_ms": None, "rpo": None}
    return {
        "canary": group["group"], "seen": sum(kind["seen"] for kind in probes.values()),
        "lost": sum(kind["lost"] - kind["found"] for kind in probes.values()),
        "twice": group["doubled"]["stored"] + group["doubled"]["acknowledged"], "p99_ms": group["p99_ms"]["end_to_end"],
        "silent_ms": group["silent_ms"],
        "failovers": len(failovers), "rto_ms": last["rto_ms"], "rpo": last["rpo"],
    }  # fmt: skip

"""`tidemill brokers`: what people do with broker groups: look, hand over, make read-only, drain, retire, forget."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Any

import typer

from tidemill.cli.asking import PortRefused, Unanswered, ask, control_of
from tidemill.cli.completing import complete_broker_group
from tidemill.cli.draining import UNDONE, Draining, left_on
from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, listing, perform
from tidemill.cli.showing_commands import print_servers, show_server
from tidemill.cli.tables import print_value

LEAD_SECONDS = 10.0
LOOK_SECONDS = 0.02

GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="The broker group, as in `tidemill status`.",
        autocompletion=complete_broker_group,
    ),
]


class State(StrEnum):
    """What a broker group takes."""

    RW = "RW"
    R = "R"
    W = "W"
    NRW = "NRW"


def build() -> typer.Typer:
    about = "List what serves; hand over, drain and retire broker groups. Ask meta."
    application = listing(about, "what serves: brokers, delay services, and meta", print_servers)
    application.command("show")(show_server)
    application.command("handover")(handover)
    application.command("state")(state)
    application.command("drain")(drain)
    application.command("retire")(retire)
    application.command("forget")(forget)
    return application


def handover(
    group: GroupArgument,
    to: Annotated[str | None, typer.Option("--to", metavar="NAME", help="The slave that takes over.")] = None,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a slave master, on purpose: nothing is lost or repeated, and writes wait for less than a second."""

    async def run() -> None:
        done = await hand_over(server, await find_group(server, group), to)
        if output is not Output.TABLE:
            print_value(done, output)
        else:
            print(
                f"{done['master']} is master of {group} in epoch {done['epoch']}, {done['former']} follows it: "
                f"nobody could write for {done['seconds']:.2f} s"
            )

    perform(run(), server)


async def find_group(server: str, name: str) -> dict[str, Any]:
    """A broker group as meta sees it."""
    try:
        groups: list[dict[str, Any]] = await ask(server, "GET", "/v1/brokers")
    except PortRefused as error:
        if error.status != 404:
            raise
        raise wrong_usage(f"{server} is a broker and not meta: name meta's HTTP port with --server") from None
    for group in groups:
        if group["group"] == name:
            return group
    known = ", ".join(one["group"] for one in groups) or "none"
    raise CommandFailed(f"there is no broker group {name!r}: there is {known}")


def successor(group: Mapping[str, Any], to: str | None) -> str:
    """Who takes over: who is named, or the slave in sync that has most."""
    name, master = group["group"], group["master"]
    if not master:
        raise CommandFailed(f"{name} has no master that could hand over: {group['problem']}")
    brokers: dict[str, Mapping[str, Any]] = {one["name"]: one for one in group["brokers"]}
    able = [one for one in brokers.values() if one["in_sync"] and one["alive"] and one["name"] != master]
    if to == master:
        raise CommandFailed(f"{to} is the master of {name} already: name one of its slaves")
    if to is not None and to not in brokers:
        raise CommandFailed(f"there is no broker {to!r} in {name}: there is {', '.join(brokers)}")
    if to is not None and to not in {one["name"] for one in able}:
        raise CommandFailed(f"{to} is not in sync and alive: wait until `tidemill status` says that it is")
    if not able:
        raise CommandFailed(f"{name} has no slave in sync to hand over to: see `tidemill status`")
    return to or str(max(able, key=lambda one: (one["positions"]["messages"], one["name"]))["name"])


async def hand_over(server: str, group: Mapping[str, Any], to: str | None) -> dict[str, Any]:
    """The master stops and the slave has all; meta appoints it; both are told at once, and not with their next beat."""
    name, master, new = group["group"], group["master"], successor(group, to)
    brokers = {one["name"]: one for one in group["brokers"]}
    began = time.monotonic()
    await ask(control_of(brokers[master], server), "POST", "/v1/replication/handover", {"to": new})
    try:
        said = await ask(server, "POST", f"/v1/groups/{name}/handover", {"to": new, "epoch": group["epoch"]})
    except CommandFailed as failure:
        raise CommandFailed(f"{failure}; {master} goes on as master in some seconds") from None
    appointment = {
        field: said[field] for field in ("group", "epoch", "master", "replicas", "in_sync", "version")
    }
    appointment["addresses"] = {one["name"]: one["addresses"]["data"] for one in brokers.values()}
    for broker in (new, master):
        with suppress(Unanswered, PortRefused):  # it hears so from meta, a second later
            await ask(control_of(brokers[broker], server), "POST", "/v1/replication/appointment", appointment)
    await _wait_led(control_of(brokers[new], server), new, said["epoch"], began)
    return {
        "group": name, "master": new, "former": master, "epoch": said["epoch"],
        "seconds": round(time.monotonic() - began, 3),
    }  # fmt: skip


async def _wait_led(control: str, name: str, epoch: int, began: float) -> None:
    """Until a broker serves as master; its port is closed for a moment while it becomes one."""
    while True:
        with suppress(Unanswered, PortRefused):
            found = await ask(control, "GET", "/v1/process")
            if found["role"] == "master" and found["epoch"] >= epoch:
                return
        if time.monotonic() - began > LEAD_SECONDS:
            raise CommandFailed(
                f"{name} was appointed and does not lead after {LEAD_SECONDS:g} s: look at `tidemill status`, and at "
                "what it says"
            )
        await asyncio.sleep(LOOK_SECONDS)


def state(
    group: GroupArgument,
    takes: Annotated[State, typer.Argument(metavar="RW|R|W|NRW", help="What it takes from now on.")],
    server: ServerOption = SERVER_DEFAULT,
) -> None:
    """Say what a broker group takes: RW, or R for read-only. It ends a drain, too."""

    async def run() -> None:
        await find_group(server, group)
        body = {"state": takes.value, "draining": 0}
        said = await ask(server, "POST", f"/v1/groups/{group}/state", body)
        print(f"{group} takes {said['state']}: clients hear of it within a second")

    perform(run(), server)


def drain(
    group: GroupArgument,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Show what is left, until all is consumed.")
    ] = True,
    server: ServerOption = SERVER_DEFAULT,
) -> None:
    """Make a broker group read-only, place nothing on it, and wait until all on it is consumed."""

    async def run() -> None:
        await find_group(server, group)
        said = await ask(server, "POST", f"/v1/groups/{group}/drain", {})
        moved = said["moved"]
        print(f"{group} is drained: it takes no messages, and no subject is placed on it")
        if moved:
            print(f"order keys of {moved} subject{'s' * (moved != 1)} go to partitions elsewhere")
        if wait:
            await Draining(server, group).watch(lambda: find_group(server, group))
            for line in await left_on(server, await find_group(server, group), (*UNDONE, "dead")):
                print(f"  left on {group}: {line}, see `tidemill dead`")
            print(f"all is consumed: `tidemill brokers retire {group}` takes it out of the routes")

    perform(run(), server)


def retire(
    group: GroupArgument,
    force: Annotated[bool, typer.Option("--force", help="Give up what is not consumed.")] = False,
    server: ServerOption = SERVER_DEFAULT,
) -> None:
    """Take a drained broker group out of all routes, when all on it is consumed."""

    async def run() -> None:
        found = await find_group(server, group)
        if not found["draining"]:
            raise CommandFailed(f"{group} is in use: run `tidemill brokers drain {group}` first")
        if not force:
            _refuse_left(group, await left_on(server, found, (*UNDONE, "dead")))
        said = await _retired(server, group)
        moved = said["moved"]
        print(f"{group} is retired, and {moved} subject{'s' * (moved != 1)} left it")
        for one in found["brokers"]:
            print(f"stop {one['name']}, then: tidemill brokers forget {group} {one['name']}")

    perform(run(), server)


async def _retired(server: str, group: str) -> Any:
    """Order keys leave a group that is drained within a second or two, which scripts need not know of. Also those of
    subjects that came, or are in order, since it was drained: so it is drained once more.
    """
    await ask(server, "POST", f"/v1/groups/{group}/drain", {})
    deadline = time.monotonic() + LEAD_SECONDS
    while True:
        try:
            return await ask(server, "POST", f"/v1/groups/{group}/retire", {})
        except PortRefused as error:
            if error.code != "in_use" or time.monotonic() > deadline:
                raise
        await asyncio.sleep(LOOK_SECONDS)


def _refuse_left(group: str, left: Sequence[str]) -> None:
    if left:
        raise CommandFailed(
            f"{group} is not empty ({'; '.join(left)}): wait with `tidemill brokers drain {group}`, or give it up "
            "with --force"
        )


def forget(
    group: GroupArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The broker that will not come back.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also the only one that has all that is committed.")
    ] = False,
    server: ServerOption = SERVER_DEFAULT,
) -> None:
    """Let meta forget a dead broker; with the last one, its group."""

    async def run() -> None:
        await find_group(server, group)
        await ask(server, "DELETE", f"/v1/groups/{group}/brokers/{name}{'?force=1' if force else ''}")
        print(f"meta knows {name} of {group} no more")

    perform(run(), server)

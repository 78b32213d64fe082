"""`tidemill expand`: more partitions for a subject, while it is in use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tidemill.cli.asking import ask
from tidemill.cli.completing import complete_subject
from tidemill.cli.failures import wrong_usage
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, perform
from tidemill.cli.tables import print_rows

LOOK_SECONDS = 0.2
SAY_LOOKS = 25
"""Between two sentences about what is waited for."""
COLUMNS = ("partition", "group", "order_keys")


def expand(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT", help="The subject, as in `tidemill subjects`.", autocompletion=complete_subject
        ),
    ],
    partitions: Annotated[
        int | None, typer.Option("--partitions", metavar="N", min=2, help="How many it shall have.")
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="GROUP", help="A broker group that gets one; repeat it for more."),
    ] = None,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Let order keys that are moving stay where they are.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until order keys have moved.")] = True,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a subject more partitions. Order keys that move wait for a second or two, and are never out of order."""
    if (partitions is not None) + bool(to) + give_up != 1:
        raise wrong_usage("write --partitions N, --to GROUP or --give-up, and one of them alone")

    async def run() -> None:
        if give_up:
            route = await ask(server, "DELETE", f"/v1/subjects/{subject}/move")
        else:
            known = await ask(server, "GET", f"/v1/subjects/{subject}/route")
            more: dict[str, Any] = {"partitions": partitions} if partitions is not None else {"groups": to}
            body = {**more, "version": known["version"]}
            route = await ask(server, "POST", f"/v1/subjects/{subject}/expand", body)
            if wait:
                route = await _moved(server, subject, route)
        _show(route, output)

    perform(run(), server)


async def _moved(server: str, subject: str, route: Mapping[str, Any]) -> Mapping[str, Any]:
    """The route when nothing of it moves any more."""
    looks = 0
    while "moving" in route:
        looks += 1
        if looks % SAY_LOOKS == 0:
            print(f"  not closed yet: {', '.join(route['moving']['waits_for'])}", flush=True)
        await asyncio.sleep(LOOK_SECONDS)
        route = await ask(server, "GET", f"/v1/subjects/{subject}/route")
    return route


def _show(route: Mapping[str, Any], output: Output) -> None:
    rows = [
        {
            "partition": one["name"],
            "group": one["group"],
            "order_keys": sum(end - first for first, end in one["ranges"]),
        }
        for one in route["partitions"]
    ]
    print_rows(rows, COLUMNS, output, "It has no partitions.")

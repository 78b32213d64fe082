"""`tidemill why`: what became of a message, group by group."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, connected, perform
from tidemill.cli.stored import print_stand_ins
from tidemill.cli.tables import print_value

EVENTS_SHOWN = 20


def why(
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="A message's id, as `tidemill send` prints it.")
    ],
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what became of a message, group by group."""

    async def run() -> None:
        async with connected(server) as client:
            try:
                found = await client.why(identity)
            except ValueError as error:
                raise wrong_usage(str(error)) from None
            print_stand_ins(client)
        if found is None:
            raise CommandFailed("there is no such message: it may have expired, or never been sent")
        if output is Output.TABLE:
            print(text_of(found))
        else:
            print_value(found, output)

    perform(run(), server)


def text_of(found: dict[str, Any]) -> str:
    """For a person."""
    stored = (
        f"stored at {found['stored_at']}" if found["stored_at"] else "not kept any more but as a dead letter"
    )
    lines = [f"{found['id']}: {found['subject']} {found['sequence']}, {stored}"]
    if not found["groups"]:
        lines.append("  no group consumes this subject")
    for group in found["groups"]:
        lines.append(f"  {group['group']}: {group['sentence']}")
        events = group["events"]
        if len(events) > EVENTS_SHOWN:
            lines.append(f"    … {len(events) - EVENTS_SHOWN} more before")
        lines += [f"    {line_of(event)}" for event in events[-EVENTS_SHOWN:]]
    return "\n".join(lines)


def line_of(event: dict[str, Any]) -> str:
    """One event."""
    said = f"{event['at']} {event['what']}"
    if event["consumer"]:
        said += f" {event['consumer']}"
    if event["until"]:
        leased = event["what"] in ("pulled", "extended")
        word = "until" if leased else "tried again" if event["what"] == "parked" else "due again"
        said += f", {word} {event['until']}"
    if event["error"] and (event["error"]["reason"] or event["error"]["fingerprint"]):
        said += f": {event['error']['reason'] or event['error']['fingerprint']}"
    return said

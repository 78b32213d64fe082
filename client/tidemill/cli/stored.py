"""What `find` and `browse` have in common: their options, and how stored messages are printed."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.session import Output, parse_subject_argument
from tidemill.cli.tables import message_as_json, print_rows, print_value, timestamp

if TYPE_CHECKING:
    from tidemill import Client
    from tidemill.search import StoredMessage

COUNT_DEFAULT = 100
BODY_CHARS_SHOWN = 200
COLUMNS = ("id", "subject", "sequence", "stored_at", "key", "tags", "body")


def parse_subject_option(written: str | None) -> str | None:
    """A subject's name; those that begin with a % can be looked at, though nobody sends to them."""
    return None if written is None else parse_stored_subject(written)


def parse_stored_subject(written: str) -> str:
    parse_subject_argument(written.replace("%", "") or "%")
    return written


def parse_time(written: str | None) -> str | None:
    """Checked before anything is connected; kept as text, because that is what an option is."""
    bound_of(written)
    return written


def bound_of(written: str | None) -> datetime | None:
    """A time such as 2026-09-01T00:00:00Z, or a day."""
    from tidemill_wire.schema import parse_timestamp

    if written is None:
        return None
    at_ms = parse_timestamp(written if len(written) > len("2026-09-01") else f"{written}T00:00:00Z")
    if at_ms is None or at_ms < 0:
        raise typer.BadParameter(
            f"{written[:60]!r} is no time: write one such as 2026-09-01T00:00:00Z or 2026-09-01"
        )
    return datetime.fromtimestamp(at_ms / 1000, UTC)


FromOption = Annotated[
    str | None, typer.Option("--from", metavar="TIME", callback=parse_time, help="Stored then or later.")
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="TIME", callback=parse_time, help="Stored before then.")
]
CountOption = Annotated[int, typer.Option("--count", "-n", min=1, help="So many messages at most.")]
NewestOption = Annotated[bool, typer.Option("--newest", help="The newest first.")]


def print_stand_ins(client: Client) -> None:
    """Whoever looks at a slave's answers is told so, and what that means."""
    for group, slave in client.stand_ins.items():
        print(
            f"tidemill: the master of {group} does not answer, its slave {slave} was asked: the newest may be missing",
            file=sys.stderr,
        )


async def print_search(messages: AsyncIterable[StoredMessage], output: Output) -> int:
    """A table, or each by itself as they come; how many there were."""
    printed = 0
    rows: list[dict[str, Any]] = []
    try:
        async for message in messages:
            printed += 1
            if output is not Output.TABLE:
                print_value(as_json(message), output)
            else:
                rows.append(as_row(message))
    finally:  # those that were found are shown, too, when a broker cannot be asked
        if rows:
            print_rows(rows, COLUMNS, output, "")
        sys.stdout.flush()
    return printed


def as_json(message: StoredMessage) -> dict[str, Any]:
    """A message as an object: what `consume` prints of it, and what only a stored one has."""
    created_at = None if message.created_at is None else timestamp(message.created_at)
    return {**message_as_json(message), "origin": message.origin, "created_at": created_at}


def as_row(message: StoredMessage) -> dict[str, Any]:
    """A message as a line of a table; a long body is cut."""
    text = message.body.decode(errors="replace")
    return {
        "id": message.id,
        "subject": message.subject,
        "sequence": message.sequence,
        "stored_at": timestamp(message.stored_at),
        "key": message.key,
        "tags": sorted(message.tags),
        "body": text if len(text) <= BODY_CHARS_SHOWN else f"{text[:BODY_CHARS_SHOWN]}…",
    }

"""`tidemill browse`: the messages of a subject as they are stored. Nothing is consumed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tidemill.cli.completing import complete_subject
from tidemill.cli.failures import wrong_usage
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, connected, perform
from tidemill.cli.stored import (
    COUNT_DEFAULT,
    CountOption,
    FromOption,
    NewestOption,
    ToOption,
    bound_of,
    parse_stored_subject,
    print_search,
    print_stand_ins,
)


def browse(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            callback=parse_stored_subject,
            help="The subject's name.",
            autocompletion=complete_subject,
        ),
    ],
    sequence: Annotated[int | None, typer.Option(min=0, help="From this sequence on.")] = None,
    start: FromOption = None,
    end: ToOption = None,
    count: CountOption = COUNT_DEFAULT,
    newest: NewestOption = False,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Look at a subject's messages, and leave them to their consumers."""
    if sequence is not None and start is not None:
        raise wrong_usage("a subject is browsed from a --sequence or --from a time: leave one of them out")

    async def run() -> None:
        first = bound_of(start) if sequence is None else sequence
        async with connected(server) as client:
            found = client.browse(subject, start=first, end=bound_of(end), newest=newest, limit=count)
            try:
                if not await print_search(found, output) and output is Output.TABLE:
                    print(f"There is no such message in {subject}.", file=sys.stderr)
            finally:
                print_stand_ins(client)

    perform(run(), server)

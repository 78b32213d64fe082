"""`tidemill find`: stored messages by id, or by key, or by subject and time. Nothing is consumed."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, connected, perform
from tidemill.cli.stored import (
    COUNT_DEFAULT,
    CountOption,
    FromOption,
    NewestOption,
    ToOption,
    bound_of,
    parse_subject_option,
    print_search,
    print_stand_ins,
)
from tidemill.cli.texts import parse_text

if TYPE_CHECKING:
    from tidemill import Client
    from tidemill.search import StoredMessage


def find(
    identity: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A message's id, as `tidemill send` prints it.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", callback=parse_subject_option, help="Of this subject only.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", callback=parse_text, help="With exactly this key.")
    ] = None,
    start: FromOption = None,
    end: ToOption = None,
    count: CountOption = COUNT_DEFAULT,
    newest: NewestOption = False,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find stored messages by id, key, or subject and time.

    One by its ID, all with a --key, those of a --subject within --from and --to. It is a failure when nothing is found.
    """
    timed = start is not None or end is not None
    if identity is not None and (subject is not None or key is not None or timed):
        raise wrong_usage("an ID finds one message: leave out --subject, --key, --from and --to")
    if identity is None and not key and (subject is None or not timed):
        raise wrong_usage("say what to find: an ID, a --key, or a --subject with --from or --to")

    def search(client: Client) -> AsyncIterator[StoredMessage]:
        if identity is not None:
            return _one(client, identity)
        since, before = bound_of(start), bound_of(end)
        if key:
            return client.find_by_key(subject, key, start=since, end=before, newest=newest, limit=count)
        assert subject is not None
        return client.browse(subject, start=since, end=before, newest=newest, limit=count)

    async def run() -> None:
        async with connected(server) as client:
            try:
                if not await print_search(search(client), output):
                    raise CommandFailed("no message is like that: it may have expired, or never been sent")
            finally:
                print_stand_ins(client)

    perform(run(), server)


async def _one(client: Client, identity: str) -> AsyncIterator[StoredMessage]:
    try:
        found = await client.find(identity)
    except ValueError as error:
        raise wrong_usage(str(error)) from None
    if found is None:
        return
    if found.id != identity:
        print(f"tidemill: {identity} is not kept any more; this is a dead letter of it", file=sys.stderr)
    yield found

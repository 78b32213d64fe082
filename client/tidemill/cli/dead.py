"""`tidemill dead`: what a group could not handle, and what is to become of it."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.completing import complete_group
from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import (
    SERVER_DEFAULT,
    Output,
    OutputOption,
    ServerOption,
    SubjectArgument,
    YesOption,
    connected,
    interactive,
    perform,
    progress,
)
from tidemill.cli.stored import as_json, bound_of, parse_time
from tidemill.cli.tables import print_fields, print_rows, print_value, timestamp
from tidemill.cli.texts import parse_text
from tidemill_wire.counted import counted

if TYPE_CHECKING:
    from tidemill.dead import Chosen, DeadLetter, DeadLetters
    from tidemill.errors import BrokerUnreachable

COLUMNS = ("id", "attempts", "failed_at", "fingerprint", "reason", "place")
CHUNK = 500

GroupOption = Annotated[
    str, typer.Option("--group", "-g", help="The consumer group.", autocompletion=complete_group)
]
IdOption = Annotated[list[str] | None, typer.Option("--id", help="Of this message only; may be repeated.")]
FromOption = Annotated[
    str | None, typer.Option("--from", metavar="TIME", callback=parse_time, help="Failed then or later.")
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="TIME", callback=parse_time, help="Failed before then.")
]
ReasonOption = Annotated[
    str, typer.Option("--reason", callback=parse_text, help="With this text in the reason.")
]
FingerprintOption = Annotated[
    str, typer.Option("--fingerprint", callback=parse_text, help="Of this mistake only.")
]
CountOption = Annotated[int | None, typer.Option("--count", "-n", min=1, help="So many at most.")]
RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.001, metavar="N", help="At most N messages a second.")
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")]


def build() -> typer.Typer:
    """The commands below `tidemill dead`."""
    application = typer.Typer(
        help="Look at what a group could not handle, and settle it.",
        no_args_is_help=True,
    )
    application.command("list")(list_letters)
    application.command("show")(show)
    application.command("redrive")(redrive)
    application.command("purge")(purge)
    return application


def list_letters(
    subject: SubjectArgument,
    group: GroupOption,
    identity: IdOption = None,
    start: FromOption = None,
    end: ToOption = None,
    reason: ReasonOption = "",
    fingerprint: FingerprintOption = "",
    count: CountOption = None,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the dead letters of a group, the oldest first."""
    chosen = _chosen(identity, (start, end), reason, fingerprint)

    async def run() -> None:
        if output is not Output.TABLE:
            async with _letters(server, subject, group) as letters:
                async for letter in letters.chosen(chosen, count):
                    print_value(_row(letter), output)
            return
        async with _letters(server, subject, group) as letters:
            found, missed = await _found(letters, chosen, count)
        rows = [_row(letter) for letter in found]
        print_rows(rows, COLUMNS, output, f"Group {group} has no such dead letters of {subject}.")
        if missed is not None:
            raise missed

    perform(run(), server)


def show(
    subject: SubjectArgument,
    group: GroupOption,
    identity: Annotated[str, typer.Argument(metavar="ID", help="The message's id.")],
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one dead letter with all that is known of it."""

    async def run() -> None:
        async with _letters(server, subject, group) as letters:
            async for letter in letters.chosen(_chosen([identity], (None, None), "", ""), 1):
                whole = {**_row(letter), **as_json(letter.message), "id": letter.id}
                print_fields(whole, output)
                return
        raise CommandFailed(f"no dead letter of group {group} has that id: look with `tidemill dead list`")

    perform(run(), server)


def redrive(
    subject: SubjectArgument,
    group: GroupOption,
    identity: IdOption = None,
    start: FromOption = None,
    end: ToOption = None,
    reason: ReasonOption = "",
    fingerprint: FingerprintOption = "",
    count: CountOption = None,
    rate: RateOption = None,
    dry_run: DryOption = False,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give dead letters to their group again, with no attempt behind them."""
    chosen = _chosen(identity, (start, end), reason, fingerprint)
    perform(
        _settle("redrive", (subject, group), chosen, (count, rate, dry_run, yes), (server, output)), server
    )


def purge(
    subject: SubjectArgument,
    group: GroupOption,
    identity: IdOption = None,
    start: FromOption = None,
    end: ToOption = None,
    reason: ReasonOption = "",
    fingerprint: FingerprintOption = "",
    count: CountOption = None,
    dry_run: DryOption = False,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove dead letters: they are not listed any more, and not given out again."""
    chosen = _chosen(identity, (start, end), reason, fingerprint)
    perform(_settle("purge", (subject, group), chosen, (count, None, dry_run, yes), (server, output)), server)


async def _settle(
    verb: str,
    names: tuple[str, str],
    chosen: Chosen,
    how: tuple[int | None, float | None, bool, bool],
    where: tuple[str, Output],
) -> None:
    count, rate, dry_run, yes = how
    server, output = where
    async with _letters(server, *names) as letters:
        found, missed = await _found(letters, chosen, count)
        done = 0
        if found and not dry_run:
            _confirm(verb, len(found), names[1], yes)
            with progress(verb, len(found)) as advance:
                async for part in _paced(found, rate):
                    done += await (letters.redrive(part) if verb == "redrive" else letters.purge(part))
                    advance(len(part))
        left = (await letters.status())["waiting"]
    settled = "redriven" if verb == "redrive" else "purged"
    _tell({"found": len(found), settled: done, "left": left}, settled, output, dry_run=dry_run)
    if missed is not None:
        raise missed


async def _found(
    letters: DeadLetters, chosen: Chosen, count: int | None
) -> tuple[list[DeadLetter], BrokerUnreachable | None]:
    """Those that can be reached, and which brokers could not be asked for theirs."""
    from tidemill.errors import BrokerUnreachable

    found: list[DeadLetter] = []
    try:
        async for letter in letters.chosen(chosen, count):
            found.append(letter)  # noqa: PERF401 - what was found is kept when a broker fails
    except BrokerUnreachable as error:
        if not found:
            raise
        return found, error
    return found, None


def _tell(result: dict[str, int], settled: str, output: Output, *, dry_run: bool) -> None:
    """What became of them."""
    found, done, left = result.values()
    if output is not Output.TABLE:
        print_value(result, output)
    elif dry_run:
        print(f"{found:,} of {counted(left, 'dead letter')} would be {settled}.")
    else:
        were, are = "was" if done == 1 else "were", "is" if left == 1 else "are"
        print(f"{counted(done, 'dead letter')} {were} {settled}, {left:,} {are} left.")


def _confirm(verb: str, count: int, group: str, yes: bool) -> None:
    if yes:
        return
    if not interactive(sys.stdin):
        raise wrong_usage(
            f"{counted(count, 'dead letter')} would be concerned: say --yes, or look first with --dry-run"
        )
    what = "be given to group" if verb == "redrive" else "be removed for ever, of group"
    typer.confirm(f"{counted(count, 'dead letter')} will {what} {group}. Go on?", abort=True, err=True)


async def _paced(letters: list[DeadLetter], rate: float | None) -> AsyncGenerator[list[DeadLetter]]:
    """Parts of them, not more than ``rate`` a second."""
    import asyncio

    loop = asyncio.get_running_loop()
    size = CHUNK if rate is None else max(1, min(CHUNK, int(rate / 4)))
    began = loop.time()
    for at in range(0, len(letters), size):
        if rate is not None:
            await asyncio.sleep(max(0.0, began + at / rate - loop.time()))
        yield letters[at : at + size]


@asynccontextmanager
async def _letters(server: str, subject: str, group: str) -> AsyncGenerator[DeadLetters]:
    """The dead letters of a group, over a client that is closed afterwards."""
    async with connected(server) as client:
        yield client.dead_letters(subject, group)


def _chosen(
    ids: list[str] | None, span: tuple[str | None, str | None], reason: str, fingerprint: str
) -> Chosen:
    from tidemill.dead import Chosen

    return Chosen(frozenset(ids or ()), bound_of(span[0]), bound_of(span[1]), reason, fingerprint)


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "broker": letter.broker,
        "partition": letter.partition,
        "sequence": letter.sequence,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "fingerprint": letter.fingerprint,
        "error": letter.error,
        "place": letter.place,
        "failed_at": timestamp(letter.failed_at),
        "key": letter.message.key,
    }

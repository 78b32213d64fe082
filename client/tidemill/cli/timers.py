"""`tidemill timers`: messages that wait for their time, and what is to become of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import (
    SERVER_DEFAULT,
    Output,
    OutputOption,
    ServerOption,
    SubjectArgument,
    connected,
    perform,
)
from tidemill.cli.stored import bound_of, parse_subject_option, parse_time
from tidemill.cli.tables import print_fields, print_rows, print_value, timestamp
from tidemill.cli.texts import parse_text
from tidemill.cli.when import NOW, AtOption, DelayOption, parse_when
from tidemill_wire.counted import counted

if TYPE_CHECKING:
    from tidemill.timers import Changed, Timer

COLUMNS = ("id", "timer_key", "due", "stored_at", "size", "cron")

IdArgument = Annotated[str | None, typer.Argument(metavar="[ID]", help="The message's id.")]
SubjectOption = Annotated[
    str | None,
    typer.Option("--subject", callback=parse_subject_option, help="The subject of the --timer-key."),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--timer-key", "-k", callback=parse_text, help="All that wait under this timer key."),
]


def build() -> typer.Typer:
    """The commands below `tidemill timers`."""
    application = typer.Typer(
        help="Look at messages that wait for their time, cancel them, give them another one.",
        no_args_is_help=True,
    )
    application.command("list")(list_timers)
    application.command("show")(show)
    application.command("cancel")(cancel)
    application.command("reschedule")(reschedule)
    return application


def list_timers(
    subject: SubjectArgument,
    prefix: Annotated[
        str, typer.Option("--prefix", callback=parse_text, help="Of timer keys that begin so.")
    ] = "",
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", callback=parse_time, help="Due then or later.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", callback=parse_time, help="Due before then.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="So many at most.")] = None,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """List a subject's messages that wait under timer keys."""

    async def run() -> None:
        rows: list[dict[str, Any]] = []
        async with connected(server) as client:
            found = client.timers(subject, prefix, since=bound_of(start), until=bound_of(end), limit=count)
            async for timer in found:
                if output is not Output.TABLE:
                    print_value(_row(timer), output)
                else:
                    rows.append(_row(timer))
        if output is Output.TABLE:
            print_rows(rows, COLUMNS, output, f"No message of {subject} waits under such a timer key.")

    perform(run(), server)


def show(
    identity: IdArgument = None,
    subject: SubjectOption = None,
    timer_key: KeyOption = None,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a message that waits: by its ID, or the first that is due under a --timer-key."""
    _check_target(identity, subject, timer_key)

    async def run() -> None:
        async with connected(server) as client:
            timer = await client.timer(identity, subject=subject, timer_key=timer_key)
        if timer is None:
            raise _nothing()
        body = None if timer.body is None else timer.body.decode(errors="replace")
        row = {**_row(timer), "subject": timer.subject, "body": body}
        print_fields(row, output)

    perform(run(), server)


def cancel(
    identity: IdArgument = None,
    subject: SubjectOption = None,
    timer_key: KeyOption = None,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Cancel what waits: by its ID, or all under a --timer-key. It is a failure when nothing could be cancelled."""
    _check_target(identity, subject, timer_key)

    async def run() -> None:
        async with connected(server) as client:
            changed = await client.cancel(identity, subject=subject, timer_key=timer_key)
        _tell(changed, "cancelled", output)

    perform(run(), server)


def reschedule(
    identity: IdArgument = None,
    subject: SubjectOption = None,
    timer_key: KeyOption = None,
    delay: DelayOption = None,
    at: AtOption = None,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give what waits another time: by its ID, or all under a --timer-key. A failure when nothing could be."""
    _check_target(identity, subject, timer_key)
    when = parse_when(delay, at)
    if when == NOW:
        raise wrong_usage("say the new time: --delay or --at")

    async def run() -> None:
        async with connected(server) as client:
            changed = await client.reschedule(
                identity, subject=subject, timer_key=timer_key, delay=when.delay, at=when.at
            )
        _tell(changed, "rescheduled", output)

    perform(run(), server)


def _check_target(identity: str | None, subject: str | None, timer_key: str | None) -> None:
    """Refused before anything is connected."""
    from tidemill.timers import target_of
    from tidemill_wire.errors import Refused

    if identity is not None and (subject is not None or timer_key is not None):
        raise wrong_usage("an ID means one message: leave out --subject and --timer-key")
    if identity is None and (subject is None or timer_key is None):
        raise wrong_usage("say which messages: an ID, or --subject and --timer-key")
    try:
        target_of(identity, subject, timer_key)
    except ValueError as error:
        raise wrong_usage(str(error)) from None
    except Refused as error:
        raise wrong_usage(f"{error.detail}: {error.kind.advice}") from None


def _tell(changed: Changed, done: str, output: Output) -> None:
    if output is not Output.TABLE:
        print_value({done: changed.changed, "gone": changed.gone}, output)
    elif changed.changed:
        gone = f", {changed.gone:,} went before" if changed.gone else ""
        print(f"{counted(changed.changed, 'message')} {done}{gone}.")
    sys.stdout.flush()
    if changed.changed:
        return
    if changed.gone:
        raise CommandFailed(
            f"too late, {counted(changed.gone, 'message')} went to the subject before: look with `tidemill why ID`"
        )
    raise _nothing()


def _nothing() -> CommandFailed:
    return CommandFailed(
        "no such message waits: it was given out or cancelled before, or never sent for later; "
        "look with `tidemill timers list` and `tidemill find`"
    )


def _row(timer: Timer) -> dict[str, Any]:
    return {
        "id": timer.id,
        "timer_key": timer.timer_key,
        "due": timestamp(timer.due),
        "stored_at": timestamp(timer.stored_at),
        "size": timer.size,
        "cron": timer.cron,
    }

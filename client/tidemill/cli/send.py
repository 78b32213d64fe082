"""`tidemill send`: one message, or a file of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Annotated

import typer

from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import (
    SERVER_DEFAULT,
    Form,
    FormOption,
    ServerOption,
    SubjectArgument,
    connected,
    interactive,
    open_input,
    perform,
)
from tidemill.cli.tables import written
from tidemill.cli.texts import parse_tags, parse_text, parse_texts
from tidemill.cli.when import (
    NOW,
    AtOption,
    CronOption,
    DelayOption,
    MissedOption,
    TimerKeyOption,
    When,
    ZoneOption,
    parse_when,
)
from tidemill_wire.counted import counted
from tidemill_wire.limits import KEY_BYTES_MAX

if TYPE_CHECKING:
    from tidemill import Client
    from tidemill.receipts import Receipt


@dataclass(frozen=True, slots=True)
class Labels:
    """What is said of a message beside its body."""

    key: str | None
    tags: tuple[str, ...]
    properties: dict[str, str]
    priority: int = 0
    order_key: str | None = None
    when: When = NOW
    dedup_key: str | None = None
    timer_key: str | None = None
    rule: tuple[str | None, str | None, str | None] = (None, None, None)
    """Expression, time zone, what becomes of those that were missed."""


PLAIN = Labels(None, (), {})


def send(
    subject: SubjectArgument,
    body: Annotated[
        str | None, typer.Argument(metavar="[BODY]", help="The message. Without it, standard input is.")
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(metavar="FILE|-", help="Send every line of a file as a message, - is standard input."),
    ] = None,
    file: Annotated[str | None, typer.Option(metavar="FILE|-", help="Send a file as one message.")] = None,
    key: Annotated[
        str | None, typer.Option(callback=parse_text, help="A key to look the message up by.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(callback=parse_tags, help="A tag to filter by; may be repeated.")
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", callback=parse_texts, help="A property; may be repeated."
        ),
    ] = None,
    priority: Annotated[
        int, typer.Option(metavar="0..7", help="Higher ones are given out before lower ones.")
    ] = 0,
    order_key: Annotated[
        str | None,
        typer.Option(callback=parse_text, help="Messages with the same one are handled in their order."),
    ] = None,
    dedup_key: Annotated[
        str | None,
        typer.Option(callback=parse_text, help="Of messages with the same one, the first is stored."),
    ] = None,
    delay: DelayOption = None,
    at: AtOption = None,
    timer_key: TimerKeyOption = None,
    cron: CronOption = None,
    time_zone: ZoneOption = None,
    missed: MissedOption = None,
    server: ServerOption = SERVER_DEFAULT,
    output: FormOption = Form.TEXT,
) -> None:
    """Send messages and print their ids.

    An id is printed when the queue has answered that its message is stored. Of --lines on a terminal a person is shown
    how far it is, and a sum; ids are printed into a file or pipe, and with --output json.
    """
    if sum(each is not None for each in (body, lines, file)) > 1:
        raise wrong_usage("BODY, --file and --lines exclude each other: give one of them")
    named = key, tuple(tag or ()), _properties(property_ or [])
    labels = Labels(
        *named, parse_priority_option(priority), order_key, parse_when(delay, at), dedup_key, timer_key,
        (cron, time_zone, missed),
    )  # fmt: skip
    _check_labels(labels, many=lines is not None)
    if lines is not None:
        perform(_send_lines(server, subject, open_input(lines), labels, output), server)
    else:
        perform(_send_one(server, subject, _body(body, file), labels, output), server)


def _check_labels(labels: Labels, *, many: bool) -> None:
    """Refused before anything is connected."""
    timer_key = labels.timer_key
    if labels.dedup_key is not None and many:
        raise wrong_usage(
            "--dedup-key names one message, and --lines has many: all but the first were dropped"
        )
    if timer_key is not None and labels.when == NOW and labels.rule == PLAIN.rule:
        raise wrong_usage("--timer-key is of a message for later: add --delay, --at or --cron")
    if timer_key is not None and not 0 < len(timer_key.encode(errors="replace")) <= KEY_BYTES_MAX:
        raise wrong_usage(f"--timer-key {timer_key[:60]!r} is no text of 1 to {KEY_BYTES_MAX} bytes")
    _check_rule(labels, many=many)


def _check_rule(labels: Labels, *, many: bool) -> None:
    """The same for a message that recurs."""
    if labels.rule == PLAIN.rule:
        return
    from tidemill.recurring import Rule, due_of
    from tidemill_wire.errors import Refused

    if labels.rule[0] is not None and labels.timer_key is None:
        raise wrong_usage("a message that recurs is ended by its timer key: add --timer-key KEY")
    if many:
        raise wrong_usage("--cron is of one message, and --lines has many: send them one by one")
    try:
        due_of(
            Rule(*labels.rule), *labels.when, (labels.timer_key, labels.dedup_key), round(1000 * time.time())
        )
    except ValueError as error:
        raise wrong_usage(str(error)) from None
    except Refused as error:
        raise wrong_usage(f"{error.detail}: {error.kind.advice}") from None


def parse_priority_option(priority: int) -> int:
    """Refused before anything is connected."""
    from tidemill_wire.errors import Refused
    from tidemill_wire.lanes import parse_priority

    try:
        return parse_priority(priority)
    except Refused as error:
        raise wrong_usage(f"{error.detail}: {error.kind.advice}") from None


async def _send_one(server: str, subject: str, body: bytes, labels: Labels, output: Form) -> None:
    async with connected(server) as client:
        receipts = await _send_each(client, subject, [body], labels)
    _print_receipts(receipts, output)


async def _send_lines(server: str, subject: str, source: IO[bytes], labels: Labels, output: Form) -> None:
    """Chunk by chunk: what is printed is stored, and the memory is bounded whatever the file is."""
    from tidemill.cli.lines import chunks_of_lines

    watched = interactive(sys.stdout) and output is Form.TEXT
    receipts: Sequence[Receipt]
    with source, _sum(subject, watched) as add, _progress(source, watched) as advance:
        async with connected(server) as client:
            async for bodies in chunks_of_lines(source):
                if replace(labels, priority=0, when=NOW) == PLAIN:
                    delay, at = labels.when
                    receipts = await client.send_many(
                        subject, bodies, priority=labels.priority, delay=delay, at=at
                    )
                else:
                    receipts = await _send_each(client, subject, bodies, labels)
                if not watched:
                    _print_receipts(receipts, output)
                add(len(receipts))
                advance(len(bodies), sum(map(len, bodies)) + len(bodies))


async def _send_each(client: Client, subject: str, bodies: Sequence[bytes], labels: Labels) -> list[Receipt]:
    """Every message with the same key, tags and properties."""
    import asyncio

    rule = dict(zip(("cron", "time_zone", "missed"), labels.rule, strict=True)) if any(labels.rule) else {}
    async with asyncio.TaskGroup() as sending:
        sent = [
            sending.create_task(
                client.send(
                    subject,
                    body,
                    key=labels.key,
                    tags=labels.tags,
                    properties=labels.properties,
                    priority=labels.priority,
                    order_key=labels.order_key,
                    dedup_key=labels.dedup_key,
                    delay=labels.when.delay,
                    at=labels.when.at,
                    timer_key=labels.timer_key,
                    **rule,
                )
            )
            for body in bodies
        ]
    return [each.result() for each in sent]


def _print_receipts(receipts: Sequence[Receipt], output: Form) -> None:
    if output is Form.TEXT:
        shown = (receipt.id for receipt in receipts)
    else:
        shown = (written(_row(receipt), output) for receipt in receipts)
    sys.stdout.write("".join(f"{line}\n" for line in shown))
    sys.stdout.flush()


def _row(receipt: Receipt) -> dict[str, object]:
    row: dict[str, object] = {"id": receipt.id, "subject": receipt.subject, "sequence": receipt.sequence}
    return row | {"duplicate": True} if receipt.duplicate else row


def _body(body: str | None, file: str | None) -> bytes:
    from tidemill_wire.limits import MESSAGE_BYTES_MAX

    if body is not None:
        return body.encode(
            errors="surrogateescape"
        )  # bytes of the command line that are no text stay what they were
    if file is None and interactive(sys.stdin):
        raise wrong_usage(
            "there is nothing to send: give a BODY, --file FILE, --lines FILE, or pipe a message in"
        )
    try:
        with open_input(file or "-") as source:
            content: bytes = source.read(MESSAGE_BYTES_MAX + 1)
    except OSError as error:
        raise CommandFailed(
            f"{file or 'standard input'} cannot be read ({error.strerror}): look at the file"
        ) from None
    if len(content) > MESSAGE_BYTES_MAX:
        raise CommandFailed(
            f"the message is over {MESSAGE_BYTES_MAX} bytes: send it in parts, or a reference to where it is kept"
        )
    return content


def _properties(written: list[str]) -> dict[str, str]:
    properties: dict[str, str] = {}
    for pair in written:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise wrong_usage(f"--property {pair!r} has no name and value: write NAME=VALUE")
        properties[name] = value
    return properties


@contextmanager
def _sum(subject: str, watched: bool) -> Generator[Callable[[int], None]]:
    """One line for a person about all that was stored, also when it was not all that was to be sent."""
    began, sent, before = time.monotonic(), 0, "at least "  # of a chunk that failed some may be stored

    def add(messages: int) -> None:
        nonlocal sent
        sent += messages

    try:
        yield add
        before = ""
    finally:
        if watched:
            said = f"{before}{counted(sent, 'message')} sent to {subject} in {time.monotonic() - began:.1f} s"
            print(said, flush=True)


@contextmanager
def _progress(source: IO[bytes], watched: bool) -> Generator[Callable[[int, int], None]]:
    """A bar on standard error when somebody watches it, and nothing that is printed beside it gets between; its length
    is known of files, not of pipes.
    """
    if not interactive(sys.stderr) or (interactive(sys.stdout) and not watched):
        yield lambda _messages, _bytes: None
        return
    import os
    import stat

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    status = os.fstat(source.fileno())
    columns = (BarColumn(), TextColumn("{task.fields[messages]:,} messages"), TimeElapsedColumn())
    console = Console(stderr=True)
    # Without redirect_stdout=False what is printed would go where the bar is: ids that are meant for a pipe.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(
            "send", total=status.st_size if stat.S_ISREG(status.st_mode) else None, messages=0
        )
        sent = 0

        def advance(messages: int, size: int) -> None:
            nonlocal sent
            sent += messages
            bar.update(task, advance=size, messages=sent)

        yield advance

"""`tidemill consume`: messages to standard output, acknowledged once they are written there; or to a command."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.completing import complete_group, complete_subject
from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.outlet import Outlet, Written
from tidemill.cli.session import (
    SERVER_DEFAULT,
    Form,
    FormOption,
    ServerOption,
    connected,
    parse_subscribed_argument,
    perform,
)
from tidemill.cli.tables import message_as_json, written
from tidemill.cli.texts import parse_command, parse_tags
from tidemill_wire.counted import counted

if TYPE_CHECKING:
    from tidemill import Consumer, Message
    from tidemill.subscription import Sharing

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 2.0  # for a line that nobody reads, when it is over
NOT_ACKED = "what it did not read was not acknowledged"
TURN_MESSAGES = 256  # written before the event loop has its turn


class Matching(StrEnum):
    """How many of the tags a message must have."""

    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Wish:
    """What to consume and when to stop."""

    subjects: tuple[str, ...]
    group: str
    start: str | int
    tags: tuple[str, ...]
    match: Matching
    sharing: Sharing
    name: str | None
    count: int | None
    timeout_seconds: float | None
    command: str | None = None


def parse_subjects(written: list[str]) -> list[str]:
    return [parse_subscribed_argument(name) for name in written]


def parse_group_option(written: str) -> str:
    from tidemill_wire.errors import Refused
    from tidemill_wire.fields import parse_group

    try:
        return parse_group(written)
    except Refused as error:
        raise typer.BadParameter(f"{error.detail}: {error.kind.advice}") from None


def parse_name_option(written: str | None) -> str | None:
    from tidemill_wire.errors import Refused
    from tidemill_wire.fields import parse_consumer

    try:
        return None if written is None else parse_consumer(written)
    except Refused as error:
        raise typer.BadParameter(f"{error.detail}: {error.kind.advice}") from None


def parse_start(written: str) -> str:
    """earliest, latest or a time; kept as text, because that is what an option is."""
    start_of(written)
    return written


def start_of(written: str) -> str | int:
    """Where a new group begins: a word, or milliseconds since 1970."""
    from tidemill_wire.schema import parse_timestamp

    if written in ("earliest", "latest"):
        return written
    at_ms = parse_timestamp(written if len(written) > len("2026-09-01") else f"{written}T00:00:00Z")
    if at_ms is None or at_ms < 0:
        raise typer.BadParameter(
            f"{written[:60]!r} is no place to start: write earliest, latest, "
            "or a time such as 2026-09-01T00:00:00Z or 2026-09-01"
        )
    return at_ms


ExclusiveOption = Annotated[
    bool,
    typer.Option("--exclusive", help="In order, one consumer of the group at a time; the others wait."),
]
BroadcastOption = Annotated[
    bool,
    typer.Option("--broadcast", help="In order, and every consumer is given all messages; see --name."),
]
OnceOption = Annotated[
    bool,
    typer.Option(
        "--at-most-once", help="What is given out counts as handled, printed or not, and never comes again."
    ),
]
ExecOption = Annotated[
    str | None,
    typer.Option(
        "--exec",
        metavar="COMMAND",
        callback=parse_command,
        help="Run this for each message, which it has on standard input and in TIDEMILL_ID, TIDEMILL_KEY and the like. "
        "Exit code 0 acknowledges it; any other is a failure, with the last line of standard error as the reason.",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=parse_name_option,
        help="This consumer's name; without one it is random. With --broadcast it goes on where that name was.",
    ),
]


SubjectsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SUBJECT", callback=parse_subjects, autocompletion=complete_subject,
        help="One subject or more; order.* is all that begin so.",
    ),
]  # fmt: skip
GroupOption = Annotated[
    str,
    typer.Option(
        "--group", "-g", callback=parse_group_option, autocompletion=complete_group,
        help="The consumer group to be part of.",
    ),
]  # fmt: skip


def consume(
    subjects: SubjectsArgument,
    group: GroupOption = "cli",
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="earliest|latest|TIME", callback=parse_start, help="Where a new group begins."
        ),
    ] = "earliest",
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            metavar="TAG",
            callback=parse_tags,
            help="Only messages with this tag. May be given several times.",
        ),
    ] = None,
    match: Annotated[
        Matching, typer.Option("--match", help="Whether a message must have any or all of the tags.")
    ] = Matching.ANY,
    exclusive: ExclusiveOption = False,
    broadcast: BroadcastOption = False,
    at_most_once: OnceOption = False,
    name: NameOption = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after so many messages.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="Stop after so long; with --count, too few is a failure."
        ),
    ] = None,
    command: ExecOption = None,
    server: ServerOption = SERVER_DEFAULT,
    output: FormOption = Form.TEXT,
) -> None:
    """Write messages to standard output, or let a command handle them.

    One a line, until Ctrl-C. A message is acknowledged after its line is written and flushed; with --exec when the
    command has ended well, and given out again, as the group's policy says, when it has not.
    As JSON, a body that is not UTF-8 is {"base64": "..."} instead of a text.
    """
    if exclusive and broadcast:
        raise wrong_usage("--exclusive and --broadcast exclude each other: give one of them")
    from tidemill.subscription import Sharing

    sharing = Sharing(at_most_once, exclusive, broadcast)
    wish = Wish(
        tuple(subjects), group, start_of(start), tuple(tag or ()), match,
        sharing, name, count, timeout, command,
    )  # fmt: skip
    perform(_consume(server, wish, output), server, unread=NOT_ACKED)


async def _consume(server: str, wish: Wish, output: Form) -> None:
    ending, outlet = Ending(wish.timeout_seconds), Outlet()
    taken = 0
    async with (
        connected(server) as client,
        client.consume(
            wish.subjects, group=wish.group, start=wish.start, name=wish.name, tags=wish.tags,
            match=wish.match.value, at_most_once=wish.sharing.at_most_once, exclusive=wish.sharing.exclusive,
            broadcast=wish.sharing.broadcast,
        ) as messages,
        ending.of(messages),
    ):  # fmt: skip
        async for message in messages:
            if wish.command is not None:
                await _execute(message, wish, output, ending)
            elif (written := outlet.write(_line(message, output) + b"\n")) is not None:
                await ending.outlive(written)
            taken += 1
            if taken == wish.count or ending.is_over:
                break
            if taken % TURN_MESSAGES == 0:
                await asyncio.sleep(0)  # signals and time are looked at between turns of the loop
    if wish.count is not None and taken < wish.count and not ending.by_signal:
        within = "" if wish.timeout_seconds is None else f" within {wish.timeout_seconds:g} s"
        raise CommandFailed(
            f"{taken:,} of {counted(wish.count, 'message')} came{within}: wait longer, or ask for fewer"
        )


class Ending:
    """When it is over: at the first SIGINT or SIGTERM, which drain, or when the time is.

    The consumer is then closed beneath the loop that reads it: what was written is acknowledged, what was not begun is
    given back. A line that is being written is waited for, but not for long; then its message is given back, too. A
    second signal ends the process as it always does.
    """

    def __init__(self, timeout_seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._over, self._given_up, self._idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._written: Written | None = None
        self._timeout_seconds = timeout_seconds
        self.by_signal = False

    @asynccontextmanager
    async def of(self, messages: Consumer) -> AsyncGenerator[None]:
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._signalled)
        timer: asyncio.TimerHandle | None = None
        if self._timeout_seconds is not None:
            timer = self._loop.call_later(self._timeout_seconds, self._over.set)
        closing = asyncio.ensure_future(self._close(messages))
        try:
            yield
        finally:
            self._ignore_signals()
            if timer is not None:
                timer.cancel()
            if not self._over.is_set():
                closing.cancel()
            with suppress(asyncio.CancelledError):
                await closing

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    @contextmanager
    def after(self) -> Generator[None]:
        """What is done within is ended first: a consumer that closes acknowledges what its loop holds."""
        self._idle.clear()
        try:
            yield
        finally:
            self._idle.set()

    async def outlive(self, written: Written) -> None:
        """Until a line is written; an error when it is over, and nobody reads."""
        self._written = written
        given_up = asyncio.ensure_future(self._given_up.wait())
        try:
            await asyncio.wait((written, given_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            given_up.cancel()
        if not written.done():
            raise CommandFailed(
                "nobody reads the output, so the last message is not acknowledged and comes again: "
                "look what became of the reader"
            )
        written.result()
        self._written = None

    async def _close(self, messages: Consumer) -> None:
        await self._over.wait()
        await self._idle.wait()
        deadline = self._loop.time() + GRACE_SECONDS
        while self._written is not None and not self._written.done() and self._loop.time() < deadline:
            await asyncio.wait((self._written,), timeout=deadline - self._loop.time())
        line = self._written
        if line is None or (line.done() and line.exception() is None):
            await messages.close()
            return
        # Closed without an error the message in hand would be acknowledged; with this one it is only given back.
        await messages.close(asyncio.CancelledError())
        self._given_up.set()

    def _signalled(self) -> None:
        self.by_signal = True
        self._over.set()
        self._ignore_signals()

    def _ignore_signals(self) -> None:
        for number in SIGNALS:
            self._loop.remove_signal_handler(number)


async def _execute(message: Message, wish: Wish, output: Form, ending: Ending) -> None:
    """Let the command handle it, and say what did not go well."""
    from tidemill.cli.executing import handle

    assert wish.command is not None
    with ending.after():
        failure = await handle(message, wish.command, _line(message, output), wish.group)
    if failure:
        print(f"tidemill: {message.id} failed, {failure}", file=sys.stderr)


def _line(message: Message, output: Form) -> bytes:
    if output is Form.TEXT:
        return message.body
    return written(message_as_json(message), output).encode(errors="surrogateescape")

"""What the commands that talk to a queue have in common: where it is, and a client that is closed whatever happens."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.completing import complete_subject
from tidemill.cli.failures import CommandFailed, explained, wrong_usage
from tidemill.cli.streams import leave_output

if TYPE_CHECKING:
    from tidemill import Client

SERVER_DEFAULT = "127.0.0.1:7401"
ADDRESS = re.compile(r"(?:https?://|tls://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


class Output(StrEnum):
    """How results are written: for people, or an object or a document each for programs."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Form(StrEnum):
    """How what is a line each is written."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def parse_server(written: str) -> str:
    """HOST:PORT of a queue's HTTP port; or several, of replicas of meta, with commas between them."""
    for one in written.split(","):
        matched = ADDRESS.fullmatch(one.strip())
        if matched is None or not 0 < int(matched[2]) < 65536:
            raise typer.BadParameter(
                f"{one[:100]!r} is no address, write HOST:PORT, for example {SERVER_DEFAULT}"
            )
    return written


def parse_subject_argument(written: str) -> str:
    """A subject's name, checked before anything is connected."""
    from tidemill_wire.fields import parse_subject

    if "%" in written:
        raise typer.BadParameter(
            f"{written[:100]!r} has a %, such names are tidemill's own: use A-Z a-z 0-9 . _ -"
        )
    return _checked(parse_subject, written)


def parse_subscribed_argument(written: str) -> str:
    """A subject's name or a pattern."""
    from tidemill_wire.filters import is_pattern, parse_subscribed

    return _checked(parse_subscribed, written) if is_pattern(written) else parse_subject_argument(written)


def _checked(parse: Callable[[str], str], written: str) -> str:
    from tidemill_wire.errors import Refused

    try:
        return parse(written)
    except Refused as error:
        raise typer.BadParameter(f"{error.detail}: {error.kind.advice}") from None


ServerOption = Annotated[
    str,
    typer.Option(
        "--server", "-s", metavar="HOST:PORT", envvar="TIDEMILL_SERVER", callback=parse_server,
        help="Where the queue's HTTP port is.",
    ),
]  # fmt: skip
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How results are written.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
FormOption = Annotated[Form, typer.Option("--output", "-o", help="How each is written.")]
SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT", callback=parse_subject_argument, help="The subject's name.",
        autocompletion=complete_subject,
    ),
]  # fmt: skip


def perform(
    command: Coroutine[Any, Any, None], server: str, loop_factory: Any = None, unread: str = ""
) -> None:
    """Run a command's coroutine; every error a person can cause leaves as ``CommandFailed``. ``unread`` says what
    becomes of what nobody reads.
    """
    import asyncio

    from tidemill_wire.errors import TidemillError

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(command)
        sys.stdout.flush()
    except (
        CommandFailed,
        TidemillError,
        OSError,
        ValueError,
        KeyboardInterrupt,
        BaseExceptionGroup,
    ) as error:
        if isinstance(error, BrokenPipeError):
            leave_output()
        failure = explained(error, server, unread)
        if failure is None:
            raise
        raise failure from None


def listing(
    about: str,
    things: str,
    print_all: Callable[[str, Output], Coroutine[Any, Any, None]],
    list_some: Callable[..., None] | None = None,
) -> typer.Typer:
    """The commands of a noun that lists its things when it is said alone, and by `list`; that may take more options."""
    application = typer.Typer(help=about, rich_markup_mode=None, invoke_without_command=True)

    def alone(
        context: typer.Context, server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
    ) -> None:
        if context.invoked_subcommand is None:
            perform(print_all(server, output), server)

    def listed(server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE) -> None:
        perform(print_all(server, output), server)

    application.callback(invoke_without_command=True)(alone)
    application.command("list", help=f"List {things}.")(list_some or listed)
    return application


@asynccontextmanager
async def connected(server: str) -> AsyncGenerator[Client]:
    """A client of the queue at ``server``."""
    from tidemill import Client

    await find_server(server)
    _listen_to_client()
    async with Client(server) as client:
        yield client


def _listen_to_client() -> None:
    """What a client warns of while it tries on is for whoever waits, in words."""
    import logging

    class Worded(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            event, _, rest = record.getMessage().partition(" ")
            return f"tidemill: {rest.partition(': ')[2] or rest} ({event})"

    log = logging.getLogger("tidemill")
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(Worded())
        log.addHandler(handler)


async def find_server(server: str) -> None:
    """Fail at once when there is no queue: a client would go on to try, as a program wants it and a person does not."""
    from aiohttp import ServerDisconnectedError

    from tidemill.cli.asking import unanswered
    from tidemill.errors import BrokerUnreachable, Refused, TidemillError
    from tidemill.routes import ROUTES_TIMEOUT_S, parse_routes, parse_servers
    from tidemill.security import SecureWeb, security_of
    from tidemill.servers import Servers

    servers = Servers(parse_servers(server), partial(SecureWeb, security_of(server)))
    try:
        parse_routes(await servers.get("/v1/routes", ROUTES_TIMEOUT_S / len(servers)), servers.host)
    except TidemillError as error:
        if isinstance(error, BrokerUnreachable) and isinstance(
            error.__cause__, OSError | ServerDisconnectedError
        ):
            raise CommandFailed(unanswered(server, error.__cause__)) from None
        if isinstance(error, Refused) and error.kind.name == "unauthenticated":
            raise CommandFailed(str(error)) from None
        raise CommandFailed(
            f"what answers at {server} is not the HTTP port of a queue: name that port, which is 7401 by default, "
            "with --server or TIDEMILL_SERVER"
        ) from None


def open_input(path: str) -> Any:
    """A file, or standard input for `-`, to read bytes from."""
    if path == "-":
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise wrong_usage(
            f"{path!r} cannot be read ({error.strerror}): name a file that you may read"
        ) from None


def interactive(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except ValueError:
        return False  # it is closed


@contextmanager
def progress(what: str, total: int) -> Generator[Callable[[int], None]]:
    """A bar on standard error when somebody watches it; how many more are done moves it."""
    if not interactive(sys.stderr):
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.update(task, advance=count)

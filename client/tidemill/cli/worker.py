"""`tidemill worker`: the handlers of a module, until SIGTERM or Ctrl-C.

Exit codes: 0 all was drained, 1 it broke down, 2 the module cannot be used, 3 the drain took too long and messages
were given back, 4 a second signal ended it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import parse_server

if TYPE_CHECKING:
    from tidemill import Worker
    from tidemill.worker import Handler

NUMBER_VARIABLE = "TIDEMILL_WORKER_NUMBER"
"""Set by the process that looks after several: which one this is. Its standard input ends with that process."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


def parse_server_if_any(written: str | None) -> str | None:
    return None if written is None else parse_server(written)


def worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:WORKER", help="Where the worker is: of shop.py, shop:worker.")
    ],
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Handlers at once, instead of what each one says.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, max=256, help="How many processes do the same.")] = 1,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Drain and start again when a .py file below this folder changes."),
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            "-s",
            metavar="HOST:PORT",
            callback=parse_server_if_any,
            help="The queue's HTTP port, instead of the worker's own server.",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve /metrics there; with --processes, each on the next port."),
    ] = None,
) -> int:
    """Run the handlers of a worker.

    The module is imported from the current folder. The first SIGTERM or Ctrl-C drains, the second one ends at once.
    """
    parse_target(target)
    if processes > 1 or reload:
        from tidemill.cli.supervise import Supervisor

        options = [target]
        for name, value in (("--concurrency", concurrency), ("--server", server)):
            options += [] if value is None else [name, str(value)]
        supervisor = Supervisor(options, processes, metrics_port, reload=reload)
        return asyncio.run(supervisor.run())
    return _run(target, concurrency, server, metrics_port)


def _run(target: str, concurrency: int | None, server: str | None, metrics_port: int | None) -> int:
    """In this process; its exit code."""
    configure_logging()
    from tidemill.why import why_of
    from tidemill.worker import leaving

    first = os.environ.get(NUMBER_VARIABLE, "0") == "0"
    try:
        found = load(target)
    except CommandFailed as failure:
        if first:
            raise
        return failure.exit_code  # the first process of several says it for all
    if server is not None:
        found.server = server
    if concurrency is not None:
        found.limit(concurrency)
    found.number(int(os.environ.get(NUMBER_VARIABLE, "0")))
    if first:
        print(banner(target, found), file=sys.stderr, flush=True)
    try:
        return leaving.run(_serve(found, metrics_port))
    except (ValueError, OSError) as error:
        why = why_of(error)
        if why.place:  # of a hook, which may fail today and not tomorrow: nothing is wrong with the command
            raise CommandFailed(f"the worker cannot start: {why.line}") from None
        if isinstance(error, ValueError):
            raise wrong_usage(f"{target}: {error}") from None
        raise CommandFailed(
            f"the worker cannot start ({error.strerror or error}): look at --metrics-port"
        ) from None


async def _serve(found: Worker, metrics_port: int | None) -> int:
    loop = asyncio.get_running_loop()
    if NUMBER_VARIABLE in os.environ:
        descriptor = sys.stdin.fileno()

        def orphaned() -> None:
            loop.remove_reader(descriptor)
            found.stop()  # nobody would end this process any more

        loop.add_reader(descriptor, orphaned)
    return await found.serve(signals=True, metrics_port=metrics_port)


def parse_target(target: str) -> tuple[str, str]:
    module, colon, name = target.partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise wrong_usage(
            f"{target[:100]!r} names no worker: write MODULE:WORKER, as in shop:worker for shop.py"
        )
    return module, name


def load(target: str) -> Worker:
    """The worker, or one sentence why there is none."""
    from tidemill import Worker
    from tidemill.caught import Caught
    from tidemill.why import why_of

    module, name = parse_target(target)
    sys.path.insert(0, os.getcwd())
    with Caught() as caught:
        found = getattr(import_module(module), name, None)
        if not isinstance(found, Worker):
            raise wrong_usage(f"{module} has no worker called {name}: name a Worker that it makes")
        return found
    match caught.error:
        case CommandFailed():
            raise caught.error
        case SyntaxError() as error:
            place = f"{os.path.relpath(error.filename)}:{error.lineno}" if error.filename else module
            raise wrong_usage(f"{place}: {error.msg}: correct it there")
        case ModuleNotFoundError(name=str(missing)) if module == missing or module.startswith(f"{missing}."):
            raise wrong_usage(f"there is no module {module} in {os.getcwd()}: change to its folder")
        case error:
            assert error is not None
            why = why_of(error)
            raise wrong_usage(f"{module} cannot be imported: {why.line}")


def banner(target: str, found: Worker) -> str:
    """What will be done, and with what."""
    from tidemill.routes import DEFAULT_SERVER, SERVER_VARIABLE

    server = found.server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
    lines = [f"tidemill worker {target}, queue {server}, process {os.getpid()}"]
    return "\n".join([*lines, *map(line_of, found.handlers)])


def line_of(handler: Handler) -> str:
    subjects = ", ".join(handler.subscription.subjects)
    timeout = "" if handler.timeout_s is None else f", timeout {handler.timeout_s:g} s"
    wanted = handler.subscription.wanted
    tags = f", {wanted}" if wanted else ""
    return (
        f"  {subjects} -> {handler.name.partition('/')[0]}: group {handler.subscription.group}, "
        f"concurrency {handler.concurrency}, {handler.mode.value}{timeout}{tags}"
    )


def configure_logging() -> None:
    """One line an event on standard error. What the module configures itself goes before."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)

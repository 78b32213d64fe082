"""`tidemill bench`: what this machine, this network and this queue can do."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.session import (
    SERVER_DEFAULT,
    ServerOption,
    connected,
    parse_subject_argument,
    perform,
    progress,
)

if TYPE_CHECKING:
    from tidemill import Client
    from tidemill.cli.measure import Load, Measured

SubjectOption = Annotated[str, typer.Option(callback=parse_subject_argument, help="The subject to use.")]
SizeOption = Annotated[int, typer.Option(min=0, max=1 << 24, help="Bytes of a message.")]
CountOption = Annotated[int, typer.Option(min=1, help="How many messages.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write the result as one JSON object.")]

Measure = Callable[["Client", "Load", Callable[[int], None]], Coroutine[Any, Any, "Measured"]]


def build() -> typer.Typer:
    application = typer.Typer(
        help="Measure what the queue can do.", no_args_is_help=True, rich_markup_mode=None
    )
    application.command("produce")(produce)
    application.command("consume")(consume)
    application.command("latency")(latency)
    return application


def produce(
    subject: SubjectOption = "bench",
    count: CountOption = 1_000_000,
    size: SizeOption = 100,
    server: ServerOption = SERVER_DEFAULT,
    json_: JsonOption = False,
) -> None:
    """Send as fast as it goes.

    Percentiles are of the waits for the answers to batches of messages.
    """
    from tidemill.cli.measure import Load, measure_produce

    _bench("produce", measure_produce, Load(subject, count, size), server, json_)


def consume(
    subject: SubjectOption = "bench",
    count: CountOption = 1_000_000,
    server: ServerOption = SERVER_DEFAULT,
    json_: JsonOption = False,
) -> None:
    """Consume what `bench produce` left.

    In a group of its own; percentiles are of the waits for the next batch.
    """
    from tidemill.cli.measure import Load, measure_consume

    _bench("consume", measure_consume, Load(subject, count, 0), server, json_)


def latency(
    subject: SubjectOption = "bench.latency",
    count: CountOption = 2_000,
    size: SizeOption = 100,
    server: ServerOption = SERVER_DEFAULT,
    json_: JsonOption = False,
) -> None:
    """Send one message at a time.

    Percentiles are of the time from before the send until a consumer has the message.
    """
    from tidemill.cli.measure import Load, measure_latency

    _bench("latency", measure_latency, Load(subject, count, size), server, json_)


def _bench(what: str, measure: Measure, load: Load, server: str, as_json: bool) -> None:
    perform(_measured(what, measure, load, server, as_json), server, _quickest_loop())


async def _measured(what: str, measure: Measure, load: Load, server: str, as_json: bool) -> None:
    with progress(what, load.count) as advance:
        async with connected(server) as client:
            measured = await measure(client, load, advance)
    result = {"bench": what, "subject": load.subject, **measured.figures()}
    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name.replace('_', ' '):<34}{value if isinstance(value, str) else _figure(value):>16}")


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:,.3f}"


def _quickest_loop() -> Any:
    """The loop of uvloop where that is installed. Imported by name: it belongs to the server's extra."""
    from importlib import import_module
    from importlib.util import find_spec

    return import_module("uvloop").new_event_loop if find_spec("uvloop") else None

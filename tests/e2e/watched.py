"""A queue under load, and what its dashboards and alerts ask: read out of the chart's own files."""

from __future__ import annotations

import asyncio
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import yaml

from samples.scripts import ROOT
from tidemill import Client

CHART = ROOT / "charts" / "tidemill"
WINDOW = "20s"
"""What a test looks back over; a person looks over minutes."""


def panels() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each panel of each dashboard, with a name for it."""
    for dashboard in yaml.safe_load((ROOT / "charts" / "dashboards.yaml").read_text()):
        for row in dashboard["rows"]:
            for panel in row["panels"]:
                yield f"{dashboard['name']}: {panel['title']}", panel


def alerts(mine: str) -> list[dict[str, Any]]:
    """The rules, as the chart makes them for a queue; ``mine`` is what tells its numbers from others'."""
    text = (CHART / "files" / "alerts.yaml").read_text()
    for word, value in (("MINE", mine), ("LAG_SECONDS", "600"), ("ARCHIVE_SECONDS", "172800")):
        text = text.replace(word, value)
    found: list[dict[str, Any]] = yaml.safe_load(text)
    return found


def hurried(rule: Mapping[str, Any], lag_seconds: int = 600) -> dict[str, Any]:
    """The same rule, which looks back a few seconds and waits for one."""
    expression = re.sub(r"\[\d+[mh]\]", f"[{WINDOW}]", rule["expr"])
    expression = re.sub(r"> (600|172800)\b", f"> {lag_seconds}", expression)
    return {**rule, "expr": expression, "for": "1s"}


def chosen(query: str) -> str:
    """A query of a dashboard, with all chosen in its variables."""
    query = query.replace("MINE", 'namespace=~".*", instance=~".*"').replace("$__rate_interval", WINDOW)
    return re.sub(r"\$(subject|group)\b", ".*", query)


@contextmanager
def load(server: str) -> Iterator[None]:
    """Messages of all kinds, some of which fail, in a thread with a client of its own."""
    ended = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(_load(server, ended))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="load")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)
    assert not failed, failed


async def _load(server: str, ended: threading.Event) -> None:
    async with Client(server) as mq, asyncio.TaskGroup() as tasks:
        handling = [
            tasks.create_task(_handle(mq, "orders", "billing", 0)),
            tasks.create_task(_handle(mq, "orders", "mailing", 50)),
            tasks.create_task(_handle(mq, "reminders", "billing", 0)),
        ]
        turn = 0
        while not ended.is_set():
            turn += 1
            await mq.send_many("orders", [b"%d" % number for number in range(100)])
            await mq.send("reminders", b"later", delay=0.2)
            async with mq.transaction(group="shop") as tx:
                await tx.send("orders", b"of a transaction")
            if turn == 1:
                await mq.send("unheard", b"nobody consumes it")
                await mq.send("reminders", b"much later", delay=3600)
            await asyncio.to_thread(_ask_for_nothing, server)
            await wait_a_moment()
        for task in handling:
            task.cancel()


async def wait_a_moment() -> None:
    """So that the load leaves a core to others."""
    await asyncio.sleep(0.05)


def _ask_for_nothing(server: str) -> None:
    """Something that is refused, and counted."""
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(f"http://{server}/nowhere", timeout=30):
        pass


async def _handle(mq: Client, subject: str, group: str, bad: int) -> None:
    """Ack all, but for each so-manieth, which is nacked once, and after that given up."""
    async with mq.consume(subject, group=group) as messages:
        async for message in messages:
            if bad and message.sequence % bad == 1:
                reject = message.attempts > 0
                error = ValueError("no address") if reject else TimeoutError("no answer")
                await message.nack(error=error, reject=reject, delay=None if reject else 0.1)

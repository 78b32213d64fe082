"""Brokers that tell their action logs on a port, and archives of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from samples.brokers import NOW_MS, Rig
from tidemill_broker.doors import Service
from tidemill_broker.doors.queries import Queries
from tidemill_broker.doors.stretches import Stretches
from tidemill_broker.doors.telling import Telling
from tidemill_host.clock import RealClock
from tidemill_host.files import Files
from tidemill_host.persist import Lanes
from tidemill_host.web import Web
from tidemill_spark import action_archive
from tidemill_spark.action_tables import read_actions
from tidemill_spark.archive import Wanted
from tidemill_spark.lake import Lake
from tidemill_spark.layout import actions_uri
from tidemill_spark.workers import Workers

URI = "memory"


@asynccontextmanager
async def served(rig: Rig, *, tells: bool = True) -> AsyncIterator[str]:
    """The rig's broker, which stands still, on a port; ``tells``: it is of a version that tells actions."""
    disk = rig.disk.mount()
    lanes = Lanes(*(ThreadPoolExecutor(1) for _ in range(3)))
    service = Service(rig.broker, disk, lanes, RealClock())
    stretches = Stretches(service, disk, lanes.read)
    telling = Telling(service, Queries(rig.broker, disk, lanes.read), Files(disk))
    routes = [*stretches.routes(), *(telling.routes() if tells else ())]
    web = Web({}, lambda: b"", Counter[str](), routes)
    try:
        yield f"127.0.0.1:{await web.listen('127.0.0.1', 0)}"
    finally:
        await web.close()
        for lane in (lanes.write, lanes.sync, lanes.read):
            lane.shutdown()


@contextmanager
def threads() -> Iterator[Workers]:
    with ThreadPoolExecutor(2) as executor:
        yield Workers(executor, 2)


def run(server: str, *subjects: str, uri: str = URI) -> action_archive.ActionTotals:
    wanted = Wanted(server, uri, subjects or ("order.*",), safety_lag_ms=0)
    with threads() as workers:
        return action_archive.run(wanted, workers, lambda: NOW_MS)


async def archived(server: str, *subjects: str, uri: str = URI) -> action_archive.ActionTotals:
    return await asyncio.to_thread(run, server, *subjects, uri=uri)


def rows_in(uri: str = URI) -> list[dict[str, Any]]:
    whole = Lake.at(actions_uri(uri))
    rows = [row for file in whole.files() for row in read_actions(whole.store, file).to_pylist()]
    return sorted(rows, key=lambda row: (row["subject"], row["position"], row["row"]))

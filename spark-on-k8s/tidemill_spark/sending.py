"""Rows of Arrow become batches of a producer that is known again: a task that is run again stores nothing twice.

    rows --by where they go--> lanes, each of one partition of the subject --cut--> batches 1, 2, 3 ... of each lane

The producer's id is made of the job, the task and the lane; a broker knows how far each producer has come. So the same
rows in the same order make batches of which those that are stored already are answered and not stored. A lane has one
batch on its way: a later one that is stored before an earlier one would make that one look stored.

For one consumer group only (``group``) a batch names it; brokers give it to no other one.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from tidemill.errors import BrokerUnreachable, ConnectionLost, TidemillError, Unavailable
from tidemill.link import Answer, Link, dial
from tidemill.routes import Address
from tidemill.settings import ClientSettings
from tidemill_spark.calling import TIMEOUT_S, connect, heads, settings
from tidemill_spark.ranges import PATIENCE_S, PAUSE_S, NobodyAnswers
from tidemill_spark.rows import Cut, cut_rows
from tidemill_wire.batch import SINGLES_FROM, BatchIds, Flags, Origin
from tidemill_wire.columns import build_batch
from tidemill_wire.commands import Sent
from tidemill_wire.fields import again_for
from tidemill_wire.ordering import Chart
from tidemill_wire.routes import PartitionSet


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows are sent to."""

    server: str
    subject: str
    group: str = ""
    """The only consumer group that is to have them; all when empty."""
    replayed: bool = False
    rate: float = 0.0
    """Messages a second of one task; 0: as fast as may be."""


@dataclass(frozen=True, slots=True)
class Task:
    """Who sends: the same for each attempt at the same rows."""

    job: str
    number: int
    at_ms: int
    """When the job began: ids of messages are made of it."""


class Lane(NamedTuple):
    """A partition of the subject, or whoever keeps messages for later."""

    group: str
    name: str


@dataclass(slots=True)
class _Sending:
    """One lane."""

    lane: Lane
    producer: int
    ids: BatchIds
    sent: int = 0
    link: Link | None = None
    at_ms: int = 0
    settings: ClientSettings = field(default_factory=settings)


class Sender:
    """Of one task. Use it within a loop, and close it."""

    def __init__(self, target: Target, task: Task) -> None:
        self.messages = 0
        self._target = target
        self._task = task
        self._lanes: dict[Lane, _Sending] = {}
        self._routes: Mapping[str, Any] = {}
        self._began_s = time.monotonic()

    async def send(self, rows: Any) -> None:
        """A record batch; when it returns, brokers have stored it."""
        chart = await self._chart()
        for cut in cut_rows(rows, len(chart.partitions) if chart else 1, self._place_of(chart)):
            lane = self._lane_of(cut, chart)
            await self._store(self._lanes.get(lane) or self._begin(lane), cut)
            self.messages += len(cut.content.bodies)
            await self._pace()

    def close(self) -> None:
        """End the connections."""
        for one in self._lanes.values():
            if one.link is not None:
                one.link.close()

    async def _pace(self) -> None:
        if self._target.rate > 0:
            ahead_s = self.messages / self._target.rate - (time.monotonic() - self._began_s)
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)

    # -- where to ------------------------------------------------------------------------------------------------

    async def _chart(self) -> Chart | None:
        """The subject's partitions; ``None``: a lone broker has it all."""
        if not self._routes:
            self._routes = await asyncio.to_thread(routes_of, self._target.server, self._target.subject)
        rows = self._routes.get("routes")
        return Chart(PartitionSet.from_map(rows[0])) if rows else None

    def _place_of(self, chart: Chart | None) -> Callable[[str], int]:
        def place(order_key: str) -> int:
            return 0 if chart is None else chart.partitions.index(chart.of(order_key))

        return place

    def _lane_of(self, cut: Cut, chart: Chart | None) -> Lane:
        if cut.later:
            if not self._routes.get("delays"):
                raise BrokerUnreachable("nobody takes messages for later here")
            return Lane("", self._target.subject)
        if chart is None:
            return Lane(str(self._routes["brokers"][0]["group"]), self._target.subject)
        place = cut.place if cut.ordered else self._task.number % len(chart.partitions)
        return Lane(chart.partitions[place].group, chart.partitions[place].name)

    def _begin(self, lane: Lane) -> _Sending:
        target = self._target
        said = "\n".join((self._task.job, str(self._task.number), *lane, target.subject, target.group))
        producer = int.from_bytes(blake2b(said.encode(), digest_size=8).digest(), "big") % SINGLES_FROM
        self._lanes[lane] = _Sending(lane, producer, BatchIds(producer))
        return self._lanes[lane]

    async def _dial(self, one: _Sending) -> Link:
        if not self._routes:
            self._routes = await asyncio.to_thread(routes_of, self._target.server, self._target.subject)
        later = not one.lane.group
        rows = self._routes["delays"] if later else self._routes["brokers"]
        row = next((row for row in rows if later or row["group"] == one.lane.group), None)
        if row is None:
            raise BrokerUnreachable(f"nobody leads the broker group {one.lane.group}")
        host = row["host"] or self._target.server.split(",")[0].rpartition(":")[0]
        return await dial(Address(str(row["group"]), host, int(row["port"])), one.settings)

    # -- storing -------------------------------------------------------------------------------------------------

    async def _store(self, one: _Sending, cut: Cut) -> None:
        """Say it until it is answered: it is stored once, however often it is said."""
        target = self._target
        one.sent += 1
        name = again_for(target.subject, target.group) if target.group else one.lane.name
        flags = Flags.REPLAYED if target.replayed or target.group else Flags(0)
        flags |= (Flags.ORDERED if cut.ordered else Flags(0)) | (Flags.DELAYED if cut.later else Flags(0))
        at_ms = cut.created_at_ms if cut.created_at_ms is not None else self._task.at_ms
        origin = Origin(
            name.encode(), one.producer, one.sent, one.ids.next(self._task.at_ms), at_ms,
            flags=flags, priority=cut.priority,
        )  # fmt: skip
        batch = build_batch(origin, cut.content)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            error = await self._say(one, batch)
            if error is None:
                return
            if time.monotonic() > deadline:
                raise error
            if one.link is not None:
                one.link.close()
            one.link, self._routes = None, {}
            await asyncio.sleep(PAUSE_S)

    async def _say(self, one: _Sending, batch: bytearray) -> TidemillError | None:
        """What stands in the way for now; what does for good is raised."""
        try:
            if one.link is None:
                one.link = await self._dial(one)
            answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            one.link.send(
                [batch], len(batch), lambda answer: None if answered.done() else answered.set_result(answer)
            )
            async with asyncio.timeout(TIMEOUT_S):
                answer = await answered
        except (BrokerUnreachable, ConnectionLost, Unavailable, NobodyAnswers) as error:
            return error
        except TimeoutError:
            return BrokerUnreachable(f"no answer of {one.lane.group} within {TIMEOUT_S:g} s")
        if isinstance(answer, Sent):
            if not answer.refused:
                return None
            answer = answer.errors[0]
        if isinstance(answer, ConnectionLost | Unavailable):
            return answer
        assert isinstance(answer, TidemillError)
        raise answer


def send_all(target: Target, task: Task, batches: Iterable[Any]) -> int:
    """All rows of a task; how many messages that were."""

    async def work() -> int:
        sender = Sender(target, task)
        try:
            for rows in batches:
                await sender.send(rows)
        finally:
            sender.close()
        return sender.messages

    return asyncio.run(work())


def routes_of(server: str, subject: str) -> Mapping[str, Any]:
    """Brokers, and the subject's route, which is made when there is none yet."""
    error: Exception = NobodyAnswers(f"{server!r} names nobody")
    for place in filter(None, server.split(",")):
        try:
            return _routes(place, subject)
        except (OSError, http.client.HTTPException) as caught:
            error = caught
    raise NobodyAnswers(f"nobody answers at {server}: {error}")


def _routes(place: str, subject: str) -> Mapping[str, Any]:
    status, body = _ask(place, "GET", f"/v1/routes?subject={quote(subject)}")
    if status == 404:
        said = {"client": "tidemill-spark", "produces": [subject]}
        _ask(place, "POST", "/v1/clients/heartbeat", json.dumps(said))
        status, body = _ask(place, "GET", f"/v1/routes?subject={quote(subject)}")
    if status != 200:
        raise http.client.HTTPException(f"{place} answers {status}: {body[:300].decode(errors='replace')}")
    found: object = json.loads(body)
    return cast("Mapping[str, Any]", found)


def _ask(place: str, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    connection = connect(place)
    try:
        head = heads(content_type="application/json") if body else heads()
        connection.request(method, path, body, head)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()

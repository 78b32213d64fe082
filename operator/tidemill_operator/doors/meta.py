"""Meta, over HTTP: one link for each QueueCluster.

Thousands of objects are looked at in one pass, so what each wants to know is answered from one listing, and what each
asks meta to keep goes in one request: while a request is under way, the next one gathers. A listing that a pass rests
upon began after the pass's own last request, and is at most a second old.

A meta that does not answer is asked again after a pause that doubles; in between everybody hears at once that it is
silent. A seek goes through the public client, to the brokers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import quote

import aiohttp

from tidemill import Client, ClientSettings
from tidemill.errors import TidemillError
from tidemill.security import Security
from tidemill_operator import marks
from tidemill_operator.desired.locks import Locks, parse_locks
from tidemill_operator.doors.keys import Keys
from tidemill_operator.doors.metrics import Metrics
from tidemill_operator.doors.places import Places
from tidemill_operator.draining import master_of
from tidemill_operator.refusals import Failure, of_meta
from tidemill_operator.settings import OperatorSettings
from tidemill_operator.steps import Ask, Manifest, Seek

logger = logging.getLogger("tidemill.operator")

TIMEOUT_S = 20.0
CONNECT_S = 3.0
BROKERS_S = 30.0
"""For a question to all brokers, one that is away among them."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.5, 15.0
BODY_BYTES_MAX = 512 * 1024
"""Half of what meta takes in one request."""
DUTY = 4
"""Between two listings there is at least this many times what the last one took: meta has other things to do."""
LISTING_PAUSE_S_MAX = 10.0
DECLARATIONS = "/v1/declarations"
AWAY = frozenset({0, 502, 504})
UNKNOWN = 401

Rows = dict[str, Any]


@dataclass(slots=True)
class Listing:
    """What meta said last of all its subjects, or of all its groups, by the path of each."""

    path: str
    name: Callable[[Mapping[str, Any]], str]
    rows: Rows = field(default_factory=dict[str, Any])
    began_s: float = -1.0
    ended_s: float = 0.0
    took_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Manners:
    """How a cluster is spoken with: by what its QueueCluster says of its locks."""

    keys: Keys
    namespace: str
    locks: Locks

    async def security(self) -> Security:
        return await self.keys.security(self.namespace, self.locks)

    def doubt(self) -> None:
        """Somebody was not believed."""
        self.keys.doubt_locks(self.namespace, self.locks)


@dataclass(slots=True)
class Entry:
    """A declaration on its way, and what became of it."""

    body: Mapping[str, Any]
    size: int
    done: asyncio.Future[None]


class Link:
    """The meta of one QueueCluster."""

    def __init__(
        self,
        endpoint: str,
        session: aiohttp.ClientSession,
        settings: OperatorSettings,
        metrics: Metrics,
        manners: Manners,
    ) -> None:
        self.endpoint = endpoint
        self.manners = manners
        self._session = session
        self._settings = settings
        self._metrics = metrics
        self._listings = (
            Listing("/v1/subjects", lambda row: f"/v1/subjects/{row['name']}"),
            Listing("/v1/groups", lambda row: f"/v1/subjects/{row['subject']}/groups/{row['group']}"),
        )
        self._others: dict[str, Listing] = {}
        self._waiting: list[Entry] = []
        self._posting = asyncio.Lock()
        self._lags: dict[tuple[str, str], dict[str, Any]] = {}
        self._silent_since_s: float | None = None
        self._closed_until_s = 0.0
        self._pause_s = PAUSE_S_MIN

    # -- looking -----------------------------------------------------------------------------------------------

    def silent_ms(self) -> int:
        """For how long meta has not answered."""
        return 0 if self._silent_since_s is None else round((_now_s() - self._silent_since_s) * 1000)

    async def see(self, paths: Sequence[str], since_s: float) -> dict[str, Any]:
        """What meta says of the paths, asked after ``since_s``; a ``Failure`` when it is silent."""
        seen: dict[str, Any] = {}
        for path in paths:
            listing, whole = self._listing_of(path)
            await self._freshen(listing, since_s)
            seen[path] = listing.rows.get("" if whole else path)
        return seen

    def _listing_of(self, path: str) -> tuple[Listing, bool]:
        parts = path.strip("/").split("/")
        if parts[:2] == ["v1", "subjects"] and len(parts) == 3:
            return self._listings[0], False
        if parts[:2] == ["v1", "subjects"] and len(parts) == 5 and parts[3] == "groups":
            return self._listings[1], False
        return self._others.setdefault(path, Listing(path, lambda _: "")), True

    async def _freshen(self, listing: Listing, since_s: float) -> None:
        """Good enough is one that began after the caller's last request, and after the caller came or not long ago."""
        came_s = _now_s()
        async with listing.lock:
            now_s = _now_s()
            lately_s = max(self._settings.fresh_ms / 1000, DUTY * listing.took_s)
            young = listing.began_s >= came_s or now_s - listing.ended_s <= lately_s
            if listing.began_s >= since_s and listing.ended_s and young:
                return
            rest_s = listing.ended_s + min(DUTY * listing.took_s, LISTING_PAUSE_S_MAX) - now_s
            if rest_s > 0:
                await asyncio.sleep(rest_s)
            began_s = _now_s()
            answer = await self._get(listing.path)
            former, found = listing.rows, dict[str, Any]()
            for row in answer if listing in self._listings else [answer]:
                name = listing.name(row)
                known = former.get(name)
                found[name] = known if known == row else row
            listing.rows, listing.began_s, listing.ended_s = found, began_s, _now_s()
            listing.took_s = listing.ended_s - began_s

    async def _get(self, path: str) -> Any:
        status, answer = await self._request("GET", path, None)
        if status == 404:
            return None
        if status != 200:
            raise _failure(status, answer)
        return answer

    async def left(self, resource: Manifest, seen: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """What the master of a broker group that goes says is left there, by name and path."""
        asked = master_of(resource, seen)
        if asked is None:
            return {}
        name, address, path = asked
        answer = await self._ask_broker(address, path)
        return {} if answer is None else {name: {path: answer}}

    async def _ask_broker(self, address: str, path: str) -> Any:
        """What a broker's own HTTP port says: JSON, or text; None when it does not answer."""
        try:
            security = await self.manners.security()
        except Failure:
            return None
        try:
            async with self._session.get(security.url(address) + path, **security.options()) as response:
                if response.status != 200:
                    return None
                return await (
                    response.json() if response.content_type == "application/json" else response.text()
                )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None

    async def answer(self, server: str, path: str) -> Any:
        """What meta, or a broker's HTTP port, says; an ``OSError`` when it says nothing."""
        try:
            found = await (self._ask_broker(server, path) if server else self._get(path))
        except Failure as failure:
            logger.debug("looking at %s: %s", path, failure.sentence)
            # Whoever asks the scaler is nobody known: Secrets are not named to them.
            raise OSError("the operator cannot ask it: see the status of the QueueCluster") from None
        if found is None:
            raise OSError("no answer")
        return found

    # -- asking ------------------------------------------------------------------------------------------------

    async def ask(self, step: Ask, *, goes: bool) -> None:
        """Have it done; ``goes``: for an object that is being deleted."""
        if step.path == DECLARATIONS and step.body is not None:
            await self._declare(step.body)
            return
        status, answer = await self._request(step.method, quote(step.path, safe="/?=&"), step.body)
        if not 200 <= status < 300:
            raise _failure(status, answer, goes=goes)

    async def _declare(self, body: Mapping[str, Any]) -> None:
        entry = Entry(body, len(json.dumps(body)), asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        async with self._posting:
            if not entry.done.done():
                await self._post(self._gathered())
        entry.done.result()

    def _gathered(self) -> list[Entry]:
        """Those that wait, oldest first, as many as one request may hold."""
        size, count = 0, 0
        for entry in self._waiting[: self._settings.declarations]:
            size += entry.size
            if count and size > BODY_BYTES_MAX:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _post(self, batch: list[Entry]) -> None:
        """Meta keeps all of a request or nothing: of one that it refuses, halves are tried, down to who is to blame."""
        try:
            status, answer = await self._request("POST", DECLARATIONS, [one.body for one in batch])
        except Failure as failure:
            _settle(batch, failure)
            return
        if 200 <= status < 300:
            _settle(batch, None)
        elif len(batch) > 1 and status not in AWAY:
            middle = len(batch) // 2
            await self._post(batch[:middle])
            await self._post(batch[middle:])
        else:
            _settle(batch, _failure(status, answer))

    async def seek(self, step: Seek) -> None:
        """Move a group, on all brokers."""
        to = datetime.fromtimestamp(step.to / 1000, UTC) if isinstance(step.to, int) else step.to
        async with self._client() as mq:
            await mq.seek(step.subject, step.group, to)

    # -- lag ---------------------------------------------------------------------------------------------------

    def lag(self, subject: str, group: str) -> Mapping[str, Any] | None:
        """What brokers said last of a group."""
        return self._lags.get((subject, group))

    async def ask_lags(self) -> set[tuple[str, str]]:
        """Ask all brokers; whose numbers are others now."""
        async with self._client() as mq:
            rows = await mq.groups()
        former, self._lags = self._lags, {(str(row["subject"]), str(row["group"])): row for row in rows}
        return {key for key, row in self._lags.items() if _numbers(former.get(key)) != _numbers(row)}

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Client]:
        try:
            settings = ClientSettings(security=await self.manners.security())
            async with asyncio.timeout(BROKERS_S), Client(self.endpoint, settings=settings) as mq:
                yield mq
        except TimeoutError:
            raise Failure(
                "passing", "ClusterUnavailable", f"brokers did not answer in {BROKERS_S:.0f} s"
            ) from None
        except TidemillError as error:
            raise Failure("passing", "ClusterUnavailable", str(error)) from None

    # -- requests ----------------------------------------------------------------------------------------------

    async def _request(self, method: str, path: str, body: object) -> tuple[int, Any]:
        now_s = _now_s()
        if now_s < self._closed_until_s:
            raise Failure("passing", "ClusterUnavailable", f"meta at {self.endpoint} does not answer")
        status, answer = await self._send(method, path, body)
        self._metrics.meta_requests.labels(method.lower(), str(status)).inc()
        if status in AWAY:
            if self._silent_since_s is None:
                self._silent_since_s = now_s
                logger.warning("meta_silent endpoint=%s", self.endpoint)
            self._closed_until_s, self._pause_s = (
                _now_s() + self._pause_s,
                min(PAUSE_S_MAX, 2 * self._pause_s),
            )
            raise Failure("passing", "ClusterUnavailable", f"meta at {self.endpoint} does not answer")
        if self._silent_since_s is not None:
            logger.info("meta_heard endpoint=%s", self.endpoint)
        self._silent_since_s, self._closed_until_s, self._pause_s = None, 0.0, PAUSE_S_MIN
        return status, answer

    async def _send(self, method: str, path: str, body: object) -> tuple[int, Any]:
        security = await self.manners.security()
        url = security.url(self.endpoint) + path
        try:
            async with self._session.request(method, url, json=body, **security.options()) as response:
                said = await response.read()
                if response.status == UNKNOWN:
                    self.manners.doubt()
                return response.status, json.loads(said) if said else None
        except ValueError:
            return 502, None
        except (aiohttp.ClientError, TimeoutError, OSError):
            self.manners.doubt()
            return 0, None


class Metas:
    """The links, by cluster and endpoint."""

    def __init__(self, settings: OperatorSettings, metrics: Metrics, keys: Keys) -> None:
        self.keys = keys
        self._settings = settings
        self._metrics = metrics
        self._session: aiohttp.ClientSession | None = None
        self._links: dict[tuple[str, str, str], Link] = {}
        self._places = Places(settings.metas_file)

    async def open(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S, sock_connect=CONNECT_S)
        self._session = aiohttp.ClientSession(timeout=timeout)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def link(self, cluster: Manifest | None, service: Manifest | None) -> Link | None:
        """To the meta of a QueueCluster, by the Service of its name; None: there is none that is its own."""
        assert self._session is not None
        endpoint = self._places.of(cluster, service) if cluster is not None else ""
        if cluster is None or not endpoint:
            return None
        whose = *_named(cluster), endpoint
        manners = Manners(self.keys, whose[0], parse_locks(cluster))
        link = self._links.get(whose)
        if link is None:
            link = self._links[whose] = Link(endpoint, self._session, self._settings, self._metrics, manners)
        link.manners = manners
        return link

    def links(self) -> list[Link]:
        return list(self._links.values())

    def keep_only(self, clusters: Iterable[Manifest]) -> None:
        """Forget the others: their clusters are gone."""
        there = {_named(one) for one in clusters}
        self._links = {whose: link for whose, link in self._links.items() if whose[:2] in there}


def _named(cluster: Manifest) -> tuple[str, str]:
    metadata = marks.metadata(cluster)
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _settle(batch: list[Entry], failure: Failure | None) -> None:
    for entry in batch:
        if entry.done.done():
            continue
        if failure is None:
            entry.done.set_result(None)
        else:
            entry.done.set_exception(failure)


def _failure(status: int, answer: Any, *, goes: bool = False) -> Failure:
    error = marks.part(cast("dict[str, Any]", answer) if isinstance(answer, dict) else None, "error")
    code, advice = str(error.get("code", "")), str(error.get("advice", ""))
    detail = str(error.get("detail", f"meta answers {status}"))
    return of_meta(status, code, f"{detail}: {advice}" if advice else detail, goes=goes)


def _numbers(row: Mapping[str, Any] | None) -> object:
    return None if row is None else (row.get("lag"), row.get("consumers"))


def _now_s() -> float:
    return asyncio.get_running_loop().time()

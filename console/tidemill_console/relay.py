"""What the console asks brokers of a cluster, passed on by meta: ``/console/at/GROUP/BROKER/v1/...``.

A browser that reaches meta need not reach brokers, whose names are often known inside of their cluster only. So meta
passes on what the pages ask: the paths in ``PASSED``, to brokers that have registered, and never to an address that a
request names. It adds nothing of its own: who may do what is decided where it is done, by the token that comes along.
Meta's certificate opens the connection, and says there that what comes by it is passed on: it is nobody's who asks. So
a person who has shown a certificate, and no token, is refused here: a certificate cannot be passed on.
What changes something must have a field in its head that no other page can send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import aiohttp
from aiohttp import web
from yarl import URL

from tidemill_host.bodies import Bodies
from tidemill_host.calling import IN_CLEAR, Caller
from tidemill_host.doorman import PASSED_ON, asker
from tidemill_host.refusals import HttpRefused
from tidemill_host.routing import Route, Variables
from tidemill_wire import limits
from tidemill_wire.access import ANYBODY
from tidemill_wire.addresses import address_of, split_address

Find: TypeAlias = Callable[[str, str], str | None]
"""Where the HTTP port of a broker is, by broker group and name; ``None`` when nobody of that name has registered."""

AT = "/console/at/{group}/{broker}"
OWN_HEADER = "Tidemill-Console"
GROUP = "/v1/subjects/{subject}/groups/{consumers}"
TIMERS = "/v1/subjects/{subject}/timers"
PASSED = (
    ("GET", "/v1/process"),
    ("GET", "/v1/overview/groups"),
    ("GET", "/v1/overview/subjects"),
    ("GET", "/v1/overview/past"),
    ("GET", "/v1/messages"),
    ("GET", "/v1/messages/{id}"),
    ("GET", "/v1/messages/{id}/why"),
    ("GET", "/v1/subjects/{subject}/messages"),
    ("GET", f"{GROUP}/dead"),
    ("GET", TIMERS),
    ("GET", "/v1/timers/{id}"),
    ("GET", "/v1/transactions"),
    ("POST", f"{GROUP}/seek"),
    ("POST", f"{GROUP}/suspend"),
    ("POST", f"{GROUP}/resume"),
    ("POST", f"{GROUP}/dead/redrive"),
    ("POST", f"{GROUP}/dead/purge"),
    ("POST", f"{TIMERS}/cancel"),
    ("POST", f"{TIMERS}/reschedule"),
    ("POST", "/v1/timers/{id}/cancel"),
    ("POST", "/v1/timers/{id}/reschedule"),
    ("POST", "/v1/transactions/{transaction}/commit"),
    ("POST", "/v1/transactions/{transaction}/rollback"),
    ("POST", "/v1/replication/handover"),
    ("POST", "/v1/replication/appointment"),
)
"""What the pages ask of brokers. All of it is of their public port."""

BODY_BYTES_MAX = 64 * 1024
HELD_BYTES_MAX = 4 * limits.MIB
RUNNING_MAX = 64
PATIENCE_SECONDS = 30.0
CONNECT_SECONDS = 3.0
CHUNK_BYTES = 64 * 1024
ANSWERED = ("Content-Type", "Retry-After")
WITH = ("Authorization", "Content-Type", "Accept")
DOTS = (".", "..")


class Relay:
    """Answers ``routes``."""

    def __init__(self, find: Find, caller: Caller = IN_CLEAR) -> None:
        """Of the ``caller`` it has the certificates, and never the token."""
        self._find = find
        self._caller = caller
        self._bodies = Bodies(HELD_BYTES_MAX)
        self._session: aiohttp.ClientSession | None = None
        self._running = 0

    def routes(self) -> list[Route]:
        """What this door answers: nothing but what it passes on."""
        return [Route(method, AT + path, self._answer) for method, path in PASSED]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _answer(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        if request.method != "GET" and OWN_HEADER not in request.headers:
            raise HttpRefused(
                403, "foreign_page", f"the field {OWN_HEADER} is missing",
                "programs ask the broker itself, whose address GET /v1/brokers has",
            )  # fmt: skip
        if asker() is not ANYBODY and "Authorization" not in request.headers:
            raise HttpRefused(
                403, "forbidden", f"{asker().who} has shown a certificate, which cannot be passed on to a broker",
                "show a token; or ask the broker itself, whose address GET /v1/brokers has",
            )  # fmt: skip
        if any(value in DOTS for value in variables.values()):
            raise HttpRefused(400, "malformed_request", "a part of the path is dots", "name what is meant")
        url = self._url(request, variables["group"], variables["broker"])
        if self._running >= RUNNING_MAX:
            raise HttpRefused(
                503,
                "overloaded",
                f"{self._running} requests are on their way to brokers",
                "try again in a second",
            )
        self._running += 1
        try:
            with self._bodies.room() as room:
                body = await room.read(request, BODY_BYTES_MAX) if request.can_read_body else b""
                return await self._pass_on(request, url, body)
        finally:
            self._running -= 1

    def _url(self, request: web.BaseRequest, group: str, broker: str) -> URL:
        """The same path at a broker that has registered."""
        address = self._find(group, broker)
        host, port = split_address(address or "")
        if not host or not port.isdigit():
            raise HttpRefused(
                404, "not_found", f"there is no broker {broker[:100]!r} in {group[:100]!r}",
                "GET /v1/brokers lists those there are",
            )  # fmt: skip
        path = "/" + "/".join(request.rel_url.raw_path.split("/")[5:])
        query = f"?{request.rel_url.raw_query_string}" if request.rel_url.raw_query_string else ""
        return URL(self._caller.url(address_of(host, int(port)), f"{path}{query}"), encoded=True)

    async def _pass_on(self, request: web.BaseRequest, url: URL, body: bytes) -> web.StreamResponse:
        headers = {**_some(request.headers, WITH), PASSED_ON: "1"}
        trust = self._caller.options().get("ssl", True)
        try:
            async with self._client().request(
                request.method, url, data=body or None, headers=headers, ssl=trust, allow_redirects=False
            ) as answer:
                if answer.content_type != "application/json" or 300 <= answer.status < 400:
                    raise _no_answer(url, "what answers there is no broker")
                first = await answer.content.readany()
                return await _stream(request, answer, first)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(url, str(error) or "it took too long") from None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS, sock_connect=CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        return self._session


async def _stream(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, first: bytes
) -> web.StreamResponse:
    """As it comes: messages may be large, and a slow reader holds nothing here but a chunk. What breaks off is cut off
    here, too: nobody takes a part for the whole.
    """
    response = web.StreamResponse(status=answer.status, headers=_some(answer.headers, ANSWERED))
    response.headers["X-Content-Type-Options"] = "nosniff"
    await response.prepare(request)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):  # aiohttp's own is with who answers, not with who reads
            await response.write(first)
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                await response.write(chunk)
            await response.write_eof()
    except (aiohttp.ClientError, TimeoutError, OSError):
        if request.transport is not None:
            request.transport.abort()
    return response


def _some(headers: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: headers[name] for name in names if name in headers}


def _no_answer(url: URL, why: str) -> HttpRefused:
    return HttpRefused(
        503, "unavailable", f"the broker at {url.host}:{url.port} did not answer: {' '.join(why.split())[:200]}",
        "look whether meta reaches that address, and at the broker",
    )  # fmt: skip

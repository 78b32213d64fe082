"""The HTTP port: a small aiohttp application around functions that answer with values.

Unknown paths, methods and bytes that are no HTTP answer with JSON of one shape, like every error of the system:
``{"error": {"code": ..., "detail": ..., "advice": ..., "retryable": ...}}``. They are counted and not logged: who sends
garbage shall not fill the log. Connections are bounded in number, and in patience: the first request has to come in
time. Beyond the bound there are a few more for one request each, that of a probe: however many wait for messages here,
nobody takes this process for dead.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from inspect import isawaitable
from typing import Any, cast

from aiohttp import web

from tidemill_host.browsers import refuse_foreign
from tidemill_host.doorman import Asked, Doorman, asker
from tidemill_host.log import debug
from tidemill_host.log_door import log_routes
from tidemill_host.long_lists import LongLists
from tidemill_host.refusals import HttpRefused, error_response, json_response, wire_response
from tidemill_host.rights import OWN_RIGHTS, rights_of
from tidemill_host.routing import Found, Route, Router
from tidemill_host.silence import probe
from tidemill_host.system import SYSTEM, system
from tidemill_wire import limits
from tidemill_wire.errors import WireError
from tidemill_wire.metrics.page import CONTENT_TYPE

Metrics = Callable[[], bytes | Awaitable[bytes]]
"""The page of numbers, at once or, when there is much to look at, a while later."""
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
ADVICE = "see /openapi.json for what there is"
METHODS = ("GET", "HEAD")
KEEP_ALIVE_SECONDS = 75.0
CHECK_SECONDS = 1.0
SPARE_SECONDS = 1.0
SPARE_PATHS = ("/healthz", "/readyz", "/metrics")
CLOSE_SECONDS = (
    1.0  # for requests that are half sent when the port closes; what was asked is answered by then
)


class Web:
    """One HTTP port: values that are read, a long list when that is an iterator, and ``routes`` for the rest.
    ``refused`` counts refusals, by code; ``names`` are those by which browsers may know it (`browsers.py`).
    """

    def __init__(
        self,
        values: Mapping[str, Callable[[], Any]],
        metrics: Metrics,
        refused: Counter[str],
        routes: Iterable[Route] = (),
        doorman: Doorman | None = None,
        names: Collection[str] = (),
    ) -> None:
        self._router = Router([*routes, *log_routes()])
        self._names = names
        own: dict[str, Callable[[], Any]] = {SYSTEM: system, OWN_RIGHTS: lambda: rights_of(asker())}
        self._values = {**values, **own}
        self._doorman = doorman
        self._metrics = metrics
        self._lists = LongLists()
        self._refused = refused
        self._server = _Server(self._answer, refused)
        self._listener: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._runner = web.ServerRunner(self._server, shutdown_timeout=CLOSE_SECONDS)

    async def listen(
        self,
        host: str,
        port: int,
        connections_max: int = limits.HTTP_CONNECTIONS_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """Serve; the port that was taken."""
        self._server.connections_max = connections_max
        await self._runner.setup()
        # A handshake that does not end is a request that does not come; aiohttp's own sites would wait for a minute.
        patience_s = None if tls is None else limits.HELLO_MS / 1000
        self._listener = await asyncio.get_running_loop().create_server(
            self._server, host, port, backlog=1024, ssl=tls, ssl_handshake_timeout=patience_s
        )
        for sock in self._listener.sockets:
            probe(sock)
        self._check()
        return int(self._listener.sockets[0].getsockname()[1])

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._server.check(loop.time())
        self._timer = loop.call_later(CHECK_SECONDS, self._check)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._found(request)
        if isinstance(request.protocol, _Connection) and request.protocol.spare:
            response.force_close()
        # Without the query: who asks may have put there what is nobody's business.
        what, status = f"{request.method} {request.path[:200]}", response.status
        debug("http", f"{what} was answered {status}", peer=request.remote, status=status)
        return response

    async def _found(self, request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(request.protocol, _Connection):
            request.protocol.requested = True
            if request.protocol.spare and request.path not in SPARE_PATHS:
                return self._server.full().response()
        try:
            refuse_foreign(request.method, request.headers, self._names)
        except HttpRefused as error:
            self._refused[error.code] += 1
            if self._doorman is not None:
                self._doorman.note_foreign(request, error.code)
            return error.response()
        found = self._router.find(request.rel_url.raw_path)
        if self._doorman is None:
            return await self._serve(request, found)
        template = found[2] if found is not None else request.path if self._is_value(request.path) else ""
        asked = Asked(request, template, found[1] if found is not None else {})
        return await self._doorman.serve(asked, lambda: self._serve(request, found))

    def _is_value(self, path: str) -> bool:
        return path == "/metrics" or path in self._values

    async def _serve(self, request: web.BaseRequest, found: Found | None) -> web.StreamResponse:
        if found is not None and (answer := found[0].get(request.method)):
            try:
                return await answer(request, found[1])
            except HttpRefused as error:
                self._refused[error.code] += 1
                return error.response()
            except WireError as error:
                return wire_response(error)
        path, what = request.path, f"{request.method} {request.path[:200]}"
        is_value = self._is_value(path)
        if not is_value and found is None:
            self._refused["not_found"] += 1
            return error_response(404, "not_found", f"{what}: there is no such path", ADVICE)
        if not is_value or request.method not in METHODS:
            self._refused["http_error"] += 1
            allowed = ", ".join([*(METHODS if is_value else ()), *(found[0] if found else ())])
            detail = f"{what}: this path takes {allowed}"
            response = error_response(405, "http_error", detail, ADVICE)
            response.headers["Allow"] = allowed
            return response
        if path == "/metrics":
            page = self._metrics()
            body = await page if isawaitable(page) else page
            return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
        try:
            value = self._values[path]()
        except HttpRefused as error:
            return error.response()
        if isinstance(value, Iterator):
            shown = self._doorman.shown(path) if self._doorman is not None else _everything
            return await self._lists.response(cast("Iterator[object]", value), shown)
        return json_response(value)


def _everything(_row: Any) -> bool:
    """Where nobody asks who somebody is."""
    return True


class _Server(web.Server):
    """Makes a protocol for each connection, and closes those that are too many."""

    def __init__(self, handler: Handler, refused: Counter[str]) -> None:
        # Who waits for an answer is told when nobody listens any more.
        super().__init__(handler, handler_cancellation=True)
        self._refused = refused
        self.connections_max = limits.HTTP_CONNECTIONS_MAX

    def __call__(self) -> web.RequestHandler:
        beyond = len(self.connections) - self.connections_max
        return _Connection(self, self._refused, beyond >= limits.HTTP_SPARE_CONNECTIONS, beyond >= 0)

    def full(self) -> HttpRefused:
        """What a request is told that came when there were as many as may be."""
        self._refused["too_many_connections"] += 1
        detail = f"{self.connections_max} connections are open"
        return HttpRefused(503, "too_many_connections", detail, "wait a second and try again")

    def check(self, now: float) -> None:
        """Once a second: close who reads nothing of its answer for too long, and when all that was not read is too
        much, those for whom most is held, first of those that have read nothing since the last time.
        """
        held = {one: one.held for one in self.connections if isinstance(one, _Connection) and one.held}
        reading = {one: one.has_read(now) for one in held}
        beyond = sum(held.values()) - limits.UNREAD_BYTES_MAX
        for one in sorted(held, key=lambda one: (reading[one], -held[one])):
            if beyond <= 0:
                break
            beyond -= held[one]
            one.cut_off()


class _Connection(web.RequestHandler):
    """One HTTP connection. What is closed while its peer reads nothing would be there for ever: aiohttp waits until all
    is written.
    """

    __slots__ = (
        "_held_before",
        "_patience",
        "_raw",
        "_read_at",
        "_refused",
        "_too_many",
        "requested",
        "spare",
    )

    def __init__(self, server: _Server, refused: Counter[str], too_many: bool, spare: bool) -> None:
        loop = asyncio.get_running_loop()
        # A body that is compressed is refused; unpacked it would be long before anybody has looked at it.
        super().__init__(
            server, loop=loop, keepalive_timeout=KEEP_ALIVE_SECONDS, lingering_time=1.0, auto_decompress=False
        )
        self._refused = refused
        self._too_many = too_many
        self._patience: asyncio.TimerHandle | None = None
        self._raw: asyncio.Transport | None = None
        self._held_before = 0
        self._read_at = 0.0
        self.requested = False
        self.spare = spare

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._raw = cast("asyncio.Transport", transport)
        if self._too_many:
            self._refuse("too_many_connections")
        else:
            loop = asyncio.get_running_loop()
            patience_s = SPARE_SECONDS if self.spare else limits.HELLO_MS / 1000
            self._patience = loop.call_later(patience_s, self._lose_patience)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)

    @property
    def held(self) -> int:
        """Bytes in memory that the peer has not read."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def has_read(self, now: float) -> bool:
        """Since it was asked last, as far as anybody can tell; who reads nothing for too long is cut off."""
        before, self._held_before = self._held_before, self.held
        if not 0 < before <= self._held_before:
            self._read_at = now
            return True
        if now - self._read_at > limits.SLOW_FRAME_MS / 1000:
            self.cut_off()
        return False

    def cut_off(self) -> None:
        if self._raw is not None:
            self._refused["too_slow"] += 1
            self._raw.abort()
            self._raw = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Called for what is no HTTP, and when a handler failed; only the latter is a defect, and logged."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        self._refused["http_error"] += 1
        detail = " ".join((message or "it is no HTTP").split())[: limits.DETAIL_CHARS_MAX]
        response = error_response(
            status, "http_error", detail, "speak HTTP/1.1 here, tidemill's frames on the data port"
        )
        response.force_close()
        return response

    def _lose_patience(self) -> None:
        if not self.requested:
            self._refuse("too_many_connections" if self.spare else "too_slow")

    def _refuse(self, reason: str) -> None:
        self._refused[reason] += 1
        self.force_close()

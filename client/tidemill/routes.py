"""Who serves: where brokers are, and how an HTTP port is asked for it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeAlias, cast

from tidemill.errors import BrokerUnreachable, Refused, WireError, wire_error
from tidemill_wire.addresses import address_of
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.limits import MIB

DEFAULT_SERVER = "127.0.0.1:7401"
SERVER_VARIABLE = "TIDEMILL_SERVER"
ROUTES_TIMEOUT_S = 5.0
STATES = ("RW", "R", "W", "NRW")
SCHEME = re.compile("https?://|tls://")
"""Whether TLS is spoken: see ``security.py``."""
WRONG_PORT = "that is not the HTTP port, which is 7401 by default"
LINE_BYTES_MAX = 16 * MIB
"""Of a watch stream: the routes of all that a client named may come in one."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens for frames."""

    group: str
    host: str
    port: int
    state: str = "RW"
    epoch: int = 0
    """Of its mastership; 0 where nobody says."""
    control: str = ""
    """Its own HTTP port, as HOST:PORT; empty where nobody says."""

    @property
    def place(self) -> tuple[str, int]:
        """What a connection is made to."""
        return self.host, self.port

    def __str__(self) -> str:
        return address_of(self.host, self.port)


Routes: TypeAlias = tuple[Address, ...]
Fetch: TypeAlias = Callable[[], Awaitable[Routes]]


class HttpPort(Protocol):
    """The HTTP port of meta or of a broker, as far as a client asks it. A simulator has another one."""

    async def get(self, path: str, timeout_s: float = ...) -> Any:
        """The JSON at ``path``; ``BrokerUnreachable`` when nobody answers, ``Refused`` when there is none."""
        ...

    async def post(self, path: str, body: object, timeout_s: float = ...) -> Any:
        """The JSON that is answered to ``body``."""
        ...

    def lines(self, path: str, body: object, silence_s: float) -> AsyncGenerator[Any]:
        """The JSON of each line that is answered to ``body``, as it comes. None for ``silence_s`` is an error."""
        ...


OpenPort: TypeAlias = Callable[[str, int], HttpPort]


def parse_servers(text: str | None) -> list[tuple[str, int]]:
    """``HOST:HTTP_PORT``, or several with commas between them; without any the environment's, or this machine."""
    servers = text or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
    return [parse_server(server.strip()) for server in servers.split(",")]


def parse_server(text: str | None) -> tuple[str, int]:
    """``HOST:HTTP_PORT``; without one the environment's, or this machine."""
    server = text or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
    place = SCHEME.sub("", server).rstrip("/")
    if "://" in place:
        raise ValueError(
            f"{server!r} is no server: write HOST:PORT with the HTTP port, as in {DEFAULT_SERVER}, or with https:// "
            "before it"
        )
    host, colon, port = place.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(
            f"{server!r} is no server: HOST:PORT is one, with the HTTP port, as in {DEFAULT_SERVER}"
        )
    return host.strip("[]"), int(port)


def parse_routes(answer: Any, host: str) -> Routes:
    """The brokers in a JSON answer; ``host`` stands for those that do not name theirs."""
    rows = cast("dict[str, Any]", answer).get("brokers") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise BrokerUnreachable(
            "the answer to GET /v1/routes has no list of brokers: is this tidemill's HTTP port?"
        )
    routes: list[Address] = []
    for row in cast("list[object]", rows):
        match row:
            case {"group": str(group), "host": str() | None as named, "port": int(port), "state": str(state)}:
                more = cast("dict[str, Any]", row)
                epoch, control = more.get("epoch", 0), more.get("control", "")
                if 0 < port < 1 << 16 and state in STATES and isinstance(epoch, int):
                    routes.append(Address(group, named or host, port, state, epoch, str(control)))
            case other:
                raise BrokerUnreachable(
                    f"the answer to GET /v1/routes holds a broker that is none: {other!r}"
                )
    return tuple(routes)


class Web:
    """The HTTP port of a server: a few questions, seldom asked."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self._base = f"http://{address_of(host, port)}"

    def _options(self) -> dict[str, Any]:
        """What a request says besides; nothing here, see ``security.py``."""
        return {}

    async def get(self, path: str, timeout_s: float = ROUTES_TIMEOUT_S) -> Any:
        """The JSON at ``path``."""
        return await self._ask("GET", path, None, timeout_s)

    async def post(self, path: str, body: object, timeout_s: float = ROUTES_TIMEOUT_S) -> Any:
        """The JSON that is answered to ``body``."""
        return await self._ask("POST", path, body, timeout_s)

    async def _ask(self, method: str, path: str, body: object, timeout_s: float) -> Any:
        import aiohttp
        from yarl import URL

        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(
                    method, URL(self._base + path, encoded=True), json=body, **self._options()
                ) as response,
            ):
                if response.status >= 400:
                    raise _complaint(response.status, f"{method} {path}", await response.text())
                return await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(error, BrokerUnreachable):
                raise
            raise self._silent(path, error) from error

    async def lines(self, path: str, body: object, silence_s: float) -> AsyncGenerator[Any]:
        """The JSON of each line that is answered to ``body``, as it comes."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ROUTES_TIMEOUT_S, sock_read=silence_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, read_bufsize=LINE_BYTES_MAX // 2) as session,
                session.post(self._base + path, json=body, **self._options()) as response,
            ):
                if response.status >= 400:
                    raise _complaint(response.status, f"POST {path}", await response.text())
                while line := await response.content.readline():
                    yield json.loads(line)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(error, BrokerUnreachable):
                raise
            raise self._silent(path, error) from error

    def _silent(self, path: str, error: Exception) -> BrokerUnreachable:
        asked = f"{self._base}{path}"
        if is_no_http(error):
            return BrokerUnreachable(f"what answers at {asked} speaks no HTTP: {WRONG_PORT}")
        why = str(error) or ("not in time" if isinstance(error, TimeoutError) else type(error).__name__)
        return BrokerUnreachable(f"no answer from {asked}: {why}")


def is_no_http(error: BaseException) -> bool:
    """Whether something answered, and in other bytes than those of HTTP: as a data port does."""
    import aiohttp

    return isinstance(error, aiohttp.ClientResponseError)


def load_http() -> None:
    """A fifth of a second, and on a busy machine several, that a program without network should not wait for."""
    import_module("aiohttp")


def rows_of(name: str, answer: Any) -> list[dict[str, Any]]:
    """What ``/v1/<name>`` lists."""
    found = cast("dict[str, Any]", answer).get(name) if isinstance(answer, dict) else answer
    rows = cast("list[object]", found if isinstance(found, list) else [None])
    if not all(isinstance(row, dict) for row in rows):
        raise BrokerUnreachable(f"the answer to GET /v1/{name} is no list: is this tidemill's HTTP port?")
    return cast("list[dict[str, Any]]", rows)


def _complaint(status: int, what: str, text: str) -> WireError | BrokerUnreachable:
    """What the broker said in its own words, when it did."""
    detail = f"{what} was answered {status}: {text[:500]}"
    try:
        match json.loads(text):
            case {"error": {"code": str(code), "detail": str(said)}} if code in KIND_BY_NAME:
                return wire_error(KIND_BY_NAME[code].number, said)
            case {"error": {"detail": str(said)}} if status == 400:
                return Refused("malformed_command", said)
            case {"error": {"code": str(), "detail": str(said)}} if status == 404:
                return Refused("not_found", said)
            case _:
                pass
    except ValueError:
        pass  # another server's words
    # Also a 404: it is an ingress without its service, for as long as that is away.
    return BrokerUnreachable(f"{detail}: is this tidemill's HTTP port?" if status == 404 else detail)

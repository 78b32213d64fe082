"""Who serves: asking the HTTP port, and keeping the last good answer while nobody does."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from tidemill.errors import BrokerUnreachable, Refused, WireError, wire_error
from tidemill_wire.errors import KIND_BY_NAME

DEFAULT_SERVER = "127.0.0.1:7401"
SERVER_VARIABLE = "TIDEMILL_SERVER"
ROUTES_TIMEOUT_S = 5.0
STATES = ("RW", "R", "W", "NRW")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens for frames."""

    group: str
    host: str
    port: int
    state: str = "RW"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


Routes: TypeAlias = tuple[Address, ...]
Fetch: TypeAlias = Callable[[], Awaitable[Routes]]


def parse_server(text: str | None) -> tuple[str, int]:
    """``HOST:HTTP_PORT``; without one the environment's, or this machine."""
    server = text or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
    host, colon, port = server.removeprefix("http://").rstrip("/").rpartition(":")
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
                if 0 < port < 1 << 16 and state in STATES:
                    routes.append(Address(group, named or host, port, state))
            case other:
                raise BrokerUnreachable(
                    f"the answer to GET /v1/routes holds a broker that is none: {other!r}"
                )
    return tuple(routes)


class Web:
    """The HTTP port of a server: a few questions, seldom asked."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self._base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def get(self, path: str, timeout_s: float = ROUTES_TIMEOUT_S) -> Any:
        """The JSON at ``path``."""
        import aiohttp  # a fifth of a second that a program without network should not wait for
        from yarl import URL

        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(URL(self._base + path, encoded=True)) as response,
            ):
                if response.status >= 400:
                    raise _complaint(response.status, path, await response.text())
                return await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            detail = str(error) or type(error).__name__
            raise BrokerUnreachable(f"no answer from {self._base}{path}: {detail}") from error

    async def rows(self, name: str) -> list[dict[str, Any]]:
        """What ``/v1/<name>`` lists."""
        answer = await self.get(f"/v1/{name}")
        found = cast("dict[str, Any]", answer).get(name) if isinstance(answer, dict) else answer
        rows = cast("list[object]", found if isinstance(found, list) else [None])
        if not all(isinstance(row, dict) for row in rows):
            raise BrokerUnreachable(f"the answer to GET /v1/{name} is no list: is this tidemill's HTTP port?")
        return cast("list[dict[str, Any]]", rows)

    async def routes(self) -> Routes:
        """The brokers there are."""
        return parse_routes(await self.get("/v1/routes"), self.host)


def _complaint(status: int, path: str, text: str) -> WireError | BrokerUnreachable:
    """What the broker said in its own words, when it did."""
    detail = f"GET {path} was answered {status}: {text[:500]}"
    try:
        match json.loads(text):
            case {"error": {"code": str(code), "detail": str(said)}} if code in KIND_BY_NAME:
                return wire_error(KIND_BY_NAME[code].number, said)
            case {"error": {"detail": str(said)}} if status == 400:
                return Refused("malformed_command", said)
            case _:
                pass
    except ValueError:
        pass  # another server's words
    return Refused("not_found", detail) if status == 404 else BrokerUnreachable(detail)


class Router:
    """The brokers, as far as known. Asks again each time somebody dials: that is when an answer may be old."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._known: Routes = ()

    async def refresh(self) -> Routes:
        """The routes; the last good ones when nobody answers, an error when there never were any."""
        try:
            async with asyncio.timeout(ROUTES_TIMEOUT_S):
                self._known = await self._fetch()
        except (BrokerUnreachable, TimeoutError, OSError):
            if not self._known:
                raise
        return self._known

    async def writable(self) -> Address:
        """The broker to send to."""
        for address in await self.refresh():
            if "W" in address.state and address.state != "NRW":
                return address
        raise BrokerUnreachable("no broker takes messages now")

    async def readable(self) -> Routes:
        """The brokers to pull from."""
        return tuple(one for one in await self.refresh() if one.state in {"RW", "R"})

    async def of_group(self, group: str) -> Address:
        """The broker that serves a broker group now."""
        for address in await self.refresh():
            if address.group == group:
                return address
        raise BrokerUnreachable(f"no broker serves the broker group {group} now")

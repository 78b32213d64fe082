"""The numbers of a client or a worker for Prometheus, over HTTP: ``async with metrics_page(9464, mq.statistics)``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from socket import socket
from typing import Protocol

from tidemill_wire.metrics.page import CONTENT_TYPE

NOTHING: Mapping[str, Callable[[], object]] = {}
ADDRESS = "0.0.0.0"  # one socket: with port 0, each family of addresses would get a port of its own


class Numbers(Protocol):
    """What a client or a worker says of itself."""

    def prometheus(self) -> str:
        """The text that Prometheus reads."""
        ...


def well() -> str:
    """Why it is not ready, of what is when it runs: never."""
    return ""


@asynccontextmanager
async def metrics_page(
    place: int | socket,
    *statistics: Callable[[], Numbers],
    told: Mapping[str, Callable[[], object]] = NOTHING,
    hindered: Callable[[], str] = well,
) -> AsyncGenerator[int]:
    """``/metrics`` on all IPv4 addresses, or where it is listened already; ``/healthz``; and ``/readyz``, which is 503
    with what ``hindered`` says. Gives the port, which 0 leaves to the system. ``told`` has further paths, and what is
    answered there, as JSON.
    """
    from aiohttp import web

    async def page(_request: web.Request) -> web.Response:
        text = "".join(numbers().prometheus() for numbers in statistics)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def health(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readiness(_request: web.Request) -> web.Response:
        why = hindered()
        return web.Response(status=503, text=f"{why}\n") if why else web.Response(text="ready\n")

    application = web.Application()
    application.add_routes([web.get("/metrics", page), web.get("/healthz", health)])
    application.add_routes([web.get("/readyz", readiness)])
    for path, tell in told.items():

        async def answer(_request: web.Request, tell: Callable[[], object] = tell) -> web.Response:
            return web.json_response(tell())

        application.add_routes([web.get(path, answer)])
    runner = web.AppRunner(application, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        if isinstance(place, int):
            await web.TCPSite(runner, ADDRESS, place).start()
        else:
            await web.SockSite(runner, place).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()

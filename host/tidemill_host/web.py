"""The HTTP port: a small aiohttp application around functions that answer with values.

Unknown paths, methods and bad requests answer with JSON of one shape, like every error of the system:
``{"error": {"code": ..., "detail": ..., "advice": ...}}``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY_BYTES_MAX = 1024 * 1024


def error_response(status: int, code: str, detail: str, advice: str) -> web.Response:
    """An error as every client sees it."""
    return web.json_response({"error": {"code": code, "detail": detail, "advice": advice}}, status=status)


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        detail = f"{request.method} {request.path[:200]}: {error.reason}"
        return error_response(error.status, "http_error", detail, "see /openapi.json for what there is")


class Web:
    """One HTTP port."""

    def __init__(self, values: Mapping[str, Callable[[], Any]], metrics: Callable[[], bytes]) -> None:
        self._metrics = metrics
        self._app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_errors])
        for path, value in values.items():
            self._app.router.add_get(path, _answering(value))
        self._app.router.add_get("/metrics", self._show_metrics)
        self._runner = web.AppRunner(self._app, access_log=None, keepalive_timeout=75.0)

    async def listen(self, host: str, port: int) -> int:
        """Serve; the port that was taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _show_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": "text/plain; version=0.0.4"})


def _answering(value: Callable[[], Any]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(value())

    return answer

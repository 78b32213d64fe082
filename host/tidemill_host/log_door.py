"""``/v1/log-level``: what every HTTP port answers about its process's log."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from aiohttp import web

from tidemill_host.log import LOG
from tidemill_host.openapi import Part, answers, json_content, record, whole
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Route, Variables
from tidemill_wire.log_lines import Level

PATH = "/v1/log-level"
SECONDS_DEFAULT, SECONDS_MAX = 600, 86_400
BODY_BYTES_MAX = 1_000
BODY_SECONDS = 5.0


def log_routes() -> list[Route]:
    """What every HTTP port answers about its log."""
    return [Route("GET", PATH, _read), Route("POST", PATH, _set)]


async def _read(_request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
    return json_response(LOG.state())


async def _set(request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            data = await request.content.read(BODY_BYTES_MAX + 1)
    except TimeoutError:
        raise HttpRefused(408, "too_slow", "the body did not come in time", "send it at once") from None
    if len(data) > BODY_BYTES_MAX:
        raise HttpRefused(413, "frame_too_large", f"over {BODY_BYTES_MAX} bytes", "name a level, and no more")
    try:
        said: Any = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    level, seconds = _parse(said)
    LOG.set_for(level, seconds)
    return json_response(LOG.state())


def _parse(said: Any) -> tuple[Level, int]:
    fields = cast("dict[str, object]", said) if isinstance(said, dict) else {}
    if not set(fields) - {"level", "seconds"}:
        level, seconds = fields.get("level"), fields.get("seconds", SECONDS_DEFAULT)
        known = [one for one in Level if one.value == level]
        # To JSON 600 and 600.0 are one number.
        whole_seconds = int(seconds) if isinstance(seconds, int | float) and seconds == seconds // 1 else 0
        if known and not isinstance(seconds, bool) and 1 <= whole_seconds <= SECONDS_MAX:
            return known[0], whole_seconds
    advice = f"write {', '.join(Level)}, and 1 to {SECONDS_MAX:,} seconds"
    raise HttpRefused(400, "malformed_request", "that is no level of a log for a time", advice)


def log_paths() -> dict[str, Part]:
    """Their part of the OpenAPI page."""
    levels: Part = {"enum": [level.value for level in Level]}
    state = record(
        {"level": levels, "usual": levels, "seconds": whole(0, description="until it is the usual one")}
    )
    asked = record({"level": levels, "seconds": whole(1, SECONDS_MAX)}, ("seconds",))
    example = {"level": "debug", "usual": "info", "seconds": 600}
    reading: Part = {
        "operationId": "log_level", "summary": "From which level on the log says events",
        "responses": answers(state, example, "now", ()),
    }  # fmt: skip
    setting: Part = {
        "operationId": "set_log_level", "summary": "Another level of the log, for a while",
        "requestBody": {"required": True, "content": json_content(asked)},
        "responses": answers(state, example, "now", (400, 408, 413)),
    }  # fmt: skip
    return {PATH: {"get": reading, "post": setting}}

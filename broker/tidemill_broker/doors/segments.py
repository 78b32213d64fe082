"""Raw ranges of both logs over HTTP, as far as they are committed: for archives, which would rather ask a slave.

``GET /v1/segments`` says which segments there are; ``GET /v1/segments/LOG/BASE?from=POSITION&size=BYTES`` gives bytes
of one, fewer at its end or where nothing more is committed. A batch or record may be cut; positions say where to go on.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any

from aiohttp import web

from tidemill_broker.doors.service import Service
from tidemill_broker.machine import Broker
from tidemill_host.disk import Disk
from tidemill_host.files import Files
from tidemill_host.machine import Slice
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Route, Variables
from tidemill_journal.segments import Segments
from tidemill_wire.limits import PULL_BYTES_MAX
from tidemill_wire.replication import Ends

PATH = "/v1/segments"
OTHERS = "look at the broker's disk; the other replicas of its broker group have the same bytes"
DIGITS_MAX = 18
ADVICE = f"GET {PATH} says which segments there are, and how far they go"


class SegmentRanges:
    """Answers ``routes``. ``read`` is the executor in which it reads."""

    def __init__(self, service: Service, disk: Disk, read: Executor) -> None:
        self._service = service
        self._files = Files(disk)
        self._lane = read

    def routes(self) -> list[Route]:
        """What this door answers; nothing for a lone broker, which does not know what is committed."""
        if isinstance(self._service.machine, Broker):
            return []
        return [Route("GET", PATH, self._list), Route("GET", f"{PATH}/{{log}}/{{base}}", self._range)]

    async def _list(self, _request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        committed = self._committed()
        logs = self._service.broker.logs
        return json_response(
            {
                "message": _rows(logs.messages, committed.message),
                "action": _rows(logs.actions, committed.action),
            }
        )

    async def _range(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        segments, committed = self._log(variables["log"])
        base = _number(variables["base"], "the segment")
        start = _number(request.query.get("from", str(base)), "from")
        size = _number(request.query.get("size", str(PULL_BYTES_MAX)), "size")
        if base not in segments.bases:
            raise HttpRefused(404, "not_found", f"no segment begins at {base}", ADVICE)
        end = min(segments.end_of(base), committed)
        if not base <= start <= end:
            raise HttpRefused(
                400, "malformed_request", f"position {start} is not within {base} and {end}", ADVICE
            )
        piece = Slice(segments.file(base), start - base, min(size, end - start, PULL_BYTES_MAX))
        try:
            data = await asyncio.get_running_loop().run_in_executor(self._lane, self._files.take, piece)
        except FileNotFoundError:
            raise HttpRefused(404, "not_found", f"segment {base} has just expired", ADVICE) from None
        except OSError as error:
            raise HttpRefused(500, "read_failed", error.strerror or str(error), OTHERS) from error
        return web.Response(
            body=data, content_type="application/octet-stream", headers={"Server": "tidemill"}
        )

    def _committed(self) -> Ends:
        machine = self._service.machine
        assert not isinstance(machine, Broker)
        return machine.committed

    def _log(self, name: str) -> tuple[Segments, int]:
        logs, committed = self._service.broker.logs, self._committed()
        if name == "message":
            return logs.messages, committed.message
        if name == "action":
            return logs.actions, committed.action
        raise HttpRefused(
            404, "not_found", f"there is no log {name[:40]!r}", "message and action are the two"
        )


def _rows(segments: Segments, committed: int) -> list[dict[str, Any]]:
    found = [(base, min(segments.end_of(base), committed)) for base in segments.bases]
    return [{"base": base, "end": end} for base, end in found if end > base]


def _number(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX:
        return int(text)
    raise HttpRefused(400, "malformed_request", f"{name} {text[:40]!r} is no whole number", ADVICE)

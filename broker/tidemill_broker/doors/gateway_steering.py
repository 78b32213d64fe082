"""Steering over HTTP: moving, suspending and resuming a group, and settling its dead letters.

Peers of the broker's machine, as the gateway is: a request becomes the command that a client would send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from aiohttp import web

from tidemill_broker.doors.gateway_messages import check_fields, malformed
from tidemill_broker.doors.gateway_requests import flag, group_of, subject_of, value_of
from tidemill_broker.doors.service import Service
from tidemill_broker.ranges import merge_ranges
from tidemill_host.bodies import Bodies
from tidemill_host.local import LocalPeer
from tidemill_host.openapi import Part, answers, json_content, record, ref, variable, whole
from tidemill_host.refusals import json_response
from tidemill_host.routing import Route, Variables
from tidemill_wire import limits
from tidemill_wire.burying import Purge, Redrive
from tidemill_wire.commands import Command, Done
from tidemill_wire.kinds import Place
from tidemill_wire.ranges import portions
from tidemill_wire.schema import parse_timestamp
from tidemill_wire.steering import Seek, Sought, Suspend

GROUP = "/v1/subjects/{subject}/groups/{group}"
PLACES = {"earliest": Place.EARLIEST, "latest": Place.LATEST}
SEQUENCE_MAX = (1 << 63) - 1
ERRORS = (400, 404, 408, 413, 415, 429, 500, 503)


class Steering:
    """All requests that are about a whole group."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._bodies = Bodies(limits.HTTP_HELD_BYTES_MAX)
        self._peer: LocalPeer | None = None

    def routes(self) -> list[Route]:
        return [
            Route("POST", f"{GROUP}/seek", self.seek),
            Route("POST", f"{GROUP}/suspend", self.suspend),
            Route("POST", f"{GROUP}/resume", self.resume),
            Route("POST", f"{GROUP}/dead/redrive", self.redrive),
            Route("POST", f"{GROUP}/dead/purge", self.purge),
        ]

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()

    async def seek(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """Let the group go on elsewhere, or say what that would do."""
        subject, group = subject_of(request, variables), group_of(variables)
        value = await self._value(request, frozenset({"to", "rehearsal"}))
        place, number = parse_place(value.get("to"))
        answer = await self._ask(Seek(group, subject, place, number, flag(value, "rehearsal")))
        assert isinstance(answer, Sought)
        return json_response({name: number for name, number in answer.fields().items() if name != "before"})

    async def suspend(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """Give the group nothing more."""
        return await self._suspend(request, variables, suspended=True)

    async def resume(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """Let it go on where it stood."""
        return await self._suspend(request, variables, suspended=False)

    async def _suspend(
        self, request: web.BaseRequest, variables: Variables, *, suspended: bool
    ) -> web.StreamResponse:
        subject, group = subject_of(request, variables), group_of(variables)
        await self._value(request, frozenset(), empty=True)
        await self._ask(Suspend(group, subject, suspended))
        return json_response({"suspended": suspended})

    async def redrive(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """Give dead letters to the group again."""
        return await self._bury(request, variables, Redrive)

    async def purge(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """Nobody wants them any more."""
        return await self._bury(request, variables, Purge)

    async def _bury(
        self,
        request: web.BaseRequest,
        variables: Variables,
        make: Callable[[str, str, list[int]], Redrive | Purge],
    ) -> web.StreamResponse:
        subject, group = subject_of(request, variables), group_of(variables)
        ranges = parse_letters(await self._value(request, frozenset({"all", "sequences"})))
        state, count = self._service.broker.state, 0
        known = state.group_of(subject, group)
        if known is not None and known.identity not in state.dead:
            return json_response({"count": 0})  # nothing of it has died yet
        parts: list[list[int]] = [list(part) for part in portions(ranges)] if ranges else [[]]
        for part in parts:
            answer = await self._ask(make(subject, group, part))
            assert isinstance(answer, Done)
            count += answer.count
        return json_response({"count": count})

    async def _value(
        self, request: web.BaseRequest, known: frozenset[str], *, empty: bool = False
    ) -> dict[str, Any]:
        with self._bodies.room() as room:
            value = await value_of(request, room, empty=empty)
        check_fields(value, known)
        return value

    async def _ask(self, command: Command) -> Command:
        if self._peer is None:
            self._peer = LocalPeer(self._service.server, lambda _: None)
        return await self._peer.ask(command)


def parse_place(to: object) -> tuple[Place, int]:
    """Where a group goes on: a word, a sequence, or a time as a text."""
    if isinstance(to, str):
        if to in PLACES:
            return PLACES[to], 0
        at_ms = parse_timestamp(to)
        if at_ms is not None:
            return Place.TIME, max(0, at_ms)
    if type(to) is float and to.is_integer():
        to = int(to)
    if type(to) is int and 0 <= to <= SEQUENCE_MAX:
        return Place.SEQUENCE, to
    raise malformed("to is none of earliest, latest, a sequence and a time such as 2026-09-01T00:00:00Z")


def parse_letters(value: Mapping[str, Any]) -> list[int]:
    """Ranges of sequences in the dead letters; an empty list means all, which has to be said."""
    if flag(value, "all"):
        if "sequences" in value:
            raise malformed("all and sequences are both there: name one of the two")
        return []
    written: object = value.get("sequences")
    most = limits.HTTP_MESSAGES_MAX
    if not isinstance(written, list) or not 0 < len(cast("list[object]", written)) <= most:
        raise malformed(f"sequences is no list of 1 to {most}, and all is not true")
    numbers = {_sequence(one) for one in cast("list[object]", written)}
    return merge_ranges([(number, 1) for number in sorted(numbers)])


def _sequence(written: object) -> int:
    number = int(written) if type(written) is float and written.is_integer() else written
    if type(number) is not int or not 0 <= number <= SEQUENCE_MAX:
        raise malformed("sequences holds something else than sequences")
    return number


def paths() -> dict[str, Part]:
    """Path items of the page."""
    moved = {"sequence": 0, "again": 3, "skipped": 0, "in_flight": 1, "failed": 0}
    return {
        f"{GROUP}/seek": _steering(
            "seek", "Let the group go on elsewhere", ref("Seek"), {"to": "earliest"}, ref("Sought"), moved
        ),
        f"{GROUP}/suspend": _steering(
            "suspend", "Give the group nothing more", None, None, ref("Suspended"), {"suspended": True}
        ),
        f"{GROUP}/resume": _steering(
            "resume", "Let the group go on where it stood", None, None, ref("Suspended"), {"suspended": False}
        ),
        f"{GROUP}/dead/redrive": _steering(
            "redrive", "Give dead letters to the group again", ref("Letters"), {"sequences": [0, 1, 4]}, ref("Buried"),
            {"count": 3},
        ),
        f"{GROUP}/dead/purge": _steering(
            "purge", "Drop dead letters for ever", ref("Letters"), {"all": True}, ref("Buried"), {"count": 5}
        ),
    }  # fmt: skip


def _steering(name: str, summary: str, body: Part | None, example: Any, answer: Part, answered: Any) -> Part:
    subject, group = variable("subject", "the subject's name"), variable("group", "the consumer group's name")
    operation: Part = {
        "operationId": name,
        "summary": summary,
        "parameters": [subject, group],
        "responses": answers(answer, answered, summary, ERRORS),
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": json_content(body, example)}
    return {"post": operation}


def schemas() -> dict[str, Part]:
    """What is said and answered."""
    sequence = whole(0, SEQUENCE_MAX, description="a sequence: what the group is given next")
    time = {"type": "string", "format": "date-time", "description": "what was stored then or later"}
    numbers: dict[str, Part] = {
        "sequence": whole(0, description="what the group is given next"),
        "again": whole(0, description="messages that it had been given, and is given again"),
        "skipped": whole(0, description="messages that it had not been given, and is not given any more"),
        "in_flight": whole(0, description="messages that consumers held; their leases are void"),
        "failed": whole(0, description="messages that waited for another attempt, and do so no more"),
    }
    sequences: Part = {
        "type": "array",
        "items": whole(0, SEQUENCE_MAX),
        "minItems": 1,
        "maxItems": limits.HTTP_MESSAGES_MAX,
        "description": "which, by their sequences in the dead letters",
    }
    return {
        "Seek": record(
            {
                "to": {"anyOf": [{"enum": ["earliest", "latest"]}, sequence, time]},
                "rehearsal": {
                    "type": "boolean",
                    "default": False,
                    "description": "only say what it would do",
                },
            },
            ("rehearsal",),
        ),
        "Sought": record(numbers),
        "Suspended": record({"suspended": {"type": "boolean"}}),
        "Letters": {
            "anyOf": [
                record({"sequences": sequences}),
                record({"all": {"const": True, "description": "every dead letter of the group"}}),
            ]
        },
        "Buried": record({"count": whole(0, description="dead letters for which it was done now")}),
    }

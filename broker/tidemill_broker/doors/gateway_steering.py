"""Steering over HTTP: moving, suspending and resuming a group, and settling its dead letters.

Peers of the broker's machine, as the gateway is: a request becomes the command that a client would send.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from aiohttp import web

from tidemill_broker.doors.gateway_letters import FIELDS, SEQUENCE_MAX, Chosen, allowed, parse_letters
from tidemill_broker.doors.gateway_letters import schema as letters_schema
from tidemill_broker.doors.gateway_messages import check_fields, malformed
from tidemill_broker.doors.gateway_requests import flag, group_of, partition_of, value_of
from tidemill_broker.doors.queries import Queries
from tidemill_broker.doors.service import Service
from tidemill_broker.groups import Group
from tidemill_broker.queries import Query, Span
from tidemill_broker.ranges import merge_ranges
from tidemill_host.bodies import Bodies
from tidemill_host.local import LocalPeer
from tidemill_host.openapi import Part, answers, json_content, record, ref, variable, whole
from tidemill_host.refusals import json_response, refusal_of
from tidemill_host.routing import Route, Variables
from tidemill_wire import limits
from tidemill_wire.burying import Purge, Redrive
from tidemill_wire.commands import Command, Done
from tidemill_wire.errors import Refused
from tidemill_wire.kinds import Place
from tidemill_wire.ranges import portions
from tidemill_wire.schema import parse_timestamp
from tidemill_wire.steering import Seek, Sought, Suspend

GROUP = "/v1/subjects/{subject}/groups/{group}"
PLACES = {"earliest": Place.EARLIEST, "latest": Place.LATEST}
ERRORS = (400, 404, 408, 413, 415, 429, 500, 503)


class Steering:
    """All requests that are about a whole group."""

    def __init__(self, service: Service, queries: Queries) -> None:
        self._service = service
        self._queries = queries
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
        subject, group = partition_of(request, variables), group_of(variables)
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
        subject, group = partition_of(request, variables), group_of(variables)
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
        subject, group = partition_of(request, variables), group_of(variables)
        value = await self._value(request, FIELDS)
        letters = parse_letters(value)
        twins = self._twins(subject, group)
        if twins is None:
            raise refusal_of(Refused("not_found", f"subject {subject!r} has no group {group!r}"))
        if not twins:
            return json_response({"count": 0})  # nothing of it has died yet
        if isinstance(letters, list):
            count = await self._tell([make(subject, group, part) for part in _parts(letters)])
            return json_response({"count": count})
        count = 0
        for name, twin in twins:
            sequences = await self._chosen(twin, letters)
            ranges = merge_ranges([(sequence, 1) for sequence in sequences])
            if flag(value, "rehearsal"):
                count += len(sequences)
            elif ranges:
                count += await self._tell([make(name, group, part) for part in _parts(ranges)])
        return json_response({"count": count})

    def _twins(self, subject: str, group: str) -> list[tuple[str, Group]] | None:
        """Partitions with dead letters of a group, and its twin in them; ``None``: there is no such group."""
        broker = self._service.broker
        names = [partition.name for partition in broker.intake.further.whole(subject)]
        known = [(name, found) for name in names if (found := broker.state.group_of(name, group)) is not None]
        dead = [(name, broker.state.dead.get(found.identity)) for name, found in known]
        twins = [(name, broker.state.groups[twin]) for name, twin in dead if twin is not None]
        return twins if known else None

    async def _chosen(self, twin: Group, chosen: Chosen) -> list[int]:
        """The sequences of those that are meant, page by page out of the log."""
        grave = self._service.broker.state.partitions[twin.partition]
        found: list[int] = []
        span: Span | None = Span(0, grave.visible)
        while span is not None:
            pages = partial(_page, span=span, chosen=chosen, handled=list(twin.handled))
            sequences, after = await self._queries.ask(pages, limits.QUERY_MESSAGES_MAX, grave)
            found += sequences
            span = None if after is None else Span(int(after) + 1, grave.visible)
        return found

    async def _tell(self, commands: Sequence[Redrive | Purge]) -> int:
        """For how many it was done."""
        count = 0
        for command in commands:
            answer = await self._ask(command)
            assert isinstance(answer, Done)
            count += answer.count
        return count

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


def _page(query: Query, span: Span, chosen: Chosen, handled: Sequence[int]) -> tuple[list[int], str | None]:
    """What is meant of one page, and where the next one begins; for the read lane."""
    answer = query.browse(span, False)
    return allowed(answer.messages, chosen, handled), answer.after


def _parts(ranges: list[int]) -> list[list[int]]:
    """As much as a command may name at once; no range means all."""
    return [list(part) for part in portions(ranges)] if ranges else [[]]


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
            "purge", "Drop dead letters for ever", ref("Letters"), {"reason": "no amount", "rehearsal": True},
            ref("Buried"), {"count": 5}
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
        "Letters": letters_schema(),
        "Buried": record({"count": whole(0, description="dead letters for which it was done now")}),
    }

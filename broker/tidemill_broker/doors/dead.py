"""The HTTP path of a group's dead letters: where they lie, how many there are, which were redriven or purged."""

from __future__ import annotations

from aiohttp import web

from tidemill_broker.graves import status_of_all
from tidemill_broker.machine import Broker
from tidemill_host.openapi import Part, answers, record, variable, whole
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Route, Variables

PATH = "/v1/subjects/{subject}/groups/{group}/dead"


class Dead:
    """Answers ``routes``."""

    def __init__(self, broker: Broker) -> None:
        self._state = broker.state
        self._further = broker.intake.further

    def routes(self) -> list[Route]:
        """What this door answers."""
        return [Route("GET", PATH, self._answer)]

    async def _answer(self, _request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        partitions = self._further.whole(variables["subject"])
        found = [self._state.group_of(partition.name, variables["group"]) for partition in partitions]
        groups = [group for group in found if group is not None]
        if not groups:
            detail = (
                f"there is no group {variables['group'][:100]!r} of subject {variables['subject'][:100]!r}"
            )
            raise HttpRefused(404, "not_found", detail, "look it up with `tidemill groups`")
        return json_response(status_of_all(self._state, groups))


def paths() -> dict[str, Part]:
    """The path item."""
    example = {
        "subject": "%dead%order.created%billing",
        "first": 0,
        "next": 3,
        "waiting": 2,
        "handled": [1, 1],
        "partitions": [
            {
                "partition": "order.created",
                "subject": "%dead%order.created%billing",
                "first": 0,
                "next": 3,
                "waiting": 2,
                "handled": [1, 1],
            }
        ],
        "errors": [
            {
                "reason": "ValueError: no amount",
                "error": "ValueError",
                "place": "shop.py:12 in charge",
                "fingerprint": "bb01c3b9",
                "messages": 3,
                "last_ms": 1_780_000_000_000,
            }
        ],
    }
    subject, group = variable("subject", "the subject's name"), variable("group", "the consumer group's name")
    operation = {
        "operationId": "dead_letters",
        "summary": "The dead letters of a group",
        "parameters": [subject, group],
        "responses": answers({"$ref": "#/components/schemas/DeadLetters"}, example, "where they are", (404,)),
    }
    return {PATH: {"get": operation}}


def schemas() -> dict[str, Part]:
    """What it answers."""
    text: Part = {"type": "string"}
    error = record(
        {
            "reason": text,
            "error": {**text, "description": "the exception's type"},
            "place": {**text, "description": "where it was raised"},
            "fingerprint": {**text, "description": "the same for the same mistake"},
            "messages": whole(0),
            "last_ms": whole(0),
        }
    )
    place: dict[str, Part] = {
        "subject": {**text, "description": "browse it for the messages themselves"},
        "first": whole(0, description="the oldest sequence that is kept"),
        "next": whole(0),
        "waiting": whole(0, description="neither redriven nor purged"),
        "handled": {
            "type": "array",
            "items": whole(0),
            "description": "sequences that were redriven or purged: first, last, first, last …",
        },
    }
    fields: dict[str, Part] = {
        **place,
        "waiting": whole(0, description="neither redriven nor purged, in all partitions"),
        "partitions": {
            "type": "array",
            "items": record({"partition": text, **place}),
            "description": "each partition of the subject on this broker, its own first",
        },
        "errors": {
            "type": "array",
            "items": error,
            "description": "what messages failed of, newest first",
        },
    }
    return {"DeadLetters": record(fields)}

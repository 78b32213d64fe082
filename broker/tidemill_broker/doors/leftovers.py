"""What would be lost if this broker went: asked by whoever drains its group, and of nobody but its master.

A slave may not have heard yet of what its master took; so may a master that is none any more, and therefore the epoch
is said. Who does not answer is not known to be empty.
"""

from __future__ import annotations

from aiohttp import web

from tidemill_broker.doors.control import process_of
from tidemill_broker.doors.service import Service
from tidemill_broker.doors.status import Leftovers
from tidemill_broker.doors.survey import Slices
from tidemill_host.clock import Clock
from tidemill_host.openapi import Part, answers, record, ref, whole
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Route, Variables
from tidemill_ledger.following import Follower
from tidemill_wire.leftovers import PATH, UNDONE, Leftover, Undone

ADVICE = "GET /v1/brokers of meta says who is"


class LeftoversDoor:
    """Answers ``routes``."""

    def __init__(self, service: Service, clock: Clock) -> None:
        self._service = service
        self._clock = clock

    def routes(self) -> list[Route]:
        """What this door answers."""
        return [Route("GET", PATH, self._left)]

    async def _left(self, _request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        self._check_leads()
        look, slices = Leftovers(self._service.broker.state), Slices(self._clock)
        for _ in look.steps():
            await slices.breathe()
        self._check_leads()  # what was stopped meanwhile may have given away what was not looked at yet
        epoch = process_of(self._service)["epoch"]
        return json_response({"epoch": epoch, "subjects": [row.to_map() for row in look.rows()]})

    def _check_leads(self) -> None:
        if self._service.is_halted or isinstance(self._service.machine, Follower):
            name = self._service.broker.settings.name
            raise HttpRefused(503, "not_master", f"{name} is not the master of its group", ADVICE)


def paths() -> dict[str, Part]:
    """Path items of the page."""
    counts = {"lag": 2, "in_flight": 1, "failed": 0, "dead": 0}
    row = Leftover("order.created", (Undone("billing", "order.created", counts),), 1, 0, 0, 5, ("billing",))
    example = {"epoch": 3, "subjects": [row.to_map()]}
    reading: Part = {
        "operationId": "left",
        "summary": "What would be lost with this broker, by subject; said by a master alone",
        "responses": answers(ref("Left"), example, "All of it", (503,)),
    }
    return {PATH: {"get": reading}}


def schemas() -> dict[str, Part]:
    """What that path answers."""
    text: Part = {"type": "string"}
    undone = record({"group": text, "partition": text, **{name: whole(0) for name in UNDONE}})
    row = record(
        {
            "subject": text,
            "undone": {"type": "array", "items": undone, "description": "by groups that have begun"},
            "pending": whole(0, description="half messages of transactions that nobody has decided"),
            "hidden": whole(0, description="messages that are not committed yet"),
            "unarchived": whole(0, description="messages that an archive must have, and none has"),
            "kept": whole(0, description="all messages"),
            "begun": {
                "type": "array", "items": text,
                "description": "groups that are in each partition which keeps messages",
            },
        }
    )  # fmt: skip
    return {"Left": record({"epoch": whole(0), "subjects": {"type": "array", "items": row}})}

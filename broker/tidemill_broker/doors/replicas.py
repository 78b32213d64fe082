"""The HTTP paths of a broker group: what this broker is, what it wishes, and what it is told to be.

Only a replicated broker has them. An appointment is obeyed whoever brings it: these paths are meta's and an
administrator's, and are to be kept from everybody else as the port itself is.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from tidemill_broker.doors.gateway_messages import parse_json
from tidemill_broker.doors.service import Service
from tidemill_host.bodies import Bodies
from tidemill_host.local import LocalPeer
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Route, Variables
from tidemill_ledger.membership import Part, Role
from tidemill_wire.commands import Command
from tidemill_wire.errors import Refused
from tidemill_wire.fields import Fields
from tidemill_wire.limits import REQUEST_BYTES_MAX
from tidemill_wire.replication import Handover, Stand, Stood, parse_appoint

STANDING = "/v1/replication"
WISH = "/v1/replication/wish"
APPOINTMENT = "/v1/replication/appointment"
HANDOVER = "/v1/replication/handover"


class Replicas:
    """Answers ``routes``."""

    def __init__(self, service: Service, part: Part) -> None:
        self._service = service
        self._bodies = Bodies(REQUEST_BYTES_MAX)
        self._lone = part.role is Role.LONE
        self._peer: LocalPeer | None = None

    def routes(self) -> list[Route]:
        """What this door answers; nothing for a lone broker."""
        if self._lone:
            return []
        return [
            Route("GET", STANDING, self._stand),
            Route("POST", WISH, self._wish),
            Route("POST", APPOINTMENT, self._appoint),
            Route("POST", HANDOVER, self._hand_over),
        ]

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()

    async def _stand(self, _request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        return json_response(await self._standing(asks=False))

    async def _wish(self, _request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        """As STANDING, for whoever grants or refuses what is wished: the master waits for them from now on."""
        return json_response(await self._standing(asks=True))

    async def _standing(self, *, asks: bool) -> dict[str, Any]:
        stood = await self._ask(Stand(asks))
        assert isinstance(stood, Stood)
        return {
            "name": stood.name, "role": stood.role, "epoch": stood.epoch, "version": stood.version,
            "begun": stood.begun, "master": stood.master, "ends": stood.ends._asdict(),
            "committed": stood.committed._asdict(), "wish": None if stood.wish is None else list(stood.wish),
            "slaves": {name: ends._asdict() for name, ends in stood.slaves.items()},
        }  # fmt: skip

    async def _appoint(self, request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        """Be what the body says: an appointment, and where the brokers of the group listen."""
        await self._ask(parse_appoint(await self._fields(request)))
        return json_response({"obeyed": True})

    async def _hand_over(self, request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        """Take no more work, and answer when the slave has all; then it is to be appointed, within a few seconds."""
        try:
            await self._ask(Handover((await self._fields(request)).text("to", 200)))
        except Refused as error:
            if error.kind.name != "not_found":
                raise
            raise HttpRefused(404, "not_found", error.detail, f"GET {STANDING} says who is") from None
        return json_response({"left": True})

    async def _fields(self, request: web.BaseRequest) -> Fields:
        with self._bodies.room() as room:
            return Fields.of(parse_json(await room.read(request, REQUEST_BYTES_MAX)))

    async def _ask(self, command: Command) -> Command:
        if self._peer is None:
            self._peer = LocalPeer(self._service.server, lambda _answer: None)
        return await self._peer.ask(command)

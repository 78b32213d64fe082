"""Transactions over HTTP: those that are pending, and a person's word on one of them.

``POST`` becomes the command that a producer would say, so it is as durable, and may be said twice.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from aiohttp import web

from tidemill_broker.doors.gateway_messages import check_fields, malformed
from tidemill_broker.doors.gateway_requests import value_of
from tidemill_broker.doors.service import Service
from tidemill_broker.pending import Pending
from tidemill_host.bodies import Bodies
from tidemill_host.local import LocalPeer
from tidemill_host.openapi import Part, answers, pattern, record, ref, whole
from tidemill_host.refusals import json_response
from tidemill_host.routing import Route, Variables
from tidemill_wire import limits
from tidemill_wire.commands import Done
from tidemill_wire.transacting import Decide, Verdict, parse_transaction_id, transaction_id

PATH = "/v1/transactions"
ROWS_MAX = 1000
"""In one answer, the oldest first: more than a person looks at."""
ID = "[89a-f][0-9a-f]{15}"
ERRORS = (400, 404, 408, 409, 413, 415, 429, 500, 503)


class TransactionsDoor:
    """Answers ``routes``."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._bodies = Bodies(limits.HTTP_HELD_BYTES_MAX)
        self._peer: LocalPeer | None = None

    def routes(self) -> list[Route]:
        """What this door answers."""
        return [
            Route("GET", PATH, self._list),
            Route("POST", f"{PATH}/{{transaction}}/commit", self._commit),
            Route("POST", f"{PATH}/{{transaction}}/rollback", self._roll_back),
        ]

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()

    async def _list(self, _request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        pending = self._service.broker.state.transactions.pending
        rows = [row_of(number, one) for number, one in islice(pending.items(), ROWS_MAX)]
        return json_response({"pending": len(pending), "transactions": rows})

    async def _commit(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        return await self._decide(request, variables, Verdict.COMMIT)

    async def _roll_back(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        return await self._decide(request, variables, Verdict.ROLLBACK)

    async def _decide(
        self, request: web.BaseRequest, variables: Variables, verdict: Verdict
    ) -> web.StreamResponse:
        if request.query_string:
            raise malformed("this path takes nothing behind a question mark")
        try:
            number = parse_transaction_id(variables["transaction"])
        except ValueError as error:
            raise malformed(str(error)) from None
        with self._bodies.room() as room:
            check_fields(await value_of(request, room, empty=True), frozenset())
        if self._peer is None:
            self._peer = LocalPeer(self._service.server, lambda _: None)
        answer = await self._peer.ask(Decide(number, verdict))
        assert isinstance(answer, Done)
        return json_response({"count": answer.count})


def row_of(number: int, pending: Pending) -> dict[str, Any]:
    """A pending transaction, for people and programs."""
    return {
        "id": transaction_id(number),
        "group": pending.group,
        "subjects": pending.subjects,
        "messages": pending.messages,
        "bytes": pending.size,
        "stored_ms": pending.at_ms,
        "checks": pending.checks,
        "next_check_ms": pending.due_ms,
        "committing": pending.committing,
    }


def paths() -> dict[str, Part]:
    """Path items of the page."""
    row = {
        "id": "8f3a61c20d94be57", "group": "shop", "subjects": ["order.paid"], "messages": 1, "bytes": 344,
        "stored_ms": 1_780_000_000_000, "checks": 2, "next_check_ms": 1_780_000_066_000, "committing": False,
    }  # fmt: skip
    listed = {"pending": 1, "transactions": [row]}
    reading: Part = {
        "operationId": "transactions",
        "summary": "Transactions that nobody has decided, the oldest first",
        "responses": answers(ref("PendingTransactions"), listed, "as many as one answer holds", ()),
    }
    return {
        PATH: {"get": reading},
        f"{PATH}/{{transaction}}/commit": _deciding("commit_transaction", "Make its messages messages", 3),
        f"{PATH}/{{transaction}}/rollback": _deciding(
            "roll_back_transaction", "Show them to nobody, ever", 0
        ),
    }


def _deciding(name: str, summary: str, count: int) -> Part:
    said = "the transaction's id"
    variable: Part = {
        "name": "transaction", "in": "path", "required": True, "description": said, "schema": pattern(ID, said),
    }  # fmt: skip
    operation: Part = {
        "operationId": name,
        "summary": summary,
        "parameters": [variable],
        "responses": answers(ref("Decided"), {"count": count}, "it is decided, now or before", ERRORS),
    }
    return {"post": operation}


def schemas() -> dict[str, Part]:
    """What is answered."""
    text: Part = {"type": "string"}
    row = record(
        {
            "id": text,
            "group": {**text, "description": "the producer group that is asked about it"},
            "subjects": {"type": "array", "items": text},
            "messages": whole(1),
            "bytes": whole(1),
            "stored_ms": {"type": "integer", "description": "when its last half message came"},
            "checks": whole(0, description="how often it was asked about"),
            "next_check_ms": {"type": "integer", "description": "when it is asked about next"},
            "committing": {
                "type": "boolean",
                "description": "it is committed, and not all of it is copied yet",
            },
        }
    )
    return {
        "PendingTransactions": record(
            {
                "pending": whole(0, description="how many there are"),
                "transactions": {"type": "array", "items": row, "maxItems": ROWS_MAX},
            }
        ),
        "Decided": record({"count": whole(0, description="messages that were committed")}),
    }

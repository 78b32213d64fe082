"""The HTTP paths that look for stored messages. The work is done in the read lane, two questions at a time.

A question is parsed on the loop, and a view of what is stored is made there; finding, reading and writing the answer's
JSON is the thread's. When retention takes a file meanwhile, the question is asked once more of a new view.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from tidemill_broker.doors.parameters import (
    limit_of,
    number_of,
    parameters_of,
    time_of,
    wrong,
)
from tidemill_broker.machine import Broker
from tidemill_broker.messages import Found
from tidemill_broker.partitions import Partition
from tidemill_broker.queries import (
    SEQUENCE_END,
    TIME_END,
    Answer,
    Budget,
    Missing,
    Place,
    Query,
    Span,
    parse_place,
    view_of,
)
from tidemill_host.clock import timestamp
from tidemill_host.disk import Disk, size_of
from tidemill_host.files import Files
from tidemill_host.refusals import HttpRefused
from tidemill_host.routing import Route, Variables
from tidemill_journal.errors import CorruptIndex, CorruptRun
from tidemill_wire import limits
from tidemill_wire.batch import MESSAGE_ID, parse_message_id
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.fields import NAME
from tidemill_wire.properties import shown_properties

VIEWS_MAX = 3
OF_KEY = ("key", "from", "to", "limit", "after", "order")
OF_SUBJECT = (*OF_KEY, "sequence")
ORDERS = ("oldest", "newest")
OWN_MARKS = re.compile("[%#]")
"""In names that no user gives: lanes, dead letters, further partitions."""
AFTER = re.compile(r"[0-9]{1,18}(?:-[0-9]{1,18})?")

T = TypeVar("T")


class Queries:
    """Answers ``routes``. ``read`` is the executor in which it works."""

    def __init__(self, broker: Broker, disk: Disk, read: Executor) -> None:
        self._broker = broker
        self._disk = disk
        self._files = Files(disk)
        self._lane = read
        self._running = asyncio.Semaphore(limits.QUERIES_RUNNING_MAX)
        self._waiting = 0

    def routes(self) -> list[Route]:
        """What this door answers."""
        return [
            Route("GET", "/v1/messages/{id}", self._message),
            Route("GET", "/v1/messages", self._by_key),
            Route("GET", "/v1/subjects/{subject}/messages", self._of_subject),
        ]

    # -- paths -------------------------------------------------------------------------------------------------

    async def _message(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        parameters_of(request, ())
        try:
            batch_id, index = parse_message_id(variables["id"])
        except ValueError as error:
            if MESSAGE_ID.fullmatch(variables["id"]):  # its number is larger than any batch has messages
                raise _no_message(variables["id"]) from None
            raise wrong(str(error)) from None
        found = await self.ask(lambda query: _encoded(query.by_id(batch_id, index)))
        if found is None:
            found = _json(message_value(await self.letter_of(variables["id"])))
        return _response(found)

    async def _by_key(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        parameters = parameters_of(request, OF_KEY)
        if "key" not in parameters:
            raise wrong("a search through all subjects needs a key")
        return await self._find(parameters, None)

    async def _of_subject(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        parameters, subject = parameters_of(request, OF_SUBJECT), variables["subject"]
        if not NAME.fullmatch(OWN_MARKS.sub("", subject)):
            raise HttpRefused(
                400, "invalid_subject", f"{subject[:100]!r} is no subject name",
                "use 1 to 100 characters of A-Z a-z 0-9 . _ -",
            )  # fmt: skip
        partition = self._broker.state.by_name.get(subject.encode())
        if partition is None:
            raise HttpRefused(
                404, "not_found", f"there is no subject {subject!r}", "look it up with `tidemill subjects`"
            )
        if "key" in parameters:
            return await self._find(parameters, subject.encode())
        newest, limit, span = _order(parameters), _limit(parameters), _span(parameters)
        if "after" in parameters:
            after = _after(parameters["after"])
            if not isinstance(after, int):
                raise _another_question()
            first, end = (
                (span.first, min(span.end, after)) if newest else (max(span.first, after + 1), span.end)
            )
            span = Span(first, end, span.from_ms, span.to_ms)
        return _response(
            await self.ask(lambda query: _encoded_answer(query.browse(span, newest)), limit, partition)
        )

    async def _find(self, parameters: Mapping[str, str], subject: bytes | None) -> web.StreamResponse:
        key, newest, span = parameters["key"], _order(parameters), _span(parameters)
        if not 0 < len(key) <= limits.KEY_BYTES_MAX:
            raise wrong(f"a key has 1 to {limits.KEY_BYTES_MAX} bytes")
        start: Place | None = None
        if "after" in parameters:
            after = _after(parameters["after"])
            if isinstance(after, int):
                raise _another_question()
            start = after
        return _response(
            await self.ask(
                lambda query: _encoded_answer(query.by_key(key, subject, span, start, newest)),
                _limit(parameters),
            )
        )

    # -- work --------------------------------------------------------------------------------------------------

    async def letter_of(self, identity: str) -> Found:
        """The newest dead letter of a message that is not kept any more; refused when there is none."""

        def look(query: Query) -> tuple[Found | None, bool]:
            return query.letter_of(identity), query.budget.worn

        found, worn = await self.ask(look, letters=True)
        if found is not None:
            return found
        if worn:
            raise HttpRefused(
                404, "not_found", f"there is no message {identity}; not all dead letters were looked at for it",
                "`tidemill dead show SUBJECT --group GROUP ID` looks at all of one group",
            )  # fmt: skip
        raise _no_message(identity)

    async def ask(
        self,
        job: Callable[[Query], T],
        limit: int = 1,
        browsed: Partition | None = None,
        *,
        letters: bool = False,
    ) -> T:
        """Do it in the read lane, when it is this one's turn."""
        if self._waiting >= limits.QUERIES_WAITING_MAX:
            raise HttpRefused(
                429,
                "too_many_requests",
                f"{self._waiting} questions wait already",
                "ask again a little later",
            )
        self._waiting += 1
        try:
            async with self._running:
                return await self._work(job, limit, browsed, letters)
        finally:
            self._waiting -= 1

    async def _work(
        self, job: Callable[[Query], T], limit: int, browsed: Partition | None, letters: bool
    ) -> T:
        loop = asyncio.get_running_loop()
        gone = ""
        try:
            for _ in range(VIEWS_MAX):
                view = view_of(self._broker.state, self._broker.logs.messages, browsed, letters=letters)
                query = Query(view, self._files.take, partial(size_of, self._disk), Budget(limit))
                try:
                    return await loop.run_in_executor(self._lane, job, query)
                except (FileNotFoundError, Missing) as error:
                    gone = str(error)
        except (CorruptIndex, CorruptRun) as error:
            raise HttpRefused(500, "read_failed", str(error), "its messages are not concerned") from error
        except CorruptBatch as error:
            raise HttpRefused(
                500, "read_failed", str(error), "run `tidemill inspect log` on the broker's data folder"
            ) from error
        except OSError as error:
            raise HttpRefused(
                500, "read_failed", error.strerror or str(error), "look at the broker's disk"
            ) from error
        raise HttpRefused(
            500,
            "read_failed",
            f"a file is missing ({gone})",
            "restore it, or restart the broker if it is an index",
        )


# -- questions ---------------------------------------------------------------------------------------------------


def _no_message(identity: str) -> HttpRefused:
    return HttpRefused(
        404, "not_found", f"there is no message {identity}", "it may have expired, or never been sent"
    )


def _order(parameters: Mapping[str, str]) -> bool:
    """Whether the newest come first."""
    order = parameters.get("order", ORDERS[0])
    if order not in ORDERS:
        raise wrong(f"the order {order[:60]!r} is none: write oldest or newest")
    return order == "newest"


def _limit(parameters: Mapping[str, str]) -> int:
    return limit_of(parameters, limits.QUERY_MESSAGES_DEFAULT, limits.QUERY_MESSAGES_MAX)


def _span(parameters: Mapping[str, str]) -> Span:
    first, end = 0, SEQUENCE_END
    if (written := parameters.get("sequence")) is not None:
        low, dash, high = written.partition("-")
        first = number_of("sequence", low)
        end = number_of("sequence", high) + 1 if dash else SEQUENCE_END
    return Span(first, end, time_of(parameters, "from", 0), time_of(parameters, "to", TIME_END))


def _after(written: str) -> int | Place:
    """A sequence, when a subject was browsed; a place, when a key was searched."""
    if not AFTER.fullmatch(written):
        raise wrong(f"after {written[:60]!r} is nothing that a page says in `after`")
    return parse_place(written) if "-" in written else int(written)


def _another_question() -> HttpRefused:
    return HttpRefused(
        409,
        "malformed_request",
        "`after` comes from a page of another question",
        "ask as you asked for that page",
    )


# -- answers -----------------------------------------------------------------------------------------------------


def _response(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json", headers={"Server": "tidemill"})


def _encoded(found: Found | None) -> bytes | None:
    return None if found is None else _json(message_value(found))


def _encoded_answer(answer: Answer) -> bytes:
    return _json({"messages": [message_value(one) for one in answer.messages], "after": answer.after})


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def message_value(found: Found) -> dict[str, Any]:
    """A message as JSON has it. Its body is base64, and also a text when it is one."""
    try:
        text = found.body.decode()
    except UnicodeDecodeError:
        text = None
    return {
        "id": found.id,
        "subject": found.subject,
        "sequence": found.sequence,
        "stored_at": _timestamp(found.stored_at_ms),
        "created_at": _timestamp(found.created_at_ms),
        "key": found.key,
        "tags": sorted(found.tags),
        "properties": shown_properties(found.properties),
        "attempts": found.attempts,
        "origin": found.origin,
        "priority": found.priority,
        "problem": found.problem,
        "body": base64.b64encode(found.body).decode(),
        "text": text,
    }


def _timestamp(at_ms: int) -> str | None:
    """RFC 3339, ``None`` for what a producer's clock should not have said."""
    try:
        return timestamp(at_ms)
    except (OverflowError, ValueError, OSError):
        return None

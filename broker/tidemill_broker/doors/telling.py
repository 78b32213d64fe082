"""What was done with messages, over HTTP, for who archives: it would rather ask a slave.

``GET /v1/actions`` says from where to where the action log may be read.
``GET /v1/actions/records?from=&until=&subject=`` gives what its records say of some subjects, with names instead of
numbers, and where to go on; a megabyte of the log is looked through for one answer, and there may be nothing in it.

Python's work is per record: a record is about a range, whatever the number of its messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aiohttp import web

from tidemill_broker.doors.archivable import archivable, who
from tidemill_broker.doors.parameters import number_of, wrong
from tidemill_broker.doors.queries import Queries
from tidemill_broker.doors.service import Service
from tidemill_broker.queries import Query
from tidemill_broker.telling import Names, records_in, tell
from tidemill_host.files import Files
from tidemill_host.machine import Slice
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Route, Variables
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import Record
from tidemill_journal.segments import Segments
from tidemill_wire import limits
from tidemill_wire.errors import Refused
from tidemill_wire.filters import is_pattern, matches_pattern, parse_subscribed

PATH = "/v1/actions"
ADVICE = "go on from what an answer says, or ask another replica: they have the same actions"


class Telling:
    """Answers ``routes``. It waits and reads where ``queries`` do."""

    def __init__(self, service: Service, queries: Queries, files: Files) -> None:
        self._service = service
        self._queries = queries
        self._files = files
        self._names = Names()

    def routes(self) -> list[Route]:
        """What this door answers."""
        return [Route("GET", PATH, self._stand), Route("GET", f"{PATH}/records", self._records)]

    async def _stand(self, request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        if request.rel_url.query:
            raise wrong("this path takes no parameters")
        segments, end = self._view()
        first = min(segments.start, end)
        found = await self._queries.ask(lambda _: next(self._read(segments, first, end), None))
        since = None if found is None else found.at_ms
        return json_response({**who(self._service), "first": first, "next": end, "since": since})

    async def _records(self, request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        query = request.rel_url.query
        for name in query:
            if name not in {"from", "until", "subject"}:
                raise wrong(f"there is no parameter {name[:60]!r} here")
        wanted = _wanted(query.getall("subject", []))
        segments, end = self._view()
        first = number_of("from", query["from"]) if "from" in query else segments.start
        if first < segments.start:
            raise HttpRefused(
                410, "not_found", f"the action log begins at {segments.start} by now",
                f"go on from {segments.start}", {"first": segments.start},
            )  # fmt: skip
        if "until" in query:
            end = min(end, number_of("until", query["until"]))
        if self._names.full:
            self._names = Names()
        names = self._names
        names.follow(self._service.broker.state)
        head = who(self._service)

        def answered(query: Query) -> bytes:
            found = self._tell(query, names, segments, (first, end), wanted)
            return json.dumps({**head, **found}, ensure_ascii=False).encode()

        found = await self._queries.ask(answered)
        return web.Response(body=found, content_type="application/json", headers={"Server": "tidemill"})

    def _view(self) -> tuple[Segments, int]:
        """The action log as it is now, and up to where it may be read."""
        end, actions = archivable(self._service).action, self._service.broker.logs.actions
        return Segments(actions.folder, actions.size_max, actions.bases, actions.end), end

    def _tell(
        self,
        query: Query,
        names: Names,
        segments: Segments,
        span: tuple[int, int],
        wanted: Callable[[str], bool],
    ) -> dict[str, Any]:
        """In the read lane."""
        first, end = span
        records: list[Record] = []
        behind = first
        for record in self._read(segments, first, end):
            records.append(record)
            behind = record.position + record.length
            if behind - first >= limits.ACTIONS_BYTES_MAX:
                break

        def learn() -> None:
            names.learn(self._read(segments, max(names.learnt, segments.start), end), end)

        rows, unnamed = tell(records, names, wanted, query.first_at, learn)
        return {"next": behind, "unnamed": unnamed, "records": rows}

    def _read(self, segments: Segments, first: int, end: int) -> Iterator[Record]:
        try:
            yield from records_in(segments, self._take, first, end)
        except FileNotFoundError:
            raise HttpRefused(
                410, "not_found", "a segment has just expired", "ask where it begins now"
            ) from None
        except CorruptRecord as error:
            raise HttpRefused(
                400, "malformed_request", f"no record begins at {first} of the action log: {error}", ADVICE
            ) from None

    def _take(self, file: str, place: int, size: int) -> bytes:
        return self._files.take(Slice(file, place, size))


def _wanted(names: Iterable[str]) -> Callable[[str], bool]:
    try:
        patterns = [parse_subscribed(name) for name in names if is_pattern(name)]
    except Refused as error:
        raise wrong(error.detail) from None
    subjects = {name for name in names if not is_pattern(name)}
    if not patterns and not subjects:
        return lambda _: True
    return lambda one: one in subjects or any(matches_pattern(pattern, one) for pattern in patterns)

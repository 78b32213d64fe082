"""What is committed of partitions, over HTTP, for who archives: it would rather ask a slave.

``GET /v1/ranges?subject=S`` says which partitions there are and from where to where they may be read; with ``at=TIME``
also the first sequence of that time. ``GET /v1/ranges/PARTITION?from=&until=`` cuts that into pieces, without reading.
``GET /v1/ranges/PARTITION/batches?from=&until=&size=`` gives whole batches as they lie in the log, and says in the head
``Tidemill-Next`` behind which sequence they end: ask again from there. ``POST /v1/ranges/batches`` gives those of
several partitions together (``woven.py``).

Python's work is per answer: rows are numpy's, bytes go from the page cache to the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from aiohttp import web

from tidemill_broker.doors.archivable import archivable, who
from tidemill_broker.doors.gateway_letters import SEQUENCE_MAX
from tidemill_broker.doors.gateway_messages import check_fields, integer, parse_json
from tidemill_broker.doors.parameters import number_of, parameters_of, time_of, wrong
from tidemill_broker.doors.service import Service
from tidemill_broker.partitions import Partition
from tidemill_broker.stretches import Extent, Gathered, Part, parts, pieces, readable, since
from tidemill_broker.woven import Cut, Woven
from tidemill_host.bodies import Bodies
from tidemill_host.disk import Disk
from tidemill_host.files import Files
from tidemill_host.machine import Slice
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Route, Variables
from tidemill_journal.entries import Rows, Run, read_windows, run_file
from tidemill_journal.errors import CorruptRecord
from tidemill_wire import limits
from tidemill_wire.errors import Refused
from tidemill_wire.fields import DEAD_PREFIX, living_subject
from tidemill_wire.filters import is_pattern, matches_pattern, parse_subscribed
from tidemill_wire.transacting import HALF_PARTITION

PATH = "/v1/ranges"
NEXT = "Tidemill-Next"
WINDOWS_AT_ONCE = 8
SPARSE = 2
"""Extents that lie within so many times their size are read at once, with what is between them."""
VIEWS_AT_ONCE = 64
SPANS_BYTES_MAX = 512 * limits.RANGE_SPANS_MAX
OTHERS = "the other replicas of its broker group have the same messages"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part of one partition, as it is looked for in the read lane."""

    parts: Sequence[Part]
    first: int
    end: int


class Stretches:
    """Answers ``routes``. ``read`` is the executor in which it reads."""

    def __init__(self, service: Service, disk: Disk, read: Executor) -> None:
        self._service = service
        self._files = Files(disk)
        self._lane = read
        self._bodies = Bodies(limits.HTTP_HELD_BYTES_MAX)
        self._running = asyncio.Semaphore(limits.RANGES_RUNNING_MAX)
        self._waiting = 0
        self.bytes_given = 0

    def routes(self) -> list[Route]:
        """What this door answers."""
        return [
            Route("GET", PATH, self._list),
            Route("GET", f"{PATH}/{{partition}}", self._pieces),
            Route("GET", f"{PATH}/{{partition}}/batches", self._batches),
            Route("POST", f"{PATH}/batches", self._together),
        ]

    # -- which there are -----------------------------------------------------------------------------------------

    async def _list(self, request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        query = request.rel_url.query
        for name in query:
            if name not in {"subject", "at"}:
                raise wrong(f"there is no parameter {name[:60]!r} here")
        names = query.getall("subject", [])
        at = time_of({"at": query["at"]}, "at", 0) if "at" in query else None
        limit, segments = self._limit(), self._service.broker.logs.messages
        rows: list[dict[str, Any]] = []
        views: list[Wanted] = []
        for partition in self._found(names):
            first, end = partition.first_kept, readable(partition, segments, limit)
            size = sum(piece.bytes for piece in pieces(partition, first, end))
            row = {"subject": living_subject(partition.name), "partition": partition.name}
            rows.append({**row, "first": first, "next": end, "bytes": size})
            if at is not None:
                views.append(self._view(partition, first, end, limits.MESSAGE_SEGMENT_BATCHES))
        if at is not None:
            found = await self._work(lambda: [self._since(view, at) for view in views])
            rows = [{**row, "at": sequence} for row, sequence in zip(rows, found, strict=True)]
        return json_response({**who(self._service), "partitions": rows})

    def _view(
        self, partition: Partition, first: int, end: int, rows_max: int = limits.RANGE_EXTENTS_MAX
    ) -> Wanted:
        """No more rows than one answer has anyway are copied; of a request for many partitions, together."""
        if rows_max <= 0:
            return Wanted((), first, first)
        if first >= end:
            return Wanted((), first, end)
        found = tuple(parts(partition, self._service.broker.logs.messages, first, end, rows_max))
        last = found[-1].rows if found and found[-1].run is None else None
        return Wanted(found, first, end if last is None else min(end, max(first, last.end_sequence)))

    def _found(self, names: Iterable[str]) -> list[Partition]:
        try:
            patterns = [parse_subscribed(name) for name in names if is_pattern(name)]
        except Refused as error:
            raise wrong(error.detail) from None
        subjects = {name for name in names if not is_pattern(name)}
        everything = not patterns and not subjects
        return [
            partition
            for partition in self._service.broker.state.by_name.values()
            if not partition.name.startswith((DEAD_PREFIX, HALF_PARTITION))
            and (everything or _matches(living_subject(partition.name), subjects, patterns))
        ]

    def _since(self, view: Wanted, at_ms: int) -> int:
        """The first sequence of a time, or where what may be read ends."""
        for part in view.parts:
            run = part.run
            if run is not None and run.last_stored_at_ms < at_ms:
                continue
            for rows in self._rows(part, view.first):
                found = since(rows, at_ms)
                if found is not None:
                    return min(max(found, view.first), view.end)
        return view.end

    # -- pieces --------------------------------------------------------------------------------------------------

    async def _pieces(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        parameters = parameters_of(request, ("from", "until"))
        partition, first, end = self._span(variables["partition"], **_bounds(parameters))
        found = islice(pieces(partition, first, end), limits.RANGE_PIECES_MAX)
        return json_response({**who(self._service), "pieces": [list(one) for one in found]})

    def _span(
        self, name: str, first: int | None = None, until: int | None = None
    ) -> tuple[Partition, int, int]:
        partition = self._service.broker.state.by_name.get(name.encode(errors="replace"))
        if partition is None or name.startswith((DEAD_PREFIX, HALF_PARTITION)):
            raise HttpRefused(
                404, "not_found", f"there is no partition {name[:200]!r}", f"GET {PATH} says which there are"
            )
        kept = partition.first_kept
        end = readable(partition, self._service.broker.logs.messages, self._limit())
        first = kept if first is None else first
        if first < kept:
            raise HttpRefused(
                410, "not_found", f"partition {name!r} begins at {kept} by now", f"go on from {kept}",
                {"first": kept},
            )  # fmt: skip
        return partition, first, end if until is None else min(end, until)

    # -- batches -------------------------------------------------------------------------------------------------

    async def _batches(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        parameters = parameters_of(request, ("from", "until", "size"))
        partition, first, end = self._span(variables["partition"], **_bounds(parameters))
        size = number_of("size", parameters.get("size", str(limits.RANGE_BYTES_MAX)))
        view = self._view(partition, first, end)
        most = max(1, min(size, limits.RANGE_BYTES_MAX))
        gathered = await self._work(lambda: self._gather(view, most))
        return await self._given(request, {NEXT: str(gathered.next)}, b"", gathered.extents)

    async def _together(self, request: web.BaseRequest, _variables: Variables) -> web.StreamResponse:
        with self._bodies.room() as room:
            wanted = parse_json(await room.read(request, SPANS_BYTES_MAX))
        check_fields(wanted, frozenset({"spans", "size"}))
        spans = _spans(wanted.get("spans"))
        size = integer(wanted, "size", (1, limits.RANGE_BYTES_MAX), limits.RANGE_BYTES_MAX)
        views: list[Wanted] = []
        rows_left = limits.RANGE_EXTENTS_MAX
        for number, span in enumerate(spans):
            view = self._view(*self._span(*span), rows_left)  # in one turn: what is kept changes between two
            rows_left -= sum(
                len(part.rows) for part in view.parts if part.run is None and part.rows is not None
            )
            views.append(view)
            if number % VIEWS_AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn
        cut = await self._work(lambda: self._weave(views, size))
        return await self._given(request, {}, cut.head, cut.extents)

    def _weave(self, views: Sequence[Wanted], size_max: int) -> Cut:
        woven = Woven([(view.first, view.end) for view in views], size_max, limits.RANGE_EXTENTS_MAX)
        for number, view in enumerate(views):
            every = ((part, rows) for part in view.parts for rows in self._rows(part, view.first))
            for part_rows in every:
                if not woven.add(number, *part_rows):
                    break
            woven.finish(number)
            if woven.full:
                break
        return woven.cut()

    async def _given(
        self, request: web.BaseRequest, head: Mapping[str, str], lead: bytes, extents: Sequence[Extent]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Server": "tidemill", **head})
        response.content_type = "application/octet-stream"
        response.content_length = len(lead) + sum(one.size for one in extents)
        await response.prepare(request)
        if lead:
            await _write(response, lead)
        for chunk in _chunks(extents):
            data = await self._work(partial(self._read, chunk))
            self.bytes_given += len(data)
            await _write(response, data)
        await response.write_eof()
        return response

    def _gather(self, view: Wanted, size_max: int) -> Gathered:
        gathered = Gathered(view.first, view.end, size_max, limits.RANGE_EXTENTS_MAX)
        for part in view.parts:
            for rows in self._rows(part, view.first):
                gathered.add(part, rows)
                if gathered.full:
                    return gathered
        gathered.finish(view.end)
        return gathered

    def _rows(self, part: Part, first: int) -> Iterable[Rows]:
        """From the one on that holds a sequence."""
        run = part.run
        if part.rows is not None or run is None:
            assert part.rows is not None
            yield part.rows
            return
        for window in range(run.window(first), len(run.sparse), WINDOWS_AT_ONCE):
            yield self._windows(part, run, window)

    def _windows(self, part: Part, run: Run, window: int) -> Rows:
        piece = Slice(run_file(part.base), *run.window_place(window, WINDOWS_AT_ONCE))
        try:
            return read_windows(self._files.take(piece))
        except CorruptRecord as error:
            raise HttpRefused(500, "read_failed", f"{piece.file}: {error}", OTHERS) from None

    def _read(self, extents: Sequence[Extent]) -> bytes:
        (file, begin, _), (other, last, size) = extents[0], extents[-1]
        if file == other and last + size - begin <= SPARSE * sum(one.size for one in extents):
            whole = memoryview(self._files.take(Slice(file, begin, last + size - begin)))
            found = [bytes(whole[at - begin : at - begin + size]) for _, at, size in extents]
        else:
            found = [self._files.take(Slice(*extent)) for extent in extents]
        if [len(data) for data in found] != [extent.size for extent in extents]:
            raise HttpRefused(500, "read_failed", f"{extents[0].file} is shorter than it was", OTHERS)
        return found[0] if len(found) == 1 else b"".join(found)

    # -- work ----------------------------------------------------------------------------------------------------

    async def _work(self, job: Callable[[], T]) -> T:
        """In the read lane, when it is this one's turn: a few at once, for consumers' cold reads go there, too."""
        if self._waiting >= limits.RANGES_WAITING_MAX:
            raise HttpRefused(
                429, "too_many_requests", f"{self._waiting} ranges wait already", "ask again later"
            )
        self._waiting += 1
        try:
            async with self._running:
                return await asyncio.get_running_loop().run_in_executor(self._lane, job)
        except FileNotFoundError:
            raise HttpRefused(
                410, "not_found", "a segment has just expired", "ask where it begins now"
            ) from None
        except OSError as error:
            raise HttpRefused(500, "read_failed", error.strerror or str(error), OTHERS) from error
        finally:
            self._waiting -= 1

    def _limit(self) -> int:
        return archivable(self._service).message


async def _write(response: web.StreamResponse, data: bytes) -> None:
    """Who does not read holds up nobody else."""
    async with asyncio.timeout(limits.RANGE_PATIENCE_S):
        await response.write(data)


def _bounds(parameters: Mapping[str, str]) -> dict[str, int]:
    said = {"first": "from", "until": "until"}
    return {one: number_of(name, parameters[name]) for one, name in said.items() if name in parameters}


def _spans(said: object) -> list[tuple[str, int, int]]:
    """Partitions with their first sequence and the one behind their last."""
    rows = cast("list[object]", said) if isinstance(said, list) else []
    if not 0 < len(rows) <= limits.RANGE_SPANS_MAX:
        raise wrong(f"spans are a list of 1 to {limits.RANGE_SPANS_MAX}")
    return [_one_span(row) for row in rows]


def _one_span(row: object) -> tuple[str, int, int]:
    shown = str(row)[:100]
    span = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    check_fields(span, frozenset({"partition", "from", "until"}), "of a span ")
    name = span.get("partition")
    if not isinstance(name, str) or not {"from", "until"} <= span.keys():
        raise wrong(f"{shown} is no span: it has a partition, from and until")
    first, until = (integer(span, bound, (0, SEQUENCE_MAX), 0) for bound in ("from", "until"))
    return name, first, until


def _matches(subject: str, subjects: set[str], patterns: Iterable[str]) -> bool:
    return subject in subjects or any(matches_pattern(pattern, subject) for pattern in patterns)


def _chunks(extents: Sequence[Extent]) -> Iterable[list[Extent]]:
    """As much as is read and written at once: many small extents together, a large one in parts."""
    held: list[Extent] = []
    size = 0
    for file, position, length in extents:
        at = 0
        while at < length:
            part = min(length - at, limits.RANGE_CHUNK_BYTES - size)
            held.append(Extent(file, position + at, part))
            at, size = at + part, size + part
            if size >= limits.RANGE_CHUNK_BYTES:
                yield held
                held, size = [], 0
    if held:
        yield held

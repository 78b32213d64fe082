"""The HTTP path that says what became of a message: ``GET /v1/messages/{id}/why``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from tidemill_broker.doors.queries import Queries
from tidemill_broker.doors.status import OVER_QUOTA
from tidemill_broker.groups import Group
from tidemill_broker.history import FirstAt, History
from tidemill_broker.last_words import ELSEWHERE, death_of
from tidemill_broker.machine import Broker
from tidemill_broker.messages import Found
from tidemill_broker.queries import Query
from tidemill_broker.ranges import covers
from tidemill_broker.standings import Event, Pause, Standing, conclude, sentence_of, standing_of
from tidemill_host.clock import Clock
from tidemill_host.doorman import asker
from tidemill_host.files import Files
from tidemill_host.machine import Slice
from tidemill_host.openapi import Part, answers, pattern, record, whole
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Route, Variables
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import HEADER_BYTES, decode_record
from tidemill_journal.segments import Segments
from tidemill_ledger.scanning import RecordScanner
from tidemill_wire.access import Operation, Right
from tidemill_wire.batch import MESSAGE_ID, parse_message_id
from tidemill_wire.lanes import lane_name, priority_of

PATH = "/v1/messages/{id}/why"
EARLY_MS = 60_000
"""Records may be older by the clock than the message they speak of, when the clock was set back in between."""


class Why:
    """Answers ``routes``."""

    def __init__(self, broker: Broker, files: Files, queries: Queries, clock: Clock) -> None:
        self._broker = broker
        self._files = files
        self._queries = queries
        self._clock = clock

    def routes(self) -> list[Route]:
        """What this door answers."""
        return [Route("GET", PATH, self._answer)]

    async def _answer(self, _request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        identity = variables["id"]
        try:
            batch_id, index = parse_message_id(identity)
        except ValueError as error:
            if MESSAGE_ID.fullmatch(identity):  # its number is larger than any batch has messages
                raise _no_message(identity) from None
            raise HttpRefused(400, "malformed_request", str(error), "give the id of a receipt") from None
        found = await self._queries.ask(lambda query: query.by_id(batch_id, index))
        if found is None:
            return await self._of_letter(await self._queries.letter_of(identity))
        state, now_ms = self._broker.state, self._clock.now_ms()
        partition = state.by_name[lane_name(found.subject, priority_of(found.sequence)).encode()]
        standings = {
            number: standing_of(state.groups[number], found.sequence, found.tags)
            for number in partition.groups.values()
        }
        history = History(state, partition.identity, found.sequence)
        since_ms = await self._note(history, found.stored_at_ms)
        groups: list[dict[str, Any]] = []
        for number, standing in standings.items():
            own = self._redriven(standing, number, history.graves.get(number))
            told = conclude(own, history.events.get(number, []), history.rate_of(number, now_ms))
            if told.state == "kept" and told.until_ms <= now_ms:
                told = await self._came(told, number, found)
            groups.append(_value(told))
        return json_response({
            "id": found.id, "subject": found.subject, "sequence": found.sequence,
            "stored_at": _moment(found.stored_at_ms), "history_from": _moment(since_ms) if since_ms else None,
            "groups": groups,
        })  # fmt: skip

    async def _came(self, kept: Standing, number: int, found: Found) -> Standing:
        """Of what a delay service had kept: where it stands since it came again, when that was to this broker."""
        letter = await self._queries.ask(lambda query: query.letter_of(found.id), letters=True)
        death = None if letter is None else death_of(letter)
        group = self._broker.state.groups.get(number)
        if letter is None or death is None or group is None or death.group != group.name:
            return kept
        state, now_ms = self._broker.state, self._clock.now_ms()
        partition = state.partitions[group.partition].identity
        history = History(state, partition, found.sequence, {number: letter.sequence})
        await self._note(history, found.stored_at_ms)
        own = self._redriven(
            standing_of(group, found.sequence, found.tags),
            number,
            history.graves.get(number, letter.sequence),
        )
        events, twin = history.events.get(number, []), self._twin_of(number)
        if twin is not None and not covers(twin.handled, letter.sequence):
            events.append(death.event)
        return conclude(own, events, history.rate_of(number, now_ms))

    async def _of_letter(self, letter: Found) -> web.StreamResponse:
        """Of a message that is not kept any more, in the group whose dead letter of it is: what others did with it is
        past, and may be past finding.
        """
        state, now_ms = self._broker.state, self._clock.now_ms()
        death = death_of(letter)
        asker().check_found(Right(Operation.BROWSE, death.subject))  # what is said of it may name others
        if (
            death.sequence == ELSEWHERE
        ):  # whoever stored it is asked as well, and knows what became of it there
            raise _no_message(letter.origin or letter.id)
        subject = state.by_name.get(lane_name(death.subject, priority_of(death.sequence)).encode())
        number = 0 if subject is None else subject.groups.get(death.group, 0)
        if subject is None or not number:
            raise _no_message(letter.origin or letter.id)
        history = History(state, subject.identity, death.sequence, {number: letter.sequence})
        since_ms = await self._note(history, death.since_ms or death.event.at_ms)
        own = standing_of(state.groups[number], death.sequence)
        own = self._redriven(own, number, history.graves.get(number, letter.sequence))
        events = history.events.get(number, [])
        twin = self._twin_of(number)
        lies = twin is not None and not covers(twin.handled, letter.sequence)
        if lies and not any(event.what == "dead" for event in events):
            events.insert(0, death.event)  # that record is not kept any more, and the letter remembers
        return json_response({
            "id": letter.origin, "subject": death.subject, "sequence": death.sequence, "stored_at": None,
            "history_from": _moment(since_ms) if since_ms else None,
            "groups": [_value(conclude(own, events, history.rate_of(number, now_ms)))],
        })  # fmt: skip

    async def _note(self, history: History, stored_at_ms: int) -> int:
        """Read what concerns the message; since when there are records."""
        actions = self._broker.logs.actions
        copy = Segments(actions.folder, actions.size_max, actions.bases, actions.end)

        def read(query: Query) -> int:
            first_ms = self._read(history, copy, stored_at_ms - EARLY_MS, query.first_at)
            if history.read_again():
                first_ms = self._read(history, copy, stored_at_ms - EARLY_MS, query.first_at)
            return first_ms

        return await self._queries.ask(read)

    def _redriven(self, buried: Standing, number: int, sequence: int | None) -> Standing:
        """Where a dead letter of a group (``number``) stands, when it was given to the group again."""
        state, twin = self._broker.state, self._twin_of(number)
        full = state.holds.keeping(one.identity for one in state.everywhere(state.groups[number]))
        buried.kept_back = "" if full is None else full.name
        if buried.state != "gone" or sequence is None or twin is None or sequence >= twin.cursor:
            return buried
        found = standing_of(twin, sequence)
        found.pause, found.suspended = found.pause or buried.pause, buried.suspended
        found.kept_back = buried.kept_back
        return found

    def _twin_of(self, number: int) -> Group | None:
        state = self._broker.state
        head = state.family(state.groups[number])[-1]
        return state.groups.get(state.dead.get(head.identity, 0))

    def _read(self, history: History, actions: Segments, from_ms: int, first_at: FirstAt) -> int:
        """The action log from then on; the time of its first record that was read. Runs in the read lane."""
        first_ms = 0
        bases = actions.bases
        starts = [self._first_of(actions.file(base)) for base in bases]
        for index, base in enumerate(bases):
            if index + 1 < len(bases) and 0 < starts[index + 1] <= from_ms:
                continue
            scanner = RecordScanner(self._reader(actions.file(base)), base, actions.end_of(base), base)
            try:
                for one in scanner:
                    first_ms = first_ms or one.at_ms
                    history.note(one, first_at)
            except CorruptRecord:
                break  # what is being written now
            except FileNotFoundError:
                continue  # retention took it meanwhile
        return first_ms

    def _first_of(self, file: str) -> int:
        """The time of a segment's first record, 0 when there is none yet."""
        try:
            head = self._files.take(Slice(file, 0, HEADER_BYTES))
        except FileNotFoundError:
            return 0
        if len(head) < HEADER_BYTES:
            return 0
        length, position = int.from_bytes(head[:4], "little"), int.from_bytes(head[8:16], "little")
        return decode_record(self._files.take(Slice(file, 0, length)), 0, position).at_ms

    def _reader(self, file: str) -> Callable[[int, int], bytes]:
        return lambda place, size: self._files.take(Slice(file, place, size))


def _no_message(identity: str) -> HttpRefused:
    return HttpRefused(404, "not_found", f"there is no message {identity}", "it may have expired")


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _value(standing: Standing) -> dict[str, Any]:
    return {
        "group": standing.group, "state": standing.state, "sentence": sentence_of(standing, _moment),
        "attempts": standing.attempts, "consumer": standing.consumer or None,
        "until": _moment(standing.until_ms) if standing.until_ms else None, "ahead": standing.ahead,
        "rate": round(standing.rate, 3), "paused": standing.pause is not None,
        "pause": _pause(standing.pause) if standing.pause is not None else None,
        "suspended": standing.suspended, "over_quota": standing.kept_back or None,
        "error": standing.detail._asdict() if standing.detail is not None else None,
        "events": [_event(event) for event in standing.events],
    }  # fmt: skip


def _pause(pause: Pause) -> dict[str, Any]:
    return {
        "since": _moment(pause.since_ms), "fingerprint": pause.fingerprint,
        "reason": pause.detail.reason if pause.detail is not None else None,
        "probe": _moment(pause.probe_ms) if pause.probe_ms else None,
    }  # fmt: skip


def _event(event: Event) -> dict[str, Any]:
    return {
        "at": _moment(event.at_ms), "what": event.what, "consumer": event.consumer or None,
        "attempts": event.attempts, "until": _moment(event.until_ms) if event.until_ms else None,
        "error": event.detail._asdict() if event.detail is not None else None,
    }  # fmt: skip


def paths() -> dict[str, Part]:
    """The path item."""
    named = {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "the message's id, as on its receipt",
    }
    parameter = {**named, "schema": pattern(MESSAGE_ID.pattern, "a message's id")}
    operation = {
        "operationId": "why",
        "summary": "What became of a message in each group, and how",
        "parameters": [parameter],
        "responses": answers(
            {"$ref": "#/components/schemas/Why"}, None, "group by group", (400, 404, 429, 500)
        ),
    }
    return {PATH: {"get": operation}}


def schemas() -> dict[str, Part]:
    """What it answers."""
    text: Part = {"type": "string"}
    absent: Part = {"type": ["string", "null"]}
    error, pause, event = _parts(text, absent)
    group = record(
        {
            "group": text,
            "state": {
                "enum": [
                    "waiting",
                    "leased",
                    "parked",
                    "retry",
                    "dying",
                    "acked",
                    "kept",
                    "dead",
                    "dropped",
                    "purged",
                    "filtered",
                    "passed over",
                ]
            },
            "sentence": {**text, "description": "the same for a person"},
            "attempts": whole(0),
            "consumer": absent,
            "until": {
                **absent,
                "description": "when the lease ends, it is due or tried again, or comes from the delay service; or it "
                "was acked or buried",
            },
            "ahead": whole(0, description="messages that the group is given before it"),
            "rate": {
                "type": "number",
                "description": "messages a second that the group was given in the last minute",
            },
            "paused": {"type": "boolean"},
            "pause": {"anyOf": [{"type": "null"}, pause]},
            "suspended": {"type": "boolean"},
            "over_quota": OVER_QUOTA,
            "error": error,
            "events": {"type": "array", "items": event},
        }
    )
    whole_answer = record(
        {
            "id": text,
            "subject": text,
            "sequence": whole(0),
            "stored_at": {
                **absent,
                "description": "null: the message is not kept any more, and this is of its dead letter",
            },
            "history_from": {**absent, "description": "what was done before then is not kept any more"},
            "groups": {"type": "array", "items": group},
        }
    )
    return {"Why": whole_answer}


def _parts(text: Part, absent: Part) -> tuple[Part, Part, Part]:
    """An error, a pause, an event."""
    error: Part = {
        "anyOf": [{"type": "null"}, record(dict.fromkeys(("reason", "error", "place", "fingerprint"), text))]
    }
    pause = record(
        {
            "since": text,
            "fingerprint": {**text, "description": "the mark of the mistake that everything fails of"},
            "reason": {**absent, "description": "what was said of it last"},
            "probe": {**absent, "description": "when the next message is tried; null: one is being tried"},
        }
    )
    event = record(
        {"at": text, "what": text, "consumer": absent, "attempts": whole(0), "until": absent, "error": error}
    )
    return error, pause, event

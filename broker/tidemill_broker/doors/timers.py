"""Messages that wait for their time, over HTTP: found, listed, cancelled, given another time.

A request becomes the question that a client would ask a delay service, and so does its answer. Of several delay groups
nobody knows which has a message, so all of them are asked, and a request is answered when all have.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from aiohttp import web

from tidemill_broker.doors.gateway_messages import TIMES, check_fields, malformed, some_key
from tidemill_broker.doors.gateway_requests import subject_of, value_of
from tidemill_broker.doors.gateway_times import When, parse_when, timestamp_of
from tidemill_broker.doors.neighbour import AboutTimers, Later
from tidemill_broker.doors.parameters import limit_of, parameters_of, time_of, wrong
from tidemill_host.bodies import Bodies
from tidemill_host.clock import Clock
from tidemill_host.doorman import asker
from tidemill_host.refusals import HttpRefused, json_response, refusal_of
from tidemill_host.routing import Route, Variables
from tidemill_wire import limits
from tidemill_wire.access import EVERYTHING, Operation, Right
from tidemill_wire.batch import MESSAGE_ID, parse_message_id
from tidemill_wire.commands import Command
from tidemill_wire.errors import WireError
from tidemill_wire.fields import parse_subject
from tidemill_wire.timing import Cancel, Changed, ListTimers, Reschedule, Show, Target, TimerRow, Waiting

OF_SUBJECT = "/v1/subjects/{subject}/timers"
ONE = "/v1/timers/{id}"
ASKED = ("prefix", "timer_key", "recurring", "from", "to", "limit", "after")
LIMIT_DEFAULT = 100
FOR_EVER_MS = (1 << 63) - 1
AFTER = re.compile(r"([A-Za-z0-9._-]{1,100}):((?:[0-9]{1,18}\.[0-9]{1,18})?)")
"""A delay group, and where its page ended; nothing before its first one."""


class TimersDoor:
    """Answers ``routes``."""

    def __init__(self, later: Later, clock: Clock) -> None:
        self._later = later
        self._clock = clock
        self._bodies = Bodies(limits.HTTP_HELD_BYTES_MAX)

    def routes(self) -> list[Route]:
        """What this door answers."""
        return [
            Route("GET", OF_SUBJECT, self._list),
            Route("POST", f"{OF_SUBJECT}/cancel", self._cancel_key),
            Route("POST", f"{OF_SUBJECT}/reschedule", self._reschedule_key),
            Route("GET", ONE, self._show),
            Route("POST", f"{ONE}/cancel", self._cancel),
            Route("POST", f"{ONE}/reschedule", self._reschedule),
        ]

    # -- looking -----------------------------------------------------------------------------------------------

    async def _show(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """One that waits, with its body when that is not large."""
        parameters_of(request, ())
        target = _target_of(variables["id"])
        answers = [] if target is None else await self._ask_all(Show(target))
        rows = [row for answer in answers if isinstance(answer, Waiting) for row in answer.rows]
        if not rows:
            raise HttpRefused(
                404, "not_found", f"no message {variables['id'][:60]} waits for its time",
                "it was given out or cancelled before, or never sent for later; `tidemill find` looks for stored ones",
            )  # fmt: skip
        return json_response(row_of(rows[0]))

    async def _list(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """A page: of one delay group after the other, each about in the order of its times."""
        parameters, subject = parameters_of(request, ASKED), _subject_of(variables)
        wanted = _Wanted(subject, parameters)
        groups = sorted(await self._later.groups())
        group, after = wanted.place or (groups[0], "")
        left = [one for one in groups if one >= group]
        rows: list[TimerRow] = []
        while left and not rows:
            answer = await self._later.ask(left[0], wanted.question(after if left[0] == group else ""))
            assert isinstance(answer, Waiting)
            rows = [row for row in answer.rows if wanted.has(row)]
            if answer.after:
                next_page = f"{left[0]}:{answer.after}"
                return json_response({"timers": [row_of(row) for row in rows], "after": next_page})
            del left[0]
        return json_response(
            {"timers": [row_of(row) for row in rows], "after": f"{left[0]}:" if left else None}
        )

    # -- changing ----------------------------------------------------------------------------------------------

    async def _cancel(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """The message with an id."""
        parameters_of(request, ())
        with self._bodies.room() as room:
            check_fields(await value_of(request, room, empty=True), frozenset())
        target = await self._granted(_target_of(variables["id"]))
        return await self._change(None if target is None else Cancel(target))

    async def _cancel_key(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """All of a subject that wait under a timer key."""
        subject = subject_of(request, variables)
        with self._bodies.room() as room:
            value = await value_of(request, room)
        check_fields(value, frozenset({"timer_key"}))
        return await self._change(Cancel(_keyed(subject, value)))

    async def _reschedule(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """The message with an id."""
        parameters_of(request, ())
        with self._bodies.room() as room:
            value = await value_of(request, room)
        check_fields(value, frozenset(TIMES))
        target, due_ms = await self._granted(_target_of(variables["id"])), self._due_of(value)
        return await self._change(None if target is None else Reschedule(target, due_ms))

    async def _reschedule_key(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """All of a subject that wait under a timer key."""
        subject = subject_of(request, variables)
        with self._bodies.room() as room:
            value = await value_of(request, room)
        check_fields(value, frozenset({"timer_key", *TIMES}))
        return await self._change(Reschedule(_keyed(subject, value), self._due_of(value)))

    async def _granted(self, target: Target | None) -> Target | None:
        """Whose it is, a delay service says; it sees the gateway, and not who stands behind it. Of what waits no more
        nobody says whose it was: that is nobody's.
        """
        who = asker()
        if target is None or who.may(Operation.SEND, EVERYTHING):
            return target
        answers = await self._ask_all(Show(target))
        rows = [row for answer in answers if isinstance(answer, Waiting) for row in answer.rows]
        who.check_found(*(Right(Operation.SEND, row.subject) for row in rows))
        return target if rows else None

    def _due_of(self, value: Mapping[str, Any]) -> int:
        when: When | None = parse_when(value)
        if when is None:
            raise malformed("reschedule to when: give a delay or at")
        now_ms = self._clock.now_ms()
        return now_ms + when.delta_ms(now_ms)

    async def _change(self, question: Cancel | Reschedule | None) -> web.StreamResponse:
        """How many of them were changed, and how many were too far; of an id that no message can have none."""
        answers = [] if question is None else await self._ask_all(question)
        changes = [answer for answer in answers if isinstance(answer, Changed)]
        return json_response(
            {"changed": sum(one.changed for one in changes), "gone": sum(one.gone for one in changes)}
        )

    async def _ask_all(self, question: AboutTimers) -> list[Command]:
        """The answers of all delay groups, or what went wrong first: none is left behind, still asking."""
        groups = await self._later.groups()
        answers = await asyncio.gather(
            *(self._later.ask(group, question) for group in groups), return_exceptions=True
        )
        found: list[Command] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found


class _Wanted:
    """What of a subject is to be listed."""

    def __init__(self, subject: str, parameters: Mapping[str, str]) -> None:
        self._subject = subject
        self._prefix = parameters.get("prefix", "")
        self._key = parameters.get("timer_key")
        if len(self._prefix.encode()) > limits.KEY_BYTES_MAX:
            raise wrong(f"a prefix has at most {limits.KEY_BYTES_MAX} bytes")
        if self._key is not None and not 0 < len(self._key.encode()) <= limits.KEY_BYTES_MAX:
            raise wrong(f"a timer_key has 1 to {limits.KEY_BYTES_MAX} bytes")
        recurring = parameters.get("recurring")
        if recurring not in (None, "true", "false"):
            raise wrong(f"recurring {recurring[:60]!r} is neither true nor false")
        self._recurring = None if recurring is None else recurring == "true"
        self._span = time_of(parameters, "from", 0), time_of(parameters, "to", FOR_EVER_MS)
        self._limit = limit_of(parameters, LIMIT_DEFAULT, limits.TIMERS_PAGE_MAX)
        self.place: tuple[str, str] | None = None
        if (written := parameters.get("after")) is not None:
            found = AFTER.fullmatch(written)
            if found is None:
                raise wrong(f"after {written[:60]!r} is nothing that a page says in `after`")
            self.place = found[1], found[2]

    def question(self, after: str) -> ListTimers:
        """A page of one delay group."""
        prefix = self._prefix if self._key is None else self._key
        return ListTimers(self._subject, prefix, *self._span, after, self._limit)

    def has(self, row: TimerRow) -> bool:
        """What the delay service is not asked for itself."""
        if self._key is not None and (row.timer_key != self._key or not self._key.startswith(self._prefix)):
            return False
        return self._recurring is None or bool(row.cron) is self._recurring


def _subject_of(variables: Variables) -> str:
    try:
        return parse_subject(variables["subject"])
    except WireError as error:
        raise refusal_of(error) from None


def _target_of(identity: str) -> Target | None:
    """The message with an id; none when no batch has so many messages."""
    try:
        parse_message_id(identity)
    except ValueError as error:
        if MESSAGE_ID.fullmatch(identity):
            return None
        raise wrong(str(error)) from None
    return Target(id=identity)


def _keyed(subject: str, value: Mapping[str, Any]) -> Target:
    if "timer_key" not in value:
        raise malformed("say which messages: give their timer_key")
    return Target(subject=subject, timer_key=some_key(value["timer_key"], "timer_key"))


def row_of(row: TimerRow) -> dict[str, Any]:
    """As JSON has it."""
    said: dict[str, Any] = {
        "id": row.id,
        "subject": row.subject,
        "timer_key": row.timer_key or None,
        "due": timestamp_of(row.due_ms),
        "stored_at": timestamp_of(row.stored_ms),
        "size": row.size,
        "cron": row.cron or None,
    }
    if row.body is not None:
        said["body"] = base64.b64encode(row.body).decode()
        with suppress(UnicodeDecodeError):
            said["text"] = row.body.decode()
    return said

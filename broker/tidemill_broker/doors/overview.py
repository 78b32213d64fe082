"""What groups and subjects there are, for whoever looks at many of them: sums over all, and the rows that matter.

``/v1/groups`` and ``/v1/subjects`` answer with everything there is. At 10,000 subjects that is 3 MB and a sixth of a
second in which the loop does nothing else, too much for a page that asks again and again. Here rows are made a few at
a time, with other work in between, and kept for a second: however many look, it is done once. Of what was made an
answer has the sums, and as many rows as were asked for, in the order that was asked for.

Where it is asked who somebody is, all of that is of what this one may browse: rows, sums and counts. What is of others
is left out before anything is counted, so no number says that there is more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any, TypeAlias

from aiohttp import web

from tidemill_broker.doors.parameters import limit_of, parameters_of, wrong
from tidemill_broker.doors.past import SERIES_MAX, SUMS, Sampler
from tidemill_broker.doors.status import group_rows, subject_rows
from tidemill_broker.machine import Broker
from tidemill_host.clock import Clock
from tidemill_host.doorman import asker
from tidemill_host.openapi import Part, answers, record, ref, whole
from tidemill_host.refusals import json_response
from tidemill_host.routing import Route, Variables
from tidemill_wire.access import EVERYTHING, Identity, Operation
from tidemill_wire.fields import living_subject

OF_GROUPS = "/v1/overview/groups"
OF_SUBJECTS = "/v1/overview/subjects"
OF_THE_PAST = "/v1/overview/past"
Row: TypeAlias = dict[str, Any]

SLICE_ROWS = 100
"""About a millisecond."""
KEEP_MS = 1_000
LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000
PAST_DEFAULT = 20
CONTAINS_CHARS_MAX = 100

GROUP_SUMS = ("lag", "in_flight", "failed", "dead", "acked", "consumers")
SUBJECT_SUMS = ("messages", "next_sequence")
GROUP_ORDERS = ("trouble", "name", *GROUP_SUMS)
SUBJECT_ORDERS = ("name", *SUBJECT_SUMS, "groups")


class Survey:
    """Rows that take long to make."""

    def __init__(self, make: Callable[[], Iterator[Row]], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._lock = asyncio.Lock()
        self._rows: Sequence[Row] = ()
        self.made_ms = -KEEP_MS

    async def rows(self) -> Sequence[Row]:
        """All of them, as they were within the last second."""
        async with self._lock:
            if not 0 <= self._clock.now_ms() - self.made_ms < KEEP_MS:
                rows: list[Row] = []
                for row in self._make():
                    rows.append(row)
                    if not len(rows) % SLICE_ROWS:
                        await asyncio.sleep(0)
                self._rows, self.made_ms = rows, self._clock.now_ms()
        return self._rows


class Overview:
    """Answers ``routes``."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        state = broker.state
        self._groups = Survey(lambda: group_rows(state), clock)
        self._subjects = Survey(lambda: subject_rows(state), clock)
        self._sampler = Sampler(lambda: group_rows(state), clock)

    def routes(self) -> list[Route]:
        """What this door answers."""
        return [
            Route("GET", OF_GROUPS, self._of_groups),
            Route("GET", OF_SUBJECTS, self._of_subjects),
            Route("GET", OF_THE_PAST, self._of_the_past),
        ]

    def start(self) -> None:
        """Keep the past from now on."""
        self._sampler.start()

    def close(self) -> None:
        self._sampler.close()

    async def _of_groups(self, request: web.BaseRequest, _: Variables) -> web.StreamResponse:
        asked = parameters_of(request, ("contains", "subject", "group", "order", "limit"))
        limit, order = _limit(asked), _order(asked, GROUP_ORDERS)
        contains, subject, group = _contains(asked), asked.get("subject"), asked.get("group")
        rows = await browsed(await self._groups.rows(), "subject", asker())
        found = [
            row
            for row in rows
            if (contains in row["group"].lower() or contains in row["subject"].lower())
            and (group is None or row["group"] == group)
            and (subject is None or living_subject(row["subject"]) == subject)
        ]
        sums = _sums(rows, GROUP_SUMS)
        sums["paused"] = sum(row["paused"] is not None for row in rows)
        sums["suspended"] = sum(row["suspended"] for row in rows)
        sums["over_quota"] = sum(row["over_quota"] is not None for row in rows)
        return json_response({
            "count": len(rows), "found": len(found), "made_ms": self._groups.made_ms, "sums": sums,
            "groups": _first(found, order, limit),
        })  # fmt: skip

    async def _of_subjects(self, request: web.BaseRequest, _: Variables) -> web.StreamResponse:
        asked = parameters_of(request, ("contains", "order", "limit"))
        limit, order, contains = _limit(asked), _order(asked, SUBJECT_ORDERS), _contains(asked)
        rows = await browsed(await self._subjects.rows(), "name", asker())
        found = [row for row in rows if contains in row["name"].lower()]
        return json_response({
            "count": len(rows), "found": len(found), "made_ms": self._subjects.made_ms,
            "sums": _sums(rows, SUBJECT_SUMS), "subjects": _first(found, order, limit),
        })  # fmt: skip

    async def _of_the_past(self, request: web.BaseRequest, _: Variables) -> web.StreamResponse:
        asked = parameters_of(request, ("subject", "group", "limit"))
        limit, past = limit_of(asked, PAST_DEFAULT, SERIES_MAX), self._sampler.past
        subject, group, identity = asked.get("subject"), asked.get("group"), asker()
        some = [
            {"subject": name[0], "group": name[1], "points": series.rows()}
            for name, series in reversed(list(past.groups.items()))
            if (group is None or name[1] == group)
            and (subject is None or living_subject(name[0]) == subject)
            and may_browse(identity, name[0])
        ]  # fmt: skip
        # Sums of the past were made of all groups, and cannot be parted now.
        sums = past.sums.rows() if may_browse(identity, EVERYTHING) else []
        return json_response({"sums": sums, "groups": some[:limit]})


def may_browse(identity: Identity, subject: str) -> bool:
    """Whether somebody may look at a subject, or a further partition of it."""
    return identity.may(Operation.BROWSE, subject)


async def browsed(rows: Sequence[Row], field: str, identity: Identity) -> Sequence[Row]:
    """Those whose subject somebody may browse; looked for a few at a time, as they were made."""
    if may_browse(identity, EVERYTHING):
        return rows
    found: list[Row] = []
    for at in range(0, len(rows), SLICE_ROWS):
        found += [row for row in rows[at : at + SLICE_ROWS] if may_browse(identity, row[field])]
        await asyncio.sleep(0)
    return found


def _limit(asked: Mapping[str, str]) -> int:
    return limit_of(asked, LIMIT_DEFAULT, LIMIT_MAX)


def _order(asked: Mapping[str, str], known: Sequence[str]) -> str:
    order = asked.get("order", known[0])
    if order not in known:
        raise wrong(f"the order {order[:60]!r} is none: write {', '.join(known)}")
    return order


def _contains(asked: Mapping[str, str]) -> str:
    contains = asked.get("contains", "")
    if len(contains) > CONTAINS_CHARS_MAX:
        raise wrong(f"contains has at most {CONTAINS_CHARS_MAX} characters")
    return contains.lower()


def _sums(rows: Sequence[Row], names: Sequence[str]) -> dict[str, int]:
    return {name: sum(row[name] for row in rows) for name in names}


def _first(rows: Sequence[Row], order: str, limit: int) -> list[Row]:
    """By name from A on, by number from the largest on; those that are alike by name."""
    if order == "name":
        return nsmallest(limit, rows, key=_name_of)
    if order == "trouble":
        return nsmallest(limit, rows, key=lambda row: (*_calm(row), *_name_of(row)))
    return nsmallest(limit, rows, key=lambda row: (-row[order], *_name_of(row)))


def _name_of(row: Row) -> tuple[str, str]:
    return (row["subject"], row["group"]) if "group" in row else (row["name"], "")


def _calm(row: Row) -> tuple[bool, int]:
    """What a person should see first is smallest: groups that are paused, then those with most that is undone."""
    return row["paused"] is None, -(row["lag"] + row["failed"])


def paths() -> dict[str, Part]:
    """Path items of the page."""
    group = {"group": "billing", "subject": "order.created", "lag": 2, "in_flight": 1, "failed": 0, "dead": 0,
             "paused": None, "acked": 0, "consumption": "shared", "suspended": False,
             "over_quota": None, "consumers": 1}  # fmt: skip
    subject = {"name": "order.created", "messages": 3, "first_sequence": 0, "next_sequence": 3, "durability": "high",
               "groups": 1}  # fmt: skip
    sums = {
        "lag": 2,
        "in_flight": 1,
        "failed": 0,
        "dead": 0,
        "acked": 0,
        "consumers": 1,
        "paused": 0,
        "suspended": 0,
        "over_quota": 0,
    }
    groups = {"count": 1, "found": 1, "made_ms": 1_780_000_000_000, "sums": sums, "groups": [group]}
    subjects = {"count": 1, "found": 1, "made_ms": 1_780_000_000_000, "subjects": [subject],
                "sums": {"messages": 3, "next_sequence": 3}}  # fmt: skip
    of_groups = (_text("subject", "of this subject"), _text("group", "of this name"))
    return {
        OF_GROUPS: _looking("overview_groups", "groups", groups, GROUP_ORDERS, of_groups),
        OF_SUBJECTS: _looking("overview_subjects", "subjects", subjects, SUBJECT_ORDERS, ()),
        OF_THE_PAST: _past(of_groups),
    }


def _past(more: tuple[Part, ...]) -> dict[str, Part]:
    limit = {"name": "limit", "in": "query", "schema": whole(1, SERIES_MAX, default=PAST_DEFAULT)}
    at = 1_780_000_000_000
    example = {
        "sums": [[at, 2, 1, 0, 7]], "groups": [{"subject": "order.created", "group": "billing", "points": [[at, 2, 7]]}]
    }  # fmt: skip
    operation = {
        "operationId": "overview_past",
        "summary": "How lag went in the last hour, of all groups and of those with most to do",
        "description": "Of groups whose subject may be browsed. Sums are of all groups, and empty for who may not "
        "browse all subjects.",
        "parameters": [*more, limit],
        "responses": answers(
            ref("PastOverview"), example, "every quarter of a minute or more seldom", (400,)
        ),
    }
    return {"get": operation}


def _looking(
    name: str, what: str, example: Any, orders: Sequence[str], more: tuple[Part, ...]
) -> dict[str, Part]:
    contains = {
        "name": "contains", "in": "query", "description": "those with this in a name, in capitals or not",
        "schema": {"type": "string", "maxLength": CONTAINS_CHARS_MAX},
    }  # fmt: skip
    order = {
        "name": "order", "in": "query", "description": "which come first: names from A on, numbers from the largest on",
        "schema": {"enum": list(orders), "default": orders[0]},
    }  # fmt: skip
    limit = {"name": "limit", "in": "query", "schema": whole(1, LIMIT_MAX, default=LIMIT_DEFAULT)}
    operation = {
        "operationId": name,
        "summary": f"Sums of all {what}, and some of them",
        "description": f"As it was at `made_ms`, within the last second. `count` is how many {what} there are, `found` "
        "how many are as was asked; sums are of all. Who may not browse all subjects is told of those that may be "
        "browsed, as if there were no others.",
        "parameters": [contains, order, limit, *more],
        "responses": answers(ref(f"{what.capitalize()}Overview"), example, f"sums, and some {what}", (400,)),
    }
    return {"get": operation}


def _text(name: str, description: str) -> Part:
    return {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}


def schemas() -> dict[str, Part]:
    """What is answered."""
    return {
        "GroupsOverview": _overview(
            "groups", "GroupStatus", (*GROUP_SUMS, "paused", "suspended", "over_quota")
        ),
        "SubjectsOverview": _overview("subjects", "SubjectStatus", SUBJECT_SUMS),
        "PastOverview": record(
            {
                "sums": _points(f"time in ms since 1970, {', '.join(SUMS)}", 1 + len(SUMS)),
                "groups": {
                    "type": "array",
                    "items": record(
                        {
                            "subject": {"type": "string"},
                            "group": {"type": "string"},
                            "points": _points("time in ms since 1970, lag, acked", 3),
                        }
                    ),
                },
            }
        ),
    }


def _points(description: str, width: int) -> Part:
    point = {"type": "array", "items": whole(0), "minItems": width, "maxItems": width}
    return {"type": "array", "items": point, "description": description}


def _overview(what: str, row: str, sums: Sequence[str]) -> Part:
    return record(
        {
            "count": whole(0),
            "found": whole(0),
            "made_ms": whole(0, description="when these rows were made, in ms since 1970"),
            "sums": record({name: whole(0) for name in sums}),
            what: {"type": "array", "items": ref(row), "maxItems": LIMIT_MAX},
        }
    )

"""Watch streams: each client process has one, and hears within a moment what changed of what it named.

A stream is lines of JSON. What changes while a line is written goes into the next one, by its name only, so a reader
that is slow costs no memory and is told how things are, not how they were.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tidemill_host.clock import Clock
from tidemill_meta.asked import Asked, wrong
from tidemill_meta.brokers import appointment_map
from tidemill_meta.machine import Meta
from tidemill_meta.values import Allocation, Broker, BrokerGroup, Route, SubjectRecord, consumer_group_key

FIELDS = frozenset({"subjects", "patterns", "groups", "broker_groups", "known"})
QUIET_SECONDS = 10.0
"""A line is sent so often, also when there is nothing to say: who hears none for longer asks somewhere else."""
GATHER_SECONDS = 0.02
"""What changes within it is told in one line."""
TURN_SECONDS = 0.000_05
"""What a line costs, about. All streams are told of a broker one after the other, so that requests come between."""
TEXTS_MAX = 16
"""Sets of broker groups whose text is kept; streams that wake together have the same one."""
WRITE_SECONDS = 10.0
"""A reader that takes nothing for so long is let go."""


@dataclass(slots=True)
class Interest:
    """What a stream is about. Brokers are in every one."""

    subjects: frozenset[str]
    prefixes: tuple[str, ...]
    groups: frozenset[str]
    broker_groups: frozenset[str]


@dataclass(slots=True, eq=False)
class Watcher:
    """A stream, and what it has to be told."""

    interest: Interest
    number: int = 0
    """Its turn among all of them."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    subjects: set[str] = field(default_factory=set[str])
    allocations: set[str] = field(default_factory=set[str])
    brokers: set[str] = field(default_factory=set[str])
    delays: bool = False
    appointments: set[str] = field(default_factory=set[str])


def parse_interest(body: object) -> tuple[Interest, int]:
    """From a request, with the revision that the client knows."""
    asked = Asked(body, FIELDS)
    patterns = [str(one) for one in asked.items("patterns")]
    for pattern in patterns:
        if not pattern.endswith("*") or "*" in pattern[:-1] or len(pattern) > 101:
            raise wrong(f"{pattern[:60]!r} is no pattern: write the beginning of subjects' names and *")
    groups: set[str] = set()
    for one in asked.items("groups"):
        named = Asked(one, frozenset({"subject", "group"}))
        groups.add(consumer_group_key(named.subject("subject"), named.group("group")))
    return Interest(
        frozenset(asked.subjects("subjects")),
        tuple(pattern[:-1] for pattern in patterns),
        frozenset(groups),
        frozenset(asked.names("broker_groups")),
    ), asked.whole("known", 0)


class Watch:
    """All streams of a replica."""

    def __init__(self, meta: Meta, clock: Clock) -> None:
        self._meta = meta
        self._clock = clock
        self._watchers: set[Watcher] = set()
        self._by_subject: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._by_pattern: set[Watcher] = set()
        self._rows: dict[str, dict[str, Any]] = {}
        self._texts: dict[tuple[str, ...] | None, bytes] = {}
        """By broker groups, their rows as they are now; ``None``: of all."""
        self._delays: list[dict[str, Any]] = []
        """The delay groups as they are now: few, so that all of them are told whenever one changes."""
        self._number = 0
        self.lines = 0

    def __len__(self) -> int:
        return len(self._watchers)

    # -- telling ----------------------------------------------------------------------------------------------

    def changed(self, keys: Sequence[tuple[str, str]]) -> None:
        """These were stored; and brokers may live or die without anything being stored."""
        by_broker = not keys
        for kind, key in keys:
            by_broker = by_broker or kind in {Broker.KIND, BrokerGroup.KIND}
            if kind in {Route.KIND, SubjectRecord.KIND}:
                self._subject_changed(key)
            elif kind == Allocation.KIND:
                self._tell("allocations", (one for one in self._watchers if key in one.interest.groups), key)
            elif kind == BrokerGroup.KIND:
                named = (one for one in self._watchers if key in one.interest.broker_groups)
                self._tell("appointments", named, key)
        if by_broker:
            self._look_at_brokers()

    def _look_at_brokers(self) -> None:
        rows = self._meta.brokers(self._clock.now_ms())
        for group in rows.keys() | self._rows.keys():
            if rows.get(group) != self._rows.get(group):
                self._texts.clear()
                self._tell("brokers", self._watchers, group)
        self._rows = rows
        delays = self._meta.delays(self._clock.now_ms())
        if delays != self._delays:
            self._delays = delays
            for watcher in self._watchers:
                watcher.delays = True
                watcher.woken.set()

    def _subject_changed(self, subject: str) -> None:
        by_pattern = (one for one in self._by_pattern if subject.startswith(one.interest.prefixes))
        self._tell("subjects", (*self._by_subject.get(subject, ()), *by_pattern), subject)

    def _tell(self, what: str, watchers: Iterable[Watcher], key: str) -> None:
        for watcher in watchers:
            getattr(watcher, what).add(key)
            watcher.woken.set()

    # -- serving ----------------------------------------------------------------------------------------------

    async def serve(self, request: web.BaseRequest, interest: Interest, known: int) -> web.StreamResponse:
        """Write a stream until its reader is gone."""
        response = web.StreamResponse(headers={"Server": "tidemill", "Cache-Control": "no-store"})
        response.content_type = "application/x-ndjson"
        self._number += 1
        watcher = Watcher(interest, self._number)
        self._add(watcher)
        try:
            await response.prepare(request)
            await self._write(response, self._first(interest, known))
            while True:
                try:
                    async with asyncio.timeout(QUIET_SECONDS):
                        await watcher.woken.wait()
                except TimeoutError:
                    await self._write(response, _text({"revision": self._meta.registry.revision}))
                    continue
                turn = watcher.number % len(self._watchers) if watcher.brokers else 0
                await asyncio.sleep(GATHER_SECONDS + turn * TURN_SECONDS)
                await self._write(response, self._next(watcher))
        except (ConnectionError, TimeoutError):
            return response  # nobody reads it any more
        finally:
            self._remove(watcher)

    async def _write(self, response: web.StreamResponse, line: bytes) -> None:
        self.lines += 1
        async with asyncio.timeout(WRITE_SECONDS):
            await response.write(line + b"\n")

    def _add(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)
        for subject in watcher.interest.subjects:
            self._by_subject[subject].add(watcher)
        if watcher.interest.prefixes:
            self._by_pattern.add(watcher)

    def _remove(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)
        self._by_pattern.discard(watcher)
        for subject in watcher.interest.subjects:
            self._by_subject[subject].discard(watcher)
            if not self._by_subject[subject]:
                del self._by_subject[subject]

    # -- lines ------------------------------------------------------------------------------------------------

    def _first(self, interest: Interest, known: int) -> bytes:
        """Everything that the reader does not know yet: routes after its revision, and all brokers."""
        meta, known = self._meta, self._meta.knows(known)
        subjects = set(interest.subjects)
        if interest.prefixes:
            subjects |= {
                route.subject
                for route in meta.registry.all(Route)
                if route.subject.startswith(interest.prefixes)
            }
        line = self._line(sorted(subjects), sorted(interest.groups), sorted(interest.broker_groups), known)
        line["delays"] = self._delays
        return self._with_brokers(line, None)

    def _next(self, watcher: Watcher) -> bytes:
        """What changed since the line before."""
        watcher.woken.clear()
        told = watcher.subjects, watcher.allocations, watcher.appointments, watcher.brokers
        subjects, allocations, appointments, brokers = (sorted(names) for names in told)
        for names in told:
            names.clear()
        line = self._line(subjects, allocations, appointments, 0)
        if watcher.delays:
            watcher.delays, line["delays"] = False, self._delays
        return self._with_brokers(line, tuple(brokers)) if brokers else _text(line)

    def _with_brokers(self, line: dict[str, Any], groups: tuple[str, ...] | None) -> bytes:
        """A line about these broker groups, too; ``None``: all. A change of a broker goes to every stream, and every
        new one begins with all of them, so their text is made once.
        """
        text = self._texts.get(groups)
        if text is None:
            named = list(self._rows) if groups is None else groups
            rows = [self._rows.get(group, {"group": group, "state": "NRW"}) for group in named]
            if len(self._texts) >= TEXTS_MAX:
                self._texts.clear()
            text = self._texts[groups] = _text(rows)
        return _text(line)[:-1] + b',"brokers":' + text + b"}"

    def _line(
        self, subjects: list[str], allocations: list[str], appointments: list[str], known: int
    ) -> dict[str, Any]:
        registry = self._meta.registry
        line: dict[str, Any] = {"revision": registry.revision}
        if subjects:
            rows = ((subject, self._meta.route_since(subject, known)) for subject in subjects)
            found = {subject: row for subject, row in rows if row is not None}
            line["routes"] = list(found.values())
            gone = [subject for subject in subjects if registry.get(Route, subject) is None]
            line |= {"gone": gone} if gone else {}
        if allocations:
            line["allocations"] = [
                {"key": key, "version": registry.version(Allocation.KIND, key)} for key in allocations
            ]
        groups = [group for name in appointments if (group := registry.get(BrokerGroup, name)) is not None]
        if groups:
            line["appointments"] = [dict(appointment_map(group, 0)) for group in groups]
        return line


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

"""A group's dead letters: what was tried too often, or rejected. They can be looked at, given out again, or dropped.

The messages are read as any others are (``search.py``), in the subject ``%dead%SUBJECT%GROUP`` of each broker and each
partition; which of them were redriven or purged before, the broker says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from tidemill.asking import ask
from tidemill.delivery import add_range
from tidemill.errors import BrokerUnreachable, Refused, TidemillError
from tidemill.link import Answer
from tidemill.looking import FindHolders, Holder, gathered
from tidemill.search import StoredMessage, browse
from tidemill.settings import ClientSettings
from tidemill_wire.burying import Purge, Redrive
from tidemill_wire.commands import Done
from tidemill_wire.fields import DEAD_PROPERTY, living_partition, parse_group, parse_subject
from tidemill_wire.ranges import portions


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that its group could not handle."""

    id: str
    """The message's own id, as on its receipt."""
    sequence: int
    """Its number among the dead letters of its ``partition`` on its ``broker``."""
    attempts: int
    reason: str
    error: str
    """The exception's type, and the ``place`` where it was raised."""
    place: str
    fingerprint: str
    """The same for the same mistake."""
    failed_at: datetime
    first_failed_at: datetime | None
    message: StoredMessage
    """The copy: body, key, tags, and the properties that it was sent with."""
    broker: str = ""
    """The broker group where it lies, and the ``partition`` of the subject; its sequence counts there."""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which dead letters are meant; what is absent allows all."""

    ids: Collection[str] = ()
    since: datetime | None = None
    before: datetime | None = None
    reason: str = ""
    """A part of the reason."""
    fingerprint: str = ""

    def allows(self, letter: DeadLetter) -> bool:
        """Whether it is one of them."""
        return (
            (not self.ids or letter.id in self.ids)
            and (self.since is None or letter.failed_at >= self.since)
            and (self.before is None or letter.failed_at < self.before)
            and self.reason in letter.reason
            and self.fingerprint in ("", letter.fingerprint)
        )


class Place(NamedTuple):
    """A partition's dead letters at one broker."""

    holder: Holder
    partition: str
    subject: str
    """Where they lie."""
    first: int
    end: int
    waiting: int
    handled: list[int]
    """Redriven or purged: first, last, first, last …"""

    @property
    def row(self) -> dict[str, Any]:
        """As ``status`` says it."""
        return {
            "broker": self.holder.address.group, "partition": self.partition, "subject": self.subject,
            "first": self.first, "next": self.end, "waiting": self.waiting, "handled": self.handled,
        }  # fmt: skip


class DeadLetters:
    """``mq.dead_letters("order.created", group="billing")``: ``async for`` over it.

    They lie where their messages lay: on each broker that holds the subject. When one of these cannot be asked, the
    dead letters of the others are there as ever, and then ``BrokerUnreachable`` says who is missing.
    """

    def __init__(self, find: FindHolders, settings: ClientSettings, names: tuple[str, str]) -> None:
        self._find = find
        self._settings = settings
        self.subject, self.group = parse_subject(names[0]), parse_group(names[1])

    def __aiter__(self) -> AsyncIterator[DeadLetter]:
        return self.chosen(Chosen())

    async def status(self) -> dict[str, Any]:
        """How many are ``waiting``, what the group's messages failed of (``errors``), in which ``partitions`` they lie,
        and which broker groups could not be asked (``away``).
        """
        ground = await self._look()
        return {
            "waiting": sum(place.waiting for place in ground.places),
            "partitions": [place.row for place in ground.places],
            "errors": merged_errors(ground.errors),
            "away": ground.away,
        }

    async def _look(self) -> Ground:
        """What each broker says."""
        holders = await self._find(self.subject)
        ground = Ground([], [], list(holders.away))
        refused: TidemillError | None = None
        for holder, answer in zip(
            holders.there, await gathered(map(self._status, holders.there)), strict=True
        ):
            match answer:
                case Refused():
                    refused = refused or answer
                case BrokerUnreachable():
                    ground.away.append(holder.address.group)
                    refused = answer
                case _:
                    ground.note(holder, answer)
        if not ground.places and (refused is not None or ground.away):
            raise refused or self._unheard(ground.away)
        return ground

    async def _status(self, holder: Holder) -> Mapping[str, Any] | Refused | BrokerUnreachable:
        path = f"/v1/subjects/{quote(self.subject, safe='')}/groups/{quote(self.group, safe='')}/dead"
        try:
            answer: object = await holder.look(path, {})
        except BrokerUnreachable as error:
            return error
        except Refused as error:
            if error.kind.name != "not_found":
                raise
            return error
        if not isinstance(answer, dict):
            return BrokerUnreachable(f"the answer to GET {path} is no status of dead letters")
        return cast("dict[str, Any]", answer)

    def _unheard(self, away: Iterable[str], done: str = "") -> BrokerUnreachable:
        said = f"; {done}" if done else ""
        return BrokerUnreachable(
            f"dead letters of {self.subject} on {', '.join(dict.fromkeys(away))} cannot be reached now{said}: "
            "look with `tidemill status`, and try again"
        )

    async def chosen(self, chosen: Chosen, limit: int | None = None) -> AsyncIterator[DeadLetter]:
        """Those that wait, the oldest first."""
        ground = await self._look()
        left = limit
        async with AsyncExitStack() as stack:
            lanes = [
                await stack.enter_async_context(aclosing(_letters(place, ground.away)))
                for place in ground.places
                if place.waiting
            ]
            async for letter in _oldest_first(lanes):
                if chosen.allows(letter):
                    yield letter
                    if left is not None and (left := left - 1) == 0:
                        return
        if ground.away:
            raise self._unheard(ground.away)

    async def redrive(self, letters: Iterable[DeadLetter | int] | None = None) -> int:
        """Give them to the group again, with no attempt behind them; ``None``: all. How many that were.

        Their sequences do where they lie in one partition of one broker.
        """
        return await self._settle(Redrive, letters)

    async def purge(self, letters: Iterable[DeadLetter | int] | None = None) -> int:
        """Nobody wants them any more; ``None``: all. How many that were."""
        return await self._settle(Purge, letters)

    async def _settle(self, make: type[Redrive | Purge], letters: Iterable[DeadLetter | int] | None) -> int:
        if letters is None:
            return await self._settle_all(make)
        by_place: dict[tuple[str, str], list[int]] = {}
        unplaced: list[int] = []
        for letter in letters:
            if isinstance(letter, DeadLetter):
                by_place.setdefault((letter.broker, letter.partition), []).append(letter.sequence)
            else:
                unplaced.append(letter)
        if unplaced:
            by_place.setdefault(await self._only_place(), []).extend(unplaced)
        brokers = {one.address.group: one.address for one in (await self._find(self.subject)).there}
        away = {broker for broker, _ in by_place if broker not in brokers}
        if away:
            raise self._unheard(away)
        count = 0
        for (broker, partition), sequences in by_place.items():
            for part in portions(ranges_of(sequences)):
                count += self._count_of(
                    await ask(brokers[broker], self._settings, make(partition, self.group, list(part)))
                )
        return count

    async def _only_place(self) -> tuple[str, str]:
        """Where sequences are meant to be, when nobody says it."""
        ground = await self._look()
        used = [place for place in ground.places if place.end] or ground.places[:1]
        if len(used) > 1 or ground.away:
            raise Refused(
                "limit_exceeded",
                f"dead letters of {self.subject} lie in {len(used) + len(ground.away)} places, which number their own: "
                "give the dead letters themselves, not their sequences",
            )
        return used[0].holder.address.group, used[0].partition

    async def _settle_all(self, make: type[Redrive | Purge]) -> int:
        holders = await self._find(self.subject)
        away, count = list(holders.away), 0
        unknown: Refused | None = None
        for holder in holders.there:
            try:
                count += self._count_of(
                    await ask(holder.address, self._settings, make(self.subject, self.group, []))
                )
            except Refused as error:
                if error.kind.name != "not_found":
                    raise
                unknown = error
            except BrokerUnreachable:
                away.append(holder.address.group)
        if away or not holders.there:
            raise self._unheard(
                away or ["any broker"], f"of the others {count:,} were settled" if count else ""
            )
        if unknown is not None and not count:
            await self._look()  # whoever knows the group has none: only a group that nobody knows is an error
        return count

    def _count_of(self, answer: Answer) -> int:
        if isinstance(answer, TidemillError):
            raise answer
        if not isinstance(answer, Done):
            raise BrokerUnreachable("the broker answered what was not asked")
        return answer.count


@dataclass(slots=True)
class Ground:
    """All that brokers said of a group's dead letters."""

    places: list[Place]
    errors: list[Mapping[str, Any]]
    away: list[str]

    def note(self, holder: Holder, said: Mapping[str, Any]) -> None:
        """One broker's answer; one of an earlier version knows one partition."""
        self.errors += said["errors"]
        for row in said.get("partitions") or [said]:
            partition = str(row.get("partition") or living_partition(str(row["subject"])))
            self.places.append(
                Place(
                    holder, partition, str(row["subject"]), int(row["first"]), int(row["next"]), int(row["waiting"]),
                    list(row["handled"]),
                )
            )  # fmt: skip


async def _letters(place: Place, away: list[str]) -> AsyncGenerator[DeadLetter]:
    """Those of one place that wait. A broker that answers no more is noted, and ends them."""
    handled = place.handled
    try:
        async for message in browse(place.holder.look, place.subject, (place.first, place.end), False, None):
            at = bisect_left(handled, message.sequence)
            if at % 2 or handled[at : at + 1] == [message.sequence]:
                continue  # in a range, or the first of one
            yield replace(letter_of(message), broker=place.holder.address.group, partition=place.partition)
    except BrokerUnreachable:
        away.append(place.holder.address.group)


async def _oldest_first(lanes: Sequence[AsyncGenerator[DeadLetter]]) -> AsyncIterator[DeadLetter]:
    """All of several, each of which is in its order."""
    heads = [
        (letter.failed_at, number, letter)
        for number, letter in enumerate(await gathered(anext(lane, None) for lane in lanes))
        if letter is not None
    ]
    heapify(heads)
    while heads:
        _, number, letter = heads[0]
        yield letter
        following = await anext(lanes[number], None)
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (following.failed_at, number, following))


def merged_errors(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What messages failed of, newest first; the same mistake on several brokers is one."""
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: int(row["last_ms"]), reverse=True):
        known = found.setdefault(str(row["fingerprint"]), {**row, "messages": 0})
        known["messages"] += row["messages"]
    return list(found.values())


def ranges_of(sequences: Iterable[int]) -> list[int]:
    """As first, last, first, last …"""
    ranges: list[int] = []
    for sequence in sorted(set(sequences)):
        add_range(ranges, sequence, sequence)
    return ranges


def letter_of(message: StoredMessage) -> DeadLetter:
    """What the broker wrote on the copy."""
    known = message.properties.pop(DEAD_PROPERTY, None)
    said = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    since = int(said.get("since", 0))
    return DeadLetter(
        id=message.origin or message.id,
        sequence=message.sequence,
        attempts=int(said.get("attempts", message.attempts)),
        reason=str(said.get("reason", "")),
        error=str(said.get("error", "")),
        place=str(said.get("place", "")),
        fingerprint=str(said.get("fingerprint", "")),
        failed_at=_time(int(said.get("failed_at", 0))) or message.stored_at,
        first_failed_at=_time(since),
        message=message,
    )


def _time(at_ms: int) -> datetime | None:
    return datetime.fromtimestamp(at_ms / 1000, UTC) if at_ms else None

"""A group's dead letters: what was tried too often, or rejected. They can be looked at, given out again, or dropped.

The messages are read as any others are (``search.py``), in the subject ``%dead%SUBJECT%GROUP``; which of them were
redriven or purged before, the broker says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import quote

from tidemill.asking import ask
from tidemill.delivery import add_range
from tidemill.errors import BrokerUnreachable, Refused, TidemillError
from tidemill.router import Router
from tidemill.search import Look, StoredMessage, browse
from tidemill.settings import ClientSettings
from tidemill_wire.burying import Purge, Redrive
from tidemill_wire.commands import Done
from tidemill_wire.fields import DEAD_PROPERTY, dead_subject, parse_group, parse_subject
from tidemill_wire.ranges import portions


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that its group could not handle."""

    id: str
    """The message's own id, as on its receipt."""
    sequence: int
    """Its number among the dead letters: what ``redrive`` and ``purge`` take."""
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


class DeadLetters:
    """``mq.dead_letters("order.created", group="billing")``: ``async for`` over it."""

    def __init__(self, look: Look, router: Router, settings: ClientSettings, names: tuple[str, str]) -> None:
        self._look = look
        self._router = router
        self._settings = settings
        self.subject, self.group = parse_subject(names[0]), parse_group(names[1])

    def __aiter__(self) -> AsyncIterator[DeadLetter]:
        return self.chosen(Chosen())

    async def status(self) -> dict[str, Any]:
        """How many wait, what was redriven or purged, and what the group's messages failed of."""
        path = f"/v1/subjects/{quote(self.subject, safe='')}/groups/{quote(self.group, safe='')}/dead"
        status: object = await self._look(path, {})
        if not isinstance(status, dict):
            raise BrokerUnreachable(f"the answer to GET {path} is no status of dead letters")
        return cast("dict[str, Any]", status)

    async def chosen(self, chosen: Chosen, limit: int | None = None) -> AsyncIterator[DeadLetter]:
        """Those that wait, the oldest first."""
        status = await self.status()
        if not status["waiting"]:
            return
        handled = cast("list[int]", status["handled"])
        left = limit
        name = dead_subject(self.subject, self.group)
        async for message in browse(self._look, name, (status["first"], status["next"]), False, None):
            at = bisect_left(handled, message.sequence)
            if at % 2 or handled[at : at + 1] == [message.sequence]:
                continue  # in a range, or the first of one
            letter = letter_of(message)
            if chosen.allows(letter):
                yield letter
                if left is not None and (left := left - 1) == 0:
                    return

    async def redrive(self, sequences: Iterable[int] | None = None) -> int:
        """Give them to the group again, with no attempt behind them; ``None``: all. How many that were."""
        return await self._settle(lambda ranges: Redrive(self.subject, self.group, ranges), sequences)

    async def purge(self, sequences: Iterable[int] | None = None) -> int:
        """Nobody wants them any more; ``None``: all. How many that were."""
        return await self._settle(lambda ranges: Purge(self.subject, self.group, ranges), sequences)

    async def _settle(
        self, command: Callable[[list[int]], Redrive | Purge], sequences: Iterable[int] | None
    ) -> int:
        if sequences is None:
            return await self._ask(command([]))
        ranges = ranges_of(sequences)
        return sum([await self._ask(command(list(part))) for part in portions(ranges)])

    async def _ask(self, command: Redrive | Purge) -> int:
        brokers = await self._router.holding(self.subject)
        if not brokers:
            raise BrokerUnreachable(f"no broker with {self.subject} can be reached now")
        if len(brokers) > 1 and command.ranges:
            raise Refused(
                "limit_exceeded",
                f"dead letters of {self.subject} are on {len(brokers)} broker groups, which number their own: "
                "redrive or purge all of them",
            )
        count, unknown, known = 0, None, False
        for address in brokers:
            answer = await ask(address, self._settings, command)
            if isinstance(answer, Refused) and answer.kind.name == "not_found":
                unknown = answer
            elif isinstance(answer, TidemillError):
                raise answer
            elif not isinstance(answer, Done):
                raise BrokerUnreachable("the broker answered what was not asked")
            else:
                count, known = count + answer.count, True
        if unknown is not None and not known:
            raise unknown
        return count


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

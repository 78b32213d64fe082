"""Finding stored messages without consuming them: by id, by key, by subject with sequences or times.

Nothing is leased and no group moves on. A search asks the HTTP port page by page, as far as it is iterated.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote

from tidemill.encode import check_key
from tidemill.errors import BrokerUnreachable, Refused
from tidemill_wire.batch import parse_message_id
from tidemill_wire.limits import QUERY_MESSAGES_DEFAULT, QUERY_MESSAGES_MAX

Look: TypeAlias = Callable[[str, Mapping[str, str]], Awaitable[Any]]
"""The JSON at a path with parameters."""

Bound: TypeAlias = int | datetime | Literal["earliest", "latest"]
"""A sequence, or a time."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as it lies in the log."""

    id: str
    subject: str
    sequence: int
    body: bytes
    key: str | None
    tags: frozenset[str]
    properties: dict[str, Any]
    attempts: int
    """How often a copy had been given out before it was made; 0 for what a producer sent."""
    origin: str | None
    """Where a copy comes from."""
    stored_at: datetime
    created_at: datetime | None
    """By the producer's clock; ``None`` when that said nothing sensible."""
    priority: int = 0


class Search:
    """Messages, one after the other: ``async for message in mq.browse("order.created")``."""

    def __init__(self, look: Look, path: str, parameters: Mapping[str, str], limit: int | None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit {limit} is none: ask for one message at least")
        self._look = look
        self._path = path
        self._parameters = dict(parameters)
        self._left = limit
        self._page: list[StoredMessage] = []
        self._over = False

    def __aiter__(self) -> Search:
        return self

    async def __anext__(self) -> StoredMessage:
        while not self._page:
            if self._over or self._left == 0:
                raise StopAsyncIteration
            await self._turn()
        if self._left is not None:
            self._left -= 1
        return self._page.pop()

    async def all(self) -> list[StoredMessage]:
        """The rest of them."""
        return [message async for message in self]

    async def _turn(self) -> None:
        """The next page. It may be empty and not the last one: the broker works for so long at a time."""
        size = QUERY_MESSAGES_DEFAULT if self._left is None else min(self._left, QUERY_MESSAGES_MAX)
        answer = await self._look(self._path, {**self._parameters, "limit": str(size)})
        page = cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
        rows, after = page.get("messages"), page.get("after")
        if not isinstance(rows, list) or not isinstance(after, str | None):
            raise BrokerUnreachable(f"the answer to GET {self._path} is no page of messages")
        self._page = [parse_message(row) for row in reversed(cast("list[object]", rows))]
        self._over = after is None
        if after is not None:
            self._parameters["after"] = after


async def find(look: Look, identity: str) -> StoredMessage | None:
    """The message with an id."""
    try:
        parse_message_id(identity)
    except ValueError as error:
        raise ValueError(str(error)) from None
    try:
        return parse_message(await look(f"/v1/messages/{identity}", {}))
    except Refused as error:
        if error.kind.name == "not_found":
            return None
        raise


async def why(look: Look, identity: str) -> dict[str, Any] | None:
    """What became of a message in each group, as the server describes it; ``None`` when there is no such message."""
    try:
        parse_message_id(identity)
    except ValueError as error:
        raise ValueError(str(error)) from None
    try:
        return cast("dict[str, Any]", await look(f"/v1/messages/{identity}/why", {}))
    except Refused as error:
        if error.kind.name == "not_found":
            return None
        raise


def find_by_key(
    look: Look,
    what: tuple[str | None, str],
    span: tuple[datetime | None, datetime | None],
    newest: bool,
    limit: int | None,
) -> Search:
    """Messages of one subject or of all, with exactly that key (``what``), stored in a span of time."""
    subject, key = what
    _parse_moment("start", span[0])
    _parse_moment("end", span[1])
    if not key:
        raise ValueError("an empty key is none: name one")
    parameters = {"key": check_key(key), **_order(newest), **_times(span)}
    return Search(look, "/v1/messages" if subject is None else _path_of(subject), parameters, limit)


def browse(
    look: Look, subject: str, span: tuple[Bound | None, Bound | None], newest: bool, limit: int | None
) -> Search:
    """A subject's messages, from ``start`` to before ``end``."""
    start, end = span = _parse_bound("start", span[0], "earliest"), _parse_bound("end", span[1], "latest")
    parameters = {**_order(newest), **_times(span)}
    first = start if isinstance(start, int) else 0
    if first < 0 or (isinstance(end, int) and end < 0):
        raise ValueError("a sequence is not negative: give 0 or more, or a datetime")
    if isinstance(end, int):
        if end <= first:
            return Search(_nothing, "", {}, limit)
        parameters["sequence"] = f"{first}-{end - 1}"
    elif first:
        parameters["sequence"] = str(first)
    return Search(look, _path_of(subject), parameters, limit)


def _parse_bound(name: str, bound: object, word: str) -> int | datetime | None:
    """What is passed over in silence would be all messages, which nobody asked for."""
    match bound:
        case None:
            return None
        case str() if bound == word:
            return None
        case datetime() | int() if not isinstance(bound, bool):
            return bound
        case _:
            raise TypeError(
                f"{name} {bound!r} is no sequence, no datetime and not {word!r}; newest=True begins with the newest"
            )


def _parse_moment(name: str, moment: object) -> None:
    if not isinstance(moment, datetime | None):
        raise TypeError(f"{name} {moment!r} is no datetime: write one with a time zone, as datetime.now(UTC)")


async def _nothing(_path: str, _parameters: Mapping[str, str]) -> dict[str, Any]:
    """An empty range is not worth a question."""
    return {"messages": [], "after": None}


def _path_of(subject: str) -> str:
    return f"/v1/subjects/{quote(subject, safe='')}/messages"


def _order(newest: bool) -> dict[str, str]:
    return {"order": "newest"} if newest else {}


def _times(span: tuple[Bound | None, Bound | None]) -> dict[str, str]:
    named = zip(("from", "to"), ("start", "end"), span, strict=True)
    return {name: str(_milliseconds(said, at)) for name, said, at in named if isinstance(at, datetime)}


def _milliseconds(name: str, at: datetime) -> int:
    if at.tzinfo is None:
        raise ValueError(f"{name} is a datetime without a time zone: add one, as in datetime.now(UTC)")
    return max(0, int(at.timestamp() * 1000))


def parse_message(value: object) -> StoredMessage:
    """A message out of the broker's JSON, or ``BrokerUnreachable``: what answers is no broker that we know."""
    try:
        row = cast("dict[str, Any]", value)
        created_at = row["created_at"]
        return StoredMessage(
            id=str(row["id"]),
            subject=str(row["subject"]),
            sequence=int(row["sequence"]),
            body=base64.b64decode(row["body"], validate=True),
            key=row["key"],
            tags=frozenset(row["tags"]),
            properties=row["properties"] or {},
            attempts=int(row["attempts"]),
            origin=row["origin"],
            stored_at=_time(row["stored_at"]),
            created_at=None if created_at is None else _time(created_at),
            priority=int(row.get("priority", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BrokerUnreachable(f"the answer holds a message that is none: {error!r}") from error


def _time(written: str) -> datetime:
    return datetime.fromisoformat(written).astimezone(UTC)

"""A row of the outbox: what it is made of, and what may become of it. Pure.

    row        event                               next
    none       the user's transaction writes it    written    seen by that transaction alone
    written    the transaction rolls back          none       as if it had never been
    written    the transaction commits             waiting    anybody may send it, and somebody must
    waiting    stored by a broker                  none       it is deleted
    waiting    cannot be stored now                waiting    it is due again later
    waiting    refused for good                    aside      with the reason; a person decides
    aside      ``retry``                           waiting
    aside      ``purge``                           none

``ORDERED`` is *waiting* of a row with an order key: only the leader sends it, and never before an older one of its
key. Between *stored* and *deleted* a process may die: then the row is sent once more, under the same identity.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Protocol, TypeAlias, TypedDict, cast

import msgpack

from tidemill.encode import Body, as_body
from tidemill.later import Delay, due_at
from tidemill.parcel import extras_of
from tidemill.settings import wall_clock_ms
from tidemill_wire.fields import parse_subject
from tidemill_wire.lanes import parse_priority

IDENTITY = "outbox_id"
"""The property by which a message that was sent twice is recognised."""

REASON_CHARS_MAX = 500

Clock: TypeAlias = Callable[[], int]


class State(IntEnum):
    """What is written into the column."""

    WAITING = 0
    ORDERED = 1
    ASIDE = 2


class Options(TypedDict, total=False):
    """What may be said of a message besides subject and body: the names and meanings of ``Client.send``."""

    key: str | None
    tags: Iterable[str] | None
    properties: Mapping[str, Any] | None
    priority: int
    order_key: str | None
    delay: Delay | None
    at: datetime | None


TIMES = {"delay", "at"}
DUE = "due_ms"
"""What a row has instead of them: the time at which its message is due, decided when it was written."""
STORED = (Options.__optional_keys__ - TIMES) | {DUE}


class Identified(Protocol):
    """What is asked of a message here."""

    @property
    def id(self) -> str: ...
    @property
    def properties(self) -> dict[str, Any]: ...


class TooNew(Exception):
    """A row says of its message what this version does not know. Another process may."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message, proven to be one, as it is written."""

    identity: str
    subject: str
    body: bytes
    options: bytes
    order_hash: int | None = None

    @property
    def state(self) -> State:
        """In which it begins."""
        return State.WAITING if self.order_hash is None else State.ORDERED


@dataclass(frozen=True, slots=True)
class Written:
    """What ``send`` returns: the row, which counts when its transaction has committed."""

    id: int
    identity: str
    ordered: bool = False
    began: float = field(default_factory=time.monotonic, repr=False)
    """When ``send`` was called, by this process's clock: the row is not older."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row that was read: it is committed."""

    id: int
    identity: str
    subject: str
    body: bytes
    options: bytes
    order_hash: int | None = None
    attempts: int = 0


def parse_entry(
    subject: str, body: Body, options: Options, identity: str | None = None, *, now_ms: Clock = wall_clock_ms
) -> Entry:
    """The entry; or the error that ``Client.send`` would raise, in the caller's transaction and not long after it.

    What is for later has no order: an order key of it goes along, and holds up no row.
    """
    if unknown := set(options) - Options.__optional_keys__:
        raise TypeError(f"send knows no {', '.join(sorted(unknown))}")
    data = as_body(body)
    given = {name: value for name, value in options.items() if value is not None and name not in TIMES}
    due_ms = due_at(options.get("delay"), options.get("at"), now_ms())
    if due_ms is not None:
        given[DUE] = due_ms
    tags = cast("Iterable[str]", given.get("tags", ()))
    if not isinstance(tags, str):
        given["tags"] = tags = sorted(set(tags))
    name = identity or uuid.uuid4().hex
    properties = {IDENTITY: name, **cast("Mapping[str, Any]", given.get("properties", {}))}
    given["properties"] = properties
    parse_priority(cast("int", given.get("priority", 0)))
    order_key = options.get("order_key")
    extras_of(len(data), options.get("key"), tags, properties, order_key)
    packed = cast("bytes", msgpack.packb(given))
    hashed = None if order_key is None or due_ms is not None else hash_of(subject, order_key)
    return Entry(name, parse_subject(subject), data, packed, hashed)


def parse_options(packed: bytes) -> Options:
    """The options of a row, as ``Client.send`` takes them."""
    try:
        found = cast("dict[str, Any]", msgpack.unpackb(packed))
        unknown = set(found) - STORED
        if DUE in found:
            found["at"] = datetime.fromtimestamp(found.pop(DUE) / 1000, UTC)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise ValueError("its options are damaged: purge it, and send it again from where it came") from error
    if unknown:
        raise TooNew("a newer tidemill has written it: upgrade the processes that send")
    return cast("Options", found)


def hash_of(subject: str, order_key: str) -> int:
    """By which rows of one key are found. Two keys with one hash wait for each other, and that is all they do."""
    digest = hashlib.sha256(f"{subject}\0{order_key}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def reason_of(error: BaseException) -> str:
    """Why, for the column: ASCII, because nobody knows the database's character set."""
    text = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace").decode()
    return text[:REASON_CHARS_MAX]


def identity(message: Identified) -> str:
    """What is the same for a message however often its row was sent; for ``Idempotent(store, key=identity)``."""
    found = message.properties.get(IDENTITY)
    return found if isinstance(found, str) else message.id

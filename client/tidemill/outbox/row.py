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

``ORDERED`` is *waiting* of a row with an order key, or a timer key: only the leader sends it, and never before an older
one of its key. Between *stored* and *deleted* a process may die: then the row is sent once more, under the same
identity. A row that cancels what waits under a timer key, or gives it another time, is a row as any other.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Protocol, TypeAlias, TypedDict, cast

import msgpack

from tidemill.encode import Body, as_body, check_timer_key
from tidemill.later import Delay, due_at
from tidemill.parcel import extras_of
from tidemill.recurring import Rule, due_of
from tidemill.settings import wall_clock_ms
from tidemill_wire.fields import parse_subject
from tidemill_wire.lanes import parse_priority
from tidemill_wire.recurrence import parse_recurrence

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
    timer_key: str | None
    cron: str | None
    time_zone: str | None
    missed: str | None


class Verb(Enum):
    """What a row wants, and what is written of that."""

    SEND = ""
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"


TIMES = {"delay", "at"}
RULE = {"cron", "time_zone", "missed"}
DUE, RECURS, VERB = "due_ms", "recurs", "verb"
"""What a row has instead of them: when its message is due, decided when it was written, and how it recurs; and what a
row wants that sends nothing.
"""
KINDS: Mapping[str, type] = {
    "key": str,
    "tags": list,
    "properties": dict,
    "priority": int,
    "order_key": str,
    "timer_key": str,
    DUE: int,
    RECURS: bytes,
    VERB: str,
}
"""Of what is stored of each; what was not said is not there."""
STORED = set(KINDS)
assert (Options.__optional_keys__ - TIMES - RULE) | {DUE, RECURS, VERB} == STORED


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


class Deed(NamedTuple):
    """What a row that was read wants."""

    verb: Verb
    options: Options
    """As ``Client.send`` takes them."""
    due_ms: int | None = None
    recurs: bytes | None = None
    """As the batch of a message that recurs says it."""

    @property
    def is_for_later(self) -> bool:
        """A delay service is asked, and no broker."""
        return self.verb is not Verb.SEND or self.due_ms is not None


def parse_entry(
    subject: str, body: Body, options: Options, identity: str | None = None, *, now_ms: Clock = wall_clock_ms
) -> Entry:
    """The entry; or the error that ``Client.send`` would raise, in the caller's transaction and not long after it.

    What is for later has no order but that of its timer key: an order key of it goes along, and holds up no row.
    """
    if unknown := set(options) - Options.__optional_keys__:
        raise TypeError(f"send knows no {', '.join(sorted(unknown))}")
    data, timer_key = as_body(body), options.get("timer_key")
    left_out = TIMES | RULE
    given = {name: value for name, value in options.items() if value is not None and name not in left_out}
    rule = Rule(options.get("cron"), options.get("time_zone"), options.get("missed"))
    due_ms, recurs = due_of(rule, options.get("delay"), options.get("at"), (timer_key, None), now_ms())
    given |= {name: value for name, value in ((DUE, due_ms), (RECURS, recurs)) if value is not None}
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
    if timer_key is not None:
        hashed = hash_of_timer(subject, check_timer_key(timer_key))
    return Entry(name, parse_subject(subject), data, packed, hashed)


def cancelling(subject: str, timer_key: str) -> Entry:
    """The entry that cancels what waits under a timer key, of what was written before it too."""
    return _without_body(subject, timer_key, {VERB: Verb.CANCEL.value})


def rescheduling(
    subject: str, timer_key: str, delay: Delay | None, at: datetime | None, *, now_ms: Clock = wall_clock_ms
) -> Entry:
    """The entry that gives it another time, which is decided now."""
    due_ms = due_at(delay, at, now_ms())
    if due_ms is None:
        raise ValueError("reschedule to when: give a delay or at")
    return _without_body(subject, timer_key, {VERB: Verb.RESCHEDULE.value, DUE: due_ms})


def _without_body(subject: str, timer_key: str, said: dict[str, Any]) -> Entry:
    packed = cast("bytes", msgpack.packb({"timer_key": check_timer_key(timer_key), **said}))
    return Entry(uuid.uuid4().hex, parse_subject(subject), b"", packed, hash_of_timer(subject, timer_key))


def parse_deed(packed: bytes) -> Deed:
    """What the options of a row say."""
    try:
        unpacked = cast("object", msgpack.unpackb(packed))
        if not isinstance(unpacked, dict):
            raise TypeError("no map")
        found = cast("dict[str, Any]", unpacked)
        unknown = set(found) - STORED
        _check_whole(found)
        due_ms, recurs = found.pop(DUE, None), found.pop(RECURS, None)
        if due_ms is not None:
            found["at"] = datetime.fromtimestamp(due_ms / 1000, UTC)
        verb = found.pop(VERB, Verb.SEND.value)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise ValueError("its options are damaged: purge it, and send it again from where it came") from error
    if unknown or verb not in {one.value for one in Verb}:
        raise TooNew("a newer tidemill has written it: upgrade the processes that send")
    return Deed(Verb(verb), cast("Options", found), due_ms, recurs)


def _check_whole(found: Mapping[str, Any]) -> None:
    """Each value is of the kind that is written, and what belongs together is there."""
    if any(not isinstance(said, KINDS[name]) for name, said in found.items() if name in STORED):
        raise TypeError("another kind of value than was written")
    needed: set[str] = set()
    if found.get(VERB) in {Verb.CANCEL.value, Verb.RESCHEDULE.value}:
        needed.add("timer_key")
    if found.get(VERB) == Verb.RESCHEDULE.value:
        needed.add(DUE)
    if RECURS in found:
        needed |= {"timer_key", DUE}
        parse_recurrence(found[RECURS])
    if not needed <= set(found):
        raise ValueError("not all of what belongs together")


def hash_of(subject: str, order_key: str) -> int:
    """By which rows of one key are found. Two keys with one hash wait for each other, and that is all they do."""
    digest = hashlib.sha256(f"{subject}\0{order_key}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def hash_of_timer(subject: str, timer_key: str) -> int:
    """The same of rows with a timer key."""
    return hash_of(f"{subject}\0", timer_key)


def reason_of(error: BaseException) -> str:
    """Why, for the column: ASCII, because nobody knows the database's character set."""
    text = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace").decode()
    return text[:REASON_CHARS_MAX]


def identity(message: Identified) -> str:
    """What is the same for a message however often its row was sent; for ``Idempotent(store, key=identity)``."""
    found = message.properties.get(IDENTITY)
    return found if isinstance(found, str) else message.id

"""The border of msgpack: maps from outside become proven values here, or the command is refused."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import msgpack

from tidemill_wire import limits
from tidemill_wire.errors import Refused
from tidemill_wire.lanes import LANE_PREFIX, lane_name, split_lane
from tidemill_wire.limits import PRIORITY_MAX
from tidemill_wire.ranges import apart, pairs

NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
DEAD_PREFIX = "%dead%"
DEAD_PROPERTY = "tidemill.dead"
"""The property of a dead letter that says what became of it."""
DEAD_UNREAD = "properties"
"""Within it: the properties of the message as bytes, where nobody can read them."""
REPLAYED_PROPERTY = "tidemill.replayed"
"""The property of a message that was sent again out of an archive: the id that it had there."""
AGAIN = re.compile(r"%again%([A-Za-z0-9._-]{1,100})%([A-Za-z0-9._-]{1,100})")
"""For whom messages are that failed in a group and are kept for later: a subject and that group of it."""
EXPANDED = re.compile(r"([A-Za-z0-9._-]{1,100})#([1-9][0-9]{0,3})")
"""A further partition of a subject: meta names it when a subject is expanded, no user can."""
LANE = re.compile(f"{LANE_PREFIX}[1-{PRIORITY_MAX}]%")
CONSUMER = re.compile(r"[\x21-\x7e]{1,200}")


def malformed(detail: str) -> Refused:
    return Refused("malformed_command", detail)


def packed(numbers: Sequence[int]) -> bytes:
    """Numbers of 64 bits as ``Fields.longs`` reads them."""
    return array("q", numbers).tobytes()


def read_properties(packed: bytes) -> dict[Any, Any] | None:
    """The properties of a message, which any producer may have packed; ``None``: they are no map that can be read."""
    try:
        found = cast("object", msgpack.unpackb(packed, strict_map_key=False))
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError):
        return None
    return cast("dict[object, object]", found) if isinstance(found, dict) else None


class Fields:
    """A msgpack map from outside; every getter either proves a field or refuses the command."""

    __slots__ = ("_map",)

    def __init__(
        self,
        body: bytearray | memoryview | bytes,
        items_max: int = limits.PULL_SUBJECTS_MAX,
        size_max: int = limits.REQUEST_BYTES_MAX,
    ) -> None:
        if len(body) > size_max:
            raise Refused("frame_too_large", f"a control body of {len(body)} bytes")
        try:
            # A list costs its announced length at once, and a thousand may be nested before one item is there.
            parsed = cast("object", msgpack.unpackb(body, strict_map_key=True, max_array_len=items_max))
        except (ValueError, msgpack.UnpackException, RecursionError) as error:
            raise malformed(f"a control body is not msgpack ({error})") from None
        if not isinstance(parsed, dict):
            raise malformed("a control body is not a map")
        self._map = cast("Mapping[str, Any]", parsed)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Fields:
        """A map that came another way, as JSON."""
        fields = cls(b"\x80")
        fields._map = values
        return fields

    def number(self, name: str, low: int, high: int, absent: int | None = None) -> int:
        value = self._map.get(name, absent)
        if type(value) is not int:
            raise malformed(f"field {name!r} is not a number")
        if not low <= value <= high:
            raise Refused("limit_exceeded", f"{name} {value} is not within {low} and {high}")
        return value

    def flag(self, name: str) -> bool:
        """True or false; what is absent is false."""
        value = self._map.get(name, False)
        if type(value) is not bool:
            raise malformed(f"field {name!r} is neither true nor false")
        return value

    def text(self, name: str, limit: int = 1000, absent: str | None = None) -> str:
        value = self._map.get(name, absent)
        if type(value) is not str or len(value) > limit:
            raise malformed(f"field {name!r} is not a text of at most {limit} characters")
        return value

    def has(self, name: str) -> bool:
        """Whether the other side says anything of it: it may be older than the field."""
        return name in self._map

    def items(self, name: str, limit: int) -> list[Any]:
        items: list[Any] = self._map.get(name, [])
        if type(items) is not list:
            raise malformed(f"field {name!r} is not a list")
        if len(items) > limit:
            raise Refused("limit_exceeded", f"{name} has {len(items)} items, {limit} are allowed")
        return items

    def map(self, name: str, limit: int) -> dict[Any, Any]:
        """A map within the map; its caller proves what is in it."""
        value: dict[Any, Any] = self._map.get(name, {})
        if type(value) is not dict or len(value) > limit:
            raise malformed(f"field {name!r} is not a map of at most {limit} entries")
        return value

    def longs(self, name: str, limit: int) -> list[int]:
        """Numbers of 64 bits, packed as bytes: many of them cost no more than they are long."""
        value = self._map.get(name, b"")
        if type(value) is not bytes or len(value) % 8:
            raise malformed(f"field {name!r} is not packed 64-bit numbers")
        if len(value) > 8 * limit:
            raise Refused("limit_exceeded", f"{name} has {len(value) // 8} numbers, {limit} are allowed")
        return array("q", value).tolist()

    def ranges(self, name: str, limit: int) -> list[int]:
        """Pairs of first and last, both included; growing, and each number in one of them."""
        values = self.longs(name, 2 * limit)
        if len(values) % 2 or [pair for pair in pairs(values) if not 0 <= pair[0] <= pair[1]]:
            raise malformed(f"field {name!r} does not hold pairs of first and last")
        return apart(values)


def check_named(text: str, what: str) -> str:
    """A key within its limits that cannot be empty; ``what`` it is, with its article."""
    if not text:
        raise Refused("limit_exceeded", f"{what} is empty; leave it away, or give 1 character or more")
    if (size := len(text.encode())) > limits.KEY_BYTES_MAX:
        raise Refused("limit_exceeded", f"{what} has {size} bytes, {limits.KEY_BYTES_MAX} are the limit")
    return text


def parse_subject(name: str) -> str:
    """A subject that a user may name."""
    if not NAME.fullmatch(name):
        shown = name if len(name) <= limits.SUBJECT_NAME_MAX else f"{name[:40]}… ({len(name)} characters)"
        raise Refused("invalid_subject", f"{shown!r} is no subject name")
    return name


def dead_subject(subject: str, group: str) -> str:
    """Where the dead letters of a group lie. A group's dead letters that die again stay where they are."""
    return subject if subject.startswith(DEAD_PREFIX) else f"{DEAD_PREFIX}{subject}%{group}"


def dead_letters_of(name: str, group: str) -> str | None:
    """The subject whose dead letters of a group lie in the partition ``name``; ``None``: it holds none."""
    if name.startswith(DEAD_PREFIX) and name.endswith(f"%{group}"):
        return name[len(DEAD_PREFIX) : -len(group) - 1]
    return None


def again_for(subject: str, group: str) -> str:
    """As a batch says that it is for one group of a subject, in which its messages failed."""
    return f"%again%{subject}%{group}"


def parse_again(name: str) -> tuple[str, str] | None:
    """The subject and the group; ``None`` when it is for all groups."""
    found = AGAIN.fullmatch(name)
    return None if found is None else (found[1], found[2])


def living_partition(name: str) -> str:
    """The partition that a lane, or somebody's dead letters, are of."""
    if name.startswith(LANE_PREFIX):
        return split_lane(name)[0]
    return name[len(DEAD_PREFIX) :].partition("%")[0] if name.startswith(DEAD_PREFIX) else name


def living_subject(name: str) -> str:
    """The subject that a message was sent to, when it is read from a partition or a lane of it, or from somebody's
    dead letters.
    """
    return living_partition(name).partition("#")[0]


def parse_stored(name: str) -> str:
    """Where messages of users lie: a subject that a user may name, or a further partition of one (``order.paid#3``)."""
    return name if EXPANDED.fullmatch(name) else parse_subject(name)


def parse_partition(name: str) -> str:
    """A subject or a further partition of one, the dead letters of it, or a lane of it."""
    if LANE.match(name) is not None:
        subject, priority = split_lane(name)
        return lane_name(parse_stored(subject), priority)
    if name.startswith(DEAD_PREFIX):
        subject, _, group = name[len(DEAD_PREFIX) :].partition("%")
        return dead_subject(parse_stored(subject), parse_group(group))
    return parse_stored(name)


def parse_group(name: str) -> str:
    """A consumer group's name."""
    if not NAME.fullmatch(name):
        raise Refused("invalid_group", f"{name[:100]!r} is no group name")
    return name


def broadcast_group(group: str, consumer: str) -> str:
    """The group that a broadcast consumer has to itself: ``GROUP.CONSUMER``, with a sum when that had to be changed."""
    own = f"{group}.{consumer}"
    fitting = re.sub(r"[^A-Za-z0-9._-]", "-", own)
    if fitting == own and len(own) <= limits.GROUP_NAME_MAX:
        return own
    mark = f"-{sha256(own.encode()).hexdigest()[:12]}"
    return fitting[: limits.GROUP_NAME_MAX - len(mark)] + mark


def parse_consumer(name: str) -> str:
    """A consumer's name within its group."""
    if not CONSUMER.fullmatch(name):
        raise Refused("invalid_consumer", f"{name[:100]!r} is no consumer name")
    return name

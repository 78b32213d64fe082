"""From what a user hands in to the bytes of a batch. Pure.

Every limit that the client can know is checked here, before anything is sent, with the error that the broker would
give.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgpack
from crc32c import crc32c

from tidemill.errors import Refused
from tidemill_wire.batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    MAGIC,
    PREFIX,
    STAMP_BYTES,
    STAMP_CRC,
    VERSION,
    aligned,
    read_header,
)
from tidemill_wire.columns import PADDING, SINGLE, Column
from tidemill_wire.fields import check_named
from tidemill_wire.limits import (
    BATCH_BYTES_MAX,
    KEY_BYTES_MAX,
    KIB,
    MESSAGE_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    TAG_BYTES_MAX,
    TAGS_MAX,
)

Body: TypeAlias = bytes | bytearray | memoryview | str
Bytes: TypeAlias = bytes | bytearray

SINGLE_HEAD = struct.Struct("<II32xI")
SINGLE_SAID = struct.Struct("<BBHIBBHQQ16sqQ")
NUMBER = struct.Struct("<Q")
NAME_LENGTH = struct.Struct("<B")
NAME_LENGTH_AT, PRODUCER_AT, NUMBER_AT = 53, 56, 64
"""Where the length of the partition's name, and the producer's id and sequence, stand in a batch."""
OVERHEAD_BYTES = 4 * KIB
"""A batch's header, name, directory and the columns of one message, but for their texts. Generously."""

BODY_OFFSETS, BODIES = int(Column.BODY_OFFSETS), int(Column.BODIES)

assert SINGLE_HEAD.size + SINGLE_SAID.size == HEADER_BYTES


def as_body(body: Body) -> bytes:
    """A body as bytes; a text is UTF-8."""
    given: object = body
    match given:
        case str():
            data = given.encode()
        case bytes() | bytearray() | memoryview():
            data = bytes(given)
        case _:  # bytes(5) would be five zeros
            what = type(given).__name__
            raise TypeError(f"a body is bytes or a text, not {what}: json.dumps(...) makes a text of it")
    check_body(len(data))
    return data


def check_many(bodies: object) -> None:
    """Of one body, its bytes would be sent one by one."""
    if isinstance(bodies, bytes | bytearray | memoryview | str):
        raise TypeError("send_many() takes many bodies, and this is one: give a list of them, or take send()")


def as_bodies(bodies: Sequence[Body]) -> list[bytes]:
    """The same for many, without looking at each when all are bytes."""
    if set(map(type, bodies)) != {bytes}:
        return [as_body(body) for body in bodies]
    found = cast("list[bytes]", bodies)
    check_body(max(map(len, found)))
    return found


def as_pairs(messages: list[tuple[str, Body]]) -> list[tuple[str, bytes]]:
    """Subjects with bodies as bytes; the same list when they are that already."""
    if {type(body) for _, body in messages} != {bytes}:
        return [(subject, as_body(body)) for subject, body in messages]
    found = cast("list[tuple[str, bytes]]", messages)
    check_body(max(len(body) for _, body in found))
    return found


def check_body(size: int) -> None:
    """``Refused`` when a body is too large for any subject."""
    if size > MESSAGE_BYTES_MAX:
        raise Refused("message_too_large", f"a body has {size} bytes, {MESSAGE_BYTES_MAX} are the limit")


def check_text(text: object, what: str) -> None:
    """``what`` it is, with its article. A number would be another key for every program that writes it otherwise."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a text, not {type(text).__name__}: str(...) makes one of it")


def check_key(key: str) -> str:
    """A key within its limit."""
    check_text(key, "a key")
    if (size := len(key.encode())) > KEY_BYTES_MAX:
        raise Refused("limit_exceeded", f"a key has {size} bytes, {KEY_BYTES_MAX} are the limit")
    return key


def check_order_key(order_key: str) -> str:
    """An order key within its limits. An empty one could not be told from none."""
    check_text(order_key, "an order key")
    return check_named(order_key, "an order key")


def check_timer_key(timer_key: str) -> str:
    """A timer key within its limits. An empty one would name nothing."""
    check_text(timer_key, "a timer key")
    return check_named(timer_key, "a timer key")


def parse_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags within their limits, sorted, so that equal sets make equal batches."""
    if isinstance(tags, str):
        raise TypeError("tags is a text: give a set of texts")
    given = set(tags)
    for tag in given:
        check_text(tag, "a tag")
    found = tuple(sorted(given))
    if len(found) > TAGS_MAX:
        raise Refused("limit_exceeded", f"a message has {len(found)} tags, {TAGS_MAX} are the limit")
    for tag in found:
        if not tag:
            raise Refused("limit_exceeded", "a tag is empty; leave it away, or give 1 character or more")
        if (size := len(tag.encode())) > TAG_BYTES_MAX:
            raise Refused(
                "limit_exceeded", f"the tag {tag[:40]!r} has {size} bytes, {TAG_BYTES_MAX} are the limit"
            )
    return found


def pack_properties(properties: Mapping[str, Any]) -> bytes:
    """Properties as a msgpack map within its limit, whose keys are texts at every depth: others not every reader can
    have as keys, and some none at all.
    """
    _check_keys(properties)
    packed = cast("bytes", msgpack.packb(dict(properties)))
    if len(packed) > PROPERTIES_BYTES_MAX:
        raise Refused(
            "limit_exceeded",
            f"properties have {len(packed)} bytes packed, {PROPERTIES_BYTES_MAX} are the limit",
        )
    return packed


def _check_keys(properties: Mapping[str, Any]) -> None:
    """One after the other and not by recursion, for they may be nested however deep."""
    left: list[object] = [properties]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            inner = cast("Mapping[object, object]", value)
            for key in inner:
                if not isinstance(key, str):
                    raise TypeError(
                        f"properties have the key {key!r:.60}: give texts as keys, at every depth"
                    )
            left += inner.values()
        elif isinstance(value, list | tuple):
            left += cast("Sequence[object]", value)


def check_message(size: int) -> None:
    """``Refused`` when one message with all that belongs to it does not fit into a batch."""
    if size + OVERHEAD_BYTES > BATCH_BYTES_MAX:
        raise Refused(
            "batch_too_large", f"a message with its properties has {size} bytes and does not fit a batch"
        )


def renumbered(data: Bytes, producer_sequence: int, producer_id: int | None = None) -> bytearray:
    """A batch under another number, and of another producer if one is given; nothing else of it changes."""
    batch = bytearray(data)
    if producer_id is not None:
        NUMBER.pack_into(batch, PRODUCER_AT, producer_id)
    NUMBER.pack_into(batch, NUMBER_AT, producer_sequence)
    with memoryview(batch) as view:
        STAMP_CRC.pack_into(batch, STAMP_BYTES, crc32c(view[CHECKED_FROM:]))
    return batch


def renamed(data: Bytes, partition: bytes) -> bytes:
    """A batch for another partition, whose name may be longer. ``renumbered`` must follow, for its sum."""
    header = read_header(data)
    said = PREFIX.pack(header.magic, header.length + aligned(len(partition)) - aligned(header.name_length))
    batch = bytearray(data[:HEADER_BYTES])
    batch[: len(said)] = said
    NAME_LENGTH.pack_into(batch, NAME_LENGTH_AT, len(partition))
    rest = data[
        HEADER_BYTES + aligned(header.name_length) :
    ]  # its places count from the end of the directory
    return b"".join((batch, partition.ljust(aligned(len(partition)), b"\0"), rest))


def encode_single(
    padded_name: bytes, name_length: int, named: tuple[int, int, bytes, int], body: bytes
) -> bytes:
    """One message with nothing but a body: the same bytes as ``build_batch``'s, in half of its time.

    ``named`` is producer id, producer sequence, batch id and the time. A round-robin over thousands of subjects is
    made of nothing else.
    """
    size = len(body)
    producer_id, number, batch_id, now_ms = named
    rest = b"".join((
        SINGLE_SAID.pack(VERSION, 0, 0, 1, 0, name_length, 2, producer_id, number, batch_id, now_ms, 0),
        padded_name,
        SINGLE.pack(BODY_OFFSETS, 0, 0, 8, 8, BODIES, 0, 8, size, size, 0, size),
        body,
        PADDING[-size & 7],
    ))  # fmt: skip
    return SINGLE_HEAD.pack(MAGIC, SINGLE_HEAD.size + len(rest), crc32c(rest)) + rest

"""Whatever comes to the data port: it is refused by name, counted, and nobody else notices.

The peers here speak by hand, so nothing that a client would check stands between them and the broker.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Iterator

import msgpack
import pytest
from crc32c import crc32c

from e2e.peers import HELLO, Neighbour, Numbers, RawPeer, exchange
from e2e.queues import Queue
from tidemill_wire import limits
from tidemill_wire.batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    PREFIX,
    STAMP_BYTES,
    STAMP_CRC,
    aligned,
    read_header,
)
from tidemill_wire.codec import Codec
from tidemill_wire.columns import ENTRY, Column, Content, build_batch, read_directory
from tidemill_wire.commands import Ack, Failed, Hello, Kind, Ping, Pull, Release, encode_command
from tidemill_wire.connection import Received
from tidemill_wire.errors import KIND_BY_NAME, KIND_BY_NUMBER
from tidemill_wire.frame import FRAME_HEADER

pytestmark = pytest.mark.e2e

MEMORY_GROWTH_MAX = 64 * limits.MIB
NUMBERS = Numbers()


@pytest.fixture(autouse=True)
def unharmed(shared_queue: Queue) -> Iterator[None]:
    """A user's work goes on before and after each attack, and the broker keeps its size."""
    asyncio.run(exchange(shared_queue.server, "before"))
    before = shared_queue.memory_bytes()
    yield
    asyncio.run(exchange(shared_queue.server, "after"))
    assert shared_queue.memory_bytes() - before < MEMORY_GROWTH_MAX
    assert shared_queue.errors == ""


def counted(queue: Queue, reason: str, attack: Callable[[], None]) -> None:
    """The attack is counted once under its reason, and under no other."""
    before = queue.refused()
    attack()
    after = queue.refused()
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert grown == {reason: 1}


def frame(type_: int, body: bytes = b"", length: int | None = None) -> bytes:
    return FRAME_HEADER.pack(len(body) if length is None else length, type_, 0, 7) + body


TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + os.urandom(200)

# What comes before HELLO, or instead of it: bytes, and the error that the connection ends with.
STRANGERS = {
    "garbage": (os.urandom(300_000), "not_tidemill"),
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not_tidemill"),
    "tls": (TLS_HELLO, "not_tidemill"),
    "a gibibyte": (frame(Kind.HELLO, length=1 << 30), "not_tidemill"),
    "the largest length": (frame(Kind.HELLO, length=0xFFFF_FFFF), "not_tidemill"),
    "unknown type": (frame(999), "not_tidemill"),
    "send before hello": (frame(Kind.SEND, bytes(NUMBERS.batch("x"))), "not_tidemill"),
    "pull before hello": (encode_command(Pull("g", "c", ["x"], 1, 1, 0), 1), "not_tidemill"),
    "a later version": (encode_command(Hello(2, 9, "tomorrow"), 0), "unsupported_version"),
    "no map": (frame(Kind.HELLO, msgpack.packb([1, 1])), "malformed_frame"),
    "no msgpack": (frame(Kind.HELLO, b"\xc1" * 20), "malformed_frame"),
    "deep msgpack": (frame(Kind.HELLO, b"\x91" * 4000), "malformed_frame"),
    "version zero": (
        frame(Kind.HELLO, msgpack.packb({"min": 0, "max": 1, "client": "x"})),
        "malformed_frame",
    ),
    "an endless name": (
        frame(Kind.HELLO, msgpack.packb({"min": 1, "max": 1, "client": "x" * 3000})),
        "malformed_frame",
    ),
}

# What comes after HELLO and ends the connection.
VIOLATIONS = {
    "a gibibyte": (frame(Kind.SEND, length=1 << 30), "frame_too_large"),
    "one byte too many": (frame(Kind.SEND, length=limits.FRAME_BYTES_MAX + 1), "frame_too_large"),
    "a second hello": (HELLO, "malformed_frame"),
}

# Whole frames that cannot be understood: refused one by one, and the connection goes on.
MISTAKES = {
    "unknown type": (frame(999), "malformed_command"),
    "type of the other side": (frame(Kind.SENT), "malformed_command"),
    "empty send": (frame(Kind.SEND), "malformed_command"),
    "no msgpack": (frame(Kind.PULL, b"\xc1\xc1"), "malformed_command"),
    "deep msgpack": (frame(Kind.PULL, b"\x81" * 100_000), "malformed_command"),
    "wide msgpack": (frame(Kind.PULL, b"\xdd\xff\xff\xff\xff"), "malformed_command"),
    "a map too large": (frame(Kind.ACK, b"\x80" + bytes(limits.REQUEST_BYTES_MAX)), "frame_too_large"),
    "percent name": (encode_command(Pull("g", "c", ["%dead%x%g"], 1, 1, 0), 7), "invalid_subject"),
    "long name": (encode_command(Pull("g", "c", ["x" * 101], 1, 1, 0), 7), "invalid_subject"),
    "bad group": (encode_command(Pull("g g", "c", ["x"], 1, 1, 0), 7), "invalid_group"),
    "bad consumer": (encode_command(Pull("g", "", ["x"], 1, 1, 0), 7), "invalid_consumer"),
    "pull of nothing": (encode_command(Pull("g", "c", ["x"], 0, 1, 0), 7), "limit_exceeded"),
    "pull of too much": (encode_command(Pull("g", "c", ["x"], 1, 1 << 40, 0), 7), "limit_exceeded"),
    "endless wait": (encode_command(Pull("g", "c", ["x"], 1, 1, 1 << 40), 7), "limit_exceeded"),
    "unknown start": (encode_command(Pull("g", "c", ["x"], 1, 1, 0, -3), 7), "limit_exceeded"),
    "too many subjects": (
        encode_command(Pull("g", "c", [f"s{number}" for number in range(1001)], 1, 1, 0), 7),
        "malformed_command",
    ),
    "ack of a stranger": (encode_command(Ack("g", "nobody", "before", [0, 5]), 7), "lease_lost"),
    "ranges backwards": (encode_command(Ack("g", "c", "before", [5, 0]), 7), "malformed_command"),
    "ranges below zero": (encode_command(Ack("g", "c", "before", [-5, 0]), 7), "malformed_command"),
    "half a range": (encode_command(Ack("g", "c", "before", [5]), 7), "malformed_command"),
    "done from a client": (frame(Kind.DONE, msgpack.packb({})), "malformed_command"),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_who_does_not_greet_properly_is_told_so_and_cut_off(shared_queue: Queue, name: str) -> None:
    data, reason = STRANGERS[name]

    def attack() -> None:
        with RawPeer(shared_queue, greeted=False) as peer:
            peer.say(data)
            number = peer.refusal()
            # A kernel may drop what was said last when a closed socket is still written to: never a wrong word.
            assert number in {KIND_BY_NAME[reason].number, 0}
            assert number or len(data) > 100_000
            assert peer.closed

    counted(shared_queue, reason, attack)


@pytest.mark.parametrize("name", VIOLATIONS)
def test_who_breaks_the_framing_is_told_so_and_cut_off(shared_queue: Queue, name: str) -> None:
    data, reason = VIOLATIONS[name]

    def attack() -> None:
        with RawPeer(shared_queue) as peer:
            peer.say(data)
            assert peer.refusal() == KIND_BY_NAME[reason].number
            assert peer.closed

    counted(shared_queue, reason, attack)


@pytest.mark.parametrize("name", MISTAKES)
def test_one_bad_command_is_refused_and_the_connection_goes_on(shared_queue: Queue, name: str) -> None:
    data, reason = MISTAKES[name]

    def attack() -> None:
        with RawPeer(shared_queue) as peer:
            peer.say(data)
            answer = peer.hear()
            assert isinstance(answer, Received)
            assert isinstance(answer.command, Failed)
            assert (answer.correlation, KIND_BY_NUMBER[answer.command.number].name) == (7, reason)
            assert answer.command.detail
            assert not isinstance(peer.ask(Ping()), Failed)

    counted(shared_queue, reason, attack)


# -- batches -------------------------------------------------------------------------------------------------------


def sealed(batch: bytearray) -> bytes:
    """With length and checksum put right: the lie must be found by its meaning."""
    PREFIX.pack_into(batch, 0, PREFIX.unpack_from(batch)[0], len(batch))
    STAMP_CRC.pack_into(batch, STAMP_BYTES, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return bytes(batch)


def patched(
    at: int, layout: str, *values: int, bodies: tuple[bytes, ...] = (b"one", b"two", b"three")
) -> bytes:
    batch = NUMBERS.batch("bad.batch", bodies)
    struct.pack_into(layout, batch, at, *values)
    return sealed(batch)


DIRECTORY = HEADER_BYTES + aligned(len("bad.batch"))
OFFSETS = DIRECTORY + 2 * ENTRY.size


def torn() -> bytes:
    return bytes(NUMBERS.batch("bad.batch"))[:-8]


def wrong_sum() -> bytes:
    batch = NUMBERS.batch("bad.batch")
    batch[-8] ^= 1
    return bytes(batch)


def bomb(codec: Codec) -> bytes:
    """A column of few bytes that says it unpacks to more than memory should be given for."""
    batch = NUMBERS.batch("bad.batch", [b"\0" * 1000] * 1000, codec=codec)
    struct.pack_into("<I", batch, DIRECTORY + ENTRY.size + 12, 0xFFFF_FFF0)
    return sealed(batch)


def with_tags(tags: list[str]) -> bytes:
    return bytes(build_batch(NUMBERS.origin("bad.batch"), Content([b"x"], tags=[tags])))


def with_tag_counts(*counts: int) -> bytes:
    content = Content([b"one", b"two", b"three"], tags=[["a"], ["b"], ["c"]])
    batch = build_batch(NUMBERS.origin("bad.batch"), content)
    place = read_directory(batch, 0, read_header(batch))[Column.TAG_COUNTS][1]
    assert batch[place : place + 16] == struct.pack("<4i", 0, 1, 2, 3)
    struct.pack_into("<4i", batch, place, *counts)
    return sealed(batch)


def with_properties(size: int) -> bytes:
    return bytes(build_batch(NUMBERS.origin("bad.batch"), Content([b"x"], properties=[bytes(size)])))


def with_key(size: int) -> bytes:
    return bytes(build_batch(NUMBERS.origin("bad.batch"), Content([b"x"], keys=["k" * size])))


def named(name: bytes) -> bytes:
    return bytes(NUMBERS.batch(name))


BATCHES: dict[str, tuple[Callable[[], bytes], str]] = {
    "torn": (torn, "corrupt_batch"),
    "a few bytes": (lambda: b"TMB1", "corrupt_batch"),
    "not a batch": (lambda: os.urandom(500), "corrupt_batch"),
    "wrong checksum": (wrong_sum, "corrupt_batch"),
    "no messages": (lambda: patched(48, "<I", 0), "corrupt_batch"),
    "too many messages": (lambda: patched(48, "<I", limits.BATCH_MESSAGES_MAX + 1), "corrupt_batch"),
    "more messages than offsets": (lambda: patched(48, "<I", 4), "corrupt_batch"),
    "a later version": (lambda: patched(44, "<B", 2), "corrupt_batch"),
    "an unknown codec": (lambda: patched(45, "<B", 3), "corrupt_batch"),
    "offsets below zero": (lambda: patched(OFFSETS, "<4i", 0, -3, 6, 11), "corrupt_batch"),
    "offsets backwards": (lambda: patched(OFFSETS, "<4i", 0, 6, 3, 11), "corrupt_batch"),
    "offsets that wrap": (lambda: patched(OFFSETS, "<4i", 0, 0x7FFF_FFFF, -2, 11), "corrupt_batch"),
    "offsets too short": (lambda: patched(OFFSETS, "<4i", 0, 3, 6, 8), "corrupt_batch"),
    "offsets too long": (lambda: patched(OFFSETS, "<4i", 0, 3, 6, 0x7FFF_FFFF), "corrupt_batch"),
    "one offset below zero": (
        lambda: patched(OFFSETS, "<2i", -5, 3, bodies=(b"one",)),
        "corrupt_batch",
    ),
    "a column outside": (lambda: patched(DIRECTORY + ENTRY.size + 4, "<I", 1 << 20), "corrupt_batch"),
    "columns on each other": (lambda: patched(DIRECTORY + ENTRY.size + 4, "<I", 0), "corrupt_batch"),
    "a column twice": (lambda: patched(DIRECTORY + ENTRY.size, "<H", Column.BODY_OFFSETS), "corrupt_batch"),
    "no bodies": (lambda: patched(DIRECTORY + ENTRY.size, "<H", 77), "corrupt_batch"),
    "lz4 bomb": (lambda: bomb(Codec.LZ4), "corrupt_batch"),
    "zstd bomb": (lambda: bomb(Codec.ZSTD), "corrupt_batch"),
    "percent name": (lambda: named(b"%dead%x%g"), "invalid_subject"),
    "no name": (lambda: named(b""), "invalid_subject"),
    "long name": (lambda: named(b"x" * 101), "invalid_subject"),
    "longest name": (lambda: named(b"x" * 255), "invalid_subject"),
    "name with a slash": (lambda: named(b"../../etc/passwd"), "invalid_subject"),
    "name with a zero": (lambda: named(b"a\0b"), "invalid_subject"),
    "name that is no text": (lambda: named(b"\xff\xfe"), "invalid_subject"),
    "large body": (
        lambda: bytes(NUMBERS.batch("bad.batch", [bytes(limits.MESSAGE_BYTES_DEFAULT + 1)])),
        "message_too_large",
    ),
    "one large body of many": (
        lambda: bytes(NUMBERS.batch("bad.batch", [b"x", bytes(limits.MESSAGE_BYTES_DEFAULT + 1), b"y"])),
        "message_too_large",
    ),
    "too many tags": (lambda: with_tags([f"t{number}" for number in range(11)]), "limit_exceeded"),
    "a long tag": (lambda: with_tags(["t" * 256]), "limit_exceeded"),
    "tags that wrap": (lambda: with_tag_counts(0, 0x7FFF_FFFF, -2, 3), "corrupt_batch"),
    "tags that are not there": (lambda: with_tag_counts(0, 1, 2, 9), "corrupt_batch"),
    "unknown flags of a column": (lambda: patched(DIRECTORY + ENTRY.size + 2, "<H", 2), "corrupt_batch"),
    "large properties": (lambda: with_properties(limits.PROPERTIES_BYTES_MAX + 1), "limit_exceeded"),
    "a long key": (lambda: with_key(limits.KEY_BYTES_MAX + 1), "limit_exceeded"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_bad_batch_is_refused_and_the_good_one_before_it_is_stored(shared_queue: Queue, name: str) -> None:
    make, reason = BATCHES[name]

    def attack() -> None:
        with RawPeer(shared_queue) as peer:
            good, bad = bytes(NUMBERS.batch("good.batch", [os.urandom(9)])), make()
            stored = shared_queue.metrics()["tidemill_messages_in_total"]
            refused = peer.refused_batches(good + bad)
            assert [KIND_BY_NUMBER[number].name for number, _ in refused] == [reason]
            assert shared_queue.metrics()["tidemill_messages_in_total"] == stored + 1
            assert not isinstance(peer.ask(Ping()), Failed)

    counted(shared_queue, reason, attack)
    subjects = {row["name"] for row in shared_queue.get("/v1/subjects")}
    assert all(len(subject) <= limits.SUBJECT_NAME_MAX and "%" not in subject for subject in subjects)


def test_batches_at_their_limits_are_taken(shared_queue: Queue) -> None:
    """The limits are where they are said to be: one less is good."""
    good = (
        with_tags(["t" * 255] + [f"t{number}" for number in range(9)]),
        with_properties(limits.PROPERTIES_BYTES_MAX),
        with_key(limits.KEY_BYTES_MAX),
        named(b"x" * 100),
        bytes(NUMBERS.batch("bad.batch", [bytes(limits.MESSAGE_BYTES_DEFAULT)])),
        bytes(NUMBERS.batch("bad.batch", [b""])),
    )
    with RawPeer(shared_queue) as peer:
        for batch in good:
            assert peer.refused_batches(batch) == []


# -- greed ---------------------------------------------------------------------------------------------------------


def test_more_parked_pulls_than_allowed_are_refused(shared_queue: Queue) -> None:
    over = 100
    pull = Pull("greedy", "c", ["nothing.comes"], 1, 1, 60_000)
    with Neighbour(shared_queue), RawPeer(shared_queue) as peer:
        many = range(1, limits.CORRELATIONS_MAX + over + 1)
        peer.say(b"".join(encode_command(pull, number) for number in many))
        answers = [peer.hear() for _ in range(over)]
        for answer in answers:
            assert isinstance(answer, Received)
            assert isinstance(answer.command, Failed)
            assert KIND_BY_NUMBER[answer.command.number].name == "too_many_requests"


def test_ranges_as_large_as_numbers_go_cost_nothing(shared_queue: Queue) -> None:
    everything = [0, (1 << 63) - 1]
    with Neighbour(shared_queue), RawPeer(shared_queue) as peer:
        peer.ask(Pull("ranger", "c", ["ranges"], 1, 1, 0))
        for kind in (Ack, Release):
            for _ in range(20):
                peer.ask(kind("ranger", "c", "ranges", everything * 5000))

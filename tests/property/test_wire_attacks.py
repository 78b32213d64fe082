"""For all bytes: they are understood or refused with a name, and cost no more than a frame may."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

import lz4.block
import msgpack
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from property import fuzz_wire
from samples.batches import BATCHES, PACKED, origin
from samples.commands import COMMANDS, GREETING, frame_of
from samples.strategies import mutations
from samples.targets import TARGETS, hear, read_command
from tidemill_wire import limits
from tidemill_wire.batch import aligned, encode_batch
from tidemill_wire.codec import Codec
from tidemill_wire.columns import COMPRESSED, ENTRY, Batch
from tidemill_wire.commands import Kind, parse_command
from tidemill_wire.connection import Connection, Role
from tidemill_wire.errors import CorruptBatch, RemoteProtocolError, WireError
from tidemill_wire.frame import FRAME_HEADER, SHARED_BYTES, Frame, FrameDecoder

GOOD = {
    "read_batches": [bytes(batch) for batch in (*BATCHES.values(), *PACKED.values())],
    "read_sealed_batch": [bytes(batch) for batch in (*BATCHES.values(), *PACKED.values())],
    "read_command": [frame[4:5] + frame[16:] for frame in map(frame_of, COMMANDS.values())],
    "read_stream": [
        frame_of(greeting) + frame_of(command)
        for greeting in GREETING.values()
        for command in COMMANDS.values()
    ],
}


@contextmanager
def allocating_at_most(size: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= size, f"{peak} bytes at once, {size} may be"


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_arbitrary_bytes_are_understood_or_refused(name: str, data: st.DataObject) -> None:
    TARGETS[name](data.draw(st.binary(max_size=300)))


@pytest.mark.parametrize("name", TARGETS)
def test_good_bytes_are_understood(name: str) -> None:
    for data in GOOD[name]:
        TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=300)
@given(data=st.data())
def test_good_bytes_with_mistakes_are_understood_or_refused(name: str, data: st.DataObject) -> None:
    TARGETS[name](data.draw(mutations(data.draw(st.sampled_from(GOOD[name])))))


MSGPACK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = ("min", "max", "client", "version", "broker", "epoch", "number", "detail", "lost", "reason", "first")
MORE_NAMES = (
    "refused",
    "group",
    "consumer",
    "subjects",
    "messages",
    "bytes",
    "wait",
    "start",
    "grants",
    "lease",
)
ALL_NAMES = (*NAMES, *MORE_NAMES, "subject", "ranges", "delay")


@given(st.sampled_from(Kind), st.dictionaries(st.sampled_from(ALL_NAMES), MSGPACK))
def test_any_map_is_understood_or_refused(kind: Kind, fields: dict[str, object]) -> None:
    control = msgpack.packb(fields)
    size = struct.pack("<I", len(control)) if kind is Kind.PULLED else b""
    read_command(bytes([kind]) + size + control)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=100), st.sampled_from([None, *Role]))
def test_length_that_is_only_announced_costs_little(size: int, behind: bytes, role: Role | None) -> None:
    header = FRAME_HEADER.pack(size, 1, 0, 1)
    with allocating_at_most(limits.FRAME_GROWTH_BYTES + 2 * SHARED_BYTES):
        try:
            if role is None:
                FrameDecoder().feed(header + behind)
            else:
                Connection(role).feed(header + behind)
        except RemoteProtocolError:
            pass


def test_frame_that_arrives_costs_its_size_twice_at_most() -> None:
    decoder = FrameDecoder()
    piece = bytes(60_000)
    with allocating_at_most(2 * limits.FRAME_BYTES_MAX):
        decoder.feed(FRAME_HEADER.pack(limits.FRAME_BYTES_MAX, 1, 0, 1))
        while not decoder.feed(piece):
            pass


def lying(codec: Codec, packed: bytes, claimed: int) -> Batch:
    directory = ENTRY.pack(1, 0, 0, 8, 8) + ENTRY.pack(2, COMPRESSED, 8, len(packed), claimed)
    data = struct.pack("<ii", 0, min(claimed, 2**31 - 1)) + packed.ljust(aligned(len(packed)), b"\0")
    return Batch(encode_batch(origin(codec), 1, 2, (directory, data)))


BOMB = bytes(100 * limits.MIB)
BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "lz4": (Codec.LZ4, lambda: lz4.block.compress(BOMB, store_size=False)),
    "zstd": (Codec.ZSTD, lambda: zstandard.ZstdCompressor().compress(BOMB)),
    "zstd without size": (
        Codec.ZSTD,
        lambda: zstandard.ZstdCompressor(write_content_size=False).compress(BOMB),
    ),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("claimed", [8, 1000, limits.BATCH_BYTES_MAX - 8, len(BOMB), 2**31, 2**32 - 1])
def test_bombs_do_not_go_off(name: str, claimed: int) -> None:
    """100 MiB packed into 400 KiB (zstd: into 3), whatever size the directory claims."""
    codec, make = BOMBS[name]
    packed = make()
    with allocating_at_most(limits.FRAME_BYTES_MAX + len(packed)), pytest.raises(CorruptBatch):
        lying(codec, packed, claimed).bodies()


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@given(packed=st.binary(max_size=60), claimed=st.integers(0, 2**32 - 1))
def test_huge_sizes_that_are_only_claimed_cost_no_more_than_a_batch(
    codec: Codec, packed: bytes, claimed: int
) -> None:
    with allocating_at_most(limits.FRAME_BYTES_MAX):
        try:
            lying(codec, packed, claimed).bodies()
        except CorruptBatch:
            pass


def nested(length: int) -> bytes:
    """Lists in lists, each announcing ``length`` items."""
    return b"\x81\xa1a" + (b"\xdd" + struct.pack(">I", length)) * 1000


def crowded(size: int) -> bytes:
    """As many empty lists as fit."""
    row = b"\xdc\x03\xe8" + b"\x90" * 1000
    return (b"\x81\xa1a\xdc\x03\xe8" + row * (size // len(row) + 1))[:size]


REQUESTS = [kind for kind in Kind if kind not in {Kind.SEND, Kind.SENT, Kind.PULLED}]


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("length", [15, 1000, 4000, 60_000, 2**20, 2**32 - 1])
def test_lists_that_are_only_announced_cost_little(kind: Kind, length: int) -> None:
    for body in (nested(length), nested(length).ljust(limits.REQUEST_BYTES_MAX, b"\0")):
        with allocating_at_most(limits.FRAME_BYTES_MAX), pytest.raises(WireError):
            parse_command(Frame(kind, 0, 1, bytearray(body)))


@pytest.mark.parametrize("kind", REQUESTS)
def test_largest_request_full_of_lists_costs_no_more_than_a_frame(kind: Kind) -> None:
    body = bytearray(crowded(limits.REQUEST_BYTES_MAX))
    with allocating_at_most(limits.FRAME_BYTES_MAX + limits.MIB), pytest.raises(WireError):
        parse_command(Frame(kind, 0, 1, body))


def test_answers_of_a_hostile_broker_are_bounded() -> None:
    """A client trusts its broker more than the broker its clients; yet what it may cost has a bound."""
    for kind, length in ((Kind.SENT, limits.RANGES_MAX), (Kind.PULLED, limits.GRANTS_MAX)):
        body = nested(length)
        size = struct.pack("<I", len(body)) if kind is Kind.PULLED else b""
        with allocating_at_most(1000 * 8 * length + limits.MIB), pytest.raises(WireError):
            parse_command(Frame(kind, 0, 1, bytearray(size + body)))


@given(st.integers(0, 30), st.binary(min_size=1, max_size=50))
def test_what_follows_a_violation_is_never_heard(count: int, garbage: bytes) -> None:
    """A broken connection stays broken: nothing that comes later is understood."""
    ping = frame_of(COMMANDS["ping"])
    stream = frame_of(GREETING[Role.SERVER]) + ping * count + frame_of(GREETING[Role.SERVER]) + ping

    events, broken = hear(Role.SERVER, [stream[at : at + 1] for at in range(len(stream))] + [garbage])

    assert broken == "malformed_frame"
    assert len(events) == 1 + count


class Rounds(Event):
    """Set when it has been asked so often."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count

    def is_set(self) -> bool:
        self._left -= 1
        return self._left <= 0


def test_fuzzer_finds_nothing_in_a_short_run() -> None:
    assert fuzz_wire.fuzz_with_hypothesis(Rounds(1)) >= fuzz_wire.EXAMPLES_PER_ROUND


def test_fuzzer_finds_what_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot fail proves nothing. What it draws is new each time, so it may take some rounds."""

    def fragile(data: bytes) -> None:
        assert not data.startswith(b"TMB1") or int.from_bytes(data[4:8], "little") == len(data)

    monkeypatch.setattr(fuzz_wire, "all_targets", lambda: [fragile])

    with pytest.raises(AssertionError):
        fuzz_wire.fuzz_with_hypothesis(Rounds(100))

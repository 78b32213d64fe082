"""Commands: what is said is understood, and what is not within its limits is refused by name."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import msgpack
import pytest

from samples.batches import BATCHES
from samples.commands import COMMANDS, SETTLED, comparable, frame_of
from tidemill_wire import limits
from tidemill_wire.commands import (
    Ack,
    Command,
    Extend,
    Failed,
    Goodbye,
    Kind,
    Nack,
    Pulled,
    Release,
    SendBatches,
    Sent,
    Start,
    encode_command,
    parse_command,
)
from tidemill_wire.errors import Refused
from tidemill_wire.fields import packed
from tidemill_wire.frame import Frame, FrameDecoder

PULL: dict[str, Any] = {
    "group": "g",
    "consumer": "c",
    "subjects": ["s"],
    "messages": 1,
    "bytes": 1,
    "wait": 0,
    "start": -1,
}
ACK: dict[str, Any] = {"group": "g", "consumer": "c", "subject": "s", "ranges": packed([0, 1])}
NACK: dict[str, Any] = {**ACK, "delay": -1, "reason": ""}


def parse(kind: int, body: bytes) -> Command:
    return parse_command(Frame(kind, 0, 1, bytearray(body)))


def refused(kind: int, fields: Any) -> str:
    with pytest.raises(Refused) as caught:
        parse(kind, fields if isinstance(fields, bytes) else msgpack.packb(fields))
    return caught.value.kind.name


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_understood_as_it_was_meant(name: str) -> None:
    [frame] = FrameDecoder().feed(encode_command(COMMANDS[name], 42))

    assert frame.correlation == 42
    assert parse_command(frame) == comparable(COMMANDS[name])


def test_there_is_a_sample_of_every_kind() -> None:
    assert {command.kind for command in COMMANDS.values()} == set(Kind)


def test_send_keeps_the_buffer_of_its_frame() -> None:
    """It is stamped in place and written from there; a copy of 16 MiB would be felt."""
    [frame] = FrameDecoder().feed(frame_of(COMMANDS["send"]))
    command = parse_command(frame)

    assert isinstance(command, SendBatches)
    assert command.batches is frame.body


def test_batches_of_a_pulled_begin_at_a_multiple_of_eight() -> None:
    for broker_lease in (1, 1000, 100_000):
        command = Pulled([], broker_lease, memoryview(BATCHES["stamped"]))
        body = frame_of(command)[16:]
        assert body.index(b"TMB1") % 8 == 0
        assert frame_of(Pulled([], broker_lease), 1)[16:] == body[: body.index(b"TMB1")]


def test_trailing_bytes_are_counted_and_not_there() -> None:
    whole = frame_of(COMMANDS["pulled"])
    trailing = len(BATCHES["stamped"])
    command = COMMANDS["pulled"]
    assert isinstance(command, Pulled)

    assert encode_command(Pulled(command.grants, 60_000), 1, trailing) == whole[:-trailing]


@pytest.mark.parametrize("kind", [0, 7, 15, 24, 2**16 - 1])
def test_frame_of_an_unknown_type_is_refused(kind: int) -> None:
    assert refused(kind, {}) == "malformed_command"


DEEP = b"\x81\xa1a" + b"\x91" * 100_000
MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "number": b"\x01",
    "list": b"\x90",
    "cut off": b"\x81\xa1a",
    "too much": b"\x80\x80",
    "never used": b"\xc1",
    "number as key": b"\x81\x01\x01",
    "list as key": b"\x81\x90\x01",
    "map as key": b"\x81\x80\x01",
    "nested without end": DEEP,
    "list of 4 billion": b"\x81\xa1a\xdd\xff\xff\xff\xff",
    "map of 4 billion": b"\xdf\xff\xff\xff\xff",
    "text of 4 billion": b"\x81\xa1a\xdb\xff\xff\xff\xff",
    "bytes of 4 billion": b"\x81\xa1a\xc6\xff\xff\xff\xff",
    "ext of 4 billion": b"\x81\xa1a\xc9\xff\xff\xff\xff\x01",
    "time of a wrong size": b"\x81\xa1a\xc7\x05\xff12345",
    "time out of range": b"\x81\xa1a\xd7\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    "text that is not utf-8": b"\x81\xa6client\xa1\xff",
    "text with a surrogate": b"\x81\xa6client\xa3\xed\xa0\x80",
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.SEND])
def test_body_that_is_no_map_is_refused(kind: Kind, name: str) -> None:
    body = MALFORMED[name]
    if kind is Kind.PULLED:
        body = struct.pack("<I", len(body)) + body

    assert refused(kind, body) == "malformed_command"


@pytest.mark.parametrize("value", [None, True, 1.0, float("nan"), "1", b"1", [], {}, msgpack.ExtType(5, b"")])
@pytest.mark.parametrize("field", ["messages", "bytes", "wait", "start"])
def test_what_is_no_number_is_refused(field: str, value: Any) -> None:
    assert refused(Kind.PULL, {**PULL, field: value}) == "malformed_command"


@pytest.mark.parametrize(
    "kind, fields, field, value",
    [
        (Kind.PULL, PULL, "messages", 0),
        (Kind.PULL, PULL, "messages", limits.PULL_MESSAGES_MAX + 1),
        (Kind.PULL, PULL, "bytes", -1),
        (Kind.PULL, PULL, "bytes", limits.PULL_BYTES_MAX + 1),
        (Kind.PULL, PULL, "wait", -1),
        (Kind.PULL, PULL, "wait", limits.PULL_WAIT_MS_MAX + 1),
        (Kind.PULL, PULL, "start", Start.LATEST - 1),
        (Kind.PULL, PULL, "start", 2**63),
        (Kind.PULL, PULL, "subjects", ["s"] * (limits.PULL_SUBJECTS_MAX + 1)),
        (Kind.NACK, NACK, "delay", -2),
        (Kind.NACK, NACK, "delay", limits.NACK_DELAY_MS_MAX + 1),
        (Kind.ACK, ACK, "ranges", bytes(8 * (2 * limits.RANGES_MAX + 1))),
        (Kind.HELLO, {"min": 1, "max": 1, "client": ""}, "min", 0),
        (Kind.HELLO, {"min": 1, "max": 1, "client": ""}, "max", 2**32),
    ],
)
def test_what_is_beyond_its_limit_is_refused(
    kind: Kind, fields: dict[str, Any], field: str, value: Any
) -> None:
    parse(kind, msgpack.packb(fields))

    assert refused(kind, {**fields, field: value}) in {"limit_exceeded", "malformed_command"}


@pytest.mark.parametrize("value", [[], "s", None, [1], [b"s"], [None], [["s"]]])
def test_subjects_that_are_no_names_are_refused(value: Any) -> None:
    assert refused(Kind.PULL, {**PULL, "subjects": value}) == "malformed_command"


@pytest.mark.parametrize("name", ["", "a b", "%dead%a%b", "a\n", "\u00f6", "s" * 101, "s" * 900, "a/b"])
def test_names_that_nobody_may_have_are_refused(name: str) -> None:
    assert refused(Kind.PULL, {**PULL, "subjects": [name]}) == "invalid_subject"
    assert refused(Kind.PULL, {**PULL, "group": name}) == "invalid_group"
    assert refused(Kind.PULL, {**PULL, "consumer": name and f" {name}"}) == "invalid_consumer"


@pytest.mark.parametrize(
    "name", ["", "a b", "a\n", "\u00f6", "s" * 101, "%dead%", "%dead%%g", "%dead%a b%g", "%x%a%g"]
)
def test_deliveries_of_subjects_that_nobody_may_have_are_refused(name: str) -> None:
    assert refused(Kind.ACK, {**ACK, "subject": name}) == "invalid_subject"


@pytest.mark.parametrize("name", ["%dead%a", "%dead%a%", "%dead%a%b%c", "%dead%a%b c"])
def test_dead_letters_of_groups_that_nobody_may_have_are_refused(name: str) -> None:
    assert refused(Kind.ACK, {**ACK, "subject": name}) == "invalid_group"


def test_deliveries_of_dead_letters_are_settled_under_their_name() -> None:
    for kind in (Ack, Nack, Extend, Release):
        command = kind("g", "c", "%dead%s%g", [0, 0])
        assert parse_command(FrameDecoder().feed(encode_command(command, 1))[0]) == command


@pytest.mark.parametrize("kind", [Kind.REDRIVE, Kind.PURGE])
@pytest.mark.parametrize(
    "field, value, error",
    [
        ("subject", "%dead%s%g", "invalid_subject"), ("subject", 1, "malformed_command"),
        ("group", "a b", "invalid_group"), ("group", None, "malformed_command"),
        ("ranges", packed([1, 0]), "malformed_command"), ("ranges", None, "malformed_command"),
    ],
)  # fmt: skip
def test_dead_letters_are_named_by_their_subject_and_group(
    kind: Kind, field: str, value: Any, error: str
) -> None:
    known = {"subject": "s", "group": "g", "ranges": packed([0, 3])}
    assert refused(kind, {**known, field: value}) == error


@pytest.mark.parametrize("field, value", [("reject", 1), ("error", 1), ("place", "x" * 1001)])
def test_details_of_a_nack_that_are_none_are_refused(field: str, value: Any) -> None:
    assert refused(Kind.NACK, {**NACK, field: value}) == "malformed_command"


@pytest.mark.parametrize("kind", [Kind.ACK, Kind.NACK, Kind.EXTEND, Kind.RELEASE])
@pytest.mark.parametrize(
    "ranges", [packed([1, 0]), packed([-1, 0]), packed([1]), bytes(7), [0, 1], "", None, 1]
)
def test_ranges_that_are_none_are_refused(kind: Kind, ranges: Any) -> None:
    assert refused(kind, {**NACK, "ranges": ranges}) == "malformed_command"


def test_lost_ranges_that_are_none_are_refused() -> None:
    assert refused(Kind.DONE, {"lost": packed([2, 1])}) == "malformed_command"


@pytest.mark.parametrize(
    "row", [[], [0, 1], [0, 1, 2], ["0", 1, ""], [1, 1, ""], [-1, 1, ""], [0, -1, ""], 0, None]
)
def test_refusals_of_a_sent_that_lie_are_refused(row: Any) -> None:
    assert refused(Kind.SENT, {"first": packed([-1]), "refused": [row]}) == "malformed_command"


@pytest.mark.parametrize("first", [bytes(7), [0], None, "", 1])
def test_first_sequences_that_are_not_packed_are_refused(first: Any) -> None:
    assert refused(Kind.SENT, {"first": first, "refused": []}) == "malformed_command"


@pytest.mark.parametrize(
    "row",
    [[], ["s", 0, 0, 1, 0], ["s", 0, 0, -1, 0, 1], ["s", 0, 2**63, 1, 0, 1], [b"s", 0, 0, 1, 0, 1], None],
)
def test_grants_that_lie_are_refused(row: Any) -> None:
    control = msgpack.packb({"grants": [row], "lease": 1})

    assert refused(Kind.PULLED, struct.pack("<I", len(control)) + control) == "malformed_command"


@pytest.mark.parametrize(
    "body", [b"", b"\0\0\0", struct.pack("<I", 5) + b"\x80", struct.pack("<I", 2**32 - 1)]
)
def test_pulled_whose_map_is_cut_off_is_refused(body: bytes) -> None:
    assert refused(Kind.PULLED, body) == "malformed_command"


def test_control_bodies_have_a_limit() -> None:
    padding = {"reason": "", "padding": bytes(limits.CONTROL_BYTES_MAX)}
    control = msgpack.packb({"grants": [], "lease": 1, "padding": bytes(limits.CONTROL_BYTES_MAX)})

    assert (
        refused(Kind.GOODBYE, {"reason": "", "padding": bytes(limits.REQUEST_BYTES_MAX)}) == "frame_too_large"
    )
    assert refused(Kind.SENT, padding) == "frame_too_large"
    assert refused(Kind.PULLED, struct.pack("<I", len(control)) + control) == "frame_too_large"


def test_send_without_a_batch_is_refused() -> None:
    assert refused(Kind.SEND, b"") == "malformed_command"


def test_fields_that_nobody_knows_are_passed_over() -> None:
    assert parse(Kind.GOODBYE, msgpack.packb({"reason": "x", "newer": [1, {"a": 2}]})) == Goodbye("x")


@pytest.mark.parametrize("make", [partial(Failed, 1), Goodbye, partial(Nack, *SETTLED, -1)])
def test_long_reasons_are_cut_and_not_refused(make: Callable[[str], Command]) -> None:
    """They are texts of exceptions: nobody knows before how long they are, or what is in them."""
    waves = "\U0001f30a" * 5000
    [frame] = FrameDecoder().feed(frame_of(make("no file \udcff" + waves)))

    assert parse_command(frame) == make(("no file ?" + waves)[: limits.DETAIL_CHARS_MAX])


def test_as_many_refusals_as_a_send_has_batches_are_an_answer_that_can_be_read() -> None:
    """All of them with a wait, beside as many duplicates as may be told: who reads it would drop the connection."""
    count, detail = limits.SEND_BATCHES_MAX, "the quota of subject " + "s" * 200
    answer = Sent(
        [-1] * count,
        [(index, 83, detail) for index in range(count)],
        [(0, bytes(32 * limits.DEDUP_ANSWER_ROWS_MAX))],
        [number for index in range(count) for number in (index, 1 << 40)],
    )
    [frame] = FrameDecoder().feed(frame_of(answer))
    command = parse_command(frame)

    assert isinstance(command, Sent)
    assert [(error.kind.number, error.wait_ms) for error in command.errors.values()] == [
        (83, 1 << 40)
    ] * count
    assert command.refused[0][2] == detail
    assert command.refused[-1][2] == detail[: limits.REFUSAL_CHARS_MAX]


def test_numbers_beyond_64_bits_are_a_mistake_of_the_caller() -> None:
    for command in (Ack(*SETTLED[:3], [0, 2**63]), Sent([2**63])):
        with pytest.raises(OverflowError):
            frame_of(command)

"""Messages between JSON and batches: nothing is lost on the way, nothing unknown gets in, nothing unreadable harms."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples.batches import part_of
from samples.brokers import SUBJECT, batch_of
from tidemill_broker.doors.gateway_messages import (
    Defaults,
    integer,
    parse_json,
    parse_messages,
)
from tidemill_broker.doors.gateway_receipts import Receipts
from tidemill_broker.doors.gateway_rows import render
from tidemill_broker.doors.gateway_settling import parse_receipts
from tidemill_host.refusals import HttpRefused
from tidemill_wire import limits
from tidemill_wire.columns import Content
from tidemill_wire.commands import Grant, Pulled
from tidemill_wire.deduplication import digest_of

RECEIPTS = Receipts(SUBJECT, "g")


def stored(first: int, *bodies: bytes, content: Content | None = None) -> bytearray:
    """A batch as the broker gives it out, as far as it is looked at."""
    return stamped(batch_of(*bodies, content=content), first)


def stamped(batch: bytearray, first: int) -> bytearray:
    batch[8:16] = first.to_bytes(8, "little")
    return batch


def rendered(batches: bytearray, *grants: tuple[int, int, int, int]) -> Any:
    """Grants are pull sequence, first sequence, count and batches."""
    rows = [Grant(SUBJECT, pull, first, count, 0, many) for pull, first, count, many in grants]
    return render(Pulled(rows, 1000, memoryview(batches)), "g", "ann")


def refusal(data: bytes) -> str:
    with pytest.raises(HttpRefused) as refused:
        parse_messages(parse_json(data), Defaults())
    return refused.value.detail


values = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(
    st.text(max_size=20),
    st.none() | st.text(min_size=1, max_size=20),
    st.lists(st.text(min_size=1, max_size=9), max_size=10),
    st.dictionaries(st.text(), values, max_size=3),
)
def test_what_is_sent_is_received(
    text: str, key: str | None, tags: list[str], properties: dict[str, Any]
) -> None:
    message = {"text": text, "tags": tags, "properties": properties, **({"key": key} if key else {})}
    content = parse_messages(parse_json(json.dumps(message).encode()), Defaults())
    [row] = rendered(stored(7, content=content), (3, 7, 1, 1)).rows

    assert (row["text"], row["key"], row["properties"]) == (text, key, properties)
    assert row["tags"] == sorted(set(tags))
    assert RECEIPTS.read(row["receipt"]) == ("ann", 3)


@pytest.mark.parametrize(
    "body, place",
    [
        (b"{", "line 1 column 2"),
        (b"\xff", "byte 0"),
        (b"[]", "no JSON object"),
        (b'{"text": NaN}', "NaN is no JSON"),
        (b'{"properties": {"a": 1e999}, "text": ""}', "too large"),
        (b'{"properties": {"a": 99999999999999999999}, "text": ""}', "properties cannot be kept"),
        (b'{"text": "a", "body": "YQ=="}', "not both"),
        (b"{}", "must be there"),
        (b'{"body": "YQ="}', "no base64"),
        (b'{"text": "\\ud800"}', "half of a character"),
        (b'{"text": 1}', "text is no text"),
        (b'{"text": "", "tags": "a"}', "tags is no list"),
        (b'{"text": "", "tags": ["a", 1]}', "tags[1]"),
        (b'{"text": "", "tags": [""]}', "empty text"),
        (b'{"messages": []}', "list of 1 to 1000"),
        (b'{"messages": [{"text": "a"}, {"text": "b", "colour": 1}]}', "messages[1].'colour'"),
        (b'{"text": "a", "dedup_key": ""}', "dedup_key is no text of 1 to 1024 bytes"),
        (b'{"messages": [1]}', "messages[0] is no JSON object"),
        (b'{"messages": [{"text": "a"}], "text": "b"}', "'text' is no field"),
        (b'{"messages": [{"text": "a", "deliver_at": 5}]}', "messages[0].'deliver_at'"),
        (b'{"text": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"text": ' + b"9" * 5000 + b"}", "no JSON"),
    ],
)
def test_what_is_wrong_is_refused_by_its_place(body: bytes, place: str) -> None:
    assert place in refusal(body)


def test_number_may_be_written_with_a_point_and_not_beyond_its_bounds() -> None:
    assert integer({"max": 5.0}, "max", (1, 10), 7) == 5
    assert integer({}, "max", (1, 10), 7) == 7
    for wrong in (0, 11, 5.5, "5", True, None):
        with pytest.raises(HttpRefused, match="max is no number of 1 to 10"):
            integer({"max": wrong}, "max", (1, 10), 7)


def test_head_of_a_request_speaks_for_messages_that_say_nothing() -> None:
    value = {"messages": [{"text": "a"}, {"text": "b", "key": "own", "tags": []}]}
    content = parse_messages(value, Defaults("k", ("t",)))

    assert (content.keys, content.tags) == (["k", "own"], [("t",), ()])


def test_a_dedup_key_is_the_order_key_too_when_there_is_no_other() -> None:
    rows = [{"text": "a"}, {"text": "b", "dedup_key": "own"}, {"text": "c", "order_key": "o"}]
    content = parse_messages({"messages": rows}, Defaults(dedup_key="head"))

    assert content.dedup_keys == [digest_of("head"), digest_of("own"), digest_of("head")]
    assert content.order_keys == ["head", "own", "o"]
    assert parse_messages({"text": "a"}, Defaults()).dedup_keys is None


def test_columns_that_no_message_needs_are_left_out() -> None:
    content = parse_messages({"messages": [{"text": "a", "tags": []}]}, Defaults())
    assert (content.keys, content.tags, content.properties) == (None, None, None)


def test_only_what_is_granted_is_given_with_its_own_numbers() -> None:
    batches = stored(10, b"a", b"b", b"c") + stored(13, b"d", b"e")
    given = rendered(batches, (100, 11, 3, 2))

    assert [(row["sequence"], row["text"]) for row in given.rows] == [(11, "b"), (12, "c"), (13, "d")]
    assert [RECEIPTS.read(row["receipt"]) for row in given.rows] == [("ann", 100), ("ann", 101), ("ann", 102)]
    assert [row["id"][-2:] for row in given.rows] == ["-1", "-2", "-0"]


def test_batch_that_nobody_can_read_is_named_and_harms_no_other() -> None:
    batches = stored(10, b"a", b"b") + stored(12, b"c")
    batches[120] ^= 0xFF
    given = rendered(batches, (100, 11, 2, 2))

    assert [row["text"] for row in given.rows] == ["c"]
    assert given.undecodable == [(SUBJECT, 100)]


@pytest.mark.parametrize("packed", [b"\xc1", b"\x81\x90\x01", b"\x07", b"\x91" * 2000])
def test_message_whose_properties_nobody_can_read_is_named(packed: bytes) -> None:
    given = rendered(stored(10, content=Content([b"a"], properties=[packed])), (100, 10, 1, 1))
    assert given.undecodable == [(SUBJECT, 100)]


def test_properties_of_other_clients_become_what_json_can_say() -> None:
    strange = {
        1: b"\xff",
        "time": datetime(2026, 1, 2, tzinfo=UTC),
        "inf": float("inf"),
        "ext": msgpack.ExtType(5, b"x"),
    }
    packed = msgpack.packb(strange, datetime=True)
    [row] = rendered(stored(0, content=Content([b"\xff"], properties=[packed])), (0, 0, 1, 1)).rows

    assert row["properties"] == {"1": "/w==", "time": "2026-01-02T00:00:00+00:00", "inf": None, "ext": "eA=="}
    assert "text" not in row
    json.dumps(row, allow_nan=False)


@pytest.mark.parametrize("packed", [b"\xc1", b"\x01", b"\x91" * 60_000])
def test_properties_that_are_no_map_make_a_message_undecodable(packed: bytes) -> None:
    given = rendered(stored(0, content=Content([b"a"], properties=[packed])), (5, 0, 1, 1))
    assert (given.rows, given.undecodable) == ([], [(SUBJECT, 5)])


def test_receipt_of_another_group_and_no_receipt_at_all_are_of_no_lease() -> None:
    foreign = Receipts(SUBJECT, "h").write("ann", 1)
    settlement = parse_receipts([RECEIPTS.write("ann", 1), foreign, "x", "é"], RECEIPTS)

    assert settlement.lost == [foreign, "x", "é"]
    assert settlement.ranges() == [("ann", [1, 1])]


def test_longest_receipt_is_taken_and_each_counts_once() -> None:
    name = "n" * limits.HTTP_CONSUMER_NAME_MAX
    receipts = [RECEIPTS.write(name, pull) for pull in (5, (1 << 63) - 1, 4, 5)]
    settlement = parse_receipts(receipts, RECEIPTS)
    assert settlement.ranges() == [(name, [4, 5, (1 << 63) - 1, (1 << 63) - 1])]

    assert settlement.hear(name, [5, 5]) == 2
    assert (settlement.count, settlement.lost) == (2, [receipts[0]])


@pytest.mark.parametrize("value", [None, [], "x", [1], [""], ["x" * 301], ["x"] * 1001])
def test_what_is_no_list_of_receipts_is_refused(value: object) -> None:
    with pytest.raises(HttpRefused, match="receipt"):
        parse_receipts(value, RECEIPTS)


def test_middle_of_a_batch_has_its_own_tags_and_keys() -> None:
    content = Content([b"a", b"b", b"c"], ["k", None, "m"], [["x"], [], ["y", "z"]])
    rows = rendered(stored(0, content=content), (0, 1, 2, 1)).rows

    assert [(row["key"], row["tags"]) for row in rows] == [(None, []), ("m", ["y", "z"])]


def test_part_of_a_batch_that_was_for_later_has_the_ids_that_its_sender_was_told() -> None:
    content = Content([b"a", b"b", b"c"], tags=[["x"], [], ["x"]])
    whole = batch_of(content=content)
    rows = rendered(stamped(part_of(whole, 1, 2), 10), (0, 10, 2, 1)).rows

    assert [(row["id"][-2:], row["sequence"], row["text"]) for row in rows] == [
        ("-1", 10, "b"),
        ("-2", 11, "c"),
    ]

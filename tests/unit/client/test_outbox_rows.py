"""The pure parts of the outbox: what a row is made of, how it is written through a cursor, what is looked up when."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import cast

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.errors import Refused
from tidemill.outbox import Pace, identity
from tidemill.outbox.delivering import Fates, deliver
from tidemill.outbox.pending import Pending
from tidemill.outbox.plain import COLUMNS, statement, style_of
from tidemill.outbox.row import (
    REASON_CHARS_MAX,
    STORED,
    Options,
    Row,
    State,
    TooNew,
    Verb,
    Written,
    cancelling,
    hash_of,
    hash_of_timer,
    parse_deed,
    parse_entry,
    reason_of,
    rescheduling,
)
from tidemill.outbox.schema import OutboxUnusable
from tidemill.testing import Client

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "key": st.none() | st.text(max_size=20),
        "tags": st.none() | st.sets(st.text(min_size=1, max_size=5), max_size=3),
        "properties": st.none() | st.dictionaries(st.text(max_size=5), st.integers(0, 9) | st.binary()),
        "priority": st.integers(0, 7),
        "order_key": st.none() | st.text(min_size=1, max_size=20),
    },
)


class Seen:
    def __init__(self, properties: dict[str, object]) -> None:
        self.id = "the-message"
        self.properties = properties


@given(OPTIONS)
def test_options_come_back_as_they_were_given_and_with_the_identity(options: Options) -> None:
    entry = parse_entry("a", "ü", options)
    found = dict(parse_deed(entry.options).options)

    properties = found.pop("properties")
    assert properties.pop("outbox_id") == entry.identity or "outbox_id" in (options.get("properties") or {})
    assert {
        name: value for name, value in (options.get("properties") or {}).items() if name != "outbox_id"
    } == (properties)
    assert sorted(found.pop("tags", [])) == sorted(options.get("tags") or ())
    assert found == {
        name: value
        for name, value in options.items()
        if value is not None and name not in {"tags", "properties"}
    }
    assert entry.body == "ü".encode()
    assert (entry.state is State.ORDERED) == (options.get("order_key") is not None)


@pytest.mark.parametrize(
    "subject, body, options",
    [
        ("no spaces", b"", {}),
        ("a", b"x" * (16 << 20), {}),
        ("a", b"", {"key": "k" * 1025}),
        ("a", b"", {"order_key": ""}),
        ("a", b"", {"priority": 8}),
        ("a", b"", {"tags": {str(number) for number in range(11)}}),
        ("a", b"", {"properties": {"p": "x" * (64 << 10)}}),
    ],
)
def test_what_can_never_be_sent_is_refused_before_it_is_written(subject, body, options) -> None:
    with pytest.raises(Refused):
        parse_entry(subject, body, options)


def test_an_option_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        parse_entry("a", b"", {"colour": "red"})
    with pytest.raises(TypeError, match="set of texts"):
        parse_entry("a", b"", {"tags": "vip"})


@pytest.mark.parametrize("said", [{"delay": 90}, {"at": datetime.fromtimestamp(1_800_000_090, UTC)}])
def test_a_row_for_later_has_the_time_that_was_meant_when_it_was_written(said: Options) -> None:
    entry = parse_entry("a", b"1", {"order_key": "k", **said}, now_ms=lambda: 1_800_000_000_000)
    found = parse_deed(entry.options).options

    assert found["at"] == datetime.fromtimestamp(1_800_000_090, UTC)
    assert (set(found), found["order_key"]) == ({"at", "order_key", "properties", "tags"}, "k")
    assert entry.state is State.WAITING  # it has no order, and holds up nobody


def test_a_row_with_a_timer_key_is_in_the_order_of_that_key() -> None:
    keyed = [
        parse_entry("a", b"1", {"delay": 90, "timer_key": "k", "order_key": "o"}),
        parse_entry("a", b"1", {"cron": "@daily", "timer_key": "k"}),
        cancelling("a", "k"),
        rescheduling("a", "k", 60, None),
    ]
    assert {entry.order_hash for entry in keyed} == {hash_of_timer("a", "k")}
    assert {entry.state for entry in keyed} == {State.ORDERED}
    assert hash_of_timer("a", "k") not in {hash_of("a", "k"), hash_of_timer("b", "k")}
    deeds = [parse_deed(entry.options) for entry in keyed]
    assert [deed.verb for deed in deeds] == [Verb.SEND, Verb.SEND, Verb.CANCEL, Verb.RESCHEDULE]
    assert [deed.recurs is not None for deed in deeds] == [False, True, False, False]
    assert all(deed.is_for_later for deed in deeds)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: parse_entry("a", b"", {"timer_key": "k"}), "give a delay or at"),
        (lambda: parse_entry("a", b"", {"cron": "@daily"}), "give a timer_key"),
        (lambda: parse_entry("a", b"", {"cron": "@dayly", "timer_key": "k"}), "is no cron expression"),
        (lambda: parse_entry("a", b"", {"missed": "all", "delay": 1}), "give cron, too"),
        (lambda: rescheduling("a", "k", None, None), "give a delay or at"),
    ],
)
def test_a_timer_that_cannot_be_is_an_error_before_anything_is_written(wrong, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        wrong()
    for name, key in (("%x", "k"), ("a", ""), ("a", "k" * 1025)):
        with pytest.raises(Refused):
            cancelling(name, key)


def test_a_time_that_cannot_be_is_an_error_before_anything_is_written() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        parse_entry("a", b"", {"delay": 1, "at": datetime.now(UTC)})
    with pytest.raises(Refused, match="731 are the limit"):
        parse_entry("a", b"", {"at": datetime.now(UTC) + timedelta(days=800)})
    with pytest.raises(ValueError, match="damaged"):
        parse_deed(b"\x81\xa6due_ms\xa1x")


def test_damage_is_told_from_what_a_newer_version_wrote() -> None:
    with pytest.raises(ValueError, match="damaged"):
        parse_deed(b"\xc1")
    with pytest.raises(ValueError, match="damaged"):
        parse_deed(b"\x01")
    with pytest.raises(TooNew):
        parse_deed(b"\x81\xa5later\x01")


SAID = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
HALVES = st.fixed_dictionaries(
    {},
    optional={
        "due_ms": st.integers(-(2**63), 2**63) | st.just(1),
        "recurs": st.binary(max_size=20),
        "verb": st.sampled_from(["", "cancel", "reschedule", "other"]),
        "timer_key": st.text(max_size=5),
        "priority": st.integers(),
        "tags": st.lists(SAID, max_size=2),
        "properties": st.dictionaries(st.text(max_size=3), SAID, max_size=2),
    },
)
"""Each as it is written, and not together."""
DAMAGED = st.binary(max_size=40) | st.builds(
    lambda said: cast("bytes", msgpack.packb(said)),
    SAID | HALVES | st.dictionaries(st.sampled_from(sorted(STORED)), SAID, max_size=4),
)


@settings(max_examples=60)
@given(st.lists(DAMAGED, min_size=1, max_size=8), st.sampled_from(["a", "", "%later", "x" * 101]))
def test_whatever_a_row_says_it_has_a_fate_and_so_have_those_beside_it(
    said: list[bytes], subject: str
) -> None:
    """An error that nobody foresaw would end the sending of the whole process, and of the next one, by one row."""
    rows = [
        Row(number, f"row-{number}", subject, b"x", options, None, 0) for number, options in enumerate(said)
    ]
    rows.append(Row(len(rows), "good", "a", b"x", parse_entry("a", b"x", {}).options, None, 0))

    async def sent() -> Fates:
        async with Client() as mq:
            return await deliver(mq, rows, float("inf"))

    fates = asyncio.run(sent())
    fated = [*fates.stored, *fates.refused, *(row.id for row in fates.later)]
    assert sorted(fated) == [row.id for row in rows]
    assert rows[-1].id in fates.stored


def test_a_message_is_recognised_by_its_row_and_else_by_itself() -> None:
    assert identity(Seen({"outbox_id": "row"})) == "row"
    assert identity(Seen({})) == identity(Seen({"outbox_id": 7})) == "the-message"


def test_a_key_of_two_subjects_is_two_keys() -> None:
    assert hash_of("a", "k") != hash_of("b", "k")
    assert -(1 << 63) <= hash_of("a", "k") < 1 << 63


def test_a_reason_is_short_and_in_ascii() -> None:
    assert reason_of(ValueError("ü")) == "ValueError: \\xfc"
    assert len(reason_of(ValueError("x" * 9999))) == REASON_CHARS_MAX


@pytest.mark.parametrize(
    "style, places",
    [
        ("qmark", "?, ?, ?, ?, ?, ?, ?, ?"),
        ("numeric", ":1, :2, :3, :4, :5, :6, :7, :8"),
        ("named", ":identity, :subject, :body, :options, :order_hash, :state, :attempts, :reason"),
        ("format", "%s, %s, %s, %s, %s, %s, %s, %s"),
        ("pyformat", ", ".join(f"%({name})s" for name in COLUMNS)),
    ],
)  # fmt: skip
def test_a_statement_has_the_places_that_its_driver_knows(style, places) -> None:
    entry = parse_entry("a", b"1", {})
    text, values = statement("t", "mariadb", style, entry, 2000)

    assert f"VALUES ({places}, (TIMESTAMPDIFF(" in text
    assert "+ 2000, " in text
    assert "RETURNING" not in text
    assert list(values.values() if isinstance(values, dict) else values)[:3] == [entry.identity, "a", b"1"]
    assert statement("t", "postgresql", style, entry, 0)[0].endswith(" RETURNING id")


def test_an_ordered_row_is_due_at_once() -> None:
    text, _ = statement("t", "sqlite", "qmark", parse_entry("a", b"", {"order_key": "k"}), 2000)

    assert "?, 0, CAST((julianday" in text


def test_a_cursor_tells_its_style_by_where_it_comes_from() -> None:
    cursor = sqlite3.connect(":memory:").cursor()
    assert style_of(cursor) == "qmark"
    cursor.connection.close()
    with pytest.raises(TypeError, match="paramstyle="):
        style_of(object())


def test_a_database_of_another_kind_is_named_in_the_error() -> None:
    with pytest.raises(OutboxUnusable, match="oracle"):
        statement("t", "oracle", "named", parse_entry("a", b"", {}), 0)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 5)),
            st.tuples(st.just("take"), st.integers(1, 4)),
            st.tuples(st.just("pass"), st.integers(1, 9)),
        ),
        max_size=40,
    )
)
def test_every_row_is_looked_for_until_it_is_found_or_left(steps) -> None:
    """A row is pending, found, dropped as too old, or was looked for exactly as often as allowed."""
    pending, now, numbers = Pending(12, 3, lambda looks: 4.0**looks), 0.0, iter(range(10_000))
    looks: Counter[int] = Counter()
    known: dict[int, float] = {}
    ended: set[int] = set()
    for what, value in steps:
        if what == "pass":
            now += value
        elif what == "add":
            rows = [Written(next(numbers), "", began=now) for _ in range(value)]
            refused = pending.add(rows, now)
            taken = rows[: len(rows) - refused]
            assert refused == 0 or len(pending) == 12
            known |= {one.id: now for one in taken}
        else:
            looked = pending.take(now, value, now - 30)
            assert len(looked) <= value
            for count, one in looked:
                assert count == looks[one.id]
                looks[one.id] += 1
                assert now >= known[one.id] + 4.0 ** (looks[one.id] - 1) - 1e-9
            missing = [(count, one) for count, one in looked if one.id % 2]
            ended |= {one.id for _, one in looked if not one.id % 2}
            left = pending.missed(missing, now)
            gone = {one.id for count, one in missing if count == 2}
            assert left == len(gone)
            ended |= gone
        old = {number for number, began in known.items() if began <= now - 30}
        assert len(set(known) - ended - old) <= len(pending) <= len(known)
        assert (pending.next_due is None) == (len(pending) == 0)


def test_a_row_that_is_too_old_is_left_to_the_watchdog() -> None:
    pending = Pending(10, 5, lambda _: 0.0)
    pending.add([Written(1, "", began=5.0), Written(2, "", began=7.0)], 7.0)

    assert [one.id for _, one in pending.take(20.0, 10, 5.0)] == [2]
    assert len(pending) == 0


def test_the_grace_is_longer_than_any_send() -> None:
    assert Pace().grace_for(10.0) == 20.0
    assert Pace(grace_s=11.0).grace_for(10.0) == 11.0
    with pytest.raises(ValueError, match="make grace_s longer"):
        Pace(grace_s=10.0).grace_for(10.0)
    with pytest.raises(ValueError, match="make lease_s longer"):
        Pace(lease_s=1.0).lease_for(10.0)
    with pytest.raises(ValueError, match="at least one row"):
        Pace(batch_rows=0)


def test_the_wait_doubles_up_to_its_bound() -> None:
    assert [Pace().delay_ms(attempts) for attempts in (0, 1, 2, 5, 6, 1000)] == [
        1000,
        2000,
        4000,
        32_000,
        60_000,
        60_000,
    ]

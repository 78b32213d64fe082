"""What a person gives that nobody could send is said in one sentence, before anything is connected."""

import asyncio
import errno
import json
import os
from datetime import UTC, datetime

import msgpack
import pytest

from tidemill import testing
from tidemill.cli.failures import explained
from tidemill.cli.tables import message_as_json

NO_TEXT = "\udcff"  # what Python makes of $'\xff'


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "orders", "x", "--delay", "900d"),
        ("send", "orders", "x", "--delay", "99999999999d"),
        ("timers", "reschedule", "01a1f866881700007db196654f35b494-77", "--delay", "900d"),
        ("send", "orders", "x", "--key", NO_TEXT),
        ("send", "orders", "x", "--tag", NO_TEXT),
        ("send", "orders", "x", "--tag", ""),
        ("send", "orders", "x", "--property", f"a={NO_TEXT}"),
        ("send", "orders", "x", "--order-key", NO_TEXT),
        ("send", "orders", "x", "--dedup-key", NO_TEXT),
        ("send", "orders", "x", "--delay", "1s", "--timer-key", NO_TEXT),
        ("find", "--key", NO_TEXT),
        ("timers", "list", "orders", "--prefix", NO_TEXT),
        ("consume", "orders", "--tag", NO_TEXT),
        ("consume", "orders", "--exec", ""),
        ("consume", "orders", "--exec", "  "),
    ],
)
def test_what_cannot_be_sent_is_wrong_usage(command, queue, arguments) -> None:
    outcome = command(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("tidemill: ")
    assert len(outcome.err.splitlines()) == 1
    assert queue.messages == []


def test_a_body_may_be_any_bytes(command, queue) -> None:
    assert command("send", "orders", NO_TEXT).code == 0
    assert queue.messages[0].body == b"\xff"


@pytest.mark.parametrize(
    "error", [ValueError("a delay is too long"), UnicodeEncodeError("utf-8", NO_TEXT, 0, 1, "no")]
)
def test_a_value_that_is_refused_further_in_is_no_traceback(command, queue, error) -> None:
    queue.error = error
    outcome = command("subjects")
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1


def test_only_consume_speaks_of_acks_when_nobody_reads() -> None:
    gone = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    assert str(explained(gone, "")) == "the reader of the output is gone: what it did not read is not shown"


@pytest.mark.parametrize(
    "packed, shown",
    [
        (b"\xc1", None),
        (msgpack.packb([1]), None),
        (msgpack.packb({1: 2}), None),
        (msgpack.packb({"a": float("nan"), "b": b"\xff", "c": float("inf"), "d": {"e": [b""]}}),
         {"a": "nan", "b": {"base64": "/w=="}, "c": "inf", "d": {"e": [{"base64": ""}]}}),
        (msgpack.packb({"at": msgpack.Timestamp(1, 2), "e": msgpack.ExtType(5, b"z")}),
         {"at": "Timestamp(seconds=1, nanoseconds=2)", "e": "ExtType(code=5, data=b'z')"}),
    ],
)  # fmt: skip
def test_properties_that_json_cannot_say_are_shown_as_browse_does(monkeypatch, packed, shown) -> None:
    monkeypatch.setattr("tidemill.parcel.pack_properties", lambda _properties: packed)

    async def consumed() -> str:
        async with testing.Client() as mq:
            await mq.send("a", b"0", properties={"some": 1})
            async with mq.consume("a", group="g") as messages:
                return json.dumps(message_as_json(await anext(messages)), allow_nan=False)

    assert json.loads(asyncio.run(consumed()))["properties"] == shown


@pytest.mark.parametrize(
    "given, said",
    [
        ({"key": 1}, "a key is a text, not int"),
        ({"tags": [1]}, "a tag is a text, not int"),
        ({"order_key": 1}, "an order key is a text, not int"),
        ({"dedup_key": 1}, "a dedup key is a text, not int"),
        ({"delay": 1, "timer_key": 1}, "a timer key is a text, not int"),
        ({"at": 1e9}, "at 1000000000.0 is no datetime"),
        ({"delay": "30s"}, "delay '30s' is neither seconds nor a timedelta"),
    ],
)
async def test_a_label_of_a_wrong_type_is_said_so(given, said) -> None:
    async with testing.Client() as mq:
        with pytest.raises(TypeError, match=said):
            await mq.send("a", b"0", **given)


async def test_a_nack_with_a_delay_of_a_wrong_type_is_said_so() -> None:
    async with testing.Client() as mq:
        await mq.send("a", b"0")
        async with mq.consume("a", group="g") as messages:
            message = await anext(messages)
            with pytest.raises(TypeError, match="a delay is seconds, not '30s'"):
                await message.nack(delay="30s")
            assert datetime.now(UTC) >= message.stored_at

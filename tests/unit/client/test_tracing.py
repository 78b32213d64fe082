"""Spans of a message's way, as the real OpenTelemetry keeps them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanKind, StatusCode, get_current_span

from tidemill import Reject, Worker, testing
from tidemill.errors import Refused
from tidemill.memory import MemoryBroker
from tidemill.testing import running
from tidemill.tracing import Traced, trace
from tidemill.tracing.spans import Spans, carried
from tidemill_wire.limits import PROPERTIES_BYTES_MAX


class Observatory:
    """A provider of its own, and what it has seen."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def client(self, broker: MemoryBroker | None = None) -> testing.Client:
        class Own(Traced, testing.Client):
            tracer_provider = self.provider

        return Own(broker)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        return [one for one in self._exporter.get_finished_spans() if one.name.startswith(name)]

    def one(self, name: str) -> ReadableSpan:
        [found] = self.spans(name)
        return found


@pytest.fixture
def seen() -> Observatory:
    return Observatory()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def is_below(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert span.parent is not None
    return (span.parent.trace_id, span.parent.span_id) == (parent.context.trace_id, parent.context.span_id)


def linked(span: ReadableSpan) -> Sequence[tuple[int, Any]]:
    return [(one.context.span_id, dict(one.attributes or {})["tidemill.because"]) for one in span.links]


async def test_a_send_is_a_span_with_its_storing_below(seen: Observatory) -> None:
    async with seen.client() as mq:
        receipt = await mq.send("orders", b"coffee", key="o-1")

    send, store = seen.one("send orders"), seen.one("store orders")
    assert send.kind is SpanKind.PRODUCER
    assert attributes(send)["messaging.message.id"] == receipt.id
    assert attributes(send)["messaging.message.body.size"] == 6
    assert attributes(send)["messaging.system"] == "tidemill"
    assert is_below(store, send)
    assert send.start_time is not None
    assert store.start_time is not None
    assert store.start_time >= send.start_time


async def test_a_loop_handles_each_message_in_the_trace_of_its_send(seen: Observatory) -> None:
    async with seen.client() as mq:
        await mq.send("orders", b"1")
        async with mq.consume("orders", group="billing") as messages:
            async for message in messages:
                handled = get_current_span().get_span_context()
                assert message.properties["traceparent"]
                await mq.send("invoices", b"2")
                break
        assert get_current_span().get_span_context() == INVALID_SPAN_CONTEXT

    send, deliver, handle = (seen.one(f"{what} orders") for what in ("send", "deliver", "handle"))
    assert is_below(deliver, send)
    assert is_below(handle, deliver)
    assert handle.context == handled
    assert is_below(seen.one("send invoices"), handle)
    assert attributes(deliver)["messaging.consumer.group.name"] == "billing"
    assert (deliver.links, handle.status.status_code) == ((), StatusCode.UNSET)


async def test_a_loop_that_raises_has_failed(seen: Observatory) -> None:
    async with seen.client() as mq:
        await mq.send("orders", b"1")
        with pytest.raises(LookupError):
            async with mq.consume("orders", group="billing") as messages:
                async for _ in messages:
                    raise LookupError("no such customer")

    handle = seen.one("handle orders")
    assert handle.status.status_code is StatusCode.ERROR
    assert [event.name for event in handle.events] == ["exception"]


async def test_a_retry_begins_a_trace_that_links_to_the_send(seen: Observatory) -> None:
    async with seen.client() as mq:
        await mq.send("orders", b"1")
        async with mq.consume("orders", group="billing") as messages:
            await (await anext(messages)).nack(delay=0)
            await anext(messages)

    send = seen.one("send orders")
    first, again = seen.spans("deliver orders")
    assert is_below(first, send)
    assert again.parent is None
    assert again.context.trace_id != send.context.trace_id
    assert linked(again) == [(send.context.span_id, "retry")]
    assert attributes(again)["tidemill.attempts"] == 1
    assert is_below(seen.spans("handle orders")[1], again)


async def test_an_error_that_cannot_say_what_it_is_stays_that_error(seen: Observatory) -> None:
    class Mute(LookupError):
        def __str__(self) -> str:
            raise ValueError("nothing to say")

    async with seen.client() as mq:
        await mq.send("orders", b"1")
        with pytest.raises(Mute):
            async with mq.consume("orders", group="billing") as messages:
                async for _ in messages:
                    raise Mute

    [event] = seen.one("handle orders").events
    said = dict(event.attributes or {})
    assert str(said["exception.type"]).endswith("Mute")
    assert "raise Mute" in str(said["exception.stacktrace"])


async def test_properties_that_cannot_be_read_keep_no_handler_from_its_message(
    seen: Observatory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a program in another language sends."""
    monkeypatch.setattr("tidemill.encode._check_keys", lambda _properties: None)
    handled: list[bytes] = []
    worker = trace(Worker(), seen.provider)

    @worker.on("orders", group="billing")
    async def bill(message: Any) -> None:
        handled.append(message.body)

    broker = MemoryBroker()
    async with testing.Client(broker) as plain:
        odd: Any = {1: "a key that is no text"}
        await plain.send("orders", b"1", properties=odd)
    async with seen.client(broker) as mq, running(worker, mq) as run:
        await run.idle()

    assert handled == [b"1"]
    assert (seen.one("deliver orders").parent, seen.one("deliver orders").links) == (None, ())


@pytest.mark.parametrize("room, carries", [(200, True), (10, False)])
async def test_a_message_goes_without_a_context_that_does_not_fit(
    seen: Observatory, room: int, carries: bool
) -> None:
    given = {"color": "r" * (PROPERTIES_BYTES_MAX - room)}
    async with seen.client() as mq:
        await mq.send("orders", b"1", properties=given)
        async with mq.consume("orders", group="billing") as messages:
            message = await anext(messages)

    assert ("traceparent" in message.properties) is carries
    assert message.properties["color"] == given["color"]


async def test_what_was_sent_for_later_and_is_passed_on_at_once_is_not_for_later(seen: Observatory) -> None:
    async with seen.client() as mq:
        await mq.send("reminders", b"1", delay=3600, properties={"tracestate": "no state"})
        await mq.advance(hours=1)
        async with mq.consume("reminders", group="mail") as messages:
            properties = (await anext(messages)).properties
        assert properties["tracestate"] == "tidemill=later"
        await mq.send("orders", b"1", properties=properties)
        await mq.send("reminders", b"2", properties=properties, delay=3600)
        async with mq.consume("orders", group="billing") as messages:
            passed = await anext(messages)

    assert "tracestate" not in passed.properties
    assert is_below(seen.one("deliver orders"), seen.one("send orders"))


async def test_what_was_sent_for_later_begins_a_trace_that_links_to_the_send(seen: Observatory) -> None:
    async with seen.client() as mq:
        await mq.send("reminders", b"1", delay=3600)
        await mq.advance(hours=1)
        async with mq.consume("reminders", group="mail") as messages:
            await anext(messages)

    send, deliver = seen.one("send reminders"), seen.one("deliver reminders")
    assert deliver.parent is None
    assert linked(deliver) == [(send.context.span_id, "delay")]


async def test_a_message_without_a_context_begins_a_trace(seen: Observatory) -> None:
    broker = MemoryBroker()
    async with testing.Client(broker) as plain:
        await plain.send("orders", b"1", properties={"traceparent": "nonsense", "color": 7})
    async with seen.client(broker) as mq, mq.consume("orders", group="billing") as messages:
        await anext(messages)

    deliver = seen.one("deliver orders")
    assert (deliver.parent, deliver.links) == (None, ())


async def test_who_passes_a_context_on_has_it_continued(seen: Observatory) -> None:
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with seen.client() as mq:
        await mq.send("orders", b"1", properties={"traceparent": given, "color": "red"})
        async with mq.consume("orders", group="billing") as messages:
            message = await anext(messages)

    send = seen.one("send orders")
    assert f"{send.context.trace_id:032x}" == given[3:35]
    assert message.properties["color"] == "red"
    assert message.properties["traceparent"] == f"{given[:36]}{send.context.span_id:016x}-01"


async def test_a_send_that_is_refused_has_failed(seen: Observatory) -> None:
    async with seen.client() as mq:
        with pytest.raises(Refused):
            await mq.send("%reserved", b"1")

    send = seen.one("send")
    assert send.status.status_code is StatusCode.ERROR
    assert attributes(send)["error.type"] == "Refused"
    assert seen.spans("store") == []


async def test_many_in_one_call_are_one_span_and_carry_nothing(seen: Observatory) -> None:
    async with seen.client() as mq:
        await mq.send_many("orders", [b"1", b"2", b"3"])
        async with mq.consume("orders", group="billing") as messages:
            message = await anext(messages)

    assert attributes(seen.one("send orders"))["messaging.batch.message_count"] == 3
    assert message.properties == {}


async def test_what_is_not_sampled_is_carried_and_makes_no_spans() -> None:
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    span = Spans(TracerProvider(sampler=ALWAYS_OFF)).send("orders", None, 1)

    assert not span.is_recording()
    flags = carried(span, {"color": "red"}, later=False)["traceparent"].rpartition("-")[2]
    assert int(flags, 16) & 1 == 0


def make_worker(seen: Observatory) -> Worker:
    worker = trace(Worker(), seen.provider)

    @worker.on("orders", group="billing")
    async def bill(message: Any, context: Any) -> None:
        if message.body == b"bad":
            raise LookupError("no such customer")
        if message.body == b"rejected":
            raise Reject("closed")
        await context.client.send("invoices", message.body)

    return worker


async def test_a_worker_makes_all_of_them_to_the_ack(seen: Observatory) -> None:
    async with seen.client() as mq, running(make_worker(seen), mq) as run:
        await mq.send("orders", b"good")
        await run.idle()

    send, deliver, handle, ack = (seen.one(f"{what} orders") for what in ("send", "deliver", "handle", "ack"))
    assert is_below(deliver, send)
    assert is_below(handle, deliver)
    assert is_below(ack, handle)
    assert is_below(seen.one("send invoices"), handle)
    assert (
        attributes(handle)["tidemill.handler"].startswith("billing/")
        or attributes(handle)["tidemill.handler"]
    )
    assert {one.context.trace_id for one in (send, deliver, handle, ack)} == {send.context.trace_id}


async def test_a_handler_that_fails_has_an_error_and_one_that_rejects_has_a_verdict(
    seen: Observatory,
) -> None:
    worker = make_worker(seen)
    async with seen.client() as mq, running(worker, mq) as run:
        await mq.send("orders", b"rejected")
        await run.idle()
        rejected = seen.one("handle orders")
        await mq.send("orders", b"bad")
        await run.idle()

    bad = seen.spans("handle orders")[1]
    assert attributes(rejected)["tidemill.outcome"] == "Reject"
    assert rejected.status.status_code is StatusCode.UNSET
    assert bad.status.status_code is StatusCode.ERROR
    assert seen.spans("ack") == []


def test_nothing_of_it_is_imported_by_who_does_not_trace() -> None:
    asked = "import sys, tidemill, tidemill.worker, tidemill.blocking; print('opentelemetry' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "False\n"

"""The spans of a message's way, and how its context travels in its properties.

    send      in the producer: from the call to its answer
    store     in the producer, below send: from the sealing of its batch to the broker's answer
    deliver   in the consumer: from the broker's storing of it to the handler
    handle    in the consumer, below deliver
    ack       in a worker, below handle: from the end of the handler to the broker's answer

The broker makes none: when it stored a message stands in the batch, so the consumer can tell, and the broker's work
stays per batch. Deliver goes on with the trace of the send. But what was sent for later, and what comes again after a
failure, begins a trace of its own and links to the send: a trace that is open for weeks, or grows with each attempt,
is of no use to anybody.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from typing import Any

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

from tidemill.encode import pack_properties
from tidemill.errors import Refused, TidemillError
from tidemill.message import Seen
from tidemill.receipts import Receipt
from tidemill.why import text_of

STATE_KEY, LATER = "tidemill", "later"
"""In the ``tracestate`` of what is sent for later: by it the consumer knows."""
MS = 1_000_000


class Spans:
    """Makes spans of one tracer."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer: Tracer = get_tracer("tidemill", tracer_provider=provider)

    def send(self, subject: str, properties: Mapping[str, Any] | None, size: int) -> Span:
        """Begun. What the properties have of a context goes on: the message was sent on behalf of somebody else."""
        parent = propagate.extract(_texts(properties)) if properties else None
        attributes = {**_named(subject, "send"), "messaging.message.body.size": size}
        return self._tracer.start_span(f"send {subject}", parent, SpanKind.PRODUCER, attributes)

    def send_many(self, subject: str) -> Span:
        """Begun, for all messages of a call."""
        return self._tracer.start_span(f"send {subject}", None, SpanKind.PRODUCER, _named(subject, "send"))

    def stored(self, span: Span, receipt: Receipt, subject: str) -> None:
        """The send has its answer."""
        if not span.is_recording():
            return
        span.set_attribute("messaging.message.id", receipt.id)
        span.set_attribute("tidemill.sequence", receipt.sequence)
        if receipt.duplicate or receipt.spooled:
            span.set_attribute("tidemill.outcome", "duplicate" if receipt.duplicate else "spooled")
            return
        sealed_ns = int(receipt.id[:12], 16) * MS
        store = self._tracer.start_span(
            f"store {subject}", set_span_in_context(span), SpanKind.CLIENT, _named(subject, "store"),
            start_time=max(sealed_ns, getattr(span, "start_time", None) or 0),
        )  # fmt: skip
        store.end()

    def deliver(self, message: Seen, group: str) -> Span:
        """Over, for it was: from the broker's storing to now."""
        sent = _sent(message)
        later = sent.trace_state.get(STATE_KEY) == LATER
        attributes = {
            **_named(message.subject, "receive"), "messaging.consumer.group.name": group,
            "messaging.message.id": message.id, "tidemill.sequence": message.sequence,
            "tidemill.attempts": message.attempts,
        }  # fmt: skip
        parent, links = Context(), list[Link]()
        if sent.is_valid and (later or message.attempts):
            links = [Link(sent, {"tidemill.because": "retry" if message.attempts else "delay"})]
        elif sent.is_valid:
            parent = set_span_in_context(NonRecordingSpan(sent))
        stored_ns = round(message.stored_at.timestamp() * 1000) * MS
        now_ns = time.time_ns()
        span = self._tracer.start_span(
            f"deliver {message.subject}", parent, SpanKind.CONSUMER, attributes, links,
            start_time=min(stored_ns, now_ns),
        )  # fmt: skip
        span.end(now_ns)
        return span

    def handle(self, message: Seen, group: str, below: Span) -> Span:
        """Begun."""
        attributes = {**_named(message.subject, "process"), "messaging.consumer.group.name": group}
        parent = set_span_in_context(below)
        return self._tracer.start_span(f"handle {message.subject}", parent, SpanKind.CONSUMER, attributes)

    def ack(self, subject: str, below: Span, began_ns: int) -> None:
        """Over: the broker has answered."""
        parent, attributes = set_span_in_context(below), _named(subject, "settle")
        self._tracer.start_span(
            f"ack {subject}", parent, SpanKind.CLIENT, attributes, start_time=began_ns
        ).end()


def carried(span: Span, properties: Mapping[str, Any] | None, *, later: bool) -> dict[str, Any]:
    """The properties, with the span's context; without it when that makes them too large: the message goes first."""
    given, found = dict(properties or {}), dict(properties or {})
    context = span.get_span_context()
    state = context.trace_state
    if STATE_KEY in state:  # it is of the message that is passed on
        state = state.delete(STATE_KEY)
    if later:
        state = state.add(STATE_KEY, LATER)
    if context.is_valid:
        found.pop("tracestate", None)  # nobody replaces it by nothing
    own = SpanContext(context.trace_id, context.span_id, context.is_remote, context.trace_flags, state)
    propagate.inject(found, set_span_in_context(NonRecordingSpan(own)))
    try:
        pack_properties(found)
    except Refused:
        return given
    return found


def failed(span: Span, error: BaseException) -> None:
    """What it is about has raised. An error that cannot even say what it is must not be replaced by another one, as
    ``record_exception`` does.
    """
    if span.is_recording():
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        event = {
            "exception.type": f"{module}{kind.__qualname__}",
            "exception.message": text_of(error), "exception.stacktrace": "".join(traceback.format_exception(error)),
            "exception.escaped": "False",
        }  # fmt: skip
        span.add_event("exception", event)
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))
    span.set_attribute("error.type", type(error).__name__)


def _sent(message: Seen) -> SpanContext:
    """The context of its send, if it has one."""
    try:
        properties = message.properties
    except TidemillError:  # the handler is told so when it asks for them
        return INVALID_SPAN_CONTEXT
    if not properties:
        return INVALID_SPAN_CONTEXT
    return get_current_span(propagate.extract(_texts(properties), Context())).get_span_context()


def _texts(properties: Mapping[str, Any]) -> dict[str, str]:
    """What may be of a context: other values would break those who read it."""
    return {name: value for name, value in properties.items() if isinstance(value, str)}


def _named(subject: str, operation: str) -> dict[str, str | int]:
    return {
        "messaging.system": "tidemill", "messaging.destination.name": subject,
        "messaging.operation.name": operation, "messaging.operation.type": operation,
    }  # fmt: skip

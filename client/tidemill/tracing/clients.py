"""A client whose sends and loops are spans. ``Traced`` goes before any other client, as that of ``tidemill.testing``.

A message in the loop is handled until the next one is asked for; the span of its handling is the current one meanwhile.
``send_many`` and ``send_each`` are a span a call and their messages carry nothing, ``batches()`` and ``take()`` make
none: who wants speed has it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from contextvars import Token
from typing import Any

from opentelemetry import context
from opentelemetry.trace import Span, TracerProvider, set_span_in_context

from tidemill import client
from tidemill.consumer import Consumer
from tidemill.encode import Body
from tidemill.hands import Who
from tidemill.message import Message
from tidemill.receipts import Receipt, Receipts
from tidemill.tracing.spans import Spans, carried, failed

TIMES = ("delay", "at", "cron")


class TracedConsumer(Consumer):
    """A loop over messages."""

    spans: Spans
    _handling: tuple[Span, context.Context, Token[context.Context]] | None = None

    async def following(self, who: Who) -> Message:
        """As of ``Consumer``."""
        self._handled(None)
        message = await super().following(who)
        group = self._subscription.group
        span = self.spans.handle(message, group, self.spans.deliver(message, group))
        current = set_span_in_context(span)
        self._handling = span, current, context.attach(current)
        return message

    async def close(self, error: BaseException | None = None) -> None:
        """As of ``Consumer``."""
        self._handled(error)
        await super().close(error)

    def _handled(self, error: BaseException | None) -> None:
        if self._handling is None:
            return
        (span, current, token), self._handling = self._handling, None
        if error is not None:
            failed(span, error)
        span.end()
        if context.get_current() is current:  # else another task goes on with the loop, and has its own
            context.detach(token)


class Traced(client.Client):
    """See the module."""

    consumer_type = TracedConsumer
    tracer_provider: TracerProvider | None = None
    """Whose spans they are; ``None``: those of the program."""

    @property
    def spans(self) -> Spans:
        """Made with the first span: a program may begin its OpenTelemetry late."""
        found = vars(self).get("_spans")
        if found is None:
            found = vars(self)["_spans"] = Spans(self.tracer_provider)
        return found

    async def send(
        self, subject: str, body: Body, *, properties: Mapping[str, Any] | None = None, **options: Any
    ) -> Receipt:
        """As of ``Client``, in a span; its context is in the message's properties."""
        span = self.spans.send(subject, properties, len(body))
        try:
            later = any(options.get(name) is not None for name in TIMES)
            found = carried(span, properties, later=later)
            receipt = await super().send(subject, body, properties=found, **options)
            self.spans.stored(span, receipt, subject)
        except BaseException as error:
            failed(span, error)
            raise
        finally:
            span.end()
        return receipt

    async def send_many(
        self, subject: str, bodies: Iterable[Body] | AsyncIterable[Body], **options: Any
    ) -> Receipts:
        """As of ``Client``, in one span."""
        span = self.spans.send_many(subject)
        try:
            receipts = await super().send_many(subject, bodies, **options)
            span.set_attribute("messaging.batch.message_count", len(receipts))
        except BaseException as error:
            failed(span, error)
            raise
        finally:
            span.end()
        return receipts

    def consume(self, subjects: str | Iterable[str], **options: Any) -> Consumer:
        """As of ``Client``; each message of its loop is handled in a span."""
        found = super().consume(subjects, **options)
        assert isinstance(found, TracedConsumer)
        found.spans = self.spans
        return found


class Client(Traced):
    """``Client("localhost:7401")`` with traces."""

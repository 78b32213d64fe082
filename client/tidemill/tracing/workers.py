"""A worker whose handlers are spans, with their deliveries and acks; what they send through its client goes on with the
trace.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from opentelemetry.trace import Span, TracerProvider, use_span

from tidemill.message import Message
from tidemill.tracing.clients import Client
from tidemill.tracing.spans import Spans, failed
from tidemill.worker import Context, Worker
from tidemill.worker.verdicts import Reject, RetryAfter, Skip

HANDLED = "tidemill.tracing"
"""Of a context's values: the span of its handler, and when that returned."""


class _Handling:
    """What surrounds handlers."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    @asynccontextmanager
    async def around(self, message: Message, context: Context) -> AsyncGenerator[None]:
        """The middleware."""
        spans = self._spans
        span = spans.handle(message, context.group, spans.deliver(message, context.group))
        span.set_attribute("tidemill.handler", context.handler.name)
        try:
            with use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except (Skip, RetryAfter, Reject) as verdict:  # said on purpose: no error
            span.set_attribute("tidemill.outcome", type(verdict).__name__)
            raise
        except BaseException as error:
            failed(span, error)
            raise
        finally:
            span.end()
            context.values[HANDLED] = span, time.time_ns()

    async def acked(self, message: Message, context: Context) -> None:
        """The hook: the broker has answered. Of what a filter declined there is no span."""
        handled: tuple[Span, int] | None = context.values.get(HANDLED)
        if handled is not None:
            self._spans.ack(message.subject, *handled)


def trace(worker: Worker, provider: TracerProvider | None = None) -> Worker:
    """The same worker, from now on with spans; they surround the middlewares that are used after this."""
    handling = _Handling(Spans(provider))
    worker.use(handling.around)
    worker.acked(handling.acked)

    class Own(Client):
        tracer_provider = provider

    worker.client_type = Own
    return worker

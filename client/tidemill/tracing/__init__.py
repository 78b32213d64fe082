"""Traces: the same client and worker, which make OpenTelemetry spans. ``pip install 'tidemill[otel]'``.

    from tidemill.tracing import Client, trace

    async with Client("localhost:7401") as mq:        # sends, and loops over messages
        ...
    trace(worker)                                     # handlers, their acks, and what they send

Spans go where the program's OpenTelemetry says. Who does not import this pays nothing: the client and the worker know
nothing of it.
"""

from __future__ import annotations

from tidemill.tracing.clients import Client, Traced, TracedConsumer
from tidemill.tracing.workers import trace

__all__ = ["Client", "Traced", "TracedConsumer", "trace"]

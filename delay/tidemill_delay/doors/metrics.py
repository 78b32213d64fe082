"""The numbers of a delay service as Prometheus text. What can be said, and of how many labels, is
``tidemill_wire.metrics``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill_delay.doors.service import DelayService
from tidemill_delay.outcomes import GONE
from tidemill_host.numbers import put_host
from tidemill_ledger.group_metrics import put_group, put_logs
from tidemill_wire.metrics.of_others import DELAYS
from tidemill_wire.metrics.page import Page


def render_metrics(service: DelayService) -> bytes:
    """What stands on the metrics page."""
    delay = service.delay
    page = Page(DELAYS, "tidemill_delay_")
    page.put_all(_numbers(service))
    page.put_powers("error_seconds", delay.outcomes.lateness.error)
    page.begin("refused_total")
    for reason, count in sorted((delay.courier.refused + delay.recurring.refused).items()):
        page.put("refused_total", count, reason)
    page.begin("discarded_total")
    for reason in sorted(GONE):
        page.put("discarded_total", delay.outcomes.discarded[reason], reason)
    put_host(page, service)
    put_logs(page, delay.logs, service.begun)
    put_group(page, service.machine)
    return page.to_bytes()


def _numbers(service: DelayService) -> Iterator[tuple[str, float]]:
    delay = service.delay
    yield "waiting", delay.state.waiting
    yield "due", delay.due
    yield "wheel", delay.wheel.size
    yield "hours", len(delay.state.hours)
    yield "lateness_seconds", delay.outcomes.lateness.last_ms / 1000
    yield "scheduled_total", delay.state.messages
    yield "delivered_total", delay.outcomes.delivered
    yield "cancelled_total", delay.state.cancelled
    yield "unread_total", delay.unread
    yield "free_bytes", service.free_bytes
    yield "total_bytes", service.total_bytes

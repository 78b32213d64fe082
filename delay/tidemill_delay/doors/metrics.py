"""The numbers of a delay service as Prometheus text. Labels are bounded: reasons are the rows of the error table.

Those of one in a delay group are the ledger's, ``group_metrics.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill_delay.doors.service import DelayService
from tidemill_ledger.group_metrics import group_lines


def render_metrics(service: DelayService) -> bytes:
    """What stands on the metrics page."""
    lines: list[str] = []
    for name, kind, text, value in _numbers(service):
        full = f"tidemill_delay_{name}"
        lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full} {value}"]
    lines.append("# HELP tidemill_delay_refused_total Messages that brokers did not take, yet, by reason")
    lines.append("# TYPE tidemill_delay_refused_total counter")
    lines += [
        f'tidemill_delay_refused_total{{reason="{reason}"}} {count}'
        for reason, count in sorted((service.delay.courier.refused + service.delay.recurring.refused).items())
    ]
    lines += group_lines(service.machine, "delay service", "tidemill_delay")
    return ("\n".join(lines) + "\n").encode()


def _numbers(service: DelayService) -> Iterator[tuple[str, str, str, float]]:
    delay = service.delay
    state = delay.state
    yield "waiting", "gauge", "Messages that are neither delivered nor cancelled", state.waiting
    yield "due", "gauge", "Messages that are due and not delivered", delay.due
    yield "wheel", "gauge", "Messages in memory ahead of their time", delay.wheel.size
    yield "hours", "gauge", "Hours of the calendar with messages", len(state.hours)
    yield "lateness_seconds", "gauge", "How late the last delivery was answered", delay.late_ms / 1000
    yield "scheduled_total", "counter", "Messages that were taken for later", state.messages
    yield "delivered_total", "counter", "Messages that brokers have, in this life", delay.delivered
    yield "cancelled_total", "counter", "Messages that nobody shall get", state.cancelled
    yield "unread_total", "counter", "Reads that the disk refused", delay.unread
    yield "free_bytes", "gauge", "Free space on the disk", service.free_bytes

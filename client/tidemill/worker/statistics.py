"""What a worker has done, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from tidemill_wire.metrics.of_clients import WORKER
from tidemill_wire.metrics.page import Page


@dataclass(slots=True)
class Counts:
    """Of one handler, since the worker began."""

    handled: int = 0
    """Returned."""
    failed: int = 0
    """Raised something."""
    retried: int = 0
    """Asked for another attempt, with ``RetryAfter``."""
    rejected: int = 0
    """Said that no attempt will help, with ``Reject``."""
    timed_out: int = 0
    """Did not return in time; also counted as failed."""
    filtered: int = 0
    """Acknowledged without handling: a filter said no."""
    skipped: int = 0
    """Acknowledged without handling: ``Skip``, as for what was handled before."""
    released: int = 0
    """Begun and given back, because the worker had to end."""
    lost: int = 0
    """Settled after the lease had ended: they come again."""
    spooled: int = 0
    """Settled while no broker could be reached: the spool has it, and tells it later."""
    in_progress: int = 0
    """Slots that are taken now."""
    stuck: int = 0
    """Of those, threads whose handler did not return in time and still runs."""
    seconds: float = 0.0
    """Time within handlers and middlewares, added up."""


@dataclass(slots=True)
class Statistics:
    """Of a worker: counts by handler, and all together."""

    handlers: Mapping[str, Counts] = field(default_factory=dict[str, Counts])
    spool: Mapping[str, int] = field(default_factory=dict[str, int])
    """As ``Client.spooled_acks``; nothing without a spool."""

    @property
    def total(self) -> Counts:
        """All handlers added up."""
        total = Counts()
        for counts in self.handlers.values():
            for one in fields(Counts):
                setattr(total, one.name, getattr(total, one.name) + getattr(counts, one.name))
        return total

    def prometheus(self) -> str:
        """The text that Prometheus reads."""
        page = Page(WORKER, "tidemill_")
        for one in fields(Counts):
            name = f"worker_{one.name}"
            name = name if f"tidemill_{name}" in WORKER else f"{name}_total"
            page.begin(name)
            for handler, counts in self.handlers.items():
                function, _, group = handler.partition("/")
                page.put(name, getattr(counts, one.name), function, group)
        for name, count in self.spool.items():
            page.put(f"spool_acks_{name}" if name == "waiting" else f"spool_acks_{name}_total", count)
        return page.to_bytes().decode()

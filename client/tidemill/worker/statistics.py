"""What a worker has done, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


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


GAUGES = {"in_progress": "Slots that are taken now.", "stuck": "Threads whose handler is over its time."}
COUNTERS = {
    "handled": "Messages whose handler returned.",
    "failed": "Messages whose handler raised or took too long.",
    "retried": "Messages whose handler asked for another attempt.",
    "rejected": "Messages whose handler said that no attempt will help.",
    "timed_out": "Messages whose handler did not return in time.",
    "filtered": "Messages acknowledged because a filter said no.",
    "skipped": "Messages acknowledged because there was nothing to do.",
    "released": "Messages given back in the middle of their handling.",
    "lost": "Messages settled after their lease had ended.",
    "spooled": "Messages settled into the spool, because no broker could be reached.",
    "seconds": "Time within handlers.",
}
SPOOL = {
    "waiting": "Messages whose fate lies in the spool and was not told yet.",
    "spooled": "Messages whose fate was written to the spool.",
    "told": "Of the spool: those that the broker has taken.",
    "too_late": "Of the spool: those whose lease had ended; they come again.",
    "dropped": "Of the spool: those that no broker took in a day.",
    "unkept": "Messages whose fate could not be written to the spool, for want of room or because the disk failed.",
}


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
        lines: list[str] = []
        for kind, names in (("counter", COUNTERS), ("gauge", GAUGES)):
            for name, means in names.items():
                metric = f"tidemill_worker_{name}" + ("_total" if kind == "counter" else "")
                lines += [f"# HELP {metric} {means}", f"# TYPE {metric} {kind}"]
                for handler, counts in self.handlers.items():
                    function, _, group = handler.partition("/")
                    labels = f'handler="{_escaped(function)}",group="{_escaped(group)}"'
                    lines.append(f"{metric}{{{labels}}} {getattr(counts, name)}")
        for name, count in self.spool.items():
            kind, metric = ("gauge", name) if name == "waiting" else ("counter", f"{name}_total")
            lines += [
                f"# HELP tidemill_spool_acks_{metric} {SPOOL[name]}",
                f"# TYPE tidemill_spool_acks_{metric} {kind}",
                f"tidemill_spool_acks_{metric} {count}",
            ]
        return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

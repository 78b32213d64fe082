"""What a canary may be told."""

from __future__ import annotations

from dataclasses import dataclass

GAP_MIN_S = 5.0
KEPT_SHARE = 0.9
"""Of the time of retention: clocks differ, and what is given out may be gone when it is read."""


@dataclass(frozen=True)
class CanarySettings:
    """See the module."""

    name: str = "canary"
    """Its consumer group, and how its probes are known: two canaries at a time have two names."""

    interval_s: float = 0.5
    """From one probe of a broker group to the next; an interruption is measured as finely."""

    later_every_s: float = 10.0
    """From one probe for later to the next; 0: none are sent."""

    later_s: float = 2.0
    """For how long a probe for later is to wait."""

    patience_s: float = 90.0
    """For how long others have to come before one that did not is lost: longer than a lease."""

    slow_s: float = 1.0
    """When nobody was answered for so long, sending is interrupted."""

    retention_seconds: int = 6 * 3600
    """For how long the subjects keep probes, when the canary declares them."""

    look_s: float = 10.0
    """How often it is asked which broker groups there are."""

    groups: tuple[str, ...] = ()
    """The broker groups to look at; empty: all."""

    def __post_init__(self) -> None:
        checks = (
            (0.01 <= self.interval_s <= 60, "interval_s is within 0.01 and 60"),
            (self.later_every_s >= 0, "later_every_s is 0 or more"),
            (0 <= self.later_s <= 3600, "later_s is within 0 and 3600"),
            (self.patience_s > 0 and self.slow_s > 0 and self.look_s > 0, "times are positive"),
        )
        for holds, sentence in checks:
            if not holds:
                raise ValueError(f"a setting of the canary is out of its range: {sentence}")

    @property
    def kept_ms(self) -> int:
        """A probe that is older than that may be gone before it is consumed."""
        return round(1000 * KEPT_SHARE * self.retention_seconds)

    @property
    def gaps_ms(self) -> tuple[int, int]:
        """Longer ones between two probes, now and later, are no attention."""
        now_s = max(GAP_MIN_S, 4 * self.interval_s)
        return round(1000 * now_s), round(1000 * max(GAP_MIN_S, 3 * self.later_every_s))

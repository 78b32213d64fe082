"""What became of messages that were due: brokers have them, or nobody shall get them any more.

What is for a subject that is not there waits for it, as long as a subject keeps messages when nobody says otherwise: it
may have been removed by mistake, or is declared late. Then it ends here, counted, and with it what recurs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tidemill_delay.actions import Cancelled, Dispatched
from tidemill_delay.asking import Hands, end_series
from tidemill_delay.hours import ranges_of
from tidemill_delay.lateness import Lateness
from tidemill_delay.parcels import Unit
from tidemill_wire.limits import RETENTION_SECONDS_DEFAULT

GONE = frozenset({"removed", "unknown_subject"})
"""Errors that say so, of a subject or of a group of it."""
KEPT_MS = 1000 * RETENTION_SECONDS_DEFAULT


def is_over(unit: Unit, reason: str, now_ms: int) -> bool:
    """Whether what was refused for a reason has waited for long enough. What was past when it came says no time, and is
    as old as its hour.
    """
    return reason in GONE and now_ms >= max(unit.due_ms, unit.hour) + KEPT_MS


class Outcomes:
    """Says so in the log, hour by hour."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self.delivered = 0
        self.discarded: Counter[str] = Counter()
        """Messages, by reason."""
        self.lateness = Lateness()

    def arrived(self, units: Iterable[Unit], now_ms: int) -> None:
        """Brokers have them."""
        by_hour: dict[int, list[int]] = {}
        for unit in units:
            self.delivered += len(unit.numbers)
            self.lateness.note(unit.due_ms, now_ms, len(unit.numbers))
            by_hour.setdefault(unit.hour, []).extend(ranges_of(unit.numbers))
        for hour, ranges in by_hour.items():
            self._hands.act(Dispatched(hour, ranges), now_ms)

    def given_up(self, ended: Sequence[tuple[str, Unit]], now_ms: int) -> None:
        """Nobody shall get them, nor what would recur after them."""
        for reason, unit in ended:
            self.discarded[reason] += len(unit.numbers)
            self._hands.act(Cancelled(unit.hour, ranges_of(unit.numbers)), now_ms)
            hour = self._hands.state.hours[unit.hour]
            for number in unit.numbers.tolist() if hour.series else ():
                if number in hour.series:
                    end_series(self._hands, set(), (hour, number), now_ms)

"""A histogram whose bounds are powers of two: counting costs an addition, whatever the number of buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil


@dataclass(slots=True, init=False)
class Powers:
    """Counts values from ``unit`` on, in buckets that double; below it is the first one, above the last one.

    ``Powers(1e-5, 20)`` counts seconds, from ten microseconds to 5 seconds; ``Powers(1, 16)`` messages, up to 32,768.
    """

    count: int
    total: float
    _unit: float
    _buckets: list[int]

    def __init__(self, unit: float, buckets: int) -> None:
        self._unit = unit
        self._buckets = [0] * (buckets + 1)
        self.count = 0
        self.total = 0

    def add(self, value: float, count: int = 1) -> None:
        """``count`` values of that size."""
        steps = max(0, ceil(value / self._unit) - 1).bit_length()
        self._buckets[min(steps, len(self._buckets) - 1)] += count
        self.count += count
        self.total += value * count

    def quantile(self, share: float) -> float | None:
        """A bound that so large a share of the values does not exceed; ``None`` when it is above all bounds, or there
        are none.
        """
        assert 0 < share <= 1
        so_far = 0
        for power, count in enumerate(self._buckets[:-1]):
            so_far += count
            if self.count and so_far >= share * self.count:
                return self._unit * (1 << power)
        return None

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Bounds as Prometheus writes them, and how many values are at most so large."""
        so_far = 0
        for power, count in enumerate(self._buckets[:-1]):
            so_far += count
            yield f"{self._unit * (1 << power):.12g}", so_far
        yield "+Inf", self.count

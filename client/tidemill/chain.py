"""Which messages of a delivery are shown to the handler. The others are acked, and counted.

Two things are looked at. The tags that the group wants: the broker compares hashes, so texts are compared here. And the
filters that the program gave to ``consume``: functions of a message, all of which must say yes.

What is shown of a delivery is one or more deliveries without a gap, each of which is settled by itself.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from tidemill.delivery import Delivery
from tidemill.message import Seen
from tidemill_wire.filters import TagFilter, parse_filter

ASYNC = "a filter is asked in between and cannot be async, for what it returned would be a yes to everything"

Filter: TypeAlias = Callable[[Seen], bool]
Match: TypeAlias = Literal["any", "all"]


class Chain:
    """See the module. ``pieces`` are to be shown, ``rest`` is to be looked at."""

    def __init__(self, filters: Filter | Iterable[Filter] | None) -> None:
        self.filters: tuple[Filter, ...] = (
            () if filters is None else (filters,) if callable(filters) else tuple(filters)
        )
        if not all(callable(one) for one in self.filters):
            raise TypeError("filter is a function of a message, or a list of such functions")
        for one in self.filters:
            asked = inspect.unwrap(one), getattr(one, "__call__", None)  # noqa: B004 - what kind it is
            if any(inspect.iscoroutinefunction(each) for each in asked):
                raise TypeError(
                    f"{ASYNC}: filter in the loop, or in a handler of a Worker, which may be async"
                )
        self.filtered = 0
        """Messages that a filter said no to."""
        self.mismatched = 0
        """Messages whose tags are not those the group wants, though their hashes are."""
        self.pieces: deque[Delivery] = deque()
        self.rest: deque[Delivery] = deque()

    def sift(self, delivery: Delivery) -> None:
        """Look at an opened delivery. When a filter raises, the message it raised of is the first one of ``rest``."""
        wanted: TagFilter = delivery.wanted
        if not self.filters and not wanted:
            self.pieces.append(delivery)
            return
        shown: list[bool] = []
        try:
            while len(shown) < delivery.count:
                shown.append(self._shows(delivery, len(shown), wanted))
        finally:
            if len(shown) < delivery.count or not all(shown):
                self._part(delivery, shown)
            else:
                self.pieces.append(delivery)

    def _shows(self, delivery: Delivery, index: int, wanted: TagFilter) -> bool:
        if wanted and not wanted.wants(delivery.tags_of(index)):
            self.mismatched += 1
            return False
        if self.filters:
            seen = Seen(delivery, index)
            for says_yes in self.filters:
                found: object = says_yes(seen)
                if not found:
                    self.filtered += 1
                    return False
                if found is not True and inspect.iscoroutine(found):
                    found.close()
                    raise TypeError(ASYNC)
        return True

    def _part(self, delivery: Delivery, shown: list[bool]) -> None:
        """Deliveries of what is shown, an ack of what is not."""
        parts: list[tuple[bool, Delivery]] = []
        start = 0
        for index in range(1, len(shown) + 1):
            if index == len(shown) or shown[index] != shown[start]:
                parts.append((shown[start], delivery.part(start, index)))
                start = index
        if len(shown) < delivery.count:
            self.rest.append(delivery.part(len(shown), delivery.count))
        pieces = [part for is_shown, part in parts if is_shown]
        delivery.settler.parted(delivery, [*pieces, *self.rest])
        self.pieces += pieces
        for is_shown, part in parts:
            if not is_shown:
                delivery.settler.ack(part.subject, part.settle(0, part.count - 1))

    def take_first(self) -> Delivery:
        """The message that a filter raised of, out of ``rest``; those behind it are looked at later."""
        rest = self.rest.popleft()
        first = rest.part(0, 1)
        others = [rest.part(1, rest.count)] if rest.count > 1 else []
        rest.settler.parted(rest, others)
        self.rest.extendleft(others)
        return first

    def close(self) -> list[Delivery]:
        """What was not begun."""
        left = [*self.pieces, *self.rest]
        self.pieces.clear()
        self.rest.clear()
        return left


def parse_match(tags: str | Iterable[str], match: str) -> TagFilter:
    """The arguments ``tags`` and ``match`` of ``consume``."""
    if isinstance(tags, str):
        raise TypeError("tags is a text: give a set of texts")
    if match not in ("any", "all"):
        raise ValueError(f"match {match!r} is neither any nor all")
    return parse_filter(tags, match == "all")

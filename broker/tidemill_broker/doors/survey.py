"""A look at all subjects and groups, in pieces: after each some milliseconds' work the loop may do something else.

What is named of 10,000 groups is known when all were looked at, so their rows are kept until then: a tuple each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from tidemill_broker.census import OfGroup, OfSubject, group_row, groups_of, subject_row, subjects_of
from tidemill_broker.state import State
from tidemill_host.clock import Clock
from tidemill_wire.limits import METRIC_GROUPS_MAX, METRIC_SUBJECTS_MAX
from tidemill_wire.metrics.page import Page
from tidemill_wire.metrics.prominent import Prominent
from tidemill_wire.metrics.words import OTHER

SLICE_SECONDS = 0.001
"""So long the loop does nothing else; then whatever came meanwhile has its turn."""

NOBODY = OfGroup(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class Survey:
    """Remembers from one look to the next who has a name, and what all others have counted."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._subjects: Prominent[str] = Prominent(METRIC_SUBJECTS_MAX, 2)
        self._groups: Prominent[tuple[str, str]] = Prominent(METRIC_GROUPS_MAX, 2)
        self.seconds = 0.0
        """How long the last look took."""

    async def put(self, page: Page) -> None:
        """All of it."""
        began = self._clock.seconds()
        await self._put_subjects(page)
        await self._put_groups(page)
        self.seconds = self._clock.seconds() - began

    async def _put_subjects(self, page: Page) -> None:
        state, rows = self._state, dict[str, OfSubject]()
        weights: dict[str, tuple[float, ...]] = {}
        slices = Slices(self._clock)
        for partition in subjects_of(state):
            row = rows[partition.name] = subject_row(state, partition)
            weights[partition.name] = (self._subjects.count(partition.name, (row.messages, row.bytes)),)
            await slices.breathe()
        named = self._subjects.choose(weights)
        for name in sorted(named):
            _put_subject(page, name, rows[name])
        others = [row for name, row in rows.items() if name not in named]
        if others or any(self._subjects.others):
            messages, size = self._subjects.others
            _put_subject(page, OTHER, OfSubject(messages, size, sum(row.kept for row in others)))

    async def _put_groups(self, page: Page) -> None:
        state, rows = self._state, dict[tuple[str, str], OfGroup]()
        weights: dict[tuple[str, str], tuple[float, ...]] = {}
        slices = Slices(self._clock)
        for group in groups_of(state):
            key = state.partitions[group.partition].name, group.name
            row = rows[key] = group_row(state, group, self._clock.now_ms())
            recent = self._groups.count(key, (row.acked, row.buried))
            weights[key] = (row.paused, row.dead > 0, row.lag_ms // 1000, row.lag, recent)
            await slices.breathe()
        named = self._groups.choose(weights)
        for key in sorted(named):
            _put_group(page, key, rows[key])
            await slices.breathe()
        others = [row for key, row in rows.items() if key not in named]
        if others or any(self._groups.others):
            _put_group(page, (OTHER, OTHER), together(others, self._groups.others))


class Slices:
    """Lets others work when it is time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.seconds()

    async def breathe(self) -> None:
        """Go on, or pause for a moment."""
        if self._clock.seconds() - self._began >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = self._clock.seconds()


def together(rows: Iterable[OfGroup], counted: list[int]) -> OfGroup:
    """What has no name of its own: added up, but for ages, of which the highest counts."""
    lag, lag_ms, oldest_ms, *counts, _, _ = zip(NOBODY, *rows, strict=True)
    in_flight, failed, dead, consumers, paused, suspended, over_quota = map(sum, counts)
    ages = max(lag_ms), max(oldest_ms)
    return OfGroup(
        sum(lag), *ages, in_flight, failed, dead, consumers, paused, suspended, over_quota, *counted
    )


def _put_subject(page: Page, name: str, row: OfSubject) -> None:
    page.put("subject_messages_total", row.messages, name)
    page.put("subject_bytes_total", row.bytes, name)
    page.put("subject_kept_messages", row.kept, name)


GROUP_NUMBERS: Mapping[str, str] = {
    "lag_messages": "lag", "in_flight": "in_flight", "failed": "failed", "dead_letters": "dead",
    "consumers": "consumers", "paused": "paused", "suspended": "suspended", "over_quota": "over_quota",
    "acked_total": "acked", "buried_total": "buried",
}  # fmt: skip


def _put_group(page: Page, key: tuple[str, str], row: OfGroup) -> None:
    page.put("group_lag_seconds", row.lag_ms / 1000, *key)
    page.put("group_oldest_unacked_seconds", row.oldest_ms / 1000, *key)
    for name, field in GROUP_NUMBERS.items():
        page.put(f"group_{name}", getattr(row, field), *key)

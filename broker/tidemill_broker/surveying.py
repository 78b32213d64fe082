"""The fences of one broker group as its master surveys them for meta: what is to be put up, what is news of it. Pure.

    told      --FENCE-->  put up, and said to meta once
    put up    --FENCE, beat by beat-->  each group that has passed a fence is said to meta once
    any       --its subject was removed-->  forgotten: a fence makes the partition that it names

The rows that meta awaits go first, all of them. Those that were said already take turns: some in each beat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from tidemill_wire.fencing import Fenced, FenceRow
from tidemill_wire.fields import living_subject
from tidemill_wire.limits import FENCES_MAX

ROWS = 100
"""In one FENCE: its answer has room for ten groups in order of each; fewer are asked for when that was not enough."""
ANEW_EVERY = 60
"""Beats after which all is said anew: meta forgets a group that is removed, and its database may be an old copy."""


class Survey:
    """See the module."""

    def __init__(self) -> None:
        self._rows: dict[str, FenceRow] = {}
        """By partition; those whose turn it is are in front."""
        self._closed: dict[str, int] = {}
        self._passed: dict[tuple[str, str], int] = {}
        """What meta was told of partitions, and of groups in them."""
        self._saying: Fenced | None = None
        self._share = ROWS
        self._beats = 0

    def told(self, rows: Iterable[FenceRow]) -> None:
        """Meta says it anew, and may have forgotten what it was told before."""
        for row in rows:
            self._rows[row.partition] = row
            self._closed.pop(row.partition, None)
            self._passed = {
                place: known for place, known in self._passed.items() if place[0] != row.partition
            }

    def removed(self, subjects: Iterable[str]) -> None:
        """Before ``told``: their fences of now, if they are declared again, are told with it."""
        gone = set(subjects)
        for name in [one for one in self._rows if living_subject(one) in gone]:
            del self._rows[name]
            self._closed.pop(name, None)

    def rows(self) -> Iterator[Sequence[FenceRow]]:
        """What is to be put up or looked at in this beat, piece by piece."""
        self._beats += 1
        if self._beats % ANEW_EVERY == 0:
            self._closed.clear()
            self._passed.clear()
        awaited = [row for name, row in self._rows.items() if self._closed.get(name) != row.number]
        said = (row for name, row in self._rows.items() if self._closed.get(name) == row.number)
        turn = list(islice(said, self._share))
        for at in range(0, len(awaited), ROWS):
            yield awaited[at : at + ROWS]
        for row in turn:
            self._rows[row.partition] = self._rows.pop(row.partition)
        if turn:
            yield turn

    def news(self, fenced: Fenced) -> dict[str, Any] | None:
        """What meta does not know of it."""
        if len(fenced.passed) >= FENCES_MAX:
            self._share = max(1, self._share // 2)
        closed = [row for row in fenced.closed if self._closed.get(row[0]) != row[1]]
        passed = [row for row in fenced.passed if self._passed.get((row.partition, row.group)) != row.number]
        if not closed and not passed:
            return None
        self._saying = Fenced(closed, passed)
        return self._saying.fields()

    def noted(self) -> None:
        """Meta has stored the news."""
        assert self._saying is not None
        self._closed.update(self._saying.closed)
        self._passed.update({(row.partition, row.group): row.number for row in self._saying.passed})
        self._saying = None

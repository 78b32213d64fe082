"""What is left on a broker, by subject, as its master says it and whoever takes it away reads it.

Left is what would be lost with the broker: what a group that is there has not done with, half messages that nobody has
decided, messages that are not shown yet, those that an archive must have and none has; and all that is kept, for a
group of the subject that has never begun there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from tidemill_wire.counted import counted
from tidemill_wire.fields import Fields, malformed

PATH = "/v1/left"
ROWS_MAX = 1_000_000
COUNT_MAX = 1 << 53
NAME_CHARS_MAX = 400
"""A group of a broadcast consumer has its name in it."""
UNDONE = {
    "lag": "to consume",
    "in_flight": "in flight",
    "failed": "to be tried again",
    "dead": "dead letters",
}
"""Of a group, and in words."""


class Undone(NamedTuple):
    """What a group has not done with, by the names in ``UNDONE``, in a partition of the subject."""

    group: str
    partition: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Leftover:
    """Of one subject."""

    subject: str
    undone: tuple[Undone, ...] = ()
    pending: int = 0
    """Half messages of transactions that nobody has decided."""
    hidden: int = 0
    """Messages that are not committed yet."""
    unarchived: int = 0
    """Messages that an archive must have, and none has."""
    kept: int = 0
    """All messages."""
    begun: tuple[str, ...] = ()
    """The groups that are in each partition which keeps some."""

    def plus(self, more: Leftover) -> Leftover:
        """With what else was found of the subject."""
        return replace(
            self,
            undone=(*self.undone, *more.undone),
            pending=self.pending + more.pending,
            hidden=self.hidden + more.hidden,
            unarchived=self.unarchived + more.unarchived,
            kept=self.kept + more.kept,
        )

    def to_map(self) -> dict[str, Any]:
        """For JSON."""
        undone = [{"group": one.group, "partition": one.partition, **one.counts} for one in self.undone]
        return {
            "subject": self.subject, "undone": undone, "pending": self.pending, "hidden": self.hidden,
            "unarchived": self.unarchived, "kept": self.kept, "begun": list(self.begun),
        }  # fmt: skip

    def sentences(self, counts: Collection[str] = tuple(UNDONE)) -> Iterator[str]:
        """What is left, but for groups that have never begun; of what groups have not done with, those counts."""
        for one in self.undone:
            said = [f"{one.counts[name]:,} {UNDONE[name]}" for name in counts if one.counts.get(name)]
            if said:
                yield f"{one.group} of {one.partition}: {', '.join(said)}"
        if self.pending:
            yield f"{counted(self.pending, 'message')} of {self.subject} in transactions that nobody has decided"
        if self.hidden:
            yield f"{counted(self.hidden, 'message')} of {self.subject} that slaves do not have yet"
        if self.unarchived:
            yield f"{counted(self.unarchived, 'message')} of {self.subject} that no archive has"

    def late(self, groups: Collection[str]) -> Iterator[str]:
        """The same of those of the subject's groups that have never begun here."""
        for name in groups if self.kept else ():
            if not has_begun(name, self.begun):
                yield f"{name} of {self.subject}: {counted(self.kept, 'message')} that it has not begun with"


def has_begun(group: str, begun: Collection[str]) -> bool:
    """Whether a group is among those, or one that a broadcast consumer of it has to itself."""
    return group in begun or any(one.startswith(f"{group}.") for one in begun)


def groups_by_subject(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The groups that there are, of rows that name both."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(str(row["subject"]), []).append(str(row["group"]))
    return found


def parse_leftovers(body: object) -> tuple[int, tuple[Leftover, ...]]:
    """The epoch of the master that says it, and what it says; ``Refused`` when it is nothing of that kind."""
    fields = _fields(body)
    rows = tuple(map(_parse_row, _items(fields, "subjects")))
    return fields.number("epoch", 0, COUNT_MAX), rows


def _parse_row(body: object) -> Leftover:
    row = _fields(body)
    count = {name: row.number(name, 0, COUNT_MAX) for name in ("pending", "hidden", "unarchived", "kept")}
    begun = _items(row, "begun")
    if not all(type(one) is str for one in begun):
        raise malformed("field 'begun' does not hold names of groups")
    undone = tuple(map(_parse_undone, _items(row, "undone")))
    return Leftover(row.text("subject", NAME_CHARS_MAX), undone, **count, begun=tuple(begun))


def _parse_undone(body: object) -> Undone:
    row = _fields(body)
    counts = {name: row.number(name, 0, COUNT_MAX) for name in UNDONE}
    return Undone(row.text("group", NAME_CHARS_MAX), row.text("partition", NAME_CHARS_MAX), counts)


def _items(fields: Fields, name: str) -> list[Any]:
    """A list that must be there: without it, there would seem to be nothing."""
    if not fields.has(name):
        raise malformed(f"field {name!r} is missing")
    return fields.items(name, ROWS_MAX)


def _fields(body: object) -> Fields:
    if not isinstance(body, Mapping):
        raise malformed("what is left is told in maps")
    return Fields.of(cast("Mapping[str, Any]", body))

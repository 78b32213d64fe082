"""What is registered: a fold over the store's entries, and drafts in which decisions are tried.

A ``Registry`` holds what is stored, and changes only by ``apply``. A ``Draft`` is a view of one with changes that are
not stored yet; drafts stack, so that a decision that fails takes nothing back but its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from tidemill_meta.archive_values import Archive
from tidemill_meta.charter import GrantRecord, TokenRecord
from tidemill_meta.storing import Changes, Entry, Gaps, is_lost
from tidemill_meta.values import (
    KINDS,
    ConsumerGroupRecord,
    Removal,
    Route,
    SubjectRecord,
    Value,
)
from tidemill_meta.vanished import Vanished

AnyValue = TypeVar("AnyValue", bound=Value)
_TYPE_OF = {kind.KIND: kind for kind in KINDS}


class View(Protocol):
    """What is registered, stored or not."""

    @property
    def stored(self) -> Registry:
        """Without what is only tried."""
        ...

    def get(self, kind: type[AnyValue], key: str) -> AnyValue | None: ...

    def version(self, kind: str, key: str) -> int:
        """Of the entry; it goes on counting when the value is gone."""
        ...

    def remembers(self, kind: str, key: str) -> bool:
        """Whether there is such an entry, or was one, and that is not forgotten."""
        ...

    def all(self, kind: type[AnyValue]) -> Iterator[AnyValue]: ...

    def routed(self) -> Counter[str]:
        """How many partitions lie on each broker group."""
        ...


class Registry:
    """What is stored."""

    def __init__(self) -> None:
        self.revision = 0
        self.gaps: Gaps = ()
        self.began = 0
        """The revision of the last beginning anew, after which everybody is to hear of all."""
        self.changed_at: dict[tuple[str, str], int] = {}
        """The revision up to which this replica had read when it met the entry's last change."""
        self._values: dict[str, dict[str, Value]] = {kind: {} for kind in _TYPE_OF}
        self.kind_changed_at: Counter[str] = Counter()
        """The same of all entries of a kind."""
        self.told_at: dict[str, int] = {}
        """By subject, the revision of the last change that its brokers have to hear of; of those that nobody has
        declared or made read-only there is nothing to tell.
        """
        self.emptying: dict[str, None] = {}
        """Subjects that are to be removed if they are empty."""
        self._versions: dict[tuple[str, str], int] = {}
        self._floor = 0
        """The largest version of what is forgotten: what begins goes on above it."""
        self._routed: Counter[str] = Counter()

    @property
    def stored(self) -> Registry:
        return self

    def get(self, kind: type[AnyValue], key: str) -> AnyValue | None:
        return cast("AnyValue | None", self._values[kind.KIND].get(key))

    def version(self, kind: str, key: str) -> int:
        return self._versions.get((kind, key), self._floor)

    def remembers(self, kind: str, key: str) -> bool:
        return (kind, key) in self._versions

    def all(self, kind: type[AnyValue]) -> Iterator[AnyValue]:
        return cast("Iterator[AnyValue]", iter(self._values[kind.KIND].values()))

    def routed(self) -> Counter[str]:
        return Counter(self._routed)

    def knows_lost(self, known: int) -> bool:
        """Whether somebody who knows that revision knows of commits that are lost. This replica may be behind."""
        return is_lost(known, self.revision, self.gaps)

    def places(self) -> Iterator[tuple[tuple[str, str], Value | None]]:
        """All entries; nothing where something is gone."""
        return ((place, self._values[place[0]].get(place[1])) for place in self._versions)

    def apply(self, changes: Changes) -> list[tuple[str, str]]:
        """Take what was stored; kinds and keys of what changed. What is known already, or later, is passed over."""
        if changes.revision <= self.revision:
            return []
        self.revision, self.gaps, self.began = changes.revision, changes.gaps, changes.began
        missed = self._catch_up(changes) if changes.whole else []
        new = [one for one in changes.entries if one.version > self._versions.get((one.kind, one.name), 0)]
        for entry in new:
            self._take(entry)
        return [*missed, *((entry.kind, entry.name) for entry in new)]

    def _catch_up(self, changes: Changes) -> list[tuple[str, str]]:
        """Let go of what is not among all that there is; kinds and keys of what was there."""
        self._floor = max(self._floor, changes.floor)
        there = {(one.kind, one.name) for one in changes.entries}
        missed = [place for place in self._versions if place not in there]
        found = [place for place in missed if place[1] in self._values[place[0]]]
        for kind, name in found:
            self._take(Entry(kind, name, self._versions[kind, name] + 1, None))
        self._let_go(missed)
        return found

    # -- forgetting -------------------------------------------------------------------------------------------

    def has_gone(self, until: int) -> bool:
        """Whether there is an entry of something that was gone at that revision."""
        return next(self._gone(until), None) is not None

    def forget(self, until: int, floor: int) -> None:
        """The store has forgotten what was gone at a revision; ``floor`` is the largest version of all that is."""
        self._floor = max(self._floor, floor)
        self._let_go(list(self._gone(until)))

    def _gone(self, until: int) -> Iterator[tuple[str, str]]:
        return (
            place
            for place, changed_at in self.changed_at.items()
            if changed_at <= until and place[1] not in self._values[place[0]]
        )

    def _let_go(self, places: list[tuple[str, str]]) -> None:
        for place in places:
            del self._versions[place], self.changed_at[place]
            if place[0] == SubjectRecord.KIND:
                self.told_at.pop(place[1], None)

    def _take(self, entry: Entry) -> None:
        place = entry.kind, entry.name
        self._versions[place] = entry.version
        self.changed_at[place] = self.revision
        values = self._values[entry.kind]
        former = values.get(entry.name)
        if entry.kind == SubjectRecord.KIND:
            self.emptying.pop(entry.name, None)
        if isinstance(former, Route):
            self._routed.subtract(partition.group for partition in former.current.partitions)
        value = None
        if entry.body is not None:
            value = _TYPE_OF[entry.kind].from_map(entry.name, entry.version, entry.body)
        if not (isinstance(former, Archive) and isinstance(value, Archive) and former.kept == value.kept):
            self.kind_changed_at[entry.kind] = self.revision
        if value is None:
            values.pop(entry.name, None)
            return
        values[entry.name] = value
        if isinstance(value, Route):
            self._routed.update(partition.group for partition in value.current.partitions)
        if isinstance(value, SubjectRecord) and value.emptying is not None:
            self.emptying[value.name] = None
        subject = self._subject_told(value)
        if subject is not None:
            self.told_at.pop(subject, None)  # the latest is last
            self.told_at[subject] = self.revision

    def _subject_told(self, value: Value) -> str | None:
        """Of which subject brokers are to hear something new. A route may lead to one that has heard nothing."""
        match value:
            case SubjectRecord(name) if (
                value.declared is not None
                or value.state != "RW"
                or value.emptying is not None
                or name in self.told_at
            ):
                return name
            case ConsumerGroupRecord(subject) if value.declared is not None:
                return subject
            case Route(subject) if value.fence or subject in self.told_at:
                return subject
            case _:
                return None

    @property
    def last_told_at(self) -> int:
        """The revision of the last change that brokers have to hear of."""
        return max(
            self.began,
            next(reversed(self.told_at.values()), 0),
            self.kind_changed_at[Removal.KIND],
            self.kind_changed_at[Vanished.KIND],
            self.kind_changed_at[Archive.KIND],
        )

    @property
    def access_version(self) -> int:
        """Of the charter: another one when anybody was granted something, or lost it."""
        return max(self.kind_changed_at[GrantRecord.KIND], self.kind_changed_at[TokenRecord.KIND])


class Draft:
    """Changes that are tried on a view."""

    def __init__(self, base: View) -> None:
        self._base = base
        self._changed: dict[tuple[str, str], tuple[int, Value | None]] = {}
        self._moved: Counter[str] = Counter()

    @property
    def stored(self) -> Registry:
        return self._base.stored

    def get(self, kind: type[AnyValue], key: str) -> AnyValue | None:
        if (kind.KIND, key) in self._changed:
            return cast("AnyValue | None", self._changed[kind.KIND, key][1])
        return self._base.get(kind, key)

    def version(self, kind: str, key: str) -> int:
        found = self._changed.get((kind, key))
        return found[0] if found is not None else self._base.version(kind, key)

    def remembers(self, kind: str, key: str) -> bool:
        return (kind, key) in self._changed or self._base.remembers(kind, key)

    def all(self, kind: type[AnyValue]) -> Iterator[AnyValue]:
        mine = {key: value for (named, key), (_, value) in self._changed.items() if named == kind.KIND}
        for value in self._base.all(kind):
            if value.key not in mine:
                yield value
        yield from (cast("AnyValue", value) for value in mine.values() if value is not None)

    def routed(self) -> Counter[str]:
        counted = self._base.routed()
        counted.update(self._moved)
        return counted

    def _count(self, former: Value | None, value: Value | None) -> None:
        if isinstance(former, Route):
            self._moved.subtract(partition.group for partition in former.current.partitions)
        if isinstance(value, Route):
            self._moved.update(partition.group for partition in value.current.partitions)

    def put(self, value: AnyValue) -> AnyValue:
        """The value with its next version. Each change has one of its own, also when a commit has several."""
        place = value.KIND, value.key
        version = self.version(*place) + 1
        stored = cast("AnyValue", replace(cast("Any", value), version=version))
        self._count(self.get(type(value), value.key), stored)
        self._changed[place] = version, stored
        return stored

    def drop(self, kind: type[Value], key: str) -> None:
        self._count(self.get(kind, key), None)
        self._changed[kind.KIND, key] = self.version(kind.KIND, key) + 1, None

    def merge(self, inner: Draft) -> None:
        """Take over what was tried on this draft."""
        assert inner._base is self
        self._changed.update(inner._changed)
        self._moved.update(inner._moved)

    @property
    def changed(self) -> frozenset[tuple[str, str]]:
        """Kinds and keys of what is to be stored."""
        return frozenset(self._changed)

    def entries(self) -> tuple[Entry, ...]:
        """What is to be stored."""
        return tuple(
            Entry(kind, key, version, value.to_map() if value is not None else None)
            for (kind, key), (version, value) in self._changed.items()
        )

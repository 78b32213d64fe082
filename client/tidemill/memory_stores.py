"""What the broker in memory keeps: batches as lists, groups as cursors."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tidemill_wire.batch import Flags, Header, read_header, stamp
from tidemill_wire.columns import Batch
from tidemill_wire.commands import Pull
from tidemill_wire.errors import WireError
from tidemill_wire.filters import EVERYTHING, TagFilter, matches_pattern, split_patterns
from tidemill_wire.kinds import Mode, Place
from tidemill_wire.lanes import LANE_PREFIX, first_of_lane, lane_name, parse_priority
from tidemill_wire.limits import PRIORITY_MAX, PRODUCER_BATCHES_REMEMBERED
from tidemill_wire.steering import Seek, Sought

EPOCH = 1

Lease: TypeAlias = tuple[int, int]
"""A sequence and how often it failed."""


@dataclass(slots=True)
class StoredSubject:
    """Batches, back to back by their sequences."""

    batches: list[bytes] = field(default_factory=list[bytes])
    firsts: list[int] = field(default_factory=list[int])
    next_sequence: int = 0
    producers: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    begin: int = 0

    @classmethod
    def lane(cls, priority: int) -> StoredSubject:
        """Without a priority, the subject itself."""
        begin = first_of_lane(priority)
        return cls(next_sequence=begin, begin=begin)

    def store(self, batch: bytearray, now_ms: int) -> int:
        """Keep a new batch; its first sequence."""
        header = read_header(batch)
        first = self.note(header)
        stamp(batch, 0, header.length, first, 0, now_ms, EPOCH)
        self.batches.append(bytes(batch))
        self.firsts.append(first)
        return first

    def holding(self, sequence: int) -> int:
        """The index of the batch that a sequence is in."""
        return bisect_right(self.firsts, sequence) - 1

    def known(self, header: Header) -> int | None:
        """Of a batch that comes again the first sequence, -1 when that is forgotten; ``None`` when it is new, as one
        without order keys is that later ones have passed.
        """
        seen, number = self.producers.setdefault(header.producer_id, []), header.producer_sequence
        if not seen or number > seen[-1][0]:
            return None
        is_older = len(seen) == PRODUCER_BATCHES_REMEMBERED and number < seen[0][0]
        forgotten = is_older or header.flags & Flags.ORDERED
        return dict(seen).get(number, -1 if forgotten else None)

    def note(self, header: Header) -> int:
        """A new batch is taken: its first sequence."""
        first = self.next_sequence
        self.next_sequence += header.messages
        seen = self.producers[header.producer_id]
        insort(seen, (header.producer_sequence, first))
        del seen[:-PRODUCER_BATCHES_REMEMBERED]
        return first


@dataclass(slots=True)
class Member:
    """A consumer within a group: its pull sequences and what it holds."""

    pulled: int = 0
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])


@dataclass(slots=True)
class StoredGroup:
    """A consumer group on one subject."""

    cursor: int
    wanted: TagFilter = EVERYTHING
    due: deque[Lease] = field(default_factory=deque[Lease])
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    acked: int = 0
    rejected: int = 0
    mode: Mode = Mode.AS_DECLARED
    owner: str = ""
    """Of a group in order: the consumer that has it."""
    suspended: bool = False

    @property
    def in_flight(self) -> int:
        return sum(len(member.leases) for member in self.members.values())

    def keep_order(self) -> list[tuple[str, Lease]]:
        """What failed comes before anything newer: what lies behind it is taken back; that, and from whom."""
        back: list[tuple[str, Lease]] = []
        if self.mode in (Mode.AS_DECLARED, Mode.KEYED) or not self.due:
            return back
        first = min(sequence for sequence, _ in self.due)
        for name, member in self.members.items():
            for number, lease in list(member.leases.items()):
                if lease[0] > first:
                    self.due.append(member.leases.pop(number))
                    back.append((name, lease))
        self.due = deque(sorted(self.due))
        return back


def lanes_of(subjects: Mapping[str, StoredSubject], name: str) -> list[str]:
    """A subject and its lanes, the highest priority first."""
    names = [lane_name(name, priority) for priority in range(PRIORITY_MAX, 0, -1)]
    return [lane for lane in names if lane in subjects] + [name]


def lane_for(
    subjects: dict[str, StoredSubject], groups: dict[tuple[str, str], StoredGroup], name: str, priority: int
) -> StoredSubject:
    """Where messages go; the groups of a subject are in its lanes from their first message on."""
    subjects.setdefault(name, StoredSubject())
    lane = lane_name(name, priority)
    if lane not in subjects:
        made = subjects[lane] = StoredSubject.lane(priority)
        for (known, group), head in list(groups.items()):
            if known == name:
                groups[lane, group] = StoredGroup(made.begin, mode=head.mode)
    return subjects[lane]


def is_lane(name: str) -> bool:
    """Whether it is no subject itself."""
    return name.startswith(LANE_PREFIX)


def first_since(subject: StoredSubject, start: int) -> int:
    if start <= 0:
        return subject.begin
    found = (
        first for first, batch in zip(subject.firsts, subject.batches, strict=True) if _time(batch) >= start
    )
    return next(found, subject.next_sequence)


def next_wanted(batch: bytes, begin: int, span: tuple[int, int], wanted: TagFilter) -> tuple[int, int]:
    """The first run of wanted messages in a span of sequences of a batch: first sequence, count, which may be 0."""
    first, end = span
    if not wanted:
        return first, end - first
    tags = Batch(batch).tags() or []
    rows = [wanted.wants(one) for one in tags] or [False] * (end - begin)
    while first < end and not rows[first - begin]:
        first += 1
    last = first
    while last < end and rows[last - begin]:
        last += 1
    return first, last - first


def _time(batch: bytes) -> int:
    return read_header(batch).stored_at_ms


def moved(subject: StoredSubject, group: StoredGroup, seek: Seek) -> Sought:
    """A group goes on elsewhere in a lane, or would."""
    place = {
        Place.EARLIEST: subject.begin,
        Place.LATEST: subject.next_sequence,
        Place.SEQUENCE: min(seek.value, subject.next_sequence),
        Place.TIME: first_since(subject, seek.value),
    }[seek.place]
    before = group.cursor
    again, skipped = max(0, before - place), max(0, place - before)
    answer = Sought(before, place, again, skipped, group.in_flight, len(group.due))
    if not seek.rehearsal:
        group.cursor = place
        group.due.clear()
        for member in group.members.values():
            member.leases.clear()
    return answer


def sum_of(effects: list[Sought]) -> Sought:
    """What a seek does in all lanes; the places are those of the subject itself, which is the last one."""
    last = effects[-1]
    again, skipped = sum(one.again for one in effects), sum(one.skipped for one in effects)
    in_flight, failed = sum(one.in_flight for one in effects), sum(one.failed for one in effects)
    return Sought(last.before, last.sequence, again, skipped, in_flight, failed)


def wrong_priority(priority: int) -> WireError | None:
    """Why a batch is refused for its priority, if it is."""
    try:
        parse_priority(priority)
    except WireError as error:
        return error
    return None


def named_by(
    stored: Mapping[str, StoredSubject], known: dict[tuple[str, str], frozenset[str]], pull: Pull
) -> list[tuple[str, bool]]:
    """The subjects of a pull, those of patterns too, and whether one came after the group's first such pull; ``known``
    are the subjects there were then.
    """
    subjects, patterns = split_patterns(pull.subjects)
    found = dict.fromkeys(subjects, False)
    for pattern in patterns:
        before = known.setdefault((pull.group, pattern), frozenset(stored))
        for name in stored:
            if matches_pattern(pattern, name):
                found.setdefault(name, name not in before)
    return list(found.items())

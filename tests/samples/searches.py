"""Every answer of the index held against a scan of the log: all that is stored and visible is found, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tidemill_broker.machine import Broker
from tidemill_broker.messages import Found
from tidemill_broker.partitions import Partition
from tidemill_broker.queries import Answer, Budget, Query, Span, parse_place, view_of
from tidemill_host.disk import Disk, size_of
from tidemill_host.machine import Slice
from tidemill_ledger.scanning import BatchScanner
from tidemill_wire.batch import parse_message_id
from tidemill_wire.columns import Batch
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.lanes import lane_name, priority_of

PAGE_MESSAGES = 3
PAGES_MAX = 10_000


class Said(NamedTuple):
    """What a scan says of a message."""

    id: str
    subject: str
    sequence: int
    stored_at_ms: int
    key: str | None
    body: bytes


class Search:
    """A broker's index and its log, on one disk."""

    def __init__(self, broker: Broker, disk: Disk) -> None:
        self.broker = broker
        self._disk = disk

    def query(self, browsed: Partition | None = None) -> Query:
        """One question's worth."""
        view = view_of(self.broker.state, self.broker.logs.messages, browsed)
        return Query(view, self.read, self.size_of, Budget(PAGE_MESSAGES))

    def read(self, piece: Slice) -> bytes:
        handle = self._disk.open(piece.file)
        try:
            data = b""
            while len(data) < piece.size:
                part = handle.read(piece.position + len(data), piece.size - len(data))
                if not part:
                    break
                data += part
            return data
        finally:
            handle.close()

    def size_of(self, file: str) -> int | None:
        return size_of(self._disk, file)

    def by_key(
        self, key: str, subject: str | None, newest: bool = False, span: Span | None = None
    ) -> list[Found]:
        raw = None if subject is None else subject.encode()

        def ask(after: str | None) -> Answer:
            start = None if after is None else parse_place(after)
            return self.query().by_key(key, raw, span or Span(), start, newest)

        return list(pages(ask))

    def browse(self, subject: str, span: Span | None = None, newest: bool = False) -> list[Found]:
        span = span or Span()

        def ask(after: str | None) -> Answer:
            part = span
            if after is not None and newest:
                part = Span(span.first, int(after), span.from_ms, span.to_ms)
            elif after is not None:
                part = Span(int(after) + 1, span.end, span.from_ms, span.to_ms)
            return self.query(self.broker.state.by_name[subject.encode()]).browse(part, newest)

        return list(pages(ask))

    def by_id(self, identity: str) -> Found | None:
        return self.query().by_id(*parse_message_id(identity))

    def scan(self) -> Iterator[Said]:
        """All that is visible, in the order of the log, from the batches alone."""
        segments = self.broker.logs.messages
        for base in segments.bases:
            file = segments.file(base)
            end = base + min(self.size_of(file) or 0, segments.end_of(base) - base)
            data = self.read(Slice(file, 0, end - base)) if end > base else b""
            try:
                for header, name in BatchScanner(reader(data), base, end, base):
                    lane = lane_name(name.decode(), priority_of(header.first_sequence)).encode()
                    partition = self.broker.state.by_name.get(lane)  # else it is removed
                    floor = self.broker.state.tombs.floor(partition) if partition is not None else 0
                    if partition is not None and floor <= header.first_sequence < partition.visible:
                        yield from said(Batch(data[header.position - base :][: header.length]))
            except CorruptBatch:
                if base != segments.open_base:
                    raise  # else a write that was under way: what is visible stands before it

    def problems(self, *, briefly: bool = False) -> list[str]:
        """Sentences, when an answer is not the scan's; ``briefly`` asks a fourth of the questions."""
        return list(self._problems(list(self.scan()), (False,) if briefly else (False, True), briefly))

    def _problems(self, stored: Sequence[Said], orders: Sequence[bool], briefly: bool) -> Iterator[str]:
        first: dict[str, Said] = {}
        for one in stored:
            first.setdefault(one.id, one)
        for identity, one in first.items():
            found = self.by_id(identity)
            if found is None or plain(found) != one:
                yield f"index: {identity} is {found}, the log says {one}"
        if self.by_id("f" * 32 + "-0") is not None:
            yield "index: an id that nobody sent was found"
        keys = dict.fromkeys(one.key for one in stored if one.key)
        subjects = dict.fromkeys(one.subject for one in stored)
        for key in [*keys, "a key that nobody sent"]:
            for subject in (None,) if briefly else (None, *subjects):
                wanted = [one for one in stored if one.key == key and subject in {None, one.subject}]
                for newest in orders:
                    got = list(map(plain, self.by_key(key, subject, newest)))
                    if got != (wanted[::-1] if newest else wanted):
                        yield f"index: key {key!r} of {subject} is at {places(got)}, the log says {places(wanted)}"
        for subject in subjects:
            wanted = sorted((one for one in stored if one.subject == subject), key=lambda one: one.sequence)
            for newest in orders:
                got = list(map(plain, self.browse(subject, newest=newest)))
                if got != (wanted[::-1] if newest else wanted):
                    yield f"browse: {subject} has {places(got)}, the log says {places(wanted)}"


def pages(ask: Callable[[str | None], Answer]) -> Iterator[Found]:
    """All messages of all pages."""
    after: str | None = None
    for _ in range(PAGES_MAX):
        answer = ask(after)
        yield from answer.messages
        after = answer.after
        if after is None:
            return
    raise AssertionError("pages without end")


def said(batch: Batch) -> Iterator[Said]:
    header = batch.header
    keys = batch.keys() or [""] * header.messages
    for index, body in enumerate(batch.bodies()):
        place = (batch.partition, header.first_sequence + index, header.stored_at_ms)
        yield Said(batch.message_id(index), *place, keys[index] or None, body)


def plain(found: Found) -> Said:
    return Said(found.id, found.subject, found.sequence, found.stored_at_ms, found.key, found.body)


def places(messages: Iterable[Said]) -> list[str]:
    return [f"{one.subject}/{one.sequence}" for one in messages]


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda position, size: data[position : position + size]

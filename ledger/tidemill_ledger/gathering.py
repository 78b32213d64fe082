"""Builds a batch of some messages of another one: for consumers who want few of many, and for later.

It has the other's id, and sums of its own. For a consumer a column INDEXES says where each message was in the batch
that the broker has; for later a column SOURCES, where it was in the batch that was sent: so sequences and ids stay what
they were. Of texts only what is wanted is read. What the producer compressed is not gathered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill_ledger.excerpts import Excerpt, Span
from tidemill_wire.batch import HEADER_BYTES, Flags, Origin, encode_batch, origin_of, stamp
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, lay_out
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.sums import tag_sum

Rows = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]
Runs = Sequence[tuple[int, int]]
Columns = list[tuple[Column, Sequence[Any]]]
NOTHING: Mapping[Column, bytes] = {}
FEW = 8
"""So many rows are looked at one by one in less time than numpy takes to begin."""

_TEXTS = {
    Column.BODY_OFFSETS: Column.BODIES,
    Column.KEY_OFFSETS: Column.KEYS,
    Column.ORDER_KEY_OFFSETS: Column.ORDER_KEYS,
    Column.PROPERTY_OFFSETS: Column.PROPERTIES,
    Column.ORIGIN_OFFSETS: Column.ORIGINS,
    Column.TIMER_KEY_OFFSETS: Column.TIMER_KEYS,
}
_NUMBERS = {
    Column.KEY_HASHES: "<u8",
    Column.CREATED_DELTAS: "<i4",
    Column.DELIVER_DELTAS: "<i8",
    Column.ATTEMPTS: "<i4",
    Column.SOURCES: "<i4",
    Column.DEDUP_KEYS: "V16",
}
_TAGS = frozenset({Column.TAG_COUNTS, Column.TAG_HASHES, Column.TAG_OFFSETS, Column.TAGS})
_KNOWN = {*_TEXTS, *_TEXTS.values(), *_NUMBERS, *_TAGS, Column.SUMS}


def can_gather(excerpt: Excerpt) -> bool:
    """Whether all columns are known, none is compressed, and each message can be checked by itself."""
    return Column.SUMS in excerpt.entries and all(
        kind in _KNOWN and not entry[0] for kind, entry in excerpt.entries.items()
    )


def tags_of(excerpt: Excerpt) -> tuple[Offsets, npt.NDArray[np.uint64]] | None:
    """Tag counts and hashes, which were needed before; ``None`` when there are no tags."""
    if Column.TAG_COUNTS not in excerpt.entries or not excerpt.span(Column.TAG_HASHES)[1]:
        return None
    counts = _growing(excerpt, Column.TAG_COUNTS, excerpt.header.messages)
    hashes = np.frombuffer(excerpt.column(Column.TAG_HASHES), "<u8")
    if counts[-1] != len(hashes):
        raise CorruptBatch("a batch counts tags that it does not hold")
    if Column.SUMS in excerpt.entries:
        said = int.from_bytes(excerpt.view(excerpt.span(Column.SUMS)[0], 4), "little")
        columns = (excerpt.column(kind) for kind in (Column.TAG_COUNTS, Column.TAG_HASHES))
        if said != tag_sum(excerpt.header.batch_id, *columns):
            raise CorruptBatch("the sum of a batch's tags does not match them")
    return counts, hashes


def spans_of_tags(excerpt: Excerpt) -> list[Span]:
    """What has to be read before ``tags_of``."""
    start, size = excerpt.span(Column.SUMS)
    return [excerpt.span(Column.TAG_COUNTS), excerpt.span(Column.TAG_HASHES), (start, min(size, 4))]


def plan(excerpt: Excerpt, rows: Rows) -> list[Span]:
    """What has to be read before ``gather``; nothing when all of it is there."""
    small = [
        kind for kind in (*_TEXTS, *_NUMBERS, *_TAGS - {Column.TAGS}, Column.SUMS) if kind in excerpt.entries
    ]
    parts = excerpt.need([excerpt.span(kind) for kind in small])
    if parts:
        return parts
    runs = runs_of(rows)
    spans: list[Span] = []
    for kind, texts in _TEXTS.items():
        if kind in excerpt.entries:
            spans += _text_spans(excerpt, texts, _growing(excerpt, kind, excerpt.header.messages), runs)
    tags = tags_of(excerpt)
    if tags is not None:
        places = _growing(excerpt, Column.TAG_OFFSETS, len(tags[1]))
        spans += _text_spans(excerpt, Column.TAGS, places, _tag_runs(tags[0], runs))
    return excerpt.need(spans)


def gather(excerpt: Excerpt, rows: Rows) -> bytearray:
    """The batch of these messages for a consumer, stamped as the other one is. What ``plan`` names has been read."""
    header = excerpt.header
    origin = origin_of(header, bytes(excerpt.view(HEADER_BYTES, header.name_length)))
    origin = replace(origin, flags=origin.flags | Flags.GATHERED)
    columns = _columns(excerpt, rows)
    columns.append((Column.INDEXES, [rows.astype("<i4").tobytes()]))
    batch = _encode(origin, rows, columns)
    place = header.first_sequence, header.position, header.stored_at_ms, header.epoch
    stamp(batch, 0, len(batch), *place)
    return batch


def part(excerpt: Excerpt, rows: Rows, origin: Origin, said: Mapping[Column, bytes] = NOTHING) -> bytearray:
    """The batch of these messages as somebody says it, not stamped; what is ``said`` replaces columns of theirs."""
    columns = [column for column in _columns(excerpt, rows) if column[0] not in said]
    columns += [(kind, [data]) for kind, data in said.items()]
    if Column.SOURCES not in excerpt.entries:
        columns.append((Column.SOURCES, [rows.astype("<i4").tobytes()]))
    return _encode(origin, rows, columns)


def source_of(excerpt: Excerpt, row: int) -> int:
    """Which message of the batch that was sent this one is."""
    if Column.SOURCES not in excerpt.entries:
        return row
    return int(np.frombuffer(excerpt.column(Column.SOURCES), "<i4", excerpt.header.messages)[row])


def ids_of(batch: Batch, first: int, count: int) -> list[str]:
    """The ids of some messages of a batch, which are those that their sender was told."""
    sources = batch.numbers(Column.SOURCES, "i", batch.header.messages)
    rows = range(first, first + count)
    return [batch.message_id(row if sources is None else sources[row]) for row in rows]


def _columns(excerpt: Excerpt, rows: Rows) -> Columns:
    header, runs = excerpt.header, runs_of(rows)
    columns: Columns = []
    for number in excerpt.entries:
        if number not in _KNOWN:
            continue  # of a newer producer: what is in it, nobody here could part
        kind = Column(number)
        if kind in _TEXTS:
            columns += _gather_texts(excerpt, (kind, _TEXTS[kind]), header.messages, runs)
        elif kind in _NUMBERS:
            numbers = np.frombuffer(excerpt.column(kind), _NUMBERS[kind], header.messages)
            columns.append((kind, [numbers[rows].tobytes()]))
        elif kind is Column.TAG_COUNTS:
            columns += _gather_tags(excerpt, runs)
    return columns


def _encode(origin: Origin, rows: Rows, columns: Columns) -> bytearray:
    return encode_batch(origin, len(rows), len(columns), lay_out(columns, Codec.NONE))


def runs_of(rows: Rows) -> list[tuple[int, int]]:
    """Rows, which grow, as runs without a gap: first row, and the one behind the last."""
    if len(rows) <= FEW:
        runs: list[tuple[int, int]] = []
        for row in rows.tolist():
            if runs and runs[-1][1] == row:
                runs[-1] = runs[-1][0], row + 1
            else:
                runs.append((row, row + 1))
        return runs
    breaks = np.flatnonzero(np.diff(rows) != 1)
    firsts = rows[np.concatenate(([0], breaks + 1))]
    lasts = rows[np.concatenate((breaks, [len(rows) - 1]))]
    return list(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))


def _gather_texts(
    excerpt: Excerpt, kinds: tuple[Column, Column], count: int, runs: Runs
) -> list[tuple[Column, Sequence[Any]]]:
    places = _growing(excerpt, kinds[0], count)
    sizes = np.diff(places)
    ends = np.cumsum(np.concatenate([np.zeros(1, np.int32), *(sizes[a:b] for a, b in runs)]), dtype=np.int32)
    texts = [excerpt.view(*span) for span in _text_spans(excerpt, kinds[1], places, runs)]
    return [(kinds[0], [ends.tobytes()]), (kinds[1], texts)]


def _gather_tags(excerpt: Excerpt, runs: Runs) -> list[tuple[Column, Sequence[Any]]]:
    tags = tags_of(excerpt)
    if tags is None:
        return []
    counts, hashes = tags
    each = np.diff(counts)
    ends = np.cumsum(np.concatenate([np.zeros(1, np.int32), *(each[a:b] for a, b in runs)]), dtype=np.int32)
    tag_runs = _tag_runs(counts, runs)
    taken = b"".join(hashes[a:b].tobytes() for a, b in tag_runs)
    sums = np.frombuffer(excerpt.column(Column.SUMS), "<u4", 1 + excerpt.header.messages)
    kept = np.concatenate([sums[1 + a : 1 + b] for a, b in runs])
    first = tag_sum(excerpt.header.batch_id, ends.tobytes(), taken)
    texts = _gather_texts(excerpt, (Column.TAG_OFFSETS, Column.TAGS), len(hashes), tag_runs)
    return [
        (Column.TAG_COUNTS, [ends.tobytes()]),
        (Column.TAG_HASHES, [taken]),
        (Column.SUMS, [first.to_bytes(4, "little"), kept.tobytes()]),
        *texts,
    ]


def _tag_runs(counts: Offsets, runs: Runs) -> list[tuple[int, int]]:
    return [(int(counts[a]), int(counts[b])) for a, b in runs]


def _text_spans(excerpt: Excerpt, kind: Column, places: Offsets, runs: Runs) -> list[Span]:
    start, size = excerpt.span(kind)
    if places[-1] != size:
        raise CorruptBatch(f"the offsets of column {kind.name} do not span it")
    return [(start + int(places[a]), int(places[b] - places[a])) for a, b in runs]


def _growing(excerpt: Excerpt, kind: Column, count: int) -> Offsets:
    places = np.frombuffer(excerpt.column(kind), "<i4")
    if len(places) != count + 1 or places[0] != 0 or not (places[1:] >= places[:-1]).all():
        raise CorruptBatch(f"the numbers of column {kind.name} do not grow from 0")
    return places

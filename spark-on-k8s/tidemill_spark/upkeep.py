"""What keeps a lake in shape: small files into larger ones, and what is old out of it.

    compact    the files of an hour that are small -> one; a commit that adds it and takes those out
    expire     the files whose messages were all stored before a time are taken out
    sweep      deletes what no commit has, and what was taken out, each a day later (``lake.py``)

A reader goes on with the commit that it began with. Two who compact the same hour: the second is told that its files
are gone, and deletes what it made.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from tidemill_spark.action_tables import STORED, read_actions, sorted_rows, write_actions
from tidemill_spark.arrow import pa
from tidemill_spark.commits import Commit, File
from tidemill_spark.decode import UNPACKED_BYTES
from tidemill_spark.lake import Lake
from tidemill_spark.layout import Hour, ids_name
from tidemill_spark.stores import Store, open_store
from tidemill_spark.tables import read_from, unpacked_bytes, write_file
from tidemill_spark.workers import Workers
from tidemill_wire.limits import MIB

TARGET_BYTES = 128 * MIB
SMALL_SHARE = 2
"""A file is small below so large a part of the target."""


Made: TypeAlias = list[tuple[tuple[str, ...], File]]
"""The names of files, and the one that was written of them."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one hour that become one."""

    uri: str
    files: tuple[File, ...]
    compression: str


@dataclass(slots=True)
class Compacted:
    """What became of it."""

    merged: int = 0
    """Files that were there before, and ``made`` after."""
    made: int = 0
    rows: int = 0
    lost: int = 0
    """Merges in vain: somebody else had merged, or expired, one of their files."""


def merges(lake: Lake, compression: str, target_bytes: int = TARGET_BYTES) -> list[Merge]:
    """Which files belong together. A file that is large enough is left alone."""
    small = [one for one in lake.files() if one.size < target_bytes // SMALL_SHARE]
    hours = groupby(small, key=lambda one: (one.subject, one.date, one.hour))
    portions = (
        some for _, hour in hours for some in _portions(sorted(hour, key=lambda one: one.spans), target_bytes)
    )
    return [Merge(lake.store.uri, tuple(some), compression) for some in portions if len(some) > 1]


def _portions(
    files: Sequence[File], most: int, size: Callable[[File], int] = lambda one: one.size
) -> Iterator[list[File]]:
    portion: list[File] = []
    for one in files:
        if portion and sum(map(size, portion)) + size(one) > most:
            yield portion
            portion = []
        portion.append(one)
    yield portion


def compact(
    lake: Lake,
    workers: Workers,
    now_ms: Callable[[], int],
    compression: str = "Zstd",
    target_bytes: int = TARGET_BYTES,
    rewrite: Callable[[Merge], Made] | None = None,
) -> Compacted:
    """Merge what is small, each portion by a commit of its own. ``rewrite`` is ``merged`` or ``merged_actions``."""
    done = Compacted()
    for _, made in workers.each(rewrite or merged, merges(lake, compression, target_bytes)):
        for removed, file in made:
            said, _ = lake.commit(
                Commit(secrets.token_hex(16), "compact", now_ms(), added=(file,), removed=removed)
            )
            if said is None:
                lake.store.delete([file.name, ids_name(file.name)])
                done.lost += 1
            else:
                done.merged += len(removed)
                done.made += 1
                done.rows += file.rows
    return done


def merged(merge: Merge) -> Made:
    """The files as one, written; or as several, when they unpack to more than is good to hold."""
    return list(_merged(merge, read_from, write_file))


def merged_actions(merge: Merge) -> Made:
    """The same of files of actions."""

    def write(store: Store, table: Any, hour: Hour, stem: str, compression: str) -> File:
        return write_actions(store, sorted_rows(table), hour, stem, compression)

    return list(_merged(merge, lambda store, file: read_actions(store, file, STORED), write))


def _merged(
    merge: Merge, read: Callable[[Store, File], Any], write: Callable[[Store, Any, Hour, str, str], File]
) -> Iterator[tuple[tuple[str, ...], File]]:
    store, first = open_store(merge.uri), merge.files[0]
    hour = Hour(first.subject, first.date, first.hour)
    sizes = {one: unpacked_bytes(store, one) for one in merge.files}
    for files in _portions(merge.files, UNPACKED_BYTES, sizes.__getitem__):
        if len(files) > 1:
            table = pa.concat_tables([read(store, one) for one in files])
            made = write(store, table, hour, f"c-{secrets.token_hex(8)}", merge.compression)
            yield tuple(one.name for one in files), made


def expire(lake: Lake, before_ms: int, now_ms: int, subjects: Sequence[str] = ()) -> list[File]:
    """Take files out whose messages were all stored before a time. What others rewrite meanwhile goes the next time."""
    old = lake.files(subjects, wanted=lambda one: one.stored_ms[1] < before_ms)
    if not old:
        return []
    removed = tuple(one.name for one in old)
    said, _ = lake.commit(Commit(secrets.token_hex(16), "expire", now_ms, removed=removed))
    return old if said is not None else []

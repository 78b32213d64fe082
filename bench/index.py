"""How long a look-up takes in indexes of a hundred million entries that are on the disk and in no cache.

    python -m bench.index [--segments 12] [--entries 8388608] [--lookups 200] [--folder DIR]

Makes that many index files with the broker's own code, and looks keys up in all of them, as a query through all
subjects does: one key is in one segment, and no segment can be left out. Before each look-up the pages of all files are
dropped from the page cache. Prints one JSON object: milliseconds with the heads in memory, which is how a broker that
runs has them, and without; reads of files; and what making a file took.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tidemill_journal.index import ReadAt, SealedIndex, decode_head, encode_index

BATCH_MESSAGES = 100
BATCH_BYTES = 12_800


def make(folder: Path, number: int, entries: int) -> Path:
    """One segment's file: hashes without a pattern, a batch id for a hundred of them."""
    chance = np.random.default_rng(number)
    hashes = chance.integers(1, 1 << 64, entries, dtype=np.uint64, endpoint=False)
    places = np.arange(entries, dtype=np.uint64) // BATCH_MESSAGES * BATCH_BYTES + (number << 30)
    ids = np.sort(chance.integers(1, 1 << 64, entries // BATCH_MESSAGES, dtype=np.uint64, endpoint=False))
    base = number << 30
    data = encode_index(base, base + (1 << 30), (ids, places[::BATCH_MESSAGES][: len(ids)]), (hashes, places))
    path = folder / f"{base:020}.index"
    with path.open("wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    return path


def some_hashes(number: int, entries: int, count: int) -> list[int]:
    hashes = np.random.default_rng(number).integers(1, 1 << 64, entries, dtype=np.uint64, endpoint=False)
    return [int(value) for value in hashes[:: max(1, entries // count)][:count]]


def reader(descriptor: int, counts: list[int]) -> ReadAt:
    def read(position: int, size: int) -> bytes:
        counts[0] += 1
        return os.pread(descriptor, size, position)

    return read


def drop(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def measure(paths: list[Path], wanted: list[int], *, heads_known: bool) -> dict[str, Any]:
    """Milliseconds of each look-up."""
    descriptors = [os.open(path, os.O_RDONLY) for path in paths]
    counts = [0]
    reads = [reader(descriptor, counts) for descriptor in descriptors]
    known = [head_of(path, read) for path, read in zip(paths, reads, strict=True)]
    counts[0] = 0
    times: list[float] = []
    for value in wanted:
        drop(descriptors)
        began = time.perf_counter()
        heads = known if heads_known else map(head_of, paths, reads)
        found = [
            place
            for head, read in zip(heads, reads, strict=True)
            if head.keys.may_hold(value)
            for place in head.keys.upward(read, value)
        ]
        times.append((time.perf_counter() - began) * 1000)
        assert len(found) == 1, found
    for descriptor in descriptors:
        os.close(descriptor)
    times.sort()
    return {
        "p50_ms": round(times[len(times) // 2], 3),
        "p99_ms": round(times[len(times) * 99 // 100], 3),
        "max_ms": round(times[-1], 3),
        "reads_a_lookup": round(counts[0] / len(wanted), 2),
    }


def head_of(path: Path, read: ReadAt) -> SealedIndex:
    base = int(path.stem)
    return decode_head(read, path.stat().st_size, base, base + (1 << 30))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--segments", type=int, default=12)
    arguments.add_argument("--entries", type=int, default=1 << 23)
    arguments.add_argument("--lookups", type=int, default=200)
    arguments.add_argument("--folder", default=None)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        began, used = time.perf_counter(), time.process_time()
        paths = [make(Path(name), number, options.entries) for number in range(options.segments)]
        took, cpu = time.perf_counter() - began, time.process_time() - used
        wanted = [
            value
            for number in range(options.segments)
            for value in some_hashes(number, options.entries, -(-options.lookups // options.segments))
        ]
        random.Random(1).shuffle(wanted)
        wanted = wanted[: options.lookups]
        result = {
            "entries": options.segments * options.entries,
            "files": options.segments,
            "file_bytes": paths[0].stat().st_size,
            "make_seconds_a_file": round(took / options.segments, 2),
            "make_cpu_seconds_a_file": round(cpu / options.segments, 2),
            "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "heads_in_memory": measure(paths, wanted, heads_known=True),
            "heads_on_disk": measure(paths, wanted, heads_known=False),
        }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

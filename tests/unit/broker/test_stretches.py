"""What of a partition may be archived: all that is on the disk, once, in pieces, and nothing that may still vanish."""

from __future__ import annotations

import random
from itertools import pairwise

from samples.brokers import SUBJECT, Rig, read_file
from tidemill_broker.partitions import Partition
from tidemill_broker.stretches import Gathered, parts, pieces, readable, since
from tidemill_journal.entries import read_windows, run_file
from tidemill_journal.segments import Segments
from tidemill_wire.columns import split_batches

OTHER = "order.paid"


def partition_of(rig: Rig, subject: str = SUBJECT) -> Partition:
    return rig.broker.state.by_name[subject.encode()]


def gathered(rig: Rig, first: int, end: int, size: int = 1 << 20, extents: int = 1 << 16) -> Gathered:
    partition = partition_of(rig)
    found = Gathered(first, end, size, extents)
    for part in parts(partition, rig.broker.logs.messages, first, end):
        rows = part.rows
        if rows is None:
            assert part.run is not None
            place, length = part.run.window_place(0, len(part.run.sparse))
            rows = read_windows(read_file(rig.disk, run_file(part.base))[place : place + length])
        found.add(part, rows)
    found.finish(end)
    return found


def sequences(rig: Rig, found: Gathered) -> list[int]:
    data = b"".join(
        read_file(rig.disk, one.file)[one.position : one.position + one.size] for one in found.extents
    )
    assert len(data) == found.size
    batches = split_batches(data)
    assert {batch.partition for batch in batches} <= {SUBJECT}
    return [
        batch.header.first_sequence + index for batch in batches for index in range(batch.header.messages)
    ]


def filled() -> Rig:
    rig = Rig()
    for number in range(40):
        rig.send(*[b"m"] * (1 + number % 3))
        if number % 4 == 0:
            rig.send(b"x", subject=OTHER)
    return rig


def test_every_range_is_read_whole_whatever_the_bounds_of_an_answer() -> None:
    rig = filled()
    end = partition_of(rig).next_sequence
    assert len(partition_of(rig).runs) > 2
    chance = random.Random(1)
    for size, extents in ((1 << 20, 1 << 16), (1, 1 << 16), (700, 1 << 16), (1 << 20, 1), (1000, 2)):
        first, until = sorted(chance.sample(range(end + 1), 2))
        seen, at = list[int](), first
        while at < until:
            found = gathered(rig, at, until, size, extents)
            assert found.next > at
            seen += sequences(rig, found)
            at = found.next
        batches = sorted({one for one in seen if first <= one < until})
        assert batches == list(range(first, until))
        assert len(seen) == len(set(seen))


def test_batches_that_lie_side_by_side_are_one_extent() -> None:
    rig = Rig()
    rig.fill(12)

    assert len(gathered(rig, 0, 12).extents) == len(rig.broker.logs.messages.bases)


def test_pieces_are_all_there_is_and_nothing_twice() -> None:
    rig = filled()
    end = partition_of(rig).next_sequence
    found = list(pieces(partition_of(rig), 3, end - 2))

    assert (found[0].first, found[-1].next) == (3, end - 2)
    assert all(one.next == other.first for one, other in pairwise(found))


def test_only_what_is_on_the_disk_may_be_read() -> None:
    """A sequence whose message a power cut takes is used again: whoever had read it would miss the other one."""
    rig = Rig()
    rig.fill(15)
    partition, logs = partition_of(rig), rig.broker.logs
    ends = [readable(partition, logs.messages, limit) for limit in range(0, logs.messages.end + 8, 8)]

    assert partition.visible == 15
    assert ends == sorted(ends)
    assert (ends[0], ends[-1]) == (0, 15)
    assert set(ends) - set(range(16)) == set()
    before = readable(partition, logs.messages, logs.synced_message_position)
    rig.power_cut()
    assert partition_of(rig).next_sequence >= before


def test_what_may_be_read_is_known_without_a_look_at_each_segment() -> None:
    """It is asked for a thousand partitions at once, of which most were written to long ago."""

    class Counting(Segments):
        asked = 0

        def end_of(self, base: int) -> int:
            self.asked += 1
            return super().end_of(base)

    rig = filled()
    partition, segments = partition_of(rig), rig.broker.logs.messages
    counting = Counting("message", segments.size_max, list(segments.bases), segments.end)
    assert len(partition.runs) > 2

    assert readable(partition, counting, segments.open_base) == partition.runs[-1].run.end_sequence
    assert counting.asked == 1


def test_a_time_is_the_first_row_from_then_on() -> None:
    rig = Rig()
    rig.fill(2)
    rig.now_ms += 1000
    rig.fill(2)
    rows = partition_of(rig).recent

    assert since(rows, 0) == 0
    assert since(rows, rig.now_ms - 1) == 2
    assert since(rows, rig.now_ms + 1) is None

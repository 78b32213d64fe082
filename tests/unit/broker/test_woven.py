"""Batches of several partitions in one answer: all of each, once, whatever an answer may hold."""

from __future__ import annotations

import random

import numpy as np

from samples.brokers import SUBJECT, Rig, read_file
from tidemill_broker.stretches import parts
from tidemill_broker.woven import HEAD, Cut, Woven
from tidemill_journal.entries import Rows, Run, read_windows, run_file
from tidemill_wire.columns import split_batches

NAMES = (SUBJECT, "order.paid", "order.sent")


def filled() -> Rig:
    rig = Rig()
    chance = random.Random(7)
    for _ in range(60):
        rig.send(*[b"m"] * chance.randint(1, 3), subject=chance.choice(NAMES))
    return rig


def woven(rig: Rig, spans: dict[str, tuple[int, int]], size: int, rows: int) -> Woven:
    found = Woven(list(spans.values()), size, rows)
    for number, (name, (first, end)) in enumerate(spans.items()):
        for part in parts(rig.broker.state.by_name[name.encode()], rig.broker.logs.messages, first, end):
            if not found.add(number, part, _rows(rig, part.base, part.rows, part.run)):
                break
        found.finish(number)
        if found.full:
            break
    return found


def _rows(rig: Rig, base: int, rows: Rows | None, run: object) -> Rows:
    if rows is not None:
        return rows
    assert isinstance(run, Run)
    place, length = run.window_place(0, len(run.sparse))
    return read_windows(read_file(rig.disk, run_file(base))[place : place + length])


def opened(
    rig: Rig, spans: dict[str, tuple[int, int]], cut: Cut
) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """Where each goes on, and the messages of the answer."""
    ranges, batches = HEAD.unpack_from(cut.head)
    assert ranges == len(spans)
    next_ = np.frombuffer(cut.head, "<i8", ranges, HEAD.size).tolist()
    owners = np.frombuffer(cut.head, "<u4", batches, HEAD.size + 8 * ranges).tolist()
    assert len(cut.head) == HEAD.size + 8 * ranges + 4 * batches
    data = b"".join(read_file(rig.disk, one.file)[one.position :][: one.size] for one in cut.extents)
    assert len(data) == cut.size
    found = split_batches(data)
    names = list(spans)
    assert [names[owner] for owner in owners] == [batch.partition for batch in found]
    places = [batch.header.position for batch in found]
    assert places == sorted(places)
    said = [
        (batch.partition, batch.header.first_sequence + index)
        for batch in found
        for index in range(batch.header.messages)
    ]
    return dict(zip(names, next_, strict=True)), said


def test_all_of_each_partition_comes_once_whatever_the_bounds_of_an_answer() -> None:
    rig = filled()
    ends = {name: rig.broker.state.by_name[name.encode()].next_sequence for name in NAMES}
    assert len(rig.broker.logs.messages.bases) > 2
    for size, rows in ((1 << 20, 1 << 16), (1, 1 << 16), (700, 1 << 16), (1 << 20, 1), (1000, 5)):
        spans = {name: (2, end) for name, end in ends.items()}
        seen: list[tuple[str, int]] = []
        while spans:
            next_, said = opened(rig, spans, woven(rig, spans, size, rows).cut())
            assert said or all(at >= spans[name][1] for name, at in next_.items())
            seen += said
            spans = {name: (at, ends[name]) for name, at in next_.items() if at < ends[name]}
        wanted = [(name, at) for name, end in ends.items() for at in range(2, end)]
        assert sorted(one for one in seen if one[1] >= 2) == sorted(wanted)
        assert len(set(seen)) == len(seen)


def test_partitions_that_lie_among_each_other_are_one_extent_a_segment() -> None:
    rig = filled()
    spans = {name: (0, rig.broker.state.by_name[name.encode()].next_sequence) for name in NAMES}
    cut = woven(rig, spans, 1 << 20, 1 << 16).cut()

    assert len(cut.extents) == len({one.file for one in cut.extents}) > 2


def test_rows_behind_what_is_wanted_are_asked_for_by_nobody() -> None:
    rig = filled()
    partition = rig.broker.state.by_name[SUBJECT.encode()]
    every = list(parts(partition, rig.broker.logs.messages, 0, partition.next_sequence))
    found = Woven([(0, every[0].run.end_sequence if every[0].run is not None else 0)], 1 << 20, 1 << 16)

    assert len(every) > 1
    assert not found.add(0, every[0], _rows(rig, every[0].base, every[0].rows, every[0].run))
    found.finish(0)
    assert not found.full


def test_nothing_is_an_answer_that_says_where_to_go_on() -> None:
    rig = filled()
    spans = {SUBJECT: (3, 3), "order.paid": (2, 2)}
    next_, said = opened(rig, spans, woven(rig, spans, 1 << 20, 1 << 16).cut())

    assert next_ == {SUBJECT: 3, "order.paid": 2}
    assert said == []

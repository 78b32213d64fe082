"""What is told of subjects and groups: right, bounded, and without a read of the disk."""

from __future__ import annotations

import asyncio
import time

import pytest

from tidemill_broker.actions import FailureDetail
from tidemill_broker.census import OfGroup, OfSubject, group_row, groups_of, stored_ms, subject_row
from tidemill_broker.doors.status import group_rows
from tidemill_broker.doors.survey import Survey
from tidemill_broker.failures import Failure
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.groups import Group
from tidemill_broker.partitions import Partition, StoredRun, SubjectSettings
from tidemill_broker.pull_log import Consumer, Delivery
from tidemill_broker.state import State
from tidemill_broker.statistics import Mistakes
from tidemill_host.clock import RealClock
from tidemill_journal.entries import Rows, layout_runs, pack_size
from tidemill_wire.limits import METRIC_GROUPS_MAX, METRIC_MISTAKES_MAX, METRIC_SUBJECTS_MAX
from tidemill_wire.metrics.of_brokers import BROKERS
from tidemill_wire.metrics.page import Page

SETTINGS = SubjectSettings("high", 3600, 0, 1 << 20)
MANY = 10_000
SCRAPE_SECONDS = 1.0
SCRAPE_BYTES = 20_000_000


def state_of(subjects: int, batches: int = 3) -> State:
    """Subjects of batches of ten messages that were stored a second apart, and a group that has the first of them."""
    state = State()
    for number in range(1, subjects + 1):
        partition = state.add_partition(number, f"subject.{number}", SETTINGS)
        for batch in range(batches):
            partition.stored(10 * batch, 1000 * batch, pack_size(500, 10), 1000 * (batch + 1))
        partition.visible = partition.next_sequence
        state.add_group(Group(number, number, "g", 10, 0, GroupSettings()))
    return state


def test_a_group_tells_how_far_it_is_behind_in_messages_and_in_seconds() -> None:
    state = state_of(1)
    group = state.groups[1]
    consumer = Consumer(1, group, "c")
    consumer.peer = 7
    group.consumers["c"] = consumer
    consumer.deliveries.append(Delivery(0, 5, 5, 0, 99_000))
    group.in_flight = 5
    group.fail(Failure(2, 3, 1, 50_000, 900))

    assert subject_row(state, state.partitions[1]) == OfSubject(30, 1500, 30)
    assert group_row(state, group, 10_000) == OfGroup(
        lag=20, lag_ms=8000, oldest_ms=9000, in_flight=5, failed=3, dead=0, consumers=1, paused=0, suspended=0,
        over_quota=0, acked=0, buried=0,
    )  # fmt: skip


def test_what_retention_took_is_no_lag_of_a_group_that_has_not_pulled_since() -> None:
    state = state_of(1)
    group, partition = state.groups[1], state.partitions[1]
    partition.recent = Rows()
    partition.recent.append(20, 2000, pack_size(500, 10), 3000)

    assert group_row(state, group, 10_000)[:2] == (10, 7000)
    assert [row["lag"] for row in group_rows(state)] == [10]

    partition.recent = Rows()
    assert group_row(state, group, 10_000)[:2] == (0, 0)
    assert [row["lag"] for row in group_rows(state)] == [0]


def test_a_group_that_has_all_has_no_lag() -> None:
    state = state_of(1)
    state.groups[1].cursor = 30

    assert group_row(state, state.groups[1], 10_000)[:3] == (0, 0, 0)


@pytest.mark.parametrize("held", [True, False], ids=["rows in memory", "rows on the disk"])
def test_a_sealed_segment_tells_about_when_it_was_stored(held: bool) -> None:
    partition = Partition(1, "a", SETTINGS)
    for base in (0, 1):
        rows = Rows()
        for batch in range(10):
            number = 10 * base + batch
            rows.append(10 * number, 1000 * number, pack_size(500, 10), 1000 * (number + 1))
        partition.runs.append(StoredRun(layout_runs([(1, rows)], base)[1], rows if held else None))
    partition.next_sequence = partition.visible = 200

    exact = 1000 * (150 // 10 + 1)
    assert abs(stored_ms(partition, 150, 99_000) - exact) <= (0 if held else 1000)
    assert stored_ms(partition, 0, 99_000) == (1000 if held else 10_000), "of the first segment: its end"


def test_ten_thousand_subjects_are_told_in_a_second_with_bounded_labels() -> None:
    state, clock = state_of(MANY), RealClock()
    survey = Survey(state, clock)

    async def told() -> bytes:
        page = Page(BROKERS, "tidemill_")
        await survey.put(page)
        return page.to_bytes()

    asyncio.run(told())
    began = time.process_time()
    page = asyncio.run(told())

    assert time.process_time() - began < SCRAPE_SECONDS
    assert len(page) < SCRAPE_BYTES
    lines = page.decode().splitlines()
    subjects = [line for line in lines if line.startswith("tidemill_subject_kept_messages{")]
    groups = [line for line in lines if line.startswith("tidemill_group_lag_messages{")]
    assert (len(subjects), len(groups)) == (METRIC_SUBJECTS_MAX + 1, METRIC_GROUPS_MAX + 1)
    assert f'tidemill_subject_kept_messages{{subject="other"}} {30 * (MANY - METRIC_SUBJECTS_MAX)}' in lines
    total = sum(float(line.rpartition(" ")[2]) for line in groups)
    assert total == 20 * MANY


def test_a_look_lets_others_work_in_between() -> None:
    state, turns = state_of(2000), 0

    async def both() -> int:
        nonlocal turns

        async def work() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        working = asyncio.create_task(work())
        await Survey(state, RealClock()).put(Page(BROKERS, "tidemill_"))
        working.cancel()
        return turns

    assert asyncio.run(both()) > 2


def test_paused_groups_and_those_with_lag_have_a_name_before_those_with_traffic() -> None:
    state = state_of(METRIC_GROUPS_MAX + 50)
    for group in groups_of(state):
        group.cursor = 30
        group.acked = 1000
    quiet = state.groups[METRIC_GROUPS_MAX + 50]
    quiet.acked, quiet.paused = 0, (1, "0a1b2c3d")
    behind = state.groups[METRIC_GROUPS_MAX + 49]
    behind.acked, behind.cursor = 0, 0

    async def told() -> str:
        page = Page(BROKERS, "tidemill_")
        await Survey(state, RealClock()).put(page)
        return page.to_bytes().decode()

    page = asyncio.run(told())

    assert f'tidemill_group_paused{{subject="subject.{METRIC_GROUPS_MAX + 50}",group="g"}} 1' in page
    assert f'tidemill_group_lag_messages{{subject="subject.{METRIC_GROUPS_MAX + 49}",group="g"}} 30' in page


def test_of_many_mistakes_those_with_most_dead_letters_are_kept_and_all_are_counted() -> None:
    mistakes = Mistakes()
    for number in range(METRIC_MISTAKES_MAX + 20):
        detail = FailureDetail("", "ValueError" * 10, "", f"{number:08x}")
        mistakes.note(detail, detail.fingerprint, number + 1)

    rows = dict(mistakes.rows())
    assert len(rows) == METRIC_MISTAKES_MAX + 1
    assert sum(rows.values()) == sum(range(1, METRIC_MISTAKES_MAX + 21))
    assert all(len(error) <= 64 for _, error in rows)

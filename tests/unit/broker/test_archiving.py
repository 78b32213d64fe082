"""What is to be archived is kept until it is, over restarts and power cuts; what nobody archives goes as ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig
from tidemill_broker.archiving import lag_of
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_wire.lanes import first_of_lane, lane_name

QUICK = replace(TINY, retention_seconds=1, retention_interval_ms=100, checkpoint_pause_ms=0)
REQUIRED = SubjectSettings("low", 1, 0, 1 << 20, archived=())


def rig_of(count: int = 20, settings: SubjectSettings = REQUIRED) -> Rig:
    rig = Rig(QUICK)
    rig.broker.intake.declare(SUBJECT, settings, rig.now_ms)
    rig.fill(count)
    return rig


def later(rig: Rig) -> Rig:
    """All is too old, and what there is has been checkpointed."""
    for _ in range(60):
        rig.now_ms += 1000
        rig.broker.ticked(rig.now_ms)
        rig.pump()
    return rig


def partition_of(rig: Rig) -> Partition:
    return rig.broker.state.by_name[SUBJECT.encode()]


def tell(rig: Rig, *archived: tuple[str, int], released: tuple[str, ...] = ()) -> None:
    rig.broker.archiving.obey(archived, released, rig.now_ms)
    rig.pump()


def test_what_no_archive_has_stays_and_what_they_have_goes() -> None:
    rig = later(rig_of())
    assert partition_of(rig).first_kept == 0
    assert sum(count for count, _ in lag_of(rig.broker.state)) == 20

    tell(rig, (SUBJECT, 7))
    later(rig)
    assert partition_of(rig).first_kept == partition_of(rig).runs[0].run.first_sequence == 6
    assert sum(count for count, _ in lag_of(rig.broker.state)) == 13


def test_a_subject_that_asks_for_no_archive_goes_as_ever() -> None:
    rig = later(rig_of(settings=replace(REQUIRED, archived=None)))

    assert partition_of(rig).first_kept == 18
    assert list(lag_of(rig.broker.state)) == []


@pytest.mark.parametrize("how", ["restart", "power_cut"])
def test_who_starts_again_knows_what_archives_have_and_drops_no_more(how: str) -> None:
    rig = rig_of()
    tell(rig, (SUBJECT, 7))
    for _ in range(20):
        rig.now_ms += 100
        rig.broker.ticked(rig.now_ms)
        rig.pump()
    getattr(rig, how)()
    later(rig)

    assert partition_of(rig).settings.archived == ((0, 7),)
    assert partition_of(rig).first_kept == 6


def test_when_all_archives_have_ended_nothing_is_held_and_another_one_holds_again() -> None:
    rig = rig_of()
    tell(rig, released=(SUBJECT,))
    tell(rig, (SUBJECT, 3))
    later(rig)
    assert partition_of(rig).first_kept == 0

    tell(rig, released=(SUBJECT,))
    later(rig)
    assert partition_of(rig).first_kept == 18


def test_lanes_are_held_by_their_own_watermarks() -> None:
    rig = rig_of(6)
    for _ in range(20):
        rig.send(b"tide", priority=5)
    lane = lane_name(SUBJECT, 5)
    tell(rig, (SUBJECT, 6), (lane, first_of_lane(5) + 8))
    later(rig)

    assert rig.broker.state.by_name[lane.encode()].first_kept - first_of_lane(5) == 6


def test_a_declaration_that_comes_again_takes_nothing_back() -> None:
    rig = rig_of()
    tell(rig, (SUBJECT, 7))
    rig.broker.intake.declare(SUBJECT, replace(REQUIRED, retention_seconds=2), rig.now_ms)
    assert partition_of(rig).settings.archived == ((0, 7),)

    rig.broker.intake.declare(SUBJECT, replace(REQUIRED, archived=None), rig.now_ms)
    assert partition_of(rig).settings.archived is None
    rig.broker.intake.declare(SUBJECT, REQUIRED, rig.now_ms)
    assert partition_of(rig).settings.archived == ()

"""Which lane of a group is next: the highest that waits, and a share for the others."""

from __future__ import annotations

from samples.brokers import SUBJECT
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.groups import Group
from tidemill_broker.lanes import Kin, Lane, group_in
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_wire.lanes import first_of_lane
from tidemill_wire.limits import LANE_SHARE

SETTINGS = SubjectSettings("normal", 3600, 0, 1 << 20)


def kin_of(*priorities: int) -> Kin:
    base = Partition(1, SUBJECT, SETTINGS)
    kin = Kin(Group(1, 1, "g", 0, 0, GroupSettings()))
    for number, priority in enumerate(priorities, 2):
        kin.join(group_in(Lane(number, base, priority, SETTINGS), kin.head, (first_of_lane(priority), 0)))
    return kin


def test_the_highest_that_waits_is_next() -> None:
    kin = kin_of(3, 7, 5)

    assert [one.identity >> 28 for one in kin.turns(list(kin.groups))] == [7, 5, 3, 0]
    assert [one.identity >> 28 for one in kin.turns(kin.groups[2:])] == [3, 0]


def test_a_lane_that_waits_is_owed_one_message_of_sixteen() -> None:
    kin = kin_of(7)
    high, low = kin.groups

    assert kin.turns([high, low])[0] is high
    kin.gave(high, LANE_SHARE - 1)
    assert kin.turns([high, low])[0] is high
    kin.gave(high, 2 * LANE_SHARE)
    assert kin.turns([high, low])[0] is low
    assert kin.room_of(low) == 2, "what it is owed, and no more"
    kin.gave(low, 2)
    assert kin.turns([high, low])[0] is high


def test_a_lane_that_has_nothing_is_owed_nothing() -> None:
    kin = kin_of(7)
    high, low = kin.groups
    kin.turns([high, low])
    kin.gave(high, 1000)
    kin.turns([high])

    assert kin.turns([high, low])[0] is high


def test_a_lane_of_which_nothing_was_wanted_waits_for_its_share_anew() -> None:
    kin = kin_of(7)
    high, low = kin.groups
    kin.turns([high, low])
    kin.gave(high, 1000)
    assert kin.turns([high, low]) == [low, high]
    kin.gave(high, 1)

    assert kin.turns([high, low])[0] is high

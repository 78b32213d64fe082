"""Who becomes master: every row of the table in promotion.py, and what must not happen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemill_meta.promotion import Member, judge, problem_of, promoted
from tidemill_meta.values import BrokerGroup

THREE = (("a", 1), ("b", 1), ("c", 1))
LED = BrokerGroup("g", 4, "a", THREE, THREE, version=7)


def member(name: str, **other: Any) -> Member:
    given: dict[str, Any] = {
        "boot": 1,
        "alive": True,
        "reported": True,
        "epoch": 4,
        "messages": 100,
        "actions": 50,
    }
    return Member(name, **(given | other))


def members(**changed: dict[str, Any]) -> dict[str, Member]:
    return {name: member(name, **({"leads": name == "a"} | changed.get(name, {}))) for name in "abc"}


DEAD = {"alive": False, "reported": False, "outlived": True}


def test_group_in_which_all_is_well_stays_as_it_is() -> None:
    assert judge(LED, members()) is LED
    assert problem_of(LED, members()) == ""


def test_slave_that_said_goodbye_leaves_when_its_master_was_heard_since() -> None:
    gone = {"alive": False, "reported": False}

    assert judge(LED, members(c=gone)) is LED
    assert judge(LED, members(c=gone | {"outlived": True})).in_sync == (("a", 1), ("b", 1))


def test_dead_and_late_slaves_leave_the_set_and_the_epoch_stays() -> None:
    judged = judge(LED, members(b=DEAD, c={"behind": True}))

    assert judged == replace(LED, in_sync=(("a", 1),))


def test_slave_that_was_started_again_leaves_the_set() -> None:
    group = replace(LED, replicas=(("a", 1), ("b", 2), ("c", 1)))

    assert judge(group, members(b={"boot": 2, "outlived": True})).in_sync == (("a", 1), ("c", 1))


def test_slave_that_was_started_again_stays_until_the_master_is_heard_and_leads_when_that_is_dead() -> None:
    """A master without power is not known to be dead yet: without the slave nobody would have what is committed."""
    group = replace(LED, replicas=(("a", 1), ("b", 2)), in_sync=(("a", 1), ("b", 1)))
    waits = members(b={"boot": 2})

    assert judge(group, waits) is group
    judged = judge(group, members(a=DEAD, b={"boot": 2}))
    assert (judged.master, judged.epoch) == ("b", 5)


def test_dead_master_is_followed_by_the_longest_log_in_sync() -> None:
    judged = judge(LED, members(a=DEAD, b={"messages": 120}, c={"messages": 130}))

    assert (judged.master, judged.epoch, judged.in_sync) == ("c", 5, (("b", 1), ("c", 1)))


def test_longest_log_out_of_sync_is_never_promoted() -> None:
    group = replace(LED, in_sync=(("a", 1), ("b", 1)))

    judged = judge(group, members(a=DEAD, b={"messages": 10}, c={"messages": 999}))

    assert (judged.master, judged.in_sync) == ("b", (("b", 1),))


def test_without_a_living_replica_in_sync_nothing_is_promoted_and_it_is_shown() -> None:
    group = replace(LED, in_sync=(("a", 1), ("b", 1)))
    dead = members(a=DEAD, b=DEAD)

    assert judge(group, dead) is group
    assert problem_of(group, dead).startswith("no replica in sync lives (a, b)")


def test_replica_that_comes_back_without_its_disk_is_never_promoted() -> None:
    empty = {"boot": 2, "messages": 0, "actions": 0}
    group = replace(LED, in_sync=(("a", 1), ("b", 1)))

    waits = members(a=DEAD, b=empty)
    assert judge(group, waits) is group
    assert "with its disk" in problem_of(group, waits)
    group = replace(group, replicas=(("a", 2), ("b", 2)))
    back = judge(group, members(a={"boot": 2}, b=empty))
    assert (back.master, back.in_sync) == ("a", (("a", 2),))


def test_group_that_never_had_anything_goes_on_when_all_of_it_was_started_again() -> None:
    empty = {"boot": 2, "messages": 0, "actions": 0}

    group = replace(LED, replicas=(("a", 2), ("b", 2), ("c", 2)))

    assert judge(group, members(a=empty, b=empty, c=DEAD)) is group
    assert judge(group, members(a=empty, b=empty, c=empty)).epoch == 5
    alone = replace(group, in_sync=(("a", 1),))
    assert judge(alone, members(a=empty, b=empty)) is alone, "c has something"


def test_set_is_not_emptied_while_there_is_no_master() -> None:
    """Whoever of the set comes back first may lead: it has all that is committed."""
    group = judge(LED, members(a=DEAD, b=DEAD, c=DEAD))
    assert group is LED

    back = judge(group, members(a=DEAD, b=DEAD))
    assert (back.master, back.epoch) == ("c", 5)


def test_master_that_was_started_again_leads_in_a_new_epoch_at_best() -> None:
    group = replace(LED, replicas=(("a", 2), ("b", 1), ("c", 1)))
    assert group.appointment().master == ""

    judged = judge(group, members(a={"boot": 2, "messages": 500}))
    assert (judged.master, judged.epoch) == ("c", 5)

    alone = replace(group, replicas=(("a", 2),), in_sync=(("a", 1),))
    again = judge(alone, {"a": member("a", boot=2)})
    assert (again.master, again.epoch, again.in_sync, again.seated) == ("a", 5, (("a", 2),), True)


def test_restarted_master_waits_for_a_slave_that_was_not_heard_since_and_follows_it() -> None:
    """The slave may have lost its power just before; but as long as nobody knows, the master may have, too."""
    group = replace(LED, replicas=(("a", 2), ("b", 1)), in_sync=(("a", 1), ("b", 1)))
    asleep = members(a={"boot": 2}, b={"awake": False})

    assert judge(group, asleep) is group
    assert problem_of(group, asleep).startswith("whoever lives may lack what b has")
    assert judge(group, members(a={"boot": 2})).master == "b"
    assert judge(group, members(a={"boot": 2}, b=DEAD | {"awake": False})).master == "a"


def test_restarted_master_waits_for_who_is_not_dead_and_was_not_heard_by_a_meta_that_has_just_begun() -> None:
    group = replace(LED, replicas=(("a", 2), ("b", 1)), in_sync=(("a", 1), ("b", 1)))

    assert judge(group, members(a={"boot": 2}, b={"reported": False})) is group


def test_restarted_master_waits_for_who_stopped_on_purpose_and_it_leads_when_it_is_back() -> None:
    group = replace(LED, replicas=(("a", 2), ("b", 1)), in_sync=(("a", 1), ("b", 1)))
    stopped = {"alive": False, "reported": False, "parted": True, "expected": True}

    assert judge(group, members(a={"boot": 2}, b=stopped)) is group
    back = replace(group, replicas=(("a", 2), ("b", 2)))
    shorter = members(a={"boot": 2, "actions": 60}, b={"boot": 2, "parted": True})
    assert (judge(back, shorter).master, judge(back, shorter).in_sync) == ("b", (("b", 2),))
    assert judge(group, members(a={"boot": 2}, b=stopped | {"expected": False})).master == "a"


def test_sound_slave_leads_whoever_else_may_come() -> None:
    group = replace(LED, replicas=(("a", 2), ("b", 1), ("c", 1)))
    stopped = {"alive": False, "reported": False, "parted": True, "expected": True}

    assert judge(group, members(a={"boot": 2}, b=stopped)).master == "c"


def test_replica_that_said_nothing_yet_or_may_hold_a_lease_waits() -> None:
    alone = replace(LED, replicas=(("a", 2),), in_sync=(("a", 1),))

    assert judge(alone, {"a": member("a", boot=2, reported=False)}) is alone
    assert judge(alone, {"a": member("a", boot=2, fenced=True)}) is alone


def test_handover_keeps_the_former_master_in_the_set() -> None:
    handed = promoted(LED, "b", members())

    assert (handed.master, handed.epoch, handed.in_sync) == ("b", 5, THREE)


UNSURE = replace(LED, unsure=True)


def again(**changed: dict[str, Any]) -> dict[str, Member]:
    """All were heard since the store is known to have gone back."""
    said = {name: {"again": True, **changed.get(name, {})} for name in "abc"}
    said["a"] = {"in_sync": ("a", "b", "c")} | said["a"]
    return members(**said)


def test_group_whose_brokers_know_a_later_epoch_than_the_store_is_unsure() -> None:
    later = members(b={"epoch": 9}, c={"epoch": 9, "leads": True})

    assert judge(LED, later) == UNSURE
    assert UNSURE.appointment().master == "", "and nobody is told who leads it"


def test_unsure_group_is_sure_when_its_master_and_all_whom_it_waits_for_were_heard() -> None:
    sure = judge(UNSURE, again())
    assert sure == LED, "nothing of it was lost: nobody begins anew"

    for name in "abc":
        silent = again(**{name: {"again": False}})
        assert judge(UNSURE, silent) is UNSURE
        assert name in problem_of(UNSURE, silent)


def test_who_is_not_waited_for_need_not_be_heard() -> None:
    """It cannot have been appointed since: only the master makes the set larger."""
    alone = again(a={"in_sync": ("a",)}, b={"again": False}, c=DEAD | {"again": False})

    assert judge(UNSURE, alone) == replace(LED, in_sync=(("a", 1),))


def test_master_that_the_store_knows_does_not_go_on_before_who_may_have_been_elected_since() -> None:
    """It was cut off, and another one was elected, whom the store has forgotten."""
    cut = again(c={"again": False})
    assert judge(UNSURE, cut) is UNSURE

    led = judge(UNSURE, again(c={"epoch": 5, "leads": True, "in_sync": ("b", "c")}))
    assert (led.master, led.epoch, led.in_sync, led.unsure) == ("c", 1005, (("c", 1),), False)


def test_later_epoch_that_nobody_leads_waits_for_all_and_then_for_the_longest_log() -> None:
    for silent in "abc":
        fallen = {name: {"epoch": 9, "leads": False, "again": name != silent} for name in "abc"}
        assert judge(UNSURE, again(**fallen)) is UNSURE

    fallen = {
        "a": {"epoch": 8, "leads": False, "messages": 900},
        "b": {"epoch": 9, "messages": 700},
        "c": {"epoch": 9, "messages": 800},
    }
    led = judge(UNSURE, again(**fallen))
    assert (led.master, led.epoch, led.in_sync) == ("c", 1009, (("c", 1),))


def test_master_of_an_earlier_version_that_does_not_say_whom_it_waits_for_waits_for_all() -> None:
    assert judge(UNSURE, again(a={"in_sync": ()}, b={"again": False})) is UNSURE

    led = judge(UNSURE, again(a={"in_sync": ()}))
    assert (led.master, led.epoch, led.in_sync) == ("a", 1004, (("a", 1),))


def test_group_that_the_store_never_knew_waits_for_a_master() -> None:
    lost = BrokerGroup("g", 0, "", (("b", 1),), (), unsure=True)

    assert judge(lost, {"b": member("b", epoch=7, again=True)}) is lost
    assert "its master has not said since how it stands" in problem_of(lost, {"b": member("b", epoch=7)})

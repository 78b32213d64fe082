"""Consumers in order: allocated, authorised, moved, and never two for one partition."""

from __future__ import annotations

import pytest

from samples.processes import KEY, SECOND, Process, keep_brokers, ordered, world_with
from tidemill_meta.beats import Consumes
from tidemill_meta.errors import Denied
from tidemill_meta.settings import MetaSettings
from tidemill_meta.subjects import remove_group
from tidemill_meta.values import Allocation


def test_group_in_order_is_exclusive_and_others_are_shared() -> None:
    world = world_with()
    answer = world.client("p", ordered(), Consumes("s", "h", "c"))

    assert [row["strategy"] for row in answer["consumes"]] == ["exclusive", "shared"]
    assert "partitions" not in answer["consumes"][1]
    assert (answer["beat_ms"], world.client("q", Consumes("s", "h", "c"))["beat_ms"]) == (250, 10_000)


def test_one_consumer_has_all_and_a_second_takes_half() -> None:
    world = world_with()
    one, other = Process(world, "p"), Process(world, "q")
    world.pass_ms(4 * SECOND, keep_brokers(world, one))
    assert one.handles == {"g1/s", "g2/s"}

    world.pass_ms(6 * SECOND, keep_brokers(world, one, other))

    assert sorted(len(process.handles) for process in (one, other)) == [1, 1]
    assert one.handles | other.handles == {"g1/s", "g2/s"}


def test_partitions_of_a_killed_consumer_are_owned_again_within_its_authorisation_and_a_second() -> None:
    for replicas in (1, 3):
        world = world_with(replicas)
        one, other = Process(world, "p"), Process(world, "q", at=replicas - 1)
        world.pass_ms(20 * SECOND, keep_brokers(world, one, other))
        assert one.handles
        assert other.handles
        one.running = False
        killed_ms = world.now_ms
        while other.handles != {"g1/s", "g2/s"}:
            world.pass_ms(250, keep_brokers(world, other))
            assert world.now_ms - killed_ms <= world.settings.authorisation_ms + SECOND


def test_consumers_that_come_and_go_orderly_share_everything_again_within_two_seconds() -> None:
    world = world_with(3)
    one, other = Process(world, "p"), Process(world, "q", at=2)
    world.pass_ms(20 * SECOND, keep_brokers(world, one))

    world.pass_ms(2 * SECOND, keep_brokers(world, one, other))
    assert (len(one.handles), len(other.handles)) == (1, 1)

    world.replicas[1].meta.client_left("p", world.replicas[1].now_ms)
    world.pass_ms(2 * SECOND, keep_brokers(world, other))
    assert other.handles == {"g1/s", "g2/s"}


def test_consumer_that_leaves_is_replaced_at_the_next_beat() -> None:
    world = world_with()
    one, other = Process(world, "p"), Process(world, "q")
    world.pass_ms(20 * SECOND, keep_brokers(world, one, other))

    world.client("p")  # the process goes on, and consumes nothing
    world.pass_ms(2 * SECOND, keep_brokers(world, other))

    assert other.handles == {"g1/s", "g2/s"}


def test_process_that_ends_orderly_is_replaced_at_the_next_beat_and_may_come_back() -> None:
    world = world_with(3)
    one, other = Process(world, "p"), Process(world, "q", at=1)
    world.pass_ms(20 * SECOND, keep_brokers(world, one, other))

    world.replicas[2].meta.client_left("p", world.replicas[2].now_ms)
    world.pass_ms(4 * SECOND, keep_brokers(world, other))
    assert other.handles == {"g1/s", "g2/s"}

    world.pass_ms(10 * SECOND, keep_brokers(world, one, other))
    assert (len(one.handles), len(other.handles)) == (1, 1)


def test_restart_of_meta_moves_nothing_while_consumers_live() -> None:
    world = world_with()
    one, other = Process(world, "p"), Process(world, "q")
    world.pass_ms(20 * SECOND, keep_brokers(world, one, other))
    before = world.first.meta.registry.get(Allocation, KEY)

    world.restart()
    world.pass_ms(30 * SECOND, keep_brokers(world, one, other))

    assert world.first.meta.registry.get(Allocation, KEY) == before


def test_expansion_gives_the_new_partitions_to_who_has_fewest() -> None:
    from tidemill_meta.asked import Asked
    from tidemill_meta.subjects import expand

    world = world_with()
    one, other = Process(world, "p"), Process(world, "q")
    world.pass_ms(20 * SECOND, keep_brokers(world, one, other))
    held = one.handles, other.handles
    asked = Asked({"partitions": 4, "version": 1})
    world.first.change(lambda draft, now_ms: expand(draft, world.first.meta.senses, "s", asked, now_ms))

    world.fence("g1", "g2")

    world.pass_ms(6 * SECOND, keep_brokers(world, one, other))

    assert (one.handles, other.handles) == held
    world.fence("g1", "g2", passed=[("g1/s", "g"), ("g2/s", "g")])
    world.pass_ms(6 * SECOND, keep_brokers(world, one, other))
    assert (len(one.handles), len(other.handles)) == (2, 2)
    assert held[0] < one.handles
    assert held[1] < other.handles


def test_group_that_was_removed_has_no_allocation_any_more() -> None:
    world = world_with()
    one = Process(world, "p")
    world.pass_ms(4 * SECOND, keep_brokers(world, one))

    world.first.change(
        lambda draft, now_ms: remove_group(draft, world.first.meta.senses, ("s", "g"), now_ms, force=True)
    )
    world.pass_ms(SECOND, keep_brokers(world))

    assert world.first.meta.registry.get(Allocation, KEY) is None


def test_what_only_a_replica_heard_that_died_authorises_nobody_for_longer() -> None:
    """A consumer speaks to a replica, which dies before it told the others; the consumer is cut off from then on."""
    world = world_with(2)
    one, other = Process(world, "p", at=1), Process(world, "q")
    world.pass_ms(20 * SECOND, keep_brokers(world, one, other))
    while one.due_ms - world.now_ms > 250:
        world.pass_ms(250, keep_brokers(world, one, other))
    one.beat()
    world.replicas[1].running = one.running = False

    for _ in range(60):
        world.pass_ms(250, keep_brokers(world, other))
        assert not one.handles & other.handles

    assert other.handles == {"g1/s", "g2/s"}


def test_replica_that_lost_its_database_authorises_nobody() -> None:
    world = world_with(2)
    one = Process(world, "p", at=1)
    world.pass_ms(20 * SECOND, keep_brokers(world, one))
    world.replicas[1].running = False

    with pytest.raises(Denied, match="does not know what the others do"):
        world.pass_ms(4 * SECOND, one.beat)


def test_partition_is_granted_again_only_when_every_replica_knows_that_it_moved() -> None:
    world = world_with(2)
    one, other = Process(world, "p", at=1), Process(world, "q")
    world.pass_ms(20 * SECOND, keep_brokers(world, one, other))
    one.running = False

    world.client(
        "p", at=0
    )  # it consumes nothing any more; replica 1 may not know that the partition has moved
    world.pass_ms(750, keep_brokers(world, other))
    assert len(other.handles) == 1
    world.pass_ms(1_250, keep_brokers(world, other))

    assert len(other.handles) == 2


def test_who_is_to_have_partitions_and_has_none_yet_is_told_to_speak_again_soon() -> None:
    world = world_with()
    soon_ms, late_ms = MetaSettings().exchange_ms, MetaSettings().ordered_beat_ms

    first = world.client("a", ordered())["beat_ms"]
    world.pass_ms(SECOND)
    settled = world.client("a", ordered(1))["beat_ms"]
    joining = world.client("b", ordered())["beat_ms"]
    world.pass_ms(SECOND)
    waiting = world.client("b", ordered())["beat_ms"]

    assert (first, settled, joining, waiting) == (soon_ms, late_ms, soon_ms, soon_ms)


def test_who_has_nothing_because_there_are_more_consumers_than_partitions_speaks_as_seldom_as_all() -> None:
    world = world_with()
    for name in ("a", "b", "c"):
        world.client(name, ordered())
    world.pass_ms(SECOND)
    answers = [world.client(name, ordered()) for name in ("a", "b", "c")]
    spare = next(one for one in answers if not one["consumes"][0]["partitions"])

    assert spare["beat_ms"] == MetaSettings().ordered_beat_ms

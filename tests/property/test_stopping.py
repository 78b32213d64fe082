"""Who is said to be safe to stop: all of them together may be stopped, and the group is led and loses nothing."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from samples.metas import World
from samples.replicating import GROUP, Cluster
from tidemill_meta.picture import group_rows
from tidemill_meta.promotion import Member, judge, promoted
from tidemill_meta.stopping import stopping
from tidemill_meta.values import BrokerGroup

NAMES = ("a", "b", "c", "d")
EPOCH = 4


@st.composite
def groups(draw: st.DrawFn) -> tuple[BrokerGroup, dict[str, Member]]:
    """A group in any state, with members as anybody may have heard them."""
    names = NAMES[: draw(st.integers(1, 4))]
    boots = st.sampled_from([1, 1, 1, 2])
    replicas = tuple((name, draw(boots)) for name in names)
    chosen = draw(st.sets(st.sampled_from(names)))
    in_sync = tuple((name, draw(boots)) for name in names if name in chosen)
    master = draw(st.sampled_from([*names, names[0], ""]))
    group = BrokerGroup("g", EPOCH, master, replicas, in_sync, version=7)
    mostly = st.sampled_from([True, True, True, False])
    members: dict[str, Member] = {}
    for name, boot in replicas:
        alive = draw(mostly)
        members[name] = Member(
            name, boot, alive=alive, reported=alive, settled=alive and draw(mostly),
            epoch=draw(st.sampled_from([EPOCH, EPOCH, EPOCH, EPOCH - 1, EPOCH + 1])),
            messages=draw(st.integers(0, 3)), leads=draw(st.booleans()) or name == master,
            fenced=not draw(mostly), behind=not draw(mostly),
        )  # fmt: skip
    return group, members


@settings(max_examples=400)
@given(groups(), st.booleans())
def test_all_that_are_safe_to_stop_stop_together_and_the_group_is_led_as_before(
    drawn: tuple[BrokerGroup, dict[str, Member]], sure: bool
) -> None:
    group, members = drawn
    said = {name: stopping(group, members, name, sure=sure) for name in members}
    safe = {name for name, one in said.items() if one.safe}
    assert not safe or sure

    dead = {
        name: replace(member, alive=False, reported=False, settled=False) if name in safe else member
        for name, member in members.items()
    }
    if safe:
        assert any(name not in safe and members[name].settled for name, _ in group.in_sync)
        after = judge(group, dead)
        assert (after.epoch, after.master, after.seated) == (group.epoch, group.master, True)
    for name, one in said.items():
        assert one.safe == (one.why_not == "")
        assert not (one.safe and one.hand_over_to)
        if one.hand_over_to:
            assert sure
            assert name == group.master
            heir = promoted(group, one.hand_over_to, members)
            assert (heir.master, heir.seated, name in dict(heir.in_sync)) == (one.hand_over_to, True, True)


@settings(max_examples=40)
@given(st.integers(0, 1 << 32), st.integers(1, 3), st.integers(2, 4))
@example(1, 1, 2)
@example(2, 3, 3)
def test_whoever_stops_all_that_meta_calls_safe_never_stops_all_that_are_in_sync(
    seed: int, metas: int, brokers: int
) -> None:
    """Somebody in a hurry: stops and hands over whenever any replica of meta allows it, with no look at the one before;
    replicas of meta stand still and start again meanwhile.
    """
    chance = random.Random(seed)
    cluster = Cluster(chance, metas, brokers)
    stopped = 0
    for _ in range(600):
        cluster.step(calm=True)
        cluster.check()
        _trouble(cluster.world, chance)
        for node in cluster.nodes.values():
            if not node.alive and chance.random() < 0.05:
                cluster.start(node)
        if chance.random() < 0.2:
            stopped += _hurry(cluster, chance)
        newest = max(cluster.world.replicas, key=lambda one: one.meta.registry.revision)
        group = newest.meta.registry.get(BrokerGroup, GROUP)
        if group is not None:
            assert any(cluster.nodes[name].alive for name, _ in group.in_sync)
    cluster.heal()

    assert stopped, "nobody was ever stopped: nothing was tested"
    assert cluster.led


def _trouble(world: World, chance: random.Random) -> None:
    number = chance.randrange(len(world.replicas))
    match chance.randrange(100):
        case 0:
            world.replicas[number].running = False
        case 1:
            world.restart(number)
        case 2 | 3 | 4:
            world.replicas[number].running = True
        case _:
            pass


def _hurry(cluster: Cluster, chance: random.Random) -> int:
    """How many were stopped."""
    replica = chance.choice(cluster.world.replicas)
    if not replica.running:
        return 0
    stopped = 0
    for row in group_rows(replica.meta.registry, replica.meta.senses, replica.now_ms):
        for one in row["brokers"]:
            node = cluster.nodes[one["name"]]
            if one["safe_to_stop"] and node.alive:
                node.alive = False
                stopped += 1
            elif one["hand_over_to"] and chance.random() < 0.5:
                cluster.relieve(one["hand_over_to"])
                return stopped
    return stopped

"""The operator's planners and its queue, for all schedules: they converge, stand still then, and lose nothing."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from samples.kubernetes import CLUSTER, NAMESPACE, World, a_world, manifest
from tidemill_operator import marks
from tidemill_operator.store import Key
from tidemill_operator.work import WorkQueue

NAMES = ("a", "b", "c")
POLICIES = ("Retain", "Delete", "DeleteIfEmpty")
GROUP = Key("ConsumerGroup", NAMESPACE, "group")


def subject_of(choice: random.Random) -> dict[str, object]:
    spec = {
        "subjectName": choice.choice(("one", "two")),
        "deletionPolicy": choice.choice(POLICIES),
        "managementPolicy": choice.choice(("Full", "Full", "CreateOnly", "Observe")),
        "retention": {"messageSeconds": choice.choice((60, 3600))},
    }
    return manifest("Subject", choice.choice(NAMES), spec)


def happen(world: World, choice: random.Random) -> None:
    """One thing of all that people, meta, and an operator that is killed may do."""
    keys = world.store.keys(("Subject", "ConsumerGroup"))
    key = choice.choice(keys) if keys else None
    match choice.randrange(11):
        case 0 | 1:
            written = subject_of(choice)
            former = world.store.get(Key("Subject", NAMESPACE, str(written["metadata"]["name"])))  # type: ignore[index]
            if former is not None:  # the name is for ever
                written["spec"] |= {"subjectName": former["spec"]["subjectName"]}  # type: ignore[operator]
            world.apply(written)
        case 2:
            spec = {
                "subjectRef": {"name": choice.choice(NAMES)},
                "deletionPolicy": choice.choice(POLICIES[:2]),
            }
            former = world.store.get(GROUP)
            world.apply(manifest("ConsumerGroup", "group", former["spec"] if former else spec))
        case 3 if key is not None:
            world.delete(key)
        case 4 if world.subjects:
            world.drift(
                choice.choice(sorted(world.subjects)),
                retention={"messageSeconds": 120, "archive": "Optional"},
            )
        case 5 if world.subjects:
            del world.subjects[choice.choice(sorted(world.subjects))]
        case 6:
            world.meta_is_there = not world.meta_is_there
        case 7 if key is not None:
            world.annotate(
                key, choice.choice((marks.PAUSED, marks.MANAGED)), choice.choice(("true", "false", None))
            )
        case 8:
            cluster = Key("QueueCluster", NAMESPACE, CLUSTER)
            if world.store.get(cluster) is None:
                world.apply(manifest("QueueCluster", CLUSTER))
            else:
                world.delete(cluster)
        case 9 if key is not None:
            world.step(key, steps=choice.randrange(3))
        case _ if key is not None:
            world.step(key)
        case _:
            pass


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_every_schedule_converges_and_stands_still(seed: int, length: int) -> None:
    choice, world = random.Random(seed), a_world()
    for _ in range(length):
        happen(world, choice)
    world.meta_is_there = True
    world.settle(passes=20)
    writes = world.writes
    world.now_ms += 3_600_000
    for key in world.store.keys(("Subject", "ConsumerGroup")):
        assert world.plan(key) == world.plan(key)
        world.step(key)
    assert world.writes == writes, "something is written though nothing changed"
    check_promises(world)


def check_promises(world: World) -> None:
    cluster = world.store.get(Key("QueueCluster", NAMESPACE, CLUSTER))
    winners: dict[str, Key] = {}
    for key in world.store.keys(("Subject",)):
        resource = world.store.get(key)
        assert resource is not None
        left_alone = marks.is_paused(resource) or marks.is_unmanaged(resource)
        assert left_alone or not marks.goes(resource), f"{key} is held for ever"
        if left_alone or cluster is None or world.ready(key)[0] != "True":
            continue
        name = resource["spec"]["subjectName"]
        assert name not in winners, f"{key} and {winners[name]} both have {name}"
        winners[name] = key
        if resource["spec"]["managementPolicy"] == "Full":
            told = world.subjects[name]["declared"]["spec"]
            assert told["retention"] == {"archive": "Optional", **resource["spec"]["retention"]}


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_the_queue_loses_nothing_and_gives_no_key_to_two(seed: int) -> None:
    choice = random.Random(seed)
    queue: WorkQueue[int] = WorkQueue(random.Random(seed))
    wanted: set[int] = set()
    taken: set[int] = set()
    now_ms = 0
    for _ in range(200):
        now_ms += choice.randrange(2000)
        match choice.randrange(4):
            case 0 | 1:
                key = choice.randrange(8)
                queue.add(key, now_ms, urgent=choice.random() < 0.2)
                wanted.add(key)
            case 2:
                found = queue.take(now_ms)
                if found is not None:
                    assert found not in taken, "two have it"
                    taken.add(found)
                    wanted.discard(found)
            case _ if taken:
                key = choice.choice(sorted(taken))
                taken.discard(key)
                if choice.random() < 0.5:
                    queue.failed(key, now_ms)
                    wanted.add(key)
                else:
                    queue.done(key, now_ms, choice.choice((None, 0, 500)))
            case _:
                pass
    for key in sorted(taken):
        queue.done(key, now_ms)
    while (due_ms := queue.next_ms()) is not None:
        now_ms = max(now_ms, due_ms)
        found = queue.take(now_ms)
        assert found is not None, "it is said to be due, and is not given"
        wanted.discard(found)
        queue.done(found, now_ms)
    assert not wanted, "added, and never given to anybody"

"""Subjects and groups: declared, or made by their first use; changed on purpose only."""

from __future__ import annotations

from typing import Any

import pytest

from samples.metas import World
from tidemill_meta.asked import Asked
from tidemill_meta.beats import Consumes
from tidemill_meta.errors import Denied
from tidemill_meta.settings import MetaSettings, read_settings
from tidemill_meta.subjects import (
    declare,
    expand,
    remove_group,
    remove_subject,
    set_subject_state,
    told_to,
)
from tidemill_meta.values import ConsumerGroupRecord, Route, SubjectRecord
from tidemill_wire.declarations import parse_manifests
from tidemill_wire.settings import SettingsError


def world_with(settings: MetaSettings | None = None, groups: int = 3) -> World:
    world = World(settings=settings)
    for number in range(1, groups + 1):
        world.register(f"g{number}", f"g{number}-0", labels={"disk": "ssd"} if number == 3 else {})
        world.beat(f"g{number}", f"g{number}-0")
    return world


def ask(world: World, decide: Any, *arguments: Any) -> Any:
    replica = world.first
    return replica.change(lambda draft, now_ms: decide(draft, replica.meta.senses, *arguments, now_ms))


def route(world: World, subject: str) -> Route:
    found = world.first.meta.registry.get(Route, subject)
    assert found is not None
    return found


def manifest(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "tidemill.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def told(world: World, group: str, known: int = 0) -> tuple[list[str], list[str]]:
    """What a broker group hears was declared, by name, and what is read-only."""
    answer = told_to(world.first.meta.registry, group, known)
    assert answer["revision"] == world.first.meta.registry.revision
    return [one["metadata"]["name"] for one in answer["declarations"]], answer["read_only"]


def test_brokers_hear_what_was_declared_of_subjects_that_lie_with_them() -> None:
    world = world_with()
    placed = {"placement": {"brokerGroups": ["g1", "g2"]}}
    ask(
        world,
        declare,
        parse_manifests([manifest("Subject", "a", **placed), manifest("Subject", "b", **placed)]),
    )
    world.client("p", produces=("used",))
    before = world.first.meta.registry.revision
    ask(world, declare, parse_manifests([manifest("ConsumerGroup", "billing", subjectName="b")]))

    assert told(world, "g1") == (["a", "b", "billing"], [])
    assert told(world, "g3") == ([], [])
    assert told(world, "g1", before) == (["b", "billing"], [])
    assert told(world, "g1", world.first.meta.registry.revision) == ([], [])


def test_a_heartbeat_is_answered_with_the_revision_of_what_was_declared_last_and_not_of_first_uses() -> None:
    world = world_with()
    first = world.beat("g1", "g1-0")
    world.client("p", produces=("used",))
    used = world.beat("g1", "g1-0")
    ask(world, declare, parse_manifests([manifest("Subject", "a")]))
    declared = world.beat("g1", "g1-0")

    assert first["declared"] == used["declared"] == 0
    assert declared["declared"] == world.first.meta.registry.revision
    assert (declared["state"], declared["beat_ms"]) == ("RW", 1000)


def test_brokers_hear_of_subjects_that_are_read_only_and_that_they_are_not_any_more() -> None:
    world = world_with(groups=1)
    world.client("p", produces=("used", "other"))
    for state, read_only in (("R", ["used"]), ("RW", [])):
        before = world.beat("g1", "g1-0")["declared"]
        world.first.change(
            lambda draft, _, state=state: set_subject_state(draft, "used", Asked({"state": state}))
        )

        assert world.beat("g1", "g1-0")["declared"] > before
        assert told(world, "g1") == ([], read_only)


def test_a_broker_group_that_a_subject_is_expanded_to_hears_its_declaration() -> None:
    world = world_with()
    ask(world, declare, parse_manifests([manifest("Subject", "a", placement={"brokerGroups": ["g1"]})]))
    before = world.beat("g3", "g3-0")["declared"]
    ask(world, expand, "a", Asked({"groups": ["g3"], "version": 1}))

    assert world.beat("g3", "g3-0")["declared"] > before
    assert told(world, "g3", before) == (["a"], [])


def test_first_use_makes_subject_route_and_group() -> None:
    world = world_with()
    answer = world.client("p", Consumes("order.paid", "billing", "c"), produces=("order.created",))

    assert answer["refused"] == []
    assert [row["subject"] for row in answer["routes"]] == ["order.created", "order.paid"]
    assert [len(row["partitions"]) for row in answer["routes"]] == [2, 2]
    assert world.first.meta.registry.get(ConsumerGroupRecord, "order.paid/billing") is not None


def test_first_use_is_refused_where_the_policy_says_so_and_the_rest_is_made() -> None:
    world = world_with(MetaSettings(create_subjects=False))
    ask(world, declare, parse_manifests([manifest("Subject", "known")]))

    answer = world.client("p", Consumes("known", "billing", "c"), produces=("unknown",))

    assert [(row["subject"], row["code"]) for row in answer["refused"]] == [("unknown", "unknown_subject")]
    assert [row["subject"] for row in answer["routes"]] == ["known"]
    assert world.first.meta.registry.get(ConsumerGroupRecord, "known/billing") is not None

    strict = world_with(MetaSettings(create_groups=False))
    refused = strict.client("p", Consumes("known", "billing", "c"))["refused"]
    assert [(row["group"], row["code"]) for row in refused] == [("billing", "unknown_consumer_group")]


def test_use_without_brokers_is_refused_and_may_be_tried_again() -> None:
    world = World()
    assert world.client("p", produces=("s",))["refused"][0]["code"] == "no_broker_group"
    assert world.first.meta.registry.get(SubjectRecord, "s") is None

    world.register("g1", "g1-0")
    assert world.client("p", produces=("s",))["refused"] == []


def test_many_subjects_are_spread_over_broker_groups_evenly() -> None:
    world = world_with()
    world.client("p", produces=tuple(f"s{number}" for number in range(30)))

    assert dict(world.first.meta.registry.routed()) == {"g1": 20, "g2": 20, "g3": 20}


def test_route_stays_when_brokers_come_and_go_and_when_it_is_declared_otherwise() -> None:
    world = world_with(groups=2)
    world.client("p", produces=("s",))
    before = route(world, "s")
    world.register("g0", "g0-0")
    world.pass_ms(10_000)
    placed = manifest("Subject", "s", placement={"brokerGroups": ["g0"]})
    ask(world, declare, parse_manifests([placed]))
    world.restart()

    assert route(world, "s") == before


def test_placement_of_a_declaration_is_kept() -> None:
    world = world_with()
    ssd = {"minBrokerGroups": 1, "brokerGroupSelector": {"matchLabels": {"disk": "ssd"}}}
    documents = [manifest("Subject", "s", placement=ssd), manifest("ConsumerGroup", "g", subjectName="s")]
    ask(world, declare, parse_manifests(documents))

    assert [one.group for one in route(world, "s").current.partitions] == ["g3"]
    declared = world.first.meta.registry.get(SubjectRecord, "s")
    assert declared is not None
    assert declared.declared is not None
    assert declared.declared.to_map()["metadata"]["name"] == "s"


def test_declaring_the_same_again_changes_no_version() -> None:
    world = world_with()
    documents = [
        manifest("Subject", "s"),
        manifest("ConsumerGroup", "g", subjectName="s", consumption="Ordered"),
    ]
    for _ in range(2):
        ask(world, declare, parse_manifests(documents))
        assert world.first.meta.registry.version("subject", "s") == 1
        assert world.first.meta.registry.version("consumer_group", "s/g") == 1


def test_one_declaration_that_cannot_be_placed_leaves_nothing_of_the_others() -> None:
    world = world_with()
    documents = [
        manifest("Subject", "good"),
        manifest("Subject", "bad", placement={"brokerGroups": ["nowhere"]}),
    ]

    with pytest.raises(Denied, match="there is no broker group nowhere"):
        ask(world, declare, parse_manifests(documents))

    assert world.first.meta.registry.get(SubjectRecord, "good") is None


def test_expansion_keeps_the_former_version_and_asks_for_the_version_that_was_seen() -> None:
    world = world_with()
    world.client("p", produces=("s",))
    first = route(world, "s").current

    with pytest.raises(Denied, match="the route of s is at version 1"):
        ask(world, expand, "s", Asked({"partitions": 4, "version": 0}))
    with pytest.raises(Denied, match="has 2 partitions already"):
        ask(world, expand, "s", Asked({"partitions": 2, "version": 1}))
    ask(world, expand, "s", Asked({"partitions": 4, "version": 1}))
    world.fence("g1", "g2")

    assert route(world, "s").sets[0] == first
    assert len(route(world, "s").current.partitions) == 4


def test_read_only_subject_says_so_in_its_route() -> None:
    world = world_with()
    world.client("p", produces=("s",))
    known = world.first.meta.registry.revision

    world.first.change(lambda draft, _: set_subject_state(draft, "s", Asked({"state": "R"})))

    row = world.first.meta.route_since("s", known)
    assert row is not None
    assert row["state"] == "R"
    assert world.first.meta.route_since("s", world.first.meta.registry.revision) is None


def test_a_route_says_what_a_failure_does_to_order_keys_and_is_told_anew_when_that_changes() -> None:
    world = world_with()
    ask(world, declare, parse_manifests([manifest("Subject", "a")]))
    meta = world.first.meta
    before, known = meta.route("a"), meta.registry.revision
    ask(world, declare, parse_manifests([manifest("Subject", "a", orderStrategy="BestTried")]))

    assert before["order_strategy"] == "Strict"
    told = meta.route_since("a", known)
    assert told is not None
    assert told["order_strategy"] == "BestTried"
    assert told["version"] == before["version"]


def remove(world: World, subject: str, group: str = "", *, force: bool = True) -> None:
    senses = world.first.meta.senses
    if group:
        world.first.change(
            lambda draft, now_ms: remove_group(draft, senses, (subject, group), now_ms, force=force)
        )
    else:
        world.first.change(lambda draft, now_ms: remove_subject(draft, senses, subject, now_ms, force=force))


def removals(world: World, group: str, known: int = 0) -> list[str]:
    """What a broker group hears was removed."""
    return [name for name, _ in told_to(world.first.meta.registry, group, known)["removed"]]


def obey(world: World, *groups: str) -> None:
    """Masters say that they did all that they were told."""
    for group in groups:
        world.beat(group, f"{group}-0", told=world.first.meta.registry.revision)


def test_a_name_is_used_again_only_where_what_it_was_is_gone() -> None:
    """A broker that has not heard yet would remove what comes after the removal, too."""
    world = world_with()
    subject = parse_manifests([manifest("Subject", "a", placement={"brokerGroups": ["g1", "g2"]})])
    ask(world, declare, subject)
    remove(world, "a")
    obey(world, "g1")
    with pytest.raises(Denied, match="'a' was removed, and is not gone from g2 yet") as denied:
        ask(world, declare, subject)
    assert (denied.value.kind.code, denied.value.kind.status) == ("not_gone", 503)

    world.beat("g2", "g2-0", told=world.first.meta.registry.revision - 1)
    anywhere = parse_manifests([manifest("Subject", "a")])
    with pytest.raises(Denied, match="not gone from g2 yet"):
        ask(world, declare, anywhere)
    world.pass_ms(7_000, lambda: obey(world, "g1", "g3"))  # g2 is dead
    ask(world, declare, anywhere)
    made = route(world, "a")
    assert {one.group for one in made.current.partitions} == {"g1", "g3"}
    grown = {"groups": ["g2"], "version": made.version}
    world.pass_ms(500, lambda: world.beat("g2", "g2-0"))
    with pytest.raises(Denied, match="not gone from g2 yet"):
        ask(world, expand, "a", Asked(grown))
    obey(world, "g2")
    ask(world, expand, "a", Asked(grown))


def test_subject_that_is_removed_takes_its_groups_along_and_comes_back_when_it_is_declared() -> None:
    world = world_with()
    world.client("p", Consumes("s", "g", "c"))
    remove(world, "s")

    assert world.first.meta.registry.get(Route, "s") is None
    assert world.first.meta.registry.get(ConsumerGroupRecord, "s/g") is None
    assert sum(world.first.meta.registry.routed().values()) == 0

    [refused] = world.client("p", Consumes("s", "g", "c"), produces=("s",))["refused"]
    assert (refused["code"], refused["detail"]) == (
        "unknown_subject", "subject 's' was removed, and no use makes it again",
    )  # fmt: skip
    group = manifest("ConsumerGroup", "g", subjectName="s")
    with pytest.raises(Denied, match="was removed"):
        ask(world, declare, parse_manifests([group]))
    obey(world, "g1", "g2", "g3")
    ask(world, declare, parse_manifests([manifest("Subject", "s")]))
    assert world.client("p", Consumes("s", "g", "c"), produces=("s",))["refused"] == []
    assert world.first.meta.registry.version("route", "s") == 3


def test_group_that_is_removed_is_not_made_again_by_who_still_consumes_with_it() -> None:
    world = world_with()
    consumes = Consumes("s", "g", "c")
    world.client("p", consumes, Consumes("s", "other", "c"))
    remove(world, "s", "g")

    [refused] = world.client("p", consumes, Consumes("s", "other", "c"))["refused"]
    assert (refused["group"], refused["code"]) == ("g", "unknown_consumer_group")
    ask(world, declare, parse_manifests([manifest("ConsumerGroup", "g", subjectName="s")]))
    assert world.client("p", consumes)["refused"] == []


@pytest.mark.parametrize("force", [False, True])
def test_what_programs_use_is_removed_only_when_it_is_said_twice(force: bool) -> None:
    world = world_with()
    world.client("p", produces=("s",))
    world.client("q", Consumes("s", "g", "c"), Consumes("t", "g", "c"))
    for names, sentence in (
        (("s",), "subject 's' has 1 producer and 1 consumer"),
        (("t", "g"), "group 'g' of 't' has 1 consumer"),
    ):
        if force:
            remove(world, *names)
            continue
        with pytest.raises(Denied, match=sentence) as denied:
            remove(world, *names, force=False)
        assert denied.value.kind.code == "in_use"

    world = world_with()
    world.client("p", produces=("s",))
    world.first.meta.client_left("p", world.first.now_ms)
    remove(world, "s", force=False)


def test_brokers_where_it_lay_hear_what_was_removed_also_those_that_were_away() -> None:
    world = world_with()
    placed = {"placement": {"brokerGroups": ["g1", "g2"]}}
    ask(world, declare, parse_manifests([manifest("Subject", "a", **placed)]))
    world.client("c", Consumes("a", "billing", "c"))
    world.client("c", Consumes("used", "billing", "c"))
    before = world.beat("g1", "g1-0")["declared"]
    remove(world, "a", "billing")

    assert world.beat("g1", "g1-0")["declared"] == world.first.meta.registry.revision > before
    assert removals(world, "g1", before) == removals(world, "g2") == ["a/billing"]
    assert removals(world, "g3") == []
    remove(world, "a")
    assert removals(world, "g1", before) == ["a"], "the groups go with their subject"
    obey(world, "g1", "g2")
    ask(world, declare, parse_manifests([manifest("Subject", "a", placement={"brokerGroups": ["g3"]})]))
    known = world.first.meta.registry.revision
    numbers = told_to(world.first.meta.registry, "g1", 0)["removed"]
    remove(world, "a")
    world.restart()

    assert removals(world, "g1", known) == removals(world, "g3", known) == ["a"]
    assert told_to(world.first.meta.registry, "g1", 0)["removed"][0][1] > numbers[0][1]
    assert told(world, "g1") == ([], [])


@pytest.mark.parametrize(
    "name, text, sentence",
    [
        ("CREATE_SUBJECTS", "maybe", "write true or false"),
        ("LIVENESS_MS", "5s", "write a whole number above zero"),
        ("LIVENESS_MS", "2000", "at least three times"),
        ("LEASE_MS", "9000", "write at most TIDEMILL_META_LIVENESS_MS"),
        ("AUTHORISATION_MS", "4000", "at least two seconds more than twice"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_sentence(name: str, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_settings({f"TIDEMILL_META_{name}": text})


def test_settings_are_read_from_the_environment() -> None:
    settings = read_settings(
        {"TIDEMILL_META_ROUTE_GROUPS": "3", "TIDEMILL_META_CREATE_GROUPS": "false", "OTHER": "1"}
    )

    assert (settings.route_groups, settings.create_groups, settings.liveness_ms) == (3, False, 5_000)

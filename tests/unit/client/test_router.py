"""What a client tells meta of its consumers, and whom it hands the answers to."""

from __future__ import annotations

from collections.abc import Callable

from samples.realms import Realm
from tidemill import ClientSettings
from tidemill.allotment import Allotment
from tidemill.naming import Member, Naming
from tidemill.router import Router
from tidemill.servers import Servers
from tidemill.tenure import Moment
from tidemill_wire.kinds import Mode

QUICK = ClientSettings(backoff_base_s=0.01, backoff_max_s=0.05)


def router_of(realm: Realm) -> Router:
    return Router(Servers([("m1", 7401)], realm.open_port), QUICK)


def member(subject: str, name: str) -> Member:
    return Member((subject,), "g", name, Mode.KEYED, Allotment(lambda: Moment(1.0, 1.0)))


async def test_two_handlers_of_one_name_are_each_allotted_their_own_subject(until: Callable) -> None:
    """Also when a person has named both alike."""
    realm = Realm(creates=("g0",))
    realm.allotted = {"a": (7, ["g0/a"]), "b": (3, ["g0/b"])}
    router = router_of(realm)
    one, other = member("a", "pod-7"), member("b", "pod-7")
    router.join(1, one)
    router.join(2, other)

    await router.refresh()
    router.begin()
    await until(lambda: one.allotment.ours() and other.allotment.ours())
    await router.close()

    assert one.allotment.ours() == {"g0": {"a": 7}}
    assert other.allotment.ours() == {"g0": {"b": 3}}


async def test_an_allocation_that_a_stream_tells_is_asked_for_at_once(until: Callable) -> None:
    """And not with the next beat, which would leave partitions to nobody meanwhile."""
    realm = Realm(creates=("g0",), beat_ms=3_600_000)
    realm.allotted = {"a": (7, ["g0/a"])}
    router = router_of(realm)
    one = member("a", "pod-7")
    router.join(1, one)
    await router.refresh()
    router.begin()
    await until(one.allotment.ours)

    realm.allotted = {"a": (8, ["g0/a", "g0/a#1"])}
    realm.changed()
    await until(lambda: one.allotment.version("a") == 8)
    await router.close()

    assert one.allotment.ours() == {"g0": {"a": 8, "a#1": 8}}


async def test_meta_hears_at_once_of_a_consumer_that_has_ended(until: Callable) -> None:
    realm = Realm(creates=("g0",), beat_ms=3_600_000)
    router = router_of(realm)
    router.join(1, member("a", "pod-7"))
    await router.refresh()
    router.begin()
    await until(lambda: realm.beats and realm.beats[-1]["consumes"])

    router.leave(1)
    await until(lambda: not realm.beats[-1]["consumes"])
    await router.close()


# -- on paper ----------------------------------------------------------------------------------------------------


def test_a_stream_is_about_the_groups_of_consumers_by_key_alone() -> None:
    naming = Naming()
    naming.members = {1: member("a", "c"), 2: Member(("a", "b.*"), "shared", "c", Mode.AS_DECLARED)}

    assert naming.interest(["a"])["groups"] == [{"subject": "a", "group": "g"}]
    assert naming.interest(["a"])["patterns"] == ["b.*"]


def test_who_is_behind_asks_until_the_replica_that_answers_knows_as_well() -> None:
    naming = Naming()
    naming.members = {1: member("a", "c")}
    told = {"subject": "a", "group": "g", "consumer": "c", "partitions": [], "authorised_ms": 9}
    naming.hear([{"key": "a/g", "version": 4}, {"key": "a/other", "version": 9}, {"odd": 1}])

    before = naming.behind
    naming.beat("p", 0, []).answered([{**told, "allocation": 3}])
    between = naming.behind
    naming.beat("p", 0, []).answered([{**told, "allocation": 4}])

    assert (before, between, naming.behind) == (True, True, False)

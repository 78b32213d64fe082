"""What a client tells meta of its consumers, and whom it hands the answers to."""

from __future__ import annotations

from collections.abc import Callable

from samples.realms import Realm
from tidemill import ClientSettings
from tidemill.allotment import Allotment
from tidemill.router import Member, Router
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

"""What a client believes of who serves what, and whom it asks."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples.realms import row_of
from tidemill.atlas import Atlas, SubjectRoute, parse_route
from tidemill.errors import BrokerUnreachable
from tidemill.routes import Address, parse_servers
from tidemill.routes_cache import RoutesCache, default_path, packed
from tidemill.servers import Servers
from tidemill_wire.routes import Partition


def broker(group: str, state: str = "RW", epoch: int = 1, port: int = 7400):
    return {"group": group, "host": "h", "port": port, "state": state, "epoch": epoch, "control": "h:1"}


def atlas_of(*brokers, routes=()) -> Atlas:
    atlas = Atlas()
    atlas.tell({"brokers": list(brokers), "routes": list(routes)}, "h")
    return atlas


def named(partitions: Iterable[Partition] | None) -> list[str]:
    return [one.key for one in partitions or ()]


def test_where_a_broker_lists_itself_subjects_have_no_routes():
    atlas = Atlas()
    assert atlas.tell({"version": 1, "brokers": [broker("g0"), broker("g1", "W")]}, "h")
    assert not atlas.routed
    assert atlas.takers("a") is None
    assert atlas.sources(("a", "b*")) == {"g0": ("a", "b*")}
    assert not atlas.tell({"version": 1, "brokers": [broker("g0"), broker("g1", "W")]}, "h")


def test_a_subject_is_sent_where_its_route_and_the_brokers_allow_it():
    rows = [broker("g0"), broker("g1", "R"), broker("g2", "NRW")]
    atlas = atlas_of(*rows, routes=[row_of("a", [("g0", "g1", "g2")]), row_of("b", [("g0",)], state="R")])
    assert atlas.routed
    assert named(atlas.takers("a")) == ["g0/a"]
    assert atlas.takers("b") == ()
    assert atlas.takers("c") is None


def test_former_partitions_are_read_and_a_group_that_nobody_leads_is_waited_for():
    rows = [broker("g0"), broker("g1", "NRW"), broker("g2", "W")]
    atlas = atlas_of(
        *rows, routes=[row_of("a", [("g1",), ("g0", "g2", "g3")]), row_of("b", [("g0",)], state="W")]
    )
    assert atlas.sources(("a", "b", "unknown")) == {"g0": ("a",), "g3": ("a",), "g1": ("a",)}
    assert atlas.sources(("a*",)) == {"g0": ("a*",), "g1": ("a*",)}


def test_every_partition_of_a_route_is_sent_to_and_all_that_ever_were_are_read():
    rows = [broker("g0"), broker("g1"), broker("g2", "R")]
    versions = [("g0", "g2/a#1"), ("g0", "g0/a#2", "g1/a#3"), ("g0", "g0/a#2", "g2/a#4")]
    atlas = atlas_of(*rows, routes=[row_of("a", versions)])
    assert named(atlas.takers("a")) == ["g0/a", "g0/a#2"]
    assert atlas.sources(("a",)) == {"g0": ("a", "a#2"), "g2": ("a#4", "a#1"), "g1": ("a#3",)}
    assert Atlas.from_map(json.loads(json.dumps(atlas.to_map()))).sources(("a",)) == atlas.sources(("a",))


def test_what_is_older_than_what_is_known_changes_nothing_unless_a_stream_says_it():
    atlas = atlas_of(broker("g0", epoch=3, port=3), routes=[row_of("a", [("g0",), ("g1",)])])
    old = {"brokers": [broker("g0", epoch=2, port=2)], "routes": [row_of("a", [("g0",)])]}
    assert not atlas.tell(old, "h")
    assert (atlas.brokers["g0"].port, atlas.routes["a"].version) == (3, 2)
    assert atlas.tell(old, "h", believed=True)
    assert (atlas.brokers["g0"].port, atlas.routes["a"].version) == (3, 1)


def test_a_line_of_a_stream_tells_some_and_takes_away():
    atlas = atlas_of(broker("g0"), broker("g1"), routes=[row_of("a", [("g0",)])])
    assert atlas.tell(
        {"revision": 9, "brokers": [{"group": "g0", "state": "NRW"}], "gone": ["a"]}, "h", whole=False
    )
    assert set(atlas.brokers) == {"g1"}
    assert atlas.takers("a") is None
    assert not atlas.tell({"revision": 10}, "h", whole=False)


@pytest.mark.parametrize(
    "row",
    [
        None,
        {},
        {"subject": "a"},
        {**row_of("a", [("g",)]), "partitions": [1]},
        {**row_of("a", [("g",)]), "state": "X"},
    ],
)
def test_a_route_that_is_none_is_said_so(row):
    with pytest.raises(BrokerUnreachable, match="route"):
        parse_route(row)


NAMES = st.from_regex(r"[a-z]{1,5}", fullmatch=True)
ROUTES = st.builds(
    SubjectRoute, NAMES, st.integers(1, 9), st.sampled_from(["RW", "R", "W", "NRW"]),
    st.lists(NAMES, max_size=3).map(tuple), st.lists(NAMES, max_size=3).map(tuple),
)  # fmt: skip
ADDRESSES = st.builds(
    Address,
    NAMES,
    NAMES,
    st.integers(1, 65535),
    st.sampled_from(["RW", "R", "W", "NRW"]),
    st.integers(0, 9),
    NAMES,
)


@given(st.booleans(), st.lists(ADDRESSES, max_size=4), st.lists(ROUTES, max_size=4))
def test_what_is_kept_on_the_disk_is_what_is_read(routed, brokers, routes):
    atlas = Atlas()
    atlas.routed = routed
    atlas.list_brokers(tuple(brokers))
    atlas.routes = {one.subject: one for one in routes}
    found = Atlas.from_map(json.loads(packed(atlas)))
    assert (found.routed, found.brokers, found.routes) == (atlas.routed, atlas.brokers, atlas.routes)


@given(
    st.binary(max_size=100)
    | st.just(b'{"version": 1}')
    | st.just(b'{"version":1,"routed":true,"brokers":[1],"routes":[]}')
)
def test_a_cache_that_is_none_is_ignored_with_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cache") / "routes"
    path.write_bytes(data)
    lines: list[logging.LogRecord] = []
    logger = logging.getLogger("tidemill")
    handler = logging.Handler()
    handler.emit = lines.append
    logger.addHandler(handler)
    try:
        atlas = RoutesCache(path).load()
    finally:
        logger.removeHandler(handler)
    assert not atlas.brokers
    assert [line.getMessage().split()[0] for line in lines] == ["routes_cache_ignored"]


def test_a_cache_is_replaced_as_a_whole_and_a_folder_that_cannot_be_written_is_said_once(tmp_path, caplog):
    cache = RoutesCache(tmp_path / "new" / "routes")
    assert not cache.load().brokers
    cache.save(packed(atlas_of(broker("g0"), routes=[row_of("a", [("g0",)])])))
    assert named(cache.load().takers("a")) == ["g0/a"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["routes"]
    (tmp_path / "file").touch()
    closed = RoutesCache(tmp_path / "file" / "routes")
    closed.save(b"{}")
    closed.save(b"{}")
    assert caplog.text.count("routes_not_cached") == 1


def test_a_cache_keeps_what_other_processes_have_of_other_subjects(tmp_path):
    cache = RoutesCache(tmp_path / "routes")
    cache.save(packed(atlas_of(broker("g0"), routes=[row_of("a", [("g0",)]), row_of("b", [("g0",)])])))
    cache.save(packed(atlas_of(broker("g0"), broker("g1"), routes=[row_of("a", [("g1",)])])))

    assert [named(cache.load().takers(name)) for name in "ab"] == [["g1/a"], ["g0/b"]]


def test_routes_are_kept_by_the_address_of_the_server_where_caches_of_the_user_lie(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, other = default_path([("m1", 7401), ("m2", 7401)]), default_path([("m1", 7401)])

    assert one == default_path([("m2", 7401), ("m1", 7401)])
    assert one != other
    assert {one.parent, other.parent} == {tmp_path / "tidemill"}
    assert default_path([("fe80::1%/../../etc", 7401)]).parent == tmp_path / "tidemill"


def test_without_a_folder_of_caches_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))

    assert default_path([("m1", 7401)]) is None


def test_what_is_remembered_gives_way_to_any_answer():
    """At the same address there may be another cluster by now, whose numbers begin anew."""
    atlas = Atlas()
    atlas.remember(
        atlas_of(
            broker("g0", port=1, epoch=9), broker("g9", epoch=9), routes=[row_of("a", [("g9",), ("g0",)])]
        )
    )
    before = atlas.routed, named(atlas.takers("a"))
    atlas.tell({"brokers": [broker("g0", port=2, epoch=1)], "routes": [row_of("a", [("g0",)])]}, "m")
    told = {group: (one.port, one.epoch) for group, one in atlas.brokers.items()}
    atlas.tell({"brokers": [broker("g0", port=3, epoch=0)]}, "m")

    assert before == (True, ["g0/a"])
    assert told == {"g0": (2, 1)}
    assert atlas.routes["a"].version == 1
    assert atlas.brokers["g0"].port == 2, "a replica of meta that lags is not believed"


class Port:
    def __init__(self, name: str) -> None:
        self.name = name
        self.away = False

    async def get(self, path: str, timeout_s: float = 1.0):
        del path, timeout_s
        if self.away:
            raise BrokerUnreachable(f"{self.name} is away")
        return self.name

    async def post(self, path: str, body: object, timeout_s: float = 1.0):
        del body
        return await self.get(path, timeout_s)

    async def lines(self, path: str, body: object, silence_s: float):
        yield await self.post(path, body, silence_s)


async def test_servers_are_asked_in_turn_until_one_answers():
    ports: dict[str, Port] = {}

    def open_port(host: str, port: int) -> Port:
        del port
        return ports.setdefault(host, Port(host))

    servers = Servers(parse_servers("m1:1, m2:2,m3:3"), open_port)
    assert await servers.get("/", 1.0) == "m1"
    ports["m1"].away = ports["m2"].away = True
    assert await servers.post("/", {}, 1.0) == "m3"
    assert servers.host == "m3"
    ports["m3"].away = True
    with pytest.raises(BrokerUnreachable):
        await servers.get("/", 1.0)
    ports["m2"].away = False
    assert await servers.get("/", 1.0) == "m2"
    assert [line async for line in servers.lines("/", {}, 1.0)] == ["m2"]
    assert servers.host != "m2"

"""Searches where a master does not answer: who is asked in its place, and who is named when nobody can be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tidemill import BrokerUnreachable, ClientSettings, Refused
from tidemill.looking import Looker
from tidemill.router import Router
from tidemill.search import Search
from tidemill.servers import Servers

IDENTITY = "0" * 32 + "-0"
PATH = "/v1/subjects/s/messages"


def message(broker: str, sequence: int) -> dict[str, Any]:
    return {
        "id": IDENTITY, "subject": "s", "sequence": sequence, "stored_at": "2026-09-01T12:00:00.123Z", "key": None,
        "created_at": None, "tags": [], "properties": None, "attempts": 0, "origin": broker, "body": "",
    }  # fmt: skip


@dataclass
class Town:
    """Meta and two broker groups, ``g0`` and ``g1``, of a master ``-0`` and a slave ``-1``; two messages in each, and
    a page has one.
    """

    away: set[str] = field(default_factory=set[str])
    unled: set[str] = field(default_factory=set[str])
    """Groups whose masters meta believes dead."""
    fenced: set[str] = field(default_factory=set[str])
    allowed: str = "RW"
    has: tuple[str, ...] = ("g0", "g1")
    """Who has the message with the id."""
    asked: list[str] = field(default_factory=list[str])

    def open_port(self, host: str, port: int) -> Any:
        del port
        return Port(self, host)

    def looker(self) -> Looker:
        servers = Servers([("meta", 1)], self.open_port)
        return Looker(servers, Router(servers, ClientSettings(open_port=self.open_port)), self.open_port)

    async def browse(self, looker: Looker) -> list[tuple[str | None, int]]:
        return [(one.origin, one.sequence) async for one in Search(looker.look, PATH, {}, None)]


class Port:
    def __init__(self, town: Town, host: str) -> None:
        self._town = town
        self._host = host

    async def get(self, path: str, timeout_s: float = 5.0) -> Any:
        del timeout_s
        town, host = self._town, self._host
        town.asked.append(f"{host}{path.partition('?')[0]}")
        if host in town.away:
            raise BrokerUnreachable(f"{host} is away")
        match path.partition("?")[0]:
            case "/v1/routes":
                return {"brokers": [self._leader(group) for group in ("g0", "g1")], "routes": [self._route()]}
            case "/v1/brokers":
                return [self._row(group) for group in ("g0", "g1")]
            case "/v1/replication":
                return {"role": "fenced" if host in town.fenced else "slave"}
            case "/v1/subjects/s/messages":
                after = parse_qs(urlsplit(path).query).get("after")
                return {
                    "messages": [message(host, 0 if after is None else 1)],
                    "after": "0" if after is None else None,
                }
            case other if unquote(other) == f"/v1/messages/{IDENTITY}" and host[:2] in town.has:
                return message(host, 0)
            case _:
                raise Refused("not_found", path)

    def _leader(self, group: str) -> dict[str, Any]:
        state = "NRW" if group in self._town.unled else "RW"
        return {"group": group, "host": "h", "port": 9, "state": state, "epoch": 1, "control": f"{group}-0:1"}

    def _route(self) -> dict[str, Any]:
        parts = [{"group": f"g{n}", "name": "s", "ranges": [[512 * n, 512 * n + 512]]} for n in range(2)]
        return {"subject": "s", "version": 1, "state": "RW", "partitions": parts, "former": []}

    def _row(self, group: str) -> dict[str, Any]:
        brokers = [
            {
                "name": f"{group}-{n}",
                "alive": True,
                "in_sync": True,
                "addresses": {"control": f"{group}-{n}:1"},
            }
            for n in (0, 1)
        ]
        return {"group": group, "allowed": self._town.allowed, "retired": False, "brokers": brokers}


@pytest.mark.parametrize("known", [True, False])
async def test_a_slave_answers_where_the_master_does_not_and_its_name_is_told(known: bool) -> None:
    town = Town(away={"g0-0"}, unled={"g0"} if known else set())
    looker = town.looker()

    assert await town.browse(looker) == [("g0-1", 0), ("g0-1", 1), ("g1-0", 0), ("g1-0", 1)]
    assert looker.stand_ins.asked == {"g0": "g0-1"}
    found = await looker.look(f"/v1/messages/{IDENTITY}", {})
    assert found["origin"] == "g0-1"


async def test_a_search_that_began_at_a_master_goes_on_at_its_slave() -> None:
    town = Town()
    looker = town.looker()
    search = Search(looker.look, PATH, {}, None)
    first = await anext(search)
    town.away.add("g0-0")

    assert [(one.origin, one.sequence) for one in [first, await anext(search)]] == [("g0-0", 0), ("g0-1", 1)]


async def test_masters_that_answer_are_all_that_is_asked() -> None:
    town = Town()
    await town.browse(town.looker())
    assert not {one for one in town.asked if "-1/" in one or one.startswith("meta/v1/brokers")}


async def test_who_cannot_be_asked_at_all_is_named_behind_what_the_others_have() -> None:
    town = Town(away={"g0-0", "g0-1"})
    search = Search(town.looker().look, PATH, {}, None)

    assert [(await anext(search)).origin for _ in range(2)] == ["g1-0", "g1-0"]
    with pytest.raises(BrokerUnreachable, match="g0 cannot be asked now"):
        await anext(search)


async def test_a_message_that_nobody_else_has_may_lie_where_nobody_answers() -> None:
    town = Town(away={"g0-0", "g0-1"}, has=("g0",))
    with pytest.raises(BrokerUnreachable, match="nobody else has it"):
        await town.looker().look(f"/v1/messages/{IDENTITY}", {})
    town.has = ("g1",)
    assert (await town.looker().look(f"/v1/messages/{IDENTITY}", {}))["origin"] == "g1-0"


async def test_a_fenced_broker_is_not_asked_what_it_does_not_know() -> None:
    town = Town(unled={"g0"}, fenced={"g0-0", "g0-1"})
    search = Search(town.looker().look, PATH, {}, None)
    with pytest.raises(BrokerUnreachable, match="g0 cannot"):
        await search.all()
    assert not {one for one in town.asked if one.startswith("g0") and one.endswith("messages")}


async def test_a_broker_group_that_people_let_nobody_read_is_left_out() -> None:
    town = Town(unled={"g0"}, allowed="W")
    assert await town.browse(town.looker()) == [("g1-0", 0), ("g1-0", 1)]
    assert not {one for one in town.asked if one.startswith("g0")}


async def test_without_meta_there_is_the_master_alone() -> None:
    town = Town()
    looker = town.looker()
    await town.browse(looker)
    town.away = {"meta", "g0-0"}
    with pytest.raises(BrokerUnreachable, match="g0 cannot be asked now"):
        await town.browse(looker)
    town.away = {"meta"}
    assert len(await town.browse(looker)) == 4

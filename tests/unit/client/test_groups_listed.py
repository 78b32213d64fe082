"""Rows of a group at several brokers and partitions are one row to people."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemill import BrokerUnreachable, ClientSettings, Refused
from tidemill.groups import list_groups, merged
from tidemill.looking import ASKED_AT_ONCE, Looker, gathered
from tidemill.router import Router
from tidemill.servers import Servers


def row(subject: str, group: str = "g", **more: Any) -> dict[str, Any]:
    numbers = {"lag": 1, "in_flight": 2, "failed": 3, "dead": 4, "acked": 5, "consumers": 1}
    return {"subject": subject, "group": group, **numbers, "paused": None, "consumption": "shared",
            "suspended": False, **more}  # fmt: skip


def test_numbers_add_up_and_what_holds_anywhere_is_said() -> None:
    answers = [
        ("g0", [row("s"), row("s#1", paused="f2", consumers=2), row("a", "h")]),
        ("g1", [row("s", suspended=True)]),
    ]
    first, second = merged(answers, [], [])

    assert (first["subject"], first["group"], first["brokers"]) == ("a", "h", ["g0"])
    assert {name: second[name] for name in ("lag", "in_flight", "failed", "dead", "acked")} == {
        "lag": 3,
        "in_flight": 6,
        "failed": 9,
        "dead": 12,
        "acked": 15,
    }
    assert (second["subject"], second["paused"], second["suspended"]) == ("s", "f2", True)
    assert (second["consumers"], second["brokers"]) == (2, ["g0", "g1"])


def test_a_group_that_no_broker_knows_has_no_numbers() -> None:
    known, declared = merged(
        [("g0", [row("s")])], [{"subject": "s", "group": "g"}, {"subject": "t", "group": "g"}], []
    )

    assert (known["lag"], declared["lag"]) == (1, None)
    assert (declared["subject"], declared["brokers"]) == ("t", [])


class Town:
    """Meta at port 1, and two broker groups: g0 is led and may not answer, g1 answers, g2 has no master."""

    def __init__(self) -> None:
        self.silent = False
        self.alone = False
        """There is no g1."""

    def open_port(self, host: str, port: int) -> Any:
        return Port(self, host, port)


class Port:
    def __init__(self, town: Town, host: str, port: int) -> None:
        self._town = town
        self._port = port

    async def get(self, path: str, timeout_s: float = 5.0) -> Any:
        del timeout_s
        if self._port == 2 and self._town.silent:
            raise BrokerUnreachable("it is away")
        if path == "/v1/groups":
            return [] if self._port == 1 else [row("s")]
        brokers = [
            {"group": f"g{n}", "host": "h", "port": 9, "state": "RW", "epoch": 1, "control": f"h:{n + 2}"}
            for n in range(1 if self._town.alone else 2)
        ]
        if path == "/v1/routes":
            return {"brokers": brokers, "routes": []}
        if path == "/v1/brokers":
            return [*brokers, {"group": "g2", "retired": False}, {"group": "g3", "retired": True}]
        raise Refused("not_found", path)


async def test_who_cannot_be_asked_stands_in_every_row() -> None:
    town = Town()
    settings = ClientSettings(open_port=town.open_port)
    servers = Servers([("h", 1)], settings.open_port)
    looker = Looker(servers, Router(servers, settings), settings.open_port)

    [both] = await list_groups(looker)
    assert (both["lag"], both["brokers"], both["away"]) == (2, ["g0", "g1"], ["g2"])
    town.silent = True
    [one] = await list_groups(looker)
    assert (one["lag"], one["brokers"], one["away"]) == (1, ["g1"], ["g2", "g0"])


async def test_when_nobody_answers_there_is_an_error_and_no_empty_list() -> None:
    town = Town()
    town.silent = town.alone = True
    servers = Servers([("h", 1)], town.open_port)
    looker = Looker(servers, Router(servers, ClientSettings()), town.open_port)
    with pytest.raises(BrokerUnreachable, match="g2, g0 cannot be asked"):
        await list_groups(looker)


async def test_only_a_few_are_asked_at_once(until: Any) -> None:
    running, most = 0, 0
    go = asyncio.Event()

    async def question(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1
        return number

    asking = asyncio.create_task(gathered(question(number) for number in range(3 * ASKED_AT_ONCE)))
    await until(lambda: running == ASKED_AT_ONCE)
    go.set()
    assert await asking == list(range(3 * ASKED_AT_ONCE))
    assert most == ASKED_AT_ONCE

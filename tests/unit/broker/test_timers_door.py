"""Timers over HTTP where there are several delay groups: all are asked, and a list goes from one to the next."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from tidemill_broker.doors.neighbour import AboutTimers, no_delay_service
from tidemill_broker.doors.timers import TimersDoor
from tidemill_host.clock import Clock
from tidemill_host.refusals import HttpRefused
from tidemill_host.routing import Router
from tidemill_wire.commands import Command, Sent
from tidemill_wire.timing import Cancel, Changed, ListTimers, Reschedule, Show, TimerRow, Waiting

NOW_MS = 1_800_000_000_000
ID = f"{7:032x}-3"


class Still(Clock):
    def now_ms(self) -> int:
        return NOW_MS


def row(number: int, key: str = "order-1", cron: str = "") -> TimerRow:
    return TimerRow(f"{number:032x}-0", "s", key, NOW_MS + number, NOW_MS, 1, None, cron)


class Groups:
    """Answers of delay groups; a list is paged by its limit, and ``after`` says an index."""

    def __init__(self, **rows: list[TimerRow]) -> None:
        self.rows = rows
        self.asked: list[tuple[str, AboutTimers]] = []
        self.away: set[str] = set()

    async def take(self, batch: bytearray) -> Sent:
        raise AssertionError(batch)

    async def groups(self) -> list[str]:
        return list(self.rows)

    async def ask(self, group: str, question: AboutTimers) -> Command:
        self.asked.append((group, question))
        if group in self.away:
            raise no_delay_service()
        if isinstance(question, Cancel | Reschedule):
            return Changed(len(self.rows[group]), 1)
        if isinstance(question, Show):
            return Waiting(self.rows[group])
        begin = int(question.after.partition(".")[2] or 0)
        end = begin + question.limit
        return Waiting(self.rows[group][begin:end], f"0.{end}" if end < len(self.rows[group]) else "")


async def answered(groups: Groups, method: str, path: str) -> Any:
    found = Router(TimersDoor(groups, Still()).routes()).find(path.partition("?")[0])
    assert found is not None
    methods, variables, _ = found
    response: Any = await methods[method](make_mocked_request(method, path), variables)
    return json.loads(response.body)


async def pages(groups: Groups, asked: str) -> list[list[int]]:
    """Of each page the due times, from now on."""
    found, after = list[list[int]](), ""
    while True:
        page = await answered(groups, "GET", f"/v1/subjects/s/timers?{asked}{after}")
        found.append([int(row["id"].partition("-")[0], 16) for row in page["timers"]])
        if page["after"] is None:
            return found
        after = f"&after={page['after']}"


async def test_a_list_goes_through_one_delay_group_after_the_other() -> None:
    groups = Groups(b=[row(4), row(5)], a=[row(1), row(2), row(3)], c=[], d=[row(6)])
    assert await pages(groups, "limit=2") == [[1, 2], [3], [4, 5], [6]]
    assert groups.asked[0] == ("a", ListTimers("s", "", 0, (1 << 63) - 1, "", 2))
    page = await answered(groups, "GET", "/v1/subjects/s/timers?after=aa:0.7")
    assert [row["due"] for row in page["timers"]][:1] == ["2027-01-15T08:00:00.004Z"], (
        "a group that is not there any more"
    )


async def test_what_a_delay_service_is_not_asked_for_is_left_out_here() -> None:
    groups = Groups(a=[row(1), row(2, "order-12"), row(3, cron="@daily UTC")])
    assert await pages(groups, "timer_key=order-1&prefix=ord") == [[1, 3]]
    assert await pages(groups, "timer_key=order-1&recurring=true") == [[3]]
    assert await pages(groups, "timer_key=order-1&prefix=x") == [[]]
    assert isinstance(question := groups.asked[-1][1], ListTimers)
    assert question.prefix == "order-1"


async def test_a_change_is_that_of_all_delay_groups_and_none_while_one_is_away() -> None:
    groups = Groups(a=[row(1)], b=[row(2), row(3)])
    assert await answered(groups, "POST", f"/v1/timers/{ID}/cancel") == {"changed": 3, "gone": 2}
    shown = await answered(groups, "GET", f"/v1/timers/{ID}")
    assert (shown["due"], shown["cron"]) == ("2027-01-15T08:00:00.001Z", None)
    groups.away.add("b")
    for method, path in (("POST", f"/v1/timers/{ID}/cancel"), ("GET", f"/v1/timers/{ID}")):
        with pytest.raises(HttpRefused) as refused:
            await answered(groups, method, path)
        assert refused.value.code == "no_delay_service"


@pytest.mark.parametrize(
    "asked",
    [
        "limit=0",
        "limit=501",
        "recurring=yes",
        "from=noon",
        "after=1",
        "after=a:x",
        "timer_key=",
        "colour=red",
    ],
)
async def test_what_is_asked_wrongly_is_refused(asked: str) -> None:
    with pytest.raises(HttpRefused) as refused:
        await answered(Groups(a=[]), "GET", f"/v1/subjects/s/timers?{asked}")
    assert refused.value.status == 400

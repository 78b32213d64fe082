"""Many groups and subjects: what is asked for and no more, made once however many ask, and how it went."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from samples.brokers import SUBJECT, TINY, Rig
from tidemill_broker.doors.overview import KEEP_MS, SLICE_ROWS, KeptRows, Overview, browsed
from tidemill_broker.doors.past import POINTS_MAX, SERIES_MAX, Past, Sampler, Series
from tidemill_broker.doors.permits import PERMITS
from tidemill_broker.doors.status import group_rows, subject_rows
from tidemill_host.audit import Audit
from tidemill_host.clock import Clock
from tidemill_host.doorman import Asked, Doorman
from tidemill_host.refusals import HttpRefused
from tidemill_host.routing import Router
from tidemill_host.settings import LockSettings
from tidemill_wire.access import Access, Charter, Identity, Operation, Permission, TokenRow, digest_of
from tidemill_wire.commands import Pull, Pulled

NOW_MS = 1_800_000_000_000


class Set(Clock):
    """Stands where it is put."""

    def __init__(self) -> None:
        self.at_ms = NOW_MS

    def now_ms(self) -> int:
        return self.at_ms


def peopled() -> Rig:
    """Three subjects of 1, 2 and 3 messages, each with a group that holds one of them."""
    rig = Rig(replace(TINY, lease_ms=10**6))
    for number in (1, 2, 3):
        rig.send(*[b"x"] * number, subject=f"shop.s{number}")
        assert isinstance(rig.ask(Pull(f"g{number}", "c", [f"shop.s{number}"], 1, 1 << 20, 0, -1)), Pulled)
    return rig


async def answered(overview: Overview, path: str) -> Any:
    found = Router(overview.routes()).find(path.partition("?")[0])
    assert found is not None
    response: Any = await found[0]["GET"](make_mocked_request("GET", path), found[1])
    return json.loads(response.body)


async def test_answer_has_sums_of_all_and_the_rows_that_were_asked_for() -> None:
    rig = peopled()
    overview = Overview(rig.broker, Set())

    said = await answered(overview, "/v1/overview/groups?order=lag&limit=2")

    assert (said["count"], said["found"], said["made_ms"]) == (3, 3, NOW_MS)
    assert [row["group"] for row in said["groups"]] == ["g3", "g2"]
    assert said["groups"] == [
        row for row in reversed(list(group_rows(rig.broker.state))) if row["group"] != "g1"
    ]
    names = ("lag", "in_flight", "failed", "dead", "acked", "consumers")
    sums = {name: sum(row[name] for row in list(group_rows(rig.broker.state))) for name in names}
    assert said["sums"] == {**sums, "paused": 0, "suspended": 0, "over_quota": 0}
    assert (sums["lag"], sums["in_flight"]) == (3, 3)


@pytest.mark.parametrize(
    "asked, expected",
    [
        ("", ["g3", "g2", "g1"]),
        ("order=name", ["g1", "g2", "g3"]),
        ("order=in_flight", ["g1", "g2", "g3"]),  # alike: by name
        ("contains=S2", ["g2"]),
        ("contains=g", ["g3", "g2", "g1"]),
        ("subject=shop.s1", ["g1"]),
        ("subject=shop.s", []),
        ("group=g3&subject=shop.s3", ["g3"]),
        ("group=g3&subject=shop.s1", []),
    ],
)
async def test_groups_come_as_was_asked(asked: str, expected: list[str]) -> None:
    said = await answered(Overview(peopled().broker, Set()), f"/v1/overview/groups?{asked}")

    assert [row["group"] for row in said["groups"]] == expected
    assert (said["found"], said["count"]) == (len(expected), 3)


async def test_subjects_come_as_was_asked() -> None:
    rig = peopled()
    said = await answered(Overview(rig.broker, Set()), "/v1/overview/subjects?order=messages&limit=2")

    assert [(row["name"], row["messages"]) for row in said["subjects"]] == [("shop.s3", 3), ("shop.s2", 2)]
    assert said["sums"] == {"messages": 6, "next_sequence": 6}


@pytest.mark.parametrize(
    "asked", ["order=colour", "limit=0", "limit=1001", "limit=x", "colour=1", f"contains={'x' * 101}"]
)
@pytest.mark.parametrize("of", ["groups", "subjects"])
async def test_what_cannot_be_asked_is_refused(of: str, asked: str) -> None:
    with pytest.raises(HttpRefused) as refused:
        await answered(Overview(peopled().broker, Set()), f"/v1/overview/{of}?{asked}")

    assert refused.value.status == 400


async def test_many_who_ask_at_once_cost_one_look_and_others_have_their_turn_meanwhile() -> None:
    clock, looks, turns = Set(), 0, 0

    def make() -> Iterator[dict[str, Any]]:
        nonlocal looks
        looks += 1
        yield from ({"number": number} for number in range(10 * SLICE_ROWS))

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    survey = KeptRows(make, clock)
    task = asyncio.ensure_future(other())
    rows = await asyncio.gather(*(survey.rows() for _ in range(20)))
    task.cancel()
    clock.at_ms += KEEP_MS - 1
    await survey.rows()
    assert (looks, {len(one) for one in rows}) == (1, {10 * SLICE_ROWS})
    assert turns >= 10

    clock.at_ms += 1
    await survey.rows()
    clock.at_ms -= 10 * KEEP_MS  # somebody has set the clock back
    await survey.rows()
    assert looks == 3


def test_subject_that_is_removed_during_a_look_is_left_out() -> None:
    rig = peopled()
    state = rig.broker.state
    groups, subjects = group_rows(state), subject_rows(state)
    first = [next(groups)["group"], next(subjects)["name"]]
    del state.groups[state.by_name.pop(b"shop.s2").groups["g2"]]

    assert first == ["g1", "shop.s1"]
    assert [row["group"] for row in groups] == ["g3"]
    assert [row["name"] for row in subjects] == ["shop.s3"]


# -- the past --------------------------------------------------------------------------------------------------


def row(group: str, lag: int, acked: int = 0) -> dict[str, Any]:
    return {"subject": SUBJECT, "group": group, "lag": lag, "in_flight": 0, "failed": 0, "acked": acked}


def test_series_keeps_the_last_hour_and_no_more() -> None:
    series = Series(1)
    for number in range(POINTS_MAX + 10):
        series.note(number, (2 * number,))

    assert series.rows() == [[number, 2 * number] for number in range(10, POINTS_MAX + 10)]


def test_past_follows_who_has_something_to_do_and_what_becomes_of_it() -> None:
    past = Past()
    past.note(1, [row("busy", 5, 1), row("idle", 0)])
    past.note(2, [row("busy", 0, 6), row("idle", 0)])

    assert past.sums.rows() == [[1, 5, 0, 0, 1], [2, 0, 0, 0, 6]]
    assert past.of(SUBJECT, "busy") == [[1, 5, 1], [2, 0, 6]]
    assert past.of(SUBJECT, "idle") == []
    past.note(3, [row("idle", 0)])
    assert past.of(SUBJECT, "busy") == [], "it was removed"


def test_past_of_those_with_most_to_do_is_kept_when_there_are_too_many() -> None:
    past = Past()
    past.note(1, [row("calm", 1)])
    past.note(2, [row("calm", 0), *(row(f"g{number}", 10 + number) for number in range(SERIES_MAX + 50))])

    assert len(past.groups) == SERIES_MAX
    assert past.of(SUBJECT, f"g{SERIES_MAX + 49}") == [[2, SERIES_MAX + 59, 0]]
    assert past.of(SUBJECT, "calm") == []
    assert next(reversed(past.groups)) == (SUBJECT, f"g{SERIES_MAX + 49}")


async def test_sampler_looks_slice_by_slice_and_then_rests() -> None:
    clock, looks, given = Set(), 0, 0

    def make() -> Iterator[dict[str, Any]]:
        nonlocal looks, given
        looks += 1
        for number in range(3 * SLICE_ROWS + 1):
            given += 1
            yield row(f"g{number}", 1)

    sampler = Sampler(make, clock)
    sampler.start()
    assert given == SLICE_ROWS
    for _ in range(10):
        await asyncio.sleep(0)
    sampler.close()

    assert looks == 1
    assert sampler.past.sums.rows() == [[NOW_MS, 3 * SLICE_ROWS + 1, 0, 0, 0]]


async def test_past_is_told_of_all_and_of_one() -> None:
    overview = Overview(peopled().broker, Set())
    overview.start()
    overview.close()

    all_of_it = await answered(overview, "/v1/overview/past?limit=2")
    one = await answered(overview, "/v1/overview/past?subject=shop.s2&group=g2")

    assert all_of_it["sums"] == [[NOW_MS, 3, 3, 0, 0]]
    assert [found["group"] for found in all_of_it["groups"]] == ["g3", "g2"]
    assert one["groups"] == [{"subject": "shop.s2", "group": "g2", "points": [[NOW_MS, 1, 0]]}]


# -- of what may be browsed --------------------------------------------------------------------------------------


ALL_PATHS = ("/v1/overview/groups", "/v1/overview/subjects", "/v1/overview/past")


async def told(overview: Overview, path: str, *granted: Permission, everything: bool = False) -> Any:
    """What somebody is answered who was granted that."""
    access, refused = Access(locked=True, own=lambda: {digest_of("cluster")}), Counter[str]()
    row = TokenRow("1", "token:a", digest_of("token"), 0)
    access.obey(Charter(1, {"token:a": granted}, {row.digest: row}))
    audit = Audit(LockSettings(), "broker", lambda: 0)
    doorman = Doorman(access, PERMITS, audit, lambda: 0, refused)
    shown = "cluster" if everything else "token"
    request = make_mocked_request("GET", path, headers={"Authorization": f"Bearer {shown}"})
    found = Router(overview.routes()).find(path.partition("?")[0])
    assert found is not None
    answer, variables, template = found[0]["GET"], found[1], found[2]
    serving = doorman.serve(Asked(request, template, variables), lambda: answer(request, variables))
    response: Any = await asyncio.ensure_future(serving)  # who asks is known to that task alone
    assert response.status == 200, response.body
    return json.loads(response.body)


def browse(*subjects: str, operation: Operation = Operation.BROWSE) -> Permission:
    return Permission(frozenset({operation}), subjects)


@pytest.mark.parametrize("operation", [Operation.BROWSE, Operation.ADMIN])
async def test_sums_and_counts_are_of_what_may_be_browsed_and_nothing_else(operation: Operation) -> None:
    """As if there were nothing else: the answer is that of a broker which has only that."""
    rig = Rig(replace(TINY, lease_ms=10**6))
    rig.send(b"x", b"x", subject="shop.s2")
    assert isinstance(rig.ask(Pull("g2", "c", ["shop.s2"], 1, 1 << 20, 0, -1)), Pulled)
    alone, among = Overview(rig.broker, Set()), Overview(peopled().broker, Set())
    granted = (browse("shop.s2", "none", operation=operation), browse("shop.s3", operation=Operation.CONSUME))

    for path in ALL_PATHS[:2]:
        for more in ("", "?order=name", "?contains=s", "?contains=s3", "?limit=1"):
            assert await told(among, path + more, *granted) == await answered(alone, path + more)
    assert (await told(among, ALL_PATHS[0], *granted))["count"] == 1


async def test_who_may_browse_all_and_the_cluster_see_all() -> None:
    overview = Overview(peopled().broker, Set())
    overview.start()
    overview.close()

    for path in ALL_PATHS:
        everything = await answered(overview, path)
        assert await told(overview, path, browse("*")) == everything
        assert await told(overview, path, browse("shop.*"), everything=True) == everything
        beginning = await told(overview, path, browse("shop.*"))
        assert beginning["groups" if "groups" in beginning else "subjects"]


async def test_past_of_others_is_in_no_row_and_no_sum() -> None:
    overview = Overview(peopled().broker, Set())
    overview.start()
    overview.close()

    said = await told(overview, "/v1/overview/past", browse("shop.s2"))
    assert said == {
        "sums": [],
        "groups": [{"subject": "shop.s2", "group": "g2", "points": [[NOW_MS, 1, 0]]}],
    }
    assert (await told(overview, "/v1/overview/past?subject=shop.s3", browse("shop.s2")))["groups"] == []


@pytest.mark.parametrize("path", ALL_PATHS)
async def test_who_was_granted_nothing_is_told_of_nothing(path: str) -> None:
    overview = Overview(peopled().broker, Set())
    overview.start()
    overview.close()

    said = await told(overview, path, browse("shop.*", operation=Operation.SEND))
    assert not any(said.get(name) for name in ("groups", "subjects", "count", "found"))
    assert not any(said["sums"].values() if isinstance(said["sums"], dict) else said["sums"])


async def test_further_partitions_are_browsed_as_their_subject() -> None:
    rows = [{"name": name} for name in ("shop.s1", "shop.s1#2", "shop.s12", "shop.s1.a")]

    found = await browsed(rows, "name", Identity("token:a", (browse("shop.s1"),)))
    assert [row["name"] for row in found] == ["shop.s1", "shop.s1#2"]


async def test_others_have_their_turn_while_what_may_be_browsed_is_looked_for() -> None:
    rows = [{"name": f"s{number}"} for number in range(10 * SLICE_ROWS + 1)]
    looking = asyncio.ensure_future(browsed(rows, "name", Identity("token:a", (browse("s1*"),))))
    turns = 0
    while not looking.done():
        turns += 1
        await asyncio.sleep(0)

    assert turns >= 10
    assert len(await looking) == 112

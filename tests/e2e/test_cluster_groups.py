"""Whole groups in a cluster: dead letters, seeks and standing still over brokers and over partitions of one broker."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest

from e2e.asking import post, receive, settle
from e2e.clusters import Cluster
from e2e.queues import Queue, run_command, wait_until
from tidemill import Client, ClientSettings, DeadLetters
from tidemill.link import Answer, Link, dial
from tidemill.routes import Address, parse_routes
from tidemill_wire.batch import Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Ack, Command, Grant, Nack, Pull, Pulled, SendBatches, Sent

pytestmark = pytest.mark.e2e

MESSAGES = 24
RATE = 8.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two broker groups, so every subject lies on both; each test has subjects of its own."""
    made = Cluster(tmp_path_factory.mktemp("groups") / "cluster", 2, 0)
    try:
        yield made.start()
    finally:
        made.close()


def dead(cluster: Cluster, verb: str, subject: str, *options: str) -> list[dict[str, Any]]:
    done = run_command("dead", verb, subject, "-g", "billing", "-o", "json", *options, server=cluster.server)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [json.loads(line) for line in done.stdout.splitlines()]


async def send_and_reject(cluster: Cluster, subject: str) -> dict[str, str]:
    """Ids of messages on both brokers, and the reason for which each was rejected: one of two mistakes."""
    async with Client(cluster.server) as mq:
        sent = [
            (await mq.send(subject, b"%d" % number, order_key=f"k{number}")).id for number in range(MESSAGES)
        ]
        reasons: dict[str, str] = {}
        async with asyncio.timeout(60), mq.consume(subject, group="billing") as messages:
            async for message in messages:
                reason = "no amount" if int(message.body) % 3 else "no customer"
                await message.nack(reason=reason, reject=True)
                reasons[message.id] = reason
                if len(reasons) == MESSAGES:
                    break
        assert set(reasons) == set(sent)
        await wait_buried(mq.dead_letters(subject, "billing"), MESSAGES)
    return reasons


async def wait_buried(letters: DeadLetters, count: int) -> None:
    """Until so many lie there; every look is a question to each broker."""
    async with asyncio.timeout(30):
        while (await letters.status())["waiting"] < count:
            pass


async def consumed(cluster: Cluster, subject: str, count: int) -> set[str]:
    """So many messages of the group, acked."""
    found: set[str] = set()
    async with Client(cluster.server) as mq, asyncio.timeout(60):
        async with mq.consume(subject, group="billing") as messages:
            async for message in messages:
                found.add(message.id)
                await message.ack()
                if len(found) == count:
                    break
    return found


def test_dead_letters_of_two_brokers_are_listed_redriven_and_purged_and_counts_add_up(
    cluster: Cluster,
) -> None:
    reasons = asyncio.run(send_and_reject(cluster, "orders"))
    rows = dead(cluster, "list", "orders")
    waiting = {row["id"] for row in rows}
    assert waiting == set(reasons)
    assert len(rows) == MESSAGES
    assert {row["broker"] for row in rows} == {"g0", "g1"}
    assert [row["failed_at"] for row in rows] == sorted(row["failed_at"] for row in rows)
    last = rows[-1]
    assert dead(cluster, "show", "orders", last["id"])[0]["reason"] == reasons[last["id"]]
    one = {"found": 1, "left": MESSAGES}
    assert dead(cluster, "redrive", "orders", "--dry-run", "--id", last["id"]) == [{**one, "redriven": 0}]

    [done] = dead(cluster, "redrive", "orders", "--yes", "--id", last["id"])
    assert done == {"found": 1, "redriven": 1, "left": MESSAGES - 1}
    assert asyncio.run(consumed(cluster, "orders", 1)) == {last["id"]}
    waiting -= {last["id"]}

    by_reason = {row["id"] for row in rows if row["reason"] == "no customer"} & waiting
    [done] = dead(cluster, "redrive", "orders", "--yes", "--reason", "no customer")
    assert done == {"found": len(by_reason), "redriven": len(by_reason), "left": len(waiting - by_reason)}
    assert asyncio.run(consumed(cluster, "orders", len(by_reason))) == by_reason
    waiting -= by_reason

    [purged] = dead(cluster, "purge", "orders", "--yes", "-n", "2")
    assert purged == {"found": 2, "purged": 2, "left": len(waiting) - 2}
    left = {row["id"] for row in dead(cluster, "list", "orders")}
    assert left < waiting

    fingerprint = next(row["fingerprint"] for row in rows if row["reason"] == "no amount")
    began = time.monotonic()
    [done] = dead(cluster, "redrive", "orders", "--yes", "--fingerprint", fingerprint, "--rate", str(RATE))
    assert done == {"found": len(left), "redriven": len(left), "left": 0}
    assert time.monotonic() - began >= (len(left) - RATE / 4) / RATE
    assert asyncio.run(consumed(cluster, "orders", len(left))) == left
    assert dead(cluster, "purge", "orders", "--yes") == [{"found": 0, "purged": 0, "left": 0}]


def test_the_client_settles_dead_letters_where_they_lie(cluster: Cluster) -> None:
    async def run() -> None:
        await send_and_reject(cluster, "bills")
        async with Client(cluster.server) as mq:
            letters = mq.dead_letters("bills", "billing")
            found = [letter async for letter in letters]
            chosen = [next(one for one in found if one.broker == name) for name in ("g0", "g1")]
            assert await letters.purge(chosen) == 2
            assert await letters.purge(chosen) == 0
            assert (await letters.status())["waiting"] == MESSAGES - 2
            assert await letters.redrive() == MESSAGES - 2
            assert [letter async for letter in letters] == []

    asyncio.run(run())


# -- several partitions on one broker ------------------------------------------------------------------------------


class Talk:
    """Commands over one connection to a broker's data port: stock producers send to no further partition yet."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._sent = 0

    async def ask(self, command: Command) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._link.ask(command, future.set_result)
        async with asyncio.timeout(30):
            return await future

    async def send(self, partition: str, *bodies: bytes) -> None:
        self._sent += 1
        identity = b"%16d" % (hash((partition, self._sent)) % 10**15)
        origin = Origin(partition.encode(), 4711, self._sent, identity, 1)
        answer = await self.ask(SendBatches(build_batch(origin, Content(list(bodies)))))
        assert isinstance(answer, Sent)
        assert not answer.refused

    async def take(self, *partitions: str) -> list[Grant]:
        """All that the group is given now."""
        grants: list[Grant] = []
        while True:
            answer = await self.ask(Pull("billing", "c", list(partitions), 1000, 1 << 20, 100))
            assert isinstance(answer, Pulled), answer
            if not answer.grants:
                return grants
            grants += answer.grants

    async def settle(self, grants: Sequence[Grant], *, reject: bool) -> None:
        for grant in grants:
            ranges = [grant.pull_sequence, grant.pull_sequence + grant.count - 1]
            await self.ask(
                Nack("billing", "c", grant.subject, ranges, reason="no use", reject=True)
                if reject
                else Ack("billing", "c", grant.subject, ranges)
            )


@asynccontextmanager
async def talk(address: Address) -> AsyncIterator[Talk]:
    link = await dial(address, ClientSettings())
    try:
        yield Talk(link)
    finally:
        link.close()


def counted(grants: Sequence[Grant]) -> dict[str, int]:
    """Messages by partition."""
    found: Counter[str] = Counter()
    for grant in grants:
        found[grant.subject] += grant.count
    return dict(found)


@pytest.fixture
def expanded(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A subject with two partitions on each of the broker groups."""
    name = f"wide.{request.node.name.rpartition('_')[2]}"
    assert run_command("send", name, "first", server=cluster.server).returncode == 0
    assert len(cluster.expand(name, groups=["g0", "g1"])) == 4
    return name


def address_of(cluster: Cluster, group: str) -> Address:
    return next(one for one in parse_routes(cluster.get("/v1/routes"), cluster.host) if one.group == group)


def http_of(cluster: Cluster, group: str) -> Queue:
    """The HTTP port of a broker group's master."""
    at = Queue(cluster.data)
    at.host, port = address_of(cluster, group).control.split(":")
    at.http_port = int(port)
    return at


def test_what_is_done_to_a_subject_is_done_in_all_its_partitions(cluster: Cluster, expanded: str) -> None:
    route = cluster.get(f"/v1/subjects/{expanded}")["route"]["partitions"]
    names = [one["name"] for one in route if one["group"] == "g0"]
    assert len(names) == 2, route
    further = next(name for name in names if "#" in name)

    async def run() -> None:
        async with Client(cluster.server) as mq, talk(address_of(cluster, "g0")) as g0:
            await g0.send(further, b"a", b"b", b"c")
            own = counted(await g0.take(expanded)).get(expanded, 0)
            assert counted(await g0.take(further)) == {further: 3}
            moved = await mq.seek(expanded, "billing", "earliest")
            assert moved.in_flight == own + 3
            await mq.suspend(expanded, "billing")
            assert await g0.take(expanded, further) == []
            await mq.resume(expanded, "billing")
            grants = await g0.take(expanded, further)
            assert counted(grants).get(further) == 3
            await g0.settle(grants, reject=True)

            letters = mq.dead_letters(expanded, "billing")
            await wait_buried(letters, own + 3)
            path = f"/v1/subjects/{quote(further)}/groups/billing/dead"
            at = http_of(cluster, "g0")
            assert at.get(path)["waiting"] == 3
            body = {"reason": "no use", "rehearsal": True}
            assert post(at, f"{path}/purge", body).value == {"count": 3}
            listed = at.get(f"/v1/subjects/{quote(f'%dead%{further}%billing', safe='')}/messages")
            assert [row["text"] for row in listed["messages"]] == ["a", "b", "c"]
            found = [letter async for letter in letters]
            mine = [letter for letter in found if letter.partition == further]
            assert len(found) == own + 3
            assert [letter.message.body for letter in mine] == [b"a", b"b", b"c"]
            assert await letters.redrive(mine[:1]) == 1
            assert await letters.purge(mine[1:2]) == 1
            assert (await letters.status())["waiting"] == own + 1
            assert await letters.redrive() == own + 1
            again = await g0.take(expanded, further)
            assert sum(counted(again).values()) == own + 2
            await g0.settle(again, reject=False)
            assert [letter async for letter in letters] == []

    asyncio.run(run())


# -- looking -------------------------------------------------------------------------------------------------------


def groups_of(cluster: Cluster, subject: str) -> dict[str, Any]:
    done = run_command("groups", "-o", "json", server=cluster.server)
    assert (done.returncode, done.stderr) == (0, ""), done
    return next(row for line in done.stdout.splitlines() if (row := json.loads(line))["subject"] == subject)


async def fail_alike(cluster: Cluster, subject: str, count: int) -> None:
    """So many deliveries that fail in the same way, on both brokers."""
    async with Client(cluster.server) as mq:
        for number in range(count):
            await mq.send(subject, b"x", order_key=f"k{number}")
        async with asyncio.timeout(60), mq.consume(subject, group="billing") as messages:
            async for message in messages:
                await message.nack(error=ValueError("no amount"))
                count -= 1
                if not count:
                    break


def test_groups_are_counted_over_all_brokers_and_status_says_what_is_wrong_with_them(
    cluster: Cluster,
) -> None:
    asyncio.run(fail_alike(cluster, "accounts", 80))
    wait_until("it is paused", lambda: groups_of(cluster, "accounts")["paused"])
    row = groups_of(cluster, "accounts")
    assert row["brokers"] in (["g0", "g1"], ["g1", "g0"])
    assert (row["lag"] + row["failed"] + row["in_flight"], row["acked"], row["dead"]) == (80, 0, 0)

    asyncio.run(send_and_reject(cluster, "payments"))
    assert groups_of(cluster, "payments")["dead"] == MESSAGES
    done = run_command("status", "-o", "json", server=cluster.server)
    assert done.returncode == 1
    problems = json.loads(done.stdout)["problems"]
    assert any(
        said.startswith("group billing of accounts is paused at g") and "ValueError: no amount" in said
        for said in problems
    ), problems
    said = f"group billing of payments has {MESSAGES} dead letters, the newest of "
    assert any(one.startswith(said) for one in problems), problems


def receive_all(broker: Queue, subject: str) -> list[bytes]:
    """What its gateway gives to a group; all of it is acked there."""
    found: list[bytes] = []
    while rows := receive(broker, subject, "over-http"):
        assert {row["subject"] for row in rows} == {subject}
        assert settle(broker, subject, "ack", rows, "over-http").value["count"] == len(rows)
        found += [base64.b64decode(row["body"]) for row in rows]
    return found


def test_every_partition_of_a_broker_group_is_sent_to_and_consumed_from(
    cluster: Cluster, expanded: str
) -> None:
    route = cluster.expand(expanded, partitions=8)

    async def run() -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        async with Client(cluster.server) as mq:
            for number in range(80):
                await mq.send(expanded, b"%d" % number, key="k" if number < 10 else None)
            keys = [f"o-{number}" for number in range(40)]
            await asyncio.gather(*(mq.send(expanded, key, order_key=key) for key in keys))
            async with mq.consume(expanded, group="all") as messages:
                async for message in messages:
                    found[message.body] += 1
                    assert message.subject == expanded
                    if len(found) == 121:
                        break
            browsed = Counter([stored.body async for stored in mq.browse(expanded)])
            assert browsed == found
            assert len(await mq.find_by_key(expanded, "k").all()) == 10
        return found

    found = asyncio.run(run())

    assert set(found.values()) == {1}
    counts: dict[str, int] = {}
    for group in ("g0", "g1"):
        rows = http_of(cluster, group).get("/v1/subjects")
        counts |= {f"{group}/{row['name']}": row["messages"] for row in rows}
    places = [f"{one['group']}/{one['name']}" for one in route]
    assert len(places) == 8
    got = [receive_all(http_of(cluster, group), expanded) for group in ("g0", "g1")]
    assert Counter(body for bodies in got for body in bodies) == found
    assert min(counts.get(place, 0) for place in places) >= 8, counts

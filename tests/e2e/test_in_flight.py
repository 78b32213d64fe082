"""What may be in flight on a real queue: nothing is lost for it, no way leads around it, and it is said who waits."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.peers import RawPeer
from e2e.queues import run_command, wait_until
from e2e.test_quotas import bound_subject, bound_token
from e2e.towers import Tower
from tidemill_wire.commands import Ack, Command, Failed, Pull, Pulled
from tidemill_wire.errors import KIND_BY_NUMBER

pytestmark = pytest.mark.e2e

MOST = 5
MESSAGES = 60
PATIENCE_SECONDS = 60.0
TOLD = 'tidemill_over_quota_total{quota="token:idle"}'


def fill(tower: Tower, subject: str, count: int) -> None:
    rows = [{"text": str(number)} for number in range(count)]
    status, said = tower.ask("POST", f"/v1/subjects/{subject}/messages", {"messages": rows})
    assert status == 200, said


def row_of(tower: Tower, subject: str, group: str) -> dict[str, object]:
    rows = tower.ask("GET", "/v1/groups")[1]
    return next((row for row in rows if (row["subject"], row["group"]) == (subject, group)), {})


def counted(tower: Tower, name: str) -> float:
    lines = str(tower.ask("GET", "/metrics")[1]).replace("\\n", "\n").splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def receive(
    tower: Tower, name: str, subject: str, group: str, **asked: object
) -> tuple[int, dict[str, object], str]:
    """Status, body, and Retry-After."""
    connection = http.client.HTTPConnection(tower.host, tower.http_port, timeout=60)
    heads = {"Authorization": f"Bearer {tower.tokens[name]}", "Content-Type": "application/json"}
    try:
        connection.request("POST", f"/v1/subjects/{subject}/groups/{group}/receive", json.dumps(asked), heads)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers.get("Retry-After", "")
    finally:
        connection.close()


def pull(group: str, subject: str, consumer: str = "raw", most: int = 100, wait_ms: int = 0) -> Pull:
    return Pull(group, consumer, (subject,), most, 1 << 20, wait_ms)


def given(answer: object) -> int:
    if isinstance(answer, Failed):
        assert KIND_BY_NUMBER[answer.number].name == "over_quota"
        assert answer.wait_ms > 0
        return -1
    assert isinstance(answer, Pulled)
    return sum(grant.count for grant in answer.grants)


def settle(peer: RawPeer, group: str, answer: Command, most: int = 1 << 20) -> None:
    """Ack what a pull was given, or the beginning of each grant."""
    assert isinstance(answer, Pulled)
    for grant in answer.grants:
        last = grant.pull_sequence + min(grant.count, most) - 1
        peer.ask(Ack(group, "raw", grant.subject, [grant.pull_sequence, last]))


@contextmanager
def holding(tower: Tower, name: str, subject: str) -> Iterator[tuple[RawPeer, Command]]:
    """Somebody who holds as much as may be, and what that is; at the end it lets go of it."""
    bound_token(tower, name, in_flight=MOST)
    fill(tower, subject, 20)
    with RawPeer(tower, token=tower.tokens[name]) as peer:
        peer.hear()
        answer = peer.ask(pull("billing", subject))
        assert given(answer) == MOST
        yield peer, answer
        settle(peer, "billing", answer)


def test_clients_handle_all_of_it_and_hold_no_more_than_they_may(tower: Tower) -> None:
    """Two consumers of one identity, in two groups: together they are given what fits, again and again."""
    bound_token(tower, "careful", in_flight=MOST)
    fill(tower, "careful.in", MESSAGES)
    seen: dict[str, Counter[bytes]] = {"one": Counter(), "two": Counter()}

    def held() -> int:
        rows = tower.ask("GET", "/v1/groups")[1]
        return sum(int(row["in_flight"]) for row in rows if row["subject"] == "careful.in")

    async def consume(group: str) -> None:
        async with tower.client("careful") as mq, mq.consume("careful.in", group=group) as messages:
            while len(seen[group]) < MESSAGES:
                message = await anext(messages)
                seen[group][message.body] += 1
                if sum(map(len, seen.values())) % 10 == 0:
                    assert await asyncio.to_thread(held) <= MOST
                await message.ack()

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*map(consume, seen))

    asyncio.run(main())
    assert [set(one.values()) for one in seen.values()] == [{1}, {1}]


def test_who_waits_for_room_asks_seldom_and_is_given_it_at_once(tower: Tower) -> None:
    """It keeps what it is told: a client that went round and round would be told so many times within a moment."""
    with holding(tower, "idle", "idle.in") as (peer, held):

        def wait_told() -> float:
            began, before = time.monotonic(), counted(tower, TOLD)
            wait_until("it is told several times", lambda: counted(tower, TOLD) >= before + 8, 30)
            return time.monotonic() - began

        async def main() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS), tower.client("idle", pull_wait_ms=200) as mq:
                async with mq.consume("idle.in", group="other") as messages:
                    assert await asyncio.to_thread(wait_told) > 1.0
                    await asyncio.to_thread(settle, peer, "billing", held, 1)
                    message = await anext(messages)
                    await message.ack()

        asyncio.run(main())


def test_http_says_429_and_what_is_settled_makes_room(tower: Tower) -> None:
    bound_token(tower, "webber", in_flight=MOST)
    fill(tower, "webbed", 20)
    status, body, _ = receive(tower, "webber", "webbed", "billing", max=100)
    assert status == 200
    messages = body["messages"]
    assert isinstance(messages, list)
    assert len(messages) == MOST
    status, body, retry_after = receive(tower, "webber", "webbed", "billing", wait_ms=0, consumer="another")
    error = body["error"]
    assert isinstance(error, dict)
    assert (status, error["code"], error["retryable"]) == (429, "over_quota", True)
    assert int(retry_after) >= 1
    receipts = [row["receipt"] for row in messages[:2]]
    path = "/v1/subjects/webbed/groups/billing/ack"
    assert tower.ask("POST", path, {"receipts": receipts}, token="webber")[0] == 200
    status, body, _ = receive(tower, "webber", "webbed", "billing", max=100)
    assert (status, len(body["messages"])) == (200, 2)  # type: ignore[arg-type]


WAYS = ("another connection", "another consumer", "another group", "another subject", "another token of the same name",
        "a pattern", "HTTP", "a broadcast")  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_around_it(tower: Tower, way: str) -> None:
    name = f"hoarder-{WAYS.index(way)}"
    subject, other = f"{name}.in", f"{name}.else"
    fill(tower, other, 3)
    with holding(tower, name, subject) as (peer, _):
        if way == "HTTP":
            assert receive(tower, name, subject, "billing", wait_ms=0)[0] == 429
            return
        if way == "a broadcast":
            assert receive(tower, name, subject, "all", wait_ms=500, broadcast=True, consumer="x")[0] == 429
            return
        if way == "another token of the same name":
            tower.make_token(name)
        asked = {
            "another consumer": pull("billing", subject, "second"),
            "another group": pull("second", subject),
            "another subject": pull("billing", other),
            "a pattern": pull("billing", f"{name}.*"),
        }.get(way, pull("billing", subject))
        if way.startswith(("another connection", "another token")):
            with RawPeer(tower, token=tower.tokens[name]) as second:
                second.hear()
                assert given(second.ask(asked)) == -1
        else:
            assert given(peer.ask(asked)) == -1


def test_others_are_given_what_is_kept_back_and_it_is_said_whose_quota_keeps_it(tower: Tower) -> None:
    with holding(tower, "greedy", "shared.in") as (peer, _):
        assert given(peer.ask(pull("billing", "shared.in"))) == -1
        assert row_of(tower, "shared.in", "billing")["over_quota"] == "token:greedy"
        metrics = str(tower.ask("GET", "/metrics")[1])
        assert 'tidemill_over_quota_total{quota="token:greedy"}' in metrics
        assert 'tidemill_group_over_quota{subject="shared.in",group="billing"} 1' in metrics
        found = tower.ask("GET", "/v1/subjects/shared.in/messages?limit=20")[1]
        identity = found["messages"][-1]["id"]
        (told,) = tower.ask("GET", f"/v1/messages/{identity}/why")[1]["groups"]
        assert told["over_quota"] == "token:greedy"
        assert "the quota of token:greedy of messages in flight is used up" in told["sentence"]
        root = ("--token-file", str(tower.cluster_file))
        assert "token:greedy" in run_command(*root, "groups", "list", server=tower.server).stdout
        bound_token(tower, "modest")
        with RawPeer(tower, token=tower.tokens["modest"]) as other:
            other.hear()
            assert given(other.ask(pull("billing", "shared.in", "modest"))) == 15
    assert row_of(tower, "shared.in", "billing")["over_quota"] is None


def test_a_subject_is_bounded_for_all_who_consume_it(tower: Tower) -> None:
    bound_subject(tower, "narrow", inFlight=3)
    fill(tower, "narrow", 10)
    with RawPeer(tower, token=tower.tokens["victim"]) as peer:
        peer.hear()
        permissions = [{"subjects": ["narrow"], "operations": ["Consume"]}]
        tower.ask(
            "PUT", "/v1/access/grants/narrow", {"principals": ["token:victim"], "permissions": permissions}
        )
        answer = peer.ask(pull("one", "narrow", most=2))
        assert given(answer) == 2
        assert given(peer.ask(pull("two", "narrow"))) == 1
        assert given(peer.ask(pull("one", "narrow"))) == -1
        settle(peer, "one", answer, 1)
        assert given(peer.ask(pull("two", "narrow"))) == 1

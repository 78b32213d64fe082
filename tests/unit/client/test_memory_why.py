"""``why`` of a queue in memory, for users' tests: as the client of a real one has it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tidemill import blocking
from tidemill.memory_why import moment
from tidemill.testing import Client, MemoryBroker
from tidemill_broker.actions import FailureDetail
from tidemill_broker.doors.why import schemas
from tidemill_broker.standings import Event, Standing, sentence_of

AT_MS = 1_800_000_000_000
NOW = "2027-01-15T08:00:00.000Z"


def client(attempts_max: int = 3) -> Client:
    return Client(MemoryBroker(attempts_max, now_ms=lambda: AT_MS))


async def group_of(mq: Client, identity: str) -> dict[str, Any]:
    """What is said of the only group, which is said as a broker would say it."""
    found = await mq.why(identity)
    assert found is not None
    properties = schemas()["Why"]["properties"]
    assert set(found) == set(properties)
    [group] = found["groups"]
    assert set(group) == set(properties["groups"]["items"]["properties"])
    for event in group["events"]:
        events = properties["groups"]["items"]["properties"]["events"]["items"]
        assert set(event) == set(events["properties"])
    assert group["state"] in properties["groups"]["items"]["properties"]["state"]["enum"]
    if group["state"] != "leased":  # a lease has no end here
        assert group["sentence"] == broker_says(group)
    return dict(group)


def broker_says(group: dict[str, Any]) -> str:
    error = group["error"]
    events = [Event(0, one["what"], one["consumer"] or "") for one in group["events"]]
    untried = bool(events) and events[-1].what in ("released", "redriven")
    unwanted = group["sentence"].partition("its filter is ")[2]
    until_ms = int(datetime.fromisoformat(group["until"]).timestamp() * 1000) if group["until"] else 0
    standing = Standing(
        group["group"], group["state"], group["attempts"], group["consumer"] or "", until_ms,
        group["ahead"], unwanted, FailureDetail(**error) if error else None, None, group["suspended"], untried,
        events, group["rate"],
    )  # fmt: skip
    return sentence_of(standing, moment)


def whats(group: dict[str, Any]) -> list[str]:
    return [event["what"] for event in group["events"]]


async def test_a_message_that_was_sent_waits_is_leased_fails_and_is_acked() -> None:
    async with client() as mq:
        first, second = await mq.send_many("a", [b"0", b"1"])
        lies = await mq.find(first.id)
        assert lies is not None
        stored = lies.stored_at.isoformat(timespec="milliseconds")
        assert (await mq.why(first.id)) == {
            "id": first.id, "subject": "a", "sequence": 0, "stored_at": stored, "history_from": stored, "groups": [],
        }  # fmt: skip
        async with mq.consume("a", group="g", name="pod") as messages:
            message = await anext(messages)
            leased = await group_of(mq, first.id)
            assert (leased["state"], leased["consumer"], leased["attempts"]) == ("leased", "pod", 0)
            assert leased["sentence"] == "leased to pod, given out never before"
            await message.nack(delay=60, error=ValueError("no amount"))
            retry = await group_of(mq, first.id)
            assert (retry["state"], retry["attempts"], retry["until"]) == ("retry", 1, moment(AT_MS + 60_000))
            assert retry["error"]["reason"] == "ValueError: no amount"
            await (await anext(messages)).ack()
            acked = await group_of(mq, second.id)
            assert (acked["state"], acked["consumer"], acked["until"]) == ("acked", "pod", NOW)
            assert whats(acked) == ["pulled", "acked"]


async def test_one_that_no_consumer_asked_for_yet_waits_behind_others() -> None:
    async with client() as mq:
        await mq.send("a", b"0")
        async with mq.consume("a", group="g") as messages:
            await (await anext(messages)).ack()
        sent = [await mq.send("a", b"1"), await mq.send("a", b"2")]
        waiting = [await group_of(mq, one.id) for one in sent]

    assert [one["state"] for one in waiting] == ["waiting", "waiting"]
    assert [one["ahead"] for one in waiting] == [0, 1]
    assert [one["events"] for one in waiting] == [[], []]


async def test_what_was_given_back_comes_before_new_messages() -> None:
    async with client() as mq:
        sent = await mq.send("a", b"0", priority=5)
        async with mq.consume("a", group="g", name="pod") as messages:
            (await anext(messages)).release()
        found = await group_of(mq, sent.id)

    assert (found["state"], whats(found)[-1]) == ("waiting", "released")


async def test_a_dead_letter_says_of_what_it_died_until_it_is_purged_or_redriven() -> None:
    async with client(2) as mq:
        sent = await mq.send_many("a", [b"0", b"1"])
        async with mq.consume("a", group="g") as messages:
            for _ in range(4):
                await (await anext(messages)).nack(reason="no amount")
        dead = [await group_of(mq, one.id) for one in sent]
        assert [(one["state"], one["attempts"], one["until"]) for one in dead] == [("dead", 2, NOW)] * 2
        assert whats(dead[0]) == ["pulled", "failed", "pulled", "failed", "dead"]
        letters = mq.dead_letters("a", "g")
        await letters.purge([0])
        await letters.redrive()
        found = sorted([(await group_of(mq, one.id))["state"] for one in sent])

    assert found == ["purged", "waiting"]


async def test_what_a_filter_or_a_move_left_out_is_not_waited_for() -> None:
    async with client() as mq:
        sent = await mq.send("a", b"0")
        other = await mq.send("a", b"1", tags={"vip"})
        async with mq.consume("a", group="g", tags={"vip"}) as messages:
            await (await anext(messages)).ack()
        assert (await group_of(mq, sent.id))["state"] == "filtered"
        await mq.seek("a", "g", "earliest")
        again = await group_of(mq, other.id)
        assert (again["state"], whats(again)) == ("waiting", ["pulled", "acked", "moved"])
        await mq.seek("a", "g", "latest")
        assert (await group_of(mq, other.id))["state"] == "passed over"


async def test_a_suspended_group_says_so() -> None:
    async with client() as mq:
        async with mq.consume("a", group="g"):
            await mq.send("a", b"0")
        await mq.suspend("a", "g")
        sent = await mq.send("a", b"1")

        assert (await group_of(mq, sent.id))["sentence"].endswith("the group is suspended, and given nothing")


async def test_of_what_was_never_sent_nothing_is_said() -> None:
    async with client() as mq:
        assert await mq.why("00" * 16 + "-0") is None
        with pytest.raises(ValueError, match="id"):
            await mq.why("order 7")


def test_a_program_without_a_loop_has_it_too() -> None:
    with blocking.Client(make=client) as mq:
        sent = mq.send("a", b"x")
        with mq.consume("a", group="g", at_most_once=True) as messages:
            next(iter(messages))
        found = mq.why(sent.id)

    assert found is not None
    assert whats(found["groups"][0]) == ["pulled", "acked"]


async def test_a_message_that_is_kept_for_days_is_told_so_and_then_as_it_goes_on() -> None:
    async with client() as mq, mq.consume("orders", group="g", name="c") as messages:
        receipt = await mq.send("orders", b"1")
        await (await anext(messages)).nack(delay=3 * 86_400, reason="closed")
        kept = await group_of(mq, receipt.id)
        assert (kept["state"], kept["attempts"], kept["until"]) == ("kept", 1, "2027-01-18T08:00:00.000Z")
        await mq.advance(days=3)
        await (await anext(messages)).ack()
        assert whats(await group_of(mq, receipt.id)) == ["pulled", "kept", "failed", "pulled", "acked"]

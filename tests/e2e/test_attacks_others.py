"""Attacks on what others have: their clients, their timers, their transactions; and that their owners need no more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from e2e.peers import RawPeer
from e2e.towers import Tower
from tidemill.check_back import PendingTransaction
from tidemill.transactions import Outcome
from tidemill_wire.batch import SINGLES_FROM, Flags, Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Command, Done, Failed, encode_command
from tidemill_wire.connection import Received
from tidemill_wire.errors import KIND_BY_NUMBER
from tidemill_wire.timing import Cancel, Changed, Reschedule, Show, Target, Waiting
from tidemill_wire.transacting import Check, Checks, Decide, Half, Verdict

pytestmark = pytest.mark.e2e

Refused: TypeAlias = Callable[[str], None]
PATIENCE_SECONDS = 60.0
BEYOND_CHECK_MS = 9_000
"""Longer than it takes until a transaction is asked about."""
HOUR_MS = 3_600_000


def half_of(subject: str, number: int) -> Half:
    transaction = SINGLES_FROM | number
    batch_id = number.to_bytes(16, "big")
    origin = Origin(subject.encode(), transaction, 0, batch_id, 1_780_000_000_000, flags=Flags.TRANSACTIONAL)
    return Half(f"producers-{number}", memoryview(bytes(build_batch(origin, Content([b"half"])))))


def entered(tower: Tower, who: str) -> RawPeer:
    peer = RawPeer(tower, token=tower.tokens[who])
    peer.hear()
    return peer


# -- clients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["leave", "heartbeat"])
def test_nobody_speaks_for_the_client_of_another(tower: Tower, refused: Refused, path: str) -> None:
    """A goodbye in its name would give its messages to others, and so would a heartbeat that consumes nothing."""
    client = f"victims-{path}"
    consumes = [{"subject": "secret", "group": "vault", "consumer": client}]
    beat: dict[str, Any] = {"client": client, "consumes": consumes, "known": 0}
    assert tower.ask("POST", "/v1/clients/heartbeat", beat, token="victim")[0] == 200
    said: dict[str, Any] = {"client": client} if path == "leave" else {"client": client, "known": 0}
    status, answer = tower.ask("POST", f"/v1/clients/{path}", said, token="shop")
    assert (status, answer["error"]["code"]) == (403, "forbidden")
    there = {row["client"]: row for row in tower.ask("GET", "/v1/clients")[1]}
    assert "secret" in str(there[client])
    refused("forbidden")
    assert tower.ask("POST", "/v1/clients/leave", {"client": client}, token="victim")[0] == 200
    assert client not in {row["client"] for row in tower.ask("GET", "/v1/clients")[1]}


# -- timers by id -----------------------------------------------------------------------------------------------------


def timer(tower: Tower, subject: str, who: str) -> str:
    """Something for later that was sent; its id."""
    status, said = tower.ask(
        "POST", f"/v1/subjects/{subject}/messages", {"text": "later", "delay": 3600}, token=who
    )
    assert status == 200, said
    return str(said["messages"][0]["id"])


def there(tower: Tower, identity: str) -> str:
    status, said = tower.ask("GET", f"/v1/timers/{identity}")
    return str(said["due"]) if status == 200 else ""


@pytest.mark.parametrize("what", ["cancel", "reschedule"])
def test_a_timer_of_another_is_not_touched_by_its_id(tower: Tower, refused: Refused, what: str) -> None:
    identity = timer(tower, "secret", "victim")
    due = there(tower, identity)
    body = {"delay": 7200} if what == "reschedule" else {}
    for who in ("shop", "reader", "nothing"):
        status, said = tower.ask("POST", f"/v1/timers/{identity}/{what}", body, token=who)
        assert (status, said["error"]["code"]) == (403, "forbidden")
        assert there(tower, identity) == due
    refused("forbidden")
    status, said = tower.ask("POST", f"/v1/timers/{identity}/{what}", body, token="victim")
    assert (status, said["changed"]) == (200, 1)
    assert there(tower, identity) != due


def test_nor_is_it_over_the_data_port_of_the_delay_service(tower: Tower) -> None:
    identity = timer(tower, "secret", "victim")
    [delay] = tower.get("/v1/routes")["delays"]
    target = Target(id=identity)

    def ask(who: str, command: Command) -> Command:
        with RawPeer(tower, token=tower.tokens[who], port=int(delay["port"])) as peer:
            peer.hear()
            return peer.ask(command)

    for command in (Cancel(target), Reschedule(target, int(time.time() * 1000) + HOUR_MS), Show(target)):
        answer = ask("shop", command)
        assert isinstance(answer, Failed), answer
        assert KIND_BY_NUMBER[answer.number].name == "forbidden"
    assert there(tower, identity)
    shown = ask("victim", Show(target))
    assert isinstance(shown, Waiting)
    assert [row.subject for row in shown.rows] == ["secret"]
    assert ask("victim", Cancel(target)) == Changed(1, 0)
    assert not there(tower, identity)


# -- transactions -----------------------------------------------------------------------------------------------------


def test_who_asks_for_the_transactions_of_others_is_shown_none(tower: Tower) -> None:
    """However long it waits, and though it waits first; who may send to their subjects is asked."""
    half = half_of("secret", 901)
    with entered(tower, "victim") as victim, entered(tower, "shop") as shop:
        assert isinstance(victim.ask(half), Done)
        waits = _waiting(shop, half.group)
        answer = victim.ask(Check(half.group, 60_000))
        assert isinstance(answer, Checks)
        assert [row.transaction for row in answer.rows] == [SINGLES_FROM | 901]
        found = waits()
        assert isinstance(found, Checks)
        assert not found.rows
        assert not found.batches
        assert isinstance(victim.ask(Decide(SINGLES_FROM | 901, Verdict.ROLLBACK)), Done)


def _waiting(peer: RawPeer, group: str) -> Callable[[], Command]:
    """Ask, and hear the answer later."""
    peer.say(encode_command(Check(group, BEYOND_CHECK_MS), 77))

    def hear() -> Command:
        event = peer.hear()
        assert isinstance(event, Received), event
        return event.command

    return hear


def test_a_producer_answers_for_its_own_transactions_with_no_more_than_its_grant(tower: Tower) -> None:
    half = half_of("order.checked", 902)
    asked: list[str] = []

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), tower.client("shop") as mq:

            @mq.check_back(group=half.group)
            async def what_became(transaction: PendingTransaction) -> Outcome:
                asked.append(transaction.group)
                return "commit"

            async with mq.consume("order.checked", group="billing") as messages:
                assert (await anext(messages)).body == b"half"

    with entered(tower, "shop") as peer:
        assert isinstance(peer.ask(half), Done)
    asyncio.run(main())
    assert asked == [half.group]

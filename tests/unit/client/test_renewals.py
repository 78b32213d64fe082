"""What a settler makes of the broker's answers to its renewals: what is lost is not begun, and not renewed again."""

from __future__ import annotations

import asyncio
import math

import pytest

from tidemill import LeaseLost
from tidemill.delivery import DOUBTFUL, REVOKED, Delivery
from tidemill.inbox import Inbox
from tidemill.settings import ClientSettings
from tidemill.settler import BrokerSettler
from tidemill.testing import Client
from tidemill_wire.commands import Done, Extend


class Asked:
    """A link that is asked, and answers renewals with what is lost."""

    def __init__(self) -> None:
        self.lost: list[int] = []
        self.renewed: list[list[int]] = []

    def ask(self, command: object, on_answer: object) -> None:
        assert isinstance(command, Extend)
        self.renewed.append(list(command.ranges))
        on_answer(Done(self.lost))  # type: ignore[operator]


def holding(count: int, pull_sequence: int = 10) -> tuple[BrokerSettler, Delivery, Asked]:
    settler = BrokerSettler("billing", "pod", ClientSettings())
    delivery = Delivery("orders", 0, pull_sequence, (memoryview(b""), 0, count))
    delivery.settler = settler
    settler.outstanding[delivery] = None
    link = Asked()
    settler.up(link)  # type: ignore[arg-type]
    return settler, delivery, link


@pytest.mark.parametrize("ordered", [False, True])
async def test_what_is_lost_is_neither_begun_nor_renewed_again(ordered):
    settler, delivery, link = holding(3)
    settler.ordered = ordered
    link.lost = [10, 12]
    settler.renew()
    assert delivery.until == REVOKED
    settler.renew()
    assert link.renewed == [[10, 12]]
    assert settler.lost == 3


async def test_what_is_at_work_and_lost_is_not_renewed_again():
    """Its handler may be at it still: it is at work, without a lease."""
    settler, delivery, link = holding(3)
    settler.ordered = True
    delivery.begun |= {0, 2}
    delivery.until = REVOKED  # a new connection
    link.lost = [10, 10]
    settler.renew()
    link.lost = []
    settler.renew()
    assert link.renewed == [[10, 10, 12, 12], [12, 12]]
    assert delivery.begun == {0, 2}
    assert settler.held() == [12, 12]


async def test_of_what_is_lost_in_part_nothing_is_begun_without_asking():
    """One that was parked has its lease for longer than those that came with it."""
    settler, delivery, link = holding(3)
    settler.ordered, settler.lease_s = True, 10.0
    settler.renew()
    assert delivery.until > asyncio.get_running_loop().time()
    link.lost = [11, 12]
    settler.renew()
    assert delivery.until == DOUBTFUL


async def test_what_is_not_in_order_is_begun_while_nothing_of_it_is_lost():
    settler, delivery, _ = holding(3)
    settler.renew()
    assert delivery.until == math.inf


async def test_consumer_whose_handler_hangs_gives_back_what_it_has_not_begun_and_asks_for_nothing(
    serve, monkeypatch, until
):
    """Else its own pull brings it the message again, and that waits behind the handler that hangs."""
    monkeypatch.setattr("tidemill.memory.LEASE_MS", 30)
    settings = ClientSettings(backoff_max_s=0.05, pull_wait_ms=60_000)
    async with serve() as place, place.client(settings=settings) as mq:
        await mq.send("a", b"0")
        async with mq.consume("a", group="g", name="hangs") as messages:
            first = await anext(messages)
            group = place.group()
            await mq.send_many("a", [b"1", b"2"])
            await until(lambda: group.in_flight == 3)
            group.due.extend([lease for lease in group.members["hangs"].leases.values() if not lease[0]])
            del group.members["hangs"].leases[0]
            place.broker.serve()
            await until(lambda: group.in_flight == 0)
            assert sorted(group.due) == [(0, 0), (1, 0), (2, 0)]
            async with mq.consume("a", group="g", name="well") as others:
                assert sorted([(await anext(others)).body for _ in range(3)]) == [b"0", b"1", b"2"]
            with pytest.raises(LeaseLost):
                await first.ack()
            await mq.send("a", b"3")
            assert (await anext(messages)).body == b"3", "it is back"


async def test_only_a_handler_that_does_nothing_but_hang_ends_the_asking():
    """Not one of a worker with slots to spare, which waits for more, and not what is lost while it lies here."""
    settler, lost, _ = holding(1)
    inbox = Inbox(100, 1 << 20)
    inbox.join(settler)
    lying = Delivery("orders", 0, 11, (memoryview(b"x"), 0, 1))
    lying.settler = settler
    inbox.put([lying])
    assert inbox.stick([]) == inbox.stick([lying]) == []
    inbox.waiting = True
    assert inbox.stick([lost]) == []
    assert not inbox.stuck
    assert inbox.room(settler, 0)

    inbox.waiting = False
    assert inbox.stick([lost]) == [lying]
    assert not inbox.room(settler, 0)
    assert inbox.pop() is None
    assert inbox.room(settler, 0)


async def test_a_loop_that_did_not_turn_is_told_of(until, caplog):
    """A handler that waits without ``await`` costs the leases of all that is at work, and nobody would know why."""
    async with Client() as mq:
        await mq.send("a", b"1")
        async with mq.consume("a", group="g", name="pod") as messages:
            await anext(messages)
            loop = asyncio.get_running_loop()
            [puller] = messages._pullers
            puller._renewal.cancel()
            puller._renewal = loop.call_at(loop.time() - 30, puller._renew)
            await until(lambda: "event_loop_blocked pod 30." in caplog.text)
            assert puller._renewal.when() > loop.time()

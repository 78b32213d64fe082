"""Transactions: messages that are seen together or never, when something else of the program has happened or not.

    async with mq.transaction(group="shop") as tx:
        await tx.send("order.paid", b"...")
        ...  # the program's own part

    state      event                                    next
    open       a half message is kept                   open
    open       the block ends, ``commit``               committed
    open       an exception leaves the block, ``rollback``, or a half message is not kept   rolled back
    open       nobody answers                           unknown: the broker will ask the producer group

All of it lies on one broker group, that of the first message. Nothing of it is spooled: who cannot reach a broker
cannot begin.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from tidemill.callers import Callers
from tidemill.encode import Body, as_bodies, as_body, check_many
from tidemill.errors import BrokerUnreachable, OutcomeUnknown, Refused, TidemillError, again
from tidemill.parcel import NO_EXTRAS, Extras, extras_of
from tidemill.router import Router
from tidemill.settings import ClientSettings
from tidemill.ways import Ways
from tidemill_wire import limits
from tidemill_wire.batch import SINGLES_FROM, BatchIds, Flags, Origin, message_id
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Done
from tidemill_wire.fields import parse_group, parse_subject
from tidemill_wire.lanes import parse_priority
from tidemill_wire.transacting import Decide, Half, Verdict, transaction_id

Outcome: TypeAlias = Literal["commit", "rollback", "unknown"]
VERDICTS: dict[str, Verdict] = {
    "commit": Verdict.COMMIT, "rollback": Verdict.ROLLBACK, "unknown": Verdict.UNKNOWN,
}  # fmt: skip
ROLLBACK_S = 5.0
"""How long an exception waits for its rollback. What is not said then, the broker finds out."""

log = logging.getLogger("tidemill")


class Transactions:
    """Those of one client."""

    def __init__(self, callers: Callers, router: Router, ways: Ways, settings: ClientSettings) -> None:
        self.callers = callers
        self.settings = settings
        self.open: set[int] = set()
        """In a block of this process: nobody else need be asked about them."""
        self._router = router
        self._ways = ways

    async def place(self, subject: str, home: str) -> tuple[str, str]:
        """Broker group and partition for a message; of the broker group ``home``, unless that is empty."""
        parse_subject(subject)
        atlas = self._router.atlas
        if not atlas.brokers:
            await self._router.refresh()
        if not atlas.routed:
            taking = (
                group for group, one in atlas.brokers.items() if "W" in one.state and one.state != "NRW"
            )
            return home or next(taking, None) or (await self._router.writable()).group, subject
        if subject not in atlas.routes:
            await self._ways.learn(subject)
        if subject in self._router.refused:
            raise again(self._router.refused[subject])
        takers = atlas.takers(subject) or ()
        there = [one for one in takers if one.group == home or not home]
        route = atlas.routes.get(subject)
        if home and not there and route is not None:  # its next master will have what was kept
            there = [one for one in route.current.partitions if one.group == home]
        if there:
            chosen = self.settings.random.choice(there)
            return chosen.group, chosen.name
        if takers:
            detail = f"subject {subject!r} is not on broker group {home}, where this transaction has begun"
            raise Refused("unknown_subject", detail)
        raise BrokerUnreachable(f"no broker takes messages of {subject} now; nothing is stored")


class Transaction:
    """See the module."""

    def __init__(self, transactions: Transactions, group: str) -> None:
        self.group = parse_group(group)
        """The producer group, which is asked when this process does not say what becomes of it."""
        self._transactions = transactions
        self._settings = transactions.settings
        self._number = SINGLES_FROM | self._settings.random.getrandbits(63)
        self._ids = BatchIds(self._number)
        self._home = ""
        self._choosing = asyncio.Lock()
        self._batches = 0
        self._kept = 0
        self._problem: TidemillError | None = None
        self._outcome: Outcome | None = None

    @property
    def id(self) -> str:
        """By this the producer group is asked about it: keep it with what the transaction is about."""
        return transaction_id(self._number)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outcome is not None:
            return
        if error is None:
            await self.commit()
            return
        try:
            async with asyncio.timeout(ROLLBACK_S):
                await self.rollback()
        except (TidemillError, TimeoutError) as problem:
            log.warning("transaction_left %s: its rollback was not answered: %s", self.id, problem)

    # -- half messages -----------------------------------------------------------------------------------------

    async def send(
        self,
        subject: str,
        body: Body,
        *,
        key: str | None = None,
        tags: Iterable[str] | None = None,
        properties: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> str:
        """Keep a message until the transaction is decided; returns the id that it will have when no failure can take
        it any more.
        """
        data = as_body(body)
        extras = extras_of(len(data), key, tags, properties)
        return (await self._send(subject, [data], extras, priority))[0]

    async def send_many(self, subject: str, bodies: Sequence[Body], *, priority: int = 0) -> list[str]:
        """Keep messages of one subject, in their order; their ids."""
        check_many(bodies)
        return await self._send(subject, as_bodies(bodies), NO_EXTRAS, priority) if bodies else []

    async def _send(self, subject: str, bodies: list[bytes], extras: Extras, priority: int) -> list[str]:
        parse_priority(priority)
        self._check_open()
        if self._batches >= limits.TRANSACTION_BATCHES_MAX:
            detail = f"a transaction has {limits.TRANSACTION_BATCHES_MAX} sends at most"
            raise Refused("limit_exceeded", f"{detail}; `send_many` sends many messages in one")
        number, self._batches = self._batches, self._batches + 1
        self._transactions.open.add(self._number)
        try:
            async with self._choosing:
                self._home, partition = await self._transactions.place(subject, self._home)
            now_ms = self._settings.now_ms()
            batch_id = self._ids.next(now_ms)
            codec = Codec(self._settings.codec)
            origin = Origin(
                partition.encode(),
                self._number,
                number,
                batch_id,
                now_ms,
                codec,
                Flags.TRANSACTIONAL,
                priority,
            )
            await self._ask(Half(self.group, memoryview(build_batch(origin, content_of(bodies, extras)))))
        except TidemillError as error:
            self._problem = self._problem or error
            raise
        self._kept += 1
        return [message_id(batch_id, index) for index in range(len(bodies))]

    # -- decisions ---------------------------------------------------------------------------------------------

    async def commit(self) -> int:
        """All of its messages are messages from now on; how many. What was not kept ends it the other way."""
        if self._outcome == "commit" or not self._batches:
            self._outcome = "commit"
            return 0
        self._check_open()
        if self._kept < self._batches:
            with suppress(BrokerUnreachable, OutcomeUnknown):
                await self.rollback()
            if self._problem is not None:
                raise again(self._problem)
            raise RuntimeError(
                f"transaction {self.id} ends while a send of it is under way: await that first"
            )
        return await self._decide("commit")

    async def rollback(self) -> None:
        """Nobody will ever see its messages."""
        if self._outcome == "rollback" or not self._batches:
            self._outcome = "rollback"
            return
        self._check_open()
        try:
            await self._decide("rollback")
        except Refused as error:
            if error.kind.name != "unknown_transaction" or self._kept:
                raise  # else nothing of it ever came to the broker

    async def _decide(self, outcome: Outcome) -> int:
        self._outcome = outcome
        try:
            answer = await self._ask(Decide(self._number, VERDICTS[outcome]))
        except OutcomeUnknown as error:
            self._outcome = "unknown"
            detail = f"whether transaction {self.id} was ended with {outcome} is not known"
            raise OutcomeUnknown(f"{detail}, and its producer group will be asked: {error}") from error
        except BaseException:
            self._outcome = "unknown"
            raise
        finally:
            self._transactions.open.discard(self._number)
        return answer.count

    async def _ask(self, command: Half | Decide) -> Done:
        if not self._home:
            return Done()
        caller = self._transactions.callers.to(self._home)
        answer = await caller.ask(command, self._settings.send_timeout_s)
        if not isinstance(answer, Done):
            raise BrokerUnreachable("the broker answered what was not asked")
        return answer

    def _check_open(self) -> None:
        if self._outcome is not None:
            raise Refused("transaction_decided", f"transaction {self.id} has ended with {self._outcome}")


def content_of(bodies: list[bytes], extras: Extras) -> Content:
    """Many messages with nothing but bodies, or one with all it has."""
    return Content(
        bodies,
        None if extras.key is None else [extras.key],
        None if extras.tags is None else [extras.tags],
        properties=None if extras.properties is None else [extras.properties],
    )

"""Check-back: who can say what becomes of a producer group's transactions is asked by brokers.

    @mq.check_back(group="shop")
    async def what_became(transaction: PendingTransaction) -> Outcome:
        return "commit" if await is_paid(transaction.id) else "unknown"

At each broker group a question waits for each producer group that this client answers for. What a broker asks about is
asked of the handler, and what that says is told to the broker; when it raises, or does not know, the broker asks again
later. About a transaction whose block is open in this very process nobody is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

import msgpack

from tidemill.backoff import Backoff
from tidemill.callers import Caller
from tidemill.caught import Caught
from tidemill.errors import CorruptBatch, TidemillError
from tidemill.router import Router
from tidemill.tasks import Tasks
from tidemill.transactions import VERDICTS, Outcome, Transactions
from tidemill_wire.columns import Batch, split_batches
from tidemill_wire.fields import living_subject
from tidemill_wire.transacting import Check, CheckRow, Checks, Decide, Verdict, transaction_id

WAIT_MS = 15_000
ANSWER_S = 30.0
"""What is waited for an answer beyond that."""

log = logging.getLogger("tidemill")


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A message of a transaction that is not decided."""

    id: str
    """The one that it will have."""
    subject: str
    body: bytes
    key: str | None
    tags: frozenset[str]
    properties: dict[str, Any]
    priority: int


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A transaction that nobody has decided."""

    id: str
    group: str
    stored_at: datetime
    """When its last message came to the broker."""
    checks: int
    """How often it was asked about, this time included."""
    messages: list[HalfMessage]


CheckBack: TypeAlias = Callable[[PendingTransaction], Awaitable[Outcome]]


class CheckBacks:
    """Those of one client."""

    def __init__(self, transactions: Transactions, router: Router, tasks: Tasks) -> None:
        self._transactions = transactions
        self._router = router
        self._tasks = tasks
        self._settings = transactions.settings
        self._served: set[tuple[str, str]] = set()
        """Producer groups and broker groups."""
        self._handlers: dict[str, CheckBack] = {}
        self._changed = asyncio.Event()
        router.listeners.append(self._changed.set)
        tasks.start(self._look(), "tidemill looks for brokers that ask")

    def serve(self, group: str, handler: CheckBack) -> None:
        """Answer for a producer group from now on."""
        self._handlers[group] = handler
        self._changed.set()

    async def _look(self) -> None:
        """Ask each broker group, also those that come."""
        settings = self._settings
        backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        while True:
            self._changed.clear()
            for group in self._handlers:
                for home in list(self._router.atlas.brokers):
                    if (group, home) not in self._served:
                        self._served.add((group, home))
                        caller = self._transactions.callers.to(home)
                        self._tasks.start(self._ask(group, caller), f"tidemill answers {home} for {group}")
            if self._router.atlas.brokers:
                await self._changed.wait()
                continue
            with suppress(TidemillError):
                await self._router.refresh()
            if not self._router.atlas.brokers:
                await asyncio.sleep(backoff.next())

    async def _ask(self, group: str, caller: Caller) -> None:
        """One question after the other."""
        settings = self._settings
        backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        while True:
            try:
                answer = await caller.ask(Check(group, WAIT_MS), WAIT_MS / 1000 + ANSWER_S)
                if isinstance(answer, Checks):
                    await self._answer(group, caller, answer)
                backoff.reset()
            except (TidemillError, OSError) as error:
                log.debug("not_asked %s %s: %s", caller.group, group, error)
                await asyncio.sleep(backoff.next())

    async def _answer(self, group: str, caller: Caller, checks: Checks) -> None:
        held = split_batches(checks.batches)
        for row in checks.rows:
            some, held = held[: row.batches], held[row.batches :]
            if row.transaction in self._transactions.open:
                continue
            verdict = await self._verdict(group, row, some)
            if verdict is Verdict.UNKNOWN:
                continue
            try:
                await caller.ask(Decide(row.transaction, verdict), self._settings.send_timeout_s)
            except TidemillError as error:  # it was decided meanwhile, or is asked about again
                log.info("transaction_not_decided %s: %s", transaction_id(row.transaction), error)

    async def _verdict(self, group: str, row: CheckRow, held: list[Batch]) -> Verdict:
        """What the handler says."""
        try:
            transaction = pending_of(group, row, held)
        except CorruptBatch as error:
            log.warning("transaction_unreadable %s: %s", transaction_id(row.transaction), error)
            return Verdict.UNKNOWN
        said: object = None
        with Caught() as caught:
            said = await self._handlers[group](transaction)
        if caught.error is not None:
            log.warning("check_back_failed %s: %r", transaction.id, caught.error)
            return Verdict.UNKNOWN
        if not isinstance(said, str) or said not in VERDICTS:
            detail = "return commit, rollback or unknown"
            log.error("check_back_wrong %s: its handler returned %r: %s", transaction.id, said, detail)
            return Verdict.UNKNOWN
        return VERDICTS[said]


def pending_of(group: str, row: CheckRow, held: list[Batch]) -> PendingTransaction:
    """What a broker asks about, for people and programs."""
    messages: list[HalfMessage] = []
    for outer in held:
        outer.check()
        batch = Batch(outer.bodies()[0])
        batch.check()
        messages += half_messages(batch)
    stored_at = datetime.fromtimestamp(row.stored_ms / 1000, UTC)
    return PendingTransaction(transaction_id(row.transaction), group, stored_at, row.checks, messages)


def half_messages(batch: Batch) -> list[HalfMessage]:
    """The messages of one half message, which is a batch."""
    count = batch.header.messages
    keys, tags, properties = batch.keys(), batch.tags(), batch.properties()
    return [
        HalfMessage(
            batch.message_id(index),
            living_subject(batch.partition),
            body,
            (keys[index] or None) if keys else None,
            frozenset(tags[index]) if tags else frozenset(),
            properties_of(properties[index]) if properties else {},
            batch.header.priority,
        )
        for index, body in zip(range(count), batch.bodies(), strict=True)
    ]


def properties_of(packed: bytes) -> dict[str, Any]:
    """A message's properties."""
    return cast("dict[str, Any]", msgpack.unpackb(packed, strict_map_key=False)) if packed else {}

"""Transactions for programs without an event loop: the same names, and every call returns when it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias

from tidemill import transactions
from tidemill.background import Background, done
from tidemill.check_back import CheckBack, PendingTransaction
from tidemill.transactions import Outcome

PlainCheckBack: TypeAlias = Callable[[PendingTransaction], Outcome]


class Transaction:
    """``with mq.transaction("shop") as tx: tx.send("order.paid", b"...")``."""

    def __init__(self, background: Background, transaction: transactions.Transaction) -> None:
        self._background = background
        self._transaction = transaction

    @property
    def id(self) -> str:
        """By this the producer group is asked about it."""
        return self._transaction.id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.run(self._transaction.__aexit__(kind, error, trace))

    send = done(transactions.Transaction.send)
    send_many = done(transactions.Transaction.send_many)
    commit = done(transactions.Transaction.commit)
    rollback = done(transactions.Transaction.rollback)

    def _behind(self) -> tuple[Background, transactions.Transaction]:
        return self._background, self._transaction


def in_a_thread(handler: PlainCheckBack) -> CheckBack:
    """A function that may wait, as one that the event loop can wait for."""

    async def answer(transaction: PendingTransaction) -> Outcome:
        return await asyncio.to_thread(handler, transaction)

    return answer

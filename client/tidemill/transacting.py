"""The calls of a client about transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from tidemill.check_back import CheckBack
from tidemill.deciding import Deciding
from tidemill.looking import Looker
from tidemill.settings import ClientSettings
from tidemill.transactions import Outcome, Transaction
from tidemill.undecided import Undecided, decide, list_undecided


class Transacting(ABC):
    """See the module."""

    settings: ClientSettings
    _deciding: Deciding
    _looker: Looker

    @abstractmethod
    def _check(self) -> None:
        """It is open, and in its process."""

    def transaction(self, group: str) -> Transaction:
        """Messages that are seen together when its block ends, and never when an exception leaves it. When this process
        dies in between, who answers for its producer ``group`` is asked: ``async with mq.transaction("shop") as tx``.
        """
        self._check()
        return self._deciding.transaction(group)

    def check_back(self, group: str) -> Callable[[CheckBack], CheckBack]:
        """The function below answers for a producer group, while the client is open: what became of a transaction that
        nobody has decided? ``commit``, ``rollback``, or ``unknown`` when it cannot say yet.
        """

        def register(handler: CheckBack) -> CheckBack:
            self._check()
            self._deciding.answer(group, handler)
            return handler

        return register

    async def undecided(self) -> Undecided:
        """Transactions that are pending, at all brokers."""
        self._check()
        return await list_undecided(self._looker)

    async def decide(self, identity: str, outcome: Outcome) -> int:
        """End a transaction in its producer's stead; how many messages were committed."""
        self._check()
        return await decide(self._looker, self.settings, identity, outcome)

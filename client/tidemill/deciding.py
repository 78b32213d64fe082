"""What a client does about transactions: its own, and those of others that it is asked about."""

from __future__ import annotations

from tidemill.callers import Callers
from tidemill.check_back import CheckBack, CheckBacks
from tidemill.errors import TidemillError
from tidemill.router import Router
from tidemill.settings import ClientSettings
from tidemill.tasks import Tasks
from tidemill.transactions import Transaction, Transactions
from tidemill.ways import Ways
from tidemill_wire.fields import parse_group


class Deciding:
    """See the module."""

    def __init__(self, router: Router, settings: ClientSettings, tasks: Tasks) -> None:
        self._router = router
        self._settings = settings
        self._tasks = tasks
        self._opened = False
        self._begun: Transactions | None = None
        self._check_backs: CheckBacks | None = None
        self._handlers: dict[str, CheckBack] = {}

    def transaction(self, group: str) -> Transaction:
        """A transaction of a producer group."""
        return Transaction(self._transactions(), group)

    def answer(self, group: str, handler: CheckBack) -> None:
        """Answer for a producer group, from when the client is open."""
        self._handlers[parse_group(group)] = handler
        if self._opened:
            self.open()

    def open(self) -> None:
        """The client is open: who is to be asked can be."""
        self._opened = True
        if self._handlers and self._check_backs is None:
            self._check_backs = CheckBacks(self._transactions(), self._router, self._tasks)
        for group, handler in self._handlers.items():
            assert self._check_backs is not None
            self._check_backs.serve(group, handler)

    def fail(self, error: TidemillError) -> None:
        """It is over."""
        if self._begun is not None:
            self._begun.callers.fail(error)

    def _transactions(self) -> Transactions:
        if self._begun is None:
            self._router.begin()
            ways = Ways(self._router, self._settings.send_timeout_s)
            self._router.listeners.append(ways.news)
            callers = Callers(self._router, self._settings, self._tasks)
            self._begun = Transactions(callers, self._router, ways, self._settings)
        return self._begun

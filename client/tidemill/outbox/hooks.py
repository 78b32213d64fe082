"""Who is told when a transaction commits.

SQLAlchemy tells of a commit just before it happens, and of nothing after it that sessions and connections have in
common. So what is told here is a hint: rows are looked up before they are sent, and a hint that comes too early, or of
a savepoint that was rolled back, sends nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sql
from sqlalchemy import event

from tidemill.outbox.row import Written


class Hooks:
    """Rows by the connection that wrote them, until their transaction ends."""

    def __init__(self, committed: Callable[[Sequence[Written]], None]) -> None:
        self._committed = committed
        self._open: WeakKeyDictionary[sql.Connection, list[Written]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def note(self, connection: sql.Connection, written: Written) -> None:
        """A row of the connection's transaction."""
        with self._lock:
            rows = self._open.get(connection)
            if rows is not None:
                rows.append(written)
                return
            self._open[connection] = [written]
        event.listen(connection, "commit", self._commit)
        event.listen(connection, "rollback", self._rollback)
        event.listen(connection, "commit_twophase", self._commit)
        event.listen(connection, "rollback_twophase", self._rollback)

    def _commit(self, connection: sql.Connection, *_more: Any) -> None:
        if rows := self._taken(connection):
            self._committed(rows)

    def _rollback(self, connection: sql.Connection, *_more: Any) -> None:
        self._taken(connection)

    def _taken(self, connection: sql.Connection) -> list[Written]:
        with self._lock:
            rows = self._open.get(connection, [])
            if rows:
                self._open[connection] = []
            return rows

"""Writes rows in the transactions of users."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import sqlalchemy as sql

from tidemill.outbox import plain
from tidemill.outbox.hooks import Hooks
from tidemill.outbox.ledger import Ledger
from tidemill.outbox.plain import Cursor, Paramstyle
from tidemill.outbox.row import Entry, Written


class Scribe:
    """For connections of SQLAlchemy, whose commits are heard, and for cursors, whose are not."""

    def __init__(self, ledger: Ledger, committed: Callable[[Sequence[Written]], None]) -> None:
        self._ledger = ledger
        self._hooks = Hooks(committed)

    def write(self, connection: sql.Connection, entry: Entry) -> Written:
        """Through a connection, in its transaction."""
        began = time.monotonic()
        number = self._ledger.write(connection, entry)
        written = Written(number, entry.identity, entry.order_hash is not None, began)
        self._hooks.note(connection, written)
        return written

    def write_plain(self, cursor: Cursor, dialect: str, style: Paramstyle | None, entry: Entry) -> Written:
        """Through a cursor."""
        began = time.monotonic()
        said = plain.statement(
            self._ledger.tables.name,
            dialect,
            style or plain.style_of(cursor),
            entry,
            self._ledger.grace_ms,
        )
        number = plain.insert(cursor, dialect, said)
        return Written(number, entry.identity, entry.order_hash is not None, began)

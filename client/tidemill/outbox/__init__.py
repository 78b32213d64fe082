"""Messages in the user's own transaction: written with its rows, sent after its commit, by whoever lives.

    from tidemill.outbox import Outbox

    async with Outbox(engine, "localhost:7401") as outbox:
        async with sessions() as session, session.begin():
            session.add(order)
            await outbox.send(session, "order.created", b"...", key="o-1")

Without an event loop: ``tidemill.outbox.blocking``.
"""

try:
    import sqlalchemy as _sqlalchemy
except ImportError as error:  # pragma: no cover - the tests' environment has it
    raise ImportError("the outbox needs SQLAlchemy: pip install 'tidemill[outbox]'") from error

from tidemill.outbox.once import idempotent
from tidemill.outbox.outbox import Outbox
from tidemill.outbox.pace import Pace
from tidemill.outbox.row import Written, identity
from tidemill.outbox.schema import (
    TABLE,
    OutboxUnusable,
    create_tables,
    create_tables_async,
    tables,
)

__all__ = [
    "TABLE",
    "Outbox",
    "OutboxUnusable",
    "Pace",
    "Written",
    "create_tables",
    "create_tables_async",
    "idempotent",
    "identity",
    "tables",
]

del _sqlalchemy

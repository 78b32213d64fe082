"""tidemill: a durable message queue, from Python.

from tidemill import Client

async with Client("localhost:7401") as mq:
    await mq.send("order.created", b"...", key="o-1", tags={"vip"})
    async with mq.consume("order.created", group="billing") as messages:
        async for message in messages:
            ...  # an exception is a nack, leaving the block is an ack
"""

from importlib.metadata import PackageNotFoundError, version

from tidemill.client import Client
from tidemill.consumer import Consumer
from tidemill.dead import DeadLetter, DeadLetters
from tidemill.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    CorruptBatch,
    LeaseLost,
    OutcomeUnknown,
    Refused,
    TidemillError,
    Unavailable,
)
from tidemill.message import Message, MessageBatch
from tidemill.receipts import Receipt, Receipts
from tidemill.routes import Address
from tidemill.search import Search, StoredMessage
from tidemill.settings import ClientSettings
from tidemill.worker import Context, Idempotent, PlainMessage, Reject, RetryAfter, Skip, Worker

try:
    __version__ = version("tidemill")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0.0.0"

__all__ = [
    "Address",
    "BrokerUnreachable",
    "Client",
    "ClientClosed",
    "ClientSettings",
    "ConnectionLost",
    "Consumer",
    "Context",
    "CorruptBatch",
    "DeadLetter",
    "DeadLetters",
    "Idempotent",
    "LeaseLost",
    "Message",
    "MessageBatch",
    "OutcomeUnknown",
    "PlainMessage",
    "Receipt",
    "Receipts",
    "Refused",
    "Reject",
    "RetryAfter",
    "Search",
    "Skip",
    "StoredMessage",
    "TidemillError",
    "Unavailable",
    "Worker",
    "__version__",
]

"""tidemill: a durable message queue, from Python.

from tidemill import Client

async with Client("localhost:7401") as mq:
    await mq.send("order.created", b"...", key="o-1", tags={"vip"})
    async with mq.consume("order.created", group="billing") as messages:
        async for message in messages:
            ...  # an exception is a nack, leaving the block is an ack
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.check_back import HalfMessage, PendingTransaction
    from tidemill.client import Client
    from tidemill.consumer import Consumer
    from tidemill.dead import DeadLetter, DeadLetters
    from tidemill.errors import (
        BrokerUnreachable,
        ClientClosed,
        CodecMissing,
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
    from tidemill.steering import Moved
    from tidemill.timers import Changed, Timer
    from tidemill.transactions import Transaction
    from tidemill.worker import Context, Idempotent, PlainMessage, Reject, RetryAfter, Skip, Worker

    __version__: str

# Loaded when first asked for: whoever wants a command or one name need not wait for all of the client.
_PLACES = {
    "check_back": "HalfMessage PendingTransaction",
    "client": "Client",
    "consumer": "Consumer",
    "dead": "DeadLetter DeadLetters",
    "errors": (
        "BrokerUnreachable ClientClosed CodecMissing ConnectionLost CorruptBatch LeaseLost OutcomeUnknown Refused "
        "TidemillError Unavailable"
    ),
    "message": "Message MessageBatch",
    "receipts": "Receipt Receipts",
    "routes": "Address",
    "search": "Search StoredMessage",
    "settings": "ClientSettings",
    "steering": "Moved",
    "timers": "Changed Timer",
    "transactions": "Transaction",
    "worker": "Context Idempotent PlainMessage Reject RetryAfter Skip Worker",
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}

__all__ = [
    "Address",
    "BrokerUnreachable",
    "Changed",
    "Client",
    "ClientClosed",
    "ClientSettings",
    "CodecMissing",
    "ConnectionLost",
    "Consumer",
    "Context",
    "CorruptBatch",
    "DeadLetter",
    "DeadLetters",
    "HalfMessage",
    "Idempotent",
    "LeaseLost",
    "Message",
    "MessageBatch",
    "Moved",
    "OutcomeUnknown",
    "PendingTransaction",
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
    "Timer",
    "Transaction",
    "Unavailable",
    "Worker",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _MODULES:
        raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"tidemill.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tidemill")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0.0.0"

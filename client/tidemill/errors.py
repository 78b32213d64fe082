"""What can go wrong for a program that uses tidemill, by who is at fault.

    TidemillError
      Refused              the caller: a limit, a name, a setting; sending it again will not help
        SpoolUnusable      the caller, too: the file for times without a broker cannot be opened
      Unavailable          the broker: it answered that it cannot now, and went on to until the deadline
      BrokerUnreachable    the network: no broker was reached, and nothing was stored
        ConnectionLost     a connection ended with questions still open
      OutcomeUnknown       the network, too: it was sent and nobody answered; it may be stored (is a ``TimeoutError``)
      LeaseLost            the caller: a message was settled after its lease had ended; it is given out again
      ClientClosed         the caller: the client or consumer was closed, or belongs to another process
      CodecMissing         the installation: the package for a compression is not there
      CorruptBatch         the disk, the network or a strange producer: bytes that are not a batch

Refused, Unavailable and CorruptBatch are the wire's own: a limit found here and the same limit found by the broker are
one error with one number.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill_wire.codec import CodecMissing
from tidemill_wire.errors import (
    CorruptBatch,
    ProtocolError,
    Refused,
    RemoteProtocolError,
    TidemillError,
    Unavailable,
    WireError,
    wire_error,
)

__all__ = [
    "BrokerUnreachable",
    "ClientClosed",
    "CodecMissing",
    "ConnectionLost",
    "CorruptBatch",
    "LeaseLost",
    "OutcomeUnknown",
    "ProtocolError",
    "Refused",
    "RemoteProtocolError",
    "SpoolUnusable",
    "TidemillError",
    "Unavailable",
    "WireError",
    "again",
    "not_opened",
    "wait_of",
    "wire_error",
]


class BrokerUnreachable(TidemillError, ConnectionError):
    """No broker was reached in time. What was to be sent is not stored."""


class ConnectionLost(BrokerUnreachable):
    """The connection to a broker ended."""


class OutcomeUnknown(TidemillError, TimeoutError):
    """It was sent, and no answer came before the deadline. It may be stored, or not."""


class LeaseLost(TidemillError):
    """The message was not this consumer's any more: it was, or will be, given out again. Of several, ``ranges`` has
    first and last pull sequences of those.
    """

    def __init__(self, text: str, ranges: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.ranges = ranges


class ClientClosed(TidemillError):
    """The client or consumer is closed, or was made before a fork."""


class SpoolUnusable(Refused):
    """The spool is in use, is another file, or cannot be opened."""

    def __init__(self, text: str) -> None:
        super().__init__("limit_exceeded", text)
        self.args = (text,)

    def __str__(self) -> str:
        return self.detail


def not_opened(path: object, error: OSError) -> SpoolUnusable:
    """Of a file that its disk or folder does not give."""
    return SpoolUnusable(
        f"the spool {path} cannot be opened ({error.strerror or error}): look at its folder and its disk, "
        "or give another path"
    )


def wait_of(error: BaseException) -> float:
    """Seconds that whoever refused asks to wait; 0: any."""
    return error.wait_ms / 1000 if isinstance(error, WireError) else 0.0


def again(error: TidemillError) -> TidemillError:
    """The same error to be raised once more. One object raised by many would collect the tracebacks of all."""
    fresh = type(error).__new__(type(error), *error.args)
    fresh.__dict__.update(error.__dict__)
    fresh.args, fresh.__cause__ = error.args, error.__cause__
    return fresh

"""How the handling of a message may end, other than by returning: what a handler or a middleware raises.

RetryAfter          nack, with that delay
Reject              nack as hopeless: dead letters
Skip                ack: there was nothing to handle
HandlerTimeout      nack; raised by the worker when the handler's time is over
anything else       nack, with what and where it was as the reason
"""

from __future__ import annotations

from tidemill.message import parse_delay
from tidemill.why import GROUPS_POLICY


class RetryAfter(Exception):
    """Give the message out again after so many seconds."""

    # As a subclass has them that does not call what follows.
    seconds: float = 0.0
    delay_ms: int = GROUPS_POLICY
    reason: str = ""

    def __init__(self, seconds: float, reason: str = "") -> None:
        self.delay_ms = parse_delay(seconds)
        super().__init__(reason or f"again in {seconds:g} s")
        self.seconds = seconds
        self.reason = str(self)

    def __reduce__(self) -> tuple[type[RetryAfter], tuple[float, str]]:
        return type(self), (self.seconds, self.reason)


class Reject(Exception):
    """No attempt will help: to the dead letters at once."""

    reason: str = ""

    def __init__(self, reason: object = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)


class Skip(Exception):
    """It needs no handling: acknowledge it."""


class HandlerTimeout(TimeoutError):
    """The handler did not return in its time."""


class HandlerCancelled(Exception):
    """The handler let through the cancellation of something that it awaited."""

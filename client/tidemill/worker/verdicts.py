"""How the handling of a message may end, other than by returning: what a handler or a middleware raises.

RetryAfter          nack, with that delay
Reject              nack as hopeless: dead letters
Skip                ack: there was nothing to handle
HandlerTimeout      nack; raised by the worker when the handler's time is over
anything else       nack, with what and where it was as the reason
"""

from __future__ import annotations

import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from tidemill.message import parse_delay
from tidemill.why import REASON_LENGTH_MAX, Why
from tidemill_wire.columns import hash_text

_OWN = str(Path(__file__).parents[1]) + os.sep
_INSTALLED = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


class RetryAfter(Exception):
    """Give the message out again after so many seconds."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        self.delay_ms = parse_delay(seconds)
        super().__init__(reason or f"again in {seconds:g} s")
        self.seconds = seconds
        self.reason = str(self)

    def __reduce__(self) -> tuple[type[RetryAfter], tuple[float, str]]:
        return type(self), (self.seconds, self.reason)


class Reject(Exception):
    """No attempt will help: to the dead letters at once."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Skip(Exception):
    """It needs no handling: acknowledge it."""


class HandlerTimeout(TimeoutError):
    """The handler did not return in its time."""


class HandlerCancelled(Exception):
    """The handler let through the cancellation of something that it awaited."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, and where."""

    error: str
    """The exception's type, with its module."""
    text: str
    place: str
    """File, line and function; empty when nobody knows."""

    @property
    def kind(self) -> str:
        """The exception's type."""
        return self.error.rpartition(".")[2]

    @property
    def said(self) -> str:
        """What the exception says of itself, in one line."""
        return f"{self.kind}: {self.text}" if self.text else self.kind

    @property
    def reason(self) -> str:
        """One line for people."""
        where = f" at {self.place}" if self.place else ""
        return f"{self.said}{where} [{self.fingerprint}]"

    @property
    def fingerprint(self) -> str:
        """The same as the broker's: by it, what is logged here is found among the dead letters there."""
        return f"{hash_text(f'{self.error}@{self.place}'.encode(errors='replace')) & 0xFFFF_FFFF:08x}"

    def why(self, delay_ms: int) -> Why:
        """For the broker, which makes a fingerprint of type and place."""
        longest = REASON_LENGTH_MAX
        return Why(self.said[:longest], self.error[:longest], self.place[:longest], delay_ms)


class FailedElsewhere(Exception):
    """A handler failed in another process; its traceback stayed there."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure

    def __reduce__(self) -> tuple[type[FailedElsewhere], tuple[Failure]]:
        return type(self), (self.failure,)


def describe(error: BaseException, handler: Callable[..., Any] | None = None) -> Failure:
    """What is told of an exception. The place is the innermost frame in the user's own code, else the handler."""
    if isinstance(error, FailedElsewhere):
        return error.failure
    name = type(error).__qualname__
    if type(error).__module__ != "builtins":
        name = f"{type(error).__module__}.{name}"
    frame = _innermost(error)
    code: CodeType | None = (
        getattr(inspect.unwrap(handler), "__code__", None) if handler is not None else None
    )
    place = ""
    if frame is not None:
        place = f"{_shown(frame.filename)}:{frame.lineno} in {frame.name}"
    elif code is not None:
        place = f"{_shown(code.co_filename)}:{code.co_firstlineno} in {code.co_name}"
    return Failure(name, " ".join(str(error).split()), place)


def _innermost(error: BaseException) -> traceback.FrameSummary | None:
    """The user's last frame; of a timeout it is in the cause, the cancellation."""
    cause: BaseException | None = error
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)
        users = [frame for frame in frames if _is_users(frame.filename)]
        if users:
            return users[-1]
        cause = cause.__cause__
    return None


def _is_users(filename: str) -> bool:
    path = os.path.realpath(filename)
    return not filename.startswith("<") and not path.startswith((_OWN, *_INSTALLED))


def _shown(filename: str) -> str:
    """Relative to the current folder where it is below it: the same on every machine that runs the program."""
    path = os.path.relpath(filename)
    return os.path.basename(filename) if path.startswith(os.pardir) else path

"""How the handling of a message may end, other than by returning: what a handler or a middleware raises.

RetryAfter          nack, with that delay
Reject              nack as hopeless: dead letters
Skip                ack: there was nothing to handle
HandlerTimeout      nack; raised by the worker when the handler's time is over
anything else       nack, with what and where it was as the reason
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

FINGERPRINT_BYTES = 6
REJECT_DELAY_S = 60.0
"""How long a rejected message rests while brokers have no dead letters: tried at once, it would go in a circle."""

_OWN = str(Path(__file__).parents[1]) + os.sep
_INSTALLED = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


class RetryAfter(Exception):
    """Give the message out again after so many seconds."""

    def __init__(self, seconds: float, reason: str = "") -> None:
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
    """What went wrong, and where: the same fault has the same fingerprint, whatever its text."""

    kind: str
    text: str
    place: str
    fingerprint: str

    @property
    def reason(self) -> str:
        """One line for people, and for the broker."""
        where = f" at {self.place}" if self.place else ""
        said = f"{self.kind}: {self.text}" if self.text else self.kind
        return f"{said}{where} [{self.fingerprint}]"


class FailedElsewhere(Exception):
    """A handler failed in another process; its traceback stayed there."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure

    def __reduce__(self) -> tuple[type[FailedElsewhere], tuple[Failure]]:
        return type(self), (self.failure,)


def describe(error: BaseException, handler: Callable[..., Any] | None = None) -> Failure:
    """What is told of an exception. The place is the innermost frame in the user's own code, else the handler.

    The fingerprint is made of the exception's type, file and function, and not of the line: an edit above it
    makes no new fault of an old one.
    """
    if isinstance(error, FailedElsewhere):
        return error.failure
    kind = type(error).__name__
    frame = _innermost(error)
    code: CodeType | None = (
        getattr(inspect.unwrap(handler), "__code__", None) if handler is not None else None
    )
    place = file = function = ""
    if frame is not None:
        file, function = _shown(frame.filename), frame.name
        place = f"{file}:{frame.lineno}"
    elif code is not None:
        file, function = _shown(code.co_filename), code.co_name
        place = f"{file}:{code.co_firstlineno}"
    made_of = f"{type(error).__module__}\0{type(error).__qualname__}\0{file}\0{function}"
    fingerprint = hashlib.blake2s(made_of.encode(), digest_size=FINGERPRINT_BYTES).hexdigest()
    return Failure(kind, " ".join(str(error).split()), place, fingerprint)


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

"""Why a message was not handled, as the broker is told: it finds out by it which failures are alike.

An edit above a fault, or another order number in its text, makes no new fault of an old one: of the place the broker
compares file and function, of a failure without an exception the text without its numbers.
"""

from __future__ import annotations

import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from tidemill_wire.limits import NACK_DELAY_MS_MAX

REASON_LENGTH_MAX = 1000
GROUPS_POLICY = -1

_OWN = str(Path(__file__).parent) + os.sep
_INSTALLED = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


class Why(NamedTuple):
    """A text for people; the exception's type and place, when there was one; when it is to be tried again."""

    reason: str = ""
    error: str = ""
    place: str = ""
    delay_ms: int = GROUPS_POLICY
    reject: bool = False
    """Never again: to the dead letters at once."""

    @property
    def told(self) -> tuple[int, str, str, str, bool]:
        """As a broker is told, which waits for no longer than it can."""
        delay_ms = min(self.delay_ms, NACK_DELAY_MS_MAX)
        return delay_ms, self.reason, self.error, self.place, self.reject

    @property
    def line(self) -> str:
        """For a log."""
        return f"{self.reason} at {self.place}" if self.place else self.reason


class FailedElsewhere(Exception):
    """A handler failed in another process; its traceback stayed there."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.reason)
        self.why = why

    def __reduce__(self) -> tuple[type[FailedElsewhere], tuple[Why]]:
        return type(self), (self.why,)


def why_of(error: BaseException, handler: Callable[..., Any] | None = None) -> Why:
    """What an exception says. The place is the innermost frame in the user's own code, else the handler."""
    if isinstance(error, FailedElsewhere):
        return error.why
    kind, module = type(error).__qualname__, type(error).__module__
    name = kind if module == "builtins" else f"{module}.{kind}"
    text = " ".join(text_of(error).split())
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = _place_of(error, handler)
    return Why(sayable(reason), sayable(name), sayable(place))


def sayable(text: object) -> str:
    """As a broker can be told: not for too long, and no half of a character, which has no bytes."""
    return str(text)[:REASON_LENGTH_MAX].encode(errors="backslashreplace").decode()[:REASON_LENGTH_MAX]


def text_of(error: BaseException) -> str:
    """Its ``str``; some words instead where that raises, for the failure is the one that is told, not the telling."""
    return str(traceback.TracebackException(type(error), error, None, limit=0, lookup_lines=False))


def _place_of(error: BaseException, handler: Callable[..., Any] | None) -> str:
    frame = _innermost(error)
    if frame is not None:
        return f"{_shown(frame.filename)}:{frame.lineno} in {frame.name}"
    code: CodeType | None = (
        getattr(inspect.unwrap(handler), "__code__", None) if handler is not None else None
    )
    return "" if code is None else f"{_shown(code.co_filename)}:{code.co_firstlineno} in {code.co_name}"


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

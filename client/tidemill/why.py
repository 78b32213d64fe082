"""Why a message was not handled, as the broker is told: it finds out by it which failures are alike."""

from __future__ import annotations

from pathlib import PurePath
from types import TracebackType
from typing import NamedTuple

REASON_LENGTH_MAX = 1000
GROUPS_POLICY = -1
OWN = PurePath(__file__).parent


class Why(NamedTuple):
    """A text for people; the exception's type and place, when there was one; when it is to be tried again."""

    reason: str = ""
    error: str = ""
    place: str = ""
    delay_ms: int = GROUPS_POLICY
    reject: bool = False
    """Never again: to the dead letters at once."""


def why_of(error: BaseException, delay_ms: int = GROUPS_POLICY, *, reject: bool = False) -> Why:
    """What an exception of a handler says."""
    name = type(error).__qualname__
    if type(error).__module__ != "builtins":
        name = f"{type(error).__module__}.{name}"
    reason = f"{type(error).__name__}: {error}"[:REASON_LENGTH_MAX]
    return Why(reason, name[:REASON_LENGTH_MAX], place_of(error.__traceback__), delay_ms, reject)


def place_of(trace: TracebackType | None) -> str:
    """File, line and function where it was raised: the innermost that is not this package's own; or nothing."""
    found = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if OWN not in PurePath(code.co_filename).parents:
            found = f"{PurePath(code.co_filename).name}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return found[:REASON_LENGTH_MAX]

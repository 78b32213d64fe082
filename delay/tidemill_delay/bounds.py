"""How far ahead the messages of a subject may be sent, as people declared it. Whoever knows that is set from outside.

    any time   nobody has declared anything: up to the service's horizon
    not told   a master under meta that has not heard what is declared: sends are refused, and tried again
    told       of a subject the seconds ahead, at most; 0: nothing is taken for later

What is sent, and what is given another time, is checked when it comes. What waits already has been promised, and stays;
what comes after a message that recurs is placed by the service, as was promised with the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tidemill_wire.asking import MetaRefused
from tidemill_wire.errors import Refused, Unavailable
from tidemill_wire.limits import CLOCKS_APART_MS

BoundOf: TypeAlias = Callable[[str], int | None]
"""The seconds of a subject; ``None``: any time."""


@dataclass(frozen=True, slots=True)
class Told:
    """What meta says of all subjects, up to a revision; those that are missing say nothing."""

    revision: int = 0
    seconds: Mapping[str, int] = field(default_factory=dict[str, int])


def any_time(_subject: str) -> int | None:
    """Nothing is declared."""
    return None


def not_told(_subject: str) -> int | None:
    """Whoever led before may have obeyed what this one has not heard of."""
    raise Unavailable(
        "not_told", "this delay service leads from now on, and meta has not told it what subjects allow"
    )


def read_told(answer: Mapping[str, Any]) -> Told:
    """From what meta answered; one of an earlier version says nothing of it."""
    match answer:
        case {"revision": int(revision)}:
            rows = answer.get("later", ())
        case _:
            raise MetaRefused("malformed", "an answer of meta does not say what was declared")
    try:
        return Told(revision, {str(name): int(seconds) for name, seconds in rows})
    except (TypeError, ValueError) as error:
        raise MetaRefused("malformed", f"what meta says of delays cannot be read ({error!r})") from None


def check_sent(bound_of: BoundOf, subject: str, ahead_ms: int) -> None:
    """``Refused`` when a subject takes no messages for so much later; of one that takes none, also what is past."""
    seconds = bound_of(subject)
    if seconds == 0:
        raise _forbidden(subject)
    _check_ahead(seconds, subject, ahead_ms)


def check_moved(bound_of: BoundOf, subject: str, ahead_ms: int) -> None:
    """The same of another time; what is due now waits no more."""
    seconds = bound_of(subject)
    if seconds == 0 and ahead_ms > 0:
        raise _forbidden(subject)
    _check_ahead(seconds, subject, ahead_ms)


def _check_ahead(seconds: int | None, subject: str, ahead_ms: int) -> None:
    if seconds is not None and ahead_ms > 1000 * seconds + CLOCKS_APART_MS:
        raise Refused(
            "delay_not_allowed",
            f"a message of subject {subject!r} for {ahead_ms / 1000:.0f} s ahead, {seconds} s are allowed",
        )


def _forbidden(subject: str) -> Refused:
    return Refused("delay_not_allowed", f"subject {subject!r} takes no messages for later")

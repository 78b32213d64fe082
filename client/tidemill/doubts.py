"""What a program is told of a batch that nobody answered for, and why. Pure.

    never written to a broker                   not stored
    written, and not answered before the end    it may be stored, or not
    written, not answered, and denied when it was said again   it may be stored, or not: who denies has not looked
    written, not answered, and no connection is let in again   it may be stored, or not

A broker looks first whether it has a batch, and then whether it takes it now: so any other refusal
is one of what is not stored.
"""

from __future__ import annotations

from tidemill.errors import BrokerUnreachable, OutcomeUnknown, TidemillError, Unavailable, WireError

DENIED = frozenset({"forbidden", "unauthenticated"})
"""What is said before anybody has looked."""


def unanswered(name: str, waited_s: float) -> TidemillError:
    """Of a batch for a subject."""
    return OutcomeUnknown(f"no answer within {waited_s} s to a batch for {name}: it may be stored, or not")


def unreached(waited_s: float, failure: TidemillError | None, *, linked: bool) -> TidemillError:
    """Of what never left."""
    if linked:
        return Unavailable("too_slow", "the broker did not take it before the deadline; it is not stored")
    why = f": {failure}" if failure is not None else ""
    return BrokerUnreachable(f"no broker was reached within {waited_s} s; not stored{why}")


def denied(what: str, error: TidemillError, *, looked: bool = True) -> TidemillError:
    """The same error, of what was said for the first time; or that nobody knows, of what was said before. ``looked``:
    it is the answer of who looks; a connection that is refused, for whatever reason, says nothing of what was sent.
    """
    if not isinstance(error, WireError) or (looked and error.kind.name not in DENIED):
        return error
    return OutcomeUnknown(
        f"{what} was sent, its answer got lost, and it may be stored, or not; sent again it was refused: {error}"
    )

"""What an answer of meta or of the API server means for the object that it was asked for: one table.

passing    it may work soon: try again, later each time
standing   it will not work before a person changes something: say so, and look again seldom
changed    what was seen is not so any more: look again at once
gone       what was to be taken away is not there: that is what was wanted
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from tidemill_operator import marks
from tidemill_operator.conditions import MESSAGE_MAX, READY, SYNCED, ready, stalled
from tidemill_operator.steps import Condition, Manifest
from tidemill_wire.errors import TidemillError

FailureKind: TypeAlias = Literal["passing", "standing", "changed", "gone"]

STANDING_MS = 300_000
"""How long something that only a person can change is left alone, when nothing happens to its object."""
BLOCKED_MS = 10_000
"""How often it is tried again to delete what is still in use."""
CHANGED_MS = 100
QUIET = frozenset({"Progressing", "ClusterUnavailable", "NotEnoughBrokers"})
"""Reasons that go by themselves, of a whole cluster: that its meta is silent is said once by its link, and that it has
no brokers yet by its own status. Thousands of objects need not say it, too.
"""


class Failure(TidemillError):
    """A step that could not be done: of which kind, the reason that a condition gives, and a sentence.

    ``after_ms``: not before that it is tried again; ``Retry-After``, or the pause of its kind.
    """

    def __init__(self, kind: FailureKind, reason: str, sentence: str, after_ms: int = 0) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.reason = reason
        self.sentence = sentence
        self.after_ms = after_ms


def of_api(status: int, sentence: str, *, retry_after_ms: int = 0) -> Failure:
    """What the API server refused; status 0: it was not heard."""
    match status:
        case 404 | 410:
            return Failure("gone", "Progressing", sentence)
        case 409:
            return Failure("changed", "Progressing", sentence, CHANGED_MS)
        case 400 | 405 | 413 | 415 | 422:
            return Failure("standing", "ApplyRejected", sentence, STANDING_MS)
        case 401:
            return Failure("passing", "NotPermitted", sentence)
        case 403:
            return Failure("standing", "NotPermitted", sentence, STANDING_MS)
        case _:
            return Failure("passing", "ClusterUnavailable", sentence, retry_after_ms)


def of_meta(status: int, code: str, sentence: str, *, goes: bool = False) -> Failure:
    """What meta refused, with the code of its error; status 0: it was not heard. ``goes``: the object is deleted."""
    if status == 404 and goes:
        return Failure("gone", "Deleting", sentence)
    if goes and (status == 409 or code == "not_known"):
        return Failure("passing", "DeletionBlocked", sentence, BLOCKED_MS)
    if code == "no_broker_group":
        return Failure("passing", "NotEnoughBrokers", sentence)
    if code == "not_gone":
        return Failure("passing", "Progressing", sentence)
    if status == 409:
        return Failure("changed", "Progressing", sentence, CHANGED_MS)
    if status in {400, 404, 413, 422}:
        # A placement may name a broker group that is about to come: that is tried again sooner than what is malformed.
        pause_ms = BLOCKED_MS if code == "placement" else STANDING_MS
        return Failure("standing", "BrokerRejected", sentence, pause_ms)
    if status == 401:  # as while the token of a cluster is changed
        return Failure("passing", "NotPermitted", sentence)
    if status == 403:
        return Failure("standing", "NotPermitted", sentence, STANDING_MS)
    return Failure("passing", "ClusterUnavailable", sentence)


def conditions_of(failure: Failure, *, declared: bool) -> tuple[Condition, ...]:
    """What is said of an object whose pass ended so; nothing while it only has to be looked at again.

    ``declared``: it is something that meta keeps, so that one may ask whether meta's is as the spec says.
    """
    if failure.kind in {"changed", "gone"}:
        return ()
    unsure = Condition(SYNCED, "Unknown", "AdminApiError", failure.sentence)
    also = (unsure,) if declared else ()
    if failure.kind == "standing":
        return (*stalled(failure.reason, failure.sentence), *also)
    if failure.reason == "ClusterUnavailable":
        return (Condition(READY, "Unknown", failure.reason, failure.sentence), *also)
    return (ready(failure.reason, failure.sentence), *also)


def is_said(failure: Failure, resource: Manifest | None) -> bool:
    """Whether the object's status says it already."""
    return marks.condition_of(resource, READY).get("message") == failure.sentence[:MESSAGE_MAX]


def is_news(failure: Failure, resource: Manifest | None) -> bool:
    """Whether the log should have it: not again in every pass that is tried meanwhile."""
    return failure.reason not in QUIET and not is_said(failure, resource)

"""Where one message stands in a group: from the state, from its history, and as a sentence for a person.

beyond the cursor   waiting    behind so many others, at the rate of late
delivered           leased     to whom, until when
                    parked     it failed, and its consumer tries it again in its place: when, after which error
failed              retry      due when, after which error; or about to become a dead letter
gone                acked, dead, or passed over, as its last event says; or filtered, as its tags say
dead                the same questions of its copy, which the group's twin may have been given again
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemill_broker.actions import FailureDetail, Reason
from tidemill_broker.groups import Group
from tidemill_wire.counted import counted
from tidemill_wire.filters import TagFilter
from tidemill_wire.limits import DOOMED_MS

ENDS = ("acked", "kept", "dead", "dropped", "purged")
FAILED = {
    Reason.NACK: "failed",
    Reason.LEASE_ENDED: "lease ended",
    Reason.CONSUMER_GONE: "consumer gone",
    Reason.HELD_TOO_LONG: "held too long",
}


class Event(NamedTuple):
    """Something that was done with the message, or with its group."""

    at_ms: int
    what: str
    consumer: str = ""
    attempts: int = 0
    until_ms: int = 0
    """When the lease ends, or when it is due again."""
    detail: FailureDetail | None = None


class Pause(NamedTuple):
    """Of a group whose deliveries all fail alike."""

    since_ms: int
    fingerprint: str
    detail: FailureDetail | None
    """What they fail of; ``None``: nobody remembers."""
    probe_ms: int
    """When the next message is tried; 0: one is being tried."""


@dataclass(slots=True)
class Standing:
    """Where the message is, for a group, at one moment."""

    group: str
    state: str
    attempts: int = 0
    consumer: str = ""
    until_ms: int = 0
    ahead: int = 0
    """Messages that the group is given before it."""
    unwanted: str = ""
    """What the group's filter wants instead of it."""
    detail: FailureDetail | None = None
    pause: Pause | None = None
    suspended: bool = False
    untried: bool = False
    """Given back by a consumer that had not begun it, or redriven: before anything new it is given out."""
    events: list[Event] = field(default_factory=list[Event])
    rate: float = 0.0
    """Messages a second that the group was given of late."""
    kept_back: str = ""
    """Whose quota of messages in flight is used up, if that keeps messages back from the group."""


def standing_of(group: Group, sequence: int, tags: Collection[str] = ()) -> Standing:
    """From the state alone. ``gone`` is for the history to tell."""
    found = Standing(group.name, "gone", pause=pause_of(group), suspended=group.settings.suspended)
    wanted = TagFilter(group.settings.tags, group.settings.all_tags)
    found.unwanted = "" if wanted.wants(tags) else str(wanted)
    if sequence >= group.cursor:
        found.state = "filtered" if found.unwanted else "waiting"
        found.ahead = max(0, sequence - group.reached) + group.failed_count()
        return found
    for consumer in group.consumers.values():
        for delivery in consumer.held():
            if delivery.first <= sequence < delivery.first + delivery.count:
                found.state, found.consumer = "leased", consumer.name
                found.attempts, found.until_ms = delivery.attempts, delivery.deadline_ms
                return found
    for failure in group.failed.values():
        if failure.first <= sequence < failure.first + failure.messages:
            found.untried = not failure.since_ms
            found.state = "dying" if failure.due_ms == DOOMED_MS else "waiting" if found.untried else "retry"
            found.attempts, found.until_ms = failure.attempts, 0 if found.untried else failure.due_ms
            seen = group.errors.get(failure.fingerprint)
            found.detail = seen.detail if seen is not None else None
    return found


def pause_of(group: Group) -> Pause | None:
    """Whether a group is paused, since when, of what, and how it goes on."""
    if group.paused is None:
        return None
    since_ms, mark = group.paused
    seen = group.errors.get(mark)
    probe_ms = group.health.probe_at_ms if group.health.probe is None else 0
    return Pause(since_ms, mark, seen.detail if seen is not None else None, probe_ms)


def conclude(standing: Standing, events: list[Event], rate: float) -> Standing:
    """Put the history to where the message stands."""
    standing.events, standing.rate = events, rate
    own = [event for event in events if event.what not in ("paused", "resumed", "moved")]
    if standing.state != "gone":
        return _stands(standing, own)
    last = own[-1] if own else None
    standing.state = last.what if last is not None and last.what in ENDS else "passed over"
    if last is None and standing.unwanted:
        standing.state = "filtered"
    if last is not None:
        standing.consumer = last.consumer
        standing.until_ms = last.until_ms if last.what == "kept" else last.at_ms
    failed = [event for event in own if event.what in FAILED.values()]
    said = [event.detail for event in failed if event.detail is not None]
    if standing.state in ("dead", "dropped") and said:
        standing.detail = said[-1]
    decisive = last if last is not None and last.what in ("acked", "kept") else failed[-1] if failed else None
    standing.attempts = decisive.attempts if decisive is not None else 0
    return standing


def _stands(standing: Standing, own: list[Event]) -> Standing:
    """What its own history says of a message that is not gone: the state knows only the group's last texts."""
    decisive = next((event for event in reversed(own) if event.what != "extended"), None)
    if standing.state == "leased" and decisive is not None and decisive.what == "parked":
        standing.state, standing.until_ms, standing.detail = "parked", decisive.until_ms, decisive.detail
    if standing.state in ("retry", "dying"):
        said = next((event.detail for event in reversed(own) if event.what in FAILED.values()), None)
        standing.detail = said or standing.detail
    return standing


def sentence_of(standing: Standing, moment: Callable[[int], str]) -> str:
    """For a person. ``moment`` writes a time."""
    when, who = moment(standing.until_ms), standing.consumer
    why = f" ({standing.detail.reason})" if standing.detail is not None and standing.detail.reason else ""
    after = f"after {counted(standing.attempts, 'attempt')}{why}"
    failed = f"failed {_times(standing.attempts)}{why}"
    if not standing.attempts:
        failed = f"failed while the group was paused, which is not counted{why}"
    sentences: Mapping[str, str] = {
        "waiting": _waiting(standing),
        "leased": f"leased to {who} until {when}, given out {_times(standing.attempts)} before",
        "parked": f"parked by {who}, which holds its order key up and tries it again {when}{why}",
        "retry": f"{failed}, due again {when}",
        "dying": f"{failed}, becomes a dead letter now",
        "acked": f"acknowledged by {who} at {when}",
        "kept": f"{failed}, kept by the delay service and given to this group again {when}",
        "dead": f"a dead letter since {when}, {after}",
        "dropped": f"given up at {when}, {after}: no dead letters are kept, as is declared of the group or the subject",
        "purged": f"a dead letter that was purged at {when}",
        "filtered": f"not wanted by this group: its filter is {standing.unwanted}",
        "passed over": "not given to this group: it began, or was moved, behind it; "
        "or its filter did not want it then; or its history is no longer kept",
    }
    open_still = standing.state in ("waiting", "leased", "parked", "retry")
    paused = "" if standing.pause is None else _paused(standing.pause, moment)
    suspended = "; the group is suspended, and given nothing" if standing.suspended else ""
    kept_back = (
        f"; the group is given nothing now: the quota of {standing.kept_back} of messages in flight is used up"
        if standing.kept_back and standing.state in ("waiting", "retry")
        else ""
    )
    return sentences[standing.state] + (paused + suspended + kept_back if open_still else "")


def _paused(pause: Pause, moment: Callable[[int], str]) -> str:
    of = pause.fingerprint if pause.detail is None else f"{pause.detail.reason} ({pause.fingerprint})"
    probe = f"the next one is tried {moment(pause.probe_ms)}" if pause.probe_ms else "one is being tried"
    return f"; the group is paused since {moment(pause.since_ms)}, as everything fails alike: {of}; {probe}"


def _waiting(standing: Standing) -> str:
    if standing.untried:
        last = next((one for one in reversed(standing.events) if one.what in ("released", "redriven")), None)
        how = f"given back by {last.consumer}" if last is not None and last.consumer else "redriven"
        return f"{how} and not pulled again yet; it comes before new messages"
    place = f"{_messages(standing.ahead)} before it" if standing.ahead else "it is the next one"
    if not standing.rate:
        return f"not pulled yet, {place}, and none was given to the group of late"
    if not standing.ahead:
        return f"not pulled yet, {place}"
    seconds = standing.ahead / standing.rate
    return f"not pulled yet, {place}: in about {seconds:.0f} s at {standing.rate:.1f}/s"


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _messages(count: int) -> str:
    return f"{counted(count, 'message')} {'is' if count == 1 else 'are'}"

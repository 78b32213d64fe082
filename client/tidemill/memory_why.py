"""What became of each message at the broker in memory, as ``Client.why`` tells it of a real one.

All that was done with a message is noted, and its last event says where it stands; nothing of it is ever forgotten. A
lease has no end here, and no group is paused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from tidemill.memory_graves import fingerprint_of
from tidemill.memory_stores import Lease, StoredGroup
from tidemill_wire.commands import Ack, Nack
from tidemill_wire.counted import counted

Place: TypeAlias = tuple[str, str]
"""A lane and a group."""

STATES = {
    "pulled": "leased",
    "failed": "retry",
    "released": "waiting",
    "redriven": "waiting",
    "acked": "acked",
    "kept": "kept",
    "dead": "dead",
    "purged": "purged",
}
RATE_S = 60


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done with a message."""

    at_ms: int
    what: str
    consumer: str = ""
    attempts: int = 0
    until_ms: int = 0
    said: Nack | None = None

    def value(self) -> dict[str, Any]:
        """As the HTTP port of a broker has it."""
        return {
            "at": moment(self.at_ms), "what": self.what, "consumer": self.consumer or None,
            "attempts": self.attempts, "until": moment(self.until_ms) if self.until_ms else None,
            "error": error_of(self.said),
        }  # fmt: skip


class Diary:
    """What was done with the messages of all groups."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._events: dict[Place, dict[int, list[Event]]] = {}

    def note(
        self,
        place: Place,
        leases: Iterable[Lease],
        what: str,
        consumer: str = "",
        *,
        said: Nack | None = None,
        delay_ms: int = -1,
    ) -> None:
        """The same was done with messages, each with how often it failed."""
        events, now_ms = self._events.setdefault(place, {}), self._now_ms()
        until_ms = now_ms + delay_ms if delay_ms >= 0 else 0
        for sequence, attempts in leases:
            event = Event(now_ms, what, consumer, attempts, until_ms, said)
            events.setdefault(sequence, []).append(event)

    def acked(self, place: Place, lease: Lease, said: Ack) -> None:
        """It was handled; or a delay service keeps it."""
        if said.kept_until_ms:
            delay_ms = said.kept_until_ms - self._now_ms()
            self.note(place, [(lease[0], lease[1] + 1)], "kept", said.consumer, delay_ms=delay_ms)
        else:
            self.note(place, [lease], "acked", said.consumer)

    def moved(self, place: Place) -> None:
        """The group goes on elsewhere: what it had done counts for nothing."""
        self.note(place, [(sequence, 0) for sequence in self._events.get(place, ())], "moved")

    def standing(self, place: Place, group: StoredGroup, sequence: int, tags: list[str]) -> dict[str, Any]:
        """Where a message stands in a group, as the HTTP port of a broker says it."""
        events = self._events.get(place, {}).get(sequence, [])
        last = events[-1] if events and events[-1].what in STATES else None
        state = STATES[last.what] if last is not None else "passed over"
        if last is None and not group.wanted.wants(tags):
            state = "filtered"
        elif last is None and sequence >= group.cursor:
            state = "waiting"
        failures = [event.said for event in events if event.what == "failed"]
        said = failures[-1] if failures and state in ("retry", "dead") else None
        ahead = sequence - group.cursor + len(group.due) if state == "waiting" and last is None else 0
        found = {
            "group": place[1], "state": state, "attempts": last.attempts if last is not None else 0,
            "consumer": last.consumer if last is not None and state in ("leased", "acked", "kept") else None,
            "until": _until(state, last), "ahead": ahead, "rate": self._rate(place), "paused": False,
            "pause": None, "suspended": group.suspended, "over_quota": None,
            "error": error_of(said),
            "events": [event.value() for event in events],
        }  # fmt: skip
        return {**found, "sentence": sentence_of(found, last, str(group.wanted))}

    def _rate(self, place: Place) -> float:
        """Messages a second that the group was given in the last minute."""
        since_ms = self._now_ms() - 1000 * RATE_S
        given = sum(
            event.what == "pulled" and event.at_ms > since_ms
            for events in self._events.get(place, {}).values()
            for event in events
        )
        return round(given / RATE_S, 3)


def sentence_of(found: dict[str, Any], last: Event | None, wanted: str) -> str:
    """For a person; word for word that of a broker, but for the end of a lease."""
    when, who, attempts = found["until"], found["consumer"], found["attempts"]
    error = found["error"]
    why = f" ({error['reason']})" if error and error["reason"] else ""
    sentences = {
        "waiting": "; ".join(_waiting(found, last)),
        "leased": f"leased to {who}, given out {_times(attempts)} before",
        "retry": f"failed {_times(attempts)}{why}, due again {when}",
        "kept": f"failed {_times(attempts)}, kept by the delay service and given to this group again {when}",
        "acked": f"acknowledged by {who} at {when}",
        "dead": f"a dead letter since {when}, after {counted(attempts, 'attempt')}{why}",
        "purged": f"a dead letter that was purged at {when}",
        "filtered": f"not wanted by this group: its filter is {wanted}",
        "passed over": "not given to this group: it began, or was moved, behind it; "
        "or its filter did not want it then; or its history is no longer kept",
    }
    still_open = found["suspended"] and found["state"] in ("waiting", "leased", "retry")
    return sentences[found["state"]] + ("; the group is suspended, and given nothing" if still_open else "")


def _waiting(found: dict[str, Any], last: Event | None) -> Iterator[str]:
    ahead, rate = found["ahead"], found["rate"]
    if last is not None:
        how = f"given back by {last.consumer}" if last.what == "released" else "redriven"
        yield f"{how} and not pulled again yet"
        yield "it comes before new messages"
        return
    are = "is" if ahead == 1 else "are"
    place = f"{counted(ahead, 'message')} {are} before it" if ahead else "it is the next one"
    late = "" if rate else ", and none was given to the group of late"
    pace = f": in about {ahead / rate:.0f} s at {rate:.1f}/s" if ahead and rate else late
    yield f"not pulled yet, {place}{pace}"


def _until(state: str, last: Event | None) -> str | None:
    """When it is due, or was acked or buried."""
    if last is None or state in ("leased", "waiting"):
        return None
    return moment(last.until_ms if state in ("retry", "kept") else last.at_ms)


def error_of(said: Nack | None) -> dict[str, str] | None:
    """What a consumer said of a failure."""
    if said is None:
        return None
    mark = fingerprint_of(said)
    return {"reason": said.reason, "error": said.error, "place": said.place, "fingerprint": mark}


def moment(at_ms: int) -> str:
    """As a broker writes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")

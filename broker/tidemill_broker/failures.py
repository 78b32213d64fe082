"""When what failed is due again, what is known of why it failed, and when a whole group has stopped working.

A failure is counted (attempts), waits (the group's backoff), and comes again before new messages; after
``attempts_max`` attempts, and not before ``retry_ms_min``, it is doomed: never given out again, and buried by
``dead_letters.py``. When most deliveries of a group fail in the same way, the messages are not to blame: the group is
paused and probed with single messages, and no attempt counts meanwhile.

    working  --most of at least OUTAGE_FAILURES_MIN recent deliveries failed alike-->  paused
    paused   --a probe is acked-----------------------------------------------------> working
    paused   --a probe fails--------------------------------------------------------> paused, the next probe later
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidemill_broker.actions import FailureDetail, Reason
from tidemill_broker.group_settings import GroupSettings
from tidemill_wire.fingerprints import fingerprint_of
from tidemill_wire.limits import DOOMED_MS, OUTAGE_FAILURES_MIN, PROBE_MS_MAX, PROBE_MS_MIN

SILENT_MAX = OUTAGE_FAILURES_MIN - 1
"""So many messages of one consumer that is gone, or whose leases ended, count towards an outage: one crash with full
hands is none, a second one soon after may be.
"""

OUTAGE_SHARE = 0.8
"""Of recent deliveries, those that must have failed alike."""

HALF_LIFE_MS = 10_000
"""After it, a delivery counts half: what counts is what happens now."""


class Failure(NamedTuple):
    """Messages that failed and are due again, by reference."""

    first: int
    messages: int
    attempts: int
    due_ms: int
    since_ms: int = 0
    """When they failed first; 0 when they were only handed back."""
    fingerprint: str = ""
    """What they failed of last, in the group's ``errors``."""


def _silent(text: str) -> FailureDetail:
    return FailureDetail(text, "", "", fingerprint_of(text, "", ""))


SILENT: Mapping[int, FailureDetail] = {
    Reason.LEASE_ENDED: _silent("its lease ended: it was neither acknowledged nor extended in time"),
    Reason.CONSUMER_GONE: _silent("its consumer was gone and had not acknowledged it"),
    Reason.HELD_TOO_LONG: _silent("it was held for longer than the group allows, and not acknowledged"),
}
"""Of failures of which no consumer says anything: each is a mistake of its own, too."""


def due_after(
    settings: GroupSettings, failed: tuple[int, int], reason: int, delay_ms: int, now_ms: int
) -> int:
    """When deliveries with ``failed`` (attempts before this one, time of the first failure or 0) are due again."""
    attempts, since_ms = failed
    waited_ms = now_ms - since_ms if since_ms else 0
    if attempts + 1 >= settings.attempts_max and waited_ms >= settings.retry_ms_min:
        return DOOMED_MS
    if delay_ms >= 0:
        return now_ms + delay_ms
    if reason == Reason.NACK:
        return now_ms + settings.backoff_ms[min(attempts, len(settings.backoff_ms) - 1)]
    if not attempts:
        return now_ms  # its consumer died of something else, as a rule: the message has waited long enough
    return now_ms + settings.backoff_ms[min(attempts - 1, len(settings.backoff_ms) - 1)]


@dataclass(slots=True)
class Seen:
    """An error of a group, for those who look: the last text, how often, when last."""

    detail: FailureDetail
    messages: int
    last_ms: int


class Errors(dict[str, Seen]):
    """The errors that a group met last, by fingerprint; those not met for longest are forgotten."""

    KEPT = 64

    def note(self, detail: FailureDetail, messages: int, now_ms: int) -> FailureDetail:
        """Messages failed of it. What was said is returned: where the last ones said the same, it is kept once."""
        seen = self.pop(detail.fingerprint, None)
        before = seen.messages if seen is not None else 0
        if seen is not None and seen.detail == detail:
            detail = seen.detail
        self[detail.fingerprint] = Seen(detail, before + messages, now_ms)
        if len(self) > self.KEPT:
            del self[next(iter(self))]
        return detail

    def to_list(self) -> list[Any]:
        return [[list(seen.detail), seen.messages, seen.last_ms] for seen in self.values()]

    @classmethod
    def from_list(cls, rows: list[Any]) -> Errors:
        errors = cls()
        for detail, messages, last_ms in rows:
            errors[detail[3]] = Seen(FailureDetail(*detail), messages, last_ms)
        return errors


@dataclass(slots=True)
class Health:
    """Recent deliveries of a group: what was acked, and what failed alike. Not kept over a restart."""

    acked: float = 0.0
    failed: dict[str, float] = field(default_factory=dict[str, float])
    at_ms: int = 0
    probe: int | None = None
    """The pull sequence of the probe that is under way."""
    probe_at_ms: int = 0
    probe_pause_ms: int = PROBE_MS_MIN

    def fade(self, now_ms: int) -> None:
        """What is old counts less."""
        if now_ms > self.at_ms:
            share = 0.5 ** ((now_ms - self.at_ms) / HALF_LIFE_MS)
            self.acked *= share
            self.failed = {name: count * share for name, count in self.failed.items() if count * share > 0.5}
            self.at_ms = now_ms

    def note_acked(self, messages: int, now_ms: int) -> None:
        """Messages were handled."""
        self.fade(now_ms)
        self.acked += messages

    def note_failed(self, fingerprint: str, messages: int, now_ms: int) -> bool:
        """Messages failed; whether that is an outage."""
        self.fade(now_ms)
        alike = self.failed[fingerprint] = self.failed.get(fingerprint, 0.0) + messages
        total = self.acked + sum(self.failed.values())
        return alike >= OUTAGE_FAILURES_MIN and alike >= OUTAGE_SHARE * total

    def probe_failed(self, now_ms: int) -> None:
        """The next one comes later."""
        self.probe = None
        self.probe_at_ms = now_ms + self.probe_pause_ms
        self.probe_pause_ms = min(2 * self.probe_pause_ms, PROBE_MS_MAX)

    def begin_pause(self, now_ms: int) -> None:
        """The first probe comes soon."""
        self.probe, self.probe_pause_ms = None, PROBE_MS_MIN
        self.probe_failed(now_ms)

    def forget(self) -> None:
        """As if nothing had been delivered yet."""
        self.end_pause()
        self.at_ms = self.probe_at_ms = 0
        self.probe_pause_ms = PROBE_MS_MIN

    def end_pause(self) -> None:
        """What was before the outage says nothing about what comes."""
        self.acked, self.failed, self.probe = 0.0, {}, None

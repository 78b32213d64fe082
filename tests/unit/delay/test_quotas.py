"""A subject whose quota is used up when its messages are due: they come late, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.delays import NOW_MS, OTHER_SUBJECT, SMALL, SUBJECT, DelayRig
from tidemill_broker.partitions import SubjectSettings
from tidemill_delay import courier
from tidemill_wire.commands import SendBatches
from tidemill_wire.quotas import Rates

SETTINGS = SubjectSettings("low", 3600, 0, 1 << 20)
LARGE = replace(SMALL, segment_bytes=1 << 20, action_segment_bytes=1 << 20)


class CountingRig(DelayRig):
    """It knows how many batches were sent to the broker."""

    sent = 0

    def bound(self, rates: Rates | None) -> None:
        """The quota of a subject at the broker."""
        self.broker.broker.intake.declare(SUBJECT, replace(SETTINGS, rates=rates), self.now_ms)
        self.broker.pump()

    def _at_broker(self, correlation: int, command: SendBatches) -> None:
        self.sent += 1
        super()._at_broker(correlation, command)

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.arrived]


def test_what_a_quota_keeps_waiting_holds_up_no_other_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes would fill what the courier may hold; and it would all be sent again each second."""
    monkeypatch.setattr(courier, "AHEAD_BYTES", 4096)
    rig = CountingRig(LARGE)
    rig.bound(Rates(messages=1))
    for number in range(12):
        rig.send([b"a" * 1000], NOW_MS + 1000 + number)
    rig.send([b"other"], NOW_MS + 5000, subject=OTHER_SUBJECT)
    rig.wait(6000)
    assert b"other" in rig.bodies
    for _ in range(20):
        rig.wait(1000)
        rig.delay.courier.check()
    assert sorted(rig.bodies) == [b"a" * 1000] * 12 + [b"other"]
    assert rig.sent < 30
    assert rig.delay.courier.size == 0


def test_a_quota_that_is_lifted_is_noticed_within_half_a_minute() -> None:
    rig = CountingRig(LARGE)
    rig.bound(Rates(messages=0.001))
    for number in range(3):
        rig.send([b"%d" % number], NOW_MS + 1000 + number)
    rig.wait(5000)
    assert len(rig.arrived) == 1  # the next one would come in a quarter of an hour
    rig.bound(None)
    rig.wait(courier.WAIT_MS_MAX)
    assert sorted(rig.bodies) == [b"0", b"1", b"2"]

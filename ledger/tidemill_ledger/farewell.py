"""What a server of a group does before it stops on purpose, so that nobody waits to find out that it is gone.

    master  --HANDOVER: takes no more work, until a slave in sync has all-->  bare      there is nobody who could: bare
    bare    --LEAVE, to meta-->  gone                          its place is taken within a second
    slave   --LEAVE, to meta-->  counted out                   it follows on: its master waits for it until it hears
    counted out  --beats, until it is not in sync any more, and its master has had time to hear-->  gone

Meta appoints whom it finds best of those in sync, for all of them have what is committed when HANDOVER is answered. It
sends nothing itself: ``tidemill_host.parting`` carries it out, and a simulation over its own network. Whatever goes
wrong on the way, the server stops: then it is as if it had been killed, which is safe, and takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

from tidemill_ledger.attendance import BEAT_SECONDS, Identity
from tidemill_wire.asking import Pause, Request
from tidemill_wire.replication import Handover, Stood

LOOKS, LOOK_SECONDS = 8, 0.25


Step: TypeAlias = Request | Handover | Pause


class Farewell:
    """Of one server, which stood so when it was told to stop."""

    def __init__(self, identity: Identity, stood: Stood) -> None:
        self._identity = identity
        self._stood = stood
        self._went_well = False
        self._answer: Mapping[str, Any] = {}
        self._steps = self._all()

    def begin(self) -> Step | None:
        return next(self._steps, None)

    def answered(self, status: int, answer: object) -> Step | None:
        """As HTTP says it; 0: nobody answered. What is next; nothing when it is time to stop."""
        self._went_well = 200 <= status < 300
        self._answer = cast("Mapping[str, Any]", answer) if isinstance(answer, dict) else {}
        return next(self._steps, None)

    def _all(self) -> Iterator[Step]:
        if self._stood.role == "master":
            yield from self._hand_over()
        yield self._leave()
        if self._stood.role == "slave" and self._went_well:
            yield from self._wait()

    def _hand_over(self) -> Iterator[Step]:
        """To the slave that has most; one that is not in sync is refused at once."""
        slaves = sorted(self._stood.slaves.items(), key=lambda one: (one[1], one[0]), reverse=True)
        for name, _ in slaves:
            yield Handover(name)
            if self._went_well:
                return

    def _leave(self) -> Request:
        one = self._identity
        return Request("/v1/brokers/leave", {"group": one.group, "name": one.name, "boot": one.boot})

    def _wait(self) -> Iterator[Step]:
        one = self._identity
        ends = self._stood.ends
        said = {
            "group": one.group, "name": one.name, "boot": one.boot, "epoch": self._stood.epoch, "role": "slave",
            "positions": {"messages": ends.message, "actions": ends.action},
        }  # fmt: skip
        for _ in range(LOOKS):
            yield Pause(LOOK_SECONDS)
            yield Request("/v1/brokers/heartbeat", said)
            if self._went_well and one.name not in self._answer.get("in_sync", ()):
                break
        yield Pause(float(self._answer.get("beat_ms", 1000 * BEAT_SECONDS)) / 1000)

"""What a delay service says to meta besides what any server of a group does, and is told: how far ahead subjects let
their messages be sent.

warded   --of a master: what is declared, when there is news-->  told  -->  wishing

A master refuses what comes before it was told for the first time, so that comes before a wish, which may be refused.
A replica of meta that is behind what the heartbeat said is asked again with the next beat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from tidemill_delay.bounds import Told, read_told
from tidemill_ledger import attendance
from tidemill_ledger.attendance import Identity
from tidemill_wire.access import Charter
from tidemill_wire.asking import Request
from tidemill_wire.replication import Appoint

Next: TypeAlias = Request | Appoint | Charter | Told


class DelayAttendance(attendance.Attendance[Told]):
    """One part of one delay service."""

    def __init__(self, identity: Identity) -> None:
        super().__init__(identity)
        self._known: int | None = None
        """The revision up to which is known what is declared."""

    def _first(self, answer: Mapping[str, Any]) -> Iterator[Next]:
        declared = int(answer.get("declared", 0))
        if self._known is not None and declared <= self._known:
            return
        yield Request("/v1/brokers/declared", {"group": self._identity.group, "known": self._known or 0})
        told = read_told(self._answer)
        if told.revision >= declared:
            yield told
            self._known = told.revision

"""Whose transactions are whose: to decide one takes the right to send to all subjects of its half messages."""

from __future__ import annotations

from collections.abc import Collection

from tidemill_broker.machine import Broker
from tidemill_wire.fields import living_subject
from tidemill_wire.guarding import Subjects
from tidemill_wire.transacting import Decide


def subjects_of(broker: Broker) -> Subjects:
    """Those of a broker."""

    def subjects(asked: Decide) -> Collection[str]:
        one = broker.state.transactions.pending.get(asked.transaction)
        return () if one is None else {living_subject(name) for name in one.subjects}

    return subjects

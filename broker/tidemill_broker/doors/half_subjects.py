"""Whose transactions are whose: to decide one, or to be asked about those of a producer group, takes the right to send
to all subjects that their half messages are for.
"""

from __future__ import annotations

from collections.abc import Collection

from tidemill_broker.machine import Broker
from tidemill_wire.access import EVERYTHING
from tidemill_wire.fields import living_subject
from tidemill_wire.guarding import Subjects
from tidemill_wire.transacting import Check, Decide


def subjects_of(broker: Broker) -> Subjects:
    """Those of a broker."""

    def subjects(asked: Decide | Check) -> Collection[str]:
        pending = broker.state.transactions.pending
        if isinstance(asked, Decide):
            one = pending.get(asked.transaction)
            return () if one is None else {living_subject(name) for name in one.subjects}
        found = {
            living_subject(name)
            for one in pending.values()
            if one.group == asked.group
            for name in one.subjects
        }
        # Whoever waits is shown what comes: of a group that has nothing yet that may be anything.
        return found or (EVERYTHING,)

    return subjects

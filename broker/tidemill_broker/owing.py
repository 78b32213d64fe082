"""What a master was told to make and cannot yet: its disk is full, or it has as many subjects as it may have. Pure.

    told  --it cannot be made-->  owed  --with some later beat-->  made
    owed  --meta says it anew, or that it was removed-->  forgotten: what was said last counts

It is owed to people alone: what else a master is told and told of goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill_broker.gate import Told
from tidemill_wire.declarations import ConsumerGroup, Declaration


def owed_with(owed: Iterable[Declaration], told: Told) -> tuple[Declaration, ...]:
    """All that is to be made by now, in the order in which it was said; but subjects first, which groups may need."""
    removed = {(one.subject, one.group) for one in told.removed}
    due = {_place(one): one for one in owed if not removed & {_place(one), (_place(one)[0], "")}}
    due |= {_place(one): one for one in told.declared}
    return tuple(sorted(due.values(), key=lambda one: isinstance(one, ConsumerGroup)))


def _place(one: Declaration) -> tuple[str, str]:
    """Subject and group; no group for what is declared of the subject itself."""
    return (one.subject, one.name) if isinstance(one, ConsumerGroup) else (one.name, "")

"""How long a broker group is without a master that knows it is one: from its appointment, by failover or by hand-over,
to its first heartbeat as master. Looked at with each pulse, so each is known to a quarter of a second.
"""

from __future__ import annotations

from tidemill_meta.machine import Meta
from tidemill_meta.values import BrokerGroup
from tidemill_wire.metrics.powers import Powers


class Takeovers:
    """See the module."""

    def __init__(self, meta: Meta) -> None:
        self._meta = meta
        self._epochs: dict[str, int] = {}
        self._since_ms: dict[str, int] = {}
        self.seconds = Powers(1 / 16, 12)  # a sixteenth of a second to two minutes

    def look(self, now_ms: int) -> None:
        """Whether somebody was appointed, or leads by now. Of a group that is seen first, nobody knows since when."""
        groups = {group.name: group for group in self._meta.registry.all(BrokerGroup)}
        for name, group in groups.items():
            if self._epochs.get(name, group.epoch) < group.epoch and self._epochs[name]:
                self._since_ms.setdefault(name, now_ms)
            self._epochs[name] = group.epoch
        for name in list(self._since_ms):
            if (one := groups.get(name)) is None:
                del self._since_ms[name]
            elif self._leads(one, now_ms):
                self.seconds.add((now_ms - self._since_ms.pop(name)) / 1000)
        for name in self._epochs.keys() - groups.keys():
            del self._epochs[name]

    def _leads(self, group: BrokerGroup, now_ms: int) -> bool:
        master = self._meta.senses.members(group, now_ms).get(group.master)
        return master is not None and master.alive and master.leads and master.epoch == group.epoch

"""What subjects and senders may send here, and what of it they have used.

A batch is paid for by its subject, where that has a quota, and by who sends it, where they have one; once, when it is
stored. What was stored before is answered again and costs nothing; what is the broker's own, and what comes back after
it failed, costs nothing either, for it was paid for when it came first.

All of it is in memory: a broker that begins, or becomes master, begins with a second's worth for everybody.
"""

from __future__ import annotations

from tidemill_broker.partitions import Partition
from tidemill_broker.statistics import Most
from tidemill_wire.fields import living_subject
from tidemill_wire.limits import METRIC_QUOTAS_MAX, SINGLES_REMEMBERED_MAX
from tidemill_wire.quotas import Meter, Rates, charge, check_quota, over


class Quotas:
    """Of one broker."""

    def __init__(self) -> None:
        self._meters: dict[str, Meter] = {}
        """By subject, of those that have a quota."""
        self.told_to_wait: Most[str] = Most(METRIC_QUOTAS_MAX)
        """Batches, by whose quota was used up."""

    def charge(self, partition: Partition, said: tuple[int, int], payer: Meter | None, now_ms: int) -> None:
        """Of a batch with so many messages and bytes; ``Unavailable`` when somebody has to wait, and nobody pays."""
        rates = partition.settings.rates
        meters = [self._meter(living_subject(partition.name), rates, now_ms)] if rates else []
        if payer is not None:
            meters.append(payer)
        if not meters:
            return
        slowest = charge(meters, *said, now_ms)
        if slowest is not None:
            self.told_to_wait.note(slowest.name, 1)
            raise over(slowest, now_ms)

    def _meter(self, subject: str, rates: Rates, now_ms: int) -> Meter:
        meter = self._meters.get(subject)
        if meter is None:
            meter = self._meters[subject] = Meter(f"subject {subject}", rates, now_ms)
        elif meter.rates != rates:
            meter.become(rates, now_ms)
        return meter

    def forget(self, subject: str) -> None:
        """It is removed."""
        self._meters.pop(subject, None)


class PaidOnce:
    """What was paid for where nobody can tell whether it is stored: a request that comes again with its key, because
    its answer got lost, is paid for already. As many are known as any partition knows of them.
    """

    def __init__(self) -> None:
        self._paid: dict[tuple[int, int], None] = {}
        """Producer and sequence, the oldest first."""

    def charge(self, request: tuple[int, int], said: tuple[int, int], payer: Meter, now_ms: int) -> None:
        """Of a batch with so many messages and bytes; ``Unavailable`` when its payer has to wait."""
        if request in self._paid:
            return
        check_quota(payer, *said, now_ms)
        self._paid[request] = None
        if len(self._paid) > SINGLES_REMEMBERED_MAX:
            del self._paid[next(iter(self._paid))]

"""What one request settles: receipts in, ranges of pull sequences a consumer out, and which of them came too late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from tidemill_broker.doors.gateway_messages import malformed
from tidemill_broker.doors.gateway_receipts import Receipts
from tidemill_broker.ranges import merge_ranges
from tidemill_wire import limits
from tidemill_wire.ranges import pairs


class Holder(NamedTuple):
    """Who holds deliveries: a consumer, in the subject or in the dead letters of its group."""

    subject: str
    consumer: str


class Settlement:
    """Receipts by holder and pull sequence; each counts once."""

    def __init__(self) -> None:
        self._receipts: dict[Holder, dict[int, str]] = {}
        self.lost: list[str] = []
        self.count = 0

    def add(self, holder: Holder, pull: int, receipt: str) -> None:
        self._receipts.setdefault(holder, {})[pull] = receipt

    def ranges(self) -> list[tuple[Holder, list[int]]]:
        """For each holder, what a command names."""
        return [
            (holder, merge_ranges([(pull, 1) for pull in sorted(pulls)]))
            for holder, pulls in self._receipts.items()
        ]

    def hear(self, holder: Holder, lost: Sequence[int]) -> int:
        """The broker's answer; how many of the holder's messages were settled."""
        receipts = self._receipts[holder]
        gone = {pull for first, last in pairs(lost) for pull in range(first, last + 1)}
        self.lost += [receipts[pull] for pull in sorted(gone)]
        self.count += len(receipts) - len(gone)
        return len(receipts) - len(gone)

    def lose(self, holder: Holder) -> None:
        """The broker knows no such consumer any more."""
        self.lost += self._receipts[holder].values()


def parse_receipts(value: object, receipts: Receipts) -> Settlement:
    """The receipts of a request. One that this group never gave is of no lease, as one that is too old."""
    if not isinstance(value, list) or not 0 < len(cast("list[object]", value)) <= limits.HTTP_MESSAGES_MAX:
        raise malformed(f"receipts is no list of 1 to {limits.HTTP_MESSAGES_MAX}")
    settlement = Settlement()
    for at, receipt in enumerate(cast("list[object]", value)):
        if not isinstance(receipt, str) or not receipt or len(receipt) > limits.HTTP_RECEIPT_CHARS_MAX:
            raise malformed(f"receipts[{at}] is no receipt")
        known = receipts.read(receipt)
        if known is None:
            settlement.lost.append(receipt)
        else:
            settlement.add(Holder(known.subject, known.consumer), known.pull, receipt)
    return settlement

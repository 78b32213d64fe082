"""What one request settles: receipts in, ranges of pull sequences a consumer out, and which of them came too late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tidemill_broker.doors.gateway_messages import malformed
from tidemill_broker.doors.gateway_receipts import Receipts
from tidemill_broker.groups import Group
from tidemill_broker.ranges import merge_ranges, ranges_without
from tidemill_broker.state import State
from tidemill_wire import limits
from tidemill_wire.ranges import pairs


class Settlement:
    """Receipts by consumer and pull sequence; each counts once."""

    def __init__(self) -> None:
        self._receipts: dict[str, dict[int, str]] = {}
        self.lost: list[str] = []
        self.count = 0

    def add(self, consumer: str, pull: int, receipt: str) -> None:
        self._receipts.setdefault(consumer, {})[pull] = receipt

    def ranges(self) -> list[tuple[str, list[int]]]:
        """For each consumer, what a command names."""
        return [
            (name, merge_ranges([(pull, 1) for pull in sorted(pulls)]))
            for name, pulls in self._receipts.items()
        ]

    def hear(self, consumer: str, lost: Sequence[int]) -> int:
        """The broker's answer; how many of the consumer's messages were settled."""
        receipts = self._receipts[consumer]
        gone = {pull for first, last in pairs(lost) for pull in range(first, last + 1)}
        self.lost += [receipts[pull] for pull in sorted(gone)]
        self.count += len(receipts) - len(gone)
        return len(receipts) - len(gone)


def parts_of(
    state: State, names: Sequence[str], group: str, consumer: str, ranges: list[int]
) -> list[tuple[str, list[int]]]:
    """What a consumer holds of a subject is in its partitions (``names``, its own first), in their lanes and among
    redriven dead letters, and is settled where it is: the partitions, and the ranges of each. What is held nowhere is
    said of the first.
    """
    heads = [head for name in names if (head := state.group_of(name, group)) is not None]
    places: list[Group] = []
    for head in heads:
        twin = state.dead.get(head.identity)
        places += (*state.family(head), *([state.groups[twin]] if twin is not None else []))
    parts: list[tuple[str, list[int]]] = []
    for one in places:
        holder = one.consumers.get(consumer)
        if holder is None:
            continue
        others = [bound for first, last in pairs(ranges) for bound in holder.missing(first, last)]
        if mine := ranges_without(ranges, others):
            parts.append((state.partitions[one.partition].name, mine))
            ranges = others
    return [*parts, (names[0], ranges)] if ranges else parts


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
            settlement.add(*known, receipt)
    return settlement

"""What brokers tell of their action logs -> rows: who got which messages when, which try it was, what came of it. Pure.

A broker tells deliveries by their pull sequences. Which messages these are follows from what was pulled before, and an
action only concerns what its consumer still holds: an ack that comes when the lease is over changes nothing, and is no
row. So this is a fold. What is held at its end (``Account.carried``) is where the next one begins: it is committed with
the rows, in the same moment.

    told           held before            row                                   held after
    pulled         -                      pulled, a row a run                   the run, by its consumer
    acked, kept    by this consumer       the same, a row a part of a run       without it
    failed …       by this consumer       failed, lease ended, consumer gone,   without it
                                          held too long, released
    extended       by this consumer       extended, parked                      the same
    moved          by anybody             moved: where the group goes on        nothing of this group
    anything       by nobody any more     none                                  the same
    anything       by nobody yet          with no sequences: nobody knows       the same

*Nobody yet* is what was pulled before the account begins: the log had lost its beginning, or a part. ``floor`` is the
first pull sequence that was seen; what is below it is not known.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from tidemill_wire.ranges import pairs

Told: TypeAlias = Mapping[str, Any]
Row: TypeAlias = dict[str, Any]

MISSING = "missing"
"""The action of a row that says: what was done before, from ``first_sequence`` of the log on, is not kept."""
ENDING = frozenset(("acked", "kept", "failed", "lease ended", "consumer gone", "held too long", "released"))
LENGTHENING = frozenset(("extended", "parked"))


class Delivery(NamedTuple):
    """``messages`` of them from pull sequence ``pull`` and sequence ``first`` on. ``limit_ms``: no lease is longer; 0:
    it is not known, or there is none.
    """

    pull: int
    first: int
    messages: int
    attempts: int
    limit_ms: int

    def part(self, start: int, stop: int) -> Delivery:
        """The pull sequences from ``start`` to before ``stop`` of it."""
        return self._replace(pull=start, first=self.first + start - self.pull, messages=stop - start)


class Account:
    """What consumers hold of one subject on one broker group, after what was told so far."""

    def __init__(self, *, whole: bool) -> None:
        """``whole``: it begins where the log does."""
        self.floor: int | None = 0 if whole else None
        self.held: dict[tuple[str, str], dict[int, list[Delivery]]] = {}
        """Partition and group -> number of the consumer -> what it holds, by pull sequence."""

    @property
    def carried(self) -> str:
        """All that the next one needs."""
        held = [
            [*group, number, [list(one) for one in deliveries]]
            for group, consumers in self.held.items()
            for number, deliveries in consumers.items()
            if deliveries
        ]
        return json.dumps([self.floor, held], separators=(",", ":"))

    @staticmethod
    def after(carried: str) -> Account:
        """The reverse."""
        floor, held = cast("tuple[int | None, list[Any]]", json.loads(carried))
        account = Account(whole=False)
        account.floor = floor
        for partition, group, number, deliveries in held:
            consumers = account.held.setdefault((partition, group), {})
            consumers[number] = [Delivery(*one) for one in deliveries]
        return account

    def rows(self, records: Iterable[Told]) -> Iterator[Row]:
        """Of each record its rows."""
        for told in records:
            for number, row in enumerate(self._of(told)):
                yield {**_common(told), "row": number, **row}

    def _of(self, told: Told) -> Iterator[Row]:
        action, group = str(told["action"]), (str(told["partition"]), str(told["group"]))
        if action == "pulled":
            yield from self._pulled(told, group)
        elif action in ENDING or action in LENGTHENING:
            yield from self._settled(told, group)
        elif action == "moved":
            self.held.pop(group, None)
            yield {"first_sequence": told["first"]}
        elif "sequences" in told:
            yield from (
                {"first_sequence": first, "last_sequence": last, "messages": last + 1 - first}
                for first, last in pairs(told["sequences"])
            )
        elif "messages" in told:
            first, messages = int(told["first"]), int(told["messages"])
            yield {"first_sequence": first, "last_sequence": first + messages - 1, "messages": messages}
        else:
            yield {}

    def _pulled(self, told: Told, group: tuple[str, str]) -> Iterator[Row]:
        deliveries = self.held.setdefault(group, {}).setdefault(told["number"], [])
        for pull, first, messages, attempts in told["runs"]:
            if self.floor is None:
                self.floor = pull
            one = Delivery(pull, first, messages, attempts, told["limit"])
            deliveries.append(one)  # pull sequences grow
            yield _row(one)

    def _settled(self, told: Told, group: tuple[str, str]) -> Iterator[Row]:
        action, consumers = told["action"], self.held.get(group, {})
        deliveries = consumers.get(told["number"], [])
        for first, last in pairs(told["ranges"]):
            below = last + 1 if self.floor is None else min(last + 1, self.floor)
            if first < below:
                yield {"messages": below - first, "pull": first}
            begin, end, taken = within(deliveries, first, last)
            for one in taken:
                row = _row(one)
                if action == "extended" and one.limit_ms:
                    row["until"] = min(told["until"], one.limit_ms)
                yield row
            if taken and action != "extended":
                # What is parked has a new limit, which the group's settings said.
                kept = [one._replace(limit_ms=0) for one in taken] if action == "parked" else []
                edges = _edges(deliveries[begin:end], first, last)
                deliveries[begin:end] = sorted((*edges, *kept))
        if not deliveries and consumers.pop(told["number"], None) is not None and not consumers:
            del self.held[group]


def within(deliveries: Sequence[Delivery], first: int, last: int) -> tuple[int, int, list[Delivery]]:
    """The parts of deliveries that are in a range of pull sequences; and which deliveries have them, as a slice."""
    begin = bisect_left(deliveries, first, key=_end)
    end = bisect_right(deliveries, last, lo=begin, key=_pull)
    parts = [one.part(max(first, one.pull), min(last, _end(one)) + 1) for one in deliveries[begin:end]]
    return begin, end, parts


def _edges(deliveries: Sequence[Delivery], first: int, last: int) -> Iterator[Delivery]:
    """What of these is not in the range."""
    for one in deliveries:
        for start, stop in ((one.pull, first), (last + 1, _end(one) + 1)):
            if start < stop:
                yield one.part(start, stop)


def _pull(one: Delivery) -> int:
    return one.pull


def _end(one: Delivery) -> int:
    """The last pull sequence of a delivery."""
    return one.pull + one.messages - 1


def _row(one: Delivery) -> Row:
    return {
        "attempts": one.attempts, "first_sequence": one.first, "last_sequence": one.first + one.messages - 1,
        "messages": one.messages, "pull": one.pull,
    }  # fmt: skip


def _common(told: Told) -> Row:
    """What all rows of a record have."""
    said = {name: told.get(name) for name in ("at", "subject", "partition", "action", "position", "until")}
    texts = {name: told.get(name) or None for name in ("consumer", "reason", "error", "place")}
    return {**said, **texts, "consumer_group": told["group"], "letter": told.get("letter")}


def missing(subject: str, at_ms: int, first: int, position: int) -> Row:
    """The row that stands where a log had lost what lies from ``first`` to before ``position`` of it."""
    return {
        "at": at_ms, "subject": subject, "action": MISSING, "first_sequence": first, "last_sequence": position - 1,
        "position": position, "row": -1,
    }  # fmt: skip

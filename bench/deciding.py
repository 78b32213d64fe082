"""What the delay service decides, without host and network: `python -m bench.deciding [--part PART]`.

Each line says how long one thing took in all, and the longest that the machine let nobody else have the loop
(`alone.py`). The clock jumps from one wake-up to the next, so hours pass in seconds.

mixed    batches of a thousand, whose messages are due over so many seconds: bytes read for each byte that is delivered
herd     single messages, all due at one moment
large    one batch of 16 MiB, due at one moment
paged    an hour with more messages than the wheel holds
poured   more messages than the wheel holds come into an hour that is loaded
recurs   series that all recur at the full hour
cancels  each of many timers is cancelled, by its key
same     all timers of one key are cancelled
lists    all timers with a prefix, page by page
returns  what was due while no broker was there, when it comes back
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).parent))
from alone import HOUR_MS, NOW_MS, Alone

from tidemill_wire.batch import SINGLES_FROM, Flags, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Command, SendBatches, Sent
from tidemill_wire.recurrence import Recurrence
from tidemill_wire.timing import Cancel, Changed, ListTimers, Target, Waiting

Row: TypeAlias = dict[str, object]
SUBJECT = "later"
SOON_MS = NOW_MS + 5 * 60_000
TOGETHER = 100
"""Batches in one SEND."""


class Sender:
    """Sends batches, each as another producer."""

    def __init__(self, service: Alone) -> None:
        self._service = service
        self._held: list[bytearray] = []
        self._number = 0

    def add(self, bodies: Sequence[bytes], due_ms: Sequence[int], content: Content | None = None) -> None:
        """One batch."""
        self._number += 1
        identity = (NOW_MS << 16).to_bytes(8, "big") + self._number.to_bytes(8, "big")
        origin = Origin(
            SUBJECT.encode(), SINGLES_FROM | self._number, 0, identity, NOW_MS, Codec.NONE, Flags.DELAYED
        )
        content = content or Content(bodies)
        content.deliver_deltas = [one - NOW_MS for one in due_ms]
        self._held.append(build_batch(origin, content))
        if len(self._held) == TOGETHER:
            self.flush()

    def flush(self) -> None:
        """What was added is stored."""
        if self._held:
            [answer] = self._service.ask(SendBatches(bytearray().join(self._held)))
            assert isinstance(answer, Sent), answer
            assert not answer.refused, answer
            self._held = []


def figures(service: Alone, **said: object) -> Row:
    """What was measured."""
    return {
        **said,
        "spent_s": round(service.spent_s, 2),
        "longest_ms": round(1000 * service.longest_s, 1),
        **service.came,
    }


def mixed(service: Alone, count: int, size: int = 1024) -> Iterable[Row]:
    """One batch size, and other spreads; each on hours of its own."""
    service.meet()
    chance = random.Random(7)
    begin_ms, sender = SOON_MS, Sender(service)
    for spread_s in (0, 5, 60, 600, 3000):
        for _ in range(count // 1000):
            due = [begin_ms + chance.randrange(1000 * spread_s + 1) for _ in range(1000)]
            sender.add([os.urandom(size)] * 1000, due)
        sender.flush()
        service.measure()
        service.until(begin_ms + 1000 * spread_s + 10_000)
        each = 1e6 * service.spent_s / service.came["messages"]
        yield {
            "spread_s": spread_s, "read_for_each": round(service.read_bytes / (size * service.came["messages"]), 1),
            "spent_us_each": round(each, 2), **figures(service),
        }  # fmt: skip
        begin_ms += HOUR_MS


def herd(service: Alone, count: int) -> Iterable[Row]:
    service.meet()
    sender = Sender(service)
    for _ in range(count):
        sender.add([bytes(100)], [SOON_MS])
    sender.flush()
    yield figures(service, scheduled=count)
    service.measure()
    service.until(SOON_MS + 10_000)
    yield figures(service)


def large(service: Alone, _count: int) -> Iterable[Row]:
    service.meet()
    sender = Sender(service)
    sender.add([bytes(100)] * 140_000, [SOON_MS] * 140_000)
    sender.flush()
    sender.add([bytes(100)] * 130_000, [SOON_MS + 5 * index for index in range(130_000)])
    sender.flush()
    yield figures(service, scheduled=270_000)
    service.measure()
    service.until(SOON_MS + 700_000)
    yield figures(service)


def paged(service: Alone, count: int) -> Iterable[Row]:
    """Of four hours away; in no order."""
    service.meet()
    sender, chance = Sender(service), random.Random(7)
    begin_ms = NOW_MS // HOUR_MS * HOUR_MS + 4 * HOUR_MS
    for _ in range(3 * count // 1000):
        moment = begin_ms + chance.randrange(HOUR_MS)
        sender.add([bytes(10)] * 1000, [moment + index % 10 for index in range(1000)])
    sender.flush()
    service.measure()
    service.until(begin_ms - HOUR_MS // 2 + 1000)
    yield figures(service, loaded=service.delay.wheel.size)
    service.measure()
    service.until(begin_ms + HOUR_MS + 10_000)
    yield figures(service)


def poured(service: Alone, count: int) -> Iterable[Row]:
    service.meet()
    sender, chance = Sender(service), random.Random(7)
    service.measure()
    for _ in range(3 * count // 1000):
        moment = SOON_MS + chance.randrange(HOUR_MS // 3)
        sender.add([bytes(10)] * 1000, [moment] * 1000)
    sender.flush()
    yield figures(service, loaded=service.delay.wheel.size)
    service.measure()
    service.until(SOON_MS + HOUR_MS)
    yield figures(service)


def recurs(service: Alone, count: int) -> Iterable[Row]:
    service.meet()
    sender = Sender(service)
    hour_ms = (NOW_MS // HOUR_MS + 1) * HOUR_MS
    for number in range(count):
        said = Recurrence(hour_ms, "once", "UTC", "0 * * * *").encode()
        content = Content([bytes(100)], timer_keys=[f"series-{number}"], cron=said)
        sender.add([bytes(100)], [hour_ms], content)
    sender.flush()
    service.measure()
    service.until(hour_ms + 10_000)
    yield figures(service, series=count)


def keyed(service: Alone, count: int, key: Callable[[int], str]) -> None:
    """Timers of ten hours."""
    service.meet()
    sender, chance = Sender(service), random.Random(7)
    for first in range(0, count, 100):
        keys = [key(number) for number in range(first, first + 100)]
        due = [SOON_MS + chance.randrange(10 * HOUR_MS)] * 100
        sender.add([], due, Content([bytes(100)] * 100, timer_keys=keys))
    sender.flush()
    service.measure()


def cancels(service: Alone, count: int) -> Iterable[Row]:
    """Four thousand at a time, as a client that has so many under way."""
    keyed(service, count, lambda number: f"timer-{number}")
    numbers = list(range(count))
    random.Random(7).shuffle(numbers)
    changed = 0
    for first in range(0, min(count, 40_000), 4000):
        targets = [Target(subject=SUBJECT, timer_key=f"timer-{one}") for one in numbers[first : first + 4000]]
        changed += sum_of(service.ask(*(Cancel(target) for target in targets)))
    yield figures(service, timers=count, cancelled=changed)


def same(service: Alone, count: int) -> Iterable[Row]:
    keyed(service, count, lambda _number: "all")
    yield figures(service, timers=count, cancelled=sum_of(service.ask(Cancel(Target("", SUBJECT, "all")))))


def sum_of(answers: Iterable[Command]) -> int:
    """How many were changed."""
    changed = 0
    for answer in answers:
        assert isinstance(answer, Changed), answer
        changed += answer.changed
    return changed


def lists(service: Alone, count: int) -> Iterable[Row]:
    """All of them, and then those few with a rare prefix."""
    keyed(service, count, lambda number: f"{'rare' if number % 10_000 == 0 else 'timer'}-{number}")
    for prefix in ("timer-", "rare-"):
        service.measure()
        after, pages, found = "", 0, 0
        while pages == 0 or after:
            command = ListTimers(SUBJECT, prefix, 0, 1 << 50, after, 500)
            [answer] = service.ask(command)
            assert isinstance(answer, Waiting), answer
            after = answer.after
            pages += 1
            found += len(answer.rows)
        yield figures(service, timers=count, prefix=prefix, pages=pages, found=found)


def returns(service: Alone, count: int) -> Iterable[Row]:
    sender = Sender(service)
    for _ in range(count // 10):
        sender.add([bytes(100)] * 10, [SOON_MS] * 10)
    sender.flush()
    service.measure()
    service.until(SOON_MS + 60_000)
    yield figures(service, waiting=service.delay.due)
    service.measure()
    service.meet()
    service.until(SOON_MS + 70_000)
    yield figures(service)


PARTS: dict[str, tuple[Callable[[Alone, int], Iterable[Row]], int]] = {
    "mixed": (mixed, 50_000), "herd": (herd, 100_000), "large": (large, 0), "paged": (paged, 1 << 20),
    "poured": (poured, 1 << 20), "recurs": (recurs, 10_000), "cancels": (cancels, 1_000_000),
    "same": (same, 100_000), "lists": (lists, 1_000_000), "returns": (returns, 200_000),
}  # fmt: skip
"""And of how many messages."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--count", type=int)
    arguments = parser.parse_args()
    for part in arguments.part or PARTS:
        measure, count = PARTS[part]
        with tempfile.TemporaryDirectory() as folder:
            service = Alone(folder)
            for row in measure(service, arguments.count or count):
                print(json.dumps({"part": part, **row}), flush=True)


if __name__ == "__main__":
    main()

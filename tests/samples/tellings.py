"""What a broker tells of its action log, as the door does, without a port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tidemill_broker.machine import Broker
from tidemill_broker.telling import Names, Told, records_in, tell
from tidemill_host.disk import Disk
from tidemill_host.files import Files
from tidemill_host.machine import Slice
from tidemill_spark.actions import Account

Row: TypeAlias = dict[str, Any]
Group: TypeAlias = tuple[str, str]
"""Partition and name."""


def told(
    broker: Broker,
    disk: Disk,
    first: int,
    end: int,
    names: Names | None = None,
    wanted: Callable[[str], bool] = lambda _: True,
) -> tuple[int, Told]:
    """What the records between two positions say, and where they end."""
    files, segments = Files(disk), broker.logs.actions
    names = Names() if names is None else names
    names.follow(broker.state)

    def take(file: str, place: int, size: int) -> bytes:
        return files.take(Slice(file, place, size))

    def learn() -> None:
        names.learn(records_in(segments, take, max(names.learnt, segments.start), end), end)

    records = list(records_in(segments, take, first, end))
    behind = records[-1].position + records[-1].length if records else first
    return behind, tell(records, names, wanted, lambda _: None, learn)


def held_by(broker: Broker) -> dict[Group, dict[int, list[tuple[int, int, int, int]]]]:
    """What consumers hold, as the broker's state has it: joined where it is one piece."""
    found: dict[Group, dict[int, list[tuple[int, int, int, int]]]] = {}
    for consumer in broker.state.consumers.values():
        partition = broker.state.partitions[consumer.group.partition]
        held = joined([(one.pull, one.first, one.count, one.attempts) for one in consumer.held()])
        if held:
            found.setdefault((partition.name, consumer.group.name), {})[consumer.identity] = held
    return found


def held_in(account: Account) -> dict[Group, dict[int, list[tuple[int, int, int, int]]]]:
    """The same as an account has it."""
    return {
        group: {
            number: joined([(one.pull, one.first, one.messages, one.attempts) for one in held])
            for number, held in consumers.items()
            if held
        }
        for group, consumers in account.held.items()
        if any(consumers.values())
    }


def joined(held: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Parts of a run that were parted by something that changed none of them."""
    whole: list[tuple[int, int, int, int]] = []
    for pull, first, messages, attempts in sorted(held):
        if whole:
            before = whole[-1]
            if (before[0] + before[2], before[1] + before[2], before[3]) == (pull, first, attempts):
                whole[-1] = (*before[:2], before[2] + messages, attempts)
                continue
        whole.append((pull, first, messages, attempts))
    return whole

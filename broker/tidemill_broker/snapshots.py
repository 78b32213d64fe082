"""The state as bytes for a checkpoint, and back. Format: docs/format.md, "The checkpoint"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgpack

from tidemill_broker.actions import FailureDetail
from tidemill_broker.failures import Errors, Failure
from tidemill_broker.group_settings import DEAD, GroupSettings
from tidemill_broker.groups import Group
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_broker.pull_log import Consumer, Delivery
from tidemill_broker.state import State
from tidemill_broker.tombs import entomb
from tidemill_journal.errors import CorruptRecord
from tidemill_wire.batch import SINGLES_FROM
from tidemill_wire.replication import Ends, EpochStart

SNAPSHOT_VERSION = 4
_packer = cast("Any", msgpack.Packer(autoreset=True))
_pack = cast("Callable[[Any], bytes]", _packer.pack)
_map_header = cast("Callable[[int], bytes]", _packer.pack_map_header)
_array_header = cast("Callable[[int], bytes]", _packer.pack_array_header)


def pack_state(state: State, message_position: int, action_position: int, now_ms: int = 0) -> bytes:
    """Everything a restart needs besides the logs from these positions on."""
    partitions = [pack_partition(partition) for partition in state.partitions.values()]
    groups = [pack_group(group) for group in state.groups.values()]
    return b"".join(state_parts(state, (message_position, action_position, now_ms), partitions, groups))


def state_parts(
    state: State, moment: tuple[int, int, int], partitions: list[bytes], groups: list[bytes]
) -> list[bytes]:
    """The same in pieces, of partitions and groups that are packed already, in the order in which the state has them.

    ``moment`` is both positions and the time.
    """
    message_position, action_position, now_ms = moment
    snapshot: dict[str, Any] = {
        "version": SNAPSHOT_VERSION,
        "message": message_position,
        "action": action_position,
        "boot": state.boot,
        "pull": state.next_pull,
        "consumer": state.next_consumer,
        "partitions": Rows(partitions),
        "group": state.next_group,
        "locks": [
            (group.identity, group.owner, group.lock_ms, group.silent_ms)
            for group in state.groups.values()
            if group.owner or group.silent_ms
        ],
        "groups": Rows(groups),
    }
    if state.epochs:
        snapshot |= {"epochs": state.epochs, "alone": state.boots_alone}
    allocations = [
        (group.identity, group.allocation, group.allocated)
        for group in state.groups.values()
        if group.allocation
    ]
    if allocations:
        snapshot["allocations"] = allocations
    if transactions := state.transactions.to_list():
        snapshot["transactions"] = transactions
    if state.fences:
        snapshot["fences"] = state.fences.to_list()
    if state.deduplication:
        snapshot["dedup"] = Rows(map(_pack, state.deduplication.to_list()))
    details = [(group.identity, _details_of(group)) for group in state.groups.values() if group.doomed]
    if details:
        snapshot["details"] = details
    tombs = state.tombs
    if tombs.numbers:
        snapshot["removed"] = [tombs.numbers, tombs.floors, [one.identity for one in tombs.by_name.values()]]
    if now_ms:
        snapshot["at"] = now_ms
    parts = [_map_header(len(snapshot))]
    for key, value in snapshot.items():
        parts.append(_pack(key))
        if isinstance(value, Rows):
            parts.append(_array_header(len(value)))
            parts += value
        else:
            parts.append(_pack(value))
    return parts


class Rows(list[bytes]):
    """Of a list, each entry packed."""


def pack_partition(partition: Partition) -> bytes:
    """A partition's row."""
    producers = _pack_producers(partition)
    return _pack([
        partition.identity, partition.name, partition.settings.to_map(), partition.next_sequence, producers
    ])  # fmt: skip


def pack_group(group: Group) -> bytes:
    """A group's row."""
    return _pack(_group_row(group))


def _group_row(group: Group) -> list[Any]:
    consumers = [
        [
            consumer.identity,
            consumer.name,
            [
                (d.pull, d.first, d.count, d.attempts, d.deadline_ms, d.since_ms, d.fingerprint, d.limit_ms)
                for d in consumer.held()
            ],
        ]
        for consumer in group.consumers.values()
    ]
    # What its twin in the dead letters has of these is the group's own.
    own = group.settings.consumption != DEAD
    errors, paused = (group.errors.to_list(), group.paused) if own else ([], None)
    return [
        group.identity, group.partition, group.name, group.cursor, group.start_ms, group.settings.to_map(), group.acked,
        list(group.failed.values()), consumers, errors, paused, group.buried, group.handled,
    ]  # fmt: skip


def _details_of(group: Group) -> list[tuple[int, FailureDetail]]:
    return [(first, detail) for first, detail in group.doomed.items() if detail is not None]


def packed_at_ms(payload: bytes) -> int:
    """When a checkpoint that ``unpack_state`` can read was packed; 0 when it does not say."""
    return int(cast("dict[str, Any]", msgpack.unpackb(payload, strict_map_key=False)).get("at", 0))


def known_ends(payload: bytes) -> Ends:
    """Up to where a checkpoint knows the logs."""
    return Ends(*unpack_state(payload)[1:])


def unpack_state(payload: bytes) -> tuple[State, int, int]:
    """State, message position, action position; ``CorruptRecord`` for what this version cannot read."""
    try:
        values = cast("dict[str, Any]", msgpack.unpackb(payload, strict_map_key=False))
        if values["version"] != SNAPSHOT_VERSION:
            raise CorruptRecord(f"a checkpoint of version {values['version']}")
        state = State()
        state.boot, state.next_pull, state.next_consumer = values["boot"], values["pull"], values["consumer"]
        state.epochs = [EpochStart(*row) for row in values.get("epochs", ())]
        state.boots_alone = values.get("alone", 0)
        for row in values["partitions"]:
            _unpack_partition(state, row)
        for row in values["groups"]:
            _unpack_group(state, row)
        state.next_group = values["group"]
        for identity, owner, lock_ms, silent_ms in values["locks"]:
            group = state.groups[identity]
            group.owner, group.lock_ms = owner, lock_ms
            state.rest(group, silent_ms)
        for identity, version, consumer in values.get("allocations", ()):
            state.groups[identity].allocation, state.groups[identity].allocated = version, consumer
        for row in values.get("fences", ()):
            state.fences.restore(row)
        state.transactions.restore(*values.get("transactions", ((), b"")))
        for row in values.get("dedup", ()):
            state.deduplication.restore(row)
        for identity, details in values.get("details", ()):
            doomed = state.groups[identity].doomed
            doomed.update({first: FailureDetail(*detail) for first, detail in details})
        _unpack_removed(state, values.get("removed", ({}, {}, ())))
        return state, values["message"], values["action"]
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise CorruptRecord(f"a checkpoint whose state cannot be read ({error!r})") from error


def _pack_producers(partition: Partition) -> list[tuple[int, list[int]]]:
    singles = [(producer, [batch, first]) for (producer, batch), first in partition.singles.items()]
    return [*partition.producers.items(), *singles]


def _unpack_partition(state: State, row: list[Any]) -> None:
    identity, name, settings, next_sequence, producers = row
    partition = state.add_partition(identity, name, SubjectSettings.from_map(settings))
    partition.next_sequence = next_sequence
    for producer, seen in producers:
        if producer >= SINGLES_FROM:
            for batch, first in zip(seen[::2], seen[1::2], strict=True):
                partition.singles[producer, batch] = first
        else:
            partition.producers[producer] = list(seen)


def _unpack_removed(state: State, row: Sequence[Any]) -> None:
    """Behind partitions and groups: a lane that was removed needs its subject."""
    state.tombs.numbers, state.tombs.floors, removed = row
    for identity in removed:
        entomb(state, state.partitions[identity])


def _unpack_group(state: State, row: list[Any]) -> None:
    identity, partition, name, cursor, start_ms, settings, acked, failed, consumers, *more = row
    group = Group(identity, partition, name, cursor, start_ms, GroupSettings.from_map(settings))
    group.acked = acked
    group.errors = Errors.from_list(more[0])
    group.paused = tuple(more[1]) if more[1] else None
    group.buried, group.handled = more[2], more[3]
    for failure in failed:
        group.fail(Failure(*failure))
    for consumer_identity, consumer_name, deliveries in consumers:
        consumer = Consumer(consumer_identity, group, consumer_name)
        for delivery in deliveries:
            consumer.deliveries.append(Delivery(*delivery))
            group.in_flight += delivery[2]
            state.leases.watch(consumer, consumer.deliveries[-1])
        group.consumers[consumer_name] = consumer
        state.consumers[consumer_identity] = consumer
    state.add_group(group)

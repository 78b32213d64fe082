"""What lies on a broker's disk after the end: read by the real recovery, held against the history."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgpack

from samples.searches import Search
from sim.checkers import History, Outcome, Terms
from sim.disk import SimDisk
from sim.platter import Inode
from tidemill_broker.doors import recover
from tidemill_broker.machine import Broker
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.snapshots import pack_state
from tidemill_host.disk import Disk
from tidemill_journal.errors import JournalError
from tidemill_ledger.scanning import BatchScanner
from tidemill_wire.columns import Batch
from tidemill_wire.fields import DEAD_PREFIX, living_subject
from tidemill_wire.lanes import lane_name, priority_of
from tidemill_wire.transacting import HALF_PARTITION

NOW_MS = 1_800_000_000_000
WEED = "weed"
"""A subject that is removed again and again: no history tells of it."""
HERB = "herb"
"""One that is removed if it is empty."""


def image_of(disk: SimDisk) -> SimDisk:
    """A calm disk that holds what a process would read now."""
    twin = SimDisk(random.Random(0))
    twin.names.folders = dict(disk.names.folders)
    twin.names.durable_folders = dict(disk.names.folders)
    for name, inode in disk.names.cached.items():
        copy = Inode(bytearray(inode.cached), bytearray(inode.cached))
        twin.names.cached[name] = twin.names.durable[name] = copy
    return twin


def durable_image_of(disk: SimDisk) -> SimDisk:
    """A calm disk that holds what a power cut would surely leave."""
    twin = SimDisk(random.Random(0))
    twin.names.folders = twin.names.durable_folders = dict(disk.names.durable_folders)
    for name, inode in disk.names.durable.items():
        twin.names.cached[name] = twin.names.durable[name] = Inode(
            bytearray(inode.durable), bytearray(inode.durable)
        )
    return twin


def examine(disk: SimDisk, settings: BrokerSettings, history: History, terms: Terms) -> list[str]:
    """All that the disk has to say."""
    image = image_of(disk)
    try:
        broker, _ = recover(image.mount(), settings, NOW_MS)
        problems = [*_recovered_alike(disk, image, settings, state_of(broker))]
    except JournalError as error:
        return [f"refused start: {error}"]
    return (
        problems
        + log_problems(image.mount(), broker, history, terms)
        + Search(broker, image.mount()).problems()
    )


def state_of(broker: Broker) -> dict[str, Any]:
    """The packed state, without what every start moves."""
    state: dict[str, Any] = msgpack.unpackb(
        pack_state(broker.state, broker.logs.messages.end, 0), strict_map_key=False
    )
    return {name: value for name, value in state.items() if name not in {"at", "boot", "pull"}}


def recovered_twice(disk: Disk, settings: BrokerSettings, problems: list[str]) -> Broker:
    """What a death has left, by a recovery, and the same by another one of what that left; else that is a problem."""
    broker, _ = recover(disk, settings, NOW_MS)
    again, _ = recover(disk, settings, NOW_MS)
    if state_of(broker) != state_of(again):
        problems.append("recovered differently: the second start has another state")
    return broker


def _recovered_alike(
    disk: SimDisk, image: SimDisk, settings: BrokerSettings, first: dict[str, Any]
) -> Iterator[str]:
    """Recovery of the same image gives the same state, and so does recovery of what recovery left."""
    for name, other in (("twin", image_of(disk)), ("second", image)):
        broker, _ = recover(other.mount(), settings, NOW_MS)
        again = state_of(broker)
        for part, value in first.items():
            if again[part] != value:
                yield f"recovered differently: {part} of the {name} start is {again[part]}, was {value}"


def read_log(disk: Disk, broker: Broker) -> Iterator[tuple[str, int, bytes]]:
    """Subject, sequence and body of every message that was sent; dead letters, weed, and half
    messages are left out."""
    for batch in read_batches(disk, broker):
        if living_subject(batch.partition) not in (
            WEED,
            HERB,
            HALF_PARTITION,
        ) and not batch.partition.startswith(DEAD_PREFIX):
            for index, body in enumerate(batch.bodies()):
                yield batch.partition, batch.header.first_sequence + index, body


def read_batches(disk: Disk, broker: Broker) -> Iterator[Batch]:
    """All batches of the message log."""
    segments = broker.logs.messages
    for base in segments.bases:
        try:
            file = disk.open(segments.file(base))
        except FileNotFoundError:
            continue  # An open segment that nothing was written to.
        data = b""
        while part := file.read(len(data), file.size() - len(data)):
            data += part

        def read(position: int, size: int, data: bytes = data) -> bytes:
            return data[position : position + size]

        for header, _ in BatchScanner(read, base, segments.end_of(base), base):
            yield Batch(data[header.position - base :][: header.length])


def log_problems(disk: Disk, broker: Broker, history: History, terms: Terms) -> list[str]:
    """Each message lies there once at most, where its answer said; no sequence twice; nothing that nobody sent."""
    problems: list[str] = []
    places: dict[str, str] = {}
    last: dict[str, int] = {}
    for subject, sequence, body in read_log(disk, broker):
        message, place = body.partition(b"|")[0].decode(errors="replace"), f"{subject}/{sequence}"
        send = history.sends.get(message)
        if send is None or send.body != body or send.subject != subject:
            problems.append(f"invented: {message} lies at {place}")
        elif send.outcome is Outcome.FAILED:
            problems.append(f"invented: {message} lies at {place}, and was refused at {send.ended_s:.6f} s")
        if message in places:
            problems.append(f"twice: {message} lies at {places[message]} and at {place}")
        lane = lane_name(subject, priority_of(sequence))
        if sequence <= last.get(lane, -1):
            problems.append(f"sequence: {place} comes behind {last[lane]}")
        places[message], last[lane] = place, sequence
    for send in history.sends.values():
        if send.outcome is not Outcome.OK or terms.may_be_lost(send.promise, send) or terms.expired(send):
            continue
        found = places.get(send.message)
        if found is None:
            problems.append(f"lost: {send.message} ({send.promise.value}) is not in the log")
        elif send.place and send.place != found:
            problems.append(f"misplaced: {send.message} was answered for {send.place} and lies at {found}")
    return problems

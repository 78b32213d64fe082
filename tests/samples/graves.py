"""A broker with a group that gives up soon, and what lies in its dead letters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgpack

from samples.brokers import SUBJECT, TINY, Rig, pulls
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.groups import Group
from tidemill_wire.columns import Batch, split_batches
from tidemill_wire.commands import Ack, Command, Nack, Pull, Pulled
from tidemill_wire.fields import DEAD_PROPERTY

GRAVE = f"%dead%{SUBJECT}%g"
ROOMY = replace(TINY, segment_bytes=1 << 20, action_segment_bytes=1 << 20, consumer_gone_ms=10**6)
HASTY = GroupSettings(lease_ms=1000, attempts_max=2, retry_ms_min=0, backoff_ms=(100, 300))


def hasty_rig(settings: GroupSettings = HASTY, broker: Any = ROOMY) -> Rig:
    """Group ``g`` of the usual subject is declared."""
    rig = Rig(broker)
    partition = rig.broker.intake.create(SUBJECT.encode(), rig.now_ms)
    rig.broker.members.declare_group(partition, "g", (0, 0), settings, rig.now_ms)
    rig.pump()
    return rig


def declare(rig: Rig, settings: GroupSettings) -> None:
    """The group has other settings from now on."""
    rig.broker.members.declare_group(rig.broker.state.partitions[1], "g", (0, 0), settings, rig.now_ms)
    rig.pump()


def reject(rig: Rig, pulled: Pulled, reason: str = "no such customer", **more: Any) -> None:
    """Never again."""
    for grant in pulled.grants:
        ranges = [grant.pull_sequence, grant.pull_sequence + grant.count - 1]
        rig.ask(Nack("g", "c", grant.subject, ranges, reason=reason, reject=True, **more))


def acks(pulled: Pulled) -> list[Command]:
    return [
        Ack("g", "c", grant.subject, [grant.pull_sequence, grant.pull_sequence + grant.count - 1])
        for grant in pulled.grants
    ]


def bury(rig: Rig, *bodies: bytes) -> None:
    """Send messages, and let the group reject them."""
    rig.send(*bodies)
    reject(rig, rig.pull())


def living(rig: Rig) -> Group:
    return group_at(rig, SUBJECT)


def twin(rig: Rig) -> Group:
    return group_at(rig, GRAVE)


def group_at(rig: Rig, subject: str) -> Group:
    group = rig.broker.state.group_of(subject, "g")
    assert group is not None
    return group


@dataclass
class Letter:
    sequence: int
    body: bytes
    known: dict[str, Any]
    own: dict[str, Any]
    batch: Batch
    index: int


def letters(rig: Rig, reader: str = "reader") -> list[Letter]:
    """All dead letters, as a group that nobody has seen before reads them."""
    if GRAVE.encode() not in rig.broker.state.by_name:
        return []
    answer = rig.ask(Pull(reader, "r", [GRAVE], 10_000, 8 << 20, 0))
    found: list[Letter] = []
    while True:
        if answer is None:
            answer = rig.answers.pop(rig.correlation)
        assert isinstance(answer, Pulled)
        if not answer.grants:
            return found
        for batch in split_batches(answer.batches):
            rows = batch.properties()
            assert rows is not None
            for index, (body, row) in enumerate(zip(batch.bodies(), rows, strict=True)):
                own = msgpack.unpackb(row)
                known = own.pop(DEAD_PROPERTY)
                found.append(Letter(batch.header.first_sequence + index, body, known, own, batch, index))
        rig.ask(Ack(reader, "r", GRAVE, pulls(answer)))
        answer = rig.ask(Pull(reader, "r", [GRAVE], 10_000, 8 << 20, 0))


def bodies(rig: Rig, reader: str = "reader") -> list[bytes]:
    return [letter.body for letter in letters(rig, reader)]

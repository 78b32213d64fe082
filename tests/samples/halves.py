"""Half messages, and a broker that is told of them."""

from __future__ import annotations

from samples.batches import CREATED_MS
from samples.brokers import SUBJECT, Rig
from tidemill_wire.batch import SINGLES_FROM, Flags, Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Command, Done
from tidemill_wire.transacting import Decide, Half, Verdict

GROUP = "shop"
FIRST = SINGLES_FROM + 0x1234


def half_of(
    *bodies: bytes,
    transaction: int = FIRST,
    index: int = 0,
    subject: str = SUBJECT,
    priority: int = 0,
    flags: Flags = Flags.TRANSACTIONAL,
    content: Content | None = None,
    group: str = GROUP,
) -> Half:
    """One batch of a transaction."""
    batch_id = transaction.to_bytes(8, "big") + index.to_bytes(8, "big")
    origin = Origin(
        subject.encode(), transaction, index, batch_id, CREATED_MS, flags=flags, priority=priority
    )
    return Half(group, memoryview(build_batch(origin, content or Content(list(bodies)))))


def commit(transaction: int = FIRST) -> Decide:
    return Decide(transaction, Verdict.COMMIT)


def rollback(transaction: int = FIRST) -> Decide:
    return Decide(transaction, Verdict.ROLLBACK)


def done(rig: Rig, command: Command) -> int:
    """It is done; its count. What had to be read first is read."""
    answer = rig.ask(command) or rig.answers.pop(rig.correlation, None)
    assert isinstance(answer, Done), answer
    return answer.count


def given(rig: Rig, *, group: str = "g", subject: str = SUBJECT) -> list[bytes]:
    """The bodies that a consumer is given now, in their order."""
    from tidemill_wire.columns import split_batches

    answer = rig.pull(group=group, subjects=(subject,))
    batches = split_batches(answer.batches)
    return [body for batch in batches for body in batch.bodies()]

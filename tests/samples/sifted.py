"""Batches with tags, and what a consumer sees of an answer that may be masked or gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from samples.brokers import SUBJECT, Rig, batch_of
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content, build_batch
from tidemill_wire.commands import Pull, Pulled, SendBatches, Sent
from tidemill_wire.filters import EVERYTHING, TagFilter
from tidemill_wire.grants import Piece, add_pieces
from tidemill_wire.kinds import Mode

PRODUCER = 99


class Shown(NamedTuple):
    """A message as its consumer sees it."""

    subject: str
    sequence: int
    identity: str
    body: bytes
    tags: tuple[str, ...]


def content_of(tags: Sequence[Sequence[str]], size: int = 8) -> Content:
    """A message for each list of tags, with a body and a key of its own."""
    bodies = [b"%d " % number + bytes(size) for number in range(len(tags))]
    return Content(bodies, keys=[f"key-{number}" for number in range(len(tags))], tags=tags)


def send(rig: Rig, content: Content, subject: str = SUBJECT, codec: Codec = Codec.NONE) -> Sent:
    """One batch; its id is made of its number."""
    rig.sent_batches += 1
    sequence = rig.sent_batches
    batch = batch_of(content=content, subject=subject, producer=PRODUCER, sequence=sequence)
    if codec is not Codec.NONE:
        header = Batch(batch).header
        from tidemill_wire.batch import Origin

        origin = Origin(subject.encode(), PRODUCER, sequence, header.batch_id, header.created_at_ms, codec)
        batch = build_batch(origin, content)
    answer = rig.ask(SendBatches(batch))
    assert isinstance(answer, Sent), answer
    return answer


def pull(
    rig: Rig,
    wanted: TagFilter = EVERYTHING,
    *,
    subjects: Sequence[str] = (SUBJECT,),
    messages: int = 1000,
    size: int = 1 << 20,
    consumer: str = "c",
    peer: int = 1,
    mode: Mode = Mode.AS_DECLARED,
    once: bool = False,
) -> Pulled:
    """A pull that does not wait, when reads come at once."""
    command = Pull("g", consumer, subjects, messages, size, 0, filter=wanted, mode=mode, once=once)
    answer = rig.ask(command, peer) or rig.answers.pop(rig.correlation)
    assert isinstance(answer, Pulled), answer
    return answer


def shown(pulled: Pulled) -> list[Shown]:
    """All that was granted, in its order. Sums are checked, and that each grant has as many messages as it says."""
    found: list[Shown] = []
    at = 0
    for grant in pulled.grants:
        pieces: list[Piece] = []
        at = add_pieces(grant, pulled.batches, at, pieces)
        assert sum(len(piece.rows) for piece in pieces) == grant.count
        for piece in pieces:
            found += [Shown(grant.subject, *message) for message in _messages(piece)]
    assert at == len(pulled.batches)
    return found


def _messages(piece: Piece) -> list[tuple[int, str, bytes, tuple[str, ...]]]:
    batch = Batch(piece.batch)
    batch.check()
    count = batch.header.messages
    indexes = batch.numbers(Column.INDEXES, "i", count) or list(range(count))
    bodies, tags = batch.bodies(), batch.tags() or [[]] * count
    first = batch.header.first_sequence
    assert (batch.keys() or [None])[-1] == f"key-{indexes[-1]}" or batch.keys() is None
    return [
        (first + indexes[row], batch.message_id(indexes[row]), bodies[row], tuple(tags[row]))
        for row in piece.rows
    ]

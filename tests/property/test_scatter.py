"""However a batch for later is parted, its messages stay what they were, and a broker takes the parts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from samples.delays import HOUR_MS, NOW_MS, later
from tidemill_delay.pieces import Addressed
from tidemill_delay.scatter import due_of, scatter
from tidemill_ledger.columns import check_bodies
from tidemill_wire.batch import Flags, check_said, read_header, stamp
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content

TEXT = st.text("abcxyz", max_size=5)
MESSAGES = st.lists(
    st.tuples(
        st.binary(max_size=700),
        st.one_of(st.none(), TEXT),
        st.sets(TEXT.filter(bool), max_size=3),
        st.integers(-HOUR_MS, 3 * HOUR_MS),
    ),
    min_size=1,
    max_size=12,
)
Seen = dict[str, tuple[bytes, str | None, list[str]]]


def seen(batch: Batch) -> Seen:
    """Each message by its id."""
    count = batch.header.messages
    sources = batch.numbers(Column.SOURCES, "i", count) or list(range(count))
    keys, tags = batch.keys() or [""] * count, batch.tags() or [[]] * count
    rows = zip(sources, batch.bodies(), keys, tags, strict=True)
    return {batch.message_id(source): (body, key or None, sorted(tag)) for source, body, key, tag in rows}


@given(
    MESSAGES, st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD]), st.booleans(), st.sampled_from([0, 1, 4711])
)  # fmt: skip
def test_messages_are_the_same_in_pieces(
    messages: list[tuple[bytes, str | None, set[str], int]], codec: Codec, plain: bool, into_ms: int
) -> None:
    """What is stored at the beginning of an hour may have been due in an hour before, which a clock had closed."""
    bodies, keys, tags, ahead = (list(column) for column in zip(*messages, strict=True))
    content = Content(bodies) if plain else Content(bodies, keys, [sorted(tag) for tag in tags])
    data = later(bodies, [NOW_MS + one for one in ahead], codec=codec, content=content)
    stored_ms = NOW_MS + into_ms
    stamp(data, 0, len(data), 17, 4096, stored_ms, 3)
    whole = Batch(data)
    view = memoryview(data)
    due = due_of(view, 0, whole.header)
    found: Seen = {}
    for piece in scatter(view, whole.header, due, HOUR_MS):
        stored = piece.stamp(5, 8000, stored_ms, 3) + piece.said
        part = Batch(stored)
        part.check()
        assert part.header.messages == len(piece.due)
        for at in piece.due.tolist():
            past = at == 0 if into_ms else at <= NOW_MS == piece.hour
            assert past or piece.hour <= at < piece.hour + HOUR_MS
        for half in (np.arange(len(piece.due)), np.arange(0, len(piece.due), 2)):
            sent = Addressed(stored, 8000).send(half + 5)
            header = read_header(sent)
            check_said(sent, 0, header)
            check_bodies(memoryview(sent), 0, header, 1 << 20)
            assert not header.flags & Flags.DELAYED
            assert seen(Batch(sent)).items() <= seen(whole).items()
            assert header.messages == len(half)
        found |= seen(part)
    assert found == seen(whole)

"""A dedup key goes through a delay service untouched, and counts at the broker when its message is due."""

from __future__ import annotations

import pytest

from samples.dedup import id_of, keyed, take, told
from samples.delays import HOUR_MS, NOW_MS, SUBJECT, DelayRig
from tidemill_wire.batch import Flags, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import SendBatches, Sent
from tidemill_wire.deduplication import NO_KEY, digest_of


def later(rig: DelayRig, number: int, rows: list[tuple[str | None, int]], codec: Codec) -> None:
    """A batch of keys and when each is due."""
    flags = Flags.DELAYED | Flags.ORDERED | Flags.DEDUPLICATED
    origin = Origin(SUBJECT.encode(), 7, number, id_of(7, number), NOW_MS, codec, flags)
    content = Content(
        [f"{key} by {number}".encode() * 100 for key, _ in rows],
        order_keys=[key for key, _ in rows],
        dedup_keys=[NO_KEY if key is None else digest_of(key) for key, _ in rows],
        deliver_deltas=[due - NOW_MS for _, due in rows],
    )
    answer = rig.ask(SendBatches(build_batch(origin, content)))
    assert isinstance(answer, Sent)
    assert not answer.refused


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_of_messages_for_later_with_one_key_the_first_that_is_due_is_stored(codec: Codec) -> None:
    rig = DelayRig()
    late = NOW_MS + 2 * HOUR_MS
    later(rig, 1, [("a", late), (None, NOW_MS + 1_000), ("b", late + 1_000), ("c", late)], codec)
    later(rig, 2, [("b", NOW_MS + 2_000), ("a", late + 2_000), (None, late)], codec)
    rig.wait(2 * HOUR_MS + 60_000)

    bodies = sorted(body[: len(b"x by 1")] for _, _, body in rig.arrived)

    # Two hours lie between those of b, more than a window.
    assert bodies == [b"None b", b"None b", b"a by 1", b"b by 1", b"b by 2", b"c by 1"]
    assert told(take(rig.broker, keyed("a", "c", producer=9))) != []

"""Messages of another broker are proven before they are copied, and cut into pieces that can be read."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from samples.batches import CREATED_MS
from samples.brokers import SUBJECT, Rig, batch_of
from samples.dedup import take
from samples.graves import GRAVE, acks, hasty_rig, letters, living, reject, twin
from samples.hostile import resealed
from tidemill_wire import limits
from tidemill_wire.batch import Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Content, build_batch, split_batches
from tidemill_wire.commands import Adopt, Done
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.fields import DEAD_PROPERTY, again_for

ELSEWHERE = "0" * 32 + "-7"


def adopt_of(content: Content, number: int = 1, codec: Codec = Codec.NONE, **more: object) -> Adopt:
    """Messages whose broker is away: the first had the sequence 40 there."""
    content.origins = [ELSEWHERE] * len(content.bodies)
    origin = Origin(SUBJECT.encode(), (1 << 63) + number, 1, number.to_bytes(16, "big"), CREATED_MS, codec)
    batch = build_batch(origin, content)
    batch[8:16] = (40).to_bytes(8, "little")
    return replace(Adopt("g", SUBJECT, 2, -1, "no", batch=memoryview(batch)), **more)  # type: ignore[arg-type]


def again_of(*properties: bytes, attempts: int = 0) -> bytearray:
    count = len(properties)
    content = Content(
        [b"m"] * count, properties=properties, attempts=[attempts] * count, origins=[ELSEWHERE] * count
    )
    return batch_of(subject=again_for(SUBJECT, "g"), producer=(1 << 63) + 5, sequence=1, content=content)


def failed(since_ms: int = 1, sequence: int = 3) -> bytes:
    said = {"reason": "r", "error": "", "place": "", "since": since_ms, "sequence": sequence}
    return bytes(msgpack.packb({DEAD_PROPERTY: said}))


def handled_rig() -> Rig:
    """The group has handled what was there."""
    rig = hasty_rig()
    rig.send(b"mine")
    for command in acks(rig.pull(10)):
        rig.ask(command)
    return rig


def test_attempts_that_were_told_of_may_grow_and_never_overflow() -> None:
    rig = handled_rig()
    rig.ask(adopt_of(Content([b"m"]), attempts=limits.ATTEMPTS_TOLD_MAX))
    rig.wait(60_000)
    reject(rig, rig.pull())
    rig.restart()
    assert [one.known["attempts"] for one in letters(rig)][-1] == limits.ATTEMPTS_TOLD_MAX + 2
    state = living(rig)
    assert not state.doomed


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_many_messages_with_a_long_reason_are_adopted_in_pieces_that_can_be_read(codec: Codec) -> None:
    rig, count = handled_rig(), 6_000
    content = Content([b"order %06d" % number for number in range(count)])
    adopt = adopt_of(content, codec=codec, reason="r" * 1000)
    assert rig.ask(adopt) == Done([], count)
    rig.wait(60_000)
    pulled = rig.pull(10**6, size=limits.PULL_BYTES_MAX)

    assert sum(grant.count for grant in pulled.grants) == count
    batches = split_batches(pulled.batches)
    assert len(batches) > 1
    assert [body for batch in batches for body in batch.bodies()] == list(content.bodies)
    assert max(batch.header.length for batch in batches) < 4 * limits.MIB
    reject(rig, pulled)
    assert living(rig).errors


def test_pieces_that_a_power_cut_took_come_when_it_is_said_again_and_no_other() -> None:
    rig, count = handled_rig(), 3_000
    adopt = adopt_of(Content([b"%d" % number for number in range(count)]), reason="r" * 1000, reject=True)
    rig.ask(adopt)
    grave = rig.broker.state.by_name[GRAVE.encode()]
    kept = dict(list(grave.singles.items())[:1])
    ends = grave.next_sequence
    grave.singles = dict(kept)
    rig.ask(adopt)
    again = grave.next_sequence - ends
    first = next(iter(kept.values()))

    assert 0 < again < count, "the first piece is known still"
    assert first == 0
    rig.ask(adopt)
    assert grave.next_sequence == ends + again


def test_adopt_that_would_be_copied_to_many_times_its_size_is_refused() -> None:
    rig = handled_rig()
    count = limits.ADOPTED_BYTES_MAX // 1000
    assert (
        rig.refused(adopt_of(Content([b""] * count), reason="r" * 1000))
        == KIND_BY_NAME["batch_too_large"].number
    )


def test_largest_message_is_adopted_without_its_properties() -> None:
    rig = handled_rig()
    packed = msgpack.packb({"a": "x" * 60_000})
    body = b"x" * (limits.MESSAGE_BYTES_MAX - limits.KIB)
    content = Content([body[: limits.BATCH_BYTES_MAX - len(packed) - limits.KIB]], properties=[packed])
    assert rig.ask(adopt_of(content, reason="r" * 1000)) == Done([], 1)


def test_text_that_is_none_is_refused_with_the_batch() -> None:
    rig = handled_rig()
    adopt = adopt_of(Content([b"m"], ["kkkk"]))
    batch = bytearray(adopt.batch)
    at = batch.find(b"kkkk")
    batch[at : at + 4] = b"\xff" * 4
    Batch(resealed(batch)).check()
    assert rig.refused(replace(adopt, batch=memoryview(batch))) == KIND_BY_NAME["corrupt_batch"].number
    assert GRAVE.encode() not in rig.broker.state.by_name


def test_sequences_that_no_message_has_are_refused() -> None:
    rig = handled_rig()
    adopt = adopt_of(Content([b"a", b"b"]))
    batch = bytearray(adopt.batch)
    batch[8:16] = b"\xff" * 8
    assert rig.refused(replace(adopt, batch=memoryview(batch))) == KIND_BY_NAME["corrupt_batch"].number
    for said in (
        again_of(failed(sequence=2**64 - 1), failed()),
        again_of(failed(), attempts=2**31 - 1),
        again_of(b"\xc1"),
    ):
        assert [row[1] for row in take(rig, said).refused] == [KIND_BY_NAME["corrupt_batch"].number]


@pytest.mark.parametrize("since_ms", [1 << 63, (1 << 64) - 1])
def test_failures_of_the_future_are_of_now(since_ms: int) -> None:
    rig = handled_rig()
    assert not take(rig, again_of(failed(since_ms), b"\xc1")).refused
    assert [one.known["since"] for one in letters(rig)] == [rig.now_ms] * 2


def test_number_that_comes_again_with_more_messages_gives_only_what_is_there() -> None:
    rig = handled_rig()
    take(rig, again_of(failed()))
    rig.pull(10)
    take(rig, again_of(*[failed()] * 5))
    grave = rig.broker.state.by_name[GRAVE.encode()]
    assert (twin(rig).cursor, grave.next_sequence, twin(rig).handled) == (1, 1, [0, 0])

    rejected = adopt_of(Content([b"m"]), reject=True)
    rig.ask(rejected)
    rig.ask(adopt_of(Content([b"m", b"n", b"o"])))
    assert (twin(rig).cursor, grave.next_sequence, twin(rig).handled) == (2, 2, [0, 1])

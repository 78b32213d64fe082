"""Intake: what may enter enters with its stamp, what may not is refused with its reason, and harms no neighbour."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from crc32c import crc32c

from samples.batches import CREATED_MS, full
from samples.brokers import NOW_MS, SUBJECT, TINY, Rig, batch_of, files_of, read_file
from tidemill_broker.settings import BrokerSettings
from tidemill_ledger import columns
from tidemill_ledger.columns import check_bodies
from tidemill_wire import limits
from tidemill_wire.batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    Header,
    Origin,
    aligned,
    check_stamp,
    encode_batch,
    read_header,
)
from tidemill_wire.codec import Codec
from tidemill_wire.columns import (
    ENTRY,
    SINGLE,
    Batch,
    Column,
    Content,
    build_batch,
    plain_single,
    split_batches,
)
from tidemill_wire.commands import SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME, CorruptBatch, Unavailable, WireError

Columns = list[tuple[Column, bytes]]


def take(rig: Rig, batches: bytearray) -> Sent:
    answer = rig.ask(SendBatches(batches))
    assert isinstance(answer, Sent)
    return answer


def reasons(sent: Sent) -> list[tuple[int, str]]:
    names = {kind.number: name for name, kind in KIND_BY_NAME.items()}
    return [(index, names[number]) for index, number, _ in sent.refused]


def offsets(*places: int) -> bytes:
    return struct.pack(f"<{len(places)}i", *places)


def laid_out(count: int, columns: Columns, *, flags: int = 0, codec: Codec = Codec.NONE) -> bytearray:
    """A batch of any columns at all, with a good checksum."""
    directory, body, place = b"", b"", 0
    for kind, data in columns:
        directory += ENTRY.pack(kind, flags, place, len(data), len(data))
        body += data.ljust(aligned(len(data)), b"\0")
        place = len(body)
    origin = Origin(SUBJECT.encode(), 1, 1, bytes(16), CREATED_MS, codec)
    return encode_batch(origin, count, len(columns), (directory, body))


def bodies(*places: int, size: int = 10) -> Columns:
    return [(Column.BODY_OFFSETS, offsets(*places)), (Column.BODIES, bytes(size))]


def sealed_again(batch: bytearray) -> bytearray:
    struct.pack_into("<I", batch, 40, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return batch


def stored(rig: Rig) -> list[Batch]:
    return [
        batch for name in files_of(rig.disk, "message") for batch in split_batches(read_file(rig.disk, name))
    ]


def test_batch_is_stamped_with_sequence_position_time_and_epoch() -> None:
    rig = Rig()
    assert [rig.send(b"one", b"two").first_sequences, rig.send(b"three").first_sequences] == [[0], [2]]

    first, second = stored(rig)
    assert first.header[2:6] == (0, 0, NOW_MS, 1)
    assert second.header[2:6] == (2, first.header.length, NOW_MS, 1)
    assert second.bodies() == [b"three"]
    for batch in (first, second):
        batch.check()
    check_stamp(read_file(rig.disk, files_of(rig.disk, "message")[0]), 0, first.header)


def test_several_batches_of_several_subjects_are_stored_in_their_order() -> None:
    rig = Rig()
    sent = take(
        rig,
        batch_of(b"a", b"b", sequence=1)
        + batch_of(b"c", subject="order.paid", sequence=1)
        + batch_of(b"d", sequence=2),
    )

    assert (sent.first_sequences, sent.refused) == ([0, 0, 2], [])
    assert [batch.bodies() for batch in stored(rig)] == [[b"a", b"b"], [b"c"], [b"d"]]


def test_one_bad_batch_harms_no_other() -> None:
    rig = Rig()
    bad = batch_of(b"bad", sequence=2)
    bad[-1] ^= 1
    sent = take(rig, batch_of(b"a", sequence=1) + bad + batch_of(b"c", sequence=3))

    assert sent.first_sequences == [0, -1, 1]
    assert reasons(sent) == [(1, "corrupt_batch")]
    assert [batch.bodies() for batch in stored(rig)] == [[b"a"], [b"c"]]


@pytest.mark.parametrize("place", [0, 1, 4, 5])
def test_batch_without_a_length_ends_the_frame(place: int) -> None:
    """Those before it are stored; where the next would begin nobody knows."""
    rig = Rig()
    bad = batch_of(b"bad", sequence=2)
    bad[place] ^= 0x40
    sent = take(rig, batch_of(b"a", sequence=1) + bad + batch_of(b"c", sequence=3))

    assert sent.first_sequences[:2] == [0, -1]
    assert reasons(sent)[0] == (1, "corrupt_batch")
    assert stored(rig)[0].bodies() == [b"a"]


def test_batches_over_a_segments_end_go_to_both_files() -> None:
    rig = Rig()
    sent = take(rig, bytearray().join(batch_of(b"x", sequence=index + 1) for index in range(20)))

    assert sent.first_sequences == list(range(20))
    assert len(files_of(rig.disk, "message")) == 4
    assert [batch.header.first_sequence for batch in stored(rig)] == list(range(20))


def test_batch_that_was_sent_before_is_answered_as_before_and_not_stored() -> None:
    rig = Rig()
    for sequence in range(1, 8):
        take(rig, batch_of(b"x", sequence=sequence))
    again = bytearray().join(batch_of(b"x", sequence=sequence) for sequence in (7, 3, 2, 8))

    assert take(rig, again) == Sent([6, 2, -1, 7], [])
    assert len(stored(rig)) == 8


def test_duplicate_between_new_batches_leaves_no_hole_in_the_file() -> None:
    rig = Rig()
    take(rig, batch_of(b"a", sequence=1))
    take(rig, batch_of(b"b", sequence=2) + batch_of(b"a", sequence=1) + batch_of(b"c", sequence=3))

    assert [batch.bodies() for batch in stored(rig)] == [[b"a"], [b"b"], [b"c"]]


@pytest.mark.parametrize(
    "count, columns",
    [
        (1, bodies(0, -1)),
        (1, bodies(1, 11)),
        (1, bodies(0, 9)),
        (1, bodies(0, 11)),
        (1, bodies(0, 5, 10)),
        (2, bodies(0, 10)),
        (2, bodies(0, 11, 10)),
        (2, bodies(0, -5, 10)),
        (3, bodies(0, 2**31 - 1, -(2**31), 10)),
        (3, bodies(0, -(2**31), 2**31 - 1, 10)),
        (1, bodies(0, 10)[:1]),
        (1, bodies(0, 10)[1:]),
        (1, []),
    ],
)
def test_bodies_that_do_not_fit_are_refused(count: int, columns: Columns) -> None:
    rig = Rig()

    assert reasons(take(rig, laid_out(count, columns))) == [(0, "corrupt_batch")]
    assert stored(rig) == []


def test_difference_of_offsets_that_wraps_is_no_small_message() -> None:
    """2147483647 - -2147483648 is -1 in 32 bits: offsets are compared, not subtracted."""
    wrapped = laid_out(4, bodies(0, 2**31 - 1, -(2**31), -(2**31) + 1, 10))

    assert reasons(take(Rig(), wrapped)) == [(0, "corrupt_batch")]


@pytest.mark.parametrize("flags, codec", [(1, Codec.NONE), (2, Codec.LZ4), (3, Codec.LZ4)])
def test_compression_that_nobody_could_undo_is_refused(flags: int, codec: Codec) -> None:
    batch = laid_out(1, bodies(0, 10), flags=flags, codec=codec)

    assert reasons(take(Rig(), batch)) == [(0, "corrupt_batch")]


def test_batch_with_every_column_is_taken() -> None:
    rig = Rig()

    assert take(rig, batch_of(content=full())).first_sequences == [0]
    assert stored(rig)[0].keys() == ["o-1", "", "\u00f6-3"]


def spoil(change: Callable[[Content], None]) -> bytearray:
    content = full()
    change(content)
    return batch_of(content=content)


def set_of(name: str, value: object) -> Callable[[Content], None]:
    return lambda content: setattr(content, name, value)


@pytest.mark.parametrize(
    "name, value",
    [
        ("keys", ["k" * (limits.KEY_BYTES_MAX + 1), None, None]),
        ("order_keys", ["k" * (limits.KEY_BYTES_MAX + 1), None, None]),
        ("tags", [[], ["t"] * (limits.TAGS_MAX + 1), []]),
        ("tags", [[], ["t" * (limits.TAG_BYTES_MAX + 1)], []]),
        ("properties", [b"", b"", bytes(limits.PROPERTIES_BYTES_MAX + 1)]),
        ("origins", ["", "", "o" * 256]),
    ],
)
def test_columns_beyond_their_limits_are_refused(name: str, value: object) -> None:
    sent = take(Rig(), spoil(set_of(name, value)))

    assert reasons(sent) == [(0, "limit_exceeded")]
    assert "are allowed" in sent.refused[0][2]


@pytest.mark.parametrize(
    "kind, data",
    [
        (Column.KEY_HASHES, bytes(8)),
        (Column.CREATED_DELTAS, bytes(12)),
        (Column.TAG_HASHES, bytes(16)),
        (Column.KEY_OFFSETS, offsets(0, 0, 0)),
        (Column.KEYS, b"key"),
        (Column.TAG_COUNTS, offsets(0, 1, 2)),
        (Column.TAG_COUNTS, offsets(0, 1, 0)),
        (Column.TAG_COUNTS, offsets(1, 1, 1)),
    ],
)
def test_column_that_does_not_fit_the_messages_is_refused(kind: Column, data: bytes) -> None:
    batch = laid_out(2, [*bodies(0, 5, 10), (kind, data)])

    assert reasons(take(Rig(), batch)) == [(0, "corrupt_batch")]


def test_message_beyond_the_subjects_limit_is_refused_with_both_numbers() -> None:
    rig = Rig()
    size = limits.MESSAGE_BYTES_DEFAULT
    sent = take(rig, batch_of(bytes(size + 1), sequence=1) + batch_of(bytes(size), sequence=2))

    assert reasons(sent) == [(0, "message_too_large")]
    assert f"{size + 1} bytes, {size} are allowed" in sent.refused[0][2]
    assert sent.first_sequences == [-1, 0]
    assert reasons(take(rig, batch_of(b"", bytes(size + 1), b"", sequence=3))) == [(0, "message_too_large")]


def test_what_was_stored_once_is_answered_again_though_it_would_be_too_large_by_now() -> None:
    """Its producer would take it for refused, and its user send it again."""
    rig = Rig()
    batch = batch_of(bytes(1000), producer=5, sequence=1)
    assert take(rig, bytearray(batch)).first_sequences == [0]
    settings = replace(rig.broker.state.by_name[SUBJECT.encode()].settings, message_bytes_max=10)
    rig.broker.intake.declare(SUBJECT, settings, NOW_MS)

    assert take(rig, bytearray(batch)) == Sent([0], [])
    assert reasons(take(rig, batch_of(bytes(1000), producer=5, sequence=2))) == [(0, "message_too_large")]


@pytest.mark.parametrize("subject", ["", "bad name", "%dead%x%y", "\u00f6", "x" * 101])
def test_subject_that_nobody_may_name_is_refused(subject: str) -> None:
    rig = Rig()

    assert reasons(take(rig, batch_of(b"x", subject=subject))) == [(0, "invalid_subject")]
    assert rig.broker.state.partitions == {}


def test_subjects_are_made_on_first_use_only_where_that_is_allowed() -> None:
    rig = Rig(BrokerSettings(create_subjects=False))

    assert reasons(take(rig, batch_of(b"x"))) == [(0, "unknown_subject")]


def test_subjects_beyond_the_limit_are_refused_and_known_ones_are_not() -> None:
    rig = Rig(BrokerSettings(subjects_max=1))
    sent = take(
        rig,
        batch_of(b"x", sequence=1) + batch_of(b"x", subject="other", sequence=1) + batch_of(b"y", sequence=2),
    )

    assert reasons(sent) == [(1, "too_many_subjects")]
    assert sent.first_sequences == [0, -1, 1]


def test_full_disk_and_too_many_subjects_are_no_matter_for_what_is_there_as_it_is_declared() -> None:
    rig = Rig(replace(TINY, subjects_max=1))
    rig.send(b"before")
    intake, known = rig.broker.intake, rig.broker.state.by_name[SUBJECT.encode()]
    intake.refusal = Unavailable("disk_full", "less than 5 % is free")

    assert intake.declare(SUBJECT, known.settings, rig.now_ms) is known
    for name, settings in ((SUBJECT, replace(known.settings, best_tried=True)), ("other", known.settings)):
        with pytest.raises(Unavailable, match="less than 5 % is free"):
            intake.declare(name, settings, rig.now_ms)


def test_full_disk_refuses_every_batch_and_nothing_is_written() -> None:
    rig = Rig(TINY)
    rig.send(b"before")
    rig.broker.intake.refusal = Unavailable("disk_full", "less than 5 % is free")

    assert reasons(take(rig, batch_of(b"x", sequence=1))) == [(0, "disk_full")]
    assert len(stored(rig)) == 1
    assert rig.broker.counters.refused["disk_full"] == 1
    rig.broker.intake.refusal = None
    assert take(rig, batch_of(b"x", sequence=1)).first_sequences == [1]


def test_answer_waits_for_the_disk_where_the_subject_asks_for_it() -> None:
    rig = Rig(BrokerSettings(durability="high"))
    rig.holds_syncs = True

    assert rig.ask(SendBatches(batch_of(b"x"))) is None
    assert rig.ask(SendBatches(batch_of(b"x"))) is None, "a duplicate does not overtake what it speaks of"
    rig.sync()
    assert list(rig.answers.values()) == [Sent([0], []), Sent([0], [])]


def test_header_that_claims_more_messages_than_there_are_is_refused() -> None:
    batch = batch_of(b"a", b"b")
    struct.pack_into("<I", batch, 48, 3)
    assert read_header(sealed_again(batch)).messages == 3

    assert reasons(take(Rig(), batch)) == [(0, "corrupt_batch")]


def test_any_byte_of_a_batch_that_is_wrong_is_noticed() -> None:
    """But for the broker's own fields, which it writes anew."""
    good = build_batch(Origin(SUBJECT.encode(), 1, 1, bytes(16), CREATED_MS), Content([b"hello"]))
    rig = Rig()
    for place in (*range(8), *range(40, len(good))):
        batch = bytearray(good)
        batch[place] ^= 0x10
        assert take(rig, batch).first_sequences[0] == -1, (place, HEADER_BYTES)
    assert stored(rig) == []


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100])
def test_short_cut_for_a_single_body_takes_nothing_that_the_long_way_refuses(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = build_batch(Origin(b"s", 1, 1, bytes(16), 0), Content([b"x" * size]))
    start = HEADER_BYTES + aligned(1)
    assert plain_single(batch, 0, read_header(batch)) == size
    for place in range(start, start + SINGLE.size):
        for bit in range(8):
            bent = bytearray(batch)
            bent[place] ^= 1 << bit
            header = read_header(bent)
            with monkeypatch.context() as patch:
                patch.setattr(columns, "plain_single", lambda *_: -1)
                refused = _refused(memoryview(bent), header)
            assert _refused(memoryview(bent), header) == refused
            assert plain_single(bent, 0, header) < 0 or not refused


def _refused(view: memoryview, header: Header) -> bool:
    try:
        check_bodies(view, 0, header, 50)
    except WireError:
        return True
    except CorruptBatch:
        return True
    return False

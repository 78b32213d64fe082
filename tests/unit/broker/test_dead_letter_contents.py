"""What a dead letter says: all that its message came with, and why it died, also when nobody can read it any more."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from samples.batches import full, part_of
from samples.brokers import NOW_MS, SUBJECT, Rig, batch_of, pulls, put_file, read_file, spans
from samples.graves import (
    GRAVE,
    hasty_rig,
    letters,
    living,
    reject,
)
from tidemill_host.machine import Slice
from tidemill_journal.entries import row_length
from tidemill_ledger.columns import check_columns
from tidemill_wire import limits
from tidemill_wire.batch import Flags, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, Content, build_batch, read_directory
from tidemill_wire.commands import Nack, SendBatches, Sent
from tidemill_wire.errors import Unavailable

MIB = 1 << 20


def fail(rig: Rig, **more: object) -> None:
    """The group is given what is due, and fails."""
    given = rig.pull()
    assert given.grants
    rig.ask(Nack("g", "c", SUBJECT, pulls(given), reason="no such customer", **more))


def test_dead_letter_has_all_that_its_message_had_and_says_why_it_died() -> None:
    rig = hasty_rig()
    content = full()
    rig.ask(SendBatches(batch_of(content=content)))
    [grant] = rig.pull().grants
    rig.ask(
        Nack(
            "g", "c", SUBJECT, [grant.pull_sequence + 1, grant.pull_sequence + 2],
            reason="no such customer", error="KeyError", place="shop.py:7", reject=True,
        )
    )  # fmt: skip

    one, two = letters(rig)
    assert (one.body, two.body) == (b"", b"third")
    batch = one.batch
    assert batch is two.batch
    assert batch.partition == GRAVE
    assert batch.keys() == ["", "\u00f6-3"]
    assert batch.tags() == [[], ["vip"]]
    assert batch.order_keys() == ["customer-2", ""]
    assert (one.own, two.own) == ({}, {"n": 1})
    assert batch.numbers(Column.CREATED_DELTAS, "i", 2) == [1, -2]
    assert batch.numbers(Column.ATTEMPTS, "i", 2) == [1, 1]
    source = rig.broker.state.partitions[1]
    data = rig.files.read(slice_of(rig, source.recent.positions[0], source.recent.sizes[0]))
    assert batch.origins() == [Batch(data).message_id(1), Batch(data).message_id(2)]
    assert batch.flags & Flags.REDELIVERED
    assert batch.header.created_at_ms == Batch(data).header.created_at_ms
    mark = one.known.pop("fingerprint")
    assert one.known == {
        "subject": SUBJECT, "group": "g", "sequence": 1, "original": 1, "attempts": 1,
        "since": NOW_MS, "failed_at": NOW_MS,
        "reason": "no such customer", "error": "KeyError", "place": "shop.py:7",
    }  # fmt: skip
    assert (two.known["sequence"], two.known["fingerprint"]) == (2, mark)


def slice_of(rig: Rig, position: int, size: int):
    file, place = rig.broker.logs.messages.locate(position)
    return Slice(file, place, row_length(size))


def test_priority_order_and_codec_of_a_message_stay() -> None:
    rig = hasty_rig()
    origin = Origin(SUBJECT.encode(), 1, 1, bytes(16), NOW_MS, Codec.LZ4, Flags.ORDERED, 5)
    rig.ask(SendBatches(build_batch(origin, Content([b"tide" * 100], order_keys=["k"]))))
    reject(rig, rig.pull())

    [letter] = letters(rig)
    header = letter.batch.header
    assert (header.priority, header.codec, letter.body) == (5, Codec.LZ4, b"tide" * 100)
    assert letter.batch.flags == Flags.ORDERED | Flags.REDELIVERED


def test_lease_that_ends_again_and_again_is_a_reason_to_die_of() -> None:
    rig = hasty_rig()
    rig.send(b"tide")
    rig.pull()
    rig.wait(1000)
    assert spans(rig.pull()) == [(0, 1, 1)], "at once, the first time"
    rig.wait(1000)

    [letter] = letters(rig)
    assert "lease" in letter.known["reason"]
    assert (letter.known["error"], letter.known["attempts"]) == ("", 2)


def test_the_last_failure_is_the_one_also_when_nobody_said_why() -> None:
    rig = hasty_rig()
    rig.send(b"tide")
    fail(rig)
    rig.wait(100)
    rig.pull()
    rig.wait(1000)

    assert letters(rig)[0].known["reason"].startswith("its lease ended")


def nack_each(rig: Rig, reasons: list[str]) -> None:
    [grant] = rig.pull().grants
    for number, reason in enumerate(reasons, grant.pull_sequence):
        rig.ask(Nack("g", "c", SUBJECT, [number, number], reason=reason, reject=True))


def test_each_dead_letter_has_its_own_reason_also_where_the_mistake_is_the_same() -> None:
    rig = hasty_rig()
    reasons = [f"no amount in order {number}" for number in range(40)]
    rig.send(*[b"tide"] * 40)
    nack_each(rig, reasons)

    found = letters(rig)
    assert [letter.known["reason"] for letter in found] == reasons
    assert len({letter.known["fingerprint"] for letter in found}) == 1


@pytest.mark.parametrize("checkpoint", [False, True])
def test_reason_outlives_a_full_disk_a_restart_and_a_hundred_other_mistakes(checkpoint: bool) -> None:
    rig = hasty_rig()
    reasons = [f"mistake {chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(200)]
    rig.send(*[b"tide"] * 200)
    rig.broker.intake.refusal = Unavailable("disk_full", "3 % are free")
    nack_each(rig, reasons)
    assert len(living(rig).doomed) == 200
    if checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()
    rig.wait(1000)

    assert [letter.known["reason"] for letter in letters(rig)] == reasons


def test_batch_that_is_damaged_leaves_a_dead_letter_that_says_so() -> None:
    rig = hasty_rig()
    rig.send(b"tide", b"mill")
    given = rig.pull()
    file = "message/" + f"{0:020}.log"
    rotten = bytearray(read_file(rig.disk, file))
    rotten[-9] ^= 255
    put_file(rig.disk, file, bytes(rotten))
    reject(rig, given)

    one, two = letters(rig)
    assert one.body == two.body == b""
    assert one.known["reason"].startswith("undecodable: ")
    assert (one.known["sequence"], two.known["sequence"]) == (0, 1)
    assert living(rig).failed == {}


@pytest.mark.parametrize("at", [0, 4, 41, 42, 100])
def test_batch_whose_head_is_damaged_leaves_a_dead_letter_too(at: int) -> None:
    rig = hasty_rig()
    rig.send(b"tide")
    given = rig.pull()
    file = "message/" + f"{0:020}.log"
    rotten = bytearray(read_file(rig.disk, file))
    rotten[at] ^= 255
    put_file(rig.disk, file, bytes(rotten))
    reject(rig, given)

    assert [letter.known["reason"][:12] for letter in letters(rig)] == ["undecodable:"]


def test_bodies_that_are_large_together_become_several_batches() -> None:
    rig = hasty_rig()
    sent = [b"%d" % index + bytes(400_000) for index in range(7)]
    rig.send(*sent)
    reject(rig, rig.pull(size=8 << 20))

    found = letters(rig)
    assert [letter.body for letter in found] == sent
    assert [letter.known["sequence"] for letter in found] == list(range(7))
    assert len({id(letter.batch) for letter in found}) == 4


def test_small_messages_whose_reasons_are_large_become_several_batches() -> None:
    rig = hasty_rig()
    rig.send(*[b"x"] * 2000)
    reject(rig, rig.pull(10_000), "y" * 1000)

    found = letters(rig)
    assert [letter.known["sequence"] for letter in found] == list(range(2000))
    assert all(letter.batch.header.length < 2 * MIB for letter in found)
    assert living(rig).buried == 2000


@pytest.mark.parametrize("size", [limits.MESSAGE_BYTES_MAX - 1000, limits.MESSAGE_BYTES_MAX])
def test_the_largest_message_is_buried_without_its_own_properties_if_need_be(size: int) -> None:
    rig = hasty_rig()
    settings = replace(rig.broker.state.partitions[1].settings, message_bytes_max=limits.MESSAGE_BYTES_MAX)
    rig.broker.intake.declare(SUBJECT, settings, rig.now_ms)
    content = Content([bytes(size)], properties=[msgpack.packb({"trace": "x" * 1000})])
    assert rig.ask(SendBatches(batch_of(content=content))) == Sent([0], [])
    reject(rig, rig.pull(), "z" * 1000)

    [letter] = letters(rig)
    assert len(letter.body) == size
    assert letter.own == {}
    assert letter.batch.header.length <= limits.BATCH_BYTES_MAX


def test_columns_of_a_dead_letter_are_those_that_a_broker_takes() -> None:
    rig = hasty_rig()
    rig.ask(SendBatches(batch_of(content=full())))
    reject(rig, rig.pull())
    [batch] = {id(letter.batch): letter.batch for letter in letters(rig)}.values()

    view = batch._buffer
    check_columns(view, read_directory(view, 0, batch.header), 3)


def test_dead_letter_of_a_message_that_was_for_later_names_the_id_that_its_sender_was_told() -> None:
    whole = batch_of(b"a", b"b", b"c")
    rig = hasty_rig()
    rig.ask(SendBatches(part_of(whole, 1, 2)))
    reject(rig, rig.pull())

    one, two = letters(rig)
    assert (one.body, two.body) == (b"b", b"c")
    assert one.batch.origins() == [Batch(whole).message_id(index) for index in (1, 2)]

"""What ended a broker, and every one that had its log next: each is stored now, or refused with a name."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from samples.batches import CREATED_MS
from samples.brokers import SUBJECT, Rig, batch_of, copy_of, pulls, spans
from samples.dedup import take
from samples.graves import (
    HASTY,
    ROOMY,
    acks,
    bodies,
    declare,
    hasty_rig,
    letters,
    living,
    reject,
)
from samples.hostile import over_wire, resealed
from tidemill_broker.copies import with_death
from tidemill_host.machine import Peer
from tidemill_wire import limits
from tidemill_wire.batch import (
    HEADER_BYTES,
    MAGIC,
    PREFIX,
    SAID,
    STAMP_BYTES,
    VERSION,
    Flags,
    Origin,
)
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Ack, Done, Failed, Nack, Pull, Pulled, SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.fields import DEAD_PROPERTY, DEAD_UNREAD
from tidemill_wire.kinds import Mode

UNREADABLE = {
    "no msgpack": b"\xc1",
    "cut": b"\x81\xa1a",
    "no text": b"\x81\xa1a\xa1\xff",
    "a list as a key": b"\x81\x90\x01",
    "nested deeper than is unpacked": b"\x91" * 2000,
    "no map": b"\x07",
}


# Properties, and what becomes of them.


@pytest.mark.parametrize("packed", UNREADABLE.values(), ids=UNREADABLE)
def test_message_whose_properties_nobody_can_read_is_buried_with_them_as_they_came(packed: bytes) -> None:
    rig = hasty_rig()
    take(rig, batch_of(content=Content([b"x", b"y"], properties=[packed, msgpack.packb({"a": 1})])))
    reject(rig, rig.pull())
    rig.restart()

    one, two = letters(rig)
    assert (one.body, one.own, one.known[DEAD_UNREAD]) == (b"x", {}, packed)
    assert (two.body, two.own, two.known["reason"]) == (b"y", {"a": 1}, "no such customer")
    assert DEAD_UNREAD not in two.known


def test_what_nobody_can_read_is_kept_when_it_dies_once_more() -> None:
    once = with_death(b"\xc1", {"sequence": 7}, 0)
    again = msgpack.unpackb(with_death(once, {"sequence": 9}, 0))
    assert again == {DEAD_PROPERTY: {"sequence": 9, "original": 7, DEAD_UNREAD: b"\xc1"}}


@pytest.mark.parametrize("original", ["x", -1, 1 << 63, None, True])
def test_number_of_the_original_is_believed_only_where_a_message_can_have_it(original: object) -> None:
    packed = msgpack.packb({DEAD_PROPERTY: {"original": original}})
    found = msgpack.unpackb(with_death(packed, {"sequence": 9}, 0))
    assert found[DEAD_PROPERTY]["original"] == 9


def test_properties_give_way_where_the_copy_would_be_too_large() -> None:
    """Numbers of 32 bits are packed as 64 again: what fitted before does not."""
    floats = msgpack.packb({"f": [1.5] * 12_000}, use_single_float=True)
    bare = {"sequence": 9, "original": 9}
    for room, known in ((160, {**bare, DEAD_UNREAD: floats}), (100, bare)):
        packed = with_death(floats, {"sequence": 9}, limits.BATCH_BYTES_MAX - room * limits.KIB)
        assert msgpack.unpackb(packed) == {DEAD_PROPERTY: known}


def test_replica_that_has_the_log_next_lives() -> None:
    rig = hasty_rig()
    take(rig, batch_of(content=Content([b"x"], properties=[b"\xc1"])))
    rig.holds_reads = True
    reject(rig, rig.pull())
    other = Rig(ROOMY, copy_of(rig.disk), rig.now_ms)
    other.wait(1_000)
    assert bodies(other) == [b"x"]


# Frames.


def test_batch_without_name_and_columns_is_refused_and_harms_no_other() -> None:
    batch = bytearray(HEADER_BYTES)
    PREFIX.pack_into(batch, 0, MAGIC, HEADER_BYTES)
    SAID.pack_into(batch, STAMP_BYTES, 0, VERSION, 0, 0, 1, 0, 0, 0, 1, 1, bytes(16), 0, 0)
    answer = take(hasty_rig(), batch_of(b"before", sequence=1) + resealed(batch))
    assert answer.first_sequences == [0, -1]
    assert [row[:2] for row in answer.refused] == [(1, KIND_BY_NAME["invalid_subject"].number)]


@pytest.mark.parametrize("sources", [[-1], [0, -(2**31)], [limits.BATCH_MESSAGES_MAX], [2**31 - 1]])
@pytest.mark.parametrize("flags", [Flags(0), Flags.DEDUPLICATED])
def test_messages_are_of_places_that_a_batch_can_have(sources: list[int], flags: Flags) -> None:
    origin = Origin(SUBJECT.encode(), 7, 1, bytes(16), CREATED_MS, flags=flags)
    content = Content([b"m"] * len(sources), dedup_keys=[b"k" * 16] * len(sources), sources=sources)
    [row] = take(hasty_rig(), build_batch(origin, content)).refused
    assert row[1] == KIND_BY_NAME["corrupt_batch"].number


def test_ranges_that_overlap_are_each_number_once() -> None:
    """A hundred deliveries, and 10,000 times all there is: a request of 156 KiB, which was a million of looks."""
    rig = hasty_rig()
    rig.send(*[b"x"] * 100)
    for _ in range(100):
        rig.pull(1)
    looks: list[tuple[int, int]] = []
    consumer = living(rig).consumers["c"]
    kind = type(consumer)
    missing = kind.missing

    def counted(self, first: int, last: int) -> list[int]:
        looks.append((first, last))
        return missing(self, first, last)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "missing", counted)
        command = over_wire(Ack("g", "c", SUBJECT, [0, (1 << 63) - 1] * limits.RANGES_MAX))
        answer = rig.ask(command)
    assert isinstance(answer, Done)
    assert len(looks) == 1
    assert living(rig).in_flight == 0


# Pulls that wait.


def test_consumer_that_is_forgotten_leaves_no_pull_behind() -> None:
    """One name over two connections: the newer one goes, and the older one waits still."""
    rig = Rig(replace(ROOMY, consumer_gone_ms=10_000))
    rig.send(b"first")
    for command in acks(rig.pull()):
        rig.ask(command)
    rig.disconnect(Peer(1))
    rig.wait(11_000)
    older, newer = rig.connect(), rig.connect()
    assert rig.ask(Pull("g", "c", [SUBJECT], 10, 1 << 20, 60_000), older) is None
    asked = rig.correlation
    rig.ask(Pull("g", "c", [SUBJECT], 10, 1 << 20, 0), newer)
    rig.disconnect(newer)
    rig.wait(11_000)

    told = rig.answers.pop(asked)
    assert isinstance(told, Pulled)
    assert not told.grants, "it may ask again"
    assert isinstance(rig.ask(SendBatches(batch_of(b"second", producer=5, sequence=1)), older), Sent)
    assert spans(rig.pull(peer=older)) == [(1, 1, 0)]


@pytest.mark.parametrize(
    "first, mode, then",
    [
        ("ordered", Mode.EXCLUSIVE, "shared"),
        ("shared", Mode.AS_DECLARED, "broadcast"),
    ],
)
def test_pull_that_does_not_fit_its_group_any_more_is_refused_when_a_lane_comes(
    first: str, mode: Mode, then: str
) -> None:
    rig = hasty_rig(replace(HASTY, consumption=first))
    assert rig.ask(Pull("g", "c", [SUBJECT], 10, 1 << 20, 60_000, mode=mode)) is None
    asked = rig.correlation
    declare(rig, replace(HASTY, consumption=then))
    assert rig.send(b"urgent", priority=3).first_sequences[0] > 0
    told = rig.answers.pop(asked)
    assert isinstance(told, Failed)
    assert told.number == KIND_BY_NAME["wrong_consumption"].number


# Burials.


def test_one_read_buries_all_that_is_doomed_in_its_batch() -> None:
    rig = hasty_rig()
    rig.send(*[b"%d" % number for number in range(100)])
    low = pulls(rig.pull())[0]
    rig.holds_reads = True
    for number in range(0, 100, 2):
        rig.ask(Nack("g", "c", SUBJECT, [low + number] * 2, reason=f"no {number}", reject=True))
    assert len(rig.reads) == 1
    rig.load()
    rig.pump()

    assert not rig.reads
    found = letters_of(rig)
    assert [body for body, _ in found] == [b"%d" % number for number in range(0, 100, 2)]
    assert [reason for _, reason in found] == [f"no {number}" for number in range(0, 100, 2)]


def letters_of(rig: Rig) -> list[tuple[bytes, str]]:
    rig.holds_reads = False
    return [(one.body, one.known["reason"]) for one in letters(rig)]


def test_no_more_is_buried_in_one_turn_than_may_be() -> None:
    rig = hasty_rig()
    count = limits.DEAD_COPIES_MAX + 10
    rig.send(*[b"x"] * count)
    low = pulls(rig.pull())[0]
    rig.holds_reads = True
    for number in range(count):
        rig.ask(Nack("g", "c", SUBJECT, [low + number] * 2, reject=True))
    rig.load()
    rig.pump()
    assert len(living(rig).doomed) == 10
    rig.load()
    rig.pump()
    assert not living(rig).doomed
    assert living(rig).buried == count


def test_groups_take_turns_with_what_they_have_doomed() -> None:
    rig = hasty_rig()
    rig.broker.members.declare_group(rig.broker.state.partitions[1], "z", (0, 0), HASTY, rig.now_ms)
    rig.fill(30)
    many, one = rig.pull(30), rig.pull(1, group="z", consumer="z")
    rig.holds_reads = True
    reject(rig, many)
    rig.ask(Nack("z", "z", SUBJECT, pulls(one), reject=True))
    last = rig.broker.state.group_of(SUBJECT, "z")
    assert last is not None
    rounds = 0
    while last.doomed:
        rig.load()
        rig.pump()
        rounds += 1
    assert rounds <= 2
    assert living(rig).doomed, "the other one goes on then"
    rig.holds_reads = False
    rig.load()
    rig.pump()
    assert not living(rig).doomed


def test_group_whose_dead_letters_nobody_takes_is_counted_once_and_nothing_is_read_for_it() -> None:
    rig = hasty_rig(broker=replace(ROOMY, subjects_max=1))
    rig.send(b"dies")
    rig.holds_reads = True
    reject(rig, rig.pull())
    for _ in range(5):
        rig.wait(1_000)
    assert not rig.reads
    assert rig.broker.counters.refused["too_many_subjects"] == 1
    assert list(living(rig).doomed) == [0]

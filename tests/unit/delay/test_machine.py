"""A delay service beside a real broker: never early, never lost, and once."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from crc32c import crc32c

from samples.batches import CREATED_MS
from samples.brokers import files_of, put_file, read_file
from samples.delays import (
    BROKER,
    HOUR_MS,
    NOW_MS,
    OTHER_SUBJECT,
    SMALL,
    SUBJECT,
    DelayRig,
    batch_id_of,
    later,
)
from tidemill_delay.hours import Hour
from tidemill_journal.errors import CorruptLog
from tidemill_wire.batch import (
    CHECKED_FROM,
    STAMP_BYTES,
    STAMP_CRC,
    Flags,
    Origin,
    encode_batch,
    read_header,
)
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Column, Content, lay_out, offsets_of, read_entries
from tidemill_wire.commands import SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.fields import DEAD_PROPERTY, again_for
from tidemill_wire.settings import SettingsError

TICK_MS = 500


def bodies(rig: DelayRig) -> list[bytes]:
    return [body for _, _, body in rig.arrived]


def test_a_message_arrives_at_the_tick_after_its_time_and_not_before() -> None:
    rig = DelayRig()
    due = NOW_MS + 10_200
    assert rig.send([b"tide"], due).first_sequences == [0]
    rig.wait(10_200)
    assert rig.arrived == []
    rig.wait(TICK_MS)
    [(at_ms, identity, body)] = rig.arrived
    assert body == b"tide"
    assert due <= at_ms <= due + TICK_MS
    assert identity.endswith("-0")


def test_what_is_past_goes_at_once() -> None:
    rig = DelayRig()
    rig.send([b"late"], NOW_MS - 5_000)

    assert bodies(rig) == [b"late"]


def test_messages_of_one_batch_keep_their_ids_however_they_are_parted() -> None:
    rig = DelayRig()
    due = [NOW_MS + 3 * HOUR_MS, NOW_MS + 1_000, NOW_MS + 3 * HOUR_MS + 2_000, NOW_MS + 1_100]
    rig.send([b"a", b"b", b"c", b"d"], *due)
    rig.wait(4 * HOUR_MS)

    assert [body for _, _, body in rig.arrived] == [b"b", b"d", b"a", b"c"]
    assert [identity.rpartition("-")[2] for _, identity, _ in rig.arrived] == ["1", "3", "0", "2"]
    assert len({identity.rpartition("-")[0] for _, identity, _ in rig.arrived}) == 1


@pytest.mark.parametrize("death", ["restart", "power_cut"])
def test_what_was_answered_arrives_once_whatever_happens_in_between(death: str) -> None:
    rig = DelayRig()
    for number in range(40):
        rig.send([b"%d" % number], NOW_MS + (number * 37_000) % (5 * HOUR_MS))
        if number % 7 == 0:
            getattr(rig, death)()
    for _ in range(60):
        rig.wait(HOUR_MS // 10)
        getattr(rig, death)()

    assert sorted(bodies(rig), key=int) == [b"%d" % number for number in range(40)]


def test_a_broker_that_answers_nothing_is_dialled_anew() -> None:
    rig = DelayRig()
    rig.deaf = True
    rig.send([b"a"], NOW_MS + 1_000)
    rig.wait(14_000)
    assert rig.dropped == []
    rig.wait(3_000)
    assert rig.dropped == [BROKER]

    rig.deaf = False
    rig.meet()
    assert bodies(rig) == [b"a"]
    assert rig.delay.state.waiting == 0


def test_an_answer_of_the_broker_that_was_lost_is_no_second_message() -> None:
    rig = DelayRig()
    rig.send([b"a", b"b"], NOW_MS + 1_000)
    rig.deaf = True
    rig.wait(2_000)
    rig.deaf = False
    rig.restart()
    rig.wait(5_000)

    assert bodies(rig) == [b"a", b"b"]
    assert rig.delay.state.waiting == 0


def test_a_producer_counts_in_each_subject_apart() -> None:
    rig = DelayRig()
    for sequence in range(1, 8):
        rig.send_as(sequence, [b"a%d" % sequence], NOW_MS + 1_000)
    answers = [
        rig.send_as(sequence, [b"b%d" % sequence], NOW_MS + 1_000, subject=OTHER_SUBJECT)
        for sequence in (1, 2)
    ]
    assert [answer.first_sequences for answer in answers] == [[7], [8]]
    rig.power_cut()
    assert rig.send_as(2, [b"b2"], NOW_MS + 1_000, subject=OTHER_SUBJECT).first_sequences == [8]
    rig.wait(2_000)

    assert sorted(bodies(rig)) == [*(b"a%d" % number for number in range(1, 8)), b"b1", b"b2"]


def test_a_batch_that_is_sent_again_is_recognised_also_after_a_restart() -> None:
    rig = DelayRig()
    batch = later([b"once"], [NOW_MS + 2_000])
    for _ in range(2):
        answer = rig.ask(SendBatches(bytearray(batch)))
        assert isinstance(answer, Sent)
        assert (answer.first_sequences, answer.refused) == ([0], [])
        rig.restart()
    rig.wait(4_000)

    assert bodies(rig) == [b"once"]


def test_hours_that_are_over_and_done_leave_nothing_on_the_disk() -> None:
    rig = DelayRig()
    for number in range(30):
        rig.send([b"x" * 100], NOW_MS + number * 10_000)
    rig.wait(6 * HOUR_MS)
    rig.send([b"now"], 0)
    rig.wait(120_000)

    assert len(bodies(rig)) == 31
    assert len(rig.delay.state.hours) <= 1
    names = [name for name in rig.disk.names.cached if name.startswith("schedule/")]
    assert len(names) <= 3
    assert rig.delay.logs.messages.start > 0


def test_while_nobody_reaches_the_broker_messages_wait() -> None:
    rig = DelayRig()
    rig.away = True
    rig.restart()
    rig.send([b"a"], NOW_MS + 1_000)
    rig.wait(60_000)
    assert rig.arrived == []
    rig.away = False
    rig.meet()

    assert bodies(rig) == [b"a"]


def test_what_is_farther_away_than_allowed_is_refused_with_the_limit() -> None:
    rig = DelayRig()
    answer = rig.send([b"far"], NOW_MS + 800 * 86_400_000)
    [(_, _, detail)] = answer.refused

    assert "800.0 days ahead, 731 are allowed" in detail
    assert rig.delay.state.messages == 0


def test_a_subject_without_a_route_is_asked_for_and_waits() -> None:
    rig = DelayRig()
    rig.send([b"a"], NOW_MS + 1_000, subject="other")
    rig.wait(2_000)
    assert rig.delay.courier.wanted == {"other"}
    rig.delay.route("other", ("g0",), rig.now_ms)
    rig.pump()

    assert rig.delay.state.waiting == 0


def test_hours_of_another_length_are_refused_while_messages_wait_and_taken_when_none_does() -> None:
    rig = DelayRig()
    rig.send([b"a"], NOW_MS + 2 * HOUR_MS)
    right, rig.settings = rig.settings, replace(rig.settings, hour_ms=2 * HOUR_MS)
    for _ in range(2):
        with pytest.raises(SettingsError, match=f"in hours of {HOUR_MS}: set it to that"):
            rig.restart()
    rig.settings = right
    rig.restart()
    rig.wait(4 * HOUR_MS)
    assert (bodies(rig), rig.delay.state.hours) == ([b"a"], {})

    rig.settings = replace(right, hour_ms=2 * HOUR_MS)
    rig.restart()
    rig.send([b"b"], rig.now_ms + 3 * HOUR_MS)
    rig.wait(4 * HOUR_MS)
    assert bodies(rig) == [b"a", b"b"]


def test_damage_in_what_the_disk_had_refuses_the_start_and_is_no_torn_tail() -> None:
    rig = DelayRig()
    rig.send([b"a" * 100], NOW_MS + 2 * HOUR_MS)
    rig.wait(1_000)
    rig.send([b"b" * 100], NOW_MS + 2 * HOUR_MS)
    rig.wait(1_000)
    log = f"message/{0:020}.log"
    data = bytearray(read_file(rig.disk, log))
    data[150] ^= 1
    put_file(rig.disk, log, bytes(data))

    with pytest.raises(CorruptLog, match=re.escape(log)):
        rig.restart()


def test_a_damaged_checkpoint_is_passed_over_and_counted() -> None:
    rig = DelayRig(replace(SMALL, checkpoint_events=4))
    for number in range(8):
        rig.send([b"%d" % number], NOW_MS + HOUR_MS)
        rig.wait(1_000)
    checkpoints = files_of(rig.disk, "checkpoint")
    put_file(rig.disk, checkpoints[-1], b"")
    rig.restart()

    assert rig.report.checkpoints_passed_over == 1
    rig.wait(HOUR_MS + TICK_MS)
    assert sorted(bodies(rig)) == [b"%d" % number for number in range(8)]


def test_what_failed_in_a_group_goes_to_that_group_alone_when_it_is_due_and_once() -> None:
    rig = DelayRig()
    rig.broker.pull(10, group="g")
    rig.broker.pull(10, group="other")
    said = {"reason": "closed", "error": "", "place": "", "since": NOW_MS, "sequence": 40, "original": 40}
    content = Content(
        [b"far"], properties=[msgpack.packb({DEAD_PROPERTY: said})], attempts=[0], origins=["0" * 32 + "-7"]
    )
    due = NOW_MS + 3 * 24 * HOUR_MS
    rig.deaf = True  # the answer of the broker is lost, and it is sent again
    assert rig.send([b"far"], due, subject=again_for(SUBJECT, "g"), content=content).first_sequences == [0]
    rig.wait(due - rig.now_ms - 1)
    assert rig.arrived == []
    rig.wait(TICK_MS + 1)
    rig.deaf = False
    rig.restart()
    rig.wait(TICK_MS)

    [grant] = rig.broker.pull(10, group="g").grants
    assert (grant.subject, grant.attempts, grant.count) == (f"%dead%{SUBJECT}%g", 1, 1)
    assert not rig.broker.pull(10, group="other").grants
    assert rig.delay.state.waiting == 0


def test_what_is_for_a_group_that_is_not_there_waits_for_it() -> None:
    rig = DelayRig()
    said = {"reason": "", "error": "", "place": "", "since": NOW_MS, "sequence": 0, "original": 0}
    content = Content(
        [b"far"], properties=[msgpack.packb({DEAD_PROPERTY: said})], attempts=[0], origins=["0" * 32 + "-7"]
    )
    rig.send([b"far"], NOW_MS, subject=again_for(SUBJECT, "g"), content=content)
    assert rig.delay.courier.refused == {"not_found": 1}
    rig.broker.pull(10, group="g")
    rig.wait(60_000)

    assert [grant.count for grant in rig.broker.pull(10, group="g").grants] == [1]
    assert rig.delay.state.waiting == 0


@pytest.mark.parametrize("name", ["%again%orders", "%again%a b%g", "%dead%orders%g", "a b"])
def test_a_name_that_is_neither_a_subject_nor_for_a_group_is_refused(name: str) -> None:
    answer = DelayRig().send([b"x"], NOW_MS, subject=name)
    assert (answer.first_sequences, [number for _, number, _ in answer.refused]) == (
        [-1],
        [KIND_BY_NAME["invalid_subject"].number],
    )


class Untouched(dict[int, Hour]):
    """A calendar of which nobody may look at all hours."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("all hours of the calendar were looked at")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_a_message_costs_nothing_for_each_hour_of_the_calendar(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DelayRig(replace(SMALL, checkpoint_events=1000))
    for number in range(20):
        rig.send([b"far"], NOW_MS + (20 - number) * HOUR_MS)
    monkeypatch.setattr(rig.delay, "check", lambda: None)  # it does look at all of them
    rig.delay.state.hours = Untouched(rig.delay.state.hours)
    rig.send([b"near"], NOW_MS + 600)
    rig.wait(1_500)

    assert bodies(rig) == [b"near"]


def test_more_of_an_hour_is_loaded_as_soon_as_a_broker_has_taken_what_filled_the_wheel() -> None:
    rig = DelayRig(replace(SMALL, wheel_messages=4))
    rig.away = True
    rig.restart()
    for number in range(20):
        rig.send([b"%d" % number], NOW_MS + 2 * HOUR_MS + TICK_MS * number)
    rig.wait(2 * HOUR_MS + 20 * TICK_MS)
    rig.away = False
    rig.meet()

    assert sorted(bodies(rig), key=int) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("order", [1, -1])
def test_what_comes_into_an_hour_that_is_loaded_stays_within_the_memory_for_it(order: int) -> None:
    rig = DelayRig(replace(SMALL, wheel_messages=20))
    rig.send([b"0"], NOW_MS + 5_000)
    for number in range(1, 200)[::order]:
        rig.send([b"%d" % number], NOW_MS + 5_000 + 100 * number)
        assert rig.delay.wheel.size <= 20
    rig.wait(60_000)

    assert sorted(map(int, bodies(rig))) == list(range(200))
    assert rig.delay.state.waiting == 0


def strange(codec: Codec) -> tuple[bytearray, dict[int, tuple[int, int]]]:
    """Two messages for two hours, and a column that nobody knows; where its columns are."""
    texts = [b"a" * 600, b"b" * 600]
    deltas = array("q", [NOW_MS + ahead * HOUR_MS - CREATED_MS for ahead in (2, 4)]).tobytes()
    columns: list[tuple[Any, list[bytes]]] = [
        (Column.BODY_OFFSETS, [offsets_of(texts)]),
        (Column.BODIES, texts),
        (Column.DELIVER_DELTAS, [deltas]),
        (77, [b"tomorrow"]),
    ]
    origin = Origin(SUBJECT.encode(), 99, 1, batch_id_of(1), CREATED_MS, codec, Flags.DELAYED)
    batch = encode_batch(origin, 2, len(columns), lay_out(columns, codec))
    return batch, {
        kind: (entry[1], entry[2]) for kind, entry in read_entries(batch, 0, read_header(batch)).items()
    }


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_columns_of_a_newer_producer_do_no_harm_when_a_batch_is_parted(codec: Codec) -> None:
    rig = DelayRig()
    rig.ask(SendBatches(strange(codec)[0]))
    rig.wait(5 * HOUR_MS)

    assert bodies(rig) == [b"a" * 600, b"b" * 600]


def test_what_cannot_be_unpacked_is_refused_when_it_comes_and_not_found_out_when_it_is_parted() -> None:
    rig = DelayRig()
    batch, places = strange(Codec.LZ4)
    start, size = places[Column.BODIES]
    batch[start : start + size] = b"\xff" * size
    STAMP_CRC.pack_into(batch, STAMP_BYTES, crc32c(bytes(batch[CHECKED_FROM:])))
    answer = rig.ask(SendBatches(batch))
    assert isinstance(answer, Sent)

    assert "cannot be unpacked" in answer.refused[0][2]

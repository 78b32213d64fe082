"""Groups that want some tags: little is read and sent for them, and nothing that they want is passed over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, pulls
from samples.sifted import content_of, pull, send, shown
from tidemill.delivery import check_gathered
from tidemill_broker import filtered, sifting
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.snapshots import pack_state
from tidemill_broker.standings import conclude, sentence_of, standing_of
from tidemill_host.machine import Send
from tidemill_journal.entries import row_count
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, hash_text
from tidemill_wire.commands import Ack, Nack, Pull
from tidemill_wire.errors import KIND_BY_NAME, CorruptBatch
from tidemill_wire.filters import EVERYTHING, parse_filter

ROOMY = replace(TINY, segment_bytes=64 << 20, lease_ms=60_000)
VIP = parse_filter(["vip"], False)
BOTH = parse_filter(["vip", "eu"], True)
EITHER = parse_filter(["vip", "eu"], False)


def rig_with(*batches: list[list[str]], size: int = 8, codec: Codec = Codec.NONE) -> Rig:
    rig = Rig(ROOMY)
    for tags in batches:
        send(rig, content_of(tags, size), codec=codec)
    return rig


def sequences(rig: Rig, wanted=VIP, **more) -> list[int]:
    """All that is given, by as many pulls as it takes."""
    found: list[int] = []
    while messages := shown(pull(rig, wanted, **more)):
        found += [message.sequence for message in messages]
    return found


def group_of(rig: Rig, subject: str = SUBJECT):
    group = rig.broker.state.group_of(subject, "g")
    assert group is not None
    return group


class Meter:
    """What is read and sent, in bytes."""

    def __init__(self, rig: Rig) -> None:
        self.read = self.sent = 0
        read, deliver = rig.files.read, rig._deliver

        def counted_read(piece):
            self.read += piece.size
            return read(piece)

        def counted_deliver(send: Send) -> None:
            self.sent += len(send.head) + sum(piece.size for piece in send.slices)
            self.read -= sum(piece.size for piece in send.slices)  # the rig reads them to deliver them
            deliver(send)

        rig.files.read, rig._deliver = counted_read, counted_deliver


@pytest.mark.parametrize(
    "wanted, expected",
    [(VIP, [0, 2, 4]), (BOTH, [2]), (EITHER, [0, 1, 2, 4]), (parse_filter(["nobody"], False), [])],
)
def test_messages_with_any_or_all_of_the_tags_are_given(wanted, expected) -> None:
    rig = rig_with([["vip"], ["eu"], ["eu", "vip"]], [["new"], ["vip", "new"], []])

    assert sequences(rig, wanted) == expected
    assert sequences(rig, wanted) == []
    assert group_of(rig).reached == 6


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_many_of_a_batch_come_with_a_mask_as_the_batch_lies_in_the_log(codec) -> None:
    rig = rig_with([["vip"], [], ["vip"], ["vip"]], size=600, codec=codec)

    answer = pull(rig, VIP)

    assert [grant.mask for grant in answer.grants] == [b"\x0d"]
    assert [message.sequence for message in shown(answer)] == [0, 2, 3]


def test_few_of_a_batch_are_gathered_and_keep_their_ids() -> None:
    rig = rig_with([["vip"] if number == 70 else ["eu"] for number in range(100)], size=500)

    answer = pull(rig, VIP)

    [message] = shown(answer)
    assert message.sequence == 70
    assert message.identity.endswith("-70")
    assert len(answer.batches) < 1000


def test_few_of_a_compressed_batch_come_with_the_batch() -> None:
    rig = rig_with(
        [["vip"] if number in (7, 70) else [] for number in range(100)], size=500, codec=Codec.ZSTD
    )

    assert sequences(rig) == [7, 70]


def test_what_is_wanted_of_a_batch_without_a_gap_needs_no_mask() -> None:
    rig = rig_with([[], ["vip"], ["vip"], []])

    answer = pull(rig, VIP)

    assert [(grant.first_sequence, grant.count, grant.mask) for grant in answer.grants] == [(1, 2, b"")]


def test_batches_whose_word_lacks_a_tag_are_not_read() -> None:
    rig = rig_with(*([["eu"]] * 3 for _ in range(50)))
    meter = Meter(rig)

    assert sequences(rig) == []
    assert meter.read == 0
    assert rig.broker.counters.batches_skipped == 50
    assert rig.broker.counters.messages_skipped == 150


def test_one_message_of_ten_thousand_costs_less_than_two_percent_in_bytes_read_and_sent() -> None:
    """1,000 messages of 1 KiB a batch, and so many other tags that no batch's word lacks a bit."""
    rig = Rig(ROOMY)
    total = 0
    for number in range(20):
        tags = [
            ["vip"] if (number * 1000 + each) % 10_000 == 5_000 else [f"t{each % 97}"] for each in range(1000)
        ]
        send(rig, content_of(tags, 1024))
        total += 1000 * 1024
    meter = Meter(rig)

    assert sequences(rig) == [5_000, 15_000]
    print(f"read {meter.read / total:.2%}, sent {meter.sent / total:.2%}")
    assert meter.read < total * 0.02
    assert meter.sent < total * 0.02
    assert rig.broker.counters.bytes_sifted == meter.read


def test_collisions_of_words_are_passed_over_after_a_look_at_the_tags() -> None:
    rig = rig_with([[f"t{number}"] for number in range(100)])  # every bit of the word is set

    assert sequences(rig) == []
    assert rig.broker.counters.batches_sifted == 1
    assert rig.broker.counters.batches_skipped == 0


def test_failed_message_comes_again_alone() -> None:
    rig = rig_with([["vip"] if number == 70 else ["eu"] for number in range(100)], size=500)
    first = pulls(pull(rig, VIP))
    rig.ask(Nack("g", "c", SUBJECT, first, 0))
    rig.wait(1)

    answer = pull(rig, VIP)

    assert [(grant.count, grant.attempts) for grant in answer.grants] == [(1, 1)]
    assert [message.sequence for message in shown(answer)] == [70]
    assert len(answer.batches) < 1000


def test_acked_runs_are_single_messages_and_nothing_is_in_flight_between_them() -> None:
    rig = rig_with([["vip"], [], ["vip"], [], ["vip"]])
    given = pulls(pull(rig, VIP))

    assert group_of(rig).in_flight == 3
    rig.ask(Ack("g", "c", SUBJECT, [given[0], given[0]]))
    assert group_of(rig).in_flight == 2
    rig.ask(Ack("g", "c", SUBJECT, [given[0], given[0] + 2]))
    assert (group_of(rig).in_flight, group_of(rig).acked) == (0, 3)


def test_lag_counts_nothing_that_is_known_not_to_be_wanted() -> None:
    rig = rig_with([["eu"]] * 10)
    assert sequences(rig) == []

    group = group_of(rig)
    assert (group.cursor, group.reached) == (0, 10)
    send(rig, content_of([["eu"]] * 5))
    assert rig.broker.state.partitions[1].visible - group.reached == 5


def test_skip_is_written_when_it_is_worth_it_and_a_restart_begins_behind_it(monkeypatch) -> None:
    monkeypatch.setattr(filtered, "SKIP_MESSAGES", 100)
    rig = rig_with(*([["eu"]] * 30 for _ in range(7)))
    assert sequences(rig) == []
    assert group_of(rig).cursor == 210

    before = pack_state(rig.broker.state, 0, 0)
    rig.restart()
    assert group_of(rig).cursor == 210
    assert before.count(b"order.created") == 1
    meter = Meter(rig)
    assert sequences(rig) == []
    assert meter.read == 0


def test_waiting_pull_is_answered_when_something_wanted_comes_and_not_before() -> None:
    rig = rig_with([["eu"]])
    assert rig.ask(Pull("g", "c", [SUBJECT], 10, 1000, 5000, filter=VIP)) is None
    waiting = rig.correlation
    send(rig, content_of([["eu"]]))
    assert waiting not in rig.answers

    send(rig, content_of([["eu"], ["vip"]]))

    assert [message.sequence for message in shown(rig.answers[waiting])] == [3]


def test_long_backlog_is_looked_at_over_many_turns(monkeypatch) -> None:
    monkeypatch.setattr(filtered, "ROWS_A_TURN", 20)
    monkeypatch.setattr(filtered, "STEP_ROWS_MIN", 1)
    rig = rig_with(*([["eu"]] for _ in range(95)), [["vip"]])
    assert rig.ask(Pull("g", "c", [SUBJECT], 10, 1000, 5000, filter=VIP)) is None
    waiting, turns = rig.correlation, 0

    while waiting not in rig.answers:
        turns += 1
        rig.wait(1)

    assert turns >= 3
    assert [message.sequence for message in shown(rig.answers[waiting])] == [95]


def test_groups_that_find_no_seat_wait_in_line_and_all_are_served(monkeypatch) -> None:
    monkeypatch.setattr(sifting, "SEATS", 2)
    rig = rig_with([["vip"] if number == 3 else [] for number in range(40)], size=500)
    rig.holds_reads = True
    waiting = []
    for number in range(9):
        assert rig.ask(Pull(f"g{number}", "c", [SUBJECT], 10, 1 << 20, 5000, filter=VIP)) is None
        waiting.append(rig.correlation)
    while rig.reads:
        assert (
            len({rig.broker.serving._filtered.seats._tokens[read.token][0].group for read in rig.reads}) <= 2
        )
        rig.load()
        rig.pump()

    assert [[message.sequence for message in shown(rig.answers[one])] for one in waiting] == [[3]] * 9


def test_bytes_that_are_not_those_of_a_batch_go_to_the_consumer_who_says_so() -> None:
    """The broker does not judge: the whole batch is given, its sum is wrong, and the consumer nacks it."""
    rig = rig_with([["vip"] if number == 3 else [] for number in range(40)], size=500)
    [name] = [name for name in rig.disk.names.cached if name.startswith("message/")]
    inode = rig.disk.names.cached[name]
    place = 104 + 16 + 4  # where the first column lies
    inode.cached[place : place + 4] = b"\xff\xff\xff\xff"

    answer = pull(rig, VIP)

    assert [(grant.first_sequence, grant.count) for grant in answer.grants] == [(0, 40)]
    assert len(answer.batches) > 40 * 500


def rot(rig: Rig, old: bytes) -> None:
    """One bit of the log turns."""
    [name] = [name for name in rig.disk.names.cached if name.startswith("message/")]
    data = rig.disk.names.cached[name].cached
    data[data.index(old)] ^= 1


def test_rot_in_a_message_that_is_gathered_is_found_by_its_consumer() -> None:
    rig = rig_with([["vip"] if number == 3 else [] for number in range(40)], size=500)
    rot(rig, b"3 " + bytes(500))

    answer = pull(rig, VIP)

    [grant] = answer.grants
    batch = Batch(answer.batches)
    assert (grant.count, batch.header.messages) == (1, 1)
    batch.check()  # the broker's own sum is right
    with pytest.raises(CorruptBatch):
        check_gathered(batch)


def test_rot_in_tags_hides_no_message() -> None:
    rig = rig_with([["vip"] if number == 3 else [] for number in range(40)], size=500)
    rot(rig, hash_text(b"vip").to_bytes(8, "little"))

    assert [(grant.first_sequence, grant.count) for grant in pull(rig, VIP).grants] == [(0, 40)]


def test_pull_that_waits_sets_no_alarm_but_its_deadline() -> None:
    """No busy loop: what was looked at is not looked at again."""
    rig = rig_with([["eu"]] * 50)
    assert rig.ask(Pull("g", "c", [SUBJECT], 10, 1000, 5000, filter=VIP)) is None
    rig.wait(700)  # syncs are over
    before = replace(rig.broker.counters)
    woken = 0
    ticked = rig.broker.ticked

    def counted(now_ms: int) -> None:
        nonlocal woken
        woken += 1
        ticked(now_ms)

    rig.broker.ticked = counted
    rig.wait(4000)
    assert woken <= 10, "four seconds have four thousand milliseconds"
    assert rig.broker.counters == before


def test_rows_of_sealed_segments_are_passed_over_by_their_words_too() -> None:
    rig = Rig(replace(TINY, segment_bytes=2000, lease_ms=60_000))
    for number in range(60):
        send(rig, content_of([["vip" if number == 55 else "eu"]] * 3))
    rig.restart()  # no row of a sealed segment is in memory

    [run] = rig.broker.state.partitions[1].runs[:1]
    assert run.rows is None
    assert row_count(rig.broker.state.partitions[1].recent.sizes[0]) == 3
    assert sequences(rig) == [165, 166, 167]
    assert rig.broker.counters.batches_sifted <= 1


# -- whose filter it is ----------------------------------------------------------------------------------------------


def declared(rig: Rig, wanted) -> None:
    partition = rig.broker.state.partitions[1]
    settings = GroupSettings(tags=wanted.tags, all_tags=wanted.every, filter_declared=bool(wanted))
    rig.broker.members.declare_group(partition, "g", (0, 0), settings, rig.now_ms)


def test_declared_filter_holds_for_pulls_that_name_none_and_refuses_others() -> None:
    rig = rig_with([["vip"], ["eu"]])
    declared(rig, VIP)

    conflict = Pull("g", "c", [SUBJECT], 10, 1000, 0, filter=BOTH)
    assert rig.refused(conflict) == KIND_BY_NAME["filter_conflict"].number
    answer = pull(rig, EVERYTHING)
    assert [message.sequence for message in shown(answer)] == [0]
    assert answer.filter == VIP


def test_filter_of_a_pull_is_the_groups_and_may_change_while_nobody_else_is_there() -> None:
    rig = rig_with([["vip"], ["eu"]])
    other = rig.connect()
    assert [message.sequence for message in shown(pull(rig, VIP, messages=1))] == [0]

    conflict = Pull("g", "d", [SUBJECT], 10, 1000, 0, filter=EITHER)
    assert rig.refused(conflict, other) == KIND_BY_NAME["filter_conflict"].number
    send(rig, content_of([["eu"]]))
    rig.disconnect(rig.peers[0])
    assert sequences(rig, EITHER, consumer="d", peer=other) == [1, 2]
    rig.restart()
    assert rig.broker.state.group_of(SUBJECT, "g").settings.tags == EITHER.tags


def test_gathered_batch_that_is_sent_back_is_refused() -> None:
    rig = rig_with([["vip"] if number == 70 else [] for number in range(100)], size=500)
    gathered = bytearray(pull(rig, VIP).batches)
    from tidemill_wire.commands import SendBatches

    answer = rig.ask(SendBatches(gathered))

    assert [number for _, number, _ in answer.refused] == [KIND_BY_NAME["corrupt_batch"].number]


def test_why_says_which_filter_did_not_want_a_message() -> None:
    rig = rig_with([["vip"], ["eu"]])
    assert sequences(rig) == [0]

    group = group_of(rig)
    standings = [standing_of(group, number, tags) for number, tags in enumerate([("vip",), ("eu",)])]
    assert [conclude(standing, [], 0.0).state for standing in standings] == ["leased", "filtered"]
    assert "any of the tags vip" in sentence_of(standings[1], str)

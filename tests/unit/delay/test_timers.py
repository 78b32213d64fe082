"""What waits is found by its id and by its timer key, cancelled, and given another time; and what is gone is gone."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from samples.brokers import put_file, read_file
from samples.delays import HOUR_MS, NOW_MS, SMALL, SUBJECT, DelayRig, id_of
from tidemill_delay import finding
from tidemill_delay.hours import file_of, names_of
from tidemill_delay.snapshots import pack_state, unpack_state
from tidemill_wire.codec import Codec
from tidemill_wire.commands import Command, Failed, SendBatches, Sent
from tidemill_wire.timing import Cancel, Changed, ListTimers, Reschedule, Show, Target, TimerRow, Waiting

TICK_MS = 500
FAR = NOW_MS + 2 * HOUR_MS
FOR_EVER = 1 << 60


def by_id(sequence: int, index: int = 0) -> Target:
    return Target(id=id_of(sequence, index))


def by_key(key: str, subject: str = SUBJECT) -> Target:
    return Target(subject=subject, timer_key=key)


def bodies(rig: DelayRig) -> list[bytes]:
    return [body for _, _, body in rig.arrived]


def rows_of(answer: Command | None) -> list[TimerRow]:
    assert isinstance(answer, Waiting), answer
    return list(answer.rows)


def listed(rig: DelayRig, prefix: str = "", limit: int = 500, **options: int) -> list[str]:
    """The timer keys of all pages."""
    keys: list[str] = []
    after, since, until = "", options.get("since", 0), options.get("until", FOR_EVER)
    while True:
        answer = rig.ask(ListTimers(SUBJECT, prefix, since, until, after, limit))
        assert isinstance(answer, Waiting), answer
        assert len(answer.rows) <= limit
        keys += [row.timer_key for row in answer.rows]
        after = answer.after
        if not after:
            return keys


def test_what_is_cancelled_by_its_id_never_arrives() -> None:
    rig = DelayRig()
    rig.send([b"a", b"b", b"c"], FAR)
    assert rig.ask(Cancel(by_id(1, 1))) == Changed(1, 0)
    assert rig.ask(Cancel(by_id(1, 1))) == Changed(1, 0), "whoever asks again is told the same"
    assert rig.ask(Cancel(by_id(1, 3))) == Changed(0, 0)
    rig.wait(3 * HOUR_MS)

    assert bodies(rig) == [b"a", b"c"]
    assert rig.delay.state.cancelled == 1


def test_a_timer_key_means_all_messages_of_the_subject_that_wait_under_it() -> None:
    rig = DelayRig()
    rig.send([b"a", b"b"], FAR, timer_keys=["order-17", None])
    rig.send([b"c"], FAR + 2 * HOUR_MS, timer_keys=["order-17"])
    rig.send([b"d"], FAR, timer_keys=["order-17"], subject="other")
    rig.delay.route("other", ("g0",), rig.now_ms)
    assert rig.ask(Cancel(by_key("order-17"))) == Changed(2, 0)
    assert rig.ask(Cancel(by_key("order-17"))) == Changed(0, 0)
    rig.wait(6 * HOUR_MS)

    assert sorted(bodies(rig)) == [b"b", b"d"]


@pytest.mark.parametrize("death", ["restart", "power_cut"])
def test_what_was_answered_as_cancelled_stays_so_whatever_happens(death: str) -> None:
    rig = DelayRig()
    for number in range(30):
        rig.send([b"%d" % number], FAR + number * 20_000, timer_keys=[f"k{number % 10}"])
    for number in range(0, 10, 2):
        assert rig.ask(Cancel(by_key(f"k{number}"))) == Changed(3, 0)
        getattr(rig, death)()
    rig.wait(6 * HOUR_MS)

    assert sorted(bodies(rig), key=int) == [b"%d" % number for number in range(30) if number % 2]


def test_what_is_due_is_gone_and_arrives() -> None:
    rig = DelayRig()
    rig.send([b"past"], NOW_MS - 1)
    rig.send([b"due"], NOW_MS + 100)
    assert rig.ask(Cancel(by_id(2))) == Changed(1, 0)
    rig.send([b"tick"], NOW_MS + 400)
    rig.away = True
    rig.restart()
    rig.wait(TICK_MS)
    assert rig.ask(Cancel(by_id(1))) == Changed(0, 1)
    assert rig.ask(Cancel(by_id(3))) == Changed(0, 1)
    assert rig.ask(Reschedule(by_id(3), FAR)) == Changed(0, 1)
    rig.away = False
    rig.meet()

    assert bodies(rig) == [b"past", b"tick"]


def test_a_clock_that_stands_before_the_tick_again_cancels_nothing_that_may_have_left() -> None:
    """It was sent, nobody answered, the service was killed, and the clock was set back."""
    rig = DelayRig()
    rig.send([b"sent"], NOW_MS + 1_000)
    rig.send([b"waits"], NOW_MS + 30_000)
    rig.deaf = True
    rig.wait(1_000)
    assert bodies(rig) == [b"sent"]
    rig.disk.kill()
    rig.now_ms = NOW_MS - 20_000
    rig.start()
    assert rig.ask(Cancel(by_id(1))) == Changed(0, 1)
    assert rig.ask(Cancel(by_id(2))) == Changed(1, 0)
    rig.deaf = False
    rig.wait(60_000)

    assert bodies(rig) == [b"sent"]
    assert rig.delay.state.waiting == 0


def test_nothing_of_a_tick_leaves_before_the_disk_knows_that_it_has_begun() -> None:
    rig = DelayRig()
    rig.send([b"a"], NOW_MS + 1_000)
    rig.holds_syncs = True
    rig.wait(1_200)
    assert rig.arrived == []
    assert rig.ask(Cancel(by_id(1))) is None
    rig.sync()
    rig.load()
    rig.pump()

    assert bodies(rig) == [b"a"]


def test_a_cancel_is_answered_when_the_disk_has_it() -> None:
    rig = DelayRig()
    rig.send([b"a"], FAR)
    rig.holds_syncs = True
    assert rig.ask(Cancel(by_id(1))) is None
    assert rig.delay.state.cancelled == 1
    rig.sync()

    assert list(rig.answers.values()) == [Changed(1, 0)]


def test_what_has_another_time_arrives_then_and_once_under_its_id() -> None:
    rig = DelayRig()
    rig.send([b"a", b"b", b"c"], FAR, timer_keys=["one", "two", "one"])
    assert rig.ask(Reschedule(by_key("one"), NOW_MS + 10_000)) == Changed(2, 0)
    assert rig.ask(Reschedule(by_id(1, 2), NOW_MS + 20_000)) == Changed(1, 0)
    assert rig.ask(Reschedule(by_id(1, 1), FAR + 2 * HOUR_MS)) == Changed(1, 0)
    rig.wait(10_500)
    assert rig.arrived == [(NOW_MS + 10_000, id_of(1, 0), b"a")]
    rig.wait(10_000)
    assert rig.arrived[1:] == [(NOW_MS + 20_000, id_of(1, 2), b"c")]
    rig.wait(5 * HOUR_MS)

    assert rig.arrived[2:] == [(FAR + 2 * HOUR_MS, id_of(1, 1), b"b")]
    assert rig.ask(Cancel(by_key("two"))) in (Changed(0, 1), Changed(0, 0))


@pytest.mark.parametrize("death", ["restart", "power_cut"])
@pytest.mark.parametrize("events", [1, 1000])
def test_another_time_outlives_any_end(death: str, events: int) -> None:
    """With a checkpoint behind it, and without."""
    rig = DelayRig(replace(SMALL, checkpoint_events=events))
    for number in range(12):
        rig.send([b"%d" % number], FAR, timer_keys=[f"k{number}"])
    for number in range(12):
        assert rig.ask(Reschedule(by_key(f"k{number}"), FAR + (number - 6) * HOUR_MS // 4)) == Changed(1, 0)
        if number % 3 == 0:
            getattr(rig, death)()
            rig.wait(2_000)
    rig.wait(5 * HOUR_MS)

    assert sorted(bodies(rig), key=int) == [b"%d" % number for number in range(12)]
    assert [at_ms for at_ms, _, _ in rig.arrived] == sorted(
        -(-(FAR + (number - 6) * HOUR_MS // 4) // TICK_MS) * TICK_MS for number in range(12)
    )


def test_what_was_compressed_is_moved_and_sent_in_parts_like_any_other() -> None:
    rig = DelayRig()
    texts = [b"%d " % number + b"tide " * 300 for number in range(4)]
    rig.send(texts, FAR, FAR, FAR + 5_000, FAR + 5_000, codec=Codec.LZ4, timer_keys=["a", "b", "c", "d"])
    assert rig.ask(Reschedule(by_key("b"), FAR + 1_000)) == Changed(1, 0)
    rig.wait(3 * HOUR_MS)

    assert bodies(rig) == [texts[0], texts[1], *texts[2:]]


def test_timers_are_listed_by_prefix_and_time_in_pages() -> None:
    rig = DelayRig()
    for number in range(12):
        keys = [f"order-{number}", None, f"report-{number}"]
        rig.send([b"x", b"y", b"z"], FAR + number * HOUR_MS, timer_keys=keys)
    rig.ask(Cancel(by_key("order-3")))
    orders = [f"order-{number}" for number in range(12) if number != 3]

    for limit in (1, 2, 5, 500):
        assert listed(rig, "order-", limit) == orders
        assert len(listed(rig, "", limit)) == 23
    assert listed(rig, "order-", since=FAR + HOUR_MS, until=FAR + 5 * HOUR_MS) == [
        "order-1",
        "order-2",
        "order-4",
    ]
    assert listed(rig, "nothing") == []


def test_a_list_looks_only_so_far_at_a_time_and_goes_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill_delay.asking.LIST_BYTES", 100)
    monkeypatch.setattr(finding, "STEP_ROWS", 3)
    rig = DelayRig()
    for number in range(10):
        rig.send([b"x"], FAR + number, timer_keys=[f"k{number}"])

    assert listed(rig) == [f"k{number}" for number in range(10)]
    first = rig.ask(ListTimers(SUBJECT, "", 0, FOR_EVER, "", 500))
    assert isinstance(first, Waiting)
    assert len(first.rows) < 5


def test_a_message_that_waits_is_shown_with_its_body() -> None:
    rig = DelayRig()
    rig.send([b"tide"], FAR, timer_keys=["k"])
    row = TimerRow(id_of(1), SUBJECT, "k", FAR, NOW_MS, 4, b"tide")

    assert rows_of(rig.ask(Show(by_key("k")))) == [row]
    assert rows_of(rig.ask(Show(by_id(1)))) == [row]
    assert rows_of(rig.ask(Show(by_id(2)))) == []
    rig.wait(3 * HOUR_MS)
    assert rows_of(rig.ask(Show(by_id(1)))) == []


def test_one_look_answers_all_who_wait_and_each_as_if_it_were_alone() -> None:
    rig = DelayRig()
    rig.send([b"a", b"b"], FAR, timer_keys=["k", "k"])
    rig.holds_reads = True
    asked = [
        Show(by_id(1)), Cancel(by_id(1, 1)), Reschedule(by_key("k"), FAR + 5_000), Reschedule(by_id(1), FAR + 9_000),
        ListTimers(SUBJECT, "", 0, FOR_EVER, "", 500), Cancel(by_id(1)), Show(by_key("k")),
    ]  # fmt: skip
    for command in asked:
        assert rig.ask(command) is None
    rig.holds_reads = False
    rig.load()
    rig.pump()
    answers = list(rig.answers.values())

    assert len(answers) == len(asked)
    assert [row.body for row in rows_of(answers[0])] == [b"a"]
    assert answers[1:4] == [Changed(1, 0), Changed(1, 0), Changed(1, 0)]
    assert [row.due_ms for row in rows_of(answers[4])] == [FAR + 9_000]
    assert answers[5] == Changed(1, 0)
    assert rows_of(answers[6]) == []


def test_many_questions_to_which_there_is_no_answer_are_answered() -> None:
    rig = DelayRig()
    rig.send([b"a"], FAR)
    rig.holds_reads = True
    assert rig.ask(Show(by_id(1))) is None
    for _ in range(1500):
        assert rig.ask(ListTimers(SUBJECT, "", 0, 1, "", 500)) is None
    rig.holds_reads = False
    rig.load()
    rig.pump()

    assert list(rig.answers.values())[1:] == 1500 * [Waiting([])]


def test_what_is_too_far_ahead_or_replaces_others_is_refused() -> None:
    rig = DelayRig()
    rig.send([b"a"], FAR)
    answer = rig.ask(Reschedule(by_id(1), NOW_MS + 800 * 86_400_000))
    assert isinstance(answer, Failed)
    assert "800.0 days ahead, 731 are allowed" in answer.detail
    rig.send([b"b"], FAR)
    logs = rig.delay.logs.messages
    before = logs.end
    assert rig.ask(Reschedule(by_id(2), FAR + 1)) == Changed(1, 0)
    file, at = logs.locate(before)
    answer = rig.ask(SendBatches(bytearray(read_file(rig.disk, file)[at:])))
    assert isinstance(answer, Sent)
    assert "replaces another one" in answer.refused[0][2]


def test_names_that_cannot_be_read_are_said_so_and_delivery_goes_on() -> None:
    rig = DelayRig()
    rig.send([b"a"], FAR)
    put_file(rig.disk, names_of(FAR // HOUR_MS * HOUR_MS), b"")
    answer = rig.ask(Cancel(by_id(1)))
    assert isinstance(answer, Failed)
    assert "names of messages that wait cannot be read" in answer.detail
    rig.wait(3 * HOUR_MS)

    assert bodies(rig) == [b"a"]


def test_hours_of_a_former_version_have_no_names_and_are_delivered_as_ever() -> None:
    rig = DelayRig()
    rig.send([b"old"], FAR, timer_keys=["k"])
    hour = FAR // HOUR_MS * HOUR_MS
    rig.delay.state.hours[hour].names = 0
    rig.delay.keeping.checkpoint(rig.now_ms)
    rig.pump()
    rig.wait(2_000)
    put_file(rig.disk, names_of(hour), b"")
    rig.restart()
    rig.send([b"new"], FAR, timer_keys=["k"])
    assert read_file(rig.disk, names_of(hour)) != b""
    assert rig.ask(Cancel(by_key("k"))) == Changed(1, 0)
    rig.wait(3 * HOUR_MS)

    assert bodies(rig) == [b"old"]


def test_a_hash_only_says_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("names", "asking"):
        monkeypatch.setattr(f"tidemill_delay.{module}.hash_text", lambda _text: 7)
    rig = DelayRig()
    for number in range(6):
        rig.send([b"%d" % number, b"+%d" % number], FAR, timer_keys=[f"k{number}", None])
    assert rig.ask(Cancel(by_key("k2"))) == Changed(1, 0)
    assert rig.ask(Cancel(by_key("k9"))) == Changed(0, 0)
    assert rig.ask(Cancel(by_id(4, 1))) == Changed(1, 0)
    assert rig.ask(Reschedule(by_id(1), NOW_MS + 1_000)) == Changed(1, 0)
    rig.wait(3 * HOUR_MS)

    left = [b"0", b"+0", b"1", b"+1", b"+2", b"3", b"4", b"+4", b"5", b"+5"]
    assert sorted(bodies(rig)) == sorted(left)
    assert bodies(rig)[0] == b"0"


def test_a_damaged_piece_is_said_to_whoever_asks_for_it_and_harms_nobody_else() -> None:
    rig = DelayRig()
    rig.send([b"damaged"], FAR)
    rig.send([b"good"], FAR)
    file = file_of(FAR // HOUR_MS * HOUR_MS)
    data = bytearray(read_file(rig.disk, file))
    data[60] ^= 1
    put_file(rig.disk, file, bytes(data))
    answer = rig.ask(Cancel(by_id(1)))
    assert isinstance(answer, Failed)
    assert "checksum" in answer.detail
    assert rig.ask(Cancel(by_id(2))) == Changed(1, 0)


def test_a_checkpoint_of_a_version_without_timers_is_read() -> None:
    rig = DelayRig()
    rig.send([b"a", b"b"], FAR)
    said = msgpack.unpackb(pack_state(rig.delay.state, 5, 6), strict_map_key=False)
    del said["begun"]
    said["hours"] = [row[:4] for row in said["hours"]]
    state, *positions = unpack_state(msgpack.packb(said))

    assert positions == [5, 6]
    [hour] = state.hours.values()
    assert (hour.count, hour.names, hour.cancelled.count, state.begun_ms) == (2, 0, 0, 0)


def test_by_an_id_only_who_may_send_there_changes_anything() -> None:
    rig = DelayRig()
    rig.send([b"a", b"b"], FAR)

    def denied(_subject: str) -> bool:
        return False

    for command in (
        Cancel(by_id(1), denied),
        Reschedule(by_id(1), FAR + 1, denied),
        Show(by_id(1), denied),
    ):
        refused = rig.ask(command)
        assert isinstance(refused, Failed), command
        assert refused.error.kind.name == "forbidden"
        assert "granted" in refused.detail
    assert [row.due_ms for row in rows_of(rig.ask(Show(by_id(1), lambda subject: subject == SUBJECT)))] == [
        FAR
    ]
    assert rig.ask(Cancel(by_id(1), lambda subject: subject == SUBJECT)) == Changed(1, 0)
    assert rig.ask(Cancel(by_id(7), denied)) == Changed(0, 0), "an id of nothing is nobody's"

"""A burial is two writes, in two logs: whatever a power cut leaves of them, a message is alive or dead, not both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, Rig, files_of, pulls, put_file, read_file, spans
from samples.graves import GRAVE, HASTY, ROOMY, bodies, hasty_rig, letters, living, reject, twin
from tidemill_broker.action_kinds import ActionKind
from tidemill_broker.actions import Buried
from tidemill_broker.burials import Burials
from tidemill_broker.ranges import covers
from tidemill_ledger.scanning import RecordScanner
from tidemill_wire.commands import Ack, Done, Nack, Redrive

MESSAGES, ACTIONS = (f"{folder}/{0:020}.log" for folder in ("message", "action"))
PROMPT = replace(ROOMY, consumer_gone_ms=1)


class Grave:
    """A rig, and how long its two logs were at each step of a burial."""

    def __init__(self, *sent: bytes) -> None:
        self.rig = rig = hasty_rig(broker=PROMPT)
        self.sent = sent or (b"tide", b"mill")
        rig.send(*self.sent)
        self.given = rig.pull()
        rig.holds_reads = True
        self.alive = self.sizes()
        reject(rig, self.given)
        self.doomed = self.sizes()
        rig.holds_reads = False
        rig.load()
        rig.pump()
        self.buried = self.sizes()
        assert living(rig).buried == len(self.sent)

    def sizes(self) -> tuple[int, int]:
        return len(read_file(self.rig.disk, MESSAGES)), len(read_file(self.rig.disk, ACTIONS))

    def position_of(self, kind: ActionKind) -> int:
        """Where the last record of a kind begins."""
        data = read_file(self.rig.disk, ACTIONS)
        records = RecordScanner(lambda at, size: data[at : at + size], 0, len(data), 0)
        return max(record.position for record in records if record.kind == kind)

    def cut(self, messages: int, actions: int) -> Rig:
        """A power cut leaves so much of both logs."""
        rig = self.rig
        for file, size in ((MESSAGES, messages), (ACTIONS, actions)):
            put_file(rig.disk, file, read_file(rig.disk, file)[:size])
        rig.restart()
        return rig

    def settle(self) -> None:
        """What a consumer holds is given up, and what is doomed is buried."""
        self.rig.wait(10_000)


def test_copy_and_action_are_a_burial() -> None:
    grave = Grave()
    rig = grave.cut(*grave.buried)

    assert bodies(rig) == list(grave.sent)
    assert (living(rig).buried, living(rig).failed) == (2, {})


def test_copy_without_its_action_is_a_burial() -> None:
    grave = Grave()
    rig = grave.cut(grave.buried[0], grave.position_of(ActionKind.DEAD))

    assert (living(rig).buried, living(rig).failed) == (2, {})
    grave.settle()
    assert bodies(rig) == list(grave.sent), "once"
    rig.restart()
    assert living(rig).buried == 2


@pytest.mark.parametrize("kind", [ActionKind.SUBJECT, ActionKind.GROUP])
def test_copy_whose_subject_or_group_was_not_written_is_a_burial_and_can_be_redriven(
    kind: ActionKind,
) -> None:
    grave = Grave()
    rig = grave.cut(grave.buried[0], grave.position_of(kind))

    assert (living(rig).buried, living(rig).failed) == (2, {})
    assert rig.ask(Redrive(SUBJECT, "g", [])) == Done([], 2)
    assert [grant.subject for grant in rig.pull().grants] == [GRAVE]
    rig.restart()
    assert living(rig).buried == 2
    assert sum(delivery.count for one in twin(rig).consumers.values() for delivery in one.held()) == 2


def test_action_without_its_copy_is_no_burial() -> None:
    grave = Grave()
    rig = grave.cut(grave.doomed[0], grave.buried[1])
    grave.settle()

    assert bodies(rig) == list(grave.sent)
    assert (living(rig).buried, living(rig).failed) == (2, {})


def test_copy_that_is_torn_is_no_burial() -> None:
    grave = Grave()
    rig = grave.cut(grave.buried[0] - 8, grave.buried[1])
    grave.settle()

    assert bodies(rig) == list(grave.sent)
    assert living(rig).buried == 2


def test_with_both_lost_the_message_is_buried_later() -> None:
    grave = Grave()
    rig = grave.cut(*grave.doomed)
    assert list(living(rig).doomed) == [0]
    grave.settle()

    assert bodies(rig) == list(grave.sent)


def test_with_the_failure_lost_the_message_is_alive_and_its_copy_is_not_wanted() -> None:
    grave = Grave()
    rig = grave.cut(grave.buried[0], grave.alive[1])
    assert (living(rig).buried, living(rig).in_flight) == (0, 2)
    assert rig.ask(Redrive(SUBJECT, "g", [])) == Done([], 0)
    rig.wait(1000)
    again = rig.pull()
    assert spans(again) == [(0, 2, 1)]
    low = pulls(again)[0]
    rig.ask(Ack("g", "c", SUBJECT, [low, low]))
    rig.ask(Nack("g", "c", SUBJECT, [low + 1, low + 1], reject=True))

    assert rig.ask(Redrive(SUBJECT, "g", [])) == Done([], 1)
    rig.restart()
    assert (living(rig).acked, living(rig).buried, twin(rig).handled) == (1, 1, [0, 2])


def test_copy_that_is_not_wanted_stays_so_when_the_same_logs_are_replayed_again() -> None:
    grave = Grave()
    rig = grave.cut(grave.buried[0], grave.alive[1])
    rig.wait(1000)
    rig.ask(Ack("g", "c", SUBJECT, pulls(rig.pull())))
    for _ in range(3):
        rig.restart()
        assert (living(rig).acked, living(rig).buried, twin(rig).handled) == (2, 0, [0, 1])


def test_burial_that_was_undone_and_done_again_is_one_when_the_same_logs_are_replayed() -> None:
    """The old action comes first, and the message is where the new copy is."""
    grave = Grave()
    rig = grave.cut(grave.doomed[0], grave.buried[1])
    grave.settle()
    for _ in range(3):
        rig.restart()
        assert (living(rig).buried, living(rig).failed) == (2, {})
    grave.settle()
    assert bodies(rig) == list(grave.sent)


def test_position_of_a_lost_copy_that_another_batch_has_taken_says_nothing() -> None:
    grave = Grave()
    put_file(grave.rig.disk, MESSAGES, read_file(grave.rig.disk, MESSAGES)[: grave.doomed[0]])
    rig = grave.rig
    rig.holds_reads = True
    rig.restart()
    rig.send(b"another")
    rig.restart()

    assert list(living(rig).doomed) == [0]
    rig.holds_reads = False
    rig.load()
    rig.pump()
    grave.settle()
    assert bodies(rig) == list(grave.sent)


def test_checkpoint_between_two_burials_is_no_reason_to_bury_again() -> None:
    grave = Grave()
    rig = grave.rig
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    rig.send(b"third")
    reject(rig, rig.pull())
    rig.restart()

    assert bodies(rig) == [*grave.sent, b"third"]
    assert (living(rig).buried, living(rig).failed) == (3, {})


def test_burial_in_pieces_may_lose_any_of_them() -> None:
    """Four copies, of which the log has two; whatever there is of the actions, each message is buried once."""
    sent = [b"%d" % index + bytes(400_000) for index in range(7)]
    whole = Grave(*sent)
    data = {file: read_file(whole.rig.disk, file) for file in (MESSAGES, ACTIONS)}
    scanner = RecordScanner(lambda at, size: data[ACTIONS][at : at + size], 0, len(data[ACTIONS]), 0)
    ends = [record.position + record.length for record in scanner if record.position >= whole.doomed[1]]
    piece = (whole.buried[0] - whole.doomed[0]) // 7 * 2
    for pieces in range(5):
        for end in (whole.doomed[1], *ends):
            grave = Grave(*sent)
            rig = grave.cut(min(whole.doomed[0] + pieces * piece + 4000, whole.buried[0]), end)
            grave.settle()

            found = letters(rig)
            assert sorted(letter.known["sequence"] for letter in found) == list(range(7)), (pieces, end)
            assert sorted(letter.body for letter in found) == sent
            assert (living(rig).buried, living(rig).failed) == (7, {})


def test_redriven_dead_letter_whose_second_copy_is_lost_is_copied_again() -> None:
    """The twin's sequences are not taken for those of the group that lives."""
    rig = hasty_rig(broker=PROMPT)
    rig.send(b"a", b"b", b"c")
    low = pulls(rig.pull())[0]
    rig.ask(Nack("g", "c", SUBJECT, [low + 2, low + 2], reject=True))
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    rig.ask(Redrive(SUBJECT, "g", []))
    given = rig.pull()
    before = len(read_file(rig.disk, MESSAGES))
    reject(rig, given)
    whole = {file: read_file(rig.disk, file) for file in (MESSAGES, ACTIONS)}
    for size in (len(whole[MESSAGES]), before):
        put_file(rig.disk, MESSAGES, whole[MESSAGES][:size])
        put_file(rig.disk, ACTIONS, whole[ACTIONS])
        rig.restart()
        assert bool(twin(rig).doomed) is (size == before)
        assert living(rig).in_flight == 2
        rig.wait(1)
        rig.restart()
        assert (living(rig).buried, twin(rig).buried) == (1, 1)


def test_dropped_messages_stay_dropped() -> None:
    rig = hasty_rig(replace(HASTY, dead_letters=False))
    rig.send(b"tide")
    reject(rig, rig.pull())
    for _ in range(2):
        rig.restart()
        assert (living(rig).buried, living(rig).failed) == (1, {})


def test_burial_whose_copy_has_expired_since_the_checkpoint_is_not_undone() -> None:
    """The checkpoints that came since cannot be read."""
    rig = hasty_rig(
        replace(HASTY, dead_letter_seconds=60), replace(PROMPT, segment_bytes=1024, retention_seconds=10**6)
    )
    rig.send(b"tide")
    reject(rig, rig.pull())
    start = rig.broker.logs.messages.end
    rig.broker.state.partitions[1].configure(
        replace(rig.broker.state.partitions[1].settings, retention_seconds=60)
    )
    rig.fill(12)
    rig.ask(Ack("g", "c", SUBJECT, pulls(rig.pull())))
    rig.wait(200_000)
    assert rig.broker.logs.messages.start >= start
    for file in files_of(rig.disk, "checkpoint"):
        put_file(rig.disk, file, b"torn")
    rig.restart()

    assert (living(rig).buried, living(rig).failed) == (1, {})


def test_copy_that_was_not_wanted_speaks_for_no_later_burial() -> None:
    grave = Grave()
    rig = grave.cut(grave.buried[0], grave.alive[1])
    rig.wait(1000)
    before = len(read_file(rig.disk, MESSAGES))
    reject(rig, rig.pull())
    assert living(rig).buried == 2
    put_file(rig.disk, MESSAGES, read_file(rig.disk, MESSAGES)[:before])  # the power takes the second copy
    rig.restart()
    assert list(living(rig).doomed) == [0]
    grave.settle()

    waiting = [letter for letter in letters(rig) if not covers(twin(rig).handled, letter.sequence)]
    assert [letter.body for letter in waiting] == list(grave.sent)
    rig.restart()
    assert (living(rig).buried, living(rig).failed) == (2, {})


def test_second_action_of_one_burial_says_where_the_copy_is() -> None:
    """Versions that undid a burial without a word wrote such logs."""
    rig = hasty_rig(broker=PROMPT)
    rig.send(b"tide")
    rig.holds_reads = True
    reject(rig, rig.pull())
    state = rig.broker.state
    burials = Burials(state)
    lost, kept = Buried(1, 0, 1, position=64), Buried(1, 0, 1, position=8)
    assert burials.note(lost)
    state.apply(lost)
    assert not burials.note(kept)

    assert burials.settle(kept_from=32) == [], "the first copy would have to be there"


def test_burial_that_was_undone_fits_to_what_was_done_with_its_message_later() -> None:
    """The power took the message, too: a pull that does not find it makes it void, in every replay."""
    grave = Grave()
    rig = grave.cut(0, grave.buried[1])
    rig.send(b"another")
    rig.wait(1000)
    rig.pull()
    assert living(rig).failed == {}
    for _ in range(2):
        rig.restart()
        assert (living(rig).failed, living(rig).buried) == ({}, 0)

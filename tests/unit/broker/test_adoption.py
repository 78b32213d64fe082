"""Failures of another broker's messages: given to their group again here, with their attempts, and to nobody else."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from samples.brokers import NOW_MS, SUBJECT, Rig, batch_of
from samples.graves import GRAVE, HASTY, acks, bodies, declare, hasty_rig, letters, living
from tidemill_broker.gate import Told
from tidemill_broker.graves import waiting
from tidemill_broker.group_settings import GroupSettings
from tidemill_wire.columns import Content, split_batches
from tidemill_wire.commands import Ack, Adopt, Done, Failed, Nack, Pull, Pulled, SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.fields import DEAD_PROPERTY, again_for

ELSEWHERE = "0" * 32 + "-7"
AGAIN = again_for(SUBJECT, "g")


def adopt_of(body: bytes = b"moved", number: int = 1, **more: object) -> Adopt:
    """A message with the sequence 40 at its broker, which gave it out twice before."""
    content = Content([body], ["k"], [("t",)], properties=[msgpack.packb({"a": 1})], origins=[ELSEWHERE])
    batch = batch_of(producer=(1 << 63) + number, sequence=1, content=content)
    batch[8:16] = (40).to_bytes(8, "little")
    said = Adopt("g", SUBJECT, 2, -1, "no amount", "ValueError", "shop.py:7 in pay", batch=memoryview(batch))
    return replace(said, **more)  # type: ignore[arg-type]


@pytest.fixture
def rig() -> Rig:
    """The group consumes here, too, and has handled what was there."""
    rig = hasty_rig()
    rig.send(b"mine")
    for command in acks(rig.pull(10)):
        rig.ask(command)
    return rig


def adopt(rig: Rig, command: Adopt) -> int:
    answer = rig.ask(command)
    assert isinstance(answer, Done), answer
    return answer.count


def given(rig: Rig) -> Pulled:
    rig.wait(60_000)
    return rig.pull(10)


def test_adopted_message_is_given_to_its_group_with_all_it_had_and_its_attempts(rig: Rig) -> None:
    rig.pull(10, group="other")
    assert adopt(rig, adopt_of()) == 1
    answer = given(rig)

    [grant] = [one for one in answer.grants if one.subject == GRAVE]
    assert grant.attempts == 3
    [batch] = [one for one in split_batches(answer.batches) if one.bodies() == [b"moved"]]
    assert (batch.keys(), [list(tags) for tags in batch.tags()], batch.origins()) == (
        ["k"],
        [["t"]],
        [ELSEWHERE],
    )
    properties = msgpack.unpackb(batch.properties()[0])
    assert properties["a"] == 1
    known = properties[DEAD_PROPERTY]
    assert (known["reason"], known["error"], known["original"]) == ("no amount", "ValueError", 40)
    assert {one.subject for one in rig.pull(10, group="other").grants} <= {SUBJECT}


def test_a_subject_that_meta_may_remove_takes_only_what_it_has_taken_before(rig: Rig) -> None:
    """What comes after its broker has said that nothing is left would go with it."""
    assert adopt(rig, adopt_of()) == 1
    rig.broker.intake.gate.obey(Told(1, "RW", frozenset({SUBJECT}), emptying=(SUBJECT,)))

    assert rig.refused(adopt_of(number=2)) == KIND_BY_NAME["read_only"].number
    assert adopt(rig, adopt_of()) == 1
    rig.broker.intake.gate.obey(Told(2, "RW", frozenset({SUBJECT})))
    assert adopt(rig, adopt_of(number=2)) == 1


def test_consumers_of_another_partition_of_the_subject_are_given_it(rig: Rig) -> None:
    """The route leads to that one only: nobody asks for the first any more."""
    further = f"{SUBJECT}#1"
    rig.pull(10, subjects=[further])
    adopt(rig, adopt_of())
    rig.wait(60_000)
    assert [(one.subject, one.attempts) for one in rig.pull(10, subjects=[further]).grants] == [(GRAVE, 3)]


def test_consumers_of_another_partition_who_wait_are_given_it_when_it_comes(rig: Rig) -> None:
    assert rig.ask(Pull("g", "c", [f"{SUBJECT}#1"], 10, 1 << 20, 300_000, -1)) is None
    asked = rig.correlation
    adopt(rig, adopt_of())
    rig.wait(60_000)
    answer = rig.answers.pop(asked)
    assert isinstance(answer, Pulled)
    assert [one.subject for one in answer.grants] == [GRAVE]


def test_what_is_said_twice_is_adopted_once(rig: Rig) -> None:
    assert [adopt(rig, adopt_of()), adopt(rig, adopt_of())] == [1, 1]
    assert adopt(rig, adopt_of(b"another", 2)) == 1
    assert bodies(rig) == [b"moved", b"another"]
    assert sum(one.count for one in given(rig).grants if one.subject == GRAVE) == 2


def test_copy_whose_action_a_power_cut_took_is_given_when_it_is_said_again(rig: Rig) -> None:
    """A rejected one leaves a copy and no such action, as the power cut does."""
    adopt(rig, adopt_of(reject=True))
    assert not [one for one in given(rig).grants if one.subject == GRAVE]
    for _ in range(2):
        adopt(rig, adopt_of())
    assert [one.count for one in given(rig).grants if one.subject == GRAVE] == [1]


def test_rejected_message_is_a_dead_letter_here_and_given_to_nobody(rig: Rig) -> None:
    adopt(rig, adopt_of(reject=True))
    assert not [one for one in given(rig).grants if one.subject == GRAVE]
    assert bodies(rig) == [b"moved"]
    assert waiting(rig.broker.state, living(rig)) == 1


def test_rejected_message_is_dropped_and_counted_where_no_dead_letters_are_kept(rig: Rig) -> None:
    declare(rig, replace(HASTY, dead_letters=False))
    for _ in range(2):
        adopt(rig, adopt_of(reject=True))
    assert (waiting(rig.broker.state, living(rig)), rig.broker.counters.dead_dropped) == (0, 1)


def test_delay_is_kept_and_the_policy_counts_the_attempts_before(rig: Rig) -> None:
    adopt(rig, adopt_of(delay_ms=5_000))
    adopt(rig, adopt_of(b"policy", 2))
    found: list[int] = []
    for _ in range(60):
        rig.wait(100)
        found.append(sum(one.count for one in rig.pull(10).grants if one.subject == GRAVE))
    assert [at for at, count in enumerate(found) if count] == [2, 49]


def test_who_waits_is_given_it_when_it_is_due(rig: Rig) -> None:
    assert rig.ask(Pull("g", "w", [SUBJECT], 10, 1 << 20, 15_000)) is None
    waiter = rig.correlation
    adopt(rig, adopt_of(delay_ms=300))
    rig.wait(299)
    assert waiter not in rig.answers
    rig.wait(2)
    answer = rig.answers[waiter]
    assert isinstance(answer, Pulled)
    assert [one.subject for one in answer.grants] == [GRAVE]


@pytest.mark.parametrize("fault", ["restart", "power_cut"])
def test_it_is_due_after_a_new_start_as_well_with_its_attempts(rig: Rig, fault: str) -> None:
    adopt(rig, adopt_of())
    rig.broker.keeping.sync_now = True
    rig.wait(2_000)
    getattr(rig, fault)()
    [grant] = [one for one in given(rig).grants if one.subject == GRAVE]
    assert (grant.attempts, grant.count) == (3, 1)
    rig.ask(Ack("g", "c", GRAVE, [grant.pull_sequence, grant.pull_sequence]))
    rig.restart()
    assert not [one for one in given(rig).grants if one.subject == GRAVE]


def test_what_goes_on_failing_dies_here(rig: Rig) -> None:
    adopt(rig, adopt_of())
    for _ in range(2):
        for grant in given(rig).grants:
            ranges = [grant.pull_sequence, grant.pull_sequence + grant.count - 1]
            if grant.subject == GRAVE:
                rig.ask(Nack("g", "c", GRAVE, ranges, reason="still"))
    assert not [one for one in given(rig).grants if one.subject == GRAVE]
    assert waiting(rig.broker.state, living(rig)) >= 1


def test_group_that_is_not_here_or_in_order_adopts_nothing(rig: Rig) -> None:
    for command in (adopt_of(group="nobody"), adopt_of(subject="nothing")):
        answer = rig.ask(command)
        assert isinstance(answer, Failed)
        assert answer.number == KIND_BY_NAME["not_found"].number
    declare(rig, replace(HASTY, consumption="ordered"))
    assert isinstance(rig.ask(adopt_of()), Failed)


def again_of(number: int = 1, *, name: str = AGAIN, attempts: int = 1, **known: object) -> SendBatches:
    """What a delay service sends: a message that failed, after ``attempts`` deliveries before, and was kept."""
    said = {
        "reason": "closed",
        "error": "ClosedError",
        "place": "shop.py:3 in pay",
        "since": NOW_MS,
        "sequence": 40,
    }
    properties = msgpack.packb({"a": 1, DEAD_PROPERTY: {**said, "original": 40, **known}})
    content = Content(
        [b"far"], ["k"], [("t",)], properties=[properties], attempts=[attempts], origins=[ELSEWHERE]
    )
    return SendBatches(batch_of(subject=name, producer=(1 << 63) + number, content=content))


PATIENT = GroupSettings(lease_ms=1000, attempts_max=5, retry_ms_min=0, backoff_ms=(100, 300))


def test_what_was_kept_for_later_is_given_to_its_group_alone_as_a_further_attempt(rig: Rig) -> None:
    declare(rig, PATIENT)
    rig.pull(10, group="other")
    before = rig.broker.state.by_name[SUBJECT.encode()].next_sequence
    answer = rig.ask(again_of())
    assert isinstance(answer, Sent)
    assert (answer.first_sequences, list(answer.refused)) == ([0], [])

    given = rig.pull(10)
    [grant] = [one for one in given.grants if one.subject == GRAVE]
    [batch] = [one for one in split_batches(given.batches) if one.bodies() == [b"far"]]
    known = msgpack.unpackb(batch.properties()[0])[DEAD_PROPERTY]
    assert (grant.attempts, batch.origins(), known["original"], known["reason"]) == (
        2,
        [ELSEWHERE],
        40,
        "closed",
    )
    assert {one.subject for one in rig.pull(10, group="other").grants} <= {SUBJECT}
    assert rig.broker.state.by_name[SUBJECT.encode()].next_sequence == before


def test_what_is_sent_again_after_a_lost_answer_is_kept_once_also_after_a_new_start(rig: Rig) -> None:
    declare(rig, PATIENT)
    first = rig.ask(again_of())
    rig.broker.keeping.sync_now = True
    rig.wait(2_000)
    rig.restart()
    assert rig.ask(again_of()) == first
    assert [one.count for one in rig.pull(10).grants if one.subject == GRAVE] == [1]


def test_what_has_failed_as_often_as_its_group_allows_is_a_dead_letter_and_not_given_again(rig: Rig) -> None:
    assert isinstance(rig.ask(again_of(attempts=1)), Sent)

    assert not [one for one in rig.pull(10).grants if one.subject == GRAVE]
    [letter] = letters(rig)
    assert (letter.body, letter.known["attempts"], letter.known["reason"]) == (b"far", 2, "closed")


def test_it_is_tried_for_as_long_as_its_group_says_counted_from_its_first_failure(rig: Rig) -> None:
    declare(rig, replace(PATIENT, attempts_max=1, retry_ms_min=10_000))
    rig.ask(again_of(1, since=rig.now_ms - 9_000))
    rig.ask(again_of(2, since=rig.now_ms - 11_000))

    assert [one.count for one in rig.pull(10).grants if one.subject == GRAVE] == [1]
    assert len(letters(rig)) == 2


def test_beside_other_batches_of_a_send_all_find_their_places(rig: Rig) -> None:
    declare(rig, PATIENT)
    one, other = (SendBatches(batch_of(body, producer=8 + len(body))) for body in (b"x", b"yy"))
    mixed = bytearray().join(each.batches for each in (one, again_of(1), other, again_of(2)))
    answer = rig.ask(SendBatches(mixed))
    assert isinstance(answer, Sent)
    assert answer.first_sequences == [1, 0, 2, 1]
    rig.broker.keeping.sync_now = True
    rig.wait(2_000)
    rig.restart()
    found = [body for _ in range(2) for one in split_batches(rig.pull(10).batches) for body in one.bodies()]
    assert sorted(found) == [b"far", b"far", b"x", b"yy"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (again_of(name="%again%order.created%nobody"), "not_found"),
        (again_of(name="%again%nothing%g"), "not_found"),
        (again_of(name="%again%order.created"), "corrupt_batch"),
        (again_of(name="%other%order.created%g"), "invalid_subject"),
        (again_of(reason=7), "corrupt_batch"),
        (again_of(attempts=-1), "corrupt_batch"),
        (again_of(sequence=-1), "corrupt_batch"),
    ],
)
def test_what_comes_for_a_group_and_does_not_say_for_which_or_why_is_refused(
    rig: Rig, command: SendBatches, name: str
) -> None:
    answer = rig.ask(command)
    assert isinstance(answer, Sent)
    assert (answer.first_sequences, [number for _, number, _ in answer.refused]) == (
        [-1],
        [KIND_BY_NAME[name].number],
    )


def test_bytes_that_are_no_batch_are_refused(rig: Rig) -> None:
    whole = adopt_of()
    damaged = bytearray(whole.batch)
    damaged[-9] ^= 1
    answer = rig.ask(replace(whole, batch=memoryview(damaged)))
    assert isinstance(answer, Failed)
    assert answer.number == KIND_BY_NAME["corrupt_batch"].number
    assert bodies(rig) == []

"""Bytes of messages that the disk refuses: what lies there becomes dead letters that say so, and all else goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from samples.brokers import SUBJECT, TINY, Rig, pulls
from samples.graves import GRAVE, Letter, letters
from samples.sifted import content_of, pull, send, shown
from tidemill_broker.group_settings import GroupSettings
from tidemill_wire.commands import Ack, Nack, Pull, Pulled
from tidemill_wire.filters import EVERYTHING, parse_filter
from tidemill_wire.kinds import Mode

ROOMY = replace(TINY, segment_bytes=64 << 20, lease_ms=60_000)
VIP = parse_filter(["vip"], False)
FILE = f"message/{0:020}.log"


def rig_with(*batches: list[list[str]], size: int = 8) -> Rig:
    """Each batch has a position in the log that ``refuse`` finds by its number."""
    rig = Rig(ROOMY)
    for tags in batches:
        send(rig, content_of(tags, size))
    return rig


def refuse(rig: Rig, number: int, at: int = 200) -> int:
    """A byte of a batch is on a bad place of the disk; the batch's position."""
    position = rig.broker.state.partitions[1].recent.positions[number]
    rig.disk.refuse(FILE, position + at)
    return position


def settled(rig: Rig, **more) -> list[int]:
    """The sequences of all that is given; each is acked, and what is doomed is buried meanwhile."""
    found: list[int] = []
    while True:
        answer = pull(rig, VIP, **more)
        rig.wait(10)
        if not answer.grants:
            return found
        found += [message.sequence for message in shown(answer)]
        rig.ask(Ack("g", "c", SUBJECT, pulls(answer)))


def sequences(found: list[Letter]) -> list[int]:
    return sorted(letter.known["sequence"] for letter in found)


def test_batch_whose_tags_cannot_be_read_dies_and_those_around_it_are_given() -> None:
    rig = rig_with([["vip"], []], [["vip"], ["eu"]], [["vip"], []])
    position = refuse(rig, 1)

    assert settled(rig) == [0, 4]
    dead = letters(rig)
    assert sequences(dead) == [2, 3], "nobody can tell which of them were wanted"
    assert {letter.body for letter in dead} == {b""}
    for letter in dead:
        assert letter.known["reason"].startswith("undecodable: ")
        assert f"at position {position} of {FILE}" in letter.known["reason"]
    assert rig.broker.counters.unread > 0


def test_bad_place_of_a_sealed_segment_is_behind_a_group_also_after_a_restart() -> None:
    rig = Rig(replace(ROOMY, segment_bytes=1024))
    for _ in range(9):
        send(rig, content_of([["vip"]]))
    rig.disk.refuse(FILE, 200)
    assert settled(rig) == [1, 2, 3, 4, 5, 6, 7, 8]
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    rig.restart()

    assert settled(rig) == []
    assert sequences(letters(rig)) == [0]
    assert rig.broker.counters.unread == 0, "it is not read again"


def test_of_a_batch_whose_tags_can_be_read_only_what_is_wanted_dies() -> None:
    rig = rig_with([["vip"] if number in (7, 70) else ["eu"] for number in range(100)], [["vip"]], size=500)
    body = bytes(rig.disk.names.cached[FILE].cached).index(b"70 " + bytes(500))
    rig.disk.refuse(FILE, body)

    assert settled(rig) == [100]
    assert sequences(letters(rig)) == [7, 70], "but none that is not"


def test_what_comes_before_it_is_given_first() -> None:
    rig = rig_with(*([["vip"]] for _ in range(5)))
    refuse(rig, 3)

    answer = pull(rig, VIP)

    assert [message.sequence for message in shown(answer)] == [0, 1, 2]
    assert settled(rig) == [4]


def test_failed_message_that_can_be_read_no_more_dies() -> None:
    rig = rig_with([["vip"]] * 100, size=500)
    answer = pull(rig, VIP)
    first = pulls(answer)[0]
    rig.ask(Ack("g", "c", SUBJECT, [first + 1, first + 99]))
    body = bytes(rig.disk.names.cached[FILE].cached).index(b"0 " + bytes(500))
    rig.disk.refuse(FILE, body)
    rig.ask(Nack("g", "c", SUBJECT, [first, first], 0))

    assert settled(rig) == []
    assert sequences(letters(rig)) == [0]


def test_rejected_message_that_can_be_read_no_more_leaves_a_letter_without_a_body() -> None:
    rig = rig_with([["vip"], ["vip"]])
    answer = pull(rig, VIP)
    refuse(rig, 0)
    rig.ask(Nack("g", "c", SUBJECT, pulls(answer), reject=True, reason="no such customer"))
    rig.wait(10)

    dead = letters(rig)
    assert sequences(dead) == [0, 1]
    assert all("cannot be read" in letter.known["reason"] for letter in dead)


def test_group_without_dead_letters_counts_what_it_loses() -> None:
    rig = rig_with([["vip"], []], [["vip"]])
    settings = GroupSettings(dead_letters=False)
    rig.broker.members.declare_group(rig.broker.state.partitions[1], "g", (0, 0), settings, rig.now_ms)
    refuse(rig, 0)

    assert settled(rig) == [2]
    assert rig.broker.counters.dead_dropped == 2
    assert GRAVE.encode() not in rig.broker.state.by_name


@pytest.mark.parametrize("seed", range(20))
def test_wherever_the_bad_place_is_each_message_is_given_or_dead(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches = [[["vip"] if rng.random() < 0.2 else ["eu"] for _ in range(60)] for _ in range(4)]
    rig = rig_with(*batches, size=300)
    rows = rig.broker.state.partitions[1].recent
    rig.disk.refuse(FILE, int(rng.integers(rows.positions[1], rows.positions[3])))
    wanted = {at for at, tags in enumerate(tags for batch in batches for tags in batch) if tags == ["vip"]}

    given = settled(rig, messages=int(rng.integers(1, 50)))
    dead = sequences(letters(rig))

    assert sorted(given) == sorted(set(given))
    assert wanted <= set(given) | set(dead)
    assert not set(given) & set(dead)
    assert set(dead) <= set(range(60, 180)), "batches that are whole lose nothing"


# What the host sends without the broker ever seeing it.


def test_batch_that_cannot_be_sent_dies_and_those_around_it_are_given() -> None:
    rig = rig_with([[], []], [[], []], [[], []])
    position = refuse(rig, 1)

    answer = pull(rig, EVERYTHING)
    rig.wait(10)

    assert [message.sequence for message in shown(answer)] == [0, 1, 4, 5]
    assert [(grant.first_sequence, grant.count) for grant in answer.grants] == [(0, 2), (4, 2)]
    dead = letters(rig)
    assert sequences(dead) == [2, 3]
    assert all(f"at position {position} of {FILE}" in letter.known["reason"] for letter in dead)
    rig.ask(Ack("g", "c", SUBJECT, pulls(answer)))
    assert not any(group.in_flight or group.failed for group in rig.broker.state.groups.values())


def test_pull_of_which_nothing_can_be_sent_is_answered_with_nothing_and_goes_on() -> None:
    rig = rig_with([[], []])
    refuse(rig, 0)
    assert pull(rig, EVERYTHING).grants == []
    rig.wait(10)
    send(rig, content_of([[]]))

    assert [message.sequence for message in shown(pull(rig, EVERYTHING))] == [2]
    assert sequences(letters(rig)) == [0, 1]


def test_part_of_a_batch_that_was_granted_dies_and_not_the_rest() -> None:
    rig = rig_with([[]] * 10)
    rig.ask(Ack("g", "c", SUBJECT, pulls(pull(rig, EVERYTHING, messages=4))))
    refuse(rig, 0)
    assert pull(rig, EVERYTHING, messages=3).grants == []
    rig.wait(10)

    assert sequences(letters(rig)) == [4, 5, 6]


def test_what_was_acked_as_it_was_given_out_is_counted_when_it_cannot_be_sent() -> None:
    rig = rig_with([[], []], [[]])
    refuse(rig, 0)

    assert [message.sequence for message in shown(pull(rig, EVERYTHING, once=True))] == [2]
    assert rig.broker.counters.dead_dropped == 2
    assert GRAVE.encode() not in rig.broker.state.by_name


def test_masked_batch_that_cannot_be_sent_dies_as_far_as_it_was_wanted() -> None:
    """Its tags can be read, and more of it is wanted than is worth to be gathered."""
    rig = rig_with([["eu"] if number == 50 else ["vip"] for number in range(100)], [["vip"]], size=500)
    body = bytes(rig.disk.names.cached[FILE].cached).index(b"70 " + bytes(500))
    rig.disk.refuse(FILE, body)

    assert settled(rig) == [100]
    assert sequences(letters(rig)) == [number for number in range(100) if number != 50]


def test_group_in_order_goes_on_when_what_cannot_be_sent_is_buried() -> None:
    rig = rig_with([[]], [[]], [[]])
    refuse(rig, 1)
    assert pull(rig, EVERYTHING, mode=Mode.EXCLUSIVE).grants == [], "it is locked first"
    answer = pull(rig, EVERYTHING, mode=Mode.EXCLUSIVE)
    assert [message.sequence for message in shown(answer)] == [0, 2]
    rig.wait(10)
    rig.ask(Ack("g", "c", SUBJECT, pulls(answer)))
    send(rig, content_of([[]]))

    assert [message.sequence for message in shown(pull(rig, EVERYTHING, mode=Mode.EXCLUSIVE))] == [3]
    assert sequences(letters(rig)) == [1]


def test_what_retention_took_meanwhile_is_left_to_the_end_of_its_lease() -> None:
    rig = rig_with([[], []], [[]])
    refuse(rig, 0)
    rig.holds_reads = True
    assert rig.ask(Pull("g", "c", [SUBJECT], 1000, 1 << 20, 0)) is None
    rig.broker.loaded(rig.reads[0].token, b"", rig.now_ms)  # so says the host of a file that is gone
    del rig.reads[0]
    rig.load()
    rig.pump()
    answer = rig.answers.pop(rig.correlation)

    assert isinstance(answer, Pulled)
    assert [message.sequence for message in shown(answer)] == [2]
    assert rig.broker.state.groups[1].in_flight == 3
    assert not rig.broker.state.doomed


@pytest.mark.parametrize("seed", range(20))
def test_wherever_the_bad_place_is_each_message_is_sent_or_dead(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rig = rig_with(*([[]] * int(rng.integers(1, 30)) for _ in range(8)), size=300)
    rows = rig.broker.state.partitions[1].recent
    total = rig.broker.state.partitions[1].visible
    place, end = int(rng.integers(rows.positions[1], rows.positions[6])), rows.positions[7]
    size = min(int(rng.integers(1, 5000)), end - place)  # and nothing of what is written later
    rig.disk.refuse(FILE, place, size)

    given: list[int] = []
    for _ in range(100):
        answer = pull(rig, EVERYTHING, messages=int(rng.integers(1, 50)))
        rig.wait(10)
        given += [message.sequence for message in shown(answer)]
        if answer.grants:
            rig.ask(Ack("g", "c", SUBJECT, pulls(answer)))
    dead = sequences(letters(rig))

    assert sorted(given + dead) == list(range(total))
    assert not set(dead) & set(range(rows.firsts[1])), "the first batch is whole"

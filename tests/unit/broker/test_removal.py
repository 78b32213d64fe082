"""What people removed is gone from its broker for good: after restarts, on slaves, and when the name is used again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, batch_of, files_of, pulls
from samples.graves import GRAVE, ROOMY, bury, hasty_rig, letters
from samples.replicas import Group as BrokerGroup
from samples.searches import Search
from tidemill_broker.gate import Removal
from tidemill_broker.partitions import SubjectSettings
from tidemill_wire.batch import message_id
from tidemill_wire.columns import Content
from tidemill_wire.commands import Ack, Pull, Pulled, SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME, Refused
from tidemill_wire.fencing import Fence, Fenced, FenceRow
from tidemill_wire.kinds import Mode
from tidemill_wire.ordering import logical_partition

REMOVED = KIND_BY_NAME["removed"].number
OUTDATED = KIND_BY_NAME["route_outdated"].number
LOST = KIND_BY_NAME["lease_lost"].number
SETTINGS = SubjectSettings("low", 3600, 0, 1 << 20)
PRIORITY = 5
HALF = ((0, 512),)
STAYS = next(key for key in map(str, range(100)) if logical_partition(key) < 512)
GONE = next(key for key in map(str, range(100)) if logical_partition(key) >= 512)


def remove(rig: Rig, subject: str = SUBJECT, group: str = "", number: int = 1) -> None:
    rig.broker.removing.obey([Removal(subject, group, number)], rig.now_ms)
    rig.pump()


def declare(rig: Rig, subject: str = SUBJECT) -> None:
    rig.broker.intake.declare(subject, SETTINGS, rig.now_ms)
    rig.pump()


def refusal(rig: Rig, *, subject: str = SUBJECT, priority: int = 0) -> tuple[int, str] | None:
    """With what a send is refused."""
    rig.sent_batches += 1
    batch = batch_of(b"late", subject=subject, producer=99, sequence=rig.sent_batches, priority=priority)
    answer = rig.ask(SendBatches(batch))
    assert isinstance(answer, Sent)
    return next(((number, detail) for _, number, detail in answer.refused), None)


def pull_of(subject: str = SUBJECT, *, group: str = "g", wait_ms: int = 0, consumer: str = "c") -> Pull:
    return Pull(group, consumer, [subject], 1000, 1 << 20, wait_ms, -1)


def killed(rig: Rig) -> None:
    rig.restart()


def from_checkpoint(rig: Rig) -> None:
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    rig.wait(1000)
    assert files_of(rig.disk, "checkpoint")
    rig.restart()


LIVES = {"same life": lambda _rig: None, "killed": killed, "from a checkpoint": from_checkpoint}
LIFE = pytest.mark.parametrize("next_life", LIVES.values(), ids=LIVES)


@LIFE
def test_a_subject_that_was_removed_is_refused_by_name_and_begins_empty_when_it_is_declared_again(
    next_life: Callable[[Rig], None],
) -> None:
    rig = Rig(replace(TINY, lease_ms=10**6))
    rig.fill(15)  # two segments are sealed
    rig.pull(3)
    remove(rig)
    next_life(rig)

    assert refusal(rig) == (REMOVED, f"subject {SUBJECT!r} was removed")
    assert rig.refused(pull_of()) == REMOVED
    assert rig.broker.state.groups == {}
    declare(rig)
    next_life(rig)
    assert rig.pull().grants == []
    first = rig.send(b"new").first_sequences[0]
    assert first == 15, "no sequence is used twice"
    given = rig.pull()
    assert [(one.first_sequence, one.count) for one in given.grants] == [(15, 1)]


@LIFE
def test_who_has_sent_what_to_a_removed_subject_is_forgotten_with_it(
    next_life: Callable[[Rig], None],
) -> None:
    """A slave that begins when the log has lost it does not know either: so whoever leads, it is a new message."""
    rig = Rig()
    send = SendBatches(batch_of(b"tide", producer=9, sequence=3))
    assert isinstance(rig.ask(SendBatches(bytearray(send.batches))), Sent)
    rig.broker.keeping.checkpoint(rig.now_ms)
    remove(rig)
    next_life(rig)
    declare(rig)
    next_life(rig)
    assert rig.broker.state.by_name[SUBJECT.encode()].producers == {}

    again = rig.ask(SendBatches(bytearray(send.batches)))
    assert isinstance(again, Sent)
    assert list(again.first_sequences) == [1]
    next_life(rig)
    assert rig.broker.state.by_name[SUBJECT.encode()].producers == {9: [3, 1]}


@LIFE
def test_messages_of_a_removed_subject_are_not_found_and_those_of_others_are(
    next_life: Callable[[Rig], None],
) -> None:
    rig = Rig()
    rig.fill(8)
    rig.fill(8, "order.paid")
    remove(rig)
    next_life(rig)
    declare(rig)
    rig.fill(1)
    next_life(rig)

    seeker = Search(rig.broker, rig.disk.mount())
    assert [found.sequence for found in seeker.browse(SUBJECT)] == [8]
    assert len(seeker.browse("order.paid")) == 8
    assert seeker.by_id(id_of(1)) is None
    assert seeker.by_id(id_of(17)) is not None


def id_of(number: int) -> str:
    """The first message of the rig's batch of that number."""
    return message_id((99).to_bytes(8, "big") + number.to_bytes(8, "big"), 0)


@LIFE
def test_lanes_dead_letters_and_further_partitions_go_with_their_subject(
    next_life: Callable[[Rig], None],
) -> None:
    rig = hasty_rig()
    bury(rig, b"bad")
    rig.send(b"urgent", priority=PRIORITY)
    rig.send(b"further", subject=f"{SUBJECT}#3")
    rig.pull(subjects=(SUBJECT,))
    remove(rig)
    next_life(rig)

    state = rig.broker.state
    assert (state.by_name, state.groups, state.consumers, state.dead, state.kin, state.lanes) == (
        {}, {}, {}, {}, {}, {},
    )  # fmt: skip
    assert refusal(rig, subject=f"{SUBJECT}#3") == (REMOVED, f"subject {SUBJECT!r} was removed")
    declare(rig)
    declare(rig, f"{SUBJECT}#3")
    assert rig.broker.intake.further.of(SUBJECT) == [state.by_name[f"{SUBJECT}#3".encode()]]
    rig.pull(subjects=(SUBJECT,))
    rig.send(b"again", priority=PRIORITY)
    next_life(rig)
    given = rig.pull(subjects=(SUBJECT,))
    assert [one.count for one in given.grants] == [1]
    assert letters(rig) == []


@LIFE
def test_fences_go_with_their_subject_and_what_is_told_late_puts_none_up_again(
    next_life: Callable[[Rig], None],
) -> None:
    """Declared again it takes all order keys, also in partitions that meta has not told yet what is theirs."""
    rig = Rig(replace(TINY, lease_ms=10**6))
    old = FenceRow(SUBJECT, 3, HALF)
    assert send_keyed(rig, STAYS, priority=PRIORITY) == send_keyed(rig, STAYS) == []
    pull_keyed(rig)
    assert rig.ask(Fence([old])) == Fenced([(SUBJECT, 3)], [])
    assert send_keyed(rig, GONE) == [OUTDATED]
    remove(rig)
    next_life(rig)
    declare(rig)
    next_life(rig)

    assert send_keyed(rig, GONE) == send_keyed(rig, GONE, priority=3) == []
    assert [one.count for one in pull_keyed(rig).grants] == [1]
    assert rig.ask(Fence([old])) == Fenced([(SUBJECT, 3)], []), "and the new group has passed nothing"
    assert send_keyed(rig, GONE) == []
    assert rig.ask(Fence([FenceRow(SUBJECT, 9, HALF)])) == Fenced([(SUBJECT, 9)], [])
    assert send_keyed(rig, GONE) == [OUTDATED]


def send_keyed(rig: Rig, key: str, priority: int = 0) -> list[int]:
    """With what it is refused."""
    rig.sent_batches += 1
    content = Content([b"tide"], order_keys=[key])
    batch = batch_of(producer=98, sequence=rig.sent_batches, content=content, priority=priority)
    answer = rig.ask(SendBatches(batch))
    assert isinstance(answer, Sent)
    return [number for _, number, _ in answer.refused]


def pull_keyed(rig: Rig) -> Pulled:
    answer = rig.ask(Pull("g", "c", [SUBJECT], 1000, 1 << 20, 100, mode=Mode.KEYED))
    if answer is None:  # the lock is on the disk first
        rig.wait(100)
        answer = rig.answers.pop(rig.correlation)
    assert isinstance(answer, Pulled)
    return answer


def test_a_group_that_was_removed_takes_its_place_and_dead_letters_along_and_no_other_group() -> None:
    rig = hasty_rig()
    bury(rig, b"bad")
    rig.send(b"one", b"two")
    held = rig.pull(group="g")
    rig.pull(group="other")
    remove(rig, group="g")

    for _ in range(2):
        assert refusal(rig, subject="order.paid") is None
        assert rig.refused(pull_of()) == REMOVED
        assert rig.refused(Ack("g", "c", SUBJECT, pulls(held))) == LOST
        assert GRAVE.encode() not in rig.broker.state.by_name
        assert [group.name for group in rig.broker.state.groups.values()] == ["other"]
        rig.restart()

    partition = rig.broker.state.by_name[SUBJECT.encode()]
    settings = rig.broker.state.groups[partition.groups["other"]].settings
    rig.broker.members.declare_group(partition, "g", (0, 0), settings, rig.now_ms)
    rig.pump()
    assert [one.count for one in rig.pull(group="g").grants] == [3], (
        "declared again it begins as it is declared"
    )


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.BROADCAST])
def test_a_group_in_order_is_removed_with_its_lock(mode: Mode) -> None:
    rig = Rig()
    rig.fill(2)
    own, base = ("g.c", "g") if mode is Mode.BROADCAST else ("g", "")
    pull = replace(pull_of(group=own), mode=mode, base=base)
    for _ in range(2):  # the lock has to be on the disk first
        given = rig.ask(pull)
    assert isinstance(given, Pulled)
    assert given.grants
    assert rig.broker.state.groups
    remove(rig, group="g")
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()

    assert (rig.broker.state.groups, rig.broker.state.silent) == ({}, {})
    assert rig.refused(pull) == REMOVED
    rig.restart()
    assert rig.broker.state.groups == {}


def test_who_waits_is_answered_with_nothing_and_hears_why_with_the_next_pull() -> None:
    rig = Rig()
    rig.fill(1)
    rig.pull()
    assert rig.ask(pull_of(wait_ms=60_000)) is None
    number = rig.correlation
    remove(rig)

    answer = rig.answers.pop(number)
    assert isinstance(answer, Pulled)
    assert answer.grants == []
    assert rig.refused(pull_of()) == REMOVED
    rig.disconnect(rig.peers[0])
    rig.wait(60_000)  # nobody looks for consumers or leases of before


def test_what_is_told_twice_is_done_once_and_a_later_removal_again() -> None:
    rig = Rig()
    rig.fill(2)
    remove(rig, number=7)
    declare(rig)
    rig.fill(1)
    for group in ("early", "late"):
        remove(rig, number=7)
        remove(rig, number=3)
        assert len(rig.pull(group=group).grants) == 1
        rig.restart()
    remove(rig, number=8)
    assert refusal(rig) is not None


def test_a_name_that_the_broker_never_had_is_refused_too() -> None:
    rig = Rig()
    remove(rig, "order.gone")
    assert refusal(rig, subject="order.gone") == (REMOVED, "subject 'order.gone' was removed")


def test_places_of_removed_subjects_are_free_for_others() -> None:
    rig = Rig(replace(TINY, subjects_max=2))
    rig.fill(1)
    rig.fill(1, "order.paid")
    with pytest.raises(Refused, match="has 2 subjects"):
        declare(rig, "order.more")
    remove(rig)

    declare(rig, "order.more")
    assert refusal(rig, subject="order.more") is None


def test_a_pattern_takes_up_a_subject_that_is_there_again_while_it_waits() -> None:
    rig = Rig(ROOMY)
    rig.fill(1)
    rig.fill(1, "order.paid")
    pattern = pull_of("order.*", wait_ms=60_000)
    given = rig.ask(pattern)
    while isinstance(given, Pulled) and given.grants:
        given = rig.ask(pattern)
    remove(rig)
    assert rig.ask(pattern) is None, "a pull of a pattern goes on without it"
    number = rig.correlation
    declare(rig)
    rig.fill(1)
    answer = rig.answers.pop(number)
    assert isinstance(answer, Pulled)
    assert [one.subject for one in answer.grants] == [SUBJECT]


def test_the_segments_go_when_retention_needs_them_no_more() -> None:
    rig = Rig(replace(TINY, retention_seconds=10**6, retention_interval_ms=100))
    rig.fill(15)
    before = files_of(rig.disk, "message")
    rig.wait(1000)
    assert files_of(rig.disk, "message") == before
    remove(rig)
    rig.wait(TINY.checkpoint_pause_ms + 1000)

    assert len(files_of(rig.disk, "message")) == 1
    rig.fill(15, "order.paid")  # a segment that is sealed with nothing in it that is there
    rig.restart()
    assert len(Search(rig.broker, rig.disk.mount()).browse("order.paid")) == 15


def test_a_crash_in_the_middle_leaves_what_the_next_telling_ends() -> None:
    """Each prefix of what is written is a state that recovers, and that the same removal brings to its end."""
    rig = hasty_rig()
    bury(rig, b"bad")
    rig.send(b"one")
    rig.pull()
    broker = rig.broker
    written: list[object] = []
    act = broker.logs.act
    broker.logs.act = lambda action, now_ms: (written.append(action), act(action, now_ms))  # type: ignore[method-assign,func-returns-value]
    broker.removing.obey([Removal(SUBJECT, "", 1)], rig.now_ms)
    broker.logs.act = act  # type: ignore[method-assign]

    for count in range(len(written)):
        other = hasty_rig()
        bury(other, b"bad")
        other.send(b"one")
        other.pull()
        for action in written[:count]:
            other.broker._desk.act(action, other.now_ms)  # type: ignore[arg-type]
        other.pump()
        other.restart()
        remove(other)
        assert other.broker.state.by_name == {}
        assert other.broker.state.groups == {}


def test_a_slave_has_what_its_master_has_when_it_leads() -> None:
    group = BrokerGroup("a", "b", segment_bytes=1024)
    group.appoint(1, "a", ["a", "b"])
    for number in range(1, 9):
        group["a"].send(b"tide", number=number)
    group.run()
    group.pull("a")
    group["a"].ask(Fence([FenceRow(SUBJECT, 3, HALF)]))
    group["a"].broker.removing.obey([Removal(SUBJECT, "", 1)], group["a"].now_ms)
    group["a"].pump()
    group["a"].broker.intake.declare(SUBJECT, SETTINGS, group["a"].now_ms)
    group["a"].pump()
    group["a"].send(b"new", number=9)
    group.run()
    follower = group["b"].broker.state
    assert len(follower.by_name[SUBJECT.encode()].recent) == 1
    group.appoint(2, "b", ["a", "b"])

    given = group.pull("b")
    assert [(one.first_sequence, one.count) for one in given.grants] == [(8, 1)]
    group["b"].broker.removing.obey([Removal(SUBJECT, "", 1)], group["b"].now_ms)
    assert group["b"].broker.state.by_name, "it was obeyed by the one before"
    content = Content([b"tide"], order_keys=[GONE])
    assert group["b"].sent_at(
        group["b"].say(SendBatches(batch_of(producer=98, sequence=1, content=content)))
    ) == [9]

"""Dedup keys: within its subject's window a message is stored once, whoever sends it, and whatever the broker went
through; a message that was not stored is never taken for one that was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from samples.batches import CREATED_MS
from samples.brokers import SUBJECT, TINY, Rig, batch_of, files_of
from samples.dedup import bodies_of, id_of, keyed, stored, take, told
from samples.replicas import Group
from tidemill_broker.removal import Removal
from tidemill_wire import limits
from tidemill_wire.batch import Flags, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NUMBER, Unavailable

WINDOW_MS = 1000 * limits.DEDUPLICATION_SECONDS_DEFAULT


def reasons(sent: Sent) -> list[str]:
    return [KIND_BY_NUMBER[number].name for _, number, _ in sent.refused]


def declare(rig: Rig, **changes: object) -> None:
    known = rig.broker.state.by_name.get(SUBJECT.encode())
    settings = known.settings if known is not None else rig.broker.intake._defaults
    rig.broker.intake.declare(SUBJECT, replace(settings, **changes), rig.now_ms)
    rig.pump()


def killed(rig: Rig) -> None:
    rig.restart()


def from_checkpoint(rig: Rig) -> None:
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    rig.wait(1000)
    assert files_of(rig.disk, "checkpoint")
    rig.restart()


def from_checkpoint_without_segments(rig: Rig) -> None:
    """What was stored then lies in sealed segments, which a start does not read."""
    rig.fill(7, subject="other")
    from_checkpoint(rig)


def power_cut(rig: Rig) -> None:
    rig.broker.keeping.sync_now = True
    rig.pump()
    rig.wait(1000)
    rig.power_cut()


LIVES: dict[str, Callable[[Rig], None]] = {
    "same life": lambda _rig: None,
    "killed": killed,
    "from a checkpoint": from_checkpoint,
    "from a checkpoint, sealed": from_checkpoint_without_segments,
    "power cut behind a sync": power_cut,
}
LIFE = pytest.mark.parametrize("next_life", LIVES.values(), ids=LIVES)


@LIFE
def test_a_known_key_is_answered_with_where_its_message_is_and_stored_once(
    next_life: Callable[[Rig], None],
) -> None:
    rig = Rig()
    rig.send(b"before")
    assert take(rig, keyed("a", "b")) == Sent([1], [])
    next_life(rig)
    before = bodies_of(rig)

    sent = take(rig, keyed("b", producer=2))

    assert (sent.first_sequences, sent.refused) == ([-1], [])
    assert told(sent) == [(0, 2, id_of(1, 1), 1)]
    assert bodies_of(rig) == before


@LIFE
@pytest.mark.parametrize("codec", Codec)
def test_of_a_batch_with_known_and_new_messages_the_new_ones_are_stored(
    next_life: Callable[[Rig], None], codec: Codec
) -> None:
    rig = Rig(replace(TINY, segment_bytes=1 << 16))
    take(rig, keyed("a", "b", codec=codec))
    next_life(rig)
    first = rig.broker.state.by_name[SUBJECT.encode()].next_sequence

    sent = take(rig, keyed("x" * 600, "b", None, "a", "y", producer=2, codec=codec))

    assert sent.first_sequences == [first]
    assert told(sent) == [(1, 1, id_of(1, 1), 1), (3, 0, id_of(1, 1), 0)]
    batch = stored(rig)[-1]
    batch.check()
    assert [body.split(b"/")[0] for body in batch.bodies()] == [b"x" * 600, b"None", b"y"]
    assert batch.order_keys() == ["x" * 600, "", "y"]
    next_life(rig)
    again = take(rig, keyed("y", "z", producer=3))
    assert told(again) == [(0, first + 2, id_of(2, 1), 4)], "its id is that of the batch that was sent"


def test_one_key_twice_in_a_batch_is_stored_once() -> None:
    rig = Rig()

    sent = take(rig, keyed("a", "b", "a", None, None, "b"))

    assert sent.first_sequences == [0]
    assert told(sent) == [(2, 0, id_of(1, 1), 0), (5, 1, id_of(1, 1), 1)]
    assert bodies_of(rig) == [b"a/1.1", b"b/1.1", b"None/1.1", b"None/1.1"]


@LIFE
@pytest.mark.parametrize("keys", [("b",), ("x", "b", "y"), ("x", "y"), ("b", "x", "b", "x", "a")])
def test_a_batch_that_comes_again_gets_the_same_answer(
    next_life: Callable[[Rig], None], keys: tuple[str, ...]
) -> None:
    rig = Rig()
    take(rig, keyed("a", "b"))
    sent = take(rig, keyed(*keys, producer=2, number=5))
    before = bodies_of(rig)
    next_life(rig)

    again = take(rig, keyed(*keys, producer=2, number=5))

    assert (again.first_sequences, told(again)) == (sent.first_sequences, told(sent))
    assert [body for body in bodies_of(rig) if body != b"tide"] == before


def test_of_a_batch_older_than_those_remembered_all_is_said_that_is_known() -> None:
    rig = Rig()
    for number in range(1, 8):
        take(rig, keyed(f"k{number}", None, producer=2, number=number))

    sent = take(rig, keyed("k1", None, producer=2, number=1))

    assert sent.first_sequences == [-1]
    assert told(sent) == [(0, 0, id_of(2, 1), 0)]
    assert len(bodies_of(rig)) == 14


@LIFE
def test_after_the_window_a_message_is_stored_again(next_life: Callable[[Rig], None]) -> None:
    rig = Rig()
    take(rig, keyed("a"))
    rig.wait(WINDOW_MS - 5000)
    assert told(take(rig, keyed("a", producer=2)))
    next_life(rig)
    rig.wait(5000)

    sent = take(rig, keyed("a", producer=2, number=2))

    assert (sent.first_sequences[0] >= 1, told(sent)) == (True, [])
    assert told(take(rig, keyed("a", producer=3))) == [(0, sent.first_sequences[0], id_of(2, 2), 0)]


@LIFE
def test_a_window_is_as_long_as_its_subject_says(next_life: Callable[[Rig], None]) -> None:
    rig = Rig()
    declare(rig, deduplication_seconds=600)
    take(rig, keyed("a"))
    next_life(rig)
    rig.wait(590_000)
    assert told(take(rig, keyed("a", producer=2)))
    declare(rig, deduplication_seconds=60)

    assert told(take(rig, keyed("a", producer=2, number=2))) == []


def test_without_a_window_dedup_keys_are_refused_with_what_to_do() -> None:
    rig = Rig()
    declare(rig, deduplication_seconds=0)

    sent = take(rig, keyed("a") + batch_of(b"plain", producer=3, sequence=1))

    assert reasons(sent) == ["no_dedup_window"]
    assert sent.first_sequences == [-1, 0]
    assert sent.refused[0][2] == f"subject {SUBJECT!r} has no window for dedup keys"


def test_keys_of_subjects_and_further_partitions_are_their_own() -> None:
    rig = Rig()

    for name in (SUBJECT, "order.paid", f"{SUBJECT}#2"):
        assert told(take(rig, keyed("a", subject=name))) == []


def test_lanes_of_a_subject_share_its_keys() -> None:
    rig = Rig()
    first = take(rig, keyed("a", priority=3)).first_sequences[0]

    assert told(take(rig, keyed("a", producer=2))) == [(0, first, id_of(1, 1), 0)]
    assert told(take(rig, keyed("b", producer=2, number=2))) == []
    assert told(take(rig, keyed("b", producer=3, priority=5))) == [(0, 0, id_of(2, 2), 0)]


@LIFE
def test_keys_of_a_removed_subject_are_forgotten(next_life: Callable[[Rig], None]) -> None:
    rig = Rig()
    take(rig, keyed("a") + keyed("b", number=2, priority=2))
    rig.broker.removing.obey([Removal(SUBJECT, "", 1)], rig.now_ms)
    rig.pump()
    next_life(rig)
    rig.broker.intake.declare(SUBJECT, rig.broker.intake._defaults, rig.now_ms)
    rig.pump()
    next_life(rig)

    sent = take(rig, keyed("a", "b", producer=2))

    assert (sent.refused, told(sent), sent.first_sequences[0] >= 0) == ([], [], True)


def test_what_is_known_is_answered_while_nothing_may_be_written() -> None:
    rig = Rig()
    take(rig, keyed("a"))
    rig.broker.intake.refusal = Unavailable("disk_full", "full")

    assert told(take(rig, keyed("a", producer=2)))
    assert reasons(take(rig, keyed("a", "b", producer=2, number=2))) == ["disk_full"]
    rig.broker.intake.refusal = None
    assert told(take(rig, keyed("b", producer=2, number=3))) == []


def test_a_batch_that_says_it_has_keys_and_has_none_is_refused() -> None:
    origin = Origin(SUBJECT.encode(), 1, 1, bytes(16), CREATED_MS, flags=Flags.DEDUPLICATED)

    assert reasons(take(Rig(), build_batch(origin, Content([b"x", b"y"])))) == ["corrupt_batch"]


def test_a_broker_knows_so_many_keys_and_no_more_until_windows_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DEDUP_KEYS_MAX", 5)
    rig = Rig()
    take(rig, keyed("a", "b", "c"))
    rig.wait(WINDOW_MS // 2)
    take(rig, keyed("d", number=2, subject="order.paid"))

    assert reasons(take(rig, keyed("e", "f", number=3))) == ["too_many_dedup_keys"]
    assert told(take(rig, keyed("a", producer=2))), "those that are known count once"
    rig.wait(WINDOW_MS // 2)
    assert reasons(take(rig, keyed("e", "f", number=3))) == []
    assert rig.broker.state.deduplication.count == 3


def test_a_batch_has_so_many_keys_and_an_answer_so_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEDUP_BATCH_KEYS_MAX", 3)
    monkeypatch.setattr(limits, "DEDUP_ANSWER_ROWS_MAX", 4)
    rig = Rig()
    assert reasons(take(rig, keyed("a", "b", "c", "d"))) == ["limit_exceeded"]
    take(rig, keyed("a", "b", "c"))

    sent = take(rig, keyed("a", "b", "c", producer=2) + keyed("c", "b", producer=3) + keyed("z", producer=4))

    assert reasons(sent) == ["too_many_requests"]
    assert [len(told(sent, batch)) for batch in range(3)] == [3, 0, 0]


def test_a_batch_that_is_full_and_partly_known_is_refused_and_harms_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    take(rig, keyed("a"))
    batch = keyed("a", "b", "c", "d", producer=2)
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", len(batch))

    assert reasons(take(rig, batch)) == ["batch_too_large"]


def test_a_clock_that_was_set_back_makes_no_known_message_new() -> None:
    rig = Rig()
    take(rig, keyed("a"))
    rig.now_ms -= 10 * WINDOW_MS
    rig.restart()

    assert told(take(rig, keyed("a", producer=2)))
    assert told(take(rig, keyed("b", producer=2, number=2))) == []
    rig.wait(WINDOW_MS + 1000)
    assert told(take(rig, keyed("b", producer=2, number=3))) == []


def test_a_master_that_comes_next_knows_what_its_log_has_and_nothing_else() -> None:
    group = Group("a", "b")
    group.appoint(1, "a", ["a", "b"])
    group["a"].say(SendBatches(keyed("a", None, "b")))
    group.run()
    group.passes = lambda _target, _command: False
    number = group["a"].say(SendBatches(keyed("lost", producer=3)))
    group.passes = lambda _target, _command: True
    for name in ("a", "b"):
        group.unlink(name) if name in group.links else None
    group.appoint(2, "b", ["a", "b"])

    again = group["b"].say(SendBatches(keyed("b", "lost", producer=2)))
    group.run()

    assert number not in group["a"].answers
    answer = group["b"].answers[again]
    assert isinstance(answer, Sent)
    assert told(answer) == [(0, 2, id_of(1, 1), 2)]
    assert answer.first_sequences == [3]
    group.appoint(3, "a", ["a", "b"])
    last = group["a"].say(SendBatches(keyed("lost", "b", producer=5)))
    group.run()
    told_last = group["a"].answers[last]
    assert isinstance(told_last, Sent)
    assert told(told_last) == [(0, 3, id_of(2, 1), 1), (1, 2, id_of(1, 1), 2)]


def test_what_a_power_cut_takes_takes_its_key_along() -> None:
    rig = Rig()
    rig.send(b"synced")
    power_cut(rig)
    take(rig, keyed("a"))
    rig.power_cut()
    before = b"a/1.1" in bodies_of(rig)

    sent = take(rig, keyed("a", producer=2))

    assert bool(told(sent)) == before
    assert sum(body.startswith(b"a/") for body in bodies_of(rig)) == 1

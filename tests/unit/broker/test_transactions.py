"""Half messages: invisible until their transaction is committed, there exactly once from then on, else never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, batch_of
from samples.halves import FIRST, GROUP, commit, done, given, half_of, rollback
from tidemill_broker.gate import Removal
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.transaction_actions import Why
from tidemill_wire import limits
from tidemill_wire.batch import Flags
from tidemill_wire.columns import Content
from tidemill_wire.commands import Command, Done, Failed, SendBatches
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.transacting import Decide, Half, Verdict

OTHER = "order.paid"


@pytest.fixture
def rig() -> Rig:
    return Rig()


def refused(rig: Rig, command: Command) -> str:
    """The name of the error."""
    answer = rig.ask(command) or rig.answers.pop(rig.correlation, None)
    assert isinstance(answer, Failed), answer
    return next(kind.name for kind in KIND_BY_NAME.values() if kind.number == answer.number)


def test_half_message_is_seen_by_nobody_until_it_is_committed(rig: Rig) -> None:
    rig.send(b"before")
    assert done(rig, half_of(b"half")) == 0
    rig.send(b"behind")
    assert given(rig) == [b"before", b"behind"]
    assert rig.broker.state.by_name[SUBJECT.encode()].next_sequence == 2

    assert done(rig, commit()) == 1
    assert given(rig) == [b"half"], "it comes as if it were sent now"
    assert rig.broker.state.by_name[SUBJECT.encode()].next_sequence == 3


def test_half_message_that_is_rolled_back_is_never_seen(rig: Rig) -> None:
    done(rig, half_of(b"half"))
    assert done(rig, rollback()) == 0

    assert given(rig) == []
    rig.restart()
    assert given(rig) == []
    assert rig.broker.state.transactions.pending == {}


def test_batches_of_several_subjects_and_priorities_are_committed_together(rig: Rig) -> None:
    done(rig, half_of(b"a", b"b"))
    done(rig, half_of(b"c", index=1, subject=OTHER))
    done(rig, half_of(b"first", index=2, priority=7))
    assert given(rig, subject=OTHER) == given(rig) == []

    assert done(rig, commit()) == 4
    assert given(rig) == [b"first"]
    assert given(rig) == [b"a", b"b"]
    assert given(rig, subject=OTHER) == [b"c"]


def test_half_message_that_comes_twice_is_kept_once(rig: Rig) -> None:
    done(rig, half_of(b"half"))
    end = rig.broker.logs.messages.end
    done(rig, half_of(b"half"))
    assert rig.broker.logs.messages.end == end

    assert done(rig, commit()) == 1
    assert given(rig) == [b"half"]


def test_what_was_decided_is_answered_again_as_it_was(rig: Rig) -> None:
    done(rig, half_of(b"a", b"b"))
    assert [done(rig, commit()), done(rig, commit())] == [2, 2]
    assert refused(rig, rollback()) == "transaction_decided"
    assert refused(rig, half_of(b"late", index=1)) == "transaction_decided"
    assert given(rig) == [b"a", b"b"]

    done(rig, half_of(b"c", transaction=FIRST + 1))
    assert [done(rig, rollback(FIRST + 1)), done(rig, rollback(FIRST + 1))] == [0, 0]
    assert refused(rig, commit(FIRST + 1)) == "transaction_decided"
    rig.restart()
    assert done(rig, commit()) == 2
    assert refused(rig, commit(FIRST + 1)) == "transaction_decided"


def test_transaction_that_nobody_knows_is_an_error(rig: Rig) -> None:
    assert refused(rig, commit()) == refused(rig, rollback()) == "unknown_transaction"


def test_only_so_many_decisions_are_remembered(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONS_REMEMBERED_MAX", 2)
    for number in range(3):
        done(rig, half_of(b"x", transaction=FIRST + number))
        done(rig, commit(FIRST + number))

    assert refused(rig, commit()) == "unknown_transaction"
    assert done(rig, commit(FIRST + 2)) == 1


def test_verdict_that_is_not_known_yet_changes_nothing(rig: Rig) -> None:
    done(rig, half_of(b"half"))
    assert done(rig, Decide(FIRST, Verdict.UNKNOWN)) == 0
    assert FIRST in rig.broker.state.transactions.pending


def test_pending_transaction_and_decisions_survive_a_checkpoint_and_a_power_cut(rig: Rig) -> None:
    done(rig, half_of(b"half", b"more"))
    done(rig, half_of(b"gone", transaction=FIRST + 1))
    done(rig, rollback(FIRST + 1))
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    rig.power_cut()
    assert rig.report.checkpoint == 1

    assert done(rig, commit()) == 2
    assert refused(rig, commit(FIRST + 1)) == "transaction_decided"
    assert given(rig) == [b"half", b"more"]


def test_ordinary_send_may_not_bear_the_flag(rig: Rig) -> None:
    answer = rig.ask(SendBatches(bytearray(half_of(b"x").batch)))
    assert answer is not None
    assert answer.refused[0][1] == KIND_BY_NAME["unsupported_flag"].number  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("half", "error"),
    [
        (Half(GROUP, memoryview(b"no batch")), "corrupt_batch"),
        (Half(GROUP, half_of(b"x").batch[:-8]), "corrupt_batch"),
        (Half(GROUP, memoryview(batch_of(b"x"))), "malformed_command"),
        (half_of(b"x", transaction=77), "malformed_command"),
        (half_of(b"x", flags=Flags.TRANSACTIONAL | Flags.DELAYED), "unsupported_flag"),
        (half_of(b"x", flags=Flags.TRANSACTIONAL | Flags.ORDERED), "unsupported_flag"),
        (half_of(content=Content([b"x"], order_keys=["k"])), "unsupported_flag"),
        (half_of(b"x", subject="%half%"), "invalid_subject"),
        (half_of(b"x", priority=8), "invalid_priority"),
        (half_of(b"x", index=limits.TRANSACTION_BATCHES_MAX), "limit_exceeded"),
        (half_of(bytes(limits.MESSAGE_BYTES_DEFAULT + 1)), "message_too_large"),
    ],
)
def test_half_message_that_could_be_no_message_is_refused(rig: Rig, half: Half, error: str) -> None:
    assert refused(rig, half) == error
    assert rig.broker.state.transactions.pending == {}


def test_transaction_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 600)
    monkeypatch.setattr(limits, "TRANSACTIONS_PENDING_MAX", 1)
    done(rig, half_of(b"x"))

    assert refused(rig, half_of(bytes(300), index=1)) == "limit_exceeded"
    assert refused(rig, half_of(b"y", transaction=FIRST + 1)) == "too_many_transactions"
    assert refused(rig, half_of(b"y", index=1, group="another")) == "malformed_command"
    done(rig, rollback())
    done(rig, half_of(b"y", transaction=FIRST + 1))


def test_subject_that_may_not_be_made_is_refused_at_once() -> None:
    rig = Rig(replace(TINY, create_subjects=False))
    assert refused(rig, half_of(b"x")) == "unknown_subject"


def test_nothing_is_kept_or_committed_while_the_disk_is_full(rig: Rig) -> None:
    from tidemill_wire.errors import Unavailable

    done(rig, half_of(b"x"))
    rig.broker.intake.refusal = Unavailable("disk_full", "the disk has 1 % free")
    assert refused(rig, half_of(b"y", transaction=FIRST + 1)) == "disk_full"
    assert refused(rig, commit()) == "disk_full"
    rig.broker.intake.refusal = None

    assert done(rig, commit()) == 1
    assert given(rig) == [b"x"]


def test_commit_that_is_said_twice_while_it_is_read_is_done_once(rig: Rig) -> None:
    done(rig, half_of(b"x"))
    rig.holds_reads = True
    assert rig.ask(commit()) is None
    first = rig.correlation
    assert rig.ask(commit()) is None
    assert refused(rig, rollback()) == "transaction_decided"
    assert refused(rig, half_of(b"y", index=1)) == "transaction_decided"
    rig.holds_reads = False
    rig.load()
    rig.pump()

    assert [rig.answers[first], rig.answers[first + 1]] == [Done([], 1), Done([], 1)]
    assert given(rig) == [b"x"]


def test_few_commits_are_read_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_READ_BYTES_MAX", 500)
    for number in range(4):
        done(rig, half_of(b"x", transaction=FIRST + number))
    rig.holds_reads = True
    for number in range(4):
        assert rig.ask(commit(FIRST + number)) is None
    assert len(rig.reads) == 1
    rig.holds_reads = False
    while rig.reads:
        rig.load()
        rig.pump()

    assert given(rig) == [b"x"] * 4


def test_half_message_that_the_disk_has_lost_is_not_committed(rig: Rig) -> None:
    """Its bytes are others than were kept."""
    done(rig, half_of(b"precious"))
    [part] = rig.broker.state.transactions.pending[FIRST].parts.values()
    file, place = rig.broker.logs.messages.locate(part.position)
    rig.disk.names.cached[file].cached[place + part.length - 9] ^= 1

    assert refused(rig, commit()) == "read_failed"
    assert FIRST in rig.broker.state.transactions.pending
    assert given(rig) == []


def test_messages_of_a_subject_that_was_removed_meanwhile_are_gone_with_it(rig: Rig) -> None:
    done(rig, half_of(b"x"))
    done(rig, half_of(b"y", index=1, subject=OTHER))
    rig.broker.removing.obey((Removal(OTHER, "", 1),), rig.now_ms)
    rig.pump()

    assert done(rig, commit()) == 2
    assert given(rig) == [b"x"]
    assert OTHER.encode() not in rig.broker.state.by_name


def test_commit_that_cannot_be_done_as_a_whole_is_not_begun() -> None:
    """Its second half message needs a lane again, and the broker has as many subjects as it may have."""
    rig = Rig(replace(TINY, subjects_max=4))
    done(rig, half_of(b"x"))
    done(rig, half_of(b"y", index=1, subject=OTHER, priority=7))
    rig.broker.removing.obey((Removal(OTHER, "", 1),), rig.now_ms)
    rig.broker.intake.declare(OTHER, rig.broker.state.by_name[SUBJECT.encode()].settings, rig.now_ms)
    rig.send(b"z", subject="another")
    rig.pump()
    assert refused(rig, commit()) == "too_many_subjects"
    assert given(rig) == []

    rig.broker.removing.obey((Removal("another", "", 2),), rig.now_ms)
    rig.pump()
    assert done(rig, commit()) == 2
    assert (given(rig), given(rig, subject=OTHER)) == ([b"x"], [b"y"])


def test_silent_transaction_is_rolled_back_when_nobody_says_anything() -> None:
    settings = BrokerSettings(transaction_checks_max=2)
    rig = Rig(settings)
    done(rig, half_of(b"x"))
    rig.wait(6_000 + 2 * 30_000 - 1)
    assert rig.broker.state.transactions.pending[FIRST].checks == 2
    rig.wait(1)

    assert rig.broker.state.transactions.decided[FIRST].why == Why.SILENCE
    assert rig.broker.counters.transactions_silent == 1
    assert refused(rig, commit()) == "transaction_decided"


def test_silence_is_counted_from_the_last_half_message_and_through_restarts(rig: Rig) -> None:
    done(rig, half_of(b"x"))
    rig.wait(5_000)
    done(rig, half_of(b"y", index=1))
    rig.wait(5_999)
    assert rig.broker.state.transactions.pending[FIRST].checks == 0
    rig.wait(1)
    assert rig.broker.state.transactions.pending[FIRST].checks == 1
    rig.restart()
    rig.wait(29_999)
    assert rig.broker.state.transactions.pending[FIRST].checks == 1
    rig.wait(1)
    assert rig.broker.state.transactions.pending[FIRST].checks == 2


def test_clock_that_is_set_back_does_not_keep_a_transaction_for_longer(rig: Rig) -> None:
    done(rig, half_of(b"x"))
    rig.now_ms -= 3_600_000
    rig.restart()
    rig.wait(6_000)
    assert rig.broker.state.transactions.pending[FIRST].checks == 1


def test_segment_of_a_pending_transaction_is_kept_and_no_longer() -> None:
    settings = replace(
        TINY, retention_seconds=1, retention_interval_ms=1000, transaction_check_after_ms=3_600_000
    )
    rig = Rig(settings)
    done(rig, half_of(b"x"))
    rig.fill(20)
    rig.wait(10_000)
    assert rig.broker.logs.messages.start == 0, "it is in the first segment"

    assert done(rig, commit()) == 1
    rig.fill(20)
    rig.wait(10_000)
    assert rig.broker.logs.messages.start > 0
    rig.restart()
    assert done(rig, commit()) == 1

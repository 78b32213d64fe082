"""Many pulls that wait: what a large batch costs them together, and what they cost when nothing comes."""

from __future__ import annotations

from samples.brokers import SUBJECT, Rig
from samples.calls import calls_of
from tidemill_broker.pulls import SHARED_BYTES_MAX, SHARERS_MIN
from tidemill_wire.commands import Pull, Pulled


def test_large_batch_is_not_sent_to_all_who_wait() -> None:
    """Each of them is sent the whole batch, however small a part of it is its own."""
    rig = Rig()
    rig.fill(1)
    rig.pull()
    for number in range(60):
        assert rig.ask(Pull("g", f"c{number}", [SUBJECT], 1000, 1 << 20, 5000)) is None
    before, size = rig.correlation, 20_000
    rig.send(*(bytes(size) for _ in range(100)))  # 2 MB

    answers = [one for at, one in rig.answers.items() if at <= before and isinstance(one, Pulled)]
    counts = [sum(grant.count for grant in answer.grants) for answer in answers]
    assert sum(counts) == 100
    assert sum(len(answer.batches) for answer in answers) <= SHARED_BYTES_MAX
    assert len(counts) >= SHARED_BYTES_MAX // (101 * size) - 1


def test_few_share_the_largest_batch() -> None:
    rig = Rig()
    rig.fill(1)
    rig.pull()
    for number in range(9):
        assert rig.ask(Pull("g", f"c{number}", [SUBJECT], 1000, 1 << 20, 5000)) is None
    rig.send(*(bytes(900_000) for _ in range(16)))

    answers = [one for one in rig.answers.values() if isinstance(one, Pulled) and one.grants]
    assert [sum(grant.count for grant in answer.grants) for answer in answers] == [4] * SHARERS_MIN


def test_thousands_that_wait_for_nothing_cost_a_tick_little() -> None:
    """They are not looked at: what is counted is Python's own calls, not time."""
    rig = Rig()
    costs: list[int] = []
    for count in (50, 500):
        for number in range(count):
            assert rig.ask(Pull(f"g{count}-{number}", "c", [SUBJECT], 10, 1 << 20, 30_000)) is None
        costs.append(calls_of(lambda: rig.broker.ticked(rig.now_ms)))

    assert costs[1] < costs[0] + 100

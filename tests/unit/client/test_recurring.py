"""A message that recurs: what is wrong with its rule is said at once, and its batch says when it comes first."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidemill import Refused
from tidemill.gather import Gather, Signature
from tidemill.parcel import NO_EXTRAS, Extras, Partition
from tidemill.receipts import Single
from tidemill.recurring import Rule, due_of
from tidemill.testing import Client
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column
from tidemill_wire.recurrence import parse_recurrence

NOW_MS = round(1000 * datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp())
MONDAY_MS = round(1000 * datetime(2026, 11, 23, 8, tzinfo=UTC).timestamp())
RULE = Rule("0  9 * * mon-fri", "Europe/Berlin", "all")


def test_the_first_occurrence_is_the_next_by_the_clocks_of_the_zone() -> None:
    due_ms, said = due_of(RULE, None, None, ("report", None), NOW_MS)
    assert due_ms == MONDAY_MS
    assert said == b"%d 0000000000000000 all Europe/Berlin 0 9 * * mon-fri" % MONDAY_MS
    assert parse_recurrence(said).next_ms(MONDAY_MS, lambda _second: 3600) == MONDAY_MS + 86_400_000


def test_without_more_it_goes_by_utc_and_one_of_those_that_were_missed_comes() -> None:
    due_ms, said = due_of(Rule("@daily"), None, None, ("report", None), NOW_MS)
    assert said is not None
    assert said.endswith(b" once UTC @daily")
    assert due_ms == NOW_MS + 12 * 3_600_000


@pytest.mark.parametrize(
    ("rule", "options", "sentence"),
    [
        (Rule("0 9 * *"), {}, "is no cron expression: write minute"),
        (Rule("0 9 30 feb *"), {}, "is never: no year has such a day"),
        (Rule("@daily", "Nowhere/Land"), {}, "there is no time zone 'Nowhere/Land'"),
        (Rule("@daily", "../secret"), {}, "there is no time zone"),
        (Rule("@daily", None, "some"), {}, "write once, all or none"),
        (Rule(None, "UTC"), {}, "give cron, too"),
        (Rule("@daily"), {"delay": 1}, "leave out delay and at"),
        (Rule("@daily"), {"timer_key": None}, "give a timer_key"),
        (Rule("@daily"), {"dedup_key": "d"}, "has no dedup key"),
    ],
)
async def test_a_mistake_is_a_sentence_at_once(rule: Rule, options: dict[str, object], sentence: str) -> None:
    async with Client() as mq:
        said = {"timer_key": "report", **rule._asdict(), **options}
        with pytest.raises(ValueError, match=sentence):
            await mq.send("reports", b"", **said)  # type: ignore[arg-type]


def test_what_is_too_far_ahead_is_refused_with_the_limit() -> None:
    with pytest.raises(Refused, match="731 are the limit"):
        due_of(Rule("0 0 29 feb *"), None, None, ("report", None), 1000 * 1_836_000_000)


def test_what_recurs_has_a_batch_for_itself() -> None:
    gather, partition = Gather(Signature(7, Codec.NONE, lambda: NOW_MS), 1 << 20), Partition("reports")
    recurs = Extras(due_ms=MONDAY_MS, timer_key="report", cron=b"said")
    waiter: Single = Single.__new__(Single)
    for extras in (
        NO_EXTRAS._replace(due_ms=MONDAY_MS),
        recurs,
        recurs,
        NO_EXTRAS._replace(due_ms=MONDAY_MS),
    ):
        gather.add(partition, b"tide", extras, waiter, 0.0)
    batches = []
    while partition.open:
        [parcel] = gather.take()
        batches.append(Batch(parcel.data))
    assert [batch.header.messages for batch in batches] == [1, 1, 1, 1]
    assert [batch.column(Column.CRON) for batch in batches] == [None, b"said", b"said", None]

"""What `tidemill status` says of consumer groups: one sentence a trouble, and none of what people wanted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.cli.troubles import NAMED_MAX, worded

NOW = datetime(2026, 9, 1, tzinfo=UTC)


def row(subject: str = "orders", broker: str = "g0", **more: Any) -> dict[str, Any]:
    return {"subject": subject, "group": "billing", "broker": broker, "paused": None, "dead": 0, "newest": None,
            "reason": "", "suspended": False, **more}  # fmt: skip


def test_a_paused_group_is_named_once_with_what_it_fails_of() -> None:
    paused = {"paused": "f2", "reason": "ValueError: no amount"}
    [said] = worded([row(**paused), row("orders#1", **paused), row(broker="g1", **paused), row()], NOW)

    assert said.startswith(
        "group billing of orders is paused at g0, g1, its deliveries fail alike: ValueError: no amount (f2);"
    )


def test_dead_letters_are_news_for_an_hour() -> None:
    young, old = (NOW - timedelta(minutes=minutes) for minutes in (59, 61))
    [said] = worded(
        [row(dead=2, newest=young.isoformat()), row(broker="g1", dead=3, newest=old.isoformat())], NOW
    )

    assert said.startswith("group billing of orders has 5 dead letters, the newest of 2026-08-31T23:01:00Z: ")
    assert said.endswith("`tidemill dead list orders -g billing`")
    assert worded([row(dead=2, newest=old.isoformat())], NOW) == []


def test_a_group_that_stands_still_because_somebody_wanted_it_is_no_trouble() -> None:
    assert worded([row(suspended=True)], NOW) == []


def test_many_troubles_are_counted() -> None:
    said = worded([row(f"s{number:02}", paused="f2") for number in range(NAMED_MAX + 3)], NOW)

    assert len(said) == NAMED_MAX + 1
    assert said[-1].startswith("… and 3 more")

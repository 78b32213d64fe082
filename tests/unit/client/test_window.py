"""How much a consumer asks for: what its handler does in a moment is too little, what lies for a second is too much."""

from __future__ import annotations

import asyncio

from tidemill.inbox import STALE_S, WINDOW_FIRST, WINDOW_MIN, Inbox, Window

LARGE = 100_000


def outage(window: Window) -> None:
    """All that was pulled waits for one ack."""
    for _ in range(10):
        window.stale()
    assert window.size == WINDOW_MIN


async def inbox_after_an_outage() -> Inbox:
    inbox = Inbox(LARGE, LARGE)
    outage(inbox.window)
    return inbox


def test_a_window_that_an_outage_made_small_grows_again_though_the_handler_never_waits() -> None:
    """Five messages at a time, and the round trip of an ack for each five."""
    inbox = asyncio.run(inbox_after_an_outage())
    for _ in range(10):
        inbox.window.handled(5, 0.005)
        inbox.filled()
    assert WINDOW_MIN < inbox.window.size <= WINDOW_FIRST
    for _ in range(10):
        inbox.window.handled(100, 0.005)
        inbox.filled()
    assert inbox.window.size > WINDOW_FIRST


def test_a_slow_handler_keeps_its_small_window() -> None:
    inbox = asyncio.run(inbox_after_an_outage())
    for _ in range(10):
        inbox.window.handled(5, 0.05)
        inbox.filled()
    assert inbox.window.size == WINDOW_MIN


def test_nothing_that_lies_in_a_grown_window_becomes_stale() -> None:
    """Beside the window there is what two pulls bring, each for a whole one."""
    for pace_s in (0.0001, 0.0003, 0.001, 0.003):
        inbox = asyncio.run(inbox_after_an_outage())
        for _ in range(20):
            inbox.window.handled(10, 10 * pace_s)
            inbox.filled()
        assert 3 * inbox.window.size * pace_s < STALE_S

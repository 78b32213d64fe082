"""What a canary sees is one line of the overview, and what is wrong with it stands among what is wrong."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import PATIENCE_MS
from e2e.conftest import STANDALONE
from e2e.queues import Queue

pytestmark = pytest.mark.browser
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Queue]:
    queue = Queue(tmp_path / "watched", command=STANDALONE, options=("--canary", "0"))
    try:
        yield queue.start()
    finally:
        queue.close()


def canary_of(queue: Queue) -> int:
    [child] = Path(f"/proc/{queue.pid}/task/{queue.pid}/children").read_text().split()
    return int(child)


def test_the_overview_says_what_the_canary_sees_and_that_it_is_gone(page: Page, watched: Queue) -> None:
    page.goto(f"http://{watched.server}/console/")
    line = page.get_by_role("region", name="Canary")
    said = re.compile(
        r"^Canary of \d+ probes: 0 lost, 0 twice, from send to handler at most .+ for 99 of 100; "
        r"no change of a master was seen\.$"
    )
    expect(line).to_have_text(said)

    child = canary_of(watched)
    os.kill(child, signal.SIGSTOP)
    try:
        trouble = page.locator(".troubles li", has_text="it does not answer at 127.0.0.1:")
        expect(trouble).to_be_visible()
        expect(line).to_have_text("")
    finally:
        os.kill(child, signal.SIGCONT)
    expect(line).to_have_text(said)
    expect(page.locator(".troubles li")).to_have_text(re.compile("All is well"))

"""A Chromium for each module, and a page for each test, on which nothing may go wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from browser import asking, chromium
from e2e.conftest import STANDALONE, wait_for_later
from e2e.queues import Queue

PATIENCE_MS = 60_000
"""On a machine that is busy; what is waited for is there in a second."""


@pytest.fixture(scope="module")
def trusted() -> str:
    """The key of the one certificate that the browser takes although it knows no authority for it; usually none."""
    return ""


@pytest.fixture(scope="module")
def browser(trusted: str) -> Iterator[Browser]:
    more = [f"--host-resolver-rules=MAP {chromium.FOREIGN} 127.0.0.1"]
    more += [f"--ignore-certificate-errors-spki-list={trusted}"] if trusted else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium.program(), args=[*chromium.ARGUMENTS, *more], timeout=PATIENCE_MS
        )
        yield started
        started.close()


@pytest.fixture
def errors() -> list[str]:
    """What the page complained of. A test that provokes something empties it."""
    return []


@pytest.fixture
def page(browser: Browser, errors: list[str]) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1360, "height": 850}, color_scheme="light", locale="en-US"
    )
    context.set_default_timeout(PATIENCE_MS)
    made = context.new_page()

    def note(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            errors.append(message.text)

    made.on("console", note)
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    context.close()
    assert errors == []


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """A real `tidemill up`, and on its subject `traffic.in` real traffic; tests have subjects of their own."""
    made = Queue(tmp_path_factory.mktemp("console") / "data", command=STANDALONE).start()
    ending = threading.Event()
    busy = threading.Thread(target=_keep_busy, args=(made, ending), name="traffic")
    try:
        wait_for_later(made)
        busy.start()
        yield made
    finally:
        ending.set()
        if busy.ident is not None:
            busy.join()
        made.close()


def _keep_busy(queue: Queue, ending: threading.Event) -> None:
    """Some 60 messages a second, of which a slow group handles a part."""
    number = 0
    while not ending.wait(0.05):
        number += 1
        asking.send(queue, "traffic.in", *(f"{number}-{one}" for one in range(3)), key=f"k{number % 7}")
        receipts = asking.receive(queue, "traffic.in", "slow", 2)
        if receipts:
            asking.settle(queue, "traffic.in", "slow", "ack", receipts)

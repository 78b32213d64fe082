"""The pictures in docs/console.md: made of the real console, small, and each shown there.

``REWRITE=1 .venv/bin/pytest tests/browser/test_pictures.py`` makes them anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser.asking import bury, receive, send
from browser.conftest import PATIENCE_MS
from e2e.queues import Queue, run_command, wait_until

pytestmark = pytest.mark.browser
expect.set_options(timeout=PATIENCE_MS)

DOCS = Path(__file__).parents[2] / "docs"
BYTES_MAX = 150_000
PICTURES = {
    "overview": ("overview", "light"),
    "overview-dark": ("overview", "dark"),
    "group": ("groups/traffic.in/slow", "light"),
    "message": ("messages/id/{id}", "light"),
    "dead-letters": ("dead/order.paid/shipping", "light"),
    "archive": ("archives/years", "light"),
}


@pytest.fixture(scope="module")
def lived_in(queue: Queue, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A queue that has been used for a minute; the id of a message with a history."""
    body = '{"order": 4711, "items": ["coffee", "cake"], "total": "7.80"}'
    [identity] = send(queue, "order.paid", body, key="o-4711", tags=["vip"])
    reasons = ["KeyError: 'total'"] * 4 + ["TimeoutError: the printer does not answer"] * 2
    bury(queue, "order.paid", "shipping", "KeyError: 'total'")
    bury(queue, "order.paid", "shipping", *reasons)
    send(queue, "order.created", *(f"order {number}" for number in range(420)))
    receive(queue, "order.created", "billing", 40)
    lake = str(tmp_path_factory.mktemp("lake") / "years")
    asked = ("archive", "run", "--subject", "order.*", "--name", "years", "--to", lake, "--workers", "1")
    for _ in range(2):
        done = run_command(*asked, "--safety-lag-seconds", "0", server=queue.server, seconds=120)
        assert done.returncode == 0, done.stderr
        send(queue, "order.created", *(f"later order {number}" for number in range(12)))
    path = "/v1/overview/past?subject=traffic.in&group=slow"
    wait_until(
        "there is a past", lambda: any(len(one["points"]) > 3 for one in queue.get(path)["groups"]), 300
    )
    return identity


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_small_and_shown(
    page: Page, queue: Queue, lived_in: str, tmp_path: Path, name: str
) -> None:
    view, theme = PICTURES[name]
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.set_viewport_size({"width": 1240, "height": 720})
    page.goto(f"http://{queue.server}/console/#/{view.format(id=lived_in)}")
    expect(page.locator("#state")).to_contain_text("As of")
    ready = page.locator(".why article, tbody tr, .chart path.line[d*=L]").first
    ready.wait_for()
    if name.startswith(("overview", "group")):
        expect(page.locator(".tile dd", has_text=re.compile("/s"))).not_to_have_count(0)
    picture = page.screenshot(path=tmp_path / "picture.png")

    assert len(picture) < BYTES_MAX
    if os.environ.get("REWRITE"):
        (DOCS / "images").mkdir(exist_ok=True)
        (DOCS / "images" / f"console-{name}.png").write_bytes(picture)
    assert f"images/console-{name}.png" in (DOCS / "console.md").read_text()
    assert (DOCS / "images" / f"console-{name}.png").stat().st_size < BYTES_MAX

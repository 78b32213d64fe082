"""The console is for everybody: names for who hears it, contrast in both themes, keys for all of it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Page, expect

from browser.asking import bury, receive, send
from browser.conftest import PATIENCE_MS
from browser.judging import found_wrong
from e2e.queues import Queue
from tidemill.blocking import Client

pytestmark = pytest.mark.browser
expect.set_options(timeout=PATIENCE_MS)

CONTRAST_MIN = 4.5
LARGE_MIN = 3.0
"""Of text from 24 px on, or 18.66 px in bold (WCAG 2.1, 1.4.3)."""
VIEWS = (
    "overview", "groups", "groups/seen.in/g", "subjects", "subjects/seen.in", "messages", "messages/seen.in",
    "messages/seen.in/tail", "messages/id/{id}", "dead", "dead/seen.in/g", "timers/seen.in", "transactions", "archives",
    "archives/seen", "brokers",
)  # fmt: skip

PAINTED = """() => {
  const read = text => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return text.startsWith('color(') ? [255 * r, 255 * g, 255 * b, a] : [r, g, b, a];
  };
  const over = (top, under) => top.slice(0, 3).map((one, at) => one * top[3] + under[at] * (1 - top[3])).concat(1);
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const text = [...node.childNodes].filter(one => one.nodeType === 3).map(one => one.data.trim()).join(' ').trim();
    const box = node.getBoundingClientRect();
    const style = getComputedStyle(node);
    if (!text || !box.width || style.visibility === 'hidden' || node.closest('.unseen, option, :disabled')) continue;
    const layers = [];
    for (let one = node; one; one = one.parentElement) layers.unshift(read(getComputedStyle(one).backgroundColor));
    const ground = layers.reduce((under, top) => over(top, under), [255, 255, 255, 1]);
    const ink = node.namespaceURI.endsWith('svg') ? style.fill : style.color;
    found.push({text: text.slice(0, 40), ink: over(read(ink), ground), ground, size: parseFloat(style.fontSize),
      bold: Number(style.fontWeight) >= 700});
  }
  return found;
}"""

NAMELESS = """() => [...document.querySelectorAll('a, button, input, select, [role=img], [role=region], dialog, nav')]
  .filter(one => one.getBoundingClientRect().width)
  .filter(one => !(one.getAttribute('aria-label') || one.getAttribute('aria-labelledby') || one.innerText?.trim()
    || [...(one.labels ?? [])].some(label => label.innerText.trim())))
  .map(one => one.outerHTML.slice(0, 200))"""


class Seen(NamedTuple):
    """A queue with something to see in every view; a message of it."""

    queue: Queue
    id: str


@pytest.fixture(scope="module")
def seen(queue: Queue) -> Seen:
    [identity, *_] = send(queue, "seen.in", *"abc", key="k", tags=["t"])
    receive(queue, "seen.in", "g", 1)
    bury(queue, "seen.in", "g", "ValueError: no amount")
    send(queue, "seen.in", "later", delay="1h", timer_key="one")
    with Client(queue.server) as mq:
        mq.transaction("till").send("seen.in", b"half")
    tell(queue, "/v1/archives/seen/runs/r1", {**RUN, "state": "Failed", "error": "OSError: no room"})
    tell(queue, "/v1/replays/again", {**RUN, "dry_run": "true"})
    return Seen(queue, identity)


RUN = {
    "state": "Succeeded",
    "started_at": 1_795_000_000_000,
    "ended_at": 1_795_000_060_000,
    "counts": {"messages": 3},
}


def tell(queue: Queue, path: str, said: dict[str, Any]) -> None:
    """As a job tells it."""
    archive = {"subjects": ["seen.*"], "watermarks": {"g0": {"seen.in": 1}}} if "runs" in path else {}
    data = json.dumps({**said, **archive}).encode()
    head = {"Content-Type": "application/json"}
    with queue.open(urllib.request.Request(queue.url(path), data, head, method="PUT")):
        pass


def shown(page: Page, seen: Seen, view: str) -> None:
    page.goto(f"http://{seen.queue.server}/console/#/{view.format(id=seen.id)}")
    expect(page.locator("#state")).to_contain_text("As of")
    page.locator("main h1").wait_for(state="attached")
    if view != "messages":
        page.locator("main tbody tr, main .tile, main .facts").first.wait_for()


def luminance(colour: list[float]) -> float:
    parts = [one / 255 for one in colour[:3]]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: list[float], other: list[float]) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def too_faint(page: Page) -> list[str]:
    found: list[dict[str, Any]] = page.evaluate(PAINTED)
    assert len(found) > 10
    faint = list[str]()
    for one in found:
        large = one["size"] >= 24 or (one["bold"] and one["size"] >= 18.66)
        measured = contrast(one["ink"], one["ground"])
        if measured < (LARGE_MIN if large else CONTRAST_MIN):
            faint.append(f"{one['text']}: {measured:.2f}")
    return faint


def test_contrast_is_computed_as_the_guidelines_say() -> None:
    assert contrast([0, 0, 0, 1], [255, 255, 255, 1]) == pytest.approx(21)
    assert contrast([118, 118, 118, 1], [255, 255, 255, 1]) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(page: Page, seen: Seen, theme: Any) -> None:
    page.emulate_media(color_scheme=theme)
    grounds = set[str]()
    for view in VIEWS:
        shown(page, seen, view)
        assert too_faint(page) == [], (view, theme)
        grounds.add(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
    page.get_by_role("button", name="Keys").click()
    assert too_faint(page) == []
    assert len(grounds) == 1


def test_what_is_not_there_is_not_written(page: Page, seen: Seen) -> None:
    for view in VIEWS:
        shown(page, seen, view)
        said = page.locator("body").inner_text().split()
        assert not {"null", "undefined", "false", "NaN", "[object"} & set(said), view


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(page: Page, seen: Seen, theme: Any) -> None:
    """Names, roles, landmarks, order of headings, contrast, labels and the rest of what Lighthouse looks at; that the
    browser complains of nothing meanwhile is asserted of each page.
    """
    page.emulate_media(color_scheme=theme)
    for view in VIEWS:
        shown(page, seen, view)
        assert found_wrong(page) == [], (view, theme)
    page.get_by_role("button", name="Keys").click()
    page.get_by_role("dialog").wait_for()
    assert found_wrong(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Token").click()
    page.get_by_role("dialog").wait_for()
    assert found_wrong(page) == []


def test_axe_finds_what_is_wrong(page: Page, seen: Seen) -> None:
    """It has teeth: a button without a name, and text that is too faint."""
    shown(page, seen, "overview")
    spoiled = """() => { const one = document.createElement('button'); document.querySelector('main').append(one);
      document.querySelector('.tile dt').style.color = 'rgb(200 200 200)' }"""
    page.evaluate(spoiled)
    rules = {one.split(" ")[0] for one in found_wrong(page)}
    assert {"button-name", "color-contrast"} <= rules


def test_theme_is_turned_and_remembered(page: Page, seen: Seen) -> None:
    shown(page, seen, "overview")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme").click()
    dark = page.evaluate(ground)
    page.reload()

    assert (page.evaluate(ground), light != dark) == (dark, True)
    assert too_faint(page) == []
    page.get_by_role("button", name="Theme").click()
    assert page.evaluate(ground) == light


def test_all_that_can_be_used_has_a_name(page: Page, seen: Seen) -> None:
    for view in VIEWS:
        shown(page, seen, view)
        assert page.evaluate(NAMELESS) == [], view
        assert page.locator("h1").count() == 1, view
        assert page.locator("th:not([scope])").count() == 0
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.evaluate("document.title").endswith("tidemill")


def test_keys_lead_everywhere(page: Page, seen: Seen) -> None:
    shown(page, seen, "overview")
    for key, title in {
        "g": "Groups",
        "s": "Subjects",
        "d": "Dead letters",
        "b": "Brokers",
        "a": "Archives",
        "t": "Timers",
        "x": "Transactions",
        "m": "Messages",
    }.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    page.keyboard.press("g")
    page.keyboard.press("g")
    expect(page.get_by_role("heading", level=1)).to_have_text("Groups")
    page.locator("tbody tr").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("seen.in")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator(".scroll").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("g")
    expect(page.get_by_role("button", name="Seek…")).to_be_visible()


def test_tab_reaches_all_and_a_dialog_gives_the_focus_back(page: Page, seen: Seen) -> None:
    shown(page, seen, "groups/seen.in/g")
    expect(page.get_by_role("button", name="Suspend…")).to_be_visible()
    page.keyboard.press("Tab")
    reached = list[str]()
    for _ in range(40):
        text = page.evaluate("document.activeElement.innerText ?? ''").strip()
        if text == "Suspend…":
            break
        assert page.evaluate("document.activeElement.matches(':focus-visible')")
        reached.append(text)
        page.keyboard.press("Tab")
    assert {"Skip to the content", "Groups", "Brokers", "Theme", "Seek…"} <= set(reached)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.innerText") == "Suspend…"


def test_focus_stays_on_its_row_while_numbers_change(page: Page, seen: Seen) -> None:
    shown(page, seen, "groups")
    page.get_by_label("Filter").fill("traffic")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    page.get_by_role("link", name="slow").focus()
    before = row.text_content() or ""
    expect(row).not_to_have_text(before)

    assert page.evaluate("document.activeElement.innerText") == "slow"


def test_narrow_page_does_not_run_over(page: Page, seen: Seen) -> None:
    page.set_viewport_size({"width": 420, "height": 800})
    for view in ("overview", "groups", "messages/seen.in"):
        shown(page, seen, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= 420, view

"""Each view of the console shows what a real queue under traffic has, and each action does what it says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from browser.asking import bury, group_of, post, receive, send, settle
from browser.conftest import PATIENCE_MS
from e2e.queues import Queue, wait_until
from tidemill.blocking import Client

pytestmark = pytest.mark.browser
expect.set_options(timeout=PATIENCE_MS)


def opened(page: Page, queue: Queue, view: str) -> Page:
    page.goto(f"http://{queue.server}/console/#/{view}")
    return page


def row_of(page: Page, words: str) -> Locator:
    return page.locator("tbody tr", has_text=words)


def cell(page: Page, words: str, title: str) -> Locator:
    """Of the row with these words, the cell below that title."""
    row_of(page, words).first.wait_for()
    titles = [
        text.strip(" ↓↑") for text in page.locator("main table").first.locator("thead th").all_inner_texts()
    ]
    return row_of(page, words).locator("th, td").nth(titles.index(title))


def tile(page: Page, title: str) -> Locator:
    return page.locator(".tile", has=page.get_by_text(title, exact=True)).locator("dd")


def meant(page: Page, yes: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=yes, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_root_is_the_overview_with_what_is_wrong_and_how_it_goes(page: Page, queue: Queue) -> None:
    bury(queue, "overview.paid", "shipping", "ValueError: no amount")
    page.goto(f"http://{queue.server}/")

    expect(page).to_have_url(f"http://{queue.server}/console/")
    trouble = page.locator(".troubles li", has_text="shipping of overview.paid has 1 dead letter")
    expect(trouble).to_be_visible()
    expect(tile(page, "Brokers")).to_have_text("1 of 1")
    expect(tile(page, "Sent")).to_have_text(re.compile(r"^[1-9][\d.]*/s$"))
    expect(tile(page, "Handled")).to_have_text(re.compile(r"^[1-9][\d.]*/s$"))
    expect(page.locator(".chart path.line")).to_have_count(5)
    for line in page.locator(".chart path.line").all():
        expect(line).to_have_attribute("d", re.compile("L"))
    expect(cell(page, "slow", "Trend")).to_have_text(re.compile("grows by|steady|done in"))
    assert int(cell(page, "slow", "Lag").inner_text().replace(",", "")) > 0
    trouble.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters of shipping")


def test_group_shows_lag_and_is_suspended_and_resumed(page: Page, queue: Queue) -> None:
    send(queue, "grouped.in", *"abcde")
    settle(queue, "grouped.in", "readers", "ack", receive(queue, "grouped.in", "readers", 2))
    opened(page, queue, "groups")
    page.get_by_label("Filter").fill("grouped")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(cell(page, "readers", "Lag")).to_have_text("3")
    page.get_by_role("link", name="readers").click()

    expect(tile(page, "Lag")).to_have_text("3")
    expect(tile(page, "Handled")).to_have_text("2")
    expect(page.get_by_role("img", name="Lag over time: now lag 3")).to_be_visible()
    page.get_by_role("button", name="Suspend…").click()
    meant(page, "Suspend")
    expect(page.locator("h1 .mark")).to_have_text("suspended")
    assert group_of(queue, "grouped.in", "readers")["suspended"]
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Suspend…")).to_be_visible()
    wait_until("it goes on", lambda: not group_of(queue, "grouped.in", "readers")["suspended"], 30)


def test_seek_says_what_it_would_do_and_then_does_it(page: Page, queue: Queue) -> None:
    send(queue, "sought.in", *"abcdef")
    settle(queue, "sought.in", "readers", "ack", receive(queue, "sought.in", "readers", 6))
    opened(page, queue, "groups/sought.in/readers")
    expect(tile(page, "Lag")).to_have_text("0")
    page.get_by_role("button", name="Seek…").click()
    page.get_by_label("Go on at").select_option("sequence")
    page.get_by_label("Time or sequence").fill("2")
    page.get_by_label("Time or sequence").press("Tab")

    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("give 4 messages again")
    assert group_of(queue, "sought.in", "readers")["lag"] == 0
    meant(page, "Move it")
    expect(tile(page, "Lag")).to_have_text("4")
    assert group_of(queue, "sought.in", "readers")["lag"] == 4


def test_past_that_no_page_saw_is_in_the_chart(page: Page, queue: Queue) -> None:
    """Its broker keeps it: whoever opens the page sees since when."""
    send(queue, "past.in", *"abc")
    receive(queue, "past.in", "late", 1)
    path = "/v1/overview/past?subject=past.in&group=late"
    wait_until("it was noted", lambda: queue.get(path)["groups"], 120)
    [noted] = queue.get(path)["groups"]
    opened(page, queue, "groups/past.in/late")

    first = page.locator(".chart").first.locator("path.line")
    expect(first).to_have_attribute("d", re.compile("L"))
    assert noted["points"][0][1] == 2
    assert datetime.now(UTC).timestamp() * 1000 > noted["points"][0][0]


def test_subject_leads_to_its_groups_and_messages(page: Page, queue: Queue) -> None:
    send(queue, "subjected.in", *"abc", key="k1", tags=["vip"])
    receive(queue, "subjected.in", "one", 1)
    opened(page, queue, "subjects")
    page.get_by_label("Filter").fill("SUBJECTED")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(cell(page, "subjected.in", "Messages")).to_have_text("3")
    page.locator("tbody").get_by_role("link", name="subjected.in").click()

    expect(tile(page, "Messages")).to_have_text("3")
    expect(row_of(page, "one")).to_be_visible()
    expect(page.get_by_text("Lies on g0 as a whole")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Messages").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("tbody .tag")).to_have_text(["vip"] * 3)


def test_messages_are_found_by_key_time_and_id_and_say_why(page: Page, queue: Queue) -> None:
    [first, *_] = send(queue, "searched.in", "one coffee", key="o-1")
    send(queue, "searched.in", *(f"tea {number}" for number in range(60)), key="o-2")
    settle(queue, "searched.in", "bar", "ack", receive(queue, "searched.in", "bar", 1, "waiter"))
    opened(page, queue, "messages/searched.in")
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.locator("tbody tr").first).to_contain_text("tea 59")
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("tbody tr")).to_have_count(61)

    page.get_by_label("Key").fill("o-1")
    page.get_by_role("button", name="Look").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Subject").fill("")
    page.get_by_role("button", name="Look").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Subject").fill("searched.in")
    page.get_by_label("Key").fill("")
    page.get_by_label("To", exact=True).fill("2020-01-01T00:00:00")
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_text("No message is like that.")).to_be_visible()
    page.get_by_label("Id").fill(first)
    page.get_by_role("button", name="Open").click()

    expect(page.get_by_label("Body")).to_have_text("one coffee")
    expect(page.locator(".why article")).to_contain_text("acknowledged by")
    expect(page.locator(".why .mark")).to_have_text("acked")


def test_tail_shows_what_comes_and_takes_nothing(page: Page, queue: Queue) -> None:
    send(queue, "tailed.in", "old")
    receive(queue, "tailed.in", "readers", 1)
    opened(page, queue, "messages/tailed.in/tail")
    expect(row_of(page, "old")).to_be_visible()
    send(queue, "tailed.in", "fresh 1", "fresh 2")

    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("tbody tr").first).to_contain_text("fresh")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("tbody tr")).to_have_count(0)
    assert group_of(queue, "tailed.in", "readers")["lag"] == 2


def test_dead_letters_are_redriven_and_purged_by_what_they_failed_of(page: Page, queue: Queue) -> None:
    bury(queue, "buried.in", "shop", *["ValueError: no amount"] * 3, *["OSError: no paper"] * 2)
    opened(page, queue, "dead")
    expect(cell(page, "buried.in", "Dead")).to_have_text("5")
    row_of(page, "buried.in").get_by_role("link", name="shop").click()
    expect(page.get_by_text("5 dead letters wait")).to_be_visible()
    expect(page.locator("section").last.locator("tbody tr")).to_have_count(5)
    marks = page.locator("section").first
    expect(marks.locator("tbody tr")).to_have_count(2)

    marks.locator("tr", has_text="no paper").get_by_role("button", name=re.compile("Redrive")).click()
    expect(page.get_by_role("dialog").get_by_role("status")).to_have_text(
        re.compile("^2 dead letters would be given")
    )
    assert group_of(queue, "buried.in", "shop")["dead"] == 5
    meant(page, "Redrive")
    expect(page.get_by_text("3 dead letters wait")).to_be_visible()
    assert len(receive(queue, "buried.in", "shop", 10)) == 2
    marks.locator("tr", has_text="no amount").get_by_role("button", name=re.compile("Purge")).click()
    meant(page, "Purge")
    expect(page.get_by_text("0 dead letters wait")).to_be_visible()
    wait_until("nothing is dead", lambda: group_of(queue, "buried.in", "shop")["dead"] == 0, 30)


def test_reason_as_long_as_a_page_hides_nothing_and_no_button(page: Page, queue: Queue) -> None:
    bury(queue, "buried.long", "shop", "ValueError: " + "x" * 900, "y" * 900, "OSError: no paper")
    opened(page, queue, "dead/buried.long/shop")
    rows = page.locator("section").first.locator("tbody tr")
    expect(rows).to_have_count(3)
    for row in rows.all():
        box, window = row.bounding_box(), page.viewport_size
        assert box is not None
        assert window is not None
        assert box["height"] < 200
        purge = row.get_by_role("button", name=re.compile("Purge")).bounding_box()
        assert purge is not None
        assert purge["x"] + purge["width"] <= window["width"]


def test_where_a_subject_lies_is_said_on_its_page_and_nowhere_else(page: Page, queue: Queue) -> None:
    send(queue, "lies.in", "a")
    opened(page, queue, "subjects/lies.in")
    expect(page.locator("main p.more", has_text="Lies on g0 as a whole.")).to_be_visible()
    expect(page.locator("#told .note")).to_have_count(0)


def test_subject_that_nobody_has_is_said_to_be_none(page: Page, queue: Queue, errors: list[str]) -> None:
    opened(page, queue, "messages/nobody.has.it")
    expect(page.get_by_text("No broker has a subject of that name.")).to_be_visible()
    page.close()
    errors.clear()


def test_groups_of_a_server_that_is_away_are_not_said_to_be_none(
    page: Page, queue: Queue, errors: list[str]
) -> None:
    opened(page, queue, "groups")
    expect(row_of(page, "traffic.in")).to_be_visible()
    page.route("**/v1/**", lambda route: route.abort())
    expect(page.get_by_text("What g0 has is missing here")).to_be_visible()
    expect(row_of(page, "traffic.in")).to_be_visible()
    page.close()
    errors.clear()


def test_timers_are_listed_cancelled_and_given_another_time(page: Page, queue: Queue) -> None:
    for number in (1, 2, 3):
        send(queue, "timed.in", f"pay {number}", delay="2h", timer_key=f"order-{number}")
    wait_until("they are listed", lambda: len(queue.get("/v1/subjects/timed.in/timers")["timers"]) == 3, 30)
    opened(page, queue, "timers")
    page.get_by_label("Subject").fill("timed.in")
    page.get_by_role("button", name="Look").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Cancel order-2").click()
    meant(page, "Cancel it")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Reschedule order-3").click()
    page.get_by_role("dialog").get_by_label("At").fill("2027-01-01T12:00:00")
    meant(page, "Reschedule")
    expect(row_of(page, "order-3")).to_contain_text("2027-01-01 12:00:00")

    timers: list[dict[str, Any]] = queue.get("/v1/subjects/timed.in/timers")["timers"]
    assert {one["timer_key"] for one in timers} == {"order-1", "order-3"}
    assert next(one["due"] for one in timers if one["timer_key"] == "order-3").startswith("2027-01-01T")


def test_transactions_are_listed_and_decided(page: Page, queue: Queue) -> None:
    client = Client(queue.server)
    try:
        with client.transaction(group="till") as kept, client.transaction(group="till") as dropped:
            kept.send("traded.in", b"kept")
            dropped.send("traded.in", b"dropped")
            opened(page, queue, "transactions")
            expect(row_of(page, kept.id)).to_contain_text("traded.in")
            page.get_by_role("button", name=f"Roll back {dropped.id}").click()
            meant(page, "Roll back")
            expect(row_of(page, dropped.id)).to_have_count(0)
            page.get_by_role("button", name=f"Commit {kept.id}").click()
            meant(page, "Commit")
            expect(row_of(page, kept.id)).to_have_count(0)
            found = queue.get("/v1/subjects/traded.in/messages")["messages"]
            assert [one["text"] for one in found] == ["kept"]
            dropped.rollback()
    finally:
        client.close()


def test_brokers_say_who_leads_and_why_nobody_can_take_over(page: Page, queue: Queue) -> None:
    opened(page, queue, "brokers")

    expect(cell(page, "g0-0", "Role")).to_have_text("master")
    expect(cell(page, "g0-0", "May be stopped")).to_have_text("g0-0 is the only broker of g0")
    expect(page.get_by_role("button", name=re.compile("Hand over"))).to_have_count(0)


def test_refusal_is_told_with_what_to_do(page: Page, queue: Queue, errors: list[str]) -> None:
    opened(page, queue, f"messages/id/{0:032x}-0")

    expect(page.get_by_role("main").get_by_text("there is no message")).to_be_visible()
    assert errors
    assert all("404" in error for error in errors)
    page.close()
    errors.clear()


def test_server_that_is_away_is_told_and_comes_back(page: Page, queue: Queue, errors: list[str]) -> None:
    opened(page, queue, "overview")
    expect(page.locator("#state")).to_contain_text("As of")
    page.route("**/v1/**", lambda route: route.abort())
    expect(page.locator("#state")).to_contain_text("no answer")
    expect(page.locator("#state")).to_contain_text("what is shown is of")
    page.unroute("**/v1/**")
    page.keyboard.press("r")

    expect(page.locator("#state")).to_contain_text("As of")
    page.close()
    errors.clear()


def test_token_is_asked_for_kept_for_the_tab_and_sent(page: Page, queue: Queue, errors: list[str]) -> None:
    """A server that wants one, played by what stands before a real one."""
    seen: list[str] = []

    def guard(route: Any) -> None:
        said = route.request.headers.get("authorization", "")
        seen.append(said)
        if said == "Bearer good":
            return route.continue_()
        body = '{"error": {"code": "unauthenticated", "detail": "no token", "advice": "send one", "retryable": false}}'
        return route.fulfill(status=401, content_type="application/json", body=body)

    page.route("**/v1/**", guard)
    opened(page, queue, "overview")
    page.get_by_label("Bearer token").fill("bad")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_text("This token was refused")).to_be_visible()
    page.get_by_label("Bearer token").fill("good")
    page.get_by_role("button", name="Use it").click()

    expect(tile(page, "Brokers")).to_have_text("1 of 1")
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
    assert {"", "Bearer bad", "Bearer good"} <= set(seen)
    page.close()
    errors.clear()


def test_suspended_group_is_among_what_is_wrong(page: Page, queue: Queue) -> None:
    send(queue, "halted.in", "a")
    receive(queue, "halted.in", "halt", 1)
    post(queue, "/v1/subjects/halted.in/groups/halt/suspend")
    opened(page, queue, "overview")

    expect(page.locator(".troubles li", has_text="halt of halted.in is suspended")).to_be_visible()
    post(queue, "/v1/subjects/halted.in/groups/halt/resume")
    expect(page.locator(".troubles li", has_text="halted.in is suspended")).to_have_count(0)

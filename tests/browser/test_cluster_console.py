"""Served by meta, the console shows and changes what brokers elsewhere have, and hands masterships over."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import PATIENCE_MS
from e2e.clusters import Cluster
from e2e.queues import wait_until
from tidemill import Client

pytestmark = pytest.mark.browser
expect.set_options(timeout=PATIENCE_MS)
SENT = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two broker groups with a slave each, and a subject with a group on both."""
    made = Cluster(tmp_path_factory.mktemp("console") / "cluster", 2, 1)
    try:
        made.start()
        made.children()
        wait_until("slaves are in sync", lambda: in_sync(made) == 4, 120)
        run(use(made))
        yield made
    finally:
        made.close()


def in_sync(cluster: Cluster) -> int:
    groups: list[dict[str, Any]] = cluster.get("/v1/brokers")
    return sum(one["in_sync"] and one["alive"] for group in groups for one in group["brokers"])


def run(work: Coroutine[Any, Any, None]) -> None:
    """In a thread: the browser's driver has a loop in this one."""
    with ThreadPoolExecutor(1) as lane:
        lane.submit(asyncio.run, work).result()


async def use(cluster: Cluster) -> None:
    async with Client(cluster.server) as mq:
        async with mq.consume("order.created", group="billing", start="earliest") as messages:
            for number in range(SENT):
                await mq.send("order.created", b"order %d" % number, key=f"o-{number}")
            for _ in range(5):
                async with asyncio.timeout(60):
                    message = await anext(messages)
                await message.ack()


def rows(cluster: Cluster) -> int:
    return sum(row["acked"] for row in cluster.get_masters("/v1/groups"))


def test_group_on_two_broker_groups_is_one_row_with_its_sum(
    page: Page, cluster: Cluster, errors: list[str]
) -> None:
    page.goto(f"http://{cluster.server}/")
    row = page.locator("tbody tr", has_text="billing")
    expect(row).to_have_count(1)
    row.get_by_role("link", name="billing").click()

    handled = page.locator(".tile", has=page.get_by_text("Handled", exact=True)).locator("dd")
    expect(handled).to_have_text(str(rows(cluster)))
    on = page.locator(".tile", has=page.get_by_text("On", exact=True)).locator("dd")
    expect(on).to_have_text("g0, g1")
    page.goto(f"http://{cluster.server}/console/#/messages/order.created")
    expect(page.locator("tbody tr")).to_have_count(SENT)
    times = page.locator("tbody tr th").all_inner_texts()
    assert times == sorted(times, reverse=True)
    page.locator("tbody a").first.click()
    expect(page.get_by_label("Body")).to_have_text(f"order {SENT - 1}")
    expect(page.locator(".why article")).to_have_count(1)
    page.close()
    assert all("404" in error for error in errors), "of the broker group that does not have the message"
    errors.clear()


def test_mastership_is_handed_over_by_a_button(page: Page, cluster: Cluster, errors: list[str]) -> None:
    former = cluster.group("g0")
    page.goto(f"http://{cluster.server}/console/#/brokers")
    page.get_by_role("button", name=re.compile("^Hand over to g0")).click()
    page.get_by_role("dialog").get_by_role("button", name="Hand over", exact=True).click()

    expect(page.locator("#told .good")).to_contain_text(
        re.compile(r"g0-\d is master of g0, in epoch \d+, after")
    )
    page.close()
    assert all("503" in error for error in errors), "of a broker that becomes another one just then"
    errors.clear()
    new = cluster.group("g0")
    assert (new["master"] != former["master"], new["epoch"]) == (True, former["epoch"] + 1)
    wait_until("both are in sync again", lambda: in_sync(cluster) == 4, 120)
    run(use(cluster))


def test_group_is_suspended_wherever_it_is(page: Page, cluster: Cluster) -> None:
    page.goto(f"http://{cluster.server}/console/#/groups/order.created/billing")
    page.get_by_role("button", name="Suspend…").click()
    page.get_by_role("dialog").get_by_role("button", name="Suspend", exact=True).click()
    expect(page.locator("h1 .mark")).to_have_text("suspended")
    rows = [row for row in cluster.get_masters("/v1/groups") if row["group"] == "billing"]
    assert [row["suspended"] for row in rows] == [True, True]
    page.get_by_role("button", name="Resume").click()
    wait_until(
        "it goes on", lambda: not any(row["suspended"] for row in cluster.get_masters("/v1/groups")), 60
    )

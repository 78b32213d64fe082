"""A console behind TLS and a token: who signs in sees what was granted, is offered that, and gets done only that."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
from playwright.sync_api import Page, Route, expect

from browser.asking import group_of, send
from browser.conftest import PATIENCE_MS
from browser.locked import HIDDEN, PEOPLE, SEEN, LockedCluster
from e2e.queues import wait_until
from tidemill_console.relay import OWN_HEADER, PASSED

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
expect.set_options(timeout=PATIENCE_MS)

GROUP = f"groups/{SEEN}/billing"
DEAD = f"dead/{SEEN}/billing"
VIEWS = ("overview", "groups", GROUP, "subjects", f"subjects/{SEEN}", f"messages/{SEEN}", f"messages/{SEEN}/tail",
         "dead", DEAD, f"timers/{SEEN}", "transactions", "brokers")  # fmt: skip
CHANGES = re.compile(r"Seek|Suspend|Resume|Redrive|Purge|Cancel|Reschedule|Commit|Roll back|Hand over")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedCluster]:
    made = LockedCluster(tmp_path_factory.mktemp("locked"))
    try:
        made.start()
        made.children()
        made.furnish()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def trusted(cluster: LockedCluster) -> str:
    return cluster.key


def signed_in(page: Page, cluster: LockedCluster, who: str, view: str = "overview") -> None:
    """By the dialog, as a person does it."""
    page.goto(f"{cluster.address}/console/#/{view}")
    page.get_by_label("Bearer token").fill(cluster.tokens[who])
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#who")).to_have_text(f"token:{who}")
    expect(page.locator("#state")).to_contain_text("As of")


def opened(page: Page, view: str) -> None:
    page.evaluate("view => { location.hash = `#/${view}` }", view)
    expect(page.locator("main h1")).to_have_count(1)


def first_refusals_are_of_signing_in(errors: list[str]) -> None:
    """A browser complains of each 401; of nothing else that this page asked."""
    assert all("401" in error for error in errors), errors
    errors.clear()


def meant(page: Page, yes: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=yes, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def tile(page: Page, title: str) -> Any:
    return page.locator(".tile", has=page.get_by_text(title, exact=True)).locator("dd")


# -- who is let in ------------------------------------------------------------------------------------------------


def test_wrong_token_is_refused_and_the_right_one_says_who_it_is(
    page: Page, cluster: LockedCluster, errors: list[str]
) -> None:
    page.goto(f"{cluster.address}/")
    expect(page).to_have_url(f"{cluster.address}/console/")
    expect(page.get_by_text("Nothing is shown to who has not said who asks")).to_be_visible()
    page.get_by_label("Bearer token").fill("x" * 43)
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_text("This token was refused")).to_be_visible()
    assert "did not come by TLS" not in page.get_by_role("dialog").inner_text()
    assert SEEN not in page.content()
    page.get_by_label("Bearer token").fill(cluster.tokens["keeper"])
    page.get_by_role("button", name="Use it").click()

    expect(page.locator("#who")).to_have_text("token:keeper")
    expect(page.locator("tbody tr", has_text="smelters")).to_be_visible()
    expect(page.locator("tbody tr", has_text="billing")).to_be_visible()
    expect(tile(page, "Subjects")).to_have_text("3")
    first_refusals_are_of_signing_in(errors)


def test_who_may_look_at_some_sees_these_and_no_trace_of_others(
    page: Page, cluster: LockedCluster, errors: list[str]
) -> None:
    signed_in(page, cluster, "reader")
    first_refusals_are_of_signing_in(errors)
    expect(page.get_by_text("Sums and groups are of what token:reader may look at: order.*")).to_be_visible()
    expect(tile(page, "Subjects")).to_have_text("2")
    expect(tile(page, "Dead")).to_have_text("2")

    for view in VIEWS:
        opened(page, view)
        if view in {GROUP, "groups", "subjects", "dead", f"messages/{SEEN}"}:
            page.locator("tbody tr, main .tile").first.wait_for()
        assert HIDDEN not in page.content(), view
        assert "smelters" not in page.content(), view
        assert not {"null", "undefined"} & set(page.locator("body").inner_text().split()), view
        if view not in {"transactions", "brokers"}:
            page.locator("main").get_by_text(re.compile("order|billing")).first.wait_for()
        assert page.locator("main").get_by_role("button", name=CHANGES).count() == 0, view
    for view, said in {
        GROUP: "token:reader may not administer 'order.paid'",
        DEAD: "token:reader may not administer 'order.paid'",
        "transactions": "token:reader may not administer all subjects",
        f"dead/{HIDDEN}/smelters": f"token:reader may not look at '{HIDDEN}'",
        f"messages/{HIDDEN}": f"token:reader may not look at '{HIDDEN}'",
        f"messages/{HIDDEN}/tail": f"token:reader may not look at '{HIDDEN}'",
        f"timers/{HIDDEN}": f"token:reader may not look at '{HIDDEN}'",
        f"timers/{SEEN}": "token:reader may not send to 'order.paid'",
    }.items():
        opened(page, view)
        expect(page.get_by_text(said).first).to_be_visible()
    expect(page.locator("tbody tr", has_text=f"timer of {SEEN}")).to_be_visible()
    assert errors == [], "nothing was asked for that is refused"


def test_who_was_granted_nothing_is_told_so(page: Page, cluster: LockedCluster, errors: list[str]) -> None:
    signed_in(page, cluster, "guest")

    expect(page.get_by_text("token:guest may look at no subject")).to_be_visible()
    expect(tile(page, "Groups")).to_have_text("0")
    for view in VIEWS:
        opened(page, view)
        assert "billing" not in page.locator("main tbody").all_inner_texts()
        assert page.locator("main").get_by_role("button", name=CHANGES).count() == 0, view
    first_refusals_are_of_signing_in(errors)


# -- what is done -------------------------------------------------------------------------------------------------


def fill_in(template: str, cluster: LockedCluster) -> str:
    known = {
        "subject": SEEN,
        "consumers": "billing",
        "id": cluster.later,
        "transaction": cluster.transactions[0],
    }
    return re.sub(r"\{(\w+)\}", lambda found: known[found[1]], template)


def answered(cluster: LockedCluster, method: str, path: str, token: str) -> int:
    """By a program that sends what the page sends."""
    head = {OWN_HEADER: "1", "Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = b"{}" if method == "POST" else None
    try:
        with cluster.open(urllib.request.Request(cluster.url(path), data, head, method=method)) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize(("method", "path"), PASSED, ids=[f"{method} {path}" for method, path in PASSED])
def test_what_is_passed_on_is_judged_where_it_is_done(cluster: LockedCluster, method: str, path: str) -> None:
    [group] = cluster.get("/v1/brokers")
    there = f"/console/at/g0/{group['master']}{fill_in(path, cluster)}"

    assert answered(cluster, method, there, "x" * 43) == 401
    if method == "POST":
        assert answered(cluster, method, there, cluster.tokens["reader"]) == 403
        assert answered(cluster, method, there, cluster.tokens["guest"]) == 403


ACTIONS: dict[str, tuple[str, str, str | None]] = {
    "seek": (GROUP, "Seek…", None),
    "suspend": (GROUP, "Suspend…", "Suspend"),
    "redrive": (DEAD, "Redrive all…", "Redrive"),
    "purge": (DEAD, "Purge all…", "Purge"),
    "cancel": (f"timers/{SEEN}", f"Cancel timer of {SEEN}", "Cancel it"),
    "commit": ("transactions", "Commit {0}", "Commit"),
    "roll back": ("transactions", "Roll back {0}", "Roll back"),
    "hand over": ("brokers", "Hand over to", "Hand over"),
}
"""What the page does: in which view, by which button, and how it is meant; nothing when a rehearsal is refused."""


@pytest.mark.parametrize("name", ACTIONS)
def test_page_that_offers_too_much_gets_nothing_done(
    page: Page, cluster: LockedCluster, errors: list[str], name: str
) -> None:
    """One that was tampered with: it takes its reader for somebody who may do everything."""
    view, label, yes = ACTIONS[name]
    lie = {"who": "token:reader", "everything": False,
           "permissions": [{"operations": ["Admin", "Send", "Browse"], "subjects": ["*"]}]}  # fmt: skip
    page.route("**/v1/access/own", lambda route: route.fulfill(json=lie))
    listed = [{"id": cluster.transactions[0], "group": "till", "subjects": [SEEN], "messages": 1, "bytes": 9,
               "stored_ms": 1, "checks": 0, "next_check_ms": 1, "committing": False}]  # fmt: skip

    def transactions(route: Route) -> None:
        if route.request.method != "GET":
            return route.continue_()
        return route.fulfill(json={"pending": 1, "transactions": listed})

    page.route("**/v1/transactions", transactions)
    page.goto(f"{cluster.address}/console/#/{view}")
    page.evaluate("token => sessionStorage.setItem('tidemill.token', token)", cluster.tokens["reader"])
    page.reload()
    before = standing(cluster)
    with page.expect_response(lambda answer: answer.status == 403 and answer.request.method == "POST"):
        page.get_by_role(
            "button", name=re.compile(f"^{re.escape(label.format(*cluster.transactions))}")
        ).click()
        if yes is not None:
            meant(page, yes)

    refusal = page.get_by_role("dialog").get_by_role("status") if yes is None else page.locator("#told .bad")
    expect(refusal).to_contain_text("token:reader was not granted")
    expect(refusal).to_contain_text("ask whoever administers the queue for a grant")
    assert standing(cluster) == before
    page.close()
    errors.clear()


def standing(cluster: LockedCluster) -> dict[str, Any]:
    """What those actions would change."""
    broker = cluster.broker()
    group = group_of(broker, SEEN, "billing")
    return {
        **{what: group[what] for what in ("lag", "dead", "suspended")},
        "timers": broker.get(f"/v1/subjects/{SEEN}/timers")["timers"],
        "transactions": broker.get("/v1/transactions")["pending"],
        "master": cluster.group("g0")["master"],
    }


def test_who_administers_a_subject_steers_it_and_nothing_else(
    page: Page, cluster: LockedCluster, errors: list[str]
) -> None:
    signed_in(page, cluster, "steward", GROUP)
    first_refusals_are_of_signing_in(errors)
    page.get_by_role("button", name="Suspend…").click()
    meant(page, "Suspend")
    expect(page.locator("h1 .mark")).to_have_text("suspended")
    assert group_of(cluster.broker(), SEEN, "billing")["suspended"]
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Suspend…")).to_be_visible()
    opened(page, f"timers/{SEEN}")
    page.get_by_role("button", name=f"Reschedule timer of {SEEN}").click()
    page.get_by_role("dialog").get_by_label("At").fill("2027-02-03T04:05:06")
    meant(page, "Reschedule")
    expect(page.locator("tbody tr", has_text="2027-02-03 04:05:06")).to_be_visible()
    opened(page, "brokers")
    expect(page.locator("tbody tr", has_text="in sync")).to_have_count(4)
    expect(page.get_by_role("button", name="Hand over")).to_have_count(0)
    opened(page, f"groups/{HIDDEN}/smelters")
    expect(page.get_by_text(f"token:steward may not administer '{HIDDEN}'")).to_be_visible()
    assert page.locator("main").get_by_role("button", name=CHANGES).count() == 0


def test_who_administers_all_decides_transactions_timers_and_masters(
    page: Page, cluster: LockedCluster, errors: list[str]
) -> None:
    """Each passed on by meta, over TLS, to whoever has to do it; and noted with a name."""
    later = send(cluster.broker(), SEEN, "for nobody", delay="4h")[0]
    before = standing(cluster)
    signed_in(page, cluster, "keeper", "transactions")
    first_refusals_are_of_signing_in(errors)
    dropped = cluster.transactions[1]
    page.get_by_role("button", name=f"Roll back {dropped}").click()
    meant(page, "Roll back")
    expect(page.locator("tbody tr", has_text=dropped)).to_have_count(0)
    opened(page, "timers")
    page.get_by_label("Id", exact=True).fill(later)
    page.get_by_role("button", name="Find").click()
    expect(page.locator("tbody tr", has_text=SEEN)).to_have_count(1)
    page.get_by_role("button", name=f"Cancel {later}").click()
    meant(page, "Cancel it")
    expect(page.locator("#told .good", has_text="1 cancelled")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(0)
    former = cluster.group("g0")
    opened(page, "brokers")
    page.get_by_role("button", name=re.compile("^Hand over to g0")).click()
    meant(page, "Hand over")
    expect(page.locator("#told .good", has_text="is master of g0")).to_be_visible()
    assert cluster.group("g0")["master"] != former["master"]
    page.close()
    assert all("503" in error for error in errors), "of a broker that becomes another one just then"
    errors.clear()
    noted = cluster.audit_file.read_text()
    for what in (f"/v1/transactions/{dropped}/rollback", "/v1/groups/g0/handover"):
        assert re.search(rf'"who": "token:keeper", "what": "POST {re.escape(what)}"', noted), what
    wait_until("the slave is in sync again", cluster.is_whole, 120)
    # A master shows what it began with when it knows who else has it; who becomes one, or no more, closes its door.
    wait_until("groups have what they had", lambda: lag_if_told(cluster) == before["lag"], 120)


def lag_if_told(cluster: LockedCluster) -> int | None:
    try:
        return int(standing(cluster)["lag"])
    except OSError:
        return None


def test_grant_that_changes_is_seen_and_a_token_that_is_revoked_ends_it(
    page: Page, cluster: LockedCluster, errors: list[str]
) -> None:
    """Without the page being loaded again."""
    made = cluster.post("/v1/access/tokens", {"who": "novice"})
    cluster.tokens["novice"] = made["secret"]
    signed_in(page, cluster, "novice", GROUP)
    first_refusals_are_of_signing_in(errors)
    cluster.grant("novice", PEOPLE["reader"])
    expect(tile(page, "Lag")).to_be_visible()
    assert page.locator("main").get_by_role("button", name=CHANGES).count() == 0
    cluster.grant("novice", PEOPLE["steward"])
    expect(page.get_by_role("button", name="Suspend…")).to_be_visible()

    revoke = urllib.request.Request(cluster.url(f"/v1/access/tokens/{made['token']}"), method="DELETE")
    with cluster.open(revoke):
        pass
    expect(page.get_by_text("This token was refused")).to_be_visible()
    page.close()
    first_refusals_are_of_signing_in(errors)

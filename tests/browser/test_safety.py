"""What is hostile stays text: bodies, keys, tags, names; and pages of somebody else do nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from browser.asking import bury, group_of, post, receive, send
from browser.chromium import FOREIGN
from browser.conftest import PATIENCE_MS
from e2e.conftest import STANDALONE
from e2e.queues import Queue

pytestmark = pytest.mark.browser
expect.set_options(timeout=PATIENCE_MS)

HOSTILE = (
    "\"'><img src=x onerror=window.hacked=1><script>window.hacked=1</script><svg onload=window.hacked=1>"
)
INJECTED = "main img, main script, main iframe, main [onerror], main [onload], main a:not([href^='#/'])"
VIEWS = (
    "overview", "groups", "groups/hostile.in/g", "subjects", "subjects/hostile.in", "messages/hostile.in",
    "messages/hostile.in/tail", "dead", "dead/hostile.in/g", "timers/hostile.in", "transactions", "archives", "brokers",
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile(queue: Queue) -> str:
    """The id of a message of which everything is hostile that a sender chooses; it has failed, and another waits."""
    more: dict[str, Any] = {"key": HOSTILE, "tags": [HOSTILE], "properties": {HOSTILE: HOSTILE}}
    [identity, *_] = send(queue, "hostile.in", HOSTILE, f'{{"a": "{quote(HOSTILE)}"}}', **more)
    receive(queue, "hostile.in", "g", 2)
    bury(queue, "hostile.in", "g", HOSTILE, **more)
    send(queue, "hostile.in", HOSTILE, delay="2h", timer_key=HOSTILE)
    return identity


def untouched(page: Page) -> None:
    assert page.evaluate("window.hacked") is None
    assert page.locator(INJECTED).count() == 0


def test_hostile_messages_are_text_in_every_view(page: Page, queue: Queue, hostile: str) -> None:
    for view in (*VIEWS, f"messages/id/{hostile}"):
        page.goto(f"http://{queue.server}/console/#/{view}")
        expect(page.locator("#state")).to_contain_text("As of")
        if view.startswith(("messages/", "dead/", "timers/")):
            expect(page.get_by_text(HOSTILE[:60]).first).to_be_visible()
        page.get_by_role("heading", level=1).wait_for(state="attached")
        untouched(page)
    expect(page.locator(".facts")).to_contain_text(HOSTILE)
    expect(page.locator(".why article").first).to_be_visible()
    untouched(page)


def test_hostile_names_are_text_whoever_says_them(page: Page, queue: Queue) -> None:
    """No broker makes such names; one that was taken over might."""
    row = {"group": HOSTILE, "subject": HOSTILE, "lag": 7, "in_flight": 0, "failed": 0, "dead": 1, "paused": HOSTILE,
           "acked": 0, "consumption": HOSTILE, "suspended": True, "consumers": 0}  # fmt: skip
    sums = {
        "lag": 7,
        "in_flight": 0,
        "failed": 0,
        "dead": 1,
        "acked": 0,
        "consumers": 0,
        "paused": 1,
        "suspended": 1,
    }
    said = {"count": 1, "found": 1, "made_ms": 1, "sums": sums, "groups": [row]}
    page.route("**/v1/overview/groups*", lambda route: route.fulfill(json=said))
    for view in ("overview", "groups", "dead", f"groups/{quote(HOSTILE, safe='')}/{quote(HOSTILE, safe='')}"):
        page.goto(f"http://{queue.server}/console/#/{view}")
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        untouched(page)


@pytest.mark.parametrize("view", ["groups/{}/{}", "subjects/{}", "timers/{}", "{}", "__proto__/constructor"])
def test_hostile_link_into_the_console_does_nothing(
    page: Page, queue: Queue, errors: list[str], view: str
) -> None:
    page.goto(f"http://{queue.server}/console/#/{view.replace('{}', quote(HOSTILE, safe=''))}")

    expect(page.locator("#state")).to_contain_text("As of")
    untouched(page)
    page.close()
    errors.clear()  # there is no such thing, says the server


def test_policy_stops_markup_and_code_that_a_mistake_would_let_in(
    page: Page, queue: Queue, errors: list[str]
) -> None:
    page.goto(f"http://{queue.server}/console/")

    stopped = (
        "() => { try { document.body.%s; return false } catch (error) { return error instanceof TypeError } }"
    )
    assert page.evaluate(stopped % "innerHTML = '<b>x</b>'")
    assert page.evaluate(stopped % "insertAdjacentHTML('beforeend', '<b>x</b>')")
    assert page.evaluate(stopped % "setAttribute('onclick', 'window.hacked = 1')")
    page.evaluate("() => fetch('http://127.0.0.1:9/').catch(() => {})")
    assert page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in error for error in errors)
    page.close()
    errors.clear()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Queue]:
    """A queue that was told a name."""
    queue = Queue(tmp_path / "told", settings={"TIDEMILL_CONSOLE_HOSTS": FOREIGN}, command=STANDALONE).start()
    yield queue
    queue.close()


# -- pages of somebody else ----------------------------------------------------------------------------------------


class Elsewhere(BaseHTTPRequestHandler):
    """A page without anything in it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """The origin of a page of somebody else."""
    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever, name="elsewhere")
    thread.start()
    yield f"http://{FOREIGN}:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


ATTACKS = {
    "a request without preflight": "url => fetch(url, {method: 'POST', mode: 'no-cors', body: '{}'})",
    "one that says it is JSON": "url => fetch(url, {method: 'POST', headers: {'Content-Type': 'application/json'}})",
    "one with the console's field": "url => fetch(url, {method: 'POST', headers: {'Tidemill-Console': '1'}})",
    "a beacon": "url => navigator.sendBeacon(url, '{}')",
    "a form": "url => { const one = document.createElement('form'); one.method = 'post'; one.action = url;"
    " one.target = '_blank'; document.body.append(one); one.submit() }",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_page_of_somebody_else_changes_nothing(
    page: Page, queue: Queue, elsewhere: str, errors: list[str], attack: str
) -> None:
    send(queue, "forged.in", "a")
    receive(queue, "forged.in", "victim", 1)
    url = f"http://{queue.server}/v1/subjects/forged.in/groups/victim/suspend"
    page.goto(elsewhere)
    done = f"async url => {{ try {{ await ({ATTACKS[attack]})(url) }} catch (error) {{ }} }}"
    with page.context.expect_event("request", lambda one: "suspend" in one.url) as asked:
        page.evaluate(done, url)
    asked.value.response()  # it was answered, or the browser did not even send it

    assert not group_of(queue, "forged.in", "victim")["suspended"]
    post(queue, "/v1/subjects/forged.in/groups/victim/suspend")
    assert group_of(queue, "forged.in", "victim")["suspended"], "a program may"
    post(queue, "/v1/subjects/forged.in/groups/victim/resume")
    page.close()
    errors.clear()


def test_page_of_somebody_else_reads_nothing(
    page: Page, queue: Queue, elsewhere: str, errors: list[str]
) -> None:
    page.goto(elsewhere)
    read = (
        "async url => { try { return await (await fetch(url)).text() } catch (error) { return 'nothing' } }"
    )

    assert page.evaluate(read, f"http://{queue.server}/v1/subjects") == "nothing"
    page.evaluate(
        "url => { const one = document.createElement('iframe'); one.src = url; document.body.append(one) }",
        f"http://{queue.server}/console/",
    )
    page.wait_for_function("window.frames.length === 1")
    expect(page.frame_locator("iframe").get_by_text("Overview")).to_have_count(0)
    page.close()
    errors.clear()


def test_name_that_was_made_to_lead_here_reads_nothing(page: Page, queue: Queue, errors: list[str]) -> None:
    """DNS rebinding: the browser takes the page and the queue for one origin."""
    for path in ("/console/", "/v1/subjects", "/v1/subjects/forged.in/messages", "/metrics"):
        answer = page.goto(f"http://{FOREIGN}:{queue.http_port}{path}")
        assert answer is not None
        assert (answer.status, answer.json()["error"]["code"]) == (403, "foreign_host")
    page.close()
    errors.clear()


def test_name_that_the_operator_told_is_taken(page: Page, told: Queue) -> None:
    answer = page.goto(f"http://{FOREIGN}:{told.http_port}/console/")

    assert answer is not None
    assert answer.status == 200
    expect(page.locator("#state")).to_contain_text("As of")

"""Archives and replays as their real jobs told of them: how far, how it went, what stopped them."""

from __future__ import annotations

import re
import urllib.parse
import urllib.request

import pytest
from playwright.sync_api import Page, expect

from browser.asking import send
from browser.conftest import PATIENCE_MS
from e2e.queues import Queue, run_command

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
expect.set_options(timeout=PATIENCE_MS)
SUBJECTS = ("kept.in", "kept.out")
HOSTILE = "<img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="module")
def archived(queue: Queue, tmp_path_factory: pytest.TempPathFactory) -> Queue:
    """Two subjects of which a part is archived; an archive that failed; a replay that counts and one that sent."""
    folder = tmp_path_factory.mktemp("lakes")
    for subject in SUBJECTS:
        send(queue, subject, *(f"{subject} {number}" for number in range(5)), key="k")
    asked = ("archive", "run", "--subject", "kept.*", "--name", "years", "--to", str(folder / "lake"))
    done = run_command(
        *asked, "--safety-lag-seconds", "0", "--workers", "1", server=queue.server, seconds=120
    )
    assert done.returncode == 0, done.stderr
    send(queue, "kept.in", "after the run", "and another")
    (folder / "file").write_text("where a folder should be")
    broken = ("archive", "run", "--subject", "kept.in", "--name", "broken", "--to", str(folder / "file"))
    done = run_command(*broken, "--workers", "1", server=queue.server, seconds=120)
    assert done.returncode != 0
    for name, more in (("counted", ["--dry-run"]), ("resent", [])):
        again = ("archive", "replay", str(folder / "lake"), "--subject", "kept.out", "--target", "kept.again")
        done = run_command(*again, "--run", name, *more, server=queue.server, seconds=120)
        assert done.returncode == 0, done.stderr
    return queue


def opened(page: Page, queue: Queue, view: str) -> None:
    page.goto(f"http://{queue.server}/console/#/{view}")
    page.locator("main tbody tr").first.wait_for()


def cells(page: Page, table: str, words: str) -> dict[str, str]:
    """Of the row with these words, what stands below each title."""
    found = page.get_by_role("table", name=table, exact=True)
    row = found.locator("tbody tr", has_text=words)
    expect(row).to_have_count(1)
    titles = found.locator("thead th").all_inner_texts()
    return dict(zip(titles, row.locator("th, td").all_inner_texts(), strict=True))


def tile(page: Page, title: str) -> str:
    return page.locator(".tile", has=page.get_by_text(title, exact=True)).locator("dd").inner_text()


def test_an_archive_that_failed_is_among_what_is_wrong(page: Page, archived: Queue) -> None:
    """On the first page, and for who asks by the command line; one that is well is not."""
    page.goto(f"http://{archived.server}/console/#/overview")
    said = page.get_by_role("region", name="What is wrong").get_by_role("listitem")
    trouble = said.filter(has_text=re.compile("broken is an archive whose last run failed"))
    expect(trouble).to_have_count(1)
    expect(trouble).to_contain_text(str(archived.get("/v1/archives/broken")["runs"][-1]["error"])[:40])
    trouble.get_by_role("link", name="broken").click()
    expect(page.locator("main h1")).to_contain_text("broken")

    for asked in (["status"], ["doctor", "--over", "0"]):
        done = run_command(*asked, server=archived.server)
        assert done.returncode == 1, done.stdout
        assert "archive broken" in done.stdout
        assert "archive years" not in done.stdout


def test_archives_and_replays_are_listed_as_their_jobs_told(page: Page, archived: Queue) -> None:
    opened(page, archived, "archives")

    years, broken = cells(page, "Archives", "years"), cells(page, "Archives", "broken")
    assert (years["Is"], years["Subjects"], years["Last run"], years["Error"]) == (
        "Active", "kept.*", "Succeeded", "",
    )  # fmt: skip
    assert re.fullmatch(r"\d+ (s|min \d+ s) ago", years["That is"])
    assert (broken["Last run"], broken["Archived up to"]) == ("Failed", "–")
    assert broken["Error"] == archived.get("/v1/archives/broken")["runs"][-1]["error"]
    counted, resent = cells(page, "Replays", "counted"), cells(page, "Replays", "resent")
    assert (counted["Is"], counted["Messages"], counted["Sends"]) == ("Succeeded", "5", "nothing, it counts")
    assert (resent["Is"], resent["Messages"], resent["Sends"]) == ("Succeeded", "5", "yes")


def test_archive_says_how_far_it_is_behind_each_partition(page: Page, archived: Queue) -> None:
    opened(page, archived, "archives")
    page.get_by_role("link", name="years").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Archive years")

    behind, done = cells(page, "How far it is", "kept.in"), cells(page, "How far it is", "kept.out")
    assert (behind["Archived below"], behind["Next sequence"], behind["Behind"]) == ("5", "7", "2")
    assert (done["Archived below"], done["Next sequence"], done["Behind"]) == ("5", "5", "0")
    assert {behind["Gone before"], done["Gone before"]} == {"0"}
    said = archived.get("/v1/archives/years")
    assert said["watermarks"] == {"g0": {"kept.in": 5, "kept.out": 5}}
    run = cells(page, "Runs", said["runs"][-1]["run"])
    assert (run["Is"], run["Messages"], run["Missing"]) == ("Succeeded", "10", "0")
    # What was sent again is a subject of the archive, too, of which it has nothing yet.
    again = cells(page, "How far it is", "kept.again")
    assert (again["Archived below"], again["Behind"]) == ("–", "5")
    assert tile(page, "Behind") == "7"
    send(archived, "kept.out", "one more")
    expect(
        page.get_by_role("table", name="How far it is").locator("tbody tr", has_text="kept.out")
    ).to_contain_text("6")


def test_run_that_failed_says_of_what_first(page: Page, archived: Queue) -> None:
    opened(page, archived, "archives/broken")

    error = archived.get("/v1/archives/broken")["runs"][-1]["error"]
    expect(page.locator(".note.bad")).to_have_text(f"The last run failed: {error}")
    assert tile(page, "Last run") == "Failed"
    assert tile(page, "Behind") == "7", "nothing of it is archived"


def test_run_whose_driver_was_killed_is_lost_and_says_when_it_was_heard(page: Page, archived: Queue) -> None:
    def put(path: str, body: bytes) -> None:
        head = {"Content-Type": "application/json"}
        asked = urllib.request.Request(
            archived.url(f"/v1/archives/gone/runs/r1{path}"), body, head, method="PUT"
        )
        with archived.open(asked):
            pass

    put("", b'{"state": "Running", "subjects": ["kept.in"]}')
    put("/beat", b'{"every_ms": 0}')
    opened(page, archived, "archives/gone")
    said = page.locator(".note.bad")
    expect(said).to_contain_text("The last run is lost: its driver was last heard of ")
    assert tile(page, "Last run") == "Lost"
    page.goto(f"http://{archived.server}/console/#/overview")
    trouble = page.get_by_role("region", name="What is wrong").get_by_role("listitem")
    expect(trouble.filter(has_text="is an archive whose last run is lost")).to_have_count(1)


def test_what_a_job_says_of_itself_is_text(page: Page, archived: Queue) -> None:
    body = f'{{"state": "Failed", "error": "{HOSTILE}", "subjects": ["kept.in"]}}'.encode()
    head = {"Content-Type": "application/json"}
    path = f"/v1/archives/hostile/runs/{urllib.parse.quote('r1')}"
    with archived.open(urllib.request.Request(archived.url(path), body, head, method="PUT")):
        pass
    for view in ("archives", "archives/hostile"):
        opened(page, archived, view)
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img").count() == 0


def test_archive_that_nobody_told_of_is_said_to_be_none(page: Page, queue: Queue, errors: list[str]) -> None:
    page.goto(f"http://{queue.server}/console/#/archives/nowhere")

    expect(page.locator("#told .bad")).to_contain_text("there is no archive 'nowhere'")
    page.close()
    assert all("404" in error for error in errors)
    errors.clear()


@pytest.mark.parametrize(
    ("subjects", "common"),
    [
        (["order.*"], "order."), (["order.paid"], "order.paid"), (["order.paid", "order.put"], "order.p"),
        (["a", "b"], ""), (["*"], ""), ([], ""), (["order.*", "order.paid"], "order."), (["x" * 120], "x" * 100),
    ],
)  # fmt: skip
def test_brokers_are_asked_for_what_the_archive_has_and_little_else(
    page: Page, queue: Queue, subjects: list[str], common: str
) -> None:
    page.goto(f"http://{queue.server}/console/")
    loaded = "async subjects => (await import('/console/views/archives.js')).common(subjects)"
    assert page.evaluate(loaded, subjects) == common

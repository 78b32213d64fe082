"""Structured logs of real services: a line an event, and more of them for a while."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.asking import post
from e2e.conftest import STANDALONE, MakeQueue
from e2e.queues import COMMAND, Queue, run_command, wait_until

pytestmark = pytest.mark.e2e


def events(queue: Queue) -> list[dict[str, Any]]:
    """Every line that it has written to its end, each of which is an object."""
    lines = queue._errors.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def test_queue_logs_objects_and_more_of_them_for_a_while(make_queue: MakeQueue) -> None:
    queue = make_queue(command=COMMAND, options=("--log-format", "json")).start()
    services = {"broker", "meta", "delay"}
    wait_until("all say their settings", lambda: {said(one) for one in events(queue)} >= services, 30)
    assert all({"at", "level", "event", "text", "service", "pid"} <= set(one) for one in events(queue))
    queue.get("/v1/subjects")
    assert [one for one in events(queue) if one["event"] == "http"] == []

    done = run_command("log-level", "debug", "--for", "60", "-o", "json", server=queue.server)
    assert json.loads(done.stdout)["level"] == "debug"
    queue.get("/v1/subjects?token=hunter2")
    wait_until("requests are said", lambda: any("/v1/subjects " in one["text"] for one in events(queue)), 30)
    assert "hunter2" not in queue._errors.read_text()
    assert post(queue, "/v1/log-level", {"level": "info", "seconds": 1}).value["level"] == "info"


def said(event: dict[str, Any]) -> str:
    """Whose settings it tells."""
    text: str = event["text"]
    return text.partition("service=")[2].partition(" ")[0] if event["event"] == "settings" else ""


@pytest.mark.parametrize(
    "body",
    [{"level": "loud"}, {"level": "debug", "seconds": 0}, {"level": "debug", "more": 1}, [], b"x" * 2_000],
)
def test_what_is_no_level_is_refused(shared_queue: Queue, body: Any) -> None:
    answered = post(shared_queue, "/v1/log-level", body)
    assert answered.status in {400, 413}
    assert shared_queue.get("/v1/log-level")["level"] == "info"


def test_format_that_is_none_is_refused_at_the_start(make_queue: MakeQueue) -> None:
    queue = make_queue(command=STANDALONE, settings={"TIDEMILL_LOG_FORMAT": "xml"})
    queue.launch()
    assert queue.wait_end() == 1
    assert queue.errors == "tidemill: TIDEMILL_LOG_FORMAT is 'xml': write text or json\n"

"""docs/gateway.md: its shell runs as it stands, in its order, and its JSON is what the gateway answers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.asking import receive
from e2e.queues import Queue
from e2e.services import environment

pytestmark = pytest.mark.e2e

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def said(queue: Queue) -> list[dict[str, Any]]:
    """Every answer of every example."""
    if shutil.which("curl") is None:
        pytest.skip("the examples need curl")
    commands = "\n".join(text for language, text in BLOCK.findall(PAGE) if language == "shell")
    more = {"TIDEMILL": f"http://{queue.server}"}
    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        env=environment(more),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    decoder, rest, found = json.JSONDecoder(), done.stdout, list[dict[str, Any]]()
    while rest.strip():
        value, end = decoder.raw_decode(rest.strip())
        found.append(value)
        rest = rest.strip()[end:]
    return found


def shape(value: Any) -> Any:
    """Names and kinds, without the values."""
    match value:
        case dict():
            return {name: shape(item) for name, item in value.items() if name != "text"}
        case list():
            return [shape(item) for item in value[:1]]
        case _:
            return type(value).__name__


def test_examples_of_the_page_do_what_it_says(queue_with_later: Queue) -> None:
    queue = queue_with_later
    answers = said(queue)
    assert [answer for answer in answers if "error" in answer] == []
    later, timers = answers[3:6], answers[6:11]
    del answers[3:11]
    assert [["due" in row for row in answer["messages"]] for answer in later] == [[True], [True] * 2, [True]]
    [kept] = timers[0]["messages"]
    assert [row["id"] for row in timers[1]["timers"]] == [kept["id"]]
    assert timers[2] == timers[3] == {"changed": 1, "gone": 0}
    assert "due" in timers[4]["messages"][0]
    sent, received, moved = (
        json.loads(text)
        for language, text in BLOCK.findall(PAGE)
        if language == "json" and "error" not in text
    )

    assert shape(answers[0]["messages"]) == shape(sent["messages"])
    assert answers[3] == answers[4], "the same key"
    assert shape(answers[5]["messages"][0]["properties"]) == shape(received["messages"][0]["properties"])
    assert answers[5].keys() == received.keys()
    assert answers[5]["messages"][0].keys() == received["messages"][0].keys()
    assert [answer["count"] for answer in answers[6:9]] == [5, 5, 5]
    assert answers[9] == {**moved, "again": 5}
    assert answers[10] == {"count": 0}
    assert receive(queue, "order.created", group="kitchen") == []

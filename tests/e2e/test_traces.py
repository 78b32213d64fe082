"""Traces through a real broker, its gateway and its delay service; and the program of the page, as it stands there."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from e2e.asking import post
from e2e.queues import Queue
from e2e.services import environment
from samples.scripts import ROOT
from tidemill.blocking import Client as BlockingClient
from tidemill.tracing import Client

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 60.0
BRANCH = re.compile(r"[│├└─ ]*")


def names_in(page: str) -> list[str]:
    """The spans that it draws."""
    drawn = page.partition("```text\n")[2].partition("```")[0]
    return [BRANCH.sub("", line, count=1) for line in drawn.splitlines()]


def test_the_program_of_the_page_makes_the_trace_of_the_page(queue: Queue, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "traces.md").read_text()
    (tmp_path / "program.py").write_text(page.partition("```python\n")[2].partition("```")[0])

    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=environment({"TIDEMILL_SERVER": queue.server}),
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    spans: list[Any] = [json.loads(one + "}") for one in re.split(r"(?m)^\}\n", done.stdout) if one.strip()]
    assert sorted(span["name"] for span in spans) == sorted(names_in(page))
    assert len({span["context"]["trace_id"] for span in spans}) == 1


class Seen:
    """A client's own provider, and what it has seen."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))

        class Own(Client):
            tracer_provider = provider

        self.client_type = Own

    def one(self, name: str) -> ReadableSpan:
        [found] = [one for one in self.exporter.get_finished_spans() if one.name == name]
        return found


async def take_one(mq: Client, subject: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS), mq.consume(subject, group="g") as messages:
        await anext(messages)


def test_the_context_of_a_request_goes_on_in_the_consumer(queue: Queue) -> None:
    seen, parent = Seen(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert post(queue, "/v1/subjects/web/messages", {"text": "1"}, {"traceparent": parent}).status == 200

    async def main() -> None:
        async with seen.client_type(queue.server) as mq:
            await take_one(mq, "web")

    asyncio.run(main())

    deliver = seen.one("deliver web")
    assert deliver.parent is not None
    assert (f"{deliver.parent.trace_id:032x}", f"{deliver.parent.span_id:016x}") == (
        parent[3:35],
        parent[36:52],
    )


def test_what_the_delay_service_kept_links_to_its_send(queue_with_later: Queue) -> None:
    seen = Seen()

    async def main() -> None:
        async with seen.client_type(queue_with_later.server) as mq:
            await mq.send("reminder", b"1", delay=0.2)
            await take_one(mq, "reminder")

    asyncio.run(main())

    send, deliver = seen.one("send reminder"), seen.one("deliver reminder")
    assert deliver.parent is None
    assert [link.context.span_id for link in deliver.links] == [send.context.span_id]


def test_a_client_without_an_event_loop_has_the_same_spans(queue: Queue) -> None:
    seen = Seen()
    with BlockingClient(make=lambda: seen.client_type(queue.server)) as mq:
        mq.send("plain", b"1")

    assert seen.one("store plain").parent is not None

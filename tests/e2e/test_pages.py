"""What pages for programs show runs as it stands, on a real queue; where a page has a test of its own, it is there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.queues import Queue, run_command
from e2e.test_readme import perform
from tidemill import Client, ClientSettings

pytestmark = pytest.mark.e2e

PAGES = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENCE_SECONDS = 60


def blocks(page: str, *languages: str) -> list[str]:
    return [text for named, text in BLOCK.findall((PAGES / page).read_text()) if named in languages]


@pytest.mark.parametrize(
    "page, said",
    [("consuming.md", ["order.created 5 order 5"]), ("priority.md", ["7 a living animal", "0 a parcel"])],
)
def test_the_program_of_a_page_does_what_the_page_says(
    page: str, said: list[str], queue: Queue, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(blocks(page, "python")[0])
    lines = perform([sys.executable, "program.py"], queue, tmp_path).splitlines()
    assert [line for line in lines if line in said] == said


async def typed(code: str, page: str, names: dict[str, Any]) -> None:
    """As in a shell of asyncio, in which the lines before have been typed."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    found = eval(compile(code, page, "exec", flags=flags, dont_inherit=True), names)
    if inspect.iscoroutine(found):
        await found


def test_what_pages_do_with_a_client_can_be_done(queue_with_later: Queue) -> None:
    """Each page begins with nothing; within it, one block follows the other."""
    server = queue_with_later.server
    fragments = {
        "later.md": blocks("later.md", "python"),
        "idempotence.md": blocks("idempotence.md", "python"),
        "failures.md": blocks("failures.md", "python")[1:],
    }

    async def run() -> None:
        for page, codes in fragments.items():
            async with Client(server, settings=ClientSettings(send_timeout_s=30)) as mq:
                names = {
                    "mq": mq, "body": b"one", "bodies": [b"one", b"two"], "numbers": [1, 2], "UTC": UTC,
                    "datetime": datetime, "timedelta": timedelta,
                }  # fmt: skip
                await mq.send("order.created", b"so that there is a group")
                async with mq.consume("order.created", group="billing") as messages:
                    async for message in messages:
                        await message.ack()
                        break
                for code in codes:
                    await typed(re.sub(r'"localhost:\d+"', repr(server), code), page, names)

    assert all(fragments.values())
    asyncio.run(asyncio.wait_for(run(), PATIENCE_SECONDS))


def test_the_shell_of_messages_for_later_runs(queue_with_later: Queue, tmp_path: Path) -> None:
    server = queue_with_later.server
    waits = run_command("send", "reminder", "x", "--delay", "30d", "--timer-key", "other", server=server)
    identity = waits.stdout.strip()
    script = tmp_path / "tidemill"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidemill.cli "$@"\n')
    script.chmod(0o755)
    lines = f'PATH="{tmp_path}:$PATH" TIDEMILL=http://{server}\n' + "".join(blocks("later.md", "shell"))
    said = perform(["sh", "-e", "-c", re.sub(r"\bID\b", identity, lines)], queue_with_later, tmp_path, 600.0)
    assert identity in said
    assert "order-17" in said
    assert "Europe/Berlin" in said

"""The programs in docs/outbox.md run: what they commit is in the queue, what they roll back is not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.queues import Queue
from e2e.services import environment
from tidemill.blocking import Client
from tidemill.search import StoredMessage

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs" / "outbox.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)

FASTAPI = """
import asyncio
import httpx
import shop

async def main():
    async with shop.lifespan(shop.app):
        transport = httpx.ASGITransport(app=shop.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            for item, code in (("a", 200), ("b&fails=1", 500), ("c", 200)):
                answer = await client.post(f"/orders?item={item}")
                assert answer.status_code == code, answer.text

asyncio.run(main())
"""

DJANGO = """
import sys, types
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()
from django.db import connection, models

class Order(models.Model):
    item = models.TextField()
    class Meta:
        app_label = "shop"

sys.modules["shop"] = types.ModuleType("shop")
sys.modules["shop.models"] = types.ModuleType("shop.models")
sys.modules["shop.models"].Order = Order
with connection.schema_editor() as editor:
    editor.create_model(Order)

import messages, views
from django.test import RequestFactory

for item, fails in (("a", ""), ("b", "1"), ("c", "")):
    try:
        views.place(RequestFactory().get("/", {"item": item, "fails": fails}))
    except ValueError:
        assert fails
assert Order.objects.count() == 2
connection.close()
messages.outbox.close()
messages.engine.dispose()
"""

FORK = """
import os
from sqlalchemy import create_engine
from tidemill.outbox import create_tables
from tidemill.outbox.blocking import Outbox

engine = create_engine("sqlite:///shop.db")
create_tables(engine)
outbox = Outbox(engine)

def order(name):
    with engine.begin() as connection:
        outbox.send(connection, "order.created", name)

child = os.fork()
order("child" if not child else "parent")
outbox.close()
engine.dispose()
if not child:
    assert outbox.statistics() == {}
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def lay(folder: Path) -> None:
    """Each program of the page that names a file."""
    for block in BLOCKS:
        if named := re.match(r"# (\w+\.py)\n", block):
            (folder / named[1]).write_text(block)


def run(program: str, queue: Queue, folder: Path) -> list[StoredMessage]:
    """A program, to its end; what is in the queue then."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment({"TIDEMILL_SERVER": queue.server}),
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with Client(queue.server) as mq:
        return list(mq.browse("order.created"))


@pytest.mark.parametrize("program", [FASTAPI, DJANGO], ids=["fastapi", "django"])
def test_the_shop_of_the_page_sends_what_it_has_stored(program: str, queue: Queue, tmp_path: Path) -> None:
    lay(tmp_path)

    stored = run(program, queue, tmp_path)

    assert [message.body for message in stored] == [b"a", b"c"]
    assert {message.key is None for message in stored} == {False}


def test_after_a_fork_each_process_sends_its_own(queue: Queue, tmp_path: Path) -> None:
    stored = run(FORK, queue, tmp_path)

    assert sorted(message.body for message in stored) == [b"child", b"parent"]


def test_the_page_s_other_programs_can_be_read() -> None:
    for block in BLOCKS:
        compile(block, str(PAGE), "exec")
    assert len(BLOCKS) == 5

"""A master in sync alone takes no writes when meta is away for longer than its lease; one without slaves goes on."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import MakeQueue
from e2e.metas import Meta
from e2e.queues import Queue, wait_until

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 60.0
LEASE_SECONDS = 3.0
SETTINGS = {"TIDEMILL_META_LEASE_MS": "3000", "TIDEMILL_META_LIVENESS_MS": "3000"}


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[Meta]:
    made = Meta(tmp_path / "meta", settings=SETTINGS)
    yield made.start()
    made.signal(signal.SIGCONT)
    made.close()


def broker(make_queue: MakeQueue, meta: Meta, name: str) -> Queue:
    settings = {"TIDEMILL_NAME": name, "TIDEMILL_REPLICATED": "true", "TIDEMILL_META": meta.server}
    return make_queue(name, settings=settings).start()


def send(queue: Queue) -> str:
    """What the answer to one message is; "stored", or the name of an error."""
    body, head = json.dumps({"text": "tide"}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{queue.server}/v1/subjects/orders/messages", body, head)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.status == 200
            return "stored"
    except urllib.error.HTTPError as error:
        said: dict[str, Any] = json.load(error)
        return f"{said['error']['code']}: {said['error']['detail']}"
    except OSError:
        return "away"  # it becomes something else


def group_of(meta: Meta) -> dict[str, Any]:
    return next((row for row in meta.get("/v1/brokers") if row["group"] == "g0"), {})


def test_a_lone_master_halts_when_its_lease_is_over_and_goes_on_when_meta_is_back(
    make_queue: MakeQueue, meta: Meta
) -> None:
    queues = {name: broker(make_queue, meta, name) for name in ("g0-0", "g0-1")}
    wait_until("both are in sync", lambda: len(group_of(meta).get("in_sync", ())) == 2, PATIENCE_SECONDS)
    master = group_of(meta)["master"]
    queues[next(name for name in queues if name != master)].kill()
    wait_until("it is in sync alone", lambda: group_of(meta)["in_sync"] == [master], PATIENCE_SECONDS)
    version = group_of(meta)["version"]
    wait_until(
        "it knows", lambda: queues[master].get("/v1/replication")["version"] == version, PATIENCE_SECONDS
    )
    assert send(queues[master]) == "stored"

    meta.signal(signal.SIGSTOP)
    wait_until("it takes nothing", lambda: send(queues[master]) != "stored", PATIENCE_SECONDS)
    assert (
        send(queues[master]) == f"not_master: {master} is in sync alone, and meta has not prolonged its lease"
    )

    meta.signal(signal.SIGCONT)
    wait_until("it goes on", lambda: send(queues[master]) == "stored", PATIENCE_SECONDS)


def test_a_broker_without_slaves_takes_messages_for_as_long_as_meta_is_away(
    make_queue: MakeQueue, meta: Meta
) -> None:
    queue = broker(make_queue, meta, "g0-0")
    wait_until("it is master", lambda: send(queue) == "stored", PATIENCE_SECONDS)

    meta.kill()
    began = time.monotonic()
    while time.monotonic() - began < 2 * LEASE_SECONDS:
        assert send(queue) == "stored"

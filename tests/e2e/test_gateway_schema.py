"""schemathesis reads /openapi.json and finds no request that is answered otherwise than the page says."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from e2e.conftest import MakeQueue
from e2e.queues import Queue, wait_until
from e2e.schemas import check_page, complaints
from tidemill import blocking

pytestmark = pytest.mark.e2e

GROUP_PATHS = ("/v1/replication", "/v1/segments")


def test_schemathesis_runs_clean(queue: Queue, queue_with_later: Queue, tmp_path: Path) -> None:
    """Right and wrong requests to every path of a broker, in chains too; without a deadline for a single one. Beside it
    is a delay service, without which what is for later would be answered with 503.
    """
    items = queue.get("/openapi.json")["paths"].values()
    mine = [one["operationId"] for item in items for one in item.values()]
    chosen = [word for name in mine for word in ("--include-operation-id", name)]

    with blocking.Client(queue_with_later.server) as mq:
        tx = mq.transaction("shop")
        tx.send("order.paid", "half")
        said = check_page(queue_with_later.server, tmp_path, *chosen, transaction=tx.id)

    assert "No issues found" in said
    assert f"{len(mine)} selected" in said

    assert complaints(queue_with_later) == []
    assert queue_with_later.running


def test_page_describes_every_path_there_is(queue: Queue) -> None:
    """What a door serves it has described, and an undescribed path is not served."""
    paths = queue.get("/openapi.json")["paths"]

    assert {path for path, item in paths.items() if "post" in item} == {
        "/v1/log-level",
        "/v1/ranges/batches",
        "/v1/subjects/{subject}/messages",
        "/v1/transactions/{transaction}/commit",
        "/v1/transactions/{transaction}/rollback",
        *(
            f"{whose}/{verb}"
            for whose in ("/v1/timers/{id}", "/v1/subjects/{subject}/timers")
            for verb in ("cancel", "reschedule")
        ),
        *(
            f"/v1/subjects/{{subject}}/groups/{{group}}/{verb}"
            for verb in (
                *("receive", "ack", "nack", "extend", "release"),
                *("seek", "suspend", "resume", "dead/redrive", "dead/purge"),
            )
        ),
    }
    for path, item in paths.items():
        if "get" in item and not item["get"].get("parameters"):
            assert queue.get_text(path), path


def appoint(queue: Queue) -> None:
    """Master of a group that nobody guesses, with a segment in each log."""
    body = {
        "group": "mill-race", "epoch": 1, "master": "g0-0", "replicas": ["g0-0"], "in_sync": ["g0-0"], "version": 0,
    }  # fmt: skip
    for path, said in (("/v1/replication/appointment", body), ("/v1/subjects/a/messages", {"text": "tide"})):
        request = urllib.request.Request(
            f"http://{queue.server}{path}", json.dumps(said).encode(), {"Content-Type": "application/json"}
        )
        wait_until(f"it takes {path}", lambda request=request: taken(request), 30)


def taken(request: urllib.request.Request) -> bool:
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False  # it begins anew as a master


def test_a_broker_in_a_group_describes_its_replication_and_answers_as_it_says(
    make_queue: MakeQueue, tmp_path: Path
) -> None:
    """Right and wrong requests to the paths that only such a broker has: it stays master of its group."""
    queue = make_queue(settings={"TIDEMILL_NAME": "g0-0", "TIDEMILL_REPLICATED": "true"}).start()
    appoint(queue)

    described = {path for path in queue.get("/openapi.json")["paths"] if path.startswith(GROUP_PATHS)}
    said = check_page(
        queue.server, tmp_path, "--include-path-regex", f"^({'|'.join(GROUP_PATHS)})",
        "--exclude-checks", "positive_data_acceptance",
    )  # fmt: skip

    assert described == {
        *(
            "/v1/replication",
            "/v1/replication/wish",
            "/v1/replication/appointment",
            "/v1/replication/handover",
        ),
        *("/v1/segments", "/v1/segments/{log}/{base}"),
    }
    assert "6 selected" in said
    standing = queue.get("/v1/replication")
    assert (standing["role"], standing["epoch"]) == ("master", 1)
    assert complaints(queue) == []

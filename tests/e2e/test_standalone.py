"""`tidemill up` is a broker with meta beside it: one process, one HTTP port, and no path that means two things."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import MakeQueue
from e2e.peers import exchange
from e2e.queues import Queue, run_command, wait_until

pytestmark = pytest.mark.e2e

STANDALONE = (sys.executable, "-m", "tidemill_standalone")
HEAD = "---\napiVersion: tidemill.dev/v1alpha1\n"
DECLARED = (
    f"{HEAD}kind: Subject\nmetadata: {{name: orders}}\n"
    "spec: {placement: {minBrokerGroups: 3}, config: [{name: durability, value: low}]}\n"
    f"{HEAD}kind: ConsumerGroup\nmetadata: {{name: billing}}\nspec: {{subjectRef: {{name: orders}}}}\n"
)


JSON = {"Content-Type": "application/json"}


def post(queue: Queue, path: str, body: object) -> Any:
    request = urllib.request.Request(f"http://{queue.server}{path}", json.dumps(body).encode(), JSON)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def heartbeat(queue: Queue, subject: str) -> Any:
    return post(queue, "/v1/clients/heartbeat", {"client": "shop", "known": 0, "produces": [subject]})


@pytest.fixture
def standalone(make_queue: MakeQueue) -> Queue:
    return make_queue(command=STANDALONE).start()


def test_broker_hears_how_far_archives_are_from_the_meta_beside_it(standalone: Queue) -> None:
    """What is declared ``archive: Required`` would be kept for ever else; a driver that speaks changes nothing."""

    def lag() -> float:
        return standalone.metrics()["tidemill_archive_lag_messages"]

    def put(path: str, **body: object) -> None:
        url = f"http://{standalone.server}/v1/archives/years{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), JSON, method="PUT")
        with urllib.request.urlopen(request, timeout=20):
            pass

    declared = {
        "apiVersion": "tidemill.dev/v1alpha1",
        "kind": "Subject",
        "metadata": {"name": "orders"},
        "spec": {"retention": {"archive": "Required"}},
    }
    post(standalone, "/v1/declarations", declared)
    post(
        standalone,
        "/v1/subjects/orders/messages",
        {"messages": [{"text": "a"}, {"text": "b"}, {"text": "c"}]},
    )
    wait_until("they are kept", lambda: lag() == 3)
    put("/runs/r1", state="Running", subjects=["orders"])
    put("/runs/r1/beat", every_ms=30_000)
    assert lag() == 3
    put("/runs/r1", state="Running", watermarks={"g0": {"orders": 2}})
    wait_until("two may go", lambda: lag() == 1)
    put("/runs/r1/beat", every_ms=1)
    wait_until(
        "nobody hears of it", lambda: standalone.get("/v1/archives/years")["runs"][0]["state"] == "Lost"
    )
    assert standalone.get("/v1/archives/years")["runs"][0]["heard_at"] > 0
    assert "is lost: its driver was last heard of" in run_command("doctor", server=standalone.server).stdout
    put("", state="Ended", subjects=["orders"])
    wait_until("all may go", lambda: lag() == 0)


def test_a_subject_lies_on_the_one_broker_group_and_clients_find_it_where_they_ask(standalone: Queue) -> None:
    [route] = heartbeat(standalone, "orders")["routes"]
    found = standalone.get("/v1/routes?subject=orders")

    assert [(one["group"], one["name"]) for one in route["partitions"]] == [("g0", "orders")]
    assert found["routes"] == [route]
    [broker] = found["brokers"]
    assert (broker["host"], broker["port"], broker["state"]) == (None, standalone.port, "RW")
    asyncio.run(exchange(standalone.server, "orders"))


def test_what_the_broker_answered_it_answers_with_meta_beside_it(
    standalone: Queue, make_queue: MakeQueue
) -> None:
    alone = make_queue("alone").start()
    for queue in (standalone, alone):
        asyncio.run(exchange(queue.server, "orders"))

    for path in ("/v1/subjects", "/v1/groups", "/healthz", "/readyz"):
        assert standalone.get(path) == alone.get(path)
    one, other = (queue.get("/v1/routes") for queue in (standalone, alone))
    one["brokers"][0].pop("port"), other["brokers"][0].pop("port")
    one.pop("delays", None)  # a broker alone keeps nothing for later
    assert one == other
    assert set(alone.metrics()) < set(standalone.metrics())
    assert standalone.metrics()["tidemill_meta_brokers_alive"] == 1


def test_the_page_describes_both_and_every_reference_leads_somewhere(standalone: Queue) -> None:
    page = standalone.get("/openapi.json")

    written = json.dumps(page)
    names = {part.partition('"')[0] for part in written.split('"#/components/schemas/')[1:]}
    assert names <= set(page["components"]["schemas"])
    operations = [one["operationId"] for item in page["paths"].values() for one in item.values()]
    assert len(operations) == len(set(operations))
    assert {"/v1/watch", "/v1/brokers", "/v1/subjects/{subject}/messages"} <= set(page["paths"])
    assert page["paths"]["/v1/subjects"]["get"]["operationId"] == "subjects"


def test_manifests_are_declared_once_and_seen_by_both(make_queue: MakeQueue, tmp_path: Path) -> None:
    manifest = tmp_path / "orders.yaml"
    manifest.write_text(DECLARED)
    queue = make_queue(manifests=[manifest], command=STANDALONE).start()

    assert queue.group("billing")["subject"] == "orders"
    wait_until("meta has it", lambda: status(queue, "/v1/subjects/orders") == 200)
    assert queue.get("/v1/subjects/orders")["route"]["partitions"][0]["group"] == "g0"

    later = {
        "apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": {"name": "later"},
        "spec": {"config": [{"name": "durability", "value": "low"}]},
    }  # fmt: skip
    assert post(queue, "/v1/declarations", later)["declared"] == 1
    rows = {row["name"]: row["durability"] for row in queue.get("/v1/subjects")}
    assert rows == {"orders": "low", "later": "low"}


def test_manifests_are_applied_to_a_queue_that_runs(make_queue: MakeQueue, tmp_path: Path) -> None:
    manifest = tmp_path / "orders.yaml"
    manifest.write_text(DECLARED.replace("placement: {minBrokerGroups: 3}, ", ""))
    queue = make_queue(command=STANDALONE).start()

    def applied(path: Path = manifest) -> tuple[int, str, str]:
        done = run_command("apply", "-f", str(path), server=queue.server)
        return done.returncode, done.stdout, done.stderr

    code, said, wrong = applied()
    assert (code, wrong) == (0, "")
    assert said.splitlines() == ["Subject orders created", "ConsumerGroup billing of orders created"]
    assert applied()[1].count("unchanged") == 2
    wait_until("the broker has it", lambda: queue.group("billing")["subject"] == "orders")

    (tmp_path / "wrong.yaml").write_text(DECLARED.replace("kind: Subject", "kind: Subjekt", 1))
    code, said, wrong = applied(tmp_path / "wrong.yaml")
    assert (code, said) == (1, "")
    assert wrong.startswith("tidemill: ")
    assert "wrong.yaml" in wrong
    (tmp_path / "none.yaml").write_text("")
    assert "declare nothing" in applied(tmp_path / "none.yaml")[2]


def status(queue: Queue, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{queue.server}{path}", timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_queue_that_was_killed_is_led_as_soon_as_it_is_there_again(standalone: Queue) -> None:
    route = heartbeat(standalone, "orders")["routes"]

    for _ in range(2):
        standalone.kill()
        standalone.start()
        assert heartbeat(standalone, "orders")["routes"] == route
        [group] = standalone.get("/v1/brokers")
        assert (group["state"], group["epoch"], group["problem"]) == ("RW", 1, "")
        [broker] = standalone.get("/v1/routes")["brokers"]
        assert broker["state"] == "RW"
    assert standalone.stop() == 0
    assert standalone.errors == ""


def test_a_queue_that_comes_back_at_other_ports_is_led_as_soon(standalone: Queue) -> None:
    route = heartbeat(standalone, "orders")["routes"]
    for end in (standalone.kill, standalone.stop):
        end()
        standalone.port = standalone.http_port = 0
        standalone.start()
        assert heartbeat(standalone, "orders")["routes"] == route
        [broker] = standalone.get("/v1/routes")["brokers"]
        assert (broker["port"], broker["state"]) == (standalone.port, "RW")
        assert standalone.get("/v1/brokers")[0]["state"] == "RW"
    assert standalone.errors == ""


def test_subjects_that_came_without_meta_have_routes(standalone: Queue) -> None:
    """By the gateway, and before meta was there."""
    post(standalone, "/v1/subjects/gateway/messages", {"text": "tide"})
    [route] = standalone.get("/v1/routes?subject=gateway")["routes"]
    assert [one["group"] for one in route["partitions"]] == ["g0"]

    assert standalone.stop() == 0
    shutil.rmtree(standalone.data / "meta")
    standalone.start()
    [again] = standalone.get("/v1/routes?subject=gateway")["routes"]
    assert again["partitions"] == route["partitions"]


def test_what_people_let_the_group_take_is_told_to_clients(standalone: Queue) -> None:
    post(standalone, "/v1/groups/g0/state", {"state": "R"})
    [broker] = standalone.get("/v1/routes")["brokers"]
    assert broker["state"] == "R"

    post(standalone, "/v1/groups/g0/state", {"state": "RW"})
    [broker] = standalone.get("/v1/routes")["brokers"]
    assert broker["state"] == "RW"


def sent(queue: Queue, subject: str) -> str:
    """Nothing, or the name of the error with which a message was refused."""
    try:
        post(queue, f"/v1/subjects/{subject}/messages", {"messages": [{"text": "tide"}]})
    except urllib.error.HTTPError as error:
        return str(json.load(error)["error"]["code"])
    return ""


def test_what_is_read_only_is_refused_also_after_a_kill(standalone: Queue) -> None:
    assert (sent(standalone, "orders"), sent(standalone, "bills")) == ("", "")
    post(standalone, "/v1/subjects/orders/state", {"state": "R"})
    before = sent(standalone, "orders"), sent(standalone, "bills")
    standalone.kill()
    standalone.start()
    wait_until("it is read-only again", lambda: sent(standalone, "orders") == "read_only")
    post(standalone, "/v1/subjects/orders/state", {"state": "RW"})

    assert before == ("read_only", "")
    assert sent(standalone, "orders") == ""


def test_a_subject_of_one_broker_is_not_expanded(standalone: Queue) -> None:
    """Clients are told no routes there, and would send every order key to the one partition that they know."""
    assert sent(standalone, "orders") == ""

    done = run_command("expand", "orders", "--partitions", "2", server=standalone.server)

    assert done.returncode == 1
    assert "run several brokers, as `tidemill up --brokers 2` does" in done.stderr


def test_a_broker_serves_when_meta_has_no_database_and_says_so_once(make_queue: MakeQueue) -> None:
    queue = make_queue(command=STANDALONE)
    queue.data.mkdir()
    (queue.data / "meta").write_text("no folder")
    queue.start()

    asyncio.run(exchange(queue.server, "orders"))
    wait_until("it is said", lambda: "meta cannot use" in queue.errors)
    (queue.data / "meta").unlink()
    assert [one["name"] for one in queue.get("/v1/brokers")[0]["brokers"]] == ["g0-0"]
    assert queue.errors.count("\n") == 1
    assert queue.stop() == 0


@pytest.mark.parametrize("content", [bytes(range(256)) * 64, b"SQLite format 3\0" + b"\xa5" * 16_000])
def test_a_broker_serves_when_the_database_of_meta_is_damaged_and_meta_comes_when_it_is_mended(
    make_queue: MakeQueue, content: bytes
) -> None:
    """Bytes of nobody, and a file that begins as a database does."""
    queue = make_queue(command=STANDALONE)
    database = queue.data / "meta" / "meta.db"
    database.parent.mkdir(parents=True)
    database.write_bytes(content)
    queue.start()

    asyncio.run(exchange(queue.server, "orders"))
    wait_until("it is said", lambda: "meta.db" in queue.errors)
    threads = len(os.listdir(f"/proc/{queue.pid}/task"))
    database.rename(queue.data / "meta" / "damaged")
    assert [one["name"] for one in queue.get("/v1/brokers")[0]["brokers"]] == ["g0-0"]
    assert queue.errors.count("\n") == 1
    assert "Traceback" not in queue.errors
    assert "move that file away" in queue.errors
    assert len(os.listdir(f"/proc/{queue.pid}/task")) <= threads + 2
    assert queue.stop() == 0


def test_a_broker_goes_on_when_the_database_of_meta_is_damaged_while_it_runs(standalone: Queue) -> None:
    assert heartbeat(standalone, "orders")["routes"]
    with closing(sqlite3.connect(standalone.data / "meta" / "meta.db")) as other:
        other.execute("PRAGMA writable_schema = ON")
        other.execute("UPDATE sqlite_master SET sql = 'garbage'")
        other.execute("PRAGMA schema_version = 99")
        other.commit()

    assert refused(standalone) == 503
    asyncio.run(exchange(standalone.server, "orders"))
    wait_until("it is said", lambda: "meta.db" in standalone.errors)
    assert "Traceback" not in standalone.errors
    assert standalone.stop() == 0


def refused(queue: Queue) -> int:
    """How a change is answered that has to be stored."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(queue, "/v1/groups/g0/state", {"state": "R"})
    with caught.value as answer:  # the error is the answer, with its connection
        return answer.code

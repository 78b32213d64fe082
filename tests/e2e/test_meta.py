"""Real replicas of meta: on SQLite alone, and several on one PostgreSQL, of which some are killed."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.metas import Meta, Stream
from e2e.queues import wait_until
from samples.postgres import Postgres, postgres

pytestmark = pytest.mark.e2e

MakeMeta = Callable[..., Meta]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def database(server: Postgres) -> str:
    return server.url(f"meta_{uuid.uuid4().hex}")


@pytest.fixture
def make_meta(tmp_path: Path) -> Iterator[MakeMeta]:
    """Replicas that run; each with its own folder."""
    made: list[Meta] = []

    def make(database: str = "", **settings: str) -> Meta:
        made.append(Meta(tmp_path / f"meta{len(made)}", database, settings))
        return made[-1].start()

    yield make
    for meta in made:
        meta.close()


class Heart(threading.Thread):
    """A broker's heartbeats, each half a second, at whichever replica answers."""

    def __init__(self, metas: list[Meta], group: str, name: str) -> None:
        super().__init__(daemon=True)
        self.said: dict[str, Any] = {"epoch": 1, "positions": {"messages": 10, "actions": 10}}
        self.answer: dict[str, Any] = {}
        self._metas = metas
        self._who = {"group": group, "name": name, "boot": 1}
        self._stopped = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stopped.wait(0.5):
            for meta in self._metas:
                status, answer = meta.ask("POST", "/v1/brokers/heartbeat", {**self._who, **self.said})
                if status == 200:
                    self.answer = answer
                    self.said |= {"epoch": answer["epoch"], "role": self._role(answer)}
                    break

    def _role(self, answer: dict[str, Any]) -> str:
        return "master" if answer["master"] == self._who["name"] else "slave"

    def stop(self) -> None:
        self._stopped.set()
        self.join(30)


def subject(name: str, **spec: Any) -> dict[str, Any]:
    named = {"name": name}
    return {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": named, "spec": spec}


def test_what_was_declared_is_there_after_a_kill(make_meta: MakeMeta) -> None:
    meta = make_meta()
    meta.register("g1", "g1-0")
    meta.post("/v1/declarations", [subject("order.created"), subject("order.paid")])
    route = meta.get("/v1/subjects/order.created/route")

    meta.kill()
    meta.start()

    assert [row["name"] for row in meta.get("/v1/subjects")] == ["order.created", "order.paid"]
    assert meta.get("/v1/subjects/order.created/route") == route
    assert meta.beat("g1", "g1-0")["master"] == "g1-0"
    assert meta.stop() == 0
    assert meta.errors == ""


def test_second_process_on_one_folder_is_refused_with_a_sentence(make_meta: MakeMeta, tmp_path: Path) -> None:
    make_meta()
    second = Meta(tmp_path / "meta0")
    try:
        with pytest.raises(AssertionError, match="is in use by the queue with process id"):
            second.start()
        assert second.wait_end() == 1
    finally:
        second.close()


def test_database_that_does_not_answer_refuses_the_start_with_a_sentence(tmp_path: Path) -> None:
    meta = Meta(tmp_path / "meta", f"postgresql://tester@/x?host={tmp_path}")
    try:
        with pytest.raises(AssertionError, match="the database does not answer"):
            meta.start()
        assert meta.wait_end() == 1
        assert "Traceback" not in meta.errors
    finally:
        meta.close()


def test_damaged_database_refuses_the_start_and_names_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "meta"
    folder.mkdir()
    (folder / "meta.db").write_bytes(bytes(range(256)) * 64)
    meta = Meta(folder)
    with pytest.raises(AssertionError):
        meta.start()
    assert meta.errors.startswith(f"tidemill: {folder}/meta.db is damaged")
    assert meta.errors.count("\n") == 1
    meta.close()


def test_change_at_one_replica_is_seen_by_a_watcher_of_another_within_a_second(
    make_meta: MakeMeta, database: str
) -> None:
    metas = [make_meta(database) for _ in range(3)]
    metas[0].register("g1", "g1-0")
    # No broker of a real process would close to order keys, so they are to move at once.
    metas[0].post("/v1/declarations", subject("order.created", orderStrategy="BestTried"))
    streams = [Stream(meta, subjects=["order.created"], patterns=["other.*"]) for meta in metas]
    try:
        for stream in streams:
            stream.wait_line(
                lambda line: any(row["subject"] == "order.created" for row in line.get("routes", ()))
            )
        slowest = 0.0
        for number in range(5):
            asked = {"partitions": number + 2, "version": number + 1}
            began = time.monotonic()
            metas[number % 3].post("/v1/subjects/order.created/expand", asked)
            slowest = max(slowest, *(stream.wait_line(has(number + 2)) - began for stream in streams))
        metas[1].post("/v1/declarations", subject("other.thing"))
        for stream in streams:
            stream.wait_line(
                lambda line: any(row["subject"] == "other.thing" for row in line.get("routes", ()))
            )
    finally:
        for stream in streams:
            stream.close()

    assert slowest <= 1.0


def has(partitions: int) -> Callable[[dict[str, Any]], bool]:
    return lambda line: any(len(row["partitions"]) == partitions for row in line.get("routes", ()))


def test_dead_master_is_replaced_within_ten_seconds_though_a_replica_dies_with_it(
    make_meta: MakeMeta, database: str
) -> None:
    metas = [make_meta(database) for _ in range(3)]
    for name in ("g1-0", "g1-1"):
        metas[0].register("g1", name)
    master, slave = Heart(metas, "g1", "g1-0"), Heart(metas[1:], "g1", "g1-1")
    stream = Stream(metas[2], broker_groups=["g1"])
    try:
        wait_until("both were heard", lambda: master.answer and slave.answer)
        wait_until("the master's word is taken", lambda: joined(metas[0], master.answer["version"]))
        wait_until("all know", lambda: slave.answer["in_sync"] == ["g1-0", "g1-1"])
        master.stop()
        metas[0].kill()
        died = time.monotonic()
        led = stream.wait_line(
            lambda line: any(row["master"] == "g1-1" for row in line.get("appointments", ())), 15.0
        )
        assert led - died <= 10.0
        wait_until("it is told", lambda: slave.answer["master"] == "g1-1" and slave.answer["epoch"] == 2)
    finally:
        stream.close()
        master.stop()
        slave.stop()


def joined(meta: Meta, version: int) -> bool:
    asked = {"master": "g1-0", "epoch": 1, "version": version, "in_sync": ["g1-0", "g1-1"]}
    status, answer = meta.ask("POST", "/v1/groups/g1/in-sync", asked)
    return status == 200 and answer["in_sync"] == ["g1-0", "g1-1"]


def test_replicas_killed_in_the_middle_of_changes_leave_no_half_change(
    make_meta: MakeMeta, database: str
) -> None:
    """Each request declares a pair, in one change. Replicas are killed all the while: no pair is half there, what was
    answered is there, and the others serve on.
    """
    metas = [make_meta(database) for _ in range(3)]
    metas[0].register("g1", "g1-0")
    heart = Heart(metas, "g1", "g1-0")
    answered: list[str] = []
    over = threading.Event()

    def declare(meta: Meta, worker: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            pair = f"w{worker}.{number}"
            status, _ = meta.ask("POST", "/v1/declarations", [subject(f"{pair}.a"), subject(f"{pair}.b")])
            if status == 200:
                answered.append(pair)
            elif status == 0:
                over.wait(0.05)  # its replica is dead now

    workers = [threading.Thread(target=declare, args=(meta, number)) for number, meta in enumerate(metas * 2)]
    for worker in workers:
        worker.start()
    chance = random.Random(5)
    try:
        for _ in range(4):
            before = len(answered)
            victim = chance.choice(metas)
            wait_until("changes go on", lambda since=before: len(answered) > since + 20, 60.0)
            victim.kill()
            during = len(answered)
            wait_until("the others serve on", lambda since=during: len(answered) > since + 10, 60.0)
            victim.start()
    finally:
        over.set()
        for worker in workers:
            worker.join(60)
        heart.stop()

    wait_until("all know all", lambda: len({len(meta.get("/v1/subjects")) for meta in metas}) == 1)
    names = {row["name"] for row in metas[0].get("/v1/subjects")}
    assert {f"{pair}.{half}" for pair in answered for half in "ab"} <= names
    assert {name[:-1] + "a" for name in names} == {
        name[:-1] + "a" for name in names if name[:-1] + "b" in names
    }
    assert all(row["route"] for row in metas[0].get("/v1/subjects"))
    assert len({tuple(sorted(row["name"] for row in meta.get("/v1/subjects"))) for meta in metas}) == 1


def test_database_that_goes_away_stops_no_reader_and_is_used_again(
    make_meta: MakeMeta, server: Postgres, database: str
) -> None:
    metas = [make_meta(database) for _ in range(2)]
    metas[0].register("g1", "g1-0")
    metas[0].post("/v1/declarations", subject("order.created"))
    wait_until("both know", lambda: len(metas[1].get("/v1/subjects")) == 1)
    heart = Heart(metas, "g1", "g1-0")
    server.stop()
    try:
        wait_until("heartbeats are refused", lambda: heartbeat(metas[1])[0] == 503)
        assert heartbeat(metas[1])[1]["error"]["retryable"]
        assert metas[1].get("/v1/routes?subject=order.created")["routes"][0]["subject"] == "order.created"
        assert metas[1].ask("POST", "/v1/declarations", subject("other"))[0] == 503
    finally:
        server.start()

    wait_until("heartbeats are taken", lambda: heartbeat(metas[1])[0] == 200, 20.0)
    declared = lambda: metas[0].ask("POST", "/v1/declarations", subject("other"))[0] == 200  # noqa: E731
    wait_until("changes are taken", declared, 20.0)
    heart.stop()
    assert all(meta.running and meta.errors == "" for meta in metas)


def heartbeat(meta: Meta) -> tuple[int, Any]:
    return meta.ask("POST", "/v1/brokers/heartbeat", {"group": "g1", "name": "g1-0", "boot": 1})

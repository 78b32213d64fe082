"""Action logs archived over real HTTP: killed anywhere, twice at once, with a log that has lost its beginning."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from samples.brokers import NOW_MS, SUBJECT, TINY, Rig, pulls
from samples.stores import Died, Memory
from samples.storms import GROUPS, OTHER, Storm, stormy
from samples.tellings import told
from tidemill_broker.doors import Service
from tidemill_broker.doors.queries import Queries
from tidemill_broker.doors.stretches import Stretches
from tidemill_broker.doors.telling import Telling
from tidemill_host.clock import RealClock
from tidemill_host.files import Files
from tidemill_host.persist import Lanes
from tidemill_host.web import Web
from tidemill_spark import action_archive, action_reconciling, finding, histories, lake, upkeep
from tidemill_spark.action_reconciling import Compared, reconcile_actions
from tidemill_spark.action_tables import read_actions
from tidemill_spark.actions import MISSING, Account
from tidemill_spark.archive import Wanted
from tidemill_spark.commits import Commit
from tidemill_spark.jobs import command
from tidemill_spark.lake import Lake
from tidemill_spark.layout import actions_uri
from tidemill_spark.stores import open_store
from tidemill_spark.workers import Workers
from tidemill_wire import limits
from tidemill_wire.commands import Ack, Nack, Redrive
from tidemill_wire.fields import dead_subject, living_subject

URI = "memory"
FEW_RECORDS, FEW_BYTES = 20, 1000
"""Of a task, and of an answer: so a log is several commits."""


@asynccontextmanager
async def served(rig: Rig, *, tells: bool = True) -> AsyncIterator[str]:
    """The rig's broker, which stands still, on a port; ``tells``: it is of a version that tells actions."""
    disk = rig.disk.mount()
    lanes = Lanes(*(ThreadPoolExecutor(1) for _ in range(3)))
    service = Service(rig.broker, disk, lanes, RealClock())
    stretches = Stretches(service, disk, lanes.read)
    telling = Telling(service, Queries(rig.broker, disk, lanes.read), Files(disk))
    routes = [*stretches.routes(), *(telling.routes() if tells else ())]
    web = Web({}, lambda: b"", Counter[str](), routes)
    try:
        yield f"127.0.0.1:{await web.listen('127.0.0.1', 0)}"
    finally:
        await web.close()
        for lane in (lanes.write, lanes.sync, lanes.read):
            lane.shutdown()


@contextmanager
def threads() -> Iterator[Workers]:
    with ThreadPoolExecutor(2) as executor:
        yield Workers(executor, 2)


@pytest.fixture(name="store")
def _store(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The one of the lake, wherever somebody opens it."""
    store = Memory()
    for module in (action_archive, action_reconciling, lake, upkeep):
        monkeypatch.setattr(module, "open_store", lambda _uri: store)
    monkeypatch.setattr(action_archive, "TASK_RECORDS", FEW_RECORDS)
    monkeypatch.setattr(limits, "ACTIONS_BYTES_MAX", FEW_BYTES)
    return store


def run(server: str, *subjects: str, uri: str = URI) -> action_archive.ActionTotals:
    wanted = Wanted(server, uri, subjects or ("order.*",), safety_lag_ms=0)
    with threads() as workers:
        return action_archive.run(wanted, workers, lambda: NOW_MS)


async def archived(server: str, *subjects: str, uri: str = URI) -> action_archive.ActionTotals:
    return await asyncio.to_thread(run, server, *subjects, uri=uri)


async def differing(server: str, uri: str = URI) -> list[Compared]:
    def work() -> list[Compared]:
        with threads() as workers:
            return reconcile_actions(server, uri, workers)

    found = await asyncio.to_thread(work)
    assert found
    return [one for one in found if not one.equal]


def rows_in(uri: str = URI) -> list[dict[str, Any]]:
    whole = Lake.at(actions_uri(uri))
    rows = [row for file in whole.files() for row in read_actions(whole.store, file).to_pylist()]
    return sorted(rows, key=lambda row: (row["subject"], row["position"], row["row"]))


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, int, str]]:
    return [(row["subject"], row["position"], row["row"], row["action"]) for row in rows]


def wanted_of(rig: Rig) -> list[tuple[str, int, int, str]]:
    """What the log says, without archives."""
    end = rig.broker.logs.synced_action_position
    _, found = told(rig.broker, rig.disk.mount(), 0, end)
    return sorted(
        (row["subject"], row["position"], row["row"], row["action"])
        for subject in (SUBJECT, OTHER)
        for row in Account(whole=True).rows(one for one in found.rows if one["subject"] == subject)
    )


async def test_run_that_dies_at_any_operation_leaves_each_action_once(store: Memory) -> None:
    storm = stormy(1)
    wanted = wanted_of(storm.rig)
    async with served(storm.rig) as server:
        totals = await archived(server)
        assert places(rows_in()) == wanted
        assert (totals.rows, totals.missing_bytes, totals.unnamed) == (len(wanted), 0, 0)
        assert totals.commits > 3
        operations = store.operations
        for turn, dies_at in enumerate(range(1, operations + 1, 3)):
            store.empty()
            store.dies_at, store.does_it = dies_at, turn % 2 == 0
            with pytest.raises(Died):
                await archived(server)
            store.dies_at = None
            assert len(places(rows_in())) == len(set(places(rows_in())))
            await archived(server)
            assert places(rows_in()) == wanted, dies_at
        assert await differing(server) == []


async def test_two_runs_at_once_archive_each_action_once(store: Memory) -> None:
    storm = stormy(2)
    async with served(storm.rig) as server:
        both = await asyncio.gather(archived(server), archived(server))

        assert places(rows_in()) == wanted_of(storm.rig)
        assert sum(one.rows for one in both) == len(rows_in())
        assert await differing(server) == []


async def test_next_run_goes_on_with_what_is_held(store: Memory) -> None:
    storm = Storm(3)
    for _ in range(3):
        storm.blow(50)
        async with served(storm.rig) as server:
            await archived(server)
            assert places(rows_in()) == wanted_of(storm.rig)
            assert await differing(server) == []


async def test_subject_that_is_archived_later_is_archived_from_the_beginning(store: Memory) -> None:
    storm = stormy(4)
    async with served(storm.rig) as server:
        await archived(server, SUBJECT)
        assert {row["subject"] for row in rows_in()} == {SUBJECT}
        await archived(server, "order.*")

    assert places(rows_in()) == wanted_of(storm.rig)


async def test_what_differs_is_found(store: Memory) -> None:
    storm = stormy(5)
    async with served(storm.rig) as server:
        await archived(server)
        whole = Lake.at(actions_uri(URI))
        file = max(whole.files((SUBJECT,)), key=lambda one: one.rows)
        table = read_actions(store, file, upkeep.STORED)
        said = table["consumer"].to_pylist()
        said[0] = "somebody else"
        at = table.column_names.index("consumer")
        changed = table.set_column(at, "consumer", [said])
        hour = upkeep.Hour(file.subject, file.date, file.hour)
        again = upkeep.write_actions(store, changed, hour, "again", "Zstd")
        whole.commit(Commit("again", "again", NOW_MS, added=(again,), removed=(file.name,)))
        (one,) = await differing(server)

    assert {kind: len(found) for kind, found in one.differing.items()} == {
        "lost": 0, "strange": 0, "doubled": 0, "different": 1,
    }  # fmt: skip
    assert one.row()["different"]["rows"] == 1


async def test_compacted_files_hold_the_same_and_expired_ones_are_not_asked_for(store: Memory) -> None:
    storm = stormy(6)
    async with served(storm.rig) as server:
        await archived(server)
        before = rows_in()
        with threads() as workers:
            done = upkeep.compact(
                Lake.at(actions_uri(URI)), workers, lambda: NOW_MS, rewrite=upkeep.merged_actions
            )
        assert done.merged > done.made > 0
        assert rows_in() == before
        assert await differing(server) == []

        last_ms = max(one.stored_ms[1] for one in Lake.at(actions_uri(URI)).files())
        upkeep.expire(Lake.at(actions_uri(URI)), last_ms + 1, NOW_MS, (OTHER,))
        assert {row["subject"] for row in rows_in()} == {SUBJECT}
        assert await differing(server) == []


async def test_what_the_log_has_dropped_before_it_was_archived_is_a_row(store: Memory) -> None:
    settings = replace(TINY, action_segment_bytes=256, retention_interval_ms=100, checkpoint_pause_ms=50,
                       checkpoint_events=10)  # fmt: skip
    storm = Storm(7, settings)
    while storm.rig.broker.logs.actions.start == 0:
        storm.blow(50)
    async with served(storm.rig) as server:
        first = await archived(server)
        begun = [row for row in rows_in() if row["action"] == MISSING]
        assert {row["first_sequence"] for row in begun} == {0}
        assert {row["last_sequence"] + 1 for row in begun} == {row["position"] for row in begun}
        assert first.missing_bytes == sum(row["position"] for row in begun) > 0
        assert await differing(server) == []
    archived_to = min(Lake.at(actions_uri(URI)).archived().values())
    while storm.rig.broker.logs.actions.start <= archived_to:
        storm.blow(50)
    async with served(storm.rig) as server:
        second = await archived(server)
        assert second.missing_bytes > 0
        gaps = [row for row in rows_in() if row["action"] == MISSING and row["first_sequence"] > 0]
        assert {row["first_sequence"] for row in gaps} == {archived_to}
        assert await differing(server) == []


async def test_broker_of_an_earlier_version_tells_no_actions_and_holds_up_nothing(store: Memory) -> None:
    async with served(stormy(8).rig, tells=False) as server:
        totals = await archived(server)

    assert (totals.rows, totals.commits) == (0, 0)


async def test_history_of_a_message_is_all_that_was_done_with_it(store: Memory) -> None:
    storm = stormy(9)
    async with served(storm.rig) as server:
        await archived(server)
    rows, actions = rows_in(), Lake.at(actions_uri(URI))
    seen = 0
    for partition in storm.rig.broker.state.partitions.values():
        for sequence in range(partition.first_kept, partition.visible):
            found = histories.history_of(actions, message_of(actions, partition.name, sequence))
            direct = {
                (row["position"], row["row"]) for row in rows
                if row["partition"] == partition.name and row["last_sequence"] is not None
                and row["first_sequence"] <= sequence <= row["last_sequence"]
            }  # fmt: skip
            told_of = {(row["position"], row["row"]) for own in found.events.values() for row in own}
            assert found.archived
            assert direct <= told_of
            assert set(found.events) <= set(GROUPS)
            seen += len(direct)
    assert seen > 20


def message_of(actions: Lake, partition: str, sequence: int) -> dict[str, Any]:
    (group,) = {place.broker_group for place in actions.archived()}
    return {
        "id": "x", "subject": living_subject(partition), "broker_group": group, "partition": partition,
        "sequence": sequence, "stored_at": datetime.fromtimestamp(NOW_MS / 1000, UTC),
    }  # fmt: skip


async def test_history_follows_a_message_into_the_dead_letters_and_out_of_them(store: Memory) -> None:
    rig = Rig()
    rig.send(*[b"m"] * 3)
    given = pulls(rig.pull(consumer="pod-1"))
    rig.ask(Ack("g", "pod-1", SUBJECT, [given[0], given[0]]))
    rig.ask(Nack("g", "pod-1", SUBJECT, [given[0] + 1, given[1]], reason="no amount", reject=True))
    rig.wait(100)
    rig.ask(Redrive(SUBJECT, "g", [1, 1]))
    again = rig.pull(consumer="pod-2")
    rig.ask(Ack("g", "pod-2", dead_subject(SUBJECT, "g"), pulls(again)))
    rig.wait(600)
    async with served(rig) as server:
        await archived(server)
    actions = Lake.at(actions_uri(URI))
    found = histories.history_of(actions, message_of(actions, SUBJECT, 2))
    other = histories.history_of(actions, message_of(actions, SUBJECT, 1))

    assert [(row["action"], row["consumer"]) for row in found.events["g"]] == [
        ("pulled", "pod-1"), ("failed", "pod-1"), ("dead", None), ("redriven", None), ("pulled", "pod-2"),
        ("acked", "pod-2"),
    ]  # fmt: skip
    assert (found.outcome("g"), other.outcome("g")) == ("acked", "dead")
    assert [row["try"] for row in histories.cells(found)] == [1, 1, None, None, 1, 1]
    said = histories.document(found)
    assert said["groups"][0]["events"][1]["reason"] == "no amount"
    assert said["missing_before"] == []


async def test_history_says_where_nothing_is_archived(store: Memory) -> None:
    rig = Rig()
    rig.send(b"m")
    rig.wait(600)
    async with served(rig) as server:
        await archived(server)
    actions = Lake.at(actions_uri(URI))
    known, other = message_of(actions, SUBJECT, 0), message_of(actions, OTHER, 0)

    assert histories.history_of(actions, known).archived
    assert not histories.history_of(actions, other).archived


async def told_lake(folder: Path) -> str:
    """Two messages and what was done with them, in a folder: one is handled at the second try, one is dead."""
    rig = Rig()
    rig.send(b"m", b"m")
    given = pulls(rig.pull(consumer="pod-1"))
    rig.ask(Nack("g", "pod-1", SUBJECT, [given[0], given[0]], reason="busy", delay_ms=0))
    rig.ask(Nack("g", "pod-1", SUBJECT, [given[1], given[1]], reason="no amount", reject=True))
    rig.ask(Ack("g", "pod-2", SUBJECT, pulls(rig.pull(consumer="pod-2"))))
    rig.wait(600)
    uri = str(folder / "lake")
    async with served(rig) as server:
        done = await asyncio.to_thread(
            command.main,
            ["run", "--server", server, "--subject", SUBJECT, "--to", uri, "--workers", "1", "-o", "json"],
        )
    assert done == 0
    return uri


async def test_command_line_shows_what_became_of_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = await told_lake(tmp_path)
    said = json.loads(capsys.readouterr().out)
    assert {name: said["counts"][name] for name in ("messages", "actions", "actions_missing_bytes")} == {
        "messages": 2, "actions": 6, "actions_missing_bytes": 0,
    }  # fmt: skip

    assert command.main(["find", uri, "--subject", SUBJECT, "--history"]) == 0
    text = capsys.readouterr().out
    assert command.main(["find", uri, "--subject", SUBJECT, "--history", "-o", "json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert command.main(["find", uri, "--subject", "nothing", "--history"]) == 1
    assert "no archived message is like that" in capsys.readouterr().err
    assert command.main(["status", uri, "-o", "json"]) == 0
    status = json.loads(capsys.readouterr().out)

    assert [one["groups"][0]["outcome"] for one in (first, second)] == ["acked", "dead"]
    assert [(one["action"], one.get("consumer"), one.get("attempts")) for one in first["groups"][0]["events"]] == [
        ("pulled", "pod-1", 0), ("failed", "pod-1", 0), ("pulled", "pod-2", 1), ("acked", "pod-2", 1),
    ]  # fmt: skip
    lines = [line.split() for line in text.splitlines()]
    assert ["g:", "acked"] in lines
    assert ["GROUP", "AT", "ACTION", "CONSUMER", "TRY", "UNTIL", "REASON"] in lines
    assert [line[4] for line in lines if "acked" in line and "pod-2" in line] == ["2"]
    assert "no amount" in text
    assert (status["actions"]["rows"], len(status["actions"]["positions"])) == (6, 1)


async def test_actions_are_left_out_when_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = Rig()
    rig.send(b"m")
    rig.wait(600)
    uri = str(tmp_path / "lake")
    asked = ["run", "--subject", SUBJECT, "--to", uri, "--workers", "1", "--without-actions"]
    async with served(rig) as server:
        assert await asyncio.to_thread(command.main, [*asked, "--server", server]) == 0

    assert "actions" not in capsys.readouterr().out
    assert not Lake.at(actions_uri(uri)).state.number
    assert command.main(["find", uri, "--subject", SUBJECT, "--history"]) == 0
    assert "no actions of its subject are archived there" in capsys.readouterr().out


async def test_sql_has_actions_beside_messages(tmp_path: Path) -> None:
    rig = Rig()
    rig.send(*[b"m"] * 4)
    rig.ask(Ack("g", "c", SUBJECT, pulls(rig.pull())))
    rig.wait(600)
    uri = str(tmp_path / "lake")
    async with served(rig) as server:
        await archived(server, uri=uri)
    found = await asyncio.to_thread(
        partial(finding.sql, Lake.at(uri)),
        "SELECT action, consumer, sum(messages)::INT AS messages FROM actions WHERE subject = 'order.created' "
        "GROUP BY ALL ORDER BY action",
    )

    assert found.to_pylist() == [
        {"action": "acked", "consumer": "c", "messages": 4},
        {"action": "pulled", "consumer": "c", "messages": 4},
    ]
    assert open_store(uri).uri == uri

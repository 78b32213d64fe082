"""Action logs archived over real HTTP: killed anywhere, twice at once, with a log that has lost its beginning."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from samples.action_lakes import URI, archived, rows_in, served, threads
from samples.brokers import NOW_MS, SUBJECT, TINY, Rig
from samples.lake_memory import Died, Memory
from samples.storms import OTHER, Storm, stormy
from samples.tellings import told
from tidemill_spark import action_archive, action_reconciling, lake, upkeep
from tidemill_spark.action_reconciling import Compared, reconcile_actions
from tidemill_spark.action_tables import read_actions
from tidemill_spark.actions import MISSING, Account
from tidemill_spark.commits import Commit
from tidemill_spark.lake import Lake
from tidemill_spark.layout import actions_uri
from tidemill_wire import limits

FEW_RECORDS, FEW_BYTES = 20, 1000
"""Of a task, and of an answer: so a log is several commits."""


@pytest.fixture(name="store")
def _store(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The one of the lake, wherever somebody opens it."""
    store = Memory()
    for module in (action_archive, action_reconciling, lake, upkeep):
        monkeypatch.setattr(module, "open_store", lambda _uri: store)
    monkeypatch.setattr(action_archive, "TASK_RECORDS", FEW_RECORDS)
    monkeypatch.setattr(limits, "ACTIONS_BYTES_MAX", FEW_BYTES)
    return store


async def differing(server: str, uri: str = URI) -> list[Compared]:
    def work() -> list[Compared]:
        with threads() as workers:
            return reconcile_actions(server, uri, workers)

    found = await asyncio.to_thread(work)
    assert found
    return [one for one in found if not one.equal]


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

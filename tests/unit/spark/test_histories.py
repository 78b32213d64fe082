"""What became of archived messages: from rows of the action log, by the command line, in SQL."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from samples.action_lakes import archived, rows_in, served
from samples.brokers import NOW_MS, SUBJECT, Rig, pulls
from samples.storms import GROUPS, OTHER, stormy
from tidemill_spark import finding, histories
from tidemill_spark.jobs import command
from tidemill_spark.lake import Lake
from tidemill_spark.layout import actions_uri
from tidemill_spark.stores import open_store
from tidemill_wire.commands import Ack, Nack, Redrive
from tidemill_wire.fields import dead_subject, living_subject


async def test_history_of_a_message_is_all_that_was_done_with_it(tmp_path: Path) -> None:
    storm = stormy(9)
    async with served(storm.rig) as server:
        await archived(server, uri=str(tmp_path))
    rows, actions = rows_in(str(tmp_path)), Lake.at(actions_uri(str(tmp_path)))
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


async def test_history_follows_a_message_into_the_dead_letters_and_out_of_them(tmp_path: Path) -> None:
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
        await archived(server, uri=str(tmp_path))
    actions = Lake.at(actions_uri(str(tmp_path)))
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


async def test_history_says_where_nothing_is_archived(tmp_path: Path) -> None:
    rig = Rig()
    rig.send(b"m")
    rig.wait(600)
    async with served(rig) as server:
        await archived(server, uri=str(tmp_path))
    actions = Lake.at(actions_uri(str(tmp_path)))
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

"""`tidemill outbox`: what a person sees of the table, and does with what was set aside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sql

from tidemill.cli import run
from tidemill.outbox import tables
from tidemill.outbox.ledger import Ledger
from tidemill.outbox.pace import Pace
from tidemill.outbox.row import State, parse_entry


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A table with a message that waits and two that were set aside, one of them with an order key."""
    found = f"sqlite:///{tmp_path}/shop.db"
    assert run(["outbox", "create", "--url", found]) == 0
    engine = sql.create_engine(found)
    ledger, messages = Ledger(tables(), Pace(), 0.0), tables().messages
    with engine.begin() as connection:
        for options in ({}, {}, {"order_key": "k"}):
            ledger.write(connection, parse_entry("order.created", b"1", options))
        aside = messages.update().where(messages.c.id > 1)
        connection.execute(aside.values(state=int(State.ASIDE), due_ms=0, reason="Refused: too large"))
    engine.dispose()
    return found


def states(url: str) -> dict[int, int]:
    engine = sql.create_engine(url)
    with engine.connect() as connection:
        found = {row.id: row.state for row in connection.execute(tables().messages.select())}
    engine.dispose()
    return found


def test_status_counts_names_reasons_and_fails_when_something_was_set_aside(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["outbox", "status", "--url", url]) == 1
    told = capsys.readouterr()
    assert "Refused: too large" in told.out
    assert "2 messages of tidemill_outbox cannot be sent" in told.err

    assert run(["outbox", "status", "--url", url.replace("sqlite:", "sqlite+aiosqlite:"), "-o", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["waiting"], answer["ordered"], answer["aside"], answer["leader"]) == (1, 0, 2, None)
    assert [row["id"] for row in answer["set_aside"]] == [2, 3]


def test_retry_lets_rows_wait_again_those_of_a_key_in_its_order(url: str) -> None:
    assert run(["outbox", "retry", "--url", url, "--row", "3"]) == 0
    assert states(url) == {1: State.WAITING, 2: State.ASIDE, 3: State.ORDERED}
    assert run(["outbox", "retry", "--url", url, "--all"]) == 0
    assert states(url) == {1: State.WAITING, 2: State.WAITING, 3: State.ORDERED}
    assert run(["outbox", "status", "--url", url]) == 0


def test_purge_deletes_what_was_set_aside_and_nothing_that_waits(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["outbox", "purge", "--url", url, "--row", "1", "--row", "2", "--yes"]) == 0
    assert states(url) == {1: State.WAITING, 3: State.ASIDE}
    assert run(["outbox", "purge", "--url", url, "--all", "--yes"]) == 0
    assert states(url) == {1: State.WAITING}
    assert capsys.readouterr().out.endswith("1 message deleted\n")


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["purge", "--url", "sqlite://", "--all"], 2, "cannot be undone"),
        (["retry", "--url", "sqlite://"], 2, "say which"),
        (["retry", "--url", "sqlite://", "--all", "--row", "1"], 2, "say which"),
        (["status", "--url", "sqlite://"], 1, "tidemill outbox create"),
        (["status", "--url", "nonsense"], 1, "look at --url"),
        (["status", "--url", "oracle://somewhere"], 1, "driver"),
        (["status", "--url", "sqlite://", "--table", "no name"], 2, "no name of a table"),
        (["relay", "--url", "sqlite://", "--server", "nowhere"], 2, "no address"),
    ],
)
def test_what_a_person_does_wrong_is_one_sentence(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["outbox", *words]) == code
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_forget_and_create_may_be_said_again(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["outbox", "create", "--url", url]) == 0
    assert run(["outbox", "forget", "--url", url]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "tidemill_outbox is of version 1",
        "0 messages forgotten",
    ]

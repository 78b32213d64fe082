"""Stores on both databases, each with a database of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from samples.postgres import Postgres, postgres
from tidemill_meta.doors.store import SqlStore

MakeStore: TypeAlias = Callable[[], SqlStore]


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty one."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/meta.db"
    running: Postgres = request.getfixturevalue("server")
    return running.url(f"meta_{uuid.uuid4().hex}")


@pytest.fixture
def make_store(database: str) -> MakeStore:
    """As many as wanted, all on one database; each test closes its own."""
    return lambda: SqlStore(database)

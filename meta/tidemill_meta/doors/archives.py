"""The HTTP paths of archives and replays: jobs tell how they went, operators and people look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from tidemill_host.routing import Variables
from tidemill_meta.archive_values import Archive, ReplayRecord
from tidemill_meta.archives import (
    ARCHIVE_FIELDS,
    REPLAY_FIELDS,
    RUN_FIELDS,
    archive_row,
    drop_archive,
    drop_replay,
    put_archive,
    put_replay,
    put_run,
    replay_row,
    unknown_archive,
    unknown_replay,
)
from tidemill_meta.asked import Asked
from tidemill_meta.doors.replica import Replica
from tidemill_meta.errors import Denied
from tidemill_meta.registry import Draft

Told = TypeVar("Told", Archive, ReplayRecord)
Answers: TypeAlias = dict[tuple[str, str], Callable[[Any, Variables], Awaitable[object]]]


class Kept(NamedTuple, Generic[Told]):
    """What jobs tell of: looked at and forgotten alike, whatever it is."""

    word: str
    kind: type[Told]
    row: Callable[[Told], dict[str, Any]]
    unknown: Callable[[str], Denied]
    drop: Callable[[Draft, str], None]


ARCHIVES = Kept("archive", Archive, archive_row, unknown_archive, drop_archive)
REPLAYS = Kept("replay", ReplayRecord, replay_row, unknown_replay, drop_replay)


class Archives:
    """Answers the paths that it names, as ``Api`` does."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def asked(self) -> Answers:
        """What comes with a body."""
        return {
            ("PUT", "/v1/archives/{archive}"): self._put,
            ("PUT", "/v1/archives/{archive}/runs/{run}"): self._put_run,
            ("PUT", "/v1/replays/{replay}"): self._put_replay,
        }

    def read(self) -> Answers:
        """What comes without one."""
        return {**_read(self._replica, ARCHIVES), **_read(self._replica, REPLAYS)}

    async def _put(self, body: object, variables: Variables) -> object:
        asked, name = Asked(body, ARCHIVE_FIELDS), variables["archive"]
        return archive_row(await self._replica.change(lambda draft, _: put_archive(draft, name, asked)))

    async def _put_run(self, body: object, variables: Variables) -> object:
        asked, name, run = Asked(body, RUN_FIELDS), variables["archive"], variables["run"]
        return archive_row(await self._replica.change(lambda draft, _: put_run(draft, name, run, asked)))

    async def _put_replay(self, body: object, variables: Variables) -> object:
        asked, name = Asked(body, REPLAY_FIELDS), variables["replay"]
        return replay_row(await self._replica.change(lambda draft, _: put_replay(draft, name, asked)))


def _read(replica: Replica, kept: Kept[Told]) -> Answers:
    """All of a kind, one of them, and one that is forgotten."""

    async def list_all(_: object, __: Variables) -> object:
        found = replica.meta.registry.all(kept.kind)
        return [kept.row(one) for one in sorted(found, key=lambda one: one.name)]

    async def get(_: object, variables: Variables) -> object:
        name = variables[kept.word]
        found = replica.meta.registry.get(kept.kind, name)
        if found is None:
            raise kept.unknown(name)
        return kept.row(found)

    async def drop(_: object, variables: Variables) -> object:
        name = variables[kept.word]
        await replica.change(lambda draft, _: kept.drop(draft, name))
        return {"removed": name}

    many = f"/v1/{kept.word}s"
    one = f"{many}/{{{kept.word}}}"
    return {("GET", many): list_all, ("GET", one): get, ("DELETE", one): drop}

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
    beat_replay,
    beat_run,
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
from tidemill_meta.silence import BEAT_FIELDS

Told = TypeVar("Told", Archive, ReplayRecord)
Answers: TypeAlias = dict[tuple[str, str], Callable[[Any, Variables], Awaitable[object]]]


class Kept(NamedTuple, Generic[Told]):
    """What jobs tell of: looked at and forgotten alike, whatever it is."""

    word: str
    kind: type[Told]
    row: Callable[[Told, int, int], dict[str, Any]]
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
            ("PUT", "/v1/archives/{archive}/runs/{run}/beat"): self._beat_run,
            ("PUT", "/v1/replays/{replay}"): self._put_replay,
            ("PUT", "/v1/replays/{replay}/beat"): self._beat_replay,
        }

    def read(self) -> Answers:
        """What comes without one."""
        return {**_read(self._replica, ARCHIVES), **_read(self._replica, REPLAYS)}

    async def _put(self, body: object, variables: Variables) -> object:
        asked, name = Asked(body, ARCHIVE_FIELDS), variables["archive"]
        return self._row(
            ARCHIVES, await self._replica.change(lambda draft, _: put_archive(draft, name, asked))
        )

    async def _put_run(self, body: object, variables: Variables) -> object:
        asked, name, run = Asked(body, RUN_FIELDS), variables["archive"], variables["run"]
        return self._row(
            ARCHIVES, await self._replica.change(lambda draft, now: put_run(draft, name, run, asked, now))
        )

    async def _beat_run(self, body: object, variables: Variables) -> object:
        asked, name, run = Asked(body, BEAT_FIELDS), variables["archive"], variables["run"]
        await self._replica.change(lambda draft, now: beat_run(draft, name, run, asked, now))
        return {"heard": run}

    async def _put_replay(self, body: object, variables: Variables) -> object:
        asked, name = Asked(body, REPLAY_FIELDS), variables["replay"]
        return self._row(
            REPLAYS, await self._replica.change(lambda draft, now: put_replay(draft, name, asked, now))
        )

    async def _beat_replay(self, body: object, variables: Variables) -> object:
        asked, name = Asked(body, BEAT_FIELDS), variables["replay"]
        await self._replica.change(lambda draft, now: beat_replay(draft, name, asked, now))
        return {"heard": name}

    def _row(self, kept: Kept[Told], one: Told) -> dict[str, Any]:
        return _row(self._replica, kept, one)


def _row(replica: Replica, kept: Kept[Told], one: Told) -> dict[str, Any]:
    return kept.row(one, replica.clock.now_ms(), replica.meta.senses.listening_since_ms)


def _read(replica: Replica, kept: Kept[Told]) -> Answers:
    """All of a kind, one of them, and one that is forgotten."""

    async def list_all(_: object, __: Variables) -> object:
        found = replica.meta.registry.all(kept.kind)
        return [_row(replica, kept, one) for one in sorted(found, key=lambda one: one.name)]

    async def get(_: object, variables: Variables) -> object:
        name = variables[kept.word]
        found = replica.meta.registry.get(kept.kind, name)
        if found is None:
            raise kept.unknown(name)
        return _row(replica, kept, found)

    async def drop(_: object, variables: Variables) -> object:
        name = variables[kept.word]
        await replica.change(lambda draft, _: kept.drop(draft, name))
        return {"removed": name}

    many = f"/v1/{kept.word}s"
    one = f"{many}/{{{kept.word}}}"
    return {("GET", many): list_all, ("GET", one): get, ("DELETE", one): drop}

"""The HTTP paths of archives and replays: jobs tell how they went, operators and people look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

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


class Archives:
    """Answers the paths that it names, as ``Api`` does."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._registry = replica.meta.registry

    def asked(self) -> dict[tuple[str, str], Callable[[Any, Variables], Awaitable[object]]]:
        """What comes with a body."""
        return {
            ("PUT", "/v1/archives/{archive}"): self._put,
            ("PUT", "/v1/archives/{archive}/runs/{run}"): self._put_run,
            ("PUT", "/v1/replays/{replay}"): self._put_replay,
        }

    def read(self) -> dict[tuple[str, str], Callable[[Any, Variables], Awaitable[object]]]:
        """What comes without one."""
        return {
            ("GET", "/v1/archives"): self._list,
            ("GET", "/v1/archives/{archive}"): self._get,
            ("DELETE", "/v1/archives/{archive}"): self._drop,
            ("GET", "/v1/replays"): self._list_replays,
            ("GET", "/v1/replays/{replay}"): self._get_replay,
            ("DELETE", "/v1/replays/{replay}"): self._drop_replay,
        }

    async def _put(self, body: object, variables: Variables) -> object:
        asked, name = Asked(body, ARCHIVE_FIELDS), variables["archive"]
        return archive_row(await self._replica.change(lambda draft, _: put_archive(draft, name, asked)))

    async def _put_run(self, body: object, variables: Variables) -> object:
        asked, name, run = Asked(body, RUN_FIELDS), variables["archive"], variables["run"]
        return archive_row(await self._replica.change(lambda draft, _: put_run(draft, name, run, asked)))

    async def _put_replay(self, body: object, variables: Variables) -> object:
        asked, name = Asked(body, REPLAY_FIELDS), variables["replay"]
        return replay_row(await self._replica.change(lambda draft, _: put_replay(draft, name, asked)))

    async def _list(self, _: object, __: Variables) -> object:
        return [archive_row(one) for one in sorted(self._registry.all(Archive), key=lambda one: one.name)]

    async def _get(self, _: object, variables: Variables) -> object:
        found = self._registry.get(Archive, variables["archive"])
        if found is None:
            raise unknown_archive(variables["archive"])
        return archive_row(found)

    async def _drop(self, _: object, variables: Variables) -> object:
        name = variables["archive"]
        await self._replica.change(lambda draft, _: drop_archive(draft, name))
        return {"removed": name}

    async def _list_replays(self, _: object, __: Variables) -> object:
        return [replay_row(one) for one in sorted(self._registry.all(ReplayRecord), key=lambda one: one.name)]

    async def _get_replay(self, _: object, variables: Variables) -> object:
        found = self._registry.get(ReplayRecord, variables["replay"])
        if found is None:
            raise unknown_replay(variables["replay"])
        return replay_row(found)

    async def _drop_replay(self, _: object, variables: Variables) -> object:
        name = variables["replay"]
        await self._replica.change(lambda draft, _: drop_replay(draft, name))
        return {"removed": name}

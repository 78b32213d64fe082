"""A broker of a group attends meta: registers, says each second how it stands, and obeys what it is answered.

Whatever meta answers is obeyed only as the machine sees fit (``membership.judge``); whatever goes wrong on the way is
tried again with the next beat, at the next replica of meta. Meta away stops nothing by itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import aiohttp

from tidemill_host.local import LocalPeer
from tidemill_wire.errors import WireError
from tidemill_wire.fields import Fields
from tidemill_wire.replication import Appoint, Stand, Stood, parse_appoint

BEAT_SECONDS = 1.0
PATIENCE_SECONDS = 2.0
ROLES = {"master": "master", "slave": "slave", "fenced": "none"}


class MetaRefused(Exception):
    """Meta answered with an error; ``code`` is its name."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(f"{code}: {detail}")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a broker tells of itself. ``boot`` grows with each process on its folder."""

    group: str
    name: str
    boot: int
    data: str
    control: str


class Attending:
    """One broker and its metas. ``keep`` runs until it is cancelled."""

    def __init__(self, local: LocalPeer, identity: Identity, metas: Sequence[str]) -> None:
        self._local = local
        self._identity = identity
        self._metas = list(metas)
        self._registered = False
        self._complaint = ""

    async def keep(self) -> None:
        """Beat after beat."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                try:
                    await self._beat(session)
                    self._complaint = ""
                except (
                    aiohttp.ClientError,
                    TimeoutError,
                    OSError,
                    ValueError,
                    MetaRefused,
                    WireError,
                ) as error:
                    self._complain(error)
                    if isinstance(error, MetaRefused) and error.code == "not_registered":
                        self._registered = False
                    self._metas.append(self._metas.pop(0))
                await asyncio.sleep(BEAT_SECONDS)

    def _complain(self, error: Exception) -> None:
        """Once for each thing that is wrong: a beat is a second."""
        said = f"meta at {self._metas[0]}: {' '.join(str(error).split()) or type(error).__name__}"
        if said != self._complaint:
            sys.stderr.write(f"tidemill: {said}\n")
            self._complaint = said

    async def _beat(self, session: aiohttp.ClientSession) -> None:
        one = self._identity
        stood = await self._local.ask(Stand(asks=True))
        assert isinstance(stood, Stood)
        if not self._registered:
            addresses = {"data": one.data, "control": one.control}
            known = {"group": one.group, "name": one.name, "boot": one.boot, "addresses": addresses}
            await self._ask(session, "POST", "/v1/brokers", known)
            self._registered = True
        if stood.wish is not None and stood.role == "master":
            wish = {
                "master": one.name, "epoch": stood.epoch, "version": stood.version, "in_sync": list(stood.wish),
            }  # fmt: skip
            await self._ask(session, "POST", f"/v1/groups/{one.group}/in-sync", wish)
        beat = {
            "group": one.group, "name": one.name, "boot": one.boot, "epoch": max(stood.epoch, stood.begun),
            "positions": {"messages": stood.ends.message, "actions": stood.ends.action}, "load": 0.0,
            "state": "RW", "role": ROLES[stood.role],
        }  # fmt: skip
        answer = await self._ask(session, "POST", "/v1/brokers/heartbeat", beat)
        await self._obey(session, stood, answer)

    async def _obey(self, session: aiohttp.ClientSession, stood: Stood, answer: Mapping[str, Any]) -> None:
        if not answer.get("master"):
            return
        if stood.role != "fenced" and (answer["epoch"], answer["version"]) <= (stood.epoch, stood.version):
            return
        listed = await self._ask(session, "GET", "/v1/brokers", None)
        said = {name: answer[name] for name in ("group", "epoch", "master", "replicas", "in_sync", "version")}
        appoint: Appoint = parse_appoint(
            Fields.of(said | {"addresses": addresses_in(listed, self._identity.group)})
        )
        await self._local.ask(appoint)

    async def _ask(self, session: aiohttp.ClientSession, method: str, path: str, body: object) -> Any:
        url = f"http://{self._metas[0]}{path}"
        async with session.request(method, url, json=body) as response:
            answer: Any = await response.json(content_type=None)
            if response.status >= 400:
                error = cast("Mapping[str, Any]", answer.get("error", {}) if isinstance(answer, dict) else {})
                raise MetaRefused(str(error.get("code", response.status)), str(error.get("detail", "")))
            return answer


def addresses_in(listed: Sequence[Mapping[str, Any]], group: str) -> dict[str, str]:
    """Where the brokers of a group listen for frames, as ``GET /v1/brokers`` of meta says."""
    found = [cast("Sequence[Mapping[str, Any]]", row["brokers"]) for row in listed if row["group"] == group]
    rows = found[0] if found else ()
    return {row["name"]: row["addresses"]["data"] for row in rows}

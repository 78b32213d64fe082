"""Who works: one replica at a time, by a Lease.

The rules of client-go: a lease is another's until it has not changed for as long as it is for, by this replica's own
clock, so clocks of different machines are never compared. Whoever cannot renew in time ends the process, for another
replica may be at work from then on; the process is started again, and waits.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any

from tidemill_operator import marks
from tidemill_operator.doors.api import Api, Refused
from tidemill_operator.kinds import LEASE
from tidemill_operator.marks import micro_timestamp
from tidemill_operator.settings import OperatorSettings

logger = logging.getLogger("tidemill.operator")


class LeaseLost(Exception):
    """Another replica may be at work."""


class Lease:
    """See the module."""

    def __init__(self, api: Api, settings: OperatorSettings, namespace: str, holder: str) -> None:
        self._api = api
        self._settings = settings
        self._holder = holder
        self._place = LEASE.path(namespace, settings.lease_name)
        self._list = LEASE.path(namespace)
        self._lease: dict[str, Any] = {}
        self._seen: tuple[object, float] = (None, 0.0)
        """Holder and renewal as last seen, and when that was seen first."""
        self._free_s = math.inf
        """From when on the lease may be taken if nobody renews it; infinite when the last look does not say."""
        self._watched_s: float | None = None
        """When another one's lease was looked at last."""
        self._renewed_s = 0.0

    def stands_by(self) -> bool:
        """Whether another replica works, and this one watches when that one's lease ends."""
        return self._watched_s is not None and _now_s() - self._watched_s < self._settings.renewal_ms / 1000

    async def acquire(self) -> None:
        """Wait until it is ours."""
        ours = await self._turn()
        while not ours:
            await asyncio.sleep(max(0.0, min(self._settings.retry_ms / 1000, self._free_s - _now_s())))
            ours = await self._turn()
        self._watched_s = None
        logger.info("lease_acquired holder=%s", self._holder)

    async def keep(self) -> None:
        """Renew it; ``LeaseLost`` when that was not possible in time."""
        while True:
            await asyncio.sleep(self._settings.retry_ms / 1000)
            left_s = self._renewed_s + self._settings.renewal_ms / 1000 - _now_s()
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    kept = await self._turn()
            except TimeoutError:
                kept = False
            if not kept and _now_s() - self._renewed_s >= self._settings.renewal_ms / 1000:
                raise LeaseLost(f"the lease could not be renewed for {self._settings.renewal_ms} ms")

    async def release(self) -> None:
        """Let the next one begin at once."""
        if self._spec().get("holderIdentity") == self._holder:
            try:
                await self._write({**self._spec(), "holderIdentity": "", "leaseDurationSeconds": 1})
            except Refused as refused:
                logger.info("lease_not_released why=%s", refused)

    async def _turn(self) -> bool:
        """Look, and take or renew it where that is allowed. Whether it is ours."""
        self._free_s = math.inf
        try:
            self._lease = await self._api.get(self._place)
        except Refused as refused:
            if refused.status != 404:
                logger.warning("lease_unread why=%s", refused)
                return False
            return await self._write_or_not({}, create=True)
        spec = self._spec()
        said = (spec.get("holderIdentity"), spec.get("renewTime"))
        if said != self._seen[0]:
            self._seen = said, _now_s()
        ours = spec.get("holderIdentity") == self._holder
        length_s = spec.get("leaseDurationSeconds") or 1
        if not ours and spec.get("holderIdentity") and _now_s() < self._seen[1] + length_s:
            self._free_s, self._watched_s = self._seen[1] + length_s, _now_s()
            return False
        return await self._write_or_not(spec)

    async def _write_or_not(self, spec: dict[str, Any], *, create: bool = False) -> bool:
        now = micro_timestamp(time.time_ns() // 1_000_000)
        ours = spec.get("holderIdentity") == self._holder
        began_s = _now_s()
        wanted = {
            **spec,
            "holderIdentity": self._holder,
            "leaseDurationSeconds": max(1, self._settings.lease_ms // 1000),
            "renewTime": now,
            "acquireTime": spec.get("acquireTime", now) if ours else now,
            "leaseTransitions": spec.get("leaseTransitions", 0) + (0 if ours or create else 1),
        }
        try:
            await self._write(wanted, create=create)
        except Refused as refused:
            logger.info("lease_not_written why=%s", refused)
            return False
        self._renewed_s = began_s
        return True

    async def _write(self, spec: dict[str, Any], *, create: bool = False) -> None:
        metadata = marks.metadata(self._lease)
        kept = {name: metadata[name] for name in ("name", "namespace", "resourceVersion") if name in metadata}
        body = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": kept or {"name": self._settings.lease_name},
            "spec": spec,
        }
        self._lease = await (self._api.post(self._list, body) if create else self._api.put(self._place, body))

    def _spec(self) -> dict[str, Any]:
        return self._lease.get("spec") or {}


def _now_s() -> float:
    return asyncio.get_running_loop().time()

"""Who is asked what a broker group stores: its master; or a slave of it, when the master does not answer.

A slave has the same logs and the same sequences, so a search that began at the master goes on at a slave. What it shows
is committed; what its master took a moment ago may not be. It is asked for its role first: one that is fenced knows
nothing, and would say that nothing is there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tidemill.atlas import listed, mapped
from tidemill.errors import BrokerUnreachable, Unavailable, WireError
from tidemill.router import Router
from tidemill.routes import Address, OpenPort, parse_server
from tidemill.servers import Servers

TIMEOUT_S = 30.0
"""For a page of stored messages: a broker may have to read much, and others may have asked before."""
PATIENCE_S = 3.0
"""With a master, before a slave is asked as well."""
META_S = 2.0
STANDING = "/v1/replication"
SERVING = ("master", "slave")
NOTHING: Mapping[str, Any] = MappingProxyType({})

log = logging.getLogger("tidemill")


class StandIns:
    """See the module."""

    def __init__(self, servers: Servers, router: Router, open_port: OpenPort) -> None:
        self.asked: dict[str, str] = {}
        """By broker group, the slave that answered last in its master's place."""
        self._servers = servers
        self._router = router
        self._open_port = open_port

    async def ask(self, group: str, path: str) -> Any:
        """The JSON at a path of a broker group; ``None`` when people let nobody read it."""
        master = self._router.atlas.brokers.get(group)
        if master is not None and master.state not in {"RW", "R"}:
            master = None
        if master is not None:
            try:
                return await self.of(master, path, PATIENCE_S)
            except (BrokerUnreachable, Unavailable) as error:
                log.debug("master_not_asked %s: %s", group, error)
        row = await self._row(group)
        if row.get("retired") or row.get("allowed", "R") not in {"RW", "R"}:
            return None
        for slave in _others(row, master):
            answer = await self._of_slave(slave, path)
            if answer is not None:
                self._note(group, str(slave.get("name")))
                return answer
        if master is None:
            raise BrokerUnreachable(f"no broker of the broker group {group} can be asked now")
        return await self.of(master, path)  # nobody else is there: it has all the time it needs

    async def of(self, address: Address, path: str, timeout_s: float = TIMEOUT_S) -> Any:
        """The JSON at a path of one broker."""
        try:
            host, port = parse_server(address.control)
        except ValueError:
            raise BrokerUnreachable(f"meta does not know the HTTP port of {address.group}") from None
        return await self._open_port(host, port).get(path, timeout_s)

    async def _of_slave(self, member: Mapping[str, Any], path: str) -> Any:
        """What it says; ``None`` when it says nothing, or is none."""
        control = str(mapped(member.get("addresses")).get("control"))
        try:
            host, port = parse_server(control)
            at = self._open_port(host, port)
            if mapped(await at.get(STANDING, PATIENCE_S)).get("role") in SERVING:
                return await at.get(path, TIMEOUT_S)
        except (BrokerUnreachable, Unavailable, ValueError) as error:
            log.debug("slave_not_asked %s: %s", control, error)
        return None

    async def _row(self, group: str) -> Mapping[str, Any]:
        """What meta says of a broker group; nothing when it does not answer."""
        try:
            rows = await self._servers.get("/v1/brokers", META_S)
        except (BrokerUnreachable, WireError):
            return NOTHING
        found = map(mapped, listed({"rows": rows}, "rows"))
        return next((row for row in found if row.get("group") == group), NOTHING)

    def _note(self, group: str, slave: str) -> None:
        if self.asked.get(group) != slave:
            log.warning("slave_asked %s: %s answers in place of the master", group, slave)
        self.asked[group] = slave


def _others(row: Mapping[str, Any], master: Address | None) -> Sequence[Mapping[str, Any]]:
    """The brokers of a group but the one that was asked; who is believed to be there, and in sync, first."""
    members = [mapped(one) for one in listed(row, "brokers")]
    asked = None if master is None else master.control
    others = [one for one in members if mapped(one.get("addresses")).get("control") != asked]
    return sorted(
        others, key=lambda one: (not one.get("alive"), not one.get("in_sync"), str(one.get("name")))
    )

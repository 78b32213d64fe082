"""A meta and brokers in memory behind real sockets, as several broker groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from samples.realms import Realm
from tidemill import Client, ClientSettings
from tidemill_wire.columns import Batch

QUICK = ClientSettings(backoff_base_s=0.01, backoff_max_s=0.05)


@dataclass
class Town:
    """A meta and broker groups ``g0`` to ``g2``."""

    realm: Realm
    places: dict[str, Any]

    def client(self, settings: ClientSettings = QUICK, **options: Any) -> Client:
        return Client(
            "m1:7401,m2:7401", settings=replace(settings, open_port=self.realm.open_port), **options
        )

    def stored(self, group: str, subject: str = "a") -> list[bytes]:
        found = self.places[group].broker.subjects.get(subject)
        return [] if found is None else [body for stored in found.batches for body in Batch(stored).bodies()]


Build = Callable[..., AbstractAsyncContextManager[Town]]


@asynccontextmanager
async def build_town(serve: Callable[[], Any], groups: int = 2, **options: Any) -> AsyncIterator[Town]:
    """``serve`` begins a broker in memory."""
    async with AsyncExitStack() as stack:
        realm = Realm(**options)
        places = {f"g{number}": await stack.enter_async_context(serve()) for number in range(groups)}
        for group, place in places.items():
            realm.serve(group, place.port)
        yield Town(realm, places)


async def both_up(mq: Client, until: Any, *groups: str) -> None:
    """Until the client is connected to the broker groups; those it has sent to before."""
    lanes = mq._producer._lanes
    await until(lambda: all(group in lanes and lanes[group].link for group in groups))

"""What no watch tells: which kinds there are, what is there before the first pass, and what is gone by now.

A watch that began anew does not tell of what was deleted meanwhile, so now and then what is known is compared with what
there is. Of kinds that the API server had not when the operator began there is no watch, so their objects are listed
with every resync: somebody who installs Spark's operator later need not start this one again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from tidemill_operator import marks
from tidemill_operator.doors.api import Api, Refused
from tidemill_operator.doors.watch import Heard
from tidemill_operator.kinds import KINDS, OPTIONAL, Kind
from tidemill_operator.store import Key, Store

logger = logging.getLogger("tidemill.operator")


class Looking:
    """See the module. What is found is told as a watch would; ``queue`` hears who is to look at what is gone."""

    def __init__(
        self,
        api: Api,
        store: Store,
        namespaces: tuple[str, ...],
        heard: Heard,
        queue: Callable[[Iterable[Key]], None],
    ) -> None:
        self.served: frozenset[str] = frozenset()
        """Kinds that the API server has, as far as it said so last, by their full names."""
        self._api = api
        self._store = store
        self._namespaces = namespaces
        self._heard = heard
        self._queue = queue
        self._watched: frozenset[str] = frozenset()

    async def around(self, kinds: Iterable[Kind]) -> None:
        """Before the first pass: everything that is there, for a decision must not miss what the watches tell last."""
        await self._ask_served()
        chosen = tuple(kinds)
        self._watched = frozenset(one.full for one in chosen)
        for kind in chosen:
            await self._list(kind)

    async def again(self, *, sweep: bool) -> None:
        """With every resync; ``sweep``: look for what is gone, of all kinds."""
        await self._ask_served()
        late = [one for one in OPTIONAL if one.full in self.served and one.full not in self._watched]
        for kind in late:
            try:
                await self._list(kind)
            except Refused as refused:
                logger.warning("list_failed kind=%s why=%s", kind.kind, refused)
        await self._sweep(KINDS.values() if sweep else late)

    async def _list(self, kind: Kind) -> None:
        for written in await self._api.listed(kind, self._namespaces if kind.namespaced else ()):
            self._heard(kind, None, written)

    async def _ask_served(self) -> None:
        try:
            self.served = await self._api.serves(KINDS.values())
        except Refused as refused:
            logger.warning("api_away why=%s", refused)

    async def _sweep(self, kinds: Iterable[Kind]) -> None:
        for kind in (one for one in kinds if self._store.keys((one.kind,))):
            known = {
                (key.namespace, key.name): marks.metadata(one).get("uid", "")
                for key in self._store.keys((kind.kind,))
                if (one := self._store.get(key)) is not None
            }
            try:
                there = await self._api.names(kind, self._namespaces if kind.namespaced else ())
            except Refused as refused:
                logger.warning("sweep_failed kind=%s why=%s", kind.kind, refused)
                continue
            for (namespace, name), uid in known.items():
                if (namespace, name, uid) not in there:
                    self._queue(self._store.drop(kind.kind, namespace, name, uid))

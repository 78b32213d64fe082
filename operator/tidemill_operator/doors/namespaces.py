"""Whether namespaces go: asked of the API server when it matters, which is when one of our objects is deleted."""

from __future__ import annotations

import time

from tidemill_operator import marks
from tidemill_operator.doors.api import Api, Refused
from tidemill_operator.kinds import NAMESPACE

FRESH_S = 2.0


class Namespaces:
    """What was heard lately counts: a namespace that goes takes all its objects at once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, tuple[float, bool]] = {}

    async def goes(self, name: str) -> bool:
        at_s, going = self._known.get(name, (-FRESH_S, False))
        if time.monotonic() - at_s < FRESH_S:
            return going
        try:
            namespace = await self._api.get(NAMESPACE.path("", name))
        except Refused as refused:
            if refused.status != 404:
                raise refused.failure from None
            going = True
        else:
            going = marks.goes(namespace)
        self._known[name] = time.monotonic(), going
        return going

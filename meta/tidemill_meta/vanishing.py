"""Pods that are gone: who has seen a consumer's pod vanish says so, and brokers end its leases at once.

    said     --brokers are told with their next beat-->  what its consumers held is given to others
    said     --``VANISHED_MS``-->                        forgotten: their consumers count as gone by themselves by then

Nothing is concluded from it but that leases end, and not of groups in order, whose consumers reckon with their time. So
it may be said by mistake: a consumer that lives goes on, and what it held is handled a second time.
"""

from __future__ import annotations

from tidemill_meta.errors import Denied
from tidemill_meta.registry import Draft
from tidemill_meta.senses import Senses
from tidemill_meta.vanished import Vanished

VANISHED_MS = 30_000
VANISHED_MAX = 1_000


def vanish(draft: Draft, pod: str) -> Vanished:
    """Note it; what is said again is told again."""
    if sum(1 for _ in draft.all(Vanished)) >= VANISHED_MAX and draft.get(Vanished, pod) is None:
        detail = (
            f"{VANISHED_MAX} pods have vanished within {VANISHED_MS // 1000} s, the most that are remembered"
        )
        raise Denied("too_many_vanished", detail)
    return draft.put(Vanished(pod))


def lapse(draft: Draft, senses: Senses, now_ms: int) -> None:
    """Forget those that were said long ago."""
    for one in list(draft.all(Vanished)):
        if senses.noticed_for_ms((Vanished.KIND, one.pod, one.version), now_ms) > VANISHED_MS:
            draft.drop(Vanished, one.pod)

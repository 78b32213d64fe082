"""Who was heard, when, and who else can know of it.

Every replica of meta hears a part of all brokers and clients, and tells the others in bulletins. A bulletin says how
long before it somebody was heard, so no two clocks are compared: what another replica heard looks a little younger
here than it is, never older. Who looks dead has been silent for at least so long.

Three times matter of each peer:

- *heard*: when it was heard last, by any replica.
- *settled*: the latest time at which it was heard that every replica which may decide knows, too. A promise "nobody
  takes your place for so long" counts from there (``lease_left``), for a replica that breaks it must have known of it.
  Who reads a bulletin later than another takes what it tells for younger, by as much as it was later, which is
  ``VIEW_MS_MAX`` at most: so what another replica heard settles as if it were that much older than it looks.
- *listening since*: a replica that was started, stood still, or did not hear the others declares nobody dead before it
  has listened for long enough.

A replica may decide and promise only while its view is fresh: it has read the board within ``VIEW_MS_MAX``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

VIEW_MS_MAX = 1_000
"""A view of the board that is older decides nothing."""
WINDOW_MS = 3_000
"""A bulletin repeats what was heard within it, so that a reader may miss some bulletins."""
FORGET_MS = 600_000
"""Who was silent for so long is not remembered."""
PENDING_MAX = 16

assert WINDOW_MS >= 2 * VIEW_MS_MAX

Beat = TypeVar("Beat")


@dataclass(slots=True)
class Heard(Generic[Beat]):
    """One life of one peer. ``pending`` has times at which it was heard, each with the time since when all know."""

    beat: Beat
    at_ms: int
    first_ms: int
    here: bool
    left: bool = False
    settled_ms: int | None = None
    pending: deque[tuple[int, int]] = field(
        default_factory=lambda: deque[tuple[int, int]](maxlen=PENDING_MAX)
    )
    told: dict[str, int] = field(default_factory=dict[str, int])
    """By replica, when it heard the peer last by its own clock: the same beat is learned once, when it looks oldest."""


class Liveness(Generic[Beat]):
    """Peers of one sort, by a key that has their life in it."""

    def __init__(self, now_ms: int, *, alone: bool, returning: bool = False) -> None:
        """``returning``: who left may come back by the same key."""
        self.listening_since_ms = now_ms
        self._alone = alone
        self._returning = returning
        self._heard: dict[str, Heard[Beat]] = {}

    # -- hearing ----------------------------------------------------------------------------------------------

    def hear(self, key: str, beat: Beat, now_ms: int) -> None:
        """A peer spoke to this replica."""
        known = self._heard.get(key)
        if known is not None and known.left and self._returning:
            self._heard[key] = Heard(beat, now_ms, now_ms, here=True, told=known.told)
            return
        heard = self._note(key, beat, now_ms, now_ms)
        if heard is not None:
            heard.here = True

    def leave(self, key: str, beat: Beat, now_ms: int) -> None:
        """A peer said goodbye: it does nothing any more, and no promise to it holds."""
        known = self._heard.get(key)
        told = known.told if known is not None else dict[str, int]()
        self._heard[key] = Heard(beat, now_ms, now_ms, here=True, left=True, told=told)

    def restart_listening(self, now_ms: int) -> None:
        """Nothing was heard for a while, and it is not the peers' fault."""
        self.listening_since_ms = now_ms

    def forget(self, now_ms: int) -> None:
        """Let go of who was silent for long."""
        for key in [key for key, heard in self._heard.items() if now_ms - heard.at_ms > FORGET_MS]:
            del self._heard[key]

    def _note(self, key: str, beat: Beat, at_ms: int, now_ms: int) -> Heard[Beat] | None:
        heard = self._heard.get(key)
        if heard is None:
            heard = self._heard[key] = Heard(beat, at_ms, now_ms, here=False)
            return heard
        if heard.left or at_ms < heard.at_ms:
            return None
        heard.beat, heard.at_ms = beat, at_ms
        return heard

    # -- telling the other replicas ---------------------------------------------------------------------------

    def news(self, now_ms: int) -> Iterator[tuple[str, Beat, int, bool]]:
        """For a bulletin: key, beat, when it was heard, whether it left; of those who spoke to this replica of late."""
        for key, heard in self._heard.items():
            if heard.here and now_ms - heard.at_ms <= WINDOW_MS:
                yield key, heard.beat, heard.at_ms, heard.left

    def published(self, made_ms: int, now_ms: int) -> None:
        """The bulletin of ``made_ms`` is on the board since ``now_ms`` at the latest."""
        for heard in self._heard.values():
            if heard.here and made_ms - WINDOW_MS <= heard.at_ms <= made_ms:
                self._settle_later(heard, now_ms)

    def knows(self, key: str, replica: str, told_ms: int) -> bool:
        """Whether that replica has told of this beat before, as it does in each bulletin for a while."""
        known = self._heard.get(key)
        return known is not None and known.told.get(replica, told_ms - 1) >= told_ms

    def learn(
        self,
        news: tuple[str, Beat, int, bool],
        replica: str,
        made_ms: int,
        now_ms: int,
        *,
        settles: bool = True,
    ) -> None:
        """One of the ``news`` in a bulletin that another replica made at ``made_ms`` of its clock. ``settles``: this
        one had read the board within ``VIEW_MS_MAX`` before.
        """
        key, beat, told_ms, left = news
        known = self._heard.get(key)
        at_ms = now_ms - (made_ms - told_ms)
        told = known.told if known is not None else dict[str, int]()
        if self.knows(key, replica, told_ms):
            return
        told[replica] = told_ms
        if left:
            if known is None or not (self._returning and known.at_ms > at_ms):
                self._heard[key] = Heard(beat, at_ms, now_ms, here=False, left=True, told=told)
            return
        if known is not None and known.left and self._returning and at_ms > known.at_ms:
            del self._heard[key]
        heard = self._note(key, beat, at_ms, now_ms)
        if heard is not None:
            heard.here, heard.told = False, told
            if settles:
                self._settle_later(heard, now_ms)

    def _settle_later(self, heard: Heard[Beat], known_ms: int) -> None:
        """What another replica heard may look older to the one that will take its place, by ``VIEW_MS_MAX``."""
        at_ms = heard.at_ms if heard.here else heard.at_ms - VIEW_MS_MAX
        if not heard.pending or heard.pending[-1][0] != at_ms:
            heard.pending.append((at_ms, known_ms + VIEW_MS_MAX))

    # -- asking -----------------------------------------------------------------------------------------------

    def beat(self, key: str) -> Beat | None:
        """What it said last; ``None`` when it was not heard, or left."""
        heard = self._heard.get(key)
        return heard.beat if heard is not None and not heard.left else None

    def here(self, within_ms: int, now_ms: int) -> Iterator[Beat]:
        """What those said last who are not gone."""
        all_are = now_ms - self.listening_since_ms <= within_ms
        for heard in self._heard.values():
            if not heard.left and (all_are or now_ms - heard.at_ms <= within_ms):
                yield heard.beat

    def peers(self) -> Iterator[str]:
        """All that are remembered."""
        return iter(list(self._heard))

    def heard_ms(self, key: str) -> int | None:
        heard = self._heard.get(key)
        return heard.at_ms if heard is not None and not heard.left else None

    def known_for_ms(self, key: str, now_ms: int) -> int:
        """How long ago it was heard for the first time, here."""
        heard = self._heard.get(key)
        return now_ms - heard.first_ms if heard is not None else 0

    def heard_since(self, key: str, other: str) -> bool:
        """Whether it was heard after another was heard for the first time, here, or said goodbye; so it was when
        nothing is known of the other. What another replica heard may be older than it looks here.
        """
        heard, since = self._heard.get(key), self._heard.get(other)
        if heard is None:
            return False
        at_ms = heard.at_ms if heard.here else heard.at_ms - VIEW_MS_MAX
        return since is None or at_ms > since.first_ms

    def is_known(self, key: str) -> bool:
        """Whether anything was heard of it."""
        return key in self._heard

    def left_for_ms(self, key: str, now_ms: int) -> int | None:
        """How long ago it said goodbye, as far as is known here; ``None`` when it did not."""
        heard = self._heard.get(key)
        return now_ms - heard.first_ms if heard is not None and heard.left else None

    def present(self, key: str, within_ms: int, now_ms: int) -> bool:
        """Whether it was heard of late. Stricter than "not dead"."""
        heard = self._heard.get(key)
        return heard is not None and not heard.left and now_ms - heard.at_ms <= within_ms

    def gone(self, key: str, within_ms: int, now_ms: int) -> bool:
        """Whether it was surely silent for so long, or said goodbye."""
        heard = self._heard.get(key)
        if heard is not None and heard.left:
            return True
        if now_ms - self.listening_since_ms <= within_ms:
            return False
        return heard is None or now_ms - heard.at_ms > within_ms

    def lease_left(self, key: str, lease_ms: int, now_ms: int) -> int:
        """How much of a promise of ``lease_ms`` is left that counts from the last settled beat."""
        heard = self._heard.get(key)
        if heard is None or heard.left:
            return 0
        if self._alone:
            return max(0, heard.at_ms + lease_ms - now_ms)
        while heard.pending and heard.pending[0][1] <= now_ms:
            at_ms, _ = heard.pending.popleft()
            heard.settled_ms = at_ms if heard.settled_ms is None else max(heard.settled_ms, at_ms)
        return 0 if heard.settled_ms is None else max(0, heard.settled_ms + lease_ms - now_ms)

"""The database of meta in a world: a node that several replicas share, and what each of them knows it by.

It keeps what PostgreSQL keeps for ``doors/store.py``. What is committed survives the power; the board is not logged, so
a store that was killed has none. One turn at a time: who has it is told what it has not seen, and the others wait;
who says nothing for ``TURN_S`` loses it, and what it would write is refused. A commit may be done and its answer
lost. A slow disk makes all of it slow.

It may *go back* (``Storehouse.go_back``): what was committed within the last seconds is not there any more, as when a
standby that lacks it takes over, or a copy is put back. Then there is no board, and no turn under way.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from sim.calls import NEVER, Calls
from sim.world import Env
from tidemill_meta.storing import (
    STEP,
    Anew,
    Board,
    Bulletin,
    Changes,
    Decide,
    Entry,
    Gaps,
    StoreAway,
    is_lost,
)

STORE = "store"
PORT = 5432
TURN_S = 2.0
PATIENCE_S = 5.0
"""As ``TURN_MS_MAX`` and ``TIMEOUT_SECONDS`` of the real store say."""
OPERATION_S = (0.0005, 0.003)

Witness: TypeAlias = Callable[[Sequence[Entry], float], None]
"""Sees each commit, at the moment at which it is done."""
_Done: TypeAlias = tuple[float, tuple[int, Gaps, int], Mapping[tuple[str, str], tuple[int, Entry] | None]]
"""Of a commit: when it was done, what revisions there were before, and what it wrote over."""
Posted: TypeAlias = Callable[[Bulletin, float, float], None]
"""Sees each bulletin, with the moments at which it was made, and put up."""


class Storehouse:
    """What is stored, for as long as the world stands; ``serve`` is one life of the node."""

    def __init__(
        self, calls: Callable[[], Calls], witness: Witness, posted: Posted, lost_answers: float
    ) -> None:
        self.revision = self.began = 0
        self.gaps: Gaps = ()
        self.entries: dict[tuple[str, str], tuple[int, Entry]] = {}
        self.witness = witness
        self.posted = posted
        self.lost_answers = lost_answers
        self._calls = calls
        self._undo: list[_Done] = []
        self._running: Running | None = None

    async def serve(self, env: Env) -> None:
        """The node."""
        self._running = Running(self, env)
        self._calls().listen(PORT, self._running.answer)
        await env.loop.create_future()

    def go_back(self, since_s: float) -> dict[tuple[str, str], Entry | None]:
        """What was committed since then is lost; how what it wrote is now."""
        lost: dict[tuple[str, str], Entry | None] = {}
        while self._undo and self._undo[-1][0] >= since_s:
            _, (self.revision, self.gaps, self.began), former = self._undo.pop()
            for place, row in former.items():
                lost[place] = row[1] if row is not None else None
                if row is None:
                    del self.entries[place]
                else:
                    self.entries[place] = row
        if self._running is not None:
            self._running.begin_anew()
        return lost

    def changes(self, after: int) -> Changes:
        whole = after < self.began or is_lost(after, self.revision, self.gaps)
        rows = (row for row in self.entries.values() if whole or row[0] > after)
        found = tuple(entry for _, entry in sorted(rows, key=lambda row: row[0]))
        floor = self.began if whole else 0
        return Changes(self.revision, found, whole=whole, floor=floor, gaps=self.gaps, began=self.began)

    def begin_life(self, now_ms: int, rng: random.Random) -> None:
        if self.revision:
            now = max(self.revision + 2 + rng.randrange(STEP), now_ms)
            self.gaps, self.revision = (*self.gaps, (self.revision, now)), now

    def store_anew(self, anew: Anew, now_s: float) -> None:
        assert anew.revision > self.revision
        changed = {(one.kind, one.name): one for one in anew.entries}
        entries = [
            changed.get(place, replace(entry, version=anew.revision))
            for place, (_, entry) in self.entries.items()
        ]
        self.store(entries, now_s, anew.revision)
        self.gaps, self.began = (), anew.revision

    def store(self, entries: Sequence[Entry], now_s: float, revision: int = 0) -> None:
        places = [(one.kind, one.name) for one in entries]
        before = self.revision, self.gaps, self.began
        self._undo.append((now_s, before, {place: self.entries.get(place) for place in places}))
        self.revision = revision or self.revision + 1
        for entry in entries:
            former = self.entries.get((entry.kind, entry.name))
            assert entry.version > (former[1].version if former is not None else 0), entry
            body = json.loads(json.dumps(entry.body))
            kept = Entry(entry.kind, entry.name, entry.version, body)
            self.entries[entry.kind, entry.name] = self.revision, kept
        self.witness(entries, now_s)


class Running:
    """One life: whose turn it is, and the board."""

    def __init__(self, house: Storehouse, env: Env) -> None:
        self._house = house
        self._env = env
        self._board: dict[str, Bulletin] = {}
        self._turn = 0
        """Of whom has it; 0: nobody."""
        self._turns = 0
        self._noted = False
        """Its life has a revision of its own."""
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()

    async def answer(self, question: Any) -> Any:
        """One statement, or one end of a transaction."""
        low, high = OPERATION_S
        await asyncio.sleep(self._env.rng.uniform(low, high) * self._env.disk.disk.slowness)
        match question:
            case ("changes", after):
                return self._house.changes(after)
            case ("exchange", mine, made_s):
                self._board[mine.replica] = mine
                self._house.posted(mine, made_s, self._env.loop.now)
                return self._house.revision, tuple(self._board.values())
            case ("begin", after, until_s):
                return await self._begin(after, until_s)
            case ("write", turn, entries):
                return self._write(turn, entries)
            case _:
                raise AssertionError(question)

    async def _begin(self, after: int, until_s: float) -> Any:
        while self._turn:
            mine = self._env.loop.create_future()
            self._waiting.append((until_s, mine))
            await mine
        if self._env.loop.now >= until_s:  # who asked has gone
            self._next()
            return NEVER
        self._turns += 1
        self._turn = self._turns
        self._env.loop.call_later(TURN_S, self._end, self._turn)
        changes = self._house.changes(after)
        if not self._noted:
            self._noted = True
            self._house.begin_life(self._env.clock.now_ms(), self._env.rng)
        return self._turn, replace(changes, revision=self._house.revision, gaps=self._house.gaps)

    def _write(self, turn: int, decided: Sequence[Entry] | Anew) -> Any:
        if turn != self._turn:
            return None
        if isinstance(decided, Anew):
            self._house.store_anew(decided, self._env.loop.now)
        elif decided:
            self._house.store(decided, self._env.loop.now)
        self._end(turn)
        lost = not self._env.quiet.is_set() and self._env.rng.random() < self._house.lost_answers
        return NEVER if lost else replace(self._house.changes(self._house.revision), entries=())

    def begin_anew(self) -> None:
        """Another server takes over: it has no board, and no turn."""
        self._board.clear()
        self._noted = False
        self._turns += 1
        self._end(self._turn)

    def _end(self, turn: int) -> None:
        if turn == self._turn:
            self._turn = 0
            self._next()

    def _next(self) -> None:
        if self._waiting:
            self._waiting.popleft()[1].set_result(None)


class SimStore:
    """A replica's way to the store."""

    alone = False

    def __init__(self, calls: Calls, env: Env) -> None:
        self._calls = calls
        self._env = env

    async def open(self) -> None:
        await self._ask("changes", 1 << 62)

    async def close(self) -> None:
        return

    async def changes(self, after: int) -> Changes:
        changes: Changes = await self._ask("changes", after)
        return changes

    async def commit(self, after: int, decide: Decide) -> Changes:
        until_s = self._env.loop.now + PATIENCE_S
        turn, changes = await self._ask("begin", after, until_s)
        decided = decide(changes)
        stored: Changes | None = await self._ask("write", turn, decided)
        if stored is None:
            raise StoreAway("the turn was over")
        if isinstance(decided, Anew):
            return Changes(0, ())
        return replace(stored, entries=tuple(decided))

    async def exchange(self, mine: Bulletin) -> Board:
        revision, bulletins = await self._ask("exchange", mine, self._env.loop.now)
        return Board(revision, bulletins)

    async def forget(self, until: int, silent: Mapping[str, int]) -> int:
        """No world stands for as long as what is forgotten is kept."""
        raise AssertionError((until, silent))

    async def _ask(self, *question: Any) -> Any:
        try:
            return await self._calls.ask(STORE, PORT, question, PATIENCE_S)
        except OSError as error:
            raise StoreAway(str(error) or type(error).__name__) from error

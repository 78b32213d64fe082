"""A replica at work: it reads the store, decides in turn what is asked, writes it as a whole, and tells who watches.

Three tasks run. *The pulse*, four times a second: exchange bulletins with the other replicas, read what they stored,
judge who is dead. *The clerk*: waits for this replica's turn at the store, takes all decisions that are asked for by
then, makes them one after the other on a draft, and commits it. So a hundred brokers that register at once are one
transaction. *The broom*, once a minute: lets go of what nobody needs any more (``forgetting.py``).

A store that has gone back is found out by whoever knows more: this replica, when it reads, or a broker. The next turn
begins anew then (``anew.py``), before anything else is decided. Until then this replica counts as one that has not
exchanged: it promises nothing.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tidemill_host.clock import Clock
from tidemill_meta.anew import begun_anew
from tidemill_meta.errors import Denied
from tidemill_meta.forgetting import SWEEP_MS, Forgetting, forget_removals, old_removals
from tidemill_meta.machine import Meta
from tidemill_meta.registry import Draft, Registry
from tidemill_meta.settings import MetaSettings
from tidemill_meta.storing import Anew, Bulletin, Changes, Entry, Store, StoreAway, is_lost
from tidemill_wire.errors import TidemillError

Answer = TypeVar("Answer")
DECISIONS_MAX = 100
"""In one commit; what is more waits for the next, and lets the other replicas have their turn."""
WAITING_MAX = 10_000
"""Decisions that wait; more are refused, and may be tried again."""
CATCH_UP_SECONDS = 0.5
"""So long a heartbeat waits for this replica to know again what the others do. Who sent it has less patience than a
second, and another replica to ask.
"""


@dataclass(slots=True)
class _Wish(Generic[Answer]):
    """A decision that somebody waits for."""

    decide: Callable[[Draft, int], Answer]
    answered: asyncio.Future[Answer]


class Replica:
    """Meta with a store, on the loop. ``changed`` is called at each pulse, and with kinds and keys of what changed."""

    def __init__(self, settings: MetaSettings, store: Store, clock: Clock) -> None:
        self.meta = Meta(settings, clock.now_ms(), alone=store.alone)
        self.clock = clock
        self.commits = self.failures = 0
        self._store = store
        self.changed: Callable[[list[tuple[str, str]]], None] = _nobody
        self._number = 0
        self._said = 0
        """The latest revision that is lost as far as this replica knows, by a broker or what it knew itself."""
        self._wishes: list[_Wish[Any]] = []
        self._wished = asyncio.Event()
        self._judging: asyncio.Future[None] | None = None
        self._forgetting = Forgetting()
        self._away = False
        self._tried = asyncio.Event()
        """Since somebody began to wait an exchange has ended, however it went."""

    async def open(self) -> None:
        """Read what is stored; then ``run``."""
        await self._store.open()
        await self._read()
        if not self.meta.senses.alone:
            await self._exchange()

    async def run(self) -> None:
        """Work until it is cancelled. What else ends it is a defect, and ends the process."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pulse(), name="pulse")
                tasks.create_task(self._clerk(), name="clerk")
                tasks.create_task(self._broom(), name="broom")
        finally:
            _refuse(self._wishes, Denied("behind", "this replica of meta stops"))

    async def close(self) -> None:
        await self._store.close()

    async def change(self, decide: Callable[[Draft, int], Answer]) -> Answer:
        """Make a decision, store it, and return its answer; or raise what it raised."""
        if len(self._wishes) >= WAITING_MAX:
            raise Denied("behind", f"{WAITING_MAX} changes wait already")
        return await self._wish(decide)

    async def learned(self, known: int) -> None:
        """A broker knows that revision. When it is none of this replica's, wait for a turn: then it is, or what is
        stored begins anew.
        """
        if self.meta.registry.knows_lost(known):
            self._said = max(self._said, known)
            with suppress(TimeoutError):
                async with asyncio.timeout(CATCH_UP_SECONDS):
                    await self._wish(_nothing)

    async def caught_up(self) -> None:
        """Wait for the exchange that is late, as when the machine was busy; not for a database that is away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while not (self._away or self.meta.senses.fresh(self.clock.now_ms())):
                    self._tried.clear()
                    await self._tried.wait()

    def _wish(self, decide: Callable[[Draft, int], Answer]) -> asyncio.Future[Answer]:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._wishes.append(_Wish(decide, answered))
        self._wished.set()
        return answered

    # -- the clerk --------------------------------------------------------------------------------------------

    async def _clerk(self) -> None:
        while True:
            await self._wished.wait()
            made: list[tuple[_Wish[Any], Any]] = []
            try:
                await self._carry_out(made)
            except StoreAway as error:
                self.failures += 1
                wishes = [wish for wish, _ in made] or self._next_wishes()
                _refuse(wishes, Denied("behind", f"the database is away ({error})"))

    def _next_wishes(self) -> list[_Wish[Any]]:
        wishes, self._wishes = self._wishes[:DECISIONS_MAX], self._wishes[DECISIONS_MAX:]
        if not self._wishes:
            self._wished.clear()
        return [wish for wish in wishes if not wish.answered.done()]

    async def _carry_out(self, made: list[tuple[_Wish[Any], Any]]) -> None:
        def decide(changes: Changes) -> tuple[Entry, ...] | Anew:
            """In this replica's turn, on all that is stored; also what was asked while it waited for the turn."""
            self._take_over(changes)
            if self.meta.registry.knows_lost(self._said):
                return begun_anew(self.meta.registry, self._said, self.clock.now_ms())
            draft = Draft(self.meta.registry)
            made.extend((wish, _decided(wish, draft, self.clock.now_ms())) for wish in self._next_wishes())
            return draft.entries()

        written = await self._store.commit(self.meta.registry.revision, decide)
        self.commits += bool(written.entries)
        self._take(written)
        if self.meta.registry.knows_lost(self._said):  # it began anew in this turn
            await self._read()
        for wish, answer in made:
            if not wish.answered.done():
                _answer(wish, answer)

    def _take_over(self, changes: Changes) -> None:
        """In a turn: know what is stored, and nothing else."""
        registry = self.meta.registry
        if not is_lost(registry.revision, changes.revision, changes.gaps):
            self._take(changes)
            return
        self._said = max(self._said, registry.revision)
        former = [place for place, value in registry.places() if value is not None]
        self.meta.registry = Registry()
        self.changed([*former, *self.meta.registry.apply(changes)])

    async def _read(self) -> bool:
        """Whether what this replica knows is stored. Else the next turn begins anew."""
        after = self.meta.registry.revision
        changes = await self._store.changes(after)
        if is_lost(after, changes.revision, changes.gaps):
            self._wished.set()
            return False
        self._take(changes)
        return True

    def _take(self, changes: Changes) -> None:
        """Take over what is stored, whoever stored it."""
        began = self.meta.registry.began
        keys = self.meta.registry.apply(changes)
        if self.meta.registry.began != began:
            self.meta.senses.begin_anew(self.clock.now_ms())
        if keys:
            self.changed(keys)

    # -- the pulse --------------------------------------------------------------------------------------------

    async def _pulse(self) -> None:
        loop = asyncio.get_running_loop()
        interval = self.meta.settings.exchange_ms / 1000
        due = loop.time()
        while True:
            due = max(due + interval, loop.time())
            await asyncio.sleep(due - loop.time())
            try:
                await self._pulse_once()
            except StoreAway:
                self.failures += 1
                self._away = True
                self._tried.set()

    async def _pulse_once(self) -> None:
        meta = self.meta
        if not meta.senses.alone:
            await self._exchange()
        meta.ticked(self.clock.now_ms())
        draft = Draft(meta.registry)
        meta.judge(draft, self.clock.now_ms())
        found = draft.changed
        if found and (self._judging is None or self._judging.done()):
            # By the clerk, like everything else. Not waited for: the others want to hear of this replica meanwhile.
            self._judging = self._wish(partial(meta.judge, only=found))
            self._judging.add_done_callback(_forgotten)
        self.changed([])

    # -- the broom --------------------------------------------------------------------------------------------

    async def _broom(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_MS / 1000)
            try:
                await self._sweep()
            except (StoreAway, Denied):
                self.failures += 1

    async def _sweep(self) -> None:
        meta, now_ms = self.meta, self.clock.now_ms()
        if next(old_removals(meta.registry, meta.senses, now_ms), None) is not None:
            await self.change(lambda draft, at_ms: forget_removals(draft, meta.senses, at_ms))
        sweep = self._forgetting.sweep(meta.registry, meta.senses.numbers, now_ms)
        if sweep is None:
            return
        floor = await self._store.forget(sweep.until, sweep.silent)
        meta.registry.forget(sweep.until, floor)
        for replica in sweep.silent:
            meta.senses.forget_replica(replica)

    async def _exchange(self) -> None:
        meta = self.meta
        asked_ms = self.clock.now_ms()
        self._number += 1
        told = zlib.compress(json.dumps(meta.senses.bulletin(asked_ms), separators=(",", ":")).encode(), 1)
        board = await self._store.exchange(Bulletin(meta.settings.name, self._number, told))
        now_ms = self.clock.now_ms()
        for bulletin in board.bulletins:
            if bulletin.replica != meta.settings.name and meta.senses.is_new(
                bulletin.replica, bulletin.number
            ):
                meta.senses.learn(bulletin.replica, json.loads(zlib.decompress(bulletin.body)), now_ms)
        if board.revision != meta.registry.revision and not await self._read():
            return
        if meta.registry.knows_lost(self._said):  # a beginning anew was not stored
            self._wished.set()
            return
        meta.senses.exchanged(asked_ms, asked_ms, self.clock.now_ms())
        self._away = False
        self._tried.set()


def _forgotten(judging: asyncio.Future[None]) -> None:
    """The next pulse finds again what could not be stored now."""
    if not judging.cancelled():
        judging.exception()


def _nothing(_draft: Draft, _now_ms: int) -> None:
    """A turn is all that is wanted."""


def _nobody(_: list[tuple[str, str]]) -> None:
    """Nobody watches yet."""


def _decided(wish: _Wish[Any], draft: Draft, now_ms: int) -> Any:
    """The answer of a decision, or the error with which it ended; then it leaves nothing on the draft."""
    inner = Draft(draft)
    try:
        answer = wish.decide(inner, now_ms)
    except TidemillError as error:
        return error
    draft.merge(inner)
    return answer


def _answer(wish: _Wish[Any], answer: Any) -> None:
    if isinstance(answer, TidemillError):
        wish.answered.set_exception(answer)
    else:
        wish.answered.set_result(answer)


def _refuse(wishes: list[_Wish[Any]], error: Denied) -> None:
    for wish in wishes:
        if not wish.answered.done():
            wish.answered.set_exception(error)

"""A replica at work: it reads the store, decides in turn what is asked, writes it as a whole, and tells who watches.

Two tasks run. *The pulse*, four times a second: exchange bulletins with the other replicas, read what they stored,
judge who is dead. *The clerk*: takes all decisions that are asked for, tries them one after the other on a draft,
commits the draft, and does it again from the start when another replica was first. So a hundred brokers that register
at once are one transaction.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidemill_host.clock import Clock
from tidemill_meta.errors import Denied
from tidemill_meta.machine import Meta
from tidemill_meta.registry import Draft
from tidemill_meta.settings import MetaSettings
from tidemill_meta.storing import Bulletin, Changes, Store, StoreAway
from tidemill_wire.errors import TidemillError

Answer = TypeVar("Answer")
DECISIONS_MAX = 1_000
"""In one commit; what is more waits for the next."""
WAITING_MAX = 10_000
"""Decisions that wait; more are refused, and may be tried again."""
ATTEMPTS_MAX = 50


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
        self.commits = self.conflicts = self.failures = 0
        self._store = store
        self.changed: Callable[[list[tuple[str, str]]], None] = _nobody
        self._number = 0
        self._wishes: list[_Wish[Any]] = []
        self._wished = asyncio.Event()
        self._reading = asyncio.Lock()

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
        finally:
            _refuse(self._wishes, Denied("behind", "this replica of meta stops"))

    async def close(self) -> None:
        await self._store.close()

    async def change(self, decide: Callable[[Draft, int], Answer]) -> Answer:
        """Make a decision, store it, and return its answer; or raise what it raised."""
        if len(self._wishes) >= WAITING_MAX:
            raise Denied("behind", f"{WAITING_MAX} changes wait already")
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        wish = _Wish(decide, answered)
        self._wishes.append(wish)
        self._wished.set()
        return await answered

    # -- the clerk --------------------------------------------------------------------------------------------

    async def _clerk(self) -> None:
        while True:
            await self._wished.wait()
            wishes, self._wishes = self._wishes[:DECISIONS_MAX], self._wishes[DECISIONS_MAX:]
            if not self._wishes:
                self._wished.clear()
            try:
                await self._carry_out([wish for wish in wishes if not wish.answered.done()])
            except StoreAway as error:
                self.failures += 1
                denied = Denied("behind", f"the database is away ({error})")
                _refuse(wishes, denied)

    async def _carry_out(self, wishes: list[_Wish[Any]]) -> None:
        for _ in range(ATTEMPTS_MAX):
            draft = Draft(self.meta.registry)
            made = [(wish, _decided(wish, draft, self.clock.now_ms())) for wish in wishes]
            entries = draft.entries()
            if not entries:
                break
            seen = self.meta.registry.revision
            if await self._store.commit(seen, entries):
                self.commits += 1
                await self._take(Changes(seen + 1, entries))
                break
            self.conflicts += 1
            await self._read()
        else:
            _refuse(wishes, Denied("behind", f"other replicas were first {ATTEMPTS_MAX} times"))
            return
        for wish, answer in made:
            if not wish.answered.done():
                _answer(wish, answer)

    async def _read(self) -> None:
        """Take over what is stored. One at a time, so that nothing is taken over twice."""
        async with self._reading:
            changes = await self._store.changes(self.meta.registry.revision)
            keys = self.meta.registry.apply(changes)
        if keys:
            self.changed(keys)

    async def _take(self, changes: Changes) -> None:
        """Take over what this replica stored itself, if the pulse has not read it meanwhile."""
        async with self._reading:
            if self.meta.registry.revision >= changes.revision:
                return
            keys = self.meta.registry.apply(changes)
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

    async def _pulse_once(self) -> None:
        meta = self.meta
        if not meta.senses.alone:
            await self._exchange()
        meta.ticked(self.clock.now_ms())
        draft = Draft(meta.registry)
        meta.judge(draft, self.clock.now_ms())
        if draft.entries():
            await self._judge()
        self.changed([])

    async def _judge(self) -> None:
        """Store what was found: by the clerk, like everything else."""
        try:
            await self.change(self.meta.judge)
        except Denied:
            return  # the next pulse finds it again

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
        if board.revision > meta.registry.revision:
            await self._read()
        meta.senses.exchanged(asked_ms, asked_ms, self.clock.now_ms())


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

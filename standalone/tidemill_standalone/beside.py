"""Meta beside a lone broker, in the broker's process and behind its HTTP port.

The broker serves first. Meta's database is opened then, in a thread, for its library takes longer to import than all
of the broker does to start; who asks meta for something meanwhile waits for a moment. When the database cannot be
opened, that is said and tried again, and the broker goes on without; also when it breaks down later.

    broker ready --> opened --> database, what is stored --> registered, declared --> meta answers --> a beat a second

A lone broker has one life for ever: it is registered with boot 1 each time, keeps its epoch 1, and is nobody's
successor. So a queue that was killed and started again is led at once, and not when a lease is over.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tidemill_broker.doors.neighbour import House
from tidemill_broker.doors.service import Service
from tidemill_broker.gate import Told, read_removal
from tidemill_broker.load import Load
from tidemill_broker.settings import BrokerSettings
from tidemill_console.permits import PERMITS as CONSOLE_PERMITS
from tidemill_console.serving import Pages
from tidemill_host.clock import RealClock
from tidemill_host.log import warning
from tidemill_host.permits import Permits
from tidemill_host.process import calm_collector, note
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Answer, Variables
from tidemill_host.routing import Route as Path
from tidemill_meta.archive_values import Archive
from tidemill_meta.beats import BrokerBeat
from tidemill_meta.brokers import Registration
from tidemill_meta.doors.access import AccessDoor
from tidemill_meta.doors.api import Api
from tidemill_meta.doors.metrics import render_metrics
from tidemill_meta.doors.permits import PERMITS
from tidemill_meta.doors.replica import Replica
from tidemill_meta.doors.takeovers import Takeovers
from tidemill_meta.doors.watch import Watch
from tidemill_meta.emptying import note as note_left
from tidemill_meta.emptying import parse_report
from tidemill_meta.errors import Denied
from tidemill_meta.settings import MetaSettings
from tidemill_meta.storing import StoreAway
from tidemill_meta.subjects import declare, takes, vanished_since
from tidemill_meta.values import (
    Broker,
    BrokerGroup,
    ConsumerGroupRecord,
    Removal,
    Route,
    SubjectRecord,
)  # fmt: skip
from tidemill_meta.vanished import Vanished
from tidemill_standalone.adopting import adopt, kept_for_archives, placed_anywhere, register
from tidemill_standalone.late import LateStore
from tidemill_standalone.later import DelayBeside
from tidemill_wire.declarations import Declaration
from tidemill_wire.errors import TidemillError
from tidemill_wire.fields import NAME
from tidemill_wire.routes import State, both
from tidemill_wire.settings import settings_line

if TYPE_CHECKING:
    from tidemill_meta.doors.store import SqlStore

BOOT, EPOCH = 1, 1
AGAIN_SECONDS = 2.0
PATIENCE_SECONDS = 10.0
"""How long a request waits for the database to be opened."""
ROUTES = "/v1/routes"
BROKERS_OWN = {("GET", ROUTES), ("GET", "/v1/subjects"), ("GET", "/v1/groups")}
"""What the broker answers, as it did before meta was there; of meta's routes see ``_routes``."""
MOVES = {"/v1/subjects/{subject}/expand", "/v1/subjects/{subject}/move"}
"""What makes no sense where clients are told no routes."""


class MetaBeside:
    """Answers ``tidemill_broker.doors.neighbour.Neighbour``."""

    def __init__(self, house: House, declarations: Sequence[Declaration], settings: BrokerSettings) -> None:
        self._url = f"sqlite:///{os.path.abspath(house.data)}/meta/meta.db"
        self._folder = f"{house.data}/meta"
        self._declarations = [placed_anywhere(one) for one in declarations]
        self._name = settings.name
        self._group = settings.name.partition("-")[0]
        given = read_meta_settings(settings)
        note(settings_line("meta", given))
        self._store = LateStore(self._complain)
        self._clock = RealClock()
        self._replica = Replica(given, self._store, self._clock)
        self._watch = Watch(self._replica.meta, self._clock)
        self._api = Api(self._replica, self._watch)
        self._grants = house.grants
        self._door = AccessDoor(self._replica, house.locks.access)
        self._takeovers = Takeovers(self._replica.meta)  # a lone broker has none
        self._later = DelayBeside(house, settings.name)
        self._ports = 0, 0
        self._opened, self._ready = asyncio.Event(), asyncio.Event()
        self._service: Service | None = None
        self._hindered = False
        """The database could not be opened."""
        self._load = Load(settings.load_bytes)
        self._adopted = -1
        """How many subjects the broker had when meta was told of them."""
        self._said = ""
        """What was last in the way."""
        self._told = 0
        """The revision up to which the broker did what people said."""

    # -- what the broker asks -------------------------------------------------------------------------------------

    def routes(self, service: Service, brokers: Callable[[], dict[str, Any]]) -> Iterable[Path]:
        self._service = service
        self._later.obey(service.broker)
        mine = [one for one in self._api.routes() if (one.method, one.path) not in BROKERS_OWN]
        mine += self._door.routes()
        asked = next(one.answer for one in self._api.routes() if one.path == ROUTES)
        held = [
            replace(one, answer=_refuse_move if one.path in MOVES else self._held(one.answer)) for one in mine
        ]
        return [*held, Path("GET", ROUTES, self._routes(brokers, asked)), *Pages().routes()]

    def page(self, page: dict[str, Any]) -> dict[str, Any]:
        from tidemill_standalone.pages import merged

        return merged(page, BROKERS_OWN)

    def metrics(self) -> bytes:
        return render_metrics(self._replica, self._watch, self._api, self._takeovers) + self._later.metrics()

    @property
    def permits(self) -> Permits:
        return {**PERMITS, **CONSOLE_PERMITS}

    @property
    def later(self) -> DelayBeside:
        return self._later

    def opened(self, ports: tuple[int, int]) -> None:
        self._ports = ports
        self._opened.set()

    async def keep(self) -> None:
        await self._opened.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._later.keep(self._ports[0]), name="later")
            tasks.create_task(self._keep(), name="meta")

    async def _keep(self) -> None:
        await self._open()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._replica.run(), name="replica")
                await self._begin()
                self._ready.set()
                calm_collector()  # once more: what meta has loaded stays, too
                tasks.create_task(self._beat(), name="beat")
        finally:
            self._ready.clear()
            await self._replica.close()

    # -- meta's life ----------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Until it is open."""
        while True:
            try:
                os.makedirs(self._folder, exist_ok=True)
                self._store.real = await asyncio.to_thread(_open_store, self._url)
                await self._replica.open()
            except (StoreAway, TidemillError, OSError) as error:
                self._complain(error)
                self._hindered = True
                await self._replica.close()
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                self._hindered, self._said = False, ""
                self._replica.changed = self._changed
                return

    def _complain(self, error: Exception) -> None:
        """Say what is in the way, when it is another thing than before."""
        self._say_once(
            f"meta cannot use {self._folder}/meta.db ({error}), the broker serves without: "
            f"mend it, or stop the queue and move that file away"
        )

    def _say_once(self, sentence: str) -> None:
        said = " ".join(sentence.split())
        if said != self._said:
            self._said = said
            warning("meta", said)

    async def _begin(self) -> None:
        """Register the broker, and declare what the manifests declare."""
        data, control = (f":{port}" for port in self._ports)  # no host: the one that a client asks
        asked = Registration(Broker(self._group, self._name, data, control, (), BOOT), 0)
        meta = self._replica.meta
        while True:
            try:
                await self._replica.change(lambda draft, now_ms: register(draft, meta, asked, now_ms))
                meta.registered(asked, self._clock.now_ms())
                self._door.obey()
                self._judge_again()
                self._obey()  # what was said before this start
                self._hear()
                if self._declarations:
                    await self._replica.change(
                        lambda draft, now_ms: declare(draft, meta.senses, self._declarations, now_ms)
                    )
                await self._door.declare(self._grants)
                await self._adopt_all()
            except TidemillError as error:
                if not _is_behind(error):
                    self._say_once(f"meta does not take this broker yet: {error}")
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    async def _adopt_all(self) -> None:
        """What the broker has, meta knows: subjects that came by the gateway, or before meta was there."""
        assert self._service is not None
        count = len(self._service.broker.state.by_name)
        if count != self._adopted:
            await self._adopt(row["name"] for row in self._service.subjects())
            self._adopted = count

    async def _adopt(self, subjects: Iterable[str]) -> None:
        meta = self._replica.meta
        missing = [name for name in subjects if meta.registry.get(Route, name) is None]
        if missing:
            await self._replica.change(lambda draft, now_ms: adopt(draft, meta.senses, missing, now_ms))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._replica.meta.settings.broker_beat_ms / 1000)
            try:
                self._hear()
                await self._adopt_all()
                await self._take_stock()
            except TidemillError as error:
                if _is_behind(error):
                    continue
                # Somebody else has taken its name at this meta.
                self._say_once(f"meta does not know this broker any more: {error}")
                await self._begin()

    async def _take_stock(self) -> None:
        """Say what is left of subjects that are to go when they are empty."""
        subjects = tuple(self._replica.meta.registry.emptying)
        if subjects and self._service is not None:
            rows = self._service.inventory(subjects)["rows"]
            body = {"group": self._group, "epoch": EPOCH, "known": self._told, "rows": rows}
            report = parse_report(body)
            await self._replica.change(lambda draft, _: note_left(draft, report))

    def _hear(self) -> None:
        assert self._service is not None
        logs = self._service.broker.logs
        beat = BrokerBeat(
            self._group, self._name, BOOT, EPOCH, logs.messages.end, logs.actions.end, role="master",
            load=self._load.measured(logs.messages.end, self._clock.now_ms()), state=self._service.state,
            told=self._told,
        )  # fmt: skip
        self._replica.meta.broker_heard(beat, self._clock.now_ms())

    def _changed(self, keys: list[tuple[str, str]]) -> None:
        """What is declared at meta is declared at the broker, whoever did it."""
        self._watch.changed(keys)
        if self._door.changed(keys):
            self._judge_again()
        registry = self._replica.meta.registry
        subjects = [registry.get(SubjectRecord, key) for kind, key in keys if kind == SubjectRecord.KIND]
        groups = [
            registry.get(ConsumerGroupRecord, key) for kind, key in keys if kind == ConsumerGroupRecord.KIND
        ]
        declared = [
            one.declared for one in (*subjects, *groups) if one is not None and one.declared is not None
        ]
        said = {Archive.KIND, BrokerGroup.KIND, Removal.KIND, Vanished.KIND}
        stated = any(kind in said or key in registry.told_at for kind, key in keys)
        if declared or stated:
            self._obey(declared)

    def _judge_again(self) -> None:
        """Who is connected may have lost what they had."""
        if self._service is not None:
            self._service.server.judge_again()
        self._later.judge_again()

    def _obey(self, declared: Sequence[Declaration] = ()) -> None:
        """The broker does what people said, and refuses what they made read-only."""
        registry = self._replica.meta.registry
        group = registry.get(BrokerGroup, self._group)
        known = (registry.get(SubjectRecord, subject) for subject in registry.told_at)
        records = [one for one in known if one is not None]
        shut = frozenset(one.name for one in records if not takes(one))
        if self._service is not None:
            allowed = group.state if group is not None else "RW"
            removed = tuple(read_removal(one.name, one.number) for one in registry.all(Removal))
            gone = tuple(vanished_since(registry, self._told))
            asked = (*registry.emptying,)
            kept = kept_for_archives(registry, self._group, records)
            told = Told(registry.revision, allowed, shut, tuple(declared), removed, (), asked, gone, *kept)
            unmade = self._service.obey(told)
            self._told = registry.revision
            if unmade is not None:  # it is stored at meta, which goes on
                said = f"the broker did not take all that was declared ({unmade.problem}): declare it again when it can"
                warning("declared", said)

    # -- answering ------------------------------------------------------------------------------------------------

    def _held(self, answer: Answer) -> Answer:
        """The same, when meta is there."""

        async def held(request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
            await self._there()
            return await answer(request, variables)

        return held

    async def _there(self) -> None:
        """Until meta is there."""
        if not self._ready.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._ready.wait()
        if not self._ready.is_set():
            detail = "meta has no database yet, or stops"
            raise HttpRefused(503, "behind", detail, "look at what the queue says on standard error")

    def _routes(self, brokers: Callable[[], dict[str, Any]], of_subjects: Answer) -> Answer:
        """The broker, as ever, but for what people gave it to take; who names subjects is answered by meta. Without a
        database for it, all of them lie at this broker, and nobody has to wait to hear that.
        """

        async def answer(request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
            named = request.rel_url.query.getall("subject", [])
            if named and not self._hindered:
                await self._there()
                assert self._service is not None
                known = self._service.broker.state.by_name
                await self._adopt(name for name in named if name.encode() in known and NAME.fullmatch(name))
                return await of_subjects(request, variables)
            found = brokers()
            rows = [{**row, "state": both(row["state"], self._allowed)} for row in found["brokers"]]
            # No `routes`: with them clients would follow meta, where one broker has all of every subject.
            return json_response({**found, "brokers": rows, "delays": self._later.rows()})

        return answer

    @property
    def _allowed(self) -> State:
        """What people let the broker group take."""
        group = self._replica.meta.registry.get(BrokerGroup, self._group)
        if group is None:
            return "RW"
        return both(group.state, "R") if group.draining else group.state


async def _refuse_move(_: web.BaseRequest, variables: Variables) -> web.StreamResponse:
    """Clients of a queue that is alone send all of a subject to its one partition."""
    detail = f"this queue is one broker, and {variables['subject'][:100]} lies on it as a whole"
    raise HttpRefused(409, "conflict", detail, "run several brokers, as `tidemill up --brokers 2` does")


def read_meta_settings(settings: BrokerSettings) -> MetaSettings:
    """Meta's own, and what the broker's say of subjects."""
    from tidemill_meta.settings import read_settings

    given = read_settings(os.environ)
    return replace(
        given,
        name=given.name or "standalone",
        create_subjects=given.create_subjects and settings.create_subjects,
    )


def _is_behind(error: TidemillError) -> bool:
    """The store is in the way, which it has said itself."""
    return isinstance(error, Denied) and error.kind.code == "behind"


def _open_store(url: str) -> SqlStore:
    from tidemill_meta.doors.store import SqlStore

    return SqlStore(url)

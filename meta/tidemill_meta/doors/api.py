"""The HTTP paths of meta. Each answers from memory, or has a decision made and stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from aiohttp import web

from tidemill_host.bodies import Bodies
from tidemill_host.refusals import HttpRefused, json_response
from tidemill_host.routing import Route as Path
from tidemill_host.routing import Variables
from tidemill_meta import emptying
from tidemill_meta.asked import Asked, wrong
from tidemill_meta.beats import BrokerBeat, parse_broker_beat, parse_client_beat
from tidemill_meta.brokers import (
    HANDOVER_FIELDS,
    IN_SYNC_FIELDS,
    appointment_map,
    change_in_sync,
    elect,
    hand_over,
    parse_registration,
    remove_broker,
    set_group_state,
)
from tidemill_meta.doors.archives import Archives
from tidemill_meta.doors.asking import check_declared, check_own, permitted, seen
from tidemill_meta.doors.canary import Canary
from tidemill_meta.doors.replica import Replica
from tidemill_meta.doors.requests import Query, denials, is_said, parse_body
from tidemill_meta.doors.watch import Watch, parse_interest
from tidemill_meta.errors import Denied
from tidemill_meta.machine import asked_version
from tidemill_meta.passages import closed_to, note, parse_report
from tidemill_meta.picture import (
    allocation_row,
    client_rows,
    consumer_group_rows,
    group_rows,
    group_state_row,
    route_row,
    subject_row,
)
from tidemill_meta.registry import Draft
from tidemill_meta.retiring import drain, parse_nothing, retire
from tidemill_meta.subjects import (
    EXPAND_FIELDS,
    declare,
    expand,
    find_subject,
    give_up_move,
    lacking,
    remove_group,
    remove_subject,
    set_subject_state,
    told_to,
)
from tidemill_meta.values import (
    Allocation,
    BrokerGroup,
    ConsumerGroupRecord,
    Service,
    SubjectRecord,
    consumer_group_key,
)  # fmt: skip
from tidemill_meta.vanishing import vanish
from tidemill_wire import limits
from tidemill_wire.declarations import ManifestError, parse_manifests
from tidemill_wire.pods import parse_pod

BODY_BYTES_MAX = 1 * limits.MIB
HELD_BYTES_MAX = 64 * limits.MIB
LOOKS, LOOK_SECONDS = 24, 0.25
"""How often it is looked whether brokers have said what is left: they speak once a second."""

Answer = TypeVar("Answer")
Handler = Callable[[Any, Variables], Awaitable[object]]
"""Is told what the body says, or what the address asks (``Query``), and the variables of the path."""
Handlers: TypeAlias = Mapping[tuple[str, str], Handler]


class Api:
    """Answers ``routes``. ``asked`` and ``read`` are the same without HTTP: what a simulation calls."""

    def __init__(self, replica: Replica, watch: Watch) -> None:
        self._replica = replica
        self._meta = replica.meta
        self._watch = watch
        self._bodies = Bodies(HELD_BYTES_MAX)
        self._archives = Archives(replica)
        self._canary = Canary(replica.meta.settings.canary)
        self.requests = 0

    def asked(self) -> Handlers:
        """By method and path, who answers what comes with a body."""
        return {
            ("POST", "/v1/brokers"): self._register,
            ("POST", "/v1/brokers/heartbeat"): self._broker_beat,
            ("POST", "/v1/brokers/declared"): self._declared,
            ("POST", "/v1/brokers/fenced"): self._fenced,
            ("POST", "/v1/brokers/emptying"): self._emptying,
            ("POST", "/v1/brokers/leave"): self._broker_leave,
            ("POST", "/v1/groups/{group}/in-sync"): self._in_sync,
            ("POST", "/v1/groups/{group}/handover"): self._hand_over,
            ("POST", "/v1/groups/{group}/elect"): self._elect,
            ("POST", "/v1/groups/{group}/state"): self._group_state,
            ("POST", "/v1/groups/{group}/drain"): self._drain,
            ("POST", "/v1/groups/{group}/retire"): self._retire,
            ("POST", "/v1/clients/heartbeat"): self._client_beat,
            ("POST", "/v1/clients/leave"): self._client_leave,
            ("POST", "/v1/clients/vanished"): self._vanished,
            ("POST", "/v1/declarations"): self._declare,
            ("POST", "/v1/subjects/{subject}/expand"): self._expand,
            ("POST", "/v1/subjects/{subject}/state"): self._subject_state,
            **self._archives.asked(),
        }

    def read(self) -> Handlers:
        """By method and path, who answers what comes without one."""
        return {
            ("GET", "/v1/brokers"): self._brokers,
            ("GET", "/v1/delays"): partial(self._brokers, service="delay"),
            ("DELETE", "/v1/groups/{group}/brokers/{broker}"): self._remove_broker,
            ("GET", "/v1/routes"): self._routes,
            ("GET", "/v1/subjects"): self._subjects,
            ("GET", "/v1/subjects/{subject}"): self._subject,
            ("DELETE", "/v1/subjects/{subject}"): self._remove_subject,
            ("GET", "/v1/subjects/{subject}/route"): self._route,
            ("DELETE", "/v1/subjects/{subject}/move"): self._give_up_move,
            ("GET", "/v1/groups"): self._groups,
            ("DELETE", "/v1/subjects/{subject}/groups/{group}"): self._remove_group,
            ("GET", "/v1/subjects/{subject}/groups/{group}/allocation"): self._allocation,
            ("GET", "/v1/clients"): self._clients,
            ("GET", "/v1/canary"): self._canary.page,
            **self._archives.read(),
        }

    def routes(self) -> list[Path]:
        """Methods, paths, and who answers."""
        return [
            *(
                Path(method, path, self._with_body(handler))
                for (method, path), handler in self.asked().items()
            ),
            *(Path(method, path, self._without(handler)) for (method, path), handler in self.read().items()),
            Path("POST", "/v1/watch", self._watching),
        ]

    # -- brokers ----------------------------------------------------------------------------------------------

    async def _register(self, body: object, _: Variables) -> object:
        asked = parse_registration(body)
        await self._replica.learned(asked.known)
        answer = await self._replica.change(lambda draft, now_ms: self._meta.register(draft, asked, now_ms))
        self._meta.registered(asked, self._now_ms())
        return answer

    async def _broker_beat(self, body: object, _: Variables) -> object:
        beat = parse_broker_beat(body)
        await self._replica.learned(beat.known)
        if not self._meta.spoke(beat, self._now_ms()):
            await self._replica.caught_up()
        return self._meta.broker_heard(beat, self._now_ms())

    async def _declared(self, body: object, _: Variables) -> object:
        asked = Asked(body, frozenset({"group", "known"}))
        return told_to(self._meta.registry, asked.name("group"), asked.whole("known", 0))

    async def _fenced(self, body: object, _: Variables) -> object:
        report = parse_report(body)
        await self._replica.change(lambda draft, _: note(draft, report))
        return {"noted": report.group}

    async def _emptying(self, body: object, _: Variables) -> object:
        report = emptying.parse_report(body)
        await self._replica.change(lambda draft, _: emptying.note(draft, report))
        return {"noted": report.group}

    async def _broker_leave(self, body: object, _: Variables) -> object:
        asked = Asked(body, frozenset({"group", "name", "boot"}))
        beat = BrokerBeat(asked.name("group"), asked.name("name"), asked.whole("boot"))
        self._meta.broker_left(beat, self._now_ms())
        return {"left": beat.name}

    async def _in_sync(self, body: object, variables: Variables) -> object:
        asked = Asked(body, IN_SYNC_FIELDS)
        return await self._of_group(
            lambda draft, now_ms: change_in_sync(draft, self._meta.senses, variables["group"], asked, now_ms)
        )

    async def _hand_over(self, body: object, variables: Variables) -> object:
        asked = Asked(body, HANDOVER_FIELDS)
        return await self._of_group(
            lambda draft, now_ms: hand_over(draft, self._meta.senses, variables["group"], asked, now_ms)
        )

    async def _elect(self, body: object, variables: Variables) -> object:
        asked = Asked(body, frozenset({"to"}))
        return await self._of_group(
            lambda draft, now_ms: elect(draft, self._meta.senses, variables["group"], asked, now_ms)
        )

    async def _group_state(self, body: object, variables: Variables) -> object:
        asked = Asked(body, frozenset({"state", "draining"}))
        group = await self._replica.change(lambda draft, _: set_group_state(draft, variables["group"], asked))
        return group_state_row(group)

    async def _drain(self, body: object, variables: Variables) -> object:
        parse_nothing(body)
        name, senses = variables["group"], self._meta.senses
        group, moved = await self._replica.change(lambda draft, now: drain(draft, senses, name, now))
        return {**group_state_row(group), "moved": moved}

    async def _retire(self, body: object, variables: Variables) -> object:
        parse_nothing(body)
        name, senses = variables["group"], self._meta.senses
        group, moved = await self._replica.change(lambda draft, now: retire(draft, senses, name, now))
        return {**group_state_row(group), "moved": moved}

    async def _of_group(self, decide: Callable[[Draft, int], BrokerGroup]) -> object:
        return appointment_map(await self._replica.change(decide), 0)

    async def _brokers(self, _: Query, __: Variables, service: Service = "broker") -> object:
        return list(group_rows(self._meta.registry, self._meta.senses, self._now_ms(), service))

    async def _remove_broker(self, query: Query, variables: Variables) -> object:
        names, senses = (variables["group"], variables["broker"]), self._meta.senses
        force = is_said(query, "force")
        await self._replica.change(lambda draft, now: remove_broker(draft, senses, *names, now, force=force))
        return {"removed": "/".join(names)}

    # -- clients ----------------------------------------------------------------------------------------------

    async def _client_beat(self, body: object, _: Variables) -> object:
        beat, denied = permitted(parse_client_beat(body))
        check_own(self._meta, beat.client, self._now_ms())
        if not self._meta.spoke(beat, self._now_ms()):
            await self._replica.caught_up()
        refused: list[dict[str, Any]] = []
        if lacking(self._meta.registry, beat):
            refused = await self._replica.change(lambda draft, now_ms: self._meta.use(draft, beat, now_ms))
        answer = self._meta.client_heard(beat, asked_version(body), self._now_ms())
        return {**answer, "refused": refused + denied}

    async def _client_leave(self, body: object, _: Variables) -> object:
        client = Asked(body, frozenset({"client"})).consumer("client")
        check_own(self._meta, client, self._now_ms())
        self._meta.client_left(client, self._now_ms())
        return {"left": client}

    async def _vanished(self, body: object, _: Variables) -> object:
        pod = parse_pod(Asked(body, frozenset({"pod"})).text("pod"))
        await self._replica.change(lambda draft, _: vanish(draft, pod))
        return {"vanished": pod}

    async def _clients(self, _: Query, __: Variables) -> object:
        return list(client_rows(self._meta.senses, self._now_ms()))

    async def _watching(self, request: web.BaseRequest, _: Variables) -> web.StreamResponse:
        with denials():
            interest, known = parse_interest(await self._json(request))
            interest = seen(interest)
        return await self._watch.serve(request, interest, known)

    # -- subjects and groups ----------------------------------------------------------------------------------

    async def _declare(self, body: object, _: Variables) -> object:
        documents = cast("list[object]", body) if isinstance(body, list) else [body]
        if None in documents:
            raise wrong("a declaration is null: write apiVersion, kind, metadata and spec")
        try:
            declared = parse_manifests(documents)
        except ManifestError as error:
            raise HttpRefused(400, "invalid_manifest", str(error), "write what the sentence says") from None
        check_declared(declared)
        senses = self._meta.senses
        objects = await self._replica.change(lambda draft, now_ms: declare(draft, senses, declared, now_ms))
        return {"declared": len(declared), "revision": self._meta.registry.revision, "objects": objects}

    async def _expand(self, body: object, variables: Variables) -> object:
        asked, subject = Asked(body, EXPAND_FIELDS), variables["subject"]
        route = await self._replica.change(
            lambda draft, now_ms: expand(draft, self._meta.senses, subject, asked, now_ms)
        )
        record, _ = find_subject(self._meta.registry, subject)
        return route_row(route, record)

    async def _give_up_move(self, _: Query, variables: Variables) -> object:
        subject = variables["subject"]
        route = await self._replica.change(lambda draft, _: give_up_move(draft, subject))
        record, _current = find_subject(self._meta.registry, subject)
        return route_row(route, record)

    async def _subject_state(self, body: object, variables: Variables) -> object:
        asked, name = Asked(body, frozenset({"state"})), variables["subject"]
        record = await self._replica.change(lambda draft, _: set_subject_state(draft, name, asked))
        return {"subject": record.name, "state": record.state, "version": record.version}

    async def _subjects(self, _: Query, __: Variables) -> object:
        registry = self._meta.registry
        return [
            subject_row(registry, one)
            for one in sorted(registry.all(SubjectRecord), key=lambda one: one.name)
        ]

    async def _subject(self, _: Query, variables: Variables) -> object:
        return subject_row(self._meta.registry, find_subject(self._meta.registry, variables["subject"])[0])

    async def _remove_subject(self, query: Query, variables: Variables) -> object:
        subject, force = variables["subject"], is_said(query, "force")
        if is_said(query, "if_empty"):
            return await self._remove_if_empty(subject, force=force)
        await self._replica.change(
            lambda draft, now_ms: remove_subject(draft, self._meta.senses, subject, now_ms, force=force)
        )
        return {"removed": subject}

    async def _remove_if_empty(self, subject: str, *, force: bool) -> object:
        senses = self._meta.senses

        def look(draft: Draft, now_ms: int) -> tuple[str | None, list[str]]:
            """What is left, and who has not said it at that same moment: a report may come a moment later."""
            left = emptying.remove_if_empty(draft, senses, subject, now_ms, force=force)
            return left, emptying.silent(draft, subject) if left == "" else []

        who: list[str] = []
        for number in range(LOOKS):
            if number:
                await asyncio.sleep(LOOK_SECONDS)
            left, who = await self._replica.change(look)
            if left is None:
                return {"removed": subject}
            if left:
                raise Denied("not_empty", f"subject {subject!r} is not empty: {left}")
        raise Denied("not_known", f"what is left of subject {subject!r} is not known of {', '.join(who)}")

    async def _route(self, _: Query, variables: Variables) -> object:
        return self._meta.route(variables["subject"])

    async def _routes(self, query: Query, _: Variables) -> object:
        """Brokers as every client of this version knows them; and the routes of subjects that are named."""
        subjects = query.getall("subject", [])
        return {
            "version": max(1, self._meta.registry.revision),
            "brokers": list(self._meta.brokers(self._now_ms()).values()),
            "delays": self._meta.delays(self._now_ms()),
            "routes": [self._meta.route(subject) for subject in subjects],
        }

    async def _groups(self, _: Query, __: Variables) -> object:
        return consumer_group_rows(self._meta.registry)

    async def _remove_group(self, query: Query, variables: Variables) -> object:
        names, force = (variables["subject"], variables["group"]), is_said(query, "force")
        await self._replica.change(
            lambda draft, now_ms: remove_group(draft, self._meta.senses, names, now_ms, force=force)
        )
        return {"removed": "/".join(names)}

    async def _allocation(self, _: Query, variables: Variables) -> object:
        key = consumer_group_key(variables["subject"], variables["group"])
        if self._meta.registry.get(ConsumerGroupRecord, key) is None:
            raise Denied("unknown_consumer_group", f"there is no group {key[:200]!r}")
        found = self._meta.registry.get(Allocation, key)
        closed = sorted(closed_to(self._meta.registry, variables["subject"], variables["group"]))
        return allocation_row(found or Allocation(variables["subject"], variables["group"]), closed)

    # -- requests ---------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._replica.clock.now_ms()

    async def _json(self, request: web.BaseRequest) -> object:
        self.requests += 1
        with self._bodies.room() as room:
            data = await room.read(request, BODY_BYTES_MAX)
        return parse_body(data)

    def _with_body(
        self, handler: Handler
    ) -> Callable[[web.BaseRequest, Variables], Awaitable[web.StreamResponse]]:
        async def answer(request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
            with denials():
                return json_response(await handler(await self._json(request), variables))

        return answer

    def _without(
        self, handler: Handler
    ) -> Callable[[web.BaseRequest, Variables], Awaitable[web.StreamResponse]]:
        async def answer(request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
            self.requests += 1
            with denials():
                return json_response(await handler(request.rel_url.query, variables))

        return answer

"""The HTTP gateway: send, receive under a lease, ack, nack, extend, release, for whoever has no client.

It is another peer of the broker's machine, in the same process: a request becomes the command that a client would
send, goes through the same turn and waits for the same disk. So an answer means here what it means on the data port.
One request to send is one batch: stored as a whole or not at all.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any

from aiohttp import web

from tidemill_broker.doors.gateway_consumers import (
    PREFIX,
    HttpConsumer,
    HttpConsumers,
    hand_back,
    tell,
)
from tidemill_broker.doors.gateway_messages import check_fields, parse_json
from tidemill_broker.doors.gateway_receipts import Receipts
from tidemill_broker.doors.gateway_requests import (
    NACK_FIELDS,
    Make,
    check_named,
    defaults_of,
    group_of,
    idempotency_key,
    parse_nack,
    parse_pull,
    subject_of,
    subscribed_of,
    unknown_kind,
    value_of,
    when_of,
)
from tidemill_broker.doors.gateway_rows import render, sent_rows
from tidemill_broker.doors.gateway_sending import Sending, plain_sending, read_sending
from tidemill_broker.doors.gateway_settling import parse_receipts, parts_of
from tidemill_broker.doors.neighbour import Later, Nobody
from tidemill_broker.doors.service import Service
from tidemill_broker.groups import Group
from tidemill_broker.quotas import PaidOnce
from tidemill_broker.ranges import merge_ranges
from tidemill_host.bodies import Bodies, Room
from tidemill_host.clock import timestamp
from tidemill_host.doorman import asker, asker_by_now
from tidemill_host.local import LocalPeer
from tidemill_host.refusals import HttpRefused, json_response, refusal_of
from tidemill_host.routing import Route, Variables
from tidemill_wire import limits
from tidemill_wire.batch import SINGLES_FROM, BatchIds, Flags, Origin
from tidemill_wire.columns import build_batch
from tidemill_wire.commands import (
    Ack,
    Command,
    Done,
    Extend,
    Nack,
    Pull,
    Pulled,
    Release,
    SendBatches,
    Sent,
)
from tidemill_wire.errors import Refused, WireError
from tidemill_wire.filters import is_pattern
from tidemill_wire.guarding import rights_of
from tidemill_wire.quotas import Meter

SWEEP_SECONDS = 5.0
MESSAGES = "/v1/subjects/{subject}/messages"
GROUP = "/v1/subjects/{subject}/groups/{group}"


class Gateway:
    """All requests that send and consume."""

    def __init__(self, service: Service, later: Later | None = None) -> None:
        self._service = service
        self._later: Later = later or Nobody()
        self._turn = service.turn
        self.consumers = HttpConsumers(service.server, service.turn.now_ms)
        self._bodies = Bodies(limits.HTTP_HELD_BYTES_MAX)
        self._producer_id = secrets.randbits(63)
        self._producer_sequence = 0
        self._batch_ids = BatchIds(self._producer_id)
        self._paid = PaidOnce()
        self._common: LocalPeer | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Keep alive who was served before a restart: the leases of the last life go on."""
        members = self._service.broker.members
        for consumer in self._service.broker.state.consumers.values():
            held = list(consumer.held())
            if held and consumer.name.startswith(PREFIX):
                messages = sum(delivery.count for delivery in held)
                until_ms = max(delivery.deadline_ms for delivery in held)
                name = consumer.name.removeprefix(PREFIX)
                adopted = self.consumers.adopt(consumer.group.name, name, messages, until_ms)
                members.adopt(adopted.peer.number, consumer)
        self._sweep()

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.consumers.close()
        if self._common is not None:
            self._common.close()

    def routes(self) -> list[Route]:
        return [
            Route("POST", MESSAGES, self.send),
            Route("POST", f"{GROUP}/receive", self.receive),
            Route("POST", f"{GROUP}/ack", self.ack),
            Route("POST", f"{GROUP}/nack", self.nack),
            Route("POST", f"{GROUP}/extend", self.extend),
            Route("POST", f"{GROUP}/release", self.release),
        ]

    # Sending.

    async def send(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """One message or several, as one batch."""
        subject = subject_of(request, variables)
        if self._turn.backlog_bytes > limits.BACKLOG_BYTES_MAX:
            raise HttpRefused(
                503, "overloaded", "more waits for the broker's disk than may", "wait a second and try again"
            )
        keyed = idempotency_key(request)
        with self._bodies.room() as room:
            said = await self._said(request, room)
            content, origin = said.content, self._origin(subject, keyed, said.priority)
            now_ms = origin.created_at_ms
            deltas = content.deliver_deltas = said.deltas(now_ms)
            flags = Flags(0) if content.order_keys is None else Flags.ORDERED
            if content.dedup_keys is not None:
                flags |= Flags.DEDUPLICATED
            if deltas is not None:
                flags |= Flags.DELAYED
            batch = build_batch(replace(origin, flags=flags), content)
            count = len(content.bodies)
            del content, said
            payer = asker().payer
            if deltas is not None and payer is not None:
                # The delay service sees the gateway, and not who stands behind it.
                request_id = origin.producer_id, origin.producer_sequence
                self._paid.charge(request_id, (count, len(batch)), payer, now_ms)
            answer = await self._send(batch, payer) if deltas is None else await self._later.take(batch)
        for error in answer.errors.values():
            raise error
        rows = sent_rows(origin.batch_id, count, answer)
        for row, delta in zip(rows, deltas or (), strict=False):
            row["due"] = timestamp(now_ms + delta)
        return json_response({"subject": subject, "messages": rows})

    async def _send(self, batch: bytearray, payer: Meter | None) -> Sent:
        answer = await self._peer().ask(SendBatches(batch, payer=payer))
        assert isinstance(answer, Sent)
        return answer

    async def _said(self, request: web.BaseRequest, room: Room) -> Sending:
        """What is to be sent, and when it is to be given out."""
        defaults, when = defaults_of(request), when_of(request)
        kind = request.content_type
        if kind == "application/json":
            value = parse_json(await room.read(request, limits.HTTP_JSON_BYTES_MAX))
            return read_sending(value, defaults, when)
        if kind == "application/octet-stream" and "Content-Type" in request.headers:
            body = await room.read(request, limits.MESSAGE_BYTES_MAX)
            return plain_sending(body, defaults, when)
        raise unknown_kind("application/json, or application/octet-stream for one message as it is")

    def _origin(self, subject: str, keyed: str | None, priority: int) -> Origin:
        """Who sends: this gateway, which counts; or the key of a request, which is one batch and has one id."""
        now_ms = self._turn.now_ms()
        if keyed is None:
            self._producer_sequence += 1
            batch_id = self._batch_ids.next(now_ms)
            named = (self._producer_id, self._producer_sequence, batch_id, now_ms)
            return Origin(subject.encode(), *named, priority=priority)
        digest = blake2b(f"{subject}\0{keyed}".encode(), digest_size=32).digest()
        producer = int.from_bytes(digest[:8], "big") | SINGLES_FROM
        sequence = int.from_bytes(digest[8:16], "big") >> 1
        return Origin(subject.encode(), producer, sequence, digest[16:], now_ms, priority=priority)

    # Receiving.

    async def receive(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        """Messages under a lease; waits for the first one."""
        subject, group = subscribed_of(request, variables), group_of(variables)
        with self._bodies.room() as room:
            value = await value_of(request, room, empty=True)
            pull, name = parse_pull(subject, group, value)
            subjects = [one for said in pull.subjects for one in self._partitions(said)]
            pull = replace(pull, subjects=subjects, bound=asker().bound)
            asker().check(*(rights_of(pull) or ()))  # the body may name more than the path
            check_named(name, self._groups_of(pull), pull.mode)
            consumer = self.consumers.use(pull.group, name)
            answer = await self._ask(consumer, pull)
            await self._judge_again(consumer, pull, answer)
            given = render(answer, pull.group, name)
            if pull.once:
                for row in given.rows:
                    del row["receipt"]  # nothing is to be settled any more
                answer = replace(answer, grants=())
            self.consumers.granted(consumer, sum(grant.count for grant in answer.grants), answer.lease_ms)
            if given.undecodable and not pull.once:
                self._fail(consumer, given.undecodable)
            if given.left and not pull.once:
                self._settle_all(consumer, given.left, Release)
            body = {
                "consumer": name, "group": pull.group, "lease_ms": answer.lease_ms, "messages": given.rows,
            }  # fmt: skip
            response = json_response(body)
            room.add(response.content_length or 0)
            del given, body
            await self._hand_over(request, response, consumer, answer)
            return response

    def _partitions(self, subject: str) -> list[str]:
        """A subject, and its further partitions here: nobody else names those."""
        return [subject, *(one.name for one in self._service.broker.intake.further.of(subject))]

    def _groups_of(self, pull: Pull) -> Iterator[Group]:
        """Those that are there of what is pulled; of a pattern all of that name, which may be too many."""
        state = self._service.broker.state
        if any(map(is_pattern, pull.subjects)):
            yield from (group for group in state.groups.values() if group.name == pull.group)
        else:
            found = (state.group_of(subject, pull.group) for subject in pull.subjects)
            yield from (group for group in found if group is not None)

    async def _ask(self, consumer: HttpConsumer, pull: Pull) -> Pulled:
        future = consumer.peer.ask(pull)
        try:
            answer = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                hand_back(consumer.peer, consumer.group, consumer.name, future.result())
            raise
        assert isinstance(answer, Pulled)
        return answer

    async def _hand_over(
        self, request: web.BaseRequest, response: web.Response, consumer: HttpConsumer, answer: Pulled
    ) -> None:
        """Put the answer on the wire. What cannot be delivered is handed back at once, not when its lease ends."""
        try:
            async with asyncio.timeout(limits.SLOW_FRAME_MS / 1000):
                await response.prepare(request)
                await response.write_eof()
        except (asyncio.CancelledError, ConnectionError, TimeoutError) as error:
            messages = hand_back(consumer.peer, consumer.group, consumer.name, answer)
            self.consumers.settled(consumer.group, consumer.name, messages)
            if isinstance(error, TimeoutError):
                raise ConnectionResetError("it does not read its answer") from None
            raise

    async def _judge_again(self, consumer: HttpConsumer, pull: Pull, answer: Pulled) -> None:
        """Who waited for a minute may have lost meanwhile what it was let in with."""
        try:
            (await asker_by_now()).check(*(rights_of(pull) or ()))
        except (WireError, asyncio.CancelledError):
            hand_back(consumer.peer, consumer.group, consumer.name, answer)
            raise

    def _fail(self, consumer: HttpConsumer, undecodable: list[tuple[str, int]]) -> None:
        """Nobody can read these: they go the way of what fails."""
        reason = "the bytes of its batch do not hold what they claim"
        self._settle_all(consumer, undecodable, partial(Nack, delay_ms=-1, reason=reason))

    def _settle_all(self, consumer: HttpConsumer, deliveries: list[tuple[str, int]], make: Make) -> None:
        for where in dict.fromkeys(partition for partition, _ in deliveries):
            ranges = merge_ranges([(pull, 1) for partition, pull in deliveries if partition == where])
            tell(consumer.peer, make(consumer.group, PREFIX + consumer.name, where, ranges))
        self.consumers.settled(consumer.group, consumer.name, len(deliveries))

    # Settling.

    async def ack(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        return await self._settle(request, variables, lambda _: Ack)

    async def nack(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        return await self._settle(request, variables, parse_nack, NACK_FIELDS)

    async def extend(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        return await self._settle(request, variables, lambda _: Extend)

    async def release(self, request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
        return await self._settle(request, variables, lambda _: Release)

    async def _settle(
        self,
        request: web.BaseRequest,
        variables: Variables,
        chosen: Callable[[Mapping[str, Any]], Make],
        more: frozenset[str] = frozenset(),
    ) -> web.StreamResponse:
        subject, group = subject_of(request, variables), group_of(variables)
        with self._bodies.room() as room:
            value = await value_of(request, room)
        check_fields(value, more | {"receipts"})
        make = chosen(value)
        settlement = parse_receipts(value.get("receipts"), Receipts(subject, group))
        asked: list[tuple[str, list[int], asyncio.Future[Command]]] = []
        for name, ranges in settlement.ranges():
            places = self._partitions(subject)
            for where, part in parts_of(self._service.broker.state, places, group, PREFIX + name, ranges):
                asked.append((name, part, self._peer().ask(make(group, PREFIX + name, where, part))))
        answers = await asyncio.gather(*(future for _, _, future in asked), return_exceptions=True)
        lost: dict[str, list[int]] = {}
        for (name, part, _), answer in zip(asked, answers, strict=True):
            lost.setdefault(name, []).extend(_lost(part, answer))
        for name, ranges in lost.items():
            messages = settlement.hear(name, ranges)
            if make is Extend:
                self.consumers.extended(group, name)
            else:
                self.consumers.settled(group, name, messages)
        result = {"count": settlement.count, "lost": settlement.lost}
        if settlement.lost:
            detail = f"{len(settlement.lost)} receipts are of no lease of group {group}"
            raise refusal_of(Refused("lease_lost", detail), more=result)
        return json_response(result)

    # Plumbing.

    def _peer(self) -> LocalPeer:
        """The one that sends and settles for everybody, made when it is needed first."""
        if self._common is None:
            self._common = LocalPeer(self._service.server, lambda _: None)
        return self._common

    def _sweep(self) -> None:
        self.consumers.sweep()
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)


def _lost(asked: list[int], answer: Command | BaseException) -> Sequence[int]:
    """The ranges of those asked for that nobody holds any more."""
    if isinstance(answer, Refused) and answer.kind.name == "lease_lost":
        return asked
    if isinstance(answer, BaseException):
        raise answer
    assert isinstance(answer, Done)
    return answer.lost

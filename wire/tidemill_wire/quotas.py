"""How much somebody may send, and how much a subject takes: rates, and what was taken of them. And how much somebody
may hold, and of a subject may be held. Pure; time comes in.

A *meter* has a bucket for messages and one for bytes. Each fills at its rate, up to what a second brings, and a batch
is taken as a whole as soon as both have something: what it takes beyond leaves a debt, which is waited for. So a batch
of any size is taken at some time, and the rate holds over any longer time.

    something is there   a batch is taken, and paid for, into debt if need be
    nothing, or a debt   it is refused as ``over_quota``, with the time until something is there again; nothing is paid

A batch that is paid for by several, its subject and its sender, is taken when all of them have something, or none pays.

What is in flight, given to consumers and not settled, has a bound and no rate: time brings nothing back, but what is
settled does. Who gives it out counts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from tidemill_wire.counted import counted
from tidemill_wire.errors import Unavailable

BURST_S = 1.0
"""What was not used of so long may be used at once."""
ONE = 1 - 1e-6
"""Sums of fractions may lack that much."""
CONNECTIONS_WAIT_MS = 1_000
"""Nobody knows when another connection ends; who is refused one asks again then."""
IN_FLIGHT_WAIT_MS = 500
"""Nor when something is settled. Who has waited for that so long already, with its pull at the broker, asks again at
once: what is settled is given to pulls that are there."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What is allowed a second; 0: as much as there is."""

    messages: float = 0
    bytes: float = 0

    def __bool__(self) -> bool:
        return bool(self.messages or self.bytes)

    def part(self, here: int, in_all: int) -> Rates:
        """What is allowed to some of equal parts."""
        assert 0 < here <= in_all
        return Rates(self.messages * here / in_all, self.bytes * here / in_all)


@dataclass(frozen=True, slots=True)
class Quota:
    """What an identity may use of one service: rates, how many connections, and how many messages it may hold; 0: any
    number.
    """

    rates: Rates = Rates()
    connections: int = 0
    in_flight: int = 0

    def __bool__(self) -> bool:
        return bool(self.rates or self.connections or self.in_flight)

    def to_map(self) -> dict[str, Any]:
        said = {
            "messages": self.rates.messages, "bytes": self.rates.bytes, "connections": self.connections,
            "in_flight": self.in_flight,
        }  # fmt: skip
        return {name: number for name, number in said.items() if number}

    @classmethod
    def from_map(cls, body: Mapping[str, Any]) -> Quota:
        rates = Rates(body.get("messages", 0), body.get("bytes", 0))
        return cls(rates, int(body.get("connections", 0)), int(body.get("in_flight", 0)))


UNBOUNDED = Quota()


def least(quotas: Iterable[Quota]) -> Quota:
    """All of them hold."""
    some = list(quotas)
    return Quota(
        Rates(_least(one.rates.messages for one in some), _least(one.rates.bytes for one in some)),
        int(_least(one.connections for one in some)),
        int(_least(one.in_flight for one in some)),
    )


def _least(numbers: Iterable[float]) -> float:
    return min((number for number in numbers if number), default=0)


class Bucket:
    """So much a second of one thing."""

    __slots__ = ("_at_ms", "_left", "rate")

    def __init__(self, rate: float, now_ms: int) -> None:
        assert rate > 0
        self.rate = rate
        self._left = self._most
        self._at_ms = now_ms

    @property
    def _most(self) -> float:
        return max(1.0, self.rate * BURST_S)

    def wait_ms(self, now_ms: int) -> int:
        """Until there is one; 0: there is."""
        passed_ms = now_ms - self._at_ms
        self._at_ms = now_ms  # a clock that was set back brings nothing, and takes nothing
        if passed_ms > 0:
            self._left = min(self._most, self._left + self.rate * passed_ms / 1000)
        lacks = ONE - self._left
        return 0 if lacks <= 0 else max(1, ceil(lacks * 1000 / self.rate))

    def pay(self, count: int) -> None:
        """So many were taken."""
        self._left -= count

    def become(self, rate: float) -> None:
        """Another rate; a debt stays."""
        self.rate = rate
        self._left = min(self._left, self._most)


class Meter:
    """Somebody, or a subject, and what is left of the rates."""

    __slots__ = ("_bytes", "_messages", "name")

    def __init__(self, name: str, rates: Rates, now_ms: int) -> None:
        self.name = name
        """As a sentence has it."""
        self._messages: Bucket | None = None
        self._bytes: Bucket | None = None
        self.become(rates, now_ms)

    @property
    def rates(self) -> Rates:
        return Rates(
            self._messages.rate if self._messages is not None else 0,
            self._bytes.rate if self._bytes is not None else 0,
        )

    def become(self, rates: Rates, now_ms: int) -> None:
        """Other rates hold from now on."""
        self._messages = _adjusted(self._messages, rates.messages, now_ms)
        self._bytes = _adjusted(self._bytes, rates.bytes, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Until a batch is taken; 0: one is."""
        messages, size = self._messages, self._bytes
        return max(
            0 if messages is None else messages.wait_ms(now_ms), 0 if size is None else size.wait_ms(now_ms)
        )

    def pay(self, messages: int, size: int) -> None:
        """A batch was taken."""
        if self._messages is not None:
            self._messages.pay(messages)
        if self._bytes is not None:
            self._bytes.pay(size)


def _adjusted(bucket: Bucket | None, rate: float, now_ms: int) -> Bucket | None:
    if not rate:
        return None
    if bucket is None:
        return Bucket(rate, now_ms)
    bucket.become(rate)
    return bucket


def charge(meters: Iterable[Meter], messages: int, size: int, now_ms: int) -> Meter | None:
    """A batch is taken, and all pay; or nobody does, and this one has to be waited for the longest."""
    some = list(meters)
    slowest = max(some, key=lambda meter: meter.wait_ms(now_ms))
    if slowest.wait_ms(now_ms):
        return slowest
    for meter in some:
        meter.pay(messages, size)
    return None


def check_quota(meter: Meter, messages: int, size: int, now_ms: int) -> None:
    """One pays; ``Unavailable`` when it has to wait."""
    if charge((meter,), messages, size, now_ms) is not None:
        raise over(meter, now_ms)


def over(meter: Meter, now_ms: int) -> Unavailable:
    """What somebody is told who has to wait."""
    wait_ms, rates = meter.wait_ms(now_ms), meter.rates
    said = [f"{rates.messages:g} messages"] * bool(rates.messages)
    said += [f"{rates.bytes:g} bytes"] * bool(rates.bytes)
    detail = (
        f"the quota of {meter.name} is used up for {wait_ms / 1000:g} s: {' and '.join(said)} a second here"
    )
    return Unavailable("over_quota", detail, wait_ms)


@dataclass(frozen=True, slots=True)
class Bound:
    """How many messages somebody, or all consumers of a subject, may have in flight."""

    name: str
    """As a sentence has it."""
    most: int


def full(bound: Bound, waited_ms: int) -> Unavailable:
    """What a pull is told that was given nothing for so long, because so much is in flight."""
    detail = f"the quota of {bound.name} is used up: {counted(bound.most, 'message')} in flight here"
    return Unavailable("over_quota", detail, max(1, IN_FLIGHT_WAIT_MS - waited_ms))


class Usage:
    """What everybody with a quota uses of one service."""

    def __init__(self) -> None:
        self._quotas: Mapping[str, Quota] = {}
        self._payers: dict[str, Meter] = {}
        self._connections: Counter[str] = Counter()

    def obey(self, quotas: Mapping[str, Quota]) -> None:
        """These hold from now on. What was used stays used."""
        self._quotas = quotas
        self._payers = {who: payer for who, payer in self._payers.items() if who in quotas}

    def payer(self, who: str, now_ms: int) -> Meter | None:
        """Who pays for what somebody sends, if it is bounded."""
        rates = self._quotas.get(who, UNBOUNDED).rates
        if not rates:
            return None
        payer = self._payers.get(who)
        if payer is None:
            payer = self._payers[who] = Meter(who, rates, now_ms)
        elif payer.rates != rates:
            payer.become(rates, now_ms)
        return payer

    def bound(self, who: str) -> Bound | None:
        """How much somebody may have in flight, if that is bounded."""
        most = self._quotas.get(who, UNBOUNDED).in_flight
        return Bound(who, most) if most else None

    def came(self, who: str) -> None:
        """With one connection more; ``Unavailable`` when there are as many as may be. Those that are there stay."""
        most = self._quotas.get(who, UNBOUNDED).connections
        if most and self._connections[who] >= most:
            detail = f"{who} has {counted(most, 'connection')} here, as many as its quota allows"
            raise Unavailable("over_quota", detail, CONNECTIONS_WAIT_MS)
        self._connections[who] += 1

    def went(self, who: str) -> None:
        """One has ended."""
        self._connections[who] -= 1
        if not self._connections[who]:
            del self._connections[who]

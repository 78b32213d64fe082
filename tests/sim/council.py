"""A stand-in for meta: one place that appoints, by rules that are pure, and never forgets.

Brokers come to it over the simulated network, five times a second: they say how it stands with them, and hear what was
decided last. Only here the in-sync set changes, and an epoch is given out once. That it loses nothing and has no
replicas of its own is the real meta's business to make true.

    a wish of the master, told at the version that counts   -> that set, the next version
    the master was silent for too long, or has begun anew   -> the in-sync replica with the longest log, the next epoch;
                                                               one that was heard since it has begun anew, if any lives
    a slave in sync has begun anew, and the master lives    -> the set without it
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sim.world import Env
from tidemill_host.local import LocalPeer
from tidemill_wire.appointments import Appointment
from tidemill_wire.commands import encode_command, parse_command
from tidemill_wire.errors import WireError
from tidemill_wire.frame import FRAME_HEADER, FRAME_HEADER_BYTES, Frame
from tidemill_wire.replication import Appoint, Stand, Stood

COUNCIL = "council"
PORT = 9000
ASKS_EVERY_S = 0.2
DEAD_S = 1.5
PATIENCE_S = 1.0


@dataclass(slots=True)
class Book:
    """What was decided of a group, whoever decides."""

    appointment: Appointment
    decided: list[Appointment] = field(default_factory=list)
    replaced_s: list[float] = field(default_factory=list)
    """When an epoch ended."""


@dataclass(slots=True)
class Council(Book):
    """What is decided, and what was heard."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    heard: dict[str, tuple[float, Stood]] = field(default_factory=dict)
    doubted: dict[str, float] = field(default_factory=dict)
    """Since when a slave in sync is known to have begun anew."""
    over_s: tuple[int, float] = (0, 0.0)
    """Which epoch is over, for its master has begun anew, and since when that is known."""

    def hear(self, stood: Stood, now_s: float) -> Appoint:
        """A broker says how it stands; it is told what counts."""
        self.heard[stood.name] = (now_s, stood)
        self._grant(stood)
        self._replace_master(now_s)
        self._doubt(stood, now_s)
        return Appoint(self.appointment, self.addresses)

    def _grant(self, stood: Stood) -> None:
        now = self.appointment
        told_of_this = (stood.epoch, stood.version) == (now.epoch, now.version)
        if stood.wish is not None and stood.role == "master" and told_of_this and stood.name == now.master:
            self._decide(replace(now, in_sync=tuple(stood.wish), version=now.version + 1))

    def _replace_master(self, now_s: float) -> None:
        now = self.appointment
        here = self._here(now.in_sync, now_s)
        master = self.heard.get(now.master)
        if master is not None and now_s - master[0] <= DEAD_S and not self._is_over(master[1]):
            return
        if master is None and now_s <= DEAD_S:
            return
        if master is not None and self._is_over(master[1]) and self.over_s[0] != now.epoch:
            self.over_s = now.epoch, now_s
        if self.over_s[0] == now.epoch and any(self._may_be_away(one) for one in here):
            return
        if here:
            best = max(here, key=lambda one: (one.role != "fenced", one.ends, one.name))
            names = tuple(one.name for one in here if one is best or one.role != "fenced")
            self.replaced_s.append(now_s)
            self._decide(
                replace(now, epoch=now.epoch + 1, master=best.name, in_sync=names, version=now.version + 1)
            )

    def _doubt(self, stood: Stood, now_s: float) -> None:
        """A replica that was started again may have lost what it had: it is in sync again when its master says so. But
        as long as the master was not heard since, it may be the only one that has what is committed.
        """
        now = self.appointment
        if stood.role == "fenced" and stood.begun and stood.name != now.master and stood.name in now.in_sync:
            self.doubted.setdefault(stood.name, now_s)
        if stood.name == now.master and stood.role == "master":
            names = tuple(name for name in now.in_sync if name == now.master or name not in self.doubted)
            self.doubted.clear()
            if names != now.in_sync:
                self._decide(replace(now, in_sync=names, version=now.version + 1))

    def _is_over(self, stood: Stood) -> bool:
        """The master of this epoch was one, and is none any more."""
        return stood.role == "fenced" and stood.begun >= self.appointment.epoch

    def _may_be_away(self, stood: Stood) -> bool:
        """It was heard last before the master began anew, and may have lost its power before that."""
        return stood.role != "fenced" and self.heard[stood.name][0] < self.over_s[1]

    def _here(self, names: Sequence[str], now_s: float) -> list[Stood]:
        return [
            self.heard[name][1]
            for name in names
            if name in self.heard and now_s - self.heard[name][0] <= DEAD_S
        ]

    def _decide(self, appointment: Appointment) -> None:
        self.appointment = appointment
        self.decided.append(appointment)

    async def serve(self, env: Env) -> None:
        """The node."""
        loop = env.loop

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    stood = await read_command(reader)
                    assert isinstance(stood, Stood)
                    writer.write(encode_command(self.hear(stood, loop.now), 0))
            except (asyncio.IncompleteReadError, OSError):
                writer.close()

        await asyncio.start_server(answer, "0.0.0.0", PORT)
        await loop.create_future()


async def read_command(reader: asyncio.StreamReader) -> object:
    size, kind, flags, correlation = FRAME_HEADER.unpack(await reader.readexactly(FRAME_HEADER_BYTES))
    return parse_command(Frame(kind, flags, correlation, bytearray(await reader.readexactly(size))))


async def attend(local: LocalPeer, obeyed: list[Appointment]) -> None:
    """A broker's side: say how it stands, obey. Until cancelled."""
    while True:
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_connection(COUNCIL, PORT)
        except (OSError, TimeoutError):
            await asyncio.sleep(ASKS_EVERY_S)
            continue
        try:
            while True:
                async with asyncio.timeout(PATIENCE_S):
                    stood = await local.ask(Stand(asks=True))
                    assert isinstance(stood, Stood)
                    writer.write(encode_command(stood, 0))
                    appoint = await read_command(reader)
                assert isinstance(appoint, Appoint)
                one = appoint.appointment
                if (one.epoch, one.version) > (stood.epoch, stood.version) or stood.role == "fenced":
                    obeyed.append(one)
                    await local.ask(appoint)
                await asyncio.sleep(ASKS_EVERY_S)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        except WireError:
            await asyncio.sleep(ASKS_EVERY_S)  # refused, or this machine is over
        finally:
            writer.close()

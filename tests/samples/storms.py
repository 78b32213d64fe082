"""A broker to which everything happens that an action log tells of."""

from __future__ import annotations

import random

from samples.brokers import SUBJECT, TINY, Rig, pulls
from samples.tellings import Row, told
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.telling import Names
from tidemill_spark.actions import Account
from tidemill_wire.commands import Ack, Extend, Nack, Pulled, Purge, Redrive, Release, Seek
from tidemill_wire.kinds import Place

OTHER = "order.paid"
GROUPS = ("billing", "mail")
STEPS = 150


class Storm:
    """Producers, consumers that hold what they were given for too long, and lives that end."""

    def __init__(self, seed: int, settings: BrokerSettings = TINY) -> None:
        self.chance = random.Random(seed)
        self.rig = Rig(settings)
        self.given: list[tuple[str, str, str, list[int]]] = []

    def blow(self, steps: int = STEPS) -> None:
        """So many steps; and the disk has all of it."""
        for _ in range(steps):
            self.step()
        self.rig.wait(600)

    def step(self) -> None:
        chance, rig = self.chance, self.rig
        match chance.choices(range(9), (6, 6, 7, 3, 2, 2, 1, 1, 1))[0]:
            case 0:
                rig.send(
                    *[b"m"] * chance.randrange(1, 5), subject=chance.choice((SUBJECT, OTHER)),
                    priority=chance.choice((0, 0, 3)),
                )  # fmt: skip
            case 1:
                self._pull()
            case 2 | 3 if self.given:
                self._settle()
            case 4:
                rig.wait(chance.choice((10, 300, 1500)))
            case 5:
                rig.wait(chance.choice((1, 12_000)))
            case 6:
                rig.restart()
            case 7:
                rig.power_cut()
            case 8:
                self._steer()
            case _:
                pass

    def _pull(self) -> None:
        chance = self.chance
        group, subject = chance.choice(GROUPS), chance.choice((SUBJECT, OTHER))
        consumer = f"c{chance.randrange(3)}"
        found: Pulled = self.rig.pull(
            chance.randrange(1, 8), consumer=consumer, group=group, subjects=(subject,), start=0
        )
        if found.grants:
            self.given.append((group, consumer, subject, pulls(found)))

    def _settle(self) -> None:
        chance = self.chance
        group, consumer, subject, ranges = chance.choice(self.given)
        first, last = sorted(chance.choices(range(ranges[0], ranges[-1] + 1), k=2))
        said = (group, consumer, subject, [first, last])
        command = chance.choice(
            (
                Ack(*said), Ack(*said), Ack(*said, kept_until_ms=self.rig.now_ms + 5000), Nack(*said, reason="no"),
                Nack(*said, reject=True), Extend(*said), Extend(*said, parked_ms=100), Release(*said),
            )
        )  # fmt: skip
        self.rig.ask(command)

    def _steer(self) -> None:
        chance = self.chance
        group, subject = chance.choice(GROUPS), chance.choice((SUBJECT, OTHER))
        self.rig.ask(
            chance.choice(
                (Seek(group, subject, Place.EARLIEST), Redrive(subject, group, []), Purge(subject, group, []))
            )
        )

    def rows(self, cuts: int) -> tuple[list[Row], dict[str, Account]]:
        """Of all that is on the disk, read in so many pieces, each after what the one before carried."""
        broker, disk = self.rig.broker, self.rig.disk.mount()
        end, names = broker.logs.synced_action_position, Names()
        marks = sorted(self.chance.randrange(end + 1) for _ in range(cuts))
        carried = dict.fromkeys((SUBJECT, OTHER), Account(whole=True).carried)
        rows: list[Row] = []
        at = 0
        for mark in (*marks, end):
            behind, found = told(broker, disk, at, mark, names)
            assert not found.unnamed
            at = behind
            for subject, before in carried.items():
                account = Account.after(before)
                rows += account.rows(one for one in found.rows if one["subject"] == subject)
                carried[subject] = account.carried
        assert at == end
        return rows, {subject: Account.after(one) for subject, one in carried.items()}


def stormy(seed: int, settings: BrokerSettings = TINY) -> Storm:
    """One that is over."""
    storm = Storm(seed, settings)
    storm.blow()
    return storm

"""What a replica knows without the store: who is there, how far, how busy. It is told to nobody and never stored; a
replica that starts again learns it anew, and decides nothing about the dead until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill_meta.beats import (
    BrokerBeat,
    ClientBeat,
    broker_life,
    pack_broker,
    pack_client,
    unpack_broker,
    unpack_client,
)
from tidemill_meta.lagging import Lagging
from tidemill_meta.liveness import VIEW_MS_MAX, Liveness
from tidemill_meta.promotion import Member
from tidemill_meta.registry import View
from tidemill_meta.routing import Site
from tidemill_meta.settings import MetaSettings
from tidemill_meta.values import Broker, BrokerGroup, broker_key
from tidemill_wire.routes import State, both, writable

GAP_MS = VIEW_MS_MAX
"""A replica that was not asked for so long stood still, and heard nobody meanwhile."""
LATELY_BEATS = 3
"""Who misses so many is not known to be there, long before it counts as dead."""
RETURN_MS = 30_000
"""Who stops on purpose is looked forward to for so long, where it has what others may have lost. A pod that is replaced
is back within 15 to 24 seconds.
"""


class Senses:
    """Brokers and clients as they are heard, here and by the other replicas."""

    def __init__(self, settings: MetaSettings, now_ms: int, *, alone: bool) -> None:
        self.settings = settings
        self.alone = alone
        self.brokers = Liveness[BrokerBeat](now_ms, alone=alone)
        self.clients = Liveness[ClientBeat](now_ms, alone=alone, returning=True)
        self.lagging = Lagging()
        self._ticked_ms = self._read_ms = self._anew_ms = now_ms
        self._has_read = False
        self._numbers: dict[str, int] = {}
        self._noticed: dict[object, int] = {}
        self._sites: tuple[tuple[int, int], list[Site]] = (-1, -1), []

    # -- time -------------------------------------------------------------------------------------------------

    def ticked(self, now_ms: int) -> None:
        """Called often; long silence between two calls means that this replica was not there."""
        if now_ms - self._ticked_ms > GAP_MS or not self.fresh(now_ms):
            self.brokers.restart_listening(now_ms)
            self.clients.restart_listening(now_ms)
        self._ticked_ms = now_ms

    @property
    def listening_since_ms(self) -> int:
        """Since when this replica hears all that is said, without a gap."""
        return self.clients.listening_since_ms

    def fresh(self, now_ms: int) -> bool:
        """Whether the replica knows enough of the others to decide and to promise."""
        return self.alone or now_ms - self._read_ms <= VIEW_MS_MAX

    def known_to_all(self, stored: object, now_ms: int) -> bool:
        """Whether a thing that is stored was noticed so long ago that every replica which promises knows it, too."""
        return self.alone or self.noticed_for_ms(stored, now_ms) > VIEW_MS_MAX

    def noticed_for_ms(self, stored: object, now_ms: int) -> int:
        """How long ago a thing that is stored was noticed here at least."""
        return now_ms - self._noticed.setdefault(stored, now_ms)

    def begin_anew(self, now_ms: int) -> None:
        """The store had gone back: others may have been promised what nobody knows."""
        self._anew_ms = now_ms

    def promises_are_over(self, now_ms: int) -> bool:
        """Whether all are that consumers were given before the store began anew, or this replica began."""
        return now_ms - self._anew_ms > self.settings.authorisation_ms + VIEW_MS_MAX

    def has_listened(self, now_ms: int) -> bool:
        """Whether every broker that lives was heard, since this replica began or the store began anew."""
        return now_ms - self._anew_ms > self.settings.liveness_ms

    # -- the board --------------------------------------------------------------------------------------------

    def bulletin(self, now_ms: int) -> dict[str, Any]:
        """What the other replicas shall know."""
        brokers = [[key, pack_broker(beat), at, left] for key, beat, at, left in self.brokers.news(now_ms)]
        clients = [[key, pack_client(beat), at, left] for key, beat, at, left in self.clients.news(now_ms)]
        return {"made": now_ms, "brokers": brokers, "clients": clients}

    def exchanged(self, made_ms: int, asked_ms: int, now_ms: int) -> None:
        """The bulletin of ``made_ms`` is on the board; what was read there is as of ``asked_ms`` at least."""
        self.brokers.published(made_ms, now_ms)
        self.clients.published(made_ms, now_ms)
        self._read_ms, self._has_read = asked_ms, True

    def is_new(self, replica: str, number: int) -> bool:
        """Whether a bulletin was not read yet."""
        new = self._numbers.get(replica) != number
        self._numbers[replica] = number
        return new

    @property
    def numbers(self) -> Mapping[str, int]:
        """Of each other replica's bulletin, as it was read last."""
        return self._numbers

    def forget_replica(self, replica: str) -> None:
        """Its bulletin is not put up any more."""
        self._numbers.pop(replica, None)

    def learn(self, replica: str, bulletin: dict[str, Any], now_ms: int) -> None:
        """What another replica tells. Who has not read the board for long does not know since when a bulletin has been
        there: nothing is promised by it.
        """
        made_ms, lately = bulletin["made"], self._has_read and self.fresh(now_ms)
        for key, row, at, left in bulletin["brokers"]:
            if not self.brokers.knows(key, replica, at):
                news = key, unpack_broker(row), at, left
                self.brokers.learn(news, replica, made_ms, now_ms, settles=lately)
        for key, row, at, left in bulletin["clients"]:
            if not self.clients.knows(key, replica, at):
                told = key, unpack_client(row), at, left
                self.clients.learn(told, replica, made_ms, now_ms, settles=lately)

    def forget(self, view: View, now_ms: int) -> None:
        """Let go of what was long ago. What is noticed anew only waits a second longer."""
        self._noticed.clear()
        self.brokers.forget(now_ms)
        self.clients.forget(now_ms)
        self.lagging.forget(frozenset(group.name for group in view.all(BrokerGroup)))

    # -- brokers ----------------------------------------------------------------------------------------------

    def sample(self, group: BrokerGroup, now_ms: int) -> None:
        """Note how far the master is."""
        master = self.brokers.beat(
            broker_life(group.name, group.master, dict(group.replicas).get(group.master, 0))
        )
        if master is not None and master.epoch == group.epoch and master.role == "master":
            self.lagging.led(group.name, group.epoch, (master.messages, master.actions), now_ms)

    def members(self, group: BrokerGroup, now_ms: int) -> dict[str, Member]:
        """What is known of a group's brokers."""
        return {name: self._member(group, name, boot, now_ms) for name, boot in group.replicas}

    def _member(self, group: BrokerGroup, name: str, boot: int, now_ms: int) -> Member:
        key = broker_life(group.name, name, boot)
        found = dict(group.in_sync).get(name, boot)
        left_ms = self.brokers.left_for_ms(broker_life(group.name, name, found), now_ms)
        master = broker_life(group.name, group.master, dict(group.replicas).get(group.master, 0))
        silent = Member(
            name,
            boot,
            alive=not self.brokers.gone(key, self.settings.liveness_ms, now_ms),
            reported=False,
            outlived=self.brokers.heard_since(master, key),
            parted=left_ms is not None,
            expected=found == boot and left_ms is not None and left_ms <= RETURN_MS,
            awake=self._awake(group, key, master, now_ms),
        )
        beat = self.brokers.beat(key)
        if beat is None or beat.messages < 0:
            return silent
        reached = beat.messages, beat.actions
        behind_ms = self.lagging.behind_ms(group.name, reached, now_ms) if name != group.master else 0
        return replace(
            silent,
            reported=self.brokers.present(key, self.settings.liveness_ms, now_ms),
            epoch=beat.epoch,
            messages=beat.messages,
            actions=beat.actions,
            leads=beat.role == "master",
            fenced=self._fenced(group, name, boot, now_ms),
            behind=behind_ms > self.settings.behind_ms,
            in_sync=beat.in_sync,
            again=group.unsure and self._spoke_again(group, key, now_ms),
            settled=self.brokers.lease_left(key, self._lately_ms, now_ms) > 0,
        )

    def _awake(self, group: BrokerGroup, key: str, master: str, now_ms: int) -> bool:
        """Whether a life was heard since its master is known to have been started again, if it was. Who was heard last
        before that may have lost its power by then, and nobody knows yet.
        """
        if group.master not in dict(group.replicas) or group.seated or key == master:
            return True
        if not self.brokers.is_known(master):  # another replica heard it, and will tell when
            return self.brokers.gone(master, self.settings.liveness_ms, now_ms)
        return self.brokers.heard_since(key, master)

    def _spoke_again(self, group: BrokerGroup, key: str, now_ms: int) -> bool:
        """Whether a life was heard when every replica knew that its group is unsure: before, another one may have told
        it what is lost. Of a group that was not stored there may be others.
        """
        if not group.epoch and not self.has_listened(now_ms):
            return False
        heard_for_ms = now_ms - (self.brokers.heard_ms(key) or 0) + VIEW_MS_MAX
        return self.noticed_for_ms(("unsure", group.name, group.version), now_ms) > heard_for_ms + VIEW_MS_MAX

    @property
    def _lately_ms(self) -> int:
        """A beat settles when all replicas have read of it, which takes up to ``VIEW_MS_MAX`` longer."""
        return min(self.settings.liveness_ms, LATELY_BEATS * self.settings.broker_beat_ms + VIEW_MS_MAX)

    def _fenced(self, group: BrokerGroup, name: str, boot: int, now_ms: int) -> bool:
        """Whether a former life of it, which had a lease, may go on with it yet. Only the one that was master had, when
        there was somebody else to elect.
        """
        former = dict(group.in_sync).get(name)
        if (
            len(group.replicas) == 1
            or former is None
            or former == boot
            or name != group.master
            or len(group.in_sync) > 1
        ):
            return False
        known_for = self.brokers.known_for_ms(broker_life(group.name, name, boot), now_ms)
        over = self.brokers.gone(broker_life(group.name, name, former), self.settings.lease_ms, now_ms)
        return not over or (known_for <= VIEW_MS_MAX and not self.alone)

    def lease_ms(self, group: BrokerGroup, name: str, boot: int, now_ms: int) -> int:
        """How long a broker that is in sync alone may go on; 0 when it needs none, or has none. Without another replica
        it needs none: nobody else can be elected.
        """
        if len(group.replicas) == 1 or not group.seated or group.master != name or len(group.in_sync) != 1:
            return 0
        return self.brokers.lease_left(broker_life(group.name, name, boot), self.settings.lease_ms, now_ms)

    def state(self, group: BrokerGroup, now_ms: int) -> State:
        """What a broker group takes now: what people allow, and what its master can."""
        boot = dict(group.replicas).get(group.master)
        key = broker_life(group.name, group.master, boot or 0)
        beat = self.brokers.beat(key)
        said = beat is not None and (beat.role, beat.epoch) == ("master", group.epoch)
        leads = said if group.unsure else group.seated
        if boot is None or not leads or self.brokers.gone(key, self.settings.liveness_ms, now_ms):
            return "NRW"
        return both(group.allowed, beat.state) if beat is not None else group.allowed

    def sites(self, view: View, now_ms: int) -> Sequence[Site]:
        """All broker groups as places for subjects. Many subjects are often placed in a moment: who is open is looked
        at once in it, how full they are each time.
        """
        stored = view.stored
        changed_at = max(stored.kind_changed_at[kind] for kind in (Broker.KIND, BrokerGroup.KIND))
        moment = now_ms // self.settings.exchange_ms, changed_at
        if self._sites[0] != moment:
            self._sites = (
                moment,
                [
                    self._site(stored, group, now_ms)
                    for group in stored.all(BrokerGroup)
                    if group.service == "broker"
                ],
            )
        counts, sites = view.routed(), self._sites[1]
        for place, site in enumerate(sites):
            if site.partitions != counts[site.name]:
                sites[place] = replace(site, partitions=counts[site.name])
        return sites

    def _site(self, view: View, group: BrokerGroup, now_ms: int) -> Site:
        broker = view.get(Broker, broker_key(group.name, group.master))
        labels = frozenset(broker.labels) if broker is not None else frozenset[tuple[str, str]]()
        beat = self.brokers.beat(
            broker_life(group.name, group.master, dict(group.replicas).get(group.master, 0))
        )
        load = beat.load if beat is not None else 0.0
        is_open = not group.draining and writable(self.state(group, now_ms))
        return Site(group.name, labels, load, 0, is_open)

    def told(self, group: BrokerGroup) -> int:
        """The revision up to which a broker group has done what people said."""
        master = self.brokers.beat(
            broker_life(group.name, group.master, dict(group.replicas).get(group.master, 0))
        )
        return master.told if master is not None and master.epoch == group.epoch else 0

    # -- consumers in order -----------------------------------------------------------------------------------

    @property
    def session_ms(self) -> int:
        """A consumer in order that is silent for so long loses its partitions; a bit before its authorisation is
        over, so that the next owner is known when it is.
        """
        return self.settings.authorisation_ms - VIEW_MS_MAX - self.settings.exchange_ms
